#version 450
//! module gemv
//! module gemv_subgroups SUBGROUPS
//! module gemv_gated GATED
//! module gemv_gated_subgroups GATED SUBGROUPS
//! module gemv_halves SUBGROUPS HALVES
//! module gemv_gated_halves GATED SUBGROUPS HALVES
//! module gemv_placed PLACED SUBGROUPS
//! module gemv_placed_halves PLACED SUBGROUPS HALVES
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#ifdef HALVES
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#include "tensor.glsl"
#include "run.glsl"
#ifndef PLACED
#include "activations.glsl"
#endif

// GEMV: a few rows of floats times rows of weights, which are quantized in the forms of
// linear_quantized.comp, or 16-bit or 32-bit floats. The time is bound by memory. A workgroup
// computes one or more quads of four neighbouring outputs. Its invocations share the sums, eight
// elements of k each per iteration, so that neighbouring invocations read neighbouring words of the
// weights. Each uses its eight elements of x for all rows of the weights. WIDE: 16 bytes of each
// row per iteration, so that all loads of an invocation are in flight at once.
//
// HAS_NORM: x is divided by its root mean square and multiplied by the weights of an RMS norm. The
// root is common to all terms, so that the sum is divided instead.
//
// GATED: the activation of the product with one matrix times the product with another.
//
// PLACED: rows of the result consist of heads, which are rotated by angles of the row's position,
// as in rotary.comp. The result is written into another tensor, at an offset that changes from run
// to run.
//
// HALVES: if x is fp16 and WIDE is set, four products at a time are added up in fp16, with two sums
// per instruction; these are accumulated in 32 bits. Weights are exact in fp16; products are
// rounded like those of dequantized fp16 weights.
//
// STAGED: a workgroup then consists of several teams with different quads. They read x from shared
// memory, in the order that their products need. If each read x from memory, that would cost many
// times the instructions for the weights: an invocation's elements of x are contiguous, so those of
// neighbouring invocations are not.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint SCALE = 0;
layout(constant_id = 5) const uint NORM = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint WEIGHT = 0; // form as in linear_quantized.comp; HALF_WEIGHTS and FLOAT_WEIGHTS: WIDE, without scales
layout(constant_id = 8) const uint GROUPED = 0; // scales per group of k
layout(constant_id = 9) const uint WIDE = 0;
layout(constant_id = 10) const uint HAS_NORM = 0;
#ifdef PLACED
layout(constant_id = 11) const uint ROTATION = 0; // form as in rotary.comp, or NONE
#else
layout(constant_id = 11) const uint ACTIVATION = 0;
#endif
layout(constant_id = 12) const uint QUADS = 1; // of a team; at most MAX_SUMS, of all matrices
layout(constant_id = 13) const uint TEAMS = 1; // more than one: STAGED is not zero
layout(constant_id = 14) const uint STAGED = 0; // groups of eight elements of x in shared memory, including gaps; or 0
#ifndef GATED
layout(constant_id = 15) const uint BIAS = 0;
layout(constant_id = 16) const uint HAS_BIAS = 0;
#endif
#ifdef PLACED
layout(constant_id = 17) const uint ANGLE = 0;
#elif !defined(GATED)
layout(constant_id = 17) const uint RESIDUAL = 0;
layout(constant_id = 18) const uint HAS_RESIDUAL = 0;
#endif

layout(push_constant) uniform Push {
    uint m;
    uint n;           // a multiple of the elements of all quads
    uint k;           // a multiple of eight; WIDE: of the elements in 16 bytes of a row
    uint weight_row;  // bytes, a multiple of the bytes of eight elements; WIDE: of 16
    uint group_shift; // log2 of the elements that share a scale: at least eight elements; WIDE: those in 16 bytes
    uint scale_row;   // scales per row of the weights
#ifndef PLACED
    float a;          // of the activation
    float b;
#endif
    float epsilon;    // of the norm
#ifdef PLACED
    uint depth;       // of a head: a multiple of four
    uint positions;   // rows of a batch
    uint rotated;     // rotated elements of a head: a multiple of four; HALVES_OF_HEADS: all of them, a multiple of eight
    uint angle_row;   // angles per position
    uint angle_head;  // distance between the angles of heads
    uint out_batch;   // batch stride of the output: a multiple of four
#endif
} push;

