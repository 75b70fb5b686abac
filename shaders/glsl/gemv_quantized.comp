#version 450
//! module gemv_quantized
//! module gemv_quantized_subgroups SUBGROUPS
//! module gemv_gated GATED
//! module gemv_gated_subgroups GATED SUBGROUPS
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
//
// HAS_NORM: of x divided by the root of the mean of its squares, times the weights of that norm. The root is common to all terms, so that it
// divides the sum.
//
// GATED: the activation of the product with one matrix times that with another.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint SCALE = 0;
layout(constant_id = 5) const uint NORM = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint WEIGHT = 0; // as linear_quantized.comp numbers the forms
layout(constant_id = 8) const uint GROUPED = 0; // scales change along k
layout(constant_id = 9) const uint WIDE = 0;
layout(constant_id = 10) const uint HAS_NORM = 0;
layout(constant_id = 11) const uint ACTIVATION = 0;
#ifndef GATED
layout(constant_id = 12) const uint BIAS = 0;
layout(constant_id = 13) const uint HAS_BIAS = 0;
layout(constant_id = 14) const uint RESIDUAL = 0;
layout(constant_id = 15) const uint HAS_RESIDUAL = 0;
#endif

layout(push_constant) uniform Push {
    uint m;
    uint n;           // a multiple of four
    uint k;           // a multiple of eight; WIDE: of the elements in 16 bytes of a row
    uint weight_row;  // bytes, a multiple of the bytes of eight elements; WIDE: of 16
    uint group_shift; // elements that share a scale, as a power of two: at least eight; WIDE: those in 16 bytes
    uint scale_row;   // scales of a row of the weights
    float a;          // of the activation
    float b;
    float epsilon;    // of the norm
} push;

RUN_IN(0, x, IN)
RUN_IN(5, norm, NORM)
RUN_OUT(6, y, OUT)

const uint MAX_LANES = 128;
#ifdef GATED
shared vec4 partials[2 * MAX_LANES];
#else
shared vec4 partials[MAX_LANES];
#endif
shared float partials_of_squares[MAX_LANES];

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

// Of the numbers of x that the invocation has had so far.
float squares = 0.0;

// Numbers of x from element k on, as the weights take them.
vec4 factors(uint m, uint k) {
    vec4 v = x_f4(m * push.k + k);
    if (HAS_NORM != 0) {
        squares += dot(v, v);
        v *= norm_f4(k);
    }
    return WEIGHT == 0 ? v : turned(v);
}

// The factors of a turn: WIDE, and of 8 bits, all of them are low.
vec4 low[4];
vec4 high[4];

void take(uint m, uint k) {
    if (WIDE == 0) {
        low[0] = factors(m, k);
        high[0] = factors(m, k + 4);
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (WEIGHT == 0) {
            low[j] = factors(m, k + j * 4);
        } else {
            low[j] = factors(m, k + j * 8);
            high[j] = factors(m, k + j * 8 + 4);
        }
    }
}

// A matrix with its scales: NAME_products are those of a turn at element k with four of its rows.
#define MATRIX(SLOT, NAME) \
    layout(set = 0, binding = SLOT) readonly buffer NAME##_block { uint words[]; } NAME; \
    layout(set = 0, binding = SLOT) readonly buffer NAME##_block2 { uvec2 words[]; } NAME##_by_2; \
    layout(set = 0, binding = SLOT) readonly buffer NAME##_block4 { uvec4 words[]; } NAME##_by_4; \
    RUN_IN(SLOT + 1, NAME##_scale, SCALE) \
    vec4 NAME##_products(uint n, uint k) { \
        vec4 products = vec4(0); \
        uint at = n * push.weight_row + (WEIGHT == 0 ? k : k / 2); \
        if (WIDE != 0) { \
            uvec4 words[4]; \
            [[unroll]] for (uint c = 0; c < 4; ++c) words[c] = NAME##_by_4.words[(at + c * push.weight_row) >> 4]; \
            [[unroll]] for (uint j = 0; j < 4; ++j) { \
                [[unroll]] for (uint c = 0; c < 4; ++c) { \
                    uint word = words[c][j]; \
                    if (WEIGHT == 0) products[c] += dot(low[j], bytes(word)); \
                    else products[c] += dot(low[j], staggered(word)) + dot(high[j], staggered(word >> 16)); \
                } \
            } \
        } else { \
            [[unroll]] for (uint c = 0; c < 4; ++c) { \
                uint row = at + c * push.weight_row; \
                if (WEIGHT == 0) { \
                    uvec2 pair = NAME##_by_2.words[row >> 3]; \
                    products[c] = dot(low[0], bytes(pair.x)) + dot(high[0], bytes(pair.y)); \
                } else { \
                    uint word = NAME.words[row >> 2]; \
                    products[c] = dot(low[0], staggered(word)) + dot(high[0], staggered(word >> 16)); \
                } \
            } \
        } \
        if (GROUPED != 0) products *= NAME##_scale_each(n * push.scale_row + (k >> push.group_shift) + uvec4(0, 1, 2, 3) * push.scale_row); \
        return products; \
    }

