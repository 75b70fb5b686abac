#version 450
//! module gemv_quantized
//! module gemv_quantized_subgroups SUBGROUPS
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// What linear_quantized.comp computes, for few rows of floating-point numbers, where memory decides how long it takes: a workgroup for four
// neighbours of the output. Its invocations share the sum, eight elements of k each in turn, so that they read neighbouring words of the
// weights, and each takes its eight numbers of x for four rows of the weights. WIDE: 16 bytes of each row in turn, so that all that an
// invocation needs is on its way at once.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint SCALE = 0;
layout(constant_id = 5) const uint BIAS = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint WEIGHT = 0; // as linear_quantized.comp numbers the forms
layout(constant_id = 8) const uint HAS_BIAS = 0;
layout(constant_id = 9) const uint GROUPED = 0; // scales change along k
layout(constant_id = 10) const uint ACTIVATION = 0;
layout(constant_id = 11) const uint RESIDUAL = 0;
layout(constant_id = 12) const uint HAS_RESIDUAL = 0;
layout(constant_id = 13) const uint WIDE = 0;

layout(push_constant) uniform Push {
    uint m;
    uint n;           // a multiple of four
    uint k;           // a multiple of eight; WIDE: of the elements in 16 bytes of a row
    uint weight_row;  // bytes, a multiple of the bytes of eight elements; WIDE: of 16
    uint group_shift; // elements that share a scale, as a power of two: at least eight; WIDE: those in 16 bytes
    uint scale_row;   // scales of a row of the weights
    float a;          // of the activation
    float b;
} push;

RUN_IN(0, x, IN)
layout(set = 0, binding = 1) readonly buffer weight_block { uint words[]; } weight;
layout(set = 0, binding = 1) readonly buffer weight_block2 { uvec2 words[]; } weight_by_2;
layout(set = 0, binding = 1) readonly buffer weight_block4 { uvec4 words[]; } weight_by_4;
RUN_IN(2, scale, SCALE)
RUN_IN(3, bias, BIAS)
RUN_IN(4, residual, RESIDUAL)
RUN_OUT(5, y, OUT)

#include "epilogue.glsl"

const uint MAX_LANES = 256;
shared vec4 partials[MAX_LANES];

// A whole number below 2^20, in bits of the fraction of 2^23, is that number once 2^23 is taken from it: faster than a conversion.
const uint MAGIC = 0x4b000000u;

// Four numbers of 4 bits less 8 each, the second times 16, the third times 256, the fourth times 4096.
vec4 staggered(uint word) {
    uvec4 bits = (uvec4(word) & uvec4(0xf, 0xf0, 0xf00, 0xf000)) | MAGIC;
    return uintBitsToFloat(bits) - vec4(8388616.0, 8388736.0, 8390656.0, 8421376.0);
}

vec4 bytes(uint word) {
    int w = int(word);
    return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), bitfieldExtract(w, 24, 8));
}

// Numbers of x as the weights of a word, which are `staggered`, take them.
vec4 turned(vec4 v) {
    if (WEIGHT == 2) v = v.yxwz;
    return v * vec4(1.0, 1.0 / 16.0, 1.0 / 256.0, 1.0 / 4096.0);
}

// The scales of the four rows at element k.
vec4 scales(uint n, uint k) {
    uint at = n * push.scale_row + (k >> push.group_shift);
    return scale_each(at + uvec4(0, 1, 2, 3) * push.scale_row);
}

// Eight elements of k in four rows of the weights.
vec4 eight(uint m, uint n, uint k) {
    vec4 low = x_f4(m * push.k + k);
    vec4 high = x_f4(m * push.k + k + 4);
    if (WEIGHT != 0) {
        low = turned(low);
        high = turned(high);
    }
    vec4 products;
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        uint row = (n + c) * push.weight_row;
        if (WEIGHT == 0) {
            uvec2 words = weight_by_2.words[(row + k) >> 3];
            products[c] = dot(low, bytes(words.x)) + dot(high, bytes(words.y));
        } else {
            uint word = weight.words[(row + k / 2) >> 2];
            products[c] = dot(low, staggered(word)) + dot(high, staggered(word >> 16));
        }
    }
    return products;
}

// 16 bytes of four rows of the weights.
vec4 wide(uint m, uint n, uint k) {
    uvec4 words[4];
    vec4 low[4];
    vec4 high[4];
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        words[c] = weight_by_4.words[((n + c) * push.weight_row + (WEIGHT == 0 ? k : k / 2)) >> 4];
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (WEIGHT == 0) {
            low[j] = x_f4(m * push.k + k + j * 4);
        } else {
            low[j] = turned(x_f4(m * push.k + k + j * 8));
            high[j] = turned(x_f4(m * push.k + k + j * 8 + 4));
        }
    }
    vec4 products = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            uint word = words[c][j];
            if (WEIGHT == 0) products[c] += dot(low[j], bytes(word));
            else products[c] += dot(low[j], staggered(word)) + dot(high[j], staggered(word >> 16));
        }
    }
    return products;
}

const uint PER_TURN = WIDE == 0 ? 8 : WEIGHT == 0 ? 16 : 32;

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint lanes = gl_WorkGroupSize.x;
    uint tile = invocation_y();
    uint quads = push.n / 4;
    uint n = tile % quads * 4;
    uint m = tile / quads;
    if (m >= push.m) return;
    vec4 sum = vec4(0);
    for (uint k = lane * PER_TURN; k < push.k; k += lanes * PER_TURN) {
        vec4 products = WIDE != 0 ? wide(m, n, k) : eight(m, n, k);
        if (GROUPED != 0) products *= scales(n, k);
        sum += products;
    }
#ifdef SUBGROUPS
    sum = subgroupAdd(sum);
    if (gl_NumSubgroups > 1) {
        if (subgroupElect()) partials[gl_SubgroupID] = sum;
        barrier();
        sum = partials[0];
        for (uint i = 1; i < gl_NumSubgroups; ++i) sum += partials[i];
    }
    if (lane != 0) return;
#else
    partials[lane] = sum;
    for (uint half_lanes = lanes / 2; half_lanes > 0; half_lanes /= 2) {
        barrier();
        if (lane < half_lanes) {
            sum += partials[lane + half_lanes];
            partials[lane] = sum;
        }
    }
    if (lane != 0) return;
#endif
    if (GROUPED == 0) sum *= scale_each(n + uvec4(0, 1, 2, 3));
    if (HAS_BIAS != 0) sum += bias_each(n + uvec4(0, 1, 2, 3));
    uint at = m * push.n + n;
    EPILOGUE(at, sum, 4)
    y_write_f4(at, sum);
}