const uint HALF_WEIGHTS = 3;
const uint FLOAT_WEIGHTS = 4;

#ifdef HALVES
#define IN_HALVES (IN == F16 && WIDE != 0 && WEIGHT < HALF_WEIGHTS)
#else
#define IN_HALVES false
#endif

RUN_IN(0, x, IN)
RUN_IN(5, norm, NORM)
RUN_OUT(6, y, OUT)

// Invocations per team.
#define LANES (gl_WorkGroupSize.x / TEAMS)
// The maximum number of subgroups per workgroup.
const uint MAX_PARTS = 128;
const uint MAX_SUMS = 4;
#ifdef GATED
#define SUMS (2 * QUADS)
#else
#define SUMS QUADS
#endif
shared vec4 partials[SUMS * MAX_PARTS];
shared float partials_of_squares[MAX_PARTS];

// Fast conversion of integers: the fraction bits of the float 2^23 are replaced by an integer below
// 2^20. Subtracting 2^23 then gives that integer as a float.
const uint MAGIC = 0x4b000000u;

// Four 4-bit values minus 8 each. The second is scaled by 16, the third by 256, the fourth by 4096.
vec4 staggered(const uint word) {
    uvec4 bits = (uvec4(word) & uvec4(0xf, 0xf0, 0xf00, 0xf000)) | MAGIC;
    return uintBitsToFloat(bits) - vec4(8388616.0, 8388736.0, 8390656.0, 8421376.0);
}

vec4 bytes(const uint word) {
    int w = int(word);
    return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), bitfieldExtract(w, 24, 8));
}

// Elements of x in the order and scale of a word of weights that are `staggered`.
vec4 turned(vec4 v) {
    if (WEIGHT == 2) v = v.yxwz;
    return v * vec4(1.0, 1.0 / 16.0, 1.0 / 256.0, 1.0 / 4096.0);
}

// The sum of squares of this invocation's elements of x.
float squares = 0.0;

// The index of an invocation in its workgroup. With teams, which require full subgroups, the
// invocations of a subgroup are consecutive.
uint place() {
#ifdef SUBGROUPS
    if (TEAMS > 1) return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
#endif
    return gl_LocalInvocationID.x;
}

// Elements of x from k on, in the order of the weights.
vec4 factors(const uint m, const uint k) {
    vec4 v = x_f4(m * push.k + k);
    if (HAS_NORM != 0) {
        squares += dot(v, v);
        v *= norm_f4(k);
    }
    return WEIGHT == 1 || WEIGHT == 2 ? turned(v) : v;
}

// The elements of x of an iteration. WIDE with 8-bit weights: all are in low. WIDE with 16-bit
// weights: the first four are in low, the others in high. WIDE with 32-bit weights: only four
// exist.
vec4 low[4];
vec4 high[4];

