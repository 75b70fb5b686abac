#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// A 2D or 3D convolution. An invocation computes four neighbours of an output row in ROWS channels.
// Invocations of a workgroup that differ in z share the sum over the input channels. Weights are
// [group][input channel][kz][ky][kx][output channel], the last padded to a multiple of 8.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint WEIGHT = 0;
layout(constant_id = 5) const uint BIAS = 0;
layout(constant_id = 6) const uint OUT = 0;
// 4 or 8.
layout(constant_id = 7) const uint ROWS = 4;
layout(constant_id = 8) const uint KERNEL_X = 1;
layout(constant_id = 9) const uint STRIDE_X = 1;
layout(constant_id = 10) const uint DILATION_X = 1;
// Whether four neighbouring outputs need at most 16 neighbouring inputs, which are then read only
// once.
layout(constant_id = 11) const uint BY_ROW = 0;
layout(constant_id = 12) const uint HAS_BIAS = 0;
layout(constant_id = 13) const uint SHARES = 1;
layout(constant_id = 14) const uint PARTIALS = 1;

// See epilogue.glsl.
layout(constant_id = 15) const uint ACTIVATION = 0;
layout(constant_id = 16) const uint RESIDUAL = 0;
layout(constant_id = 17) const uint HAS_RESIDUAL = 0;

// Whether the convolution is 3D.
layout(constant_id = 18) const uint DEEP = 0;

#include "epilogue.glsl"

layout(push_constant) uniform Push {
    uint groups;
    // Channels per group, and the padded number of output channels.
    uint in_channels;
    uint out_channels;
    uint pitch;
    int in_y;
    int in_x;
    uint out_y;
    uint out_x;
    uint kernel_y;
    int stride_y;
    int padding_y;
    int padding_x;
    int dilation_y;
    // Parameters of the activation.
    float a;
    float b;
    // Only for 3D convolutions.
    int in_z;
    uint out_z;
    uint kernel_z;
    int stride_z;
    int padding_z;
    int dilation_z;
    uint base_z;
} push;

RUN_IN(0, x, IN)
RUN_IN(1, w, WEIGHT)
RUN_IN(2, bias, BIAS)
RUN_IN(3, residual, RESIDUAL)
RUN_OUT(4, y, OUT)

shared vec4 partials[PARTIALS];

// Adds four neighbours, times the weights of all rows.
#define ADD(at, v) \
    [[unroll]] for (uint r = 0; r < ROWS; r += 4) { \
        vec4 f = w_f4(at + r); \
        sums[r] += f.x * v; \
        sums[r + 1] += f.y * v; \
        sums[r + 2] += f.z * v; \
        sums[r + 3] += f.w * v; \
    }

// Reads an element of an input row; zero outside.
float tap(const uint row, const int ix) {
    float v = x_f(row + uint(clamp(ix, 0, push.in_x - 1)));
    return ix >= 0 && ix < push.in_x ? v : 0.0;
}

// The rows per output channel.
uint out_rows() { return DEEP != 0 ? push.out_z * push.out_y : push.out_y; }

// Writes four neighbours of a row of a channel, if the channel exists.
void finish(const uint image_group, const uint channel, const uint row, const uint ox, vec4 sum) {
    if (channel >= push.out_channels) return;
    if (HAS_BIAS != 0) sum += bias_f(image_group % push.groups * push.out_channels + channel);
    uint at = ((image_group * push.out_channels + channel) * out_rows() + row) * push.out_x + ox;
    uint count = min(push.out_x - ox, 4);
    EPILOGUE(at, sum, count)
    y_write_run(at, sum, count);
}

void main() {
    uint image_group = WORKGROUP_Z;
    uint group = image_group % push.groups;
    uint across = (push.out_x + 3) / 4;
    uint own_row = gl_GlobalInvocationID.x / across;
    uint ox = gl_GlobalInvocationID.x % across * 4;
    uint channel = gl_GlobalInvocationID.y * ROWS;
    uint share = gl_LocalInvocationID.z;
    bool inside = own_row < out_rows() && channel < push.out_channels;
    vec4 sums[8];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = vec4(0);

    if (inside) {
        int first_x = int(ox * STRIDE_X) - push.padding_x;
        uint oz = DEEP != 0 ? own_row / push.out_y : 0;
        int first_y = int(own_row - oz * push.out_y) * push.stride_y - push.padding_y;
        // Rows of the kernel.
        uint rows = DEEP != 0 ? push.kernel_z * push.kernel_y : push.kernel_y;
        for (uint ic = share; ic < push.in_channels; ic += SHARES) {
            uint own = image_group * push.in_channels + ic;
            uint weights = (group * push.in_channels + ic) * rows * KERNEL_X * push.pitch + channel;
            for (uint line = 0; line < rows; ++line) {
                uint kz = DEEP != 0 ? line / push.kernel_y : 0;
                int iy = first_y + int(line - kz * push.kernel_y) * push.dilation_y;
                if (iy < 0 || iy >= push.in_y) continue;
                uint plane = own;
                if (DEEP != 0) {
                    int iz = int(oz) * push.stride_z - push.padding_z + int(kz) * push.dilation_z;
                    if (iz < 0 || iz >= push.in_z) continue;
                    plane = own * uint(push.in_z) + uint(iz);
                }
                uint row = (plane * uint(push.in_y) + uint(iy)) * uint(push.in_x);
                uint at = weights + line * KERNEL_X * push.pitch;
                if (BY_ROW != 0) {
                    float taps[16];
                    [[unroll]] for (uint i = 0; i < min(3 * STRIDE_X + (KERNEL_X - 1) * DILATION_X + 1, 16); ++i) {
                        taps[i] = tap(row, first_x + int(i));
                    }
                    [[unroll]] for (uint kx = 0; kx < min(KERNEL_X, 16); ++kx) {
                        uint i = kx * DILATION_X;
                        vec4 v = vec4(taps[i & 15], taps[(i + STRIDE_X) & 15], taps[(i + 2 * STRIDE_X) & 15], taps[(i + 3 * STRIDE_X) & 15]);
                        ADD(at, v)
                        at += push.pitch;
                    }
                } else {
                    for (uint kx = 0; kx < KERNEL_X; ++kx) {
                        int ix = first_x + int(kx * DILATION_X);
                        const int step = int(STRIDE_X);
                        vec4 v = vec4(tap(row, ix), tap(row, ix + step), tap(row, ix + 2 * step), tap(row, ix + 3 * step));
                        ADD(at, v)
                        at += push.pitch;
                    }
                }
            }
        }
    }

    if (SHARES == 1) {
        if (!inside) return;
        [[unroll]] for (uint r = 0; r < ROWS; ++r) finish(image_group, channel + r, own_row, ox, sums[r]);
        return;
    }
    uint tile = gl_WorkGroupSize.x * gl_WorkGroupSize.y;
    uint place = gl_LocalInvocationID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) partials[(share * ROWS + r) * tile + place] = sums[r];
    barrier();
    if (!inside) return;
    // Each share finishes some of the channels.
    for (uint r = share; r < ROWS; r += SHARES) {
        vec4 sum = vec4(0);
        for (uint s = 0; s < SHARES; ++s) sum += partials[(s * ROWS + r) * tile + place];
        finish(image_group, channel + r, own_row, ox, sum);
    }
}
