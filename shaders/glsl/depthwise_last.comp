#version 450
//! module depthwise_last
//! module depthwise_last_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"

// A depthwise convolution in channels-last layout: x is [batch][y][x][channel]. An invocation
// computes four channels of COLUMNS neighbours in a row. Weights are [ky][kx][channel].

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint WEIGHT = 0;
layout(constant_id = 5) const uint BIAS = 0;
layout(constant_id = 6) const uint OUT = 0;
// 1, 2 or 4.
layout(constant_id = 7) const uint COLUMNS = 1;
layout(constant_id = 8) const uint KERNEL_X = 1;
layout(constant_id = 9) const uint STRIDE_X = 1;
layout(constant_id = 10) const uint DILATION_X = 1;
// The number of neighbouring inputs of COLUMNS outputs, if at most 16: each is then read only once.
// Otherwise 1.
layout(constant_id = 11) const uint NEIGHBOURS = 1;
layout(constant_id = 12) const uint HAS_BIAS = 0;

layout(push_constant) uniform Push {
    uint batch;
    uint channels; // a multiple of four
    uint pitch;    // distance between the weights of taps
    int in_y;
    int in_x;
    uint out_y;
    uint out_x;
    int padding_y;
    int padding_x;
    uint kernel_y;
    uint stride_y;
    uint dilation_y;
} push;

RUN_IN(0, x, IN)
RUN_IN(1, w, WEIGHT)
RUN_IN(2, bias, BIAS)
RUN_OUT(3, y, OUT)

// Returns four channels of a pixel in a row; zeros outside.
vec4 place(const uint row, const int ix, const bool there, const uint channel) {
    vec4 v = x_f4((row + uint(clamp(ix, 0, push.in_x - 1))) * push.channels + channel);
    return there && ix >= 0 && ix < push.in_x ? v : vec4(0.0);
}

void main() {
    uint across = (push.out_x + COLUMNS - 1) / COLUMNS;
    uint quads = push.channels / 4;
    uint id = invocation_x();
    uint channel = id % quads * 4;
    uint rest = id / quads;
    uint ox = rest % across * COLUMNS;
    rest /= across;
    uint oy = rest % push.out_y;
    uint picture = rest / push.out_y;
    if (picture >= push.batch) return;
    int first_x = int(ox * STRIDE_X) - push.padding_x;
    int first_y = int(oy * push.stride_y) - push.padding_y;

    vec4 sums[COLUMNS];
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sums[c] = HAS_BIAS != 0 ? bias_f4(channel) : vec4(0.0);
    for (uint ky = 0; ky < push.kernel_y; ++ky) {
        // Rows outside the image are clamped rather than skipped by a branch, so that all loads are
        // in flight together.
        int iy = first_y + int(ky * push.dilation_y);
        bool there = iy >= 0 && iy < push.in_y;
        uint row = (picture * uint(push.in_y) + uint(clamp(iy, 0, push.in_y - 1))) * uint(push.in_x);
        uint weights = ky * KERNEL_X * push.pitch + channel;
        if (NEIGHBOURS > 1) {
            vec4 neighbours[NEIGHBOURS];
            [[unroll]] for (uint i = 0; i < NEIGHBOURS; ++i) neighbours[i] = place(row, first_x + int(i), there, channel);
            [[unroll]] for (uint kx = 0; kx < min(KERNEL_X, NEIGHBOURS); ++kx) {
                vec4 f = w_f4(weights + kx * push.pitch);
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                    sums[c] += f * neighbours[min(c * STRIDE_X + kx * DILATION_X, NEIGHBOURS - 1)];
                }
            }
        } else {
            for (uint kx = 0; kx < KERNEL_X; ++kx) {
                vec4 f = w_f4(weights + kx * push.pitch);
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                    sums[c] += f * place(row, first_x + int(c * STRIDE_X + kx * DILATION_X), there, channel);
                }
            }
        }
    }
    uint at = ((picture * push.out_y + oy) * push.out_x + ox) * push.channels + channel;
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        if (ox + c < push.out_x) y_write_run(at + c * push.channels, sums[c], 4);
    }
}