void take(const uint m, const uint k) {
    if (WIDE == 0 || WEIGHT >= HALF_WEIGHTS) {
        low[0] = factors(m, k);
        if (WEIGHT != FLOAT_WEIGHTS) high[0] = factors(m, k + 4);
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

#ifdef HALVES
// The fp16 maximum is 65504. With weights divided by this number, which loses no bits, the sum of
// four products of an fp16 value and a weight stays below it.
#define WEIGHTS_OVER (WEIGHT == 0 ? 512.0 : 32.0)
// The maximum factor by which the weights of a norm may increase x, before the sum is divided by
// the root.
const float NORM_OVER = 4.0;
const float MAX = 65504.0;

// The elements of x of an iteration. For 4-bit weights, each is paired in a word with the fourth
// element after it; for 8-bit weights, with the second element after it.
f16vec2 pairs[4][4];

uvec2 words_of(const vec4 v) {
    return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
}

// Four elements of x from k on, in fp16.
uvec2 halves(const uint m, const uint k) {
    if (HAS_NORM == 0) return x_by_2.words[(m * push.k + k) >> 2];
    vec4 v = x_f4(m * push.k + k);
    squares += dot(v, v);
    return words_of(clamp(v * norm_f4(k) / NORM_OVER, -MAX, MAX));
}

uint low_words(const uint a, const uint b) { return (a & 0xffffu) | (b << 16); }

uint high_words(const uint a, const uint b) { return (a >> 16) | (b & 0xffff0000u); }

f16vec2 low_halves(uint a, uint b) { return unpackFloat2x16(low_words(a, b)); }

f16vec2 high_halves(uint a, uint b) { return unpackFloat2x16(high_words(a, b)); }

// One element more than needed, because arrays cannot be empty.
shared uvec4 staged[STAGED + 1];

// A group is eight elements of x, in the order of `pairs`. The groups of an iteration are followed
// by a gap, so that neighbours lie in different banks.
const uint GROUPS = WEIGHT == 0 ? 2 : 4;

void stage(const uint m) {
    if (STAGED == 0) return;
    for (uint group = place(); group < push.k / 8; group += gl_WorkGroupSize.x) {
        uvec4 eight;
        if (HAS_NORM == 0) eight = x_by_4.words[(m * push.k >> 3) + group];
        else eight = uvec4(halves(m, group * 8), halves(m, group * 8 + 4));
        uvec4 paired;
        if (WEIGHT == 0) {
            paired = uvec4(low_words(eight.x, eight.y), high_words(eight.x, eight.y), low_words(eight.z, eight.w), high_words(eight.z, eight.w));
        } else {
            paired = uvec4(low_words(eight.x, eight.z), high_words(eight.x, eight.z), low_words(eight.y, eight.w), high_words(eight.y, eight.w));
            if (WEIGHT == 2) paired = paired.yxwz;
        }
        staged[group + group / GROUPS] = paired;
    }
}

void take_staged(const uint k) {
    uint first = k / (8 * GROUPS) * (GROUPS + 1);
    [[unroll]] for (uint j = 0; j < GROUPS; ++j) {
        uvec4 paired = staged[first + j];
        if (WEIGHT == 0) {
            pairs[2 * j][0] = unpackFloat2x16(paired.x);
            pairs[2 * j][1] = unpackFloat2x16(paired.y);
            pairs[2 * j + 1][0] = unpackFloat2x16(paired.z);
            pairs[2 * j + 1][1] = unpackFloat2x16(paired.w);
        } else {
            [[unroll]] for (uint i = 0; i < 4; ++i) pairs[j][i] = unpackFloat2x16(paired[i]);
        }
    }
}

void take_halves(const uint m, const uint k) {
    if (STAGED != 0) {
        take_staged(k);
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (WEIGHT == 0) {
            uvec2 four = halves(m, k + j * 4);
            pairs[j][0] = low_halves(four.x, four.y);
            pairs[j][1] = high_halves(four.x, four.y);
        } else {
            uvec2 first = halves(m, k + j * 8);
            uvec2 second = halves(m, k + j * 8 + 4);
            uint even = WEIGHT == 2 ? 1 : 0; // in the order of `turned`
            pairs[j][even] = low_halves(first.x, second.x);
            pairs[j][1 - even] = high_halves(first.x, second.x);
            pairs[j][2 + even] = low_halves(first.y, second.y);
            pairs[j][3 - even] = high_halves(first.y, second.y);
        }
    }
}

// An integer in the lowest fraction bits of 1024 increases it by that integer; 16 times the integer
// in the fraction bits of 64 does, too.
f16vec2 low_bits(uint word, uint mask, float less) {
    f16vec2 bits = unpackFloat2x16((word & mask) | 0x64006400u);
    return fma(bits, f16vec2(1.0 / WEIGHTS_OVER), f16vec2(-(1024.0 + less) / WEIGHTS_OVER));
}

f16vec2 high_bits(uint word) {
    f16vec2 bits = unpackFloat2x16((word & 0x00f000f0u) | 0x54005400u);
    return fma(bits, f16vec2(1.0 / WEIGHTS_OVER), f16vec2(-(64.0 + 8.0) / WEIGHTS_OVER));
}

// The product of an iteration's words of a row.
float product_of_halves(const uvec4 row) {
    float product = 0.0;
    if (WEIGHT == 0) {
        [[unroll]] for (uint j = 0; j < 4; j += 2) {
            f16vec2 sums = f16vec2(0.0);
            [[unroll]] for (uint i = j; i < j + 2; ++i) {
                uint word = row[i] ^ 0x80808080u;
                sums = fma(low_bits(word, 0x00ff00ffu, 128.0), pairs[i][0], sums);
                sums = fma(low_bits(word >> 8, 0x00ff00ffu, 128.0), pairs[i][1], sums);
            }
            product += float(sums.x) + float(sums.y);
        }
        return product;
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        uint word = row[j];
        f16vec2 sums = low_bits(word, 0x000f000fu, 8.0) * pairs[j][0];
        sums = fma(high_bits(word), pairs[j][1], sums);
        sums = fma(low_bits(word >> 8, 0x000f000fu, 8.0), pairs[j][2], sums);
        sums = fma(high_bits(word >> 8), pairs[j][3], sums);
        product += float(sums.x) + float(sums.y);
    }
    return product;
}
#else
const float WEIGHTS_OVER = 1.0;
const float NORM_OVER = 1.0;
#define stage(m)
#define take_halves(m, k)
#define product_of_halves(words) 0.0
#endif

// The data read of four rows of a matrix. WIDE: 16 bytes of each; otherwise one word of 4-bit
// weights, or two words of 8-bit weights.
struct Rows {
    uvec4 words[4];
    vec4 scales;
};

vec4 four_halves(const uvec2 words) { return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y)); }

