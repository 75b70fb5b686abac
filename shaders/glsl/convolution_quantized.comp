#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// A 2D convolution, possibly transposed, with 8-bit weights and one scale per output channel.
//
// x is floating point, or quantized with one scale and zero point. Weights are
// [channel][ky][kx][channel of the group], or [ky][kx][channel] for depthwise convolutions. An
// invocation computes four neighbours of the output plane in TILE output channels.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint SCALE = 0;
layout(constant_id = 5) const uint BIAS = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint HAS_BIAS = 0;
layout(constant_id = 8) const uint DEPTHWISE = 0;
layout(constant_id = 9) const uint TRANSPOSED = 0;
layout(constant_id = 10) const uint TILE = 1; // 1 or 4; 4 needs planes and groups of multiples of four
layout(constant_id = 11) const uint BY_FOUR = 0; // four weights of neighbouring channels form a word
layout(constant_id = 12) const uint RELU = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint in_channels;
    uint in_height;
    uint in_width;
    uint out_channels;
    uint out_height;
    uint out_width;
    uint kernel_height;
    uint kernel_width;
    uint stride_y;
    uint stride_x;
    int pad_y;
    int pad_x;
    int dilation_y;
    int dilation_x;
    uint group_in; // channels
    uint group_out;
    uint weight_row; // elements
    uint scales; // the number of scales
    float input_scale;
    int input_zero;
    float out_inverse; // reciprocal of the output's scale, if it is quantized
    float out_zero;
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, weight, I8)
TENSOR_IN(2, scale, SCALE)
TENSOR_IN(3, bias, BIAS)
TENSOR_OUT(4, y, OUT)

const bool FLOATING = IN == F32 || IN == F16;

// Returns the input row or column for output `to` and kernel position `k`; -1 outside.
int source(const uint to, const uint k, const uint stride, const int pad, const int dilation, const uint size) {
    int at;
    if (TRANSPOSED != 0) {
        at = int(to) + pad - int(k) * dilation;
        if (at < 0 || at % int(stride) != 0) return -1;
        at /= int(stride);
    } else {
        at = int(to * stride) - pad + int(k) * dilation;
    }
    return at < int(size) ? max(at, -1) : -1;
}

ivec4 weights(const uint at) {
    int w = int(weight.words[at >> 2]);
    return ivec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), bitfieldExtract(w, 24, 8));
}

vec4 sums[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));
ivec4 int_sums[4] = ivec4[4](ivec4(0), ivec4(0), ivec4(0), ivec4(0));

float finished(float sum, const uint channel) {
    sum *= scale_f(channel % push.scales);
    if (!FLOATING) sum *= push.input_scale;
    if (HAS_BIAS != 0) sum += bias_f(channel);
    if (RELU != 0) sum = max(sum, 0.0);
    if (!is_float(OUT)) sum = clamp(roundEven(sum * push.out_inverse) + push.out_zero, -128.0, 127.0);
    return sum;
}

void main() {
    uint id = invocation_x();
    if (id * 4 * TILE >= push.numel) return;
    uint plane = push.out_height * push.out_width;
    uint in_plane = push.in_height * push.in_width;
    uint first = id * 4; // element of the output
    if (TILE > 1) {
        uint quads = plane / 4;
        uint tiles = push.out_channels / TILE;
        first = id % quads * 4 + (id / quads % tiles * TILE + id / quads / tiles * push.out_channels) * plane;
    }
    uvec4 channel; // of the output
    uvec4 base; // of the first input channel of the group
    uvec4 to_y;
    uvec4 to_x;
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        uint at = min(first + k, push.numel - 1);
        to_x[k] = at % push.out_width;
        to_y[k] = at / push.out_width % push.out_height;
        channel[k] = at / plane % push.out_channels;
        base[k] = (at / plane / push.out_channels * push.in_channels + channel[k] / push.group_out * push.group_in) * in_plane;
    }
    for (uint ky = 0; ky < push.kernel_height; ++ky) {
        for (uint kx = 0; kx < push.kernel_width; ++kx) {
            uint tap = ky * push.kernel_width + kx;
            bvec4 inside;
            uvec4 at;
            [[unroll]] for (uint k = 0; k < 4; ++k) {
                int iy = source(to_y[k], ky, push.stride_y, push.pad_y, push.dilation_y, push.in_height);
                int ix = source(to_x[k], kx, push.stride_x, push.pad_x, push.dilation_x, push.in_width);
                inside[k] = iy >= 0 && ix >= 0;
                at[k] = inside[k] ? base[k] + uint(iy) * push.in_width + uint(ix) : 0;
            }
            if (!any(inside)) continue;
            uint step = BY_FOUR != 0 ? 4 : 1;
            for (uint c = 0; c < push.group_in; c += step) {
                ivec4 w[4];
                [[unroll]] for (uint k = 0; k < 4; ++k) {
                    uint row = TILE > 1 ? channel.x + k : channel[k];
                    if (DEPTHWISE != 0) w[k] = ivec4(weight_i(tap * push.weight_row + row), 0, 0, 0);
                    else if (BY_FOUR != 0) w[k] = weights(row * push.weight_row + tap * push.group_in + c);
                    else w[k] = ivec4(weight_i(row * push.weight_row + tap * push.group_in + c), 0, 0, 0);
                }
                [[unroll]] for (uint k = 0; k < 4; ++k) {
                    if (!inside[k]) continue;
                    uint i = at[k] + c * in_plane;
                    if (FLOATING) {
                        vec4 v = vec4(x_f(i), 0, 0, 0);
                        if (BY_FOUR != 0) v.yzw = vec3(x_f(i + in_plane), x_f(i + 2 * in_plane), x_f(i + 3 * in_plane));
                        if (TILE == 1) sums[0][k] += dot(v, vec4(w[k]));
                        else [[unroll]] for (uint t = 0; t < 4; ++t) sums[t][k] += dot(v, vec4(w[t]));
                    } else {
                        ivec4 v = ivec4(x_i(i), 0, 0, 0);
                        if (BY_FOUR != 0) v.yzw = ivec3(x_i(i + in_plane), x_i(i + 2 * in_plane), x_i(i + 3 * in_plane));
                        v -= push.input_zero;
                        if (TILE == 1) {
                            ivec4 p = v * w[k];
                            int_sums[0][k] += BY_FOUR != 0 ? p.x + p.y + p.z + p.w : p.x;
                        } else [[unroll]] for (uint t = 0; t < 4; ++t) {
                            ivec4 p = v * w[t];
                            int_sums[t][k] += BY_FOUR != 0 ? p.x + p.y + p.z + p.w : p.x;
                        }
                    }
                }
            }
        }
    }
    [[unroll]] for (uint t = 0; t < 4; ++t) {
        if (t >= TILE) break;
        vec4 v = FLOATING ? sums[t] : vec4(int_sums[t]);
        [[unroll]] for (uint k = 0; k < 4; ++k) v[k] = finished(v[k], channel[k] + t);
        y_write_f4(first + t * plane, v);
    }
}
