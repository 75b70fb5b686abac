#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"

// Dequantizes 8-bit or 4-bit weights to floats, transposed: y[k][n] = weight[n][k] * scale. An
// invocation processes eight elements of k for four neighbours n, whose four values it writes at
// once.

layout(constant_id = 3) const uint SCALE = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint WEIGHT = 0; // form as in linear_quantized.comp
layout(constant_id = 6) const uint GROUPED = 0; // scales per group of k

layout(push_constant) uniform Push {
    uint n;           // a multiple of four
    uint k;           // a multiple of eight
    uint weight_row;  // bytes, a multiple of the bytes of eight elements
    uint group_shift; // log2 of the elements that share a scale: at least eight elements
    uint scale_row;   // scales per row of the weights
} push;

layout(set = 0, binding = 0) readonly buffer weight_block { uint words[]; } weight;
layout(set = 0, binding = 0) readonly buffer weight_block2 { uvec2 words[]; } weight_by_2;
RUN_IN(1, scale, SCALE)
RUN_OUT(2, y, OUT)

// Element i of eight.
float element(const uvec2 words, const uint i) {
    if (WEIGHT == 0) return float(bitfieldExtract(int(i < 4 ? words.x : words.y), int(i & 3) * 8, 8));
    uint place = WEIGHT == 2 ? i ^ 1 : i;
    return float(int((words.x >> (place * 4)) & 15) - 8);
}

void main() {
    uint n = gl_GlobalInvocationID.x * 4;
    uint k = gl_GlobalInvocationID.y * 8;
    if (n >= push.n || k >= push.k) return;
    uvec2 words[4];
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        uint row = (n + c) * push.weight_row;
        words[c] = WEIGHT == 0 ? weight_by_2.words[(row + k) >> 3] : uvec2(weight.words[(row + k / 2) >> 2], 0);
    }
    uvec4 rows = n + uvec4(0, 1, 2, 3);
    vec4 s = scale_each(GROUPED != 0 ? rows * push.scale_row + (k >> push.group_shift) : rows);
    [[unroll]] for (uint i = 0; i < 8; ++i) {
        vec4 v = vec4(element(words[0], i), element(words[1], i), element(words[2], i), element(words[3], i));
        y_write_f4((k + i) * push.n + n, v * s);
    }
}