// The sums of an iteration's products, by row.
vec4 products(Rows rows) {
    vec4 products = vec4(0);
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        if (IN_HALVES) {
            products[c] = product_of_halves(rows.words[c]);
            continue;
        }
        if (WEIGHT == HALF_WEIGHTS) {
            products[c] = dot(low[0], four_halves(rows.words[c].xy)) + dot(high[0], four_halves(rows.words[c].zw));
            continue;
        }
        if (WEIGHT == FLOAT_WEIGHTS) {
            products[c] = dot(low[0], uintBitsToFloat(rows.words[c]));
            continue;
        }
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            uint word = rows.words[c][j];
            if (WEIGHT == 0 && WIDE == 0 && j < 2) products[c] += dot(j == 0 ? low[0] : high[0], bytes(word));
            if (WEIGHT == 0 && WIDE != 0) products[c] += dot(low[j], bytes(word));
            if (WEIGHT != 0 && (WIDE != 0 || j == 0)) products[c] += dot(low[j], staggered(word)) + dot(high[j], staggered(word >> 16));
        }
    }
    return GROUPED == 0 ? products : products * rows.scales;
}

// The bytes of `count` weights.
uint bytes_of(const uint count) {
    if (WEIGHT == FLOAT_WEIGHTS) return count * 4;
    if (WEIGHT == HALF_WEIGHTS) return count * 2;
    return WEIGHT == 0 ? count : count / 2;
}

