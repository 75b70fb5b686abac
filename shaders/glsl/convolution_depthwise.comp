#version 450
//! module convolution_depthwise
//! module convolution_depthwise_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// A 2D or 3D depthwise convolution with `multiplier` output channels per input channel. An
// invocation computes four neighbours of ROWS consecutive output rows in one plane. Weights are
// [channel][kz][ky][kx].

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint WEIGHT = 0;
layout(constant_id = 5) const uint BIAS = 0;
layout(constant_id = 6) const uint OUT = 0;
// 1 or 2.
layout(constant_id = 7) const uint ROWS = 1;
layout(constant_id = 8) const uint KERNEL_X = 1;
layout(constant_id = 9) const uint KERNEL_Y = 1;
layout(constant_id = 10) const uint STRIDE_X = 1;
layout(constant_id = 11) const uint STRIDE_Y = 1;
layout(constant_id = 12) const uint DILATION_X = 1;
layout(constant_id = 13) const uint DILATION_Y = 1;
// Whether four neighbouring outputs need at most 16 neighbouring inputs, which are then read only
// once.
layout(constant_id = 14) const uint BY_ROW = 0;
layout(constant_id = 15) const uint HAS_BIAS = 0;

// See epilogue.glsl.
layout(constant_id = 16) const uint ACTIVATION = 0;
layout(constant_id = 17) const uint RESIDUAL = 0;
layout(constant_id = 18) const uint HAS_RESIDUAL = 0;

// Whether the convolution is 3D.
layout(constant_id = 19) const uint DEEP = 0;

#include "epilogue.glsl"

layout(push_constant) uniform Push {
    // Output planes, output channels, and output channels per input channel.
    uint planes;
    uint channels;
    uint multiplier;
    int in_y;
    int in_x;
    uint out_y;
    uint out_x;
    int padding_y;
    int padding_x;
    // Parameters of the activation.
    float a;
    float b;
    // For 3D convolutions.
    int in_z;
    uint out_z;
    uint kernel_z;
    int stride_z;
    int padding_z;
    int dilation_z;
} push;

RUN_IN(0, x, IN)
RUN_IN(1, w, WEIGHT)
RUN_IN(2, bias, BIAS)
RUN_IN(3, residual, RESIDUAL)
RUN_OUT(4, y, OUT)

float tap(const uint row, const int ix, const bool there) {
    float v = x_f(row + uint(clamp(ix, 0, push.in_x - 1)));
    return there && ix >= 0 && ix < push.in_x ? v : 0.0;
}

void main() {
    uint across = (push.out_x + 3) / 4;
    uint down = (push.out_y + ROWS - 1) / ROWS;
    uint id = invocation_x();
    uint plane = id / (across * down);
    uint rest = id % (across * down);
    uint oy = rest / across * ROWS;
    uint ox = rest % across * 4;
    if (plane >= push.planes) return;
    uint own = DEEP != 0 ? plane / push.out_z : plane;
    uint channel = own % push.channels;
    int first_x = int(ox * STRIDE_X) - push.padding_x;
    int first_y = int(oy * STRIDE_Y) - push.padding_y;
    int first_z = DEEP != 0 ? int(plane % push.out_z) * push.stride_z - push.padding_z : 0;
    uint depth = DEEP != 0 ? push.kernel_z : 1;

    vec4 sums[2];
    sums[0] = sums[1] = vec4(HAS_BIAS != 0 ? bias_f(channel) : 0.0);
    for (uint kz = 0; kz < depth; ++kz) {
        uint in_plane = own / push.multiplier;
        if (DEEP != 0) {
            int iz = first_z + int(kz) * push.dilation_z;
            if (iz < 0 || iz >= push.in_z) continue;
            in_plane = in_plane * uint(push.in_z) + uint(iz);
        }
        in_plane *= uint(push.in_y);
        uint weights = (channel * depth + kz) * KERNEL_X * KERNEL_Y;
        if (BY_ROW != 0) {
            float f[49];
            [[unroll]] for (uint i = 0; i < min(KERNEL_X * KERNEL_Y, 49); ++i) f[i] = w_f(weights + i);
            // Each input row contributes to several output rows.
            [[unroll]] for (uint ry = 0; ry < (ROWS - 1) * STRIDE_Y + (KERNEL_Y - 1) * DILATION_Y + 1; ++ry) {
                // Rows outside the image are clamped rather than skipped by a branch, so that all
                // loads are in flight together.
                int iy = first_y + int(ry);
                bool there = iy >= 0 && iy < push.in_y;
                uint row = (in_plane + uint(clamp(iy, 0, push.in_y - 1))) * uint(push.in_x);
                float taps[16];
                [[unroll]] for (uint i = 0; i < min(3 * STRIDE_X + (KERNEL_X - 1) * DILATION_X + 1, 16); ++i) {
                    taps[i] = tap(row, first_x + int(i), there);
                }
                [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                    int step = int(ry) - int(r * STRIDE_Y);
                    if (step < 0 || step % int(DILATION_Y) != 0 || step / int(DILATION_Y) >= int(KERNEL_Y)) continue;
                    uint ky = uint(step) / DILATION_Y;
                    [[unroll]] for (uint kx = 0; kx < min(KERNEL_X, 16); ++kx) {
                        uint i = kx * DILATION_X;
                        vec4 v = vec4(taps[i & 15], taps[(i + STRIDE_X) & 15], taps[(i + 2 * STRIDE_X) & 15], taps[(i + 3 * STRIDE_X) & 15]);
                        sums[r] += f[min(ky * KERNEL_X + kx, 48)] * v;
                    }
                }
            }
        } else {
            for (uint r = 0; r < ROWS; ++r) {
                for (uint ky = 0; ky < KERNEL_Y; ++ky) {
                    int iy = first_y + int(r * STRIDE_Y + ky * DILATION_Y);
                    if (iy < 0 || iy >= push.in_y) continue;
                    uint row = (in_plane + uint(iy)) * uint(push.in_x);
                    for (uint kx = 0; kx < KERNEL_X; ++kx) {
                        int ix = first_x + int(kx * DILATION_X);
                        const int step = int(STRIDE_X);
                        vec4 v = vec4(tap(row, ix, true), tap(row, ix + step, true), tap(row, ix + 2 * step, true), tap(row, ix + 3 * step, true));
                        sums[r] += w_f(weights + ky * KERNEL_X + kx) * v;
                    }
                }
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        if (oy + r >= push.out_y) continue;
        vec4 sum = sums[r];
        uint at = (plane * push.out_y + oy + r) * push.out_x + ox;
        uint count = min(push.out_x - ox, 4);
        EPILOGUE(at, sum, count)
        y_write_run(at, sum, count);
    }
}
