#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// A 2D or 3D transposed convolution: every output element gathers the input elements that
// contribute to it. An invocation computes four neighbours of an output row in ROWS channels.
// Weights are [group][input channel][kz][ky][kx][output channel], the last padded to a multiple
// of 8.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint WEIGHT = 0;
layout(constant_id = 5) const uint BIAS = 0;
layout(constant_id = 6) const uint OUT = 0;
// 4 or 8.
layout(constant_id = 7) const uint ROWS = 4;
layout(constant_id = 8) const uint HAS_BIAS = 0;

// See epilogue.glsl.
layout(constant_id = 9) const uint ACTIVATION = 0;
layout(constant_id = 10) const uint RESIDUAL = 0;
layout(constant_id = 11) const uint HAS_RESIDUAL = 0;

#include "epilogue.glsl"

layout(push_constant) uniform Push {
    uint groups;
    uint in_channels;
    uint out_channels;
    uint pitch;
    int in_y;
    int in_x;
    uint out_y;
    uint out_x;
    int kernel_y;
    int kernel_x;
    int stride_y;
    int stride_x;
    int padding_y;
    int padding_x;
    int dilation_y;
    int dilation_x;
    // All one in 2D.
    int in_z;
    uint out_z;
    int kernel_z;
    int stride_z;
    int padding_z;
    int dilation_z;
    // Parameters of the activation.
    float a;
    float b;
    uint base_z;
} push;

RUN_IN(0, x, IN)
RUN_IN(1, w, WEIGHT)
RUN_IN(2, bias, BIAS)
RUN_IN(3, residual, RESIDUAL)
RUN_OUT(4, y, OUT)

void main() {
    uint z = WORKGROUP_Z;
    uint image_group = z / push.out_z;
    uint oz = z % push.out_z;
    uint group = image_group % push.groups;
    uint across = (push.out_x + 3) / 4;
    uint oy = gl_GlobalInvocationID.x / across;
    uint ox = gl_GlobalInvocationID.x % across * 4;
    uint channel = gl_GlobalInvocationID.y * ROWS;
    if (oy >= push.out_y || channel >= push.out_channels) return;
    vec4 sums[8];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = vec4(0);

    uint in_plane = uint(push.in_y * push.in_x);
    uint in_volume = uint(push.in_z) * in_plane;
    uint weight_plane = uint(push.kernel_z * push.kernel_y * push.kernel_x) * push.pitch;
    for (int tap = 0; tap < push.kernel_z * push.kernel_y; ++tap) {
        int tz = int(oz) + push.padding_z - tap / push.kernel_y * push.dilation_z;
        if (tz < 0 || tz % push.stride_z != 0 || tz / push.stride_z >= push.in_z) continue;
        int ky = tap % push.kernel_y;
        int ty = int(oy) + push.padding_y - ky * push.dilation_y;
        if (ty < 0 || ty % push.stride_y != 0 || ty / push.stride_y >= push.in_y) continue;
        uint row = image_group * push.in_channels * in_volume + uint(tz / push.stride_z) * in_plane + uint(ty / push.stride_y * push.in_x);
        for (int kx = 0; kx < push.kernel_x; ++kx) {
            ivec4 tx = int(ox) + push.padding_x - kx * push.dilation_x + ivec4(0, 1, 2, 3);
            ivec4 ix = tx / push.stride_x;
            bvec4 reached = bvec4(ivec4(greaterThanEqual(tx, ivec4(0))) * ivec4(equal(ix * push.stride_x, tx)) * ivec4(lessThan(ix, ivec4(push.in_x))));
            if (!any(reached)) continue;
            uvec4 columns = uvec4(clamp(ix, ivec4(0), ivec4(push.in_x - 1)));
            uint at = group * push.in_channels * weight_plane + uint(tap * push.kernel_x + kx) * push.pitch + channel;
            uint plane = row;
            for (uint ic = 0; ic < push.in_channels; ++ic) {
                vec4 v = mix(vec4(0), x_each(plane + columns), reached);
                [[unroll]] for (uint r = 0; r < ROWS; r += 4) {
                    vec4 f = w_f4(at + r);
                    sums[r] += f.x * v;
                    sums[r + 1] += f.y * v;
                    sums[r + 2] += f.z * v;
                    sums[r + 3] += f.w * v;
                }
                plane += in_volume;
                at += weight_plane;
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        if (channel + r >= push.out_channels) continue;
        vec4 sum = sums[r];
        if (HAS_BIAS != 0) sum += bias_f(group * push.out_channels + channel + r);
        uint plane = image_group * push.out_channels + channel + r;
        uint at = ((plane * push.out_z + oz) * push.out_y + oy) * push.out_x + ox;
        uint count = min(push.out_x - ox, 4);
        EPILOGUE(at, sum, count)
        y_write_run(at, sum, count);
    }
}