// A matrix with its scales. NAME_bring reads four of its rows at element k.
#define MATRIX(SLOT, NAME) \
    WORDS_IN(SLOT, NAME) \
    RUN_IN(SLOT + 1, NAME##_scale, SCALE) \
    void NAME##_bring(out Rows rows, const uint n, const uint k) { \
        [[unroll]] for (uint c = 0; c < 4; ++c) { \
            uint at = (n + c) * push.weight_row + bytes_of(k); \
            if (WIDE != 0) rows.words[c] = NAME##_by_4.words[at >> 4]; \
            else if (WEIGHT == 0) rows.words[c] = uvec4(NAME##_by_2.words[at >> 3], 0, 0); \
            else rows.words[c] = uvec4(NAME.words[at >> 2], 0, 0, 0); \
        } \
        if (GROUPED != 0) rows.scales = NAME##_scale_each((n + uvec4(0, 1, 2, 3)) * push.scale_row + (k >> push.group_shift)); \
    }

MATRIX(1, weight)
#ifdef GATED
MATRIX(3, other)
ACTIVATIONS(activation, ACTIVATION)
#else
RUN_IN(3, bias, BIAS)
#ifdef PLACED
RUN_IN(4, cosine, ANGLE)
RUN_IN(7, sine, ANGLE)
layout(set = 0, binding = 8) readonly buffer Place {
    uint start;     // the first row's position
    uint out_start; // in the output: a multiple of four
} place_of;
#else
RUN_IN(4, residual, RESIDUAL)
#include "epilogue.glsl"
#endif
#endif

// Sums of an invocation, or of several: of products by matrix and quad, and of squares.
struct Sums {
    vec4 of[MAX_SUMS];
    float squares; // HAS_NORM
};

void put(const uint at, Sums sums) {
    [[unroll]] for (uint i = 0; i < SUMS; ++i) partials[i * MAX_PARTS + at] = sums.of[i];
    if (HAS_NORM != 0) partials_of_squares[at] = sums.squares;
}

void add(inout Sums sums, const uint at) {
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums.of[i] += partials[i * MAX_PARTS + at];
    if (HAS_NORM != 0) sums.squares += partials_of_squares[at];
}

#ifdef HALVES
const uint COUNT = 4 * SUMS;

// A transposing reduction over the invocations of a subgroup: partners exchange halves of their
// sums, then other partners exchange halves of those, until each invocation has one sum to add over
// the invocations with the same sum. This needs a fifth of the instructions of separate reductions.
void put_shared_out(Sums sums) {
    float own[4 * MAX_SUMS];
    [[unroll]] for (uint i = 0; i < COUNT; ++i) own[i] = sums.of[i / 4][i % 4];
    uint own_place = gl_SubgroupInvocationID;
    [[unroll]] for (uint kept = COUNT / 2; kept > 0; kept /= 2) {
        bool second = (own_place & kept) != 0;
        [[unroll]] for (uint i = 0; i < kept; ++i) {
            float given = second ? own[i] : own[i + kept];
            own[i] = (second ? own[i + kept] : own[i]) + subgroupShuffleXor(given, kept);
        }
    }
    float sum = own[0];
    uint invocations = min(gl_SubgroupSize, LANES);
    for (uint away = COUNT; away < invocations; away *= 2) sum += subgroupShuffleXor(sum, away);
    uint in_part = own_place % invocations;
    uint part = TEAMS > 1 ? place() / invocations : gl_SubgroupID;
    if (in_part < COUNT) partials[in_part / 4 * MAX_PARTS + part][in_part % 4] = sum;
    if (HAS_NORM == 0) return;
    float all = subgroupAdd(sums.squares);
    if (subgroupElect()) partials_of_squares[gl_SubgroupID] = all;
}
#endif

// Stores the sums in shared memory: for each team in `parts` parts, and the squares in one part per
// subgroup.
uint put_all(Sums sums) {
    uint parts = 1;
#ifdef SUBGROUPS
    parts = TEAMS > 1 ? LANES / min(gl_SubgroupSize, LANES) : gl_NumSubgroups;
#ifdef HALVES
    bool shared_out = gl_SubgroupSize >= COUNT;
    if (shared_out) put_shared_out(sums);
#else
    const bool shared_out = false;
#endif
    if (!shared_out) {
        [[unroll]] for (uint i = 0; i < SUMS; ++i) sums.of[i] = subgroupAdd(sums.of[i]);
        if (HAS_NORM != 0) sums.squares = subgroupAdd(sums.squares);
        if (subgroupElect()) put(gl_SubgroupID, sums);
    }
#else
    uint lane = gl_LocalInvocationID.x;
    put(lane, sums);
    for (uint half_lanes = gl_WorkGroupSize.x / 2; half_lanes > 0; half_lanes /= 2) {
        barrier();
        if (lane < half_lanes) {
            add(sums, lane + half_lanes);
            put(lane, sums);
        }
    }
#endif
    barrier();
    return parts;
}

// Returns the sum over the parts of a team.
vec4 sum_of(const uint matrix, const uint quad, const uint team, const uint parts) {
    uint first = (matrix * QUADS + quad) * MAX_PARTS + team * parts;
    vec4 sum = partials[first];
    for (uint i = 1; i < parts; ++i) sum += partials[first + i];
    return sum;
}

float sum_of_squares() {
    float sum = partials_of_squares[0];
#ifdef SUBGROUPS
    for (uint i = 1; i < gl_NumSubgroups; ++i) sum += partials_of_squares[i];
#endif
    return sum;
}

const uint PER_TURN = WEIGHT == FLOAT_WEIGHTS ? 4 : WIDE == 0 || WEIGHT == HALF_WEIGHTS ? 8 : WEIGHT == 0 ? 16 : 32;
#define HAS_SCALES (GROUPED == 0 && WEIGHT < HALF_WEIGHTS)

// Quads per workgroup.
#define SLOTS (TEAMS * QUADS)

#ifdef PLACED
const uint NEIGHBOURS = 0;
const uint HALVES_OF_HEADS = 1;
const uint COMBINED = 2;
const uint NONE = 3;

// The first column of a workgroup's quad. HALVES_OF_HEADS: a quad with an even number is followed
// by the quad that it is rotated with.
uint column(const uint tile, const uint slot) {
    if (ROTATION != HALVES_OF_HEADS) return 4 * (tile * SLOTS + slot);
    uint pair = tile * (SLOTS / 2) + slot / 2;
    uint pairs = push.rotated / 8; // of a head
    return pair / pairs * push.depth + 4 * (pair % pairs) + (slot & 1) * (push.rotated / 2);
}

#define COLUMN(quad) columns[quad]
#else
uint column(const uint tile, const uint slot) { return 4 * (tile * SLOTS + slot); }

#define COLUMN(quad) (n + 4 * (quad))
#endif

#ifdef GATED
#define BRING_OTHER(k) [[unroll]] for (uint quad = 0; quad < QUADS; ++quad) other_bring(rows[QUADS + quad], COLUMN(quad), k);
#else
#define BRING_OTHER(k)
#endif
#define BRING(k) { \
    [[unroll]] for (uint quad = 0; quad < QUADS; ++quad) weight_bring(rows[quad], COLUMN(quad), k); \
    BRING_OTHER(k) \
}