MATRIX(1, weight)
#ifdef GATED
MATRIX(3, other)
ACTIVATIONS(activation, ACTIVATION)
#else
RUN_IN(3, bias, BIAS)
RUN_IN(4, residual, RESIDUAL)
#include "epilogue.glsl"
#endif

// What the invocations have in common in the end: the sums of the products, and of the squares. The first one has them then.
struct Sums {
    vec4 products;
    vec4 others; // GATED
    float squares; // HAS_NORM
};

void put(uint at, Sums sums) {
    partials[at] = sums.products;
#ifdef GATED
    partials[MAX_LANES + at] = sums.others;
#endif
    if (HAS_NORM != 0) partials_of_squares[at] = sums.squares;
}

void add(inout Sums sums, uint at) {
    sums.products += partials[at];
#ifdef GATED
    sums.others += partials[MAX_LANES + at];
#endif
    if (HAS_NORM != 0) sums.squares += partials_of_squares[at];
}

void add_up(inout Sums sums) {
    uint lane = gl_LocalInvocationID.x;
#ifdef SUBGROUPS
    sums.products = subgroupAdd(sums.products);
#ifdef GATED
    sums.others = subgroupAdd(sums.others);
#endif
    if (HAS_NORM != 0) sums.squares = subgroupAdd(sums.squares);
    if (gl_NumSubgroups == 1) return;
    if (subgroupElect()) put(gl_SubgroupID, sums);
    barrier();
    if (lane == 0) for (uint i = 1; i < gl_NumSubgroups; ++i) add(sums, i);
#else
    put(lane, sums);
    for (uint half_lanes = gl_WorkGroupSize.x / 2; half_lanes > 0; half_lanes /= 2) {
        barrier();
        if (lane < half_lanes) {
            add(sums, lane + half_lanes);
            put(lane, sums);
        }
    }
#endif
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
    Sums sums = Sums(vec4(0), vec4(0), 0.0);
    for (uint k = lane * PER_TURN; k < push.k; k += lanes * PER_TURN) {
        take(m, k);
        sums.products += weight_products(n, k);
#ifdef GATED
        sums.others += other_products(n, k);
#endif
    }
    sums.squares = squares;
    add_up(sums);
    if (lane != 0) return;
    float root = HAS_NORM != 0 ? inversesqrt(sums.squares / float(push.k) + push.epsilon) : 1.0;
    vec4 sum = sums.products * root;
    if (GROUPED == 0) sum *= weight_scale_each(n + uvec4(0, 1, 2, 3));
    uint at = m * push.n + n;
#ifdef GATED
    vec4 other = sums.others * root;
    if (GROUPED == 0) other *= other_scale_each(n + uvec4(0, 1, 2, 3));
    sum = activation(sum, push.a, push.b) * other;
#else
    if (HAS_BIAS != 0) sum += bias_each(n + uvec4(0, 1, 2, 3));
    EPILOGUE(at, sum, 4)
#endif
    y_write_f4(at, sum);
}
