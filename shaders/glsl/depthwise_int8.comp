#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "table.glsl"

// An int8 depthwise convolution with integer sums, in channels-last layout. The channels of a pixel
// are padded to whole units of 16; each tap of the weights has `weight_row` values. An invocation
// computes four channels of ACROSS neighbours in a row of the output.

layout(constant_id = 3) const uint SCALE = 0;
layout(constant_id = 4) const uint BIAS = 0;
layout(constant_id = 5) const uint HAS_BIAS = 0;
// 1, 2 or 4.
layout(constant_id = 6) const uint ACROSS = 1;
// Whether outputs are mapped by a lookup table.
layout(constant_id = 7) const uint RECODED = 0;
layout(constant_id = 8) const uint RELU = 0;

layout(push_constant) uniform Push {
    // The number of invocations.
    uint count;
    uint channels;
    // Groups of four channels per pixel.
    uint quads;
    // Weights per tap.
    uint weight_row;
    int in_y;
    int in_x;
    uint out_y;
    uint out_x;
    int kernel_y;
    int kernel_x;
    int stride_y;
    int stride_x;
    int dilation_y;
    int dilation_x;
    int padding_y;
    int padding_x;
    // Quantization parameters of the input and of the output.
    int zero;
    float scale;
    float out_inverse;
    float out_zero;
} push;

WORDS_IN(0, x)
WORDS_IN(1, weight)
RUN_IN(2, scale, SCALE)
RUN_IN(3, bias, BIAS)
WORDS_OUT(4, y)
TABLE(5)

ivec4 codes(const uint word) {
    return ivec4(word << 24, word << 16, word << 8, word) >> 24;
}

void main() {
    uint id = invocation_x();
    if (id >= push.count) return;
    uint quad = id % push.quads;
    uint runs = (push.out_x + ACROSS - 1) / ACROSS;
    uint run = id / push.quads % runs;
    uint row = id / push.quads / runs;
    uint to_x = run * ACROSS;
    uint to_y = row % push.out_y;
    uint batch = row / push.out_y;
    // Padding channels repeat the last channel.
    uvec4 channels = min(quad * 4 + uvec4(0, 1, 2, 3), uvec4(push.channels - 1));
    int first_y = int(to_y) * push.stride_y - push.padding_y;
    int first_x = int(to_x) * push.stride_x - push.padding_x;
    uint picture = batch * uint(push.in_y * push.in_x) * push.quads + quad;
    bool whole = push.weight_row % 4 == 0;

    ivec4 sums[ACROSS];
    [[unroll]] for (uint i = 0; i < ACROSS; ++i) sums[i] = ivec4(0);
    for (int ky = 0; ky < push.kernel_y; ++ky) {
        int in_y = first_y + ky * push.dilation_y;
        if (uint(in_y) >= uint(push.in_y)) continue;
        uint line = picture + uint(in_y * push.in_x) * push.quads;
        for (int kx = 0; kx < push.kernel_x; ++kx) {
            uint tap = uint(ky * push.kernel_x + kx) * push.weight_row;
            ivec4 w;
            if (whole) w = codes(weight.words[(tap + channels.x) >> 2]);
            else [[unroll]] for (uint c = 0; c < 4; ++c) w[c] = codes(weight.words[(tap + channels[c]) >> 2])[(tap + channels[c]) & 3];
            [[unroll]] for (uint i = 0; i < ACROSS; ++i) {
                int in_x = first_x + int(i) * push.stride_x + kx * push.dilation_x;
                if (uint(in_x) >= uint(push.in_x)) continue;
                sums[i] += (codes(x.words[line + uint(in_x) * push.quads]) - push.zero) * w;
            }
        }
    }
    vec4 scales = scale_each(channels);
    vec4 biases = vec4(0);
    if (HAS_BIAS != 0) biases = bias_each(channels);
    uint at = (row * push.out_x + to_x) * push.quads + quad;
    [[unroll]] for (uint i = 0; i < ACROSS; ++i) {
        if (to_x + i >= push.out_x) break;
        vec4 v = vec4(sums[i]) * scales * push.scale;
        if (HAS_BIAS != 0) v += biases;
        if (RELU != 0) v = max(v, 0.0);
        v = clamp(roundEven(v * push.out_inverse) + push.out_zero, -128.0, 127.0);
        ivec4 made = integers(v);
        y.words[at + i * push.quads] = RECODED != 0 ? recoded(made) : pack_bytes(made);
    }
}