#ifdef PLACED
// The finished sums of a quad.
vec4 product_of(const uint tile, const uint slot, const float root, const uint parts) {
    uvec4 columns = column(tile, slot) + uvec4(0, 1, 2, 3);
    vec4 product = sum_of(0, slot % QUADS, slot / QUADS, parts) * root;
    if (HAS_SCALES) product *= weight_scale_each(columns);
    if (HAS_BIAS != 0) product += bias_each(columns);
    return product;
}

// Rotates two pairs of neighbours, each by its angle.
vec4 turn(const vec4 v, const vec2 cosines, const vec2 sines) {
    vec4 c = cosines.xxyy;
    return v * c + v.yxwz * vec4(-sines.x, sines.x, -sines.y, sines.y);
}

// A quad of a row, rotated by the angles of its position.
vec4 rotated(const uint tile, const uint slot, const uint row, const float root, const uint parts) {
    vec4 v = product_of(tile, slot, root, parts);
    if (ROTATION == NONE) return v;
    uint n = column(tile, slot);
    uint d = n % push.depth;
    uint angle = (place_of.start + row) * push.angle_row + n / push.depth * push.angle_head;
    if (d >= push.rotated) return v;
    if (ROTATION == NEIGHBOURS) {
        angle += d / 2;
        return turn(v, vec2(cosine_f(angle), cosine_f(angle + 1)), vec2(sine_f(angle), sine_f(angle + 1)));
    }
    if (ROTATION == COMBINED) {
        vec4 both = cosine_each(angle + d + uvec4(0, 1, 2, 3));
        return turn(v, both.xz, both.yw);
    }
    vec4 other = product_of(tile, slot ^ 1, root, parts);
    uvec4 angles = angle + d + uvec4(0, 1, 2, 3);
    return v * cosine_each(angles) + other * sine_each(angles) * ((slot & 1) == 0 ? -1.0 : 1.0);
}
#endif

void main() {
    uint lane = place() % LANES;
    uint team = place() / LANES;
    uint across = push.n / (4 * QUADS * TEAMS);
    // Neighbouring workgroups read the same weights for different rows.
    uint tile = invocation_y();
    uint m = tile % push.m;
    tile /= push.m;
    if (tile >= across) return;
    uint n = column(tile, team * QUADS);
#ifdef PLACED
    uint columns[MAX_SUMS];
    [[unroll]] for (uint quad = 0; quad < QUADS; ++quad) columns[quad] = column(tile, team * QUADS + quad);
#endif
    Sums sums;
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums.of[i] = vec4(0);
    // The weights of an iteration are being loaded before x is available.
    Rows rows[MAX_SUMS];
    uint k = lane * PER_TURN;
    if (k < push.k) BRING(k)
    stage(m);
    if (STAGED != 0) barrier();
    while (k < push.k) {
        if (IN_HALVES) take_halves(m, k);
        else take(m, k);
        [[unroll]] for (uint i = 0; i < SUMS; ++i) sums.of[i] += products(rows[i]);
        k += LANES * PER_TURN;
        if (k < push.k) BRING(k)
    }
    sums.squares = squares;
    uint parts = put_all(sums);
    // Each of the first invocations of a team finishes one quad.
    if (lane >= QUADS) return;
    uint slot = team * QUADS + lane;
    n = column(tile, slot);
    float root = IN_HALVES ? WEIGHTS_OVER : 1.0;
    if (HAS_NORM != 0) {
        float all = sum_of_squares();
        root *= inversesqrt(all / float(push.k) + push.epsilon);
        if (IN_HALVES) root = isinf(all) ? uintBitsToFloat(0x7fc00000u) : root * NORM_OVER;
    }
#ifdef PLACED
    y_write_f4(place_of.out_start + m / push.positions * push.out_batch + m % push.positions * push.n + n, rotated(tile, slot, m % push.positions, root, parts));
#else
    vec4 sum = sum_of(0, lane, team, parts) * root;
    if (HAS_SCALES) sum *= weight_scale_each(n + uvec4(0, 1, 2, 3));
    uint at = m * push.n + n;
#ifdef GATED
    vec4 other = sum_of(1, lane, team, parts) * root;
    if (HAS_SCALES) other *= other_scale_each(n + uvec4(0, 1, 2, 3));
    sum = activation(sum, push.a, push.b) * other;
#else
    if (HAS_BIAS != 0) sum += bias_each(n + uvec4(0, 1, 2, 3));
    EPILOGUE(at, sum, 4)
#endif
    y_write_f4(at, sum);
#endif
}
