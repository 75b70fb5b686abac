#version 450
//! module convolution_int8
//! module convolution_int8_cooperative COOPERATIVE
#extension GL_GOOGLE_include_directive : require
#ifdef COOPERATIVE
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#else
#extension GL_EXT_integer_dot_product : require
#endif
#include "tensor.glsl"
#include "run.glsl"
#include "table.glsl"

// Int8 GEMMs with integer sums: a workgroup computes TILE_M rows of TILE_N columns. Both operands
// are staged in shared memory, TILE_K units of 16 terms at a time. Rows of both operands consist of
// whole units.
//
// One operand consists of rows of weights. Each row is followed by one more unit, whose first word
// is the sum of the row. The other operand consists of rows of the input, or of windows of a
// channels-last image with whole units of channels: the terms of a window are the channels of each
// of its taps. FORM determines which operand provides rows and which columns:
// - PLANES: output channels times windows, for an output with separate channel planes;
// - ROWS: rows of the input times rows of weights;
// - PLACES: windows times output channels, for a channels-last output in whole units.
//
// Without COOPERATIVE, an invocation keeps a block of rows of four columns. With it, each subgroup
// of 32 invocations keeps a part of the tile in 16×16 cooperative matrices, which multiply MATRIX_K
// terms at a time.

layout(constant_id = 3) const uint SCALE = 0;
layout(constant_id = 4) const uint BIAS = 0;
layout(constant_id = 5) const uint OUT = 0;
// Whether all rows of the output start at multiples of four elements.
layout(constant_id = 6) const uint OUT_ALIGNED = 0;
layout(constant_id = 7) const uint HAS_BIAS = 0;
layout(constant_id = 8) const uint FORM = 0;
// Multiples of 32.
layout(constant_id = 9) const uint TILE_M = 64;
layout(constant_id = 10) const uint TILE_N = 64;
layout(constant_id = 11) const uint TILE_K = 4;
// Whether several workgroups share the sums of a tile.
layout(constant_id = 12) const uint SHARED = 0;
// Invocations per workgroup: 128 or 256. Each may have at most 32 groups of four sums, and may load
// at most MAX_UNITS of each operand.
layout(constant_id = 13) const uint LANES = 128;
layout(constant_id = 14) const uint MATRIX_K = 32;
// Whether outputs are mapped by a lookup table.
layout(constant_id = 15) const uint RECODED = 0;

const uint PLANES = 0;
const uint ROWS = 1;
const uint PLACES = 2;
const bool OF_WINDOWS = FORM != ROWS;

layout(push_constant) uniform Push {
    uint m;
    uint n;
    // The row stride of the output.
    uint pitch;
    // Units per row.
    uint units;
    uint splits;
    // Units per split: a multiple of TILE_K.
    uint split_units;
    // Batches with different weights.
    uint groups;
    // Properties of an image: units per pixel, and the window parameters.
    uint place_units;
    int in_y;
    int in_x;
    int out_x;
    int kernel_x;
    int stride_y;
    int stride_x;
    int dilation_y;
    int dilation_x;
    int padding_y;
    int padding_x;
    // Quantization parameters of the input, and of the output if it is quantized.
    int zero;
    float scale;
    float out_inverse;
    float out_zero;
    float low;
    float high;
    uint base_z;
} push;

WORDS_IN(0, a)
WORDS_IN(1, b)
RUN_IN(2, scale, SCALE)
RUN_IN(3, bias, BIAS)
RUN_OUT(4, y, OUT)
TABLE(7)

// The sum of a row of weights.
int sum_of(const uint row) {
    uint at = (row * (push.units + 1) + push.units) * 4;
    return int(FORM == PLANES ? a.words[at] : b.words[at]);
}

// Writes the first `count` of four quantized values from element `at` on. Other invocations may
// write the other bytes of a word at the same time.
void write_codes(const uint at, const uint word, const uint count) {
    if (OUT_ALIGNED != 0) {
        y.words[at >> 2] = word;
        return;
    }
    uint mask = count == 4 ? ~0u : (1u << count * 8) - 1;
    uint shift = (at & 3) * 8;
    atomicAnd(y.words[at >> 2], ~(mask << shift));
    atomicOr(y.words[at >> 2], (word & mask) << shift);
    if (shift + count * 8 > 32) {
        atomicAnd(y.words[(at >> 2) + 1], ~(mask >> (32 - shift)));
        atomicOr(y.words[(at >> 2) + 1], (word & mask) >> (32 - shift));
    }
}

// Writes four columns of a row, as far as they exist.
void finish(const uint batch, const uint m, const uint n, const ivec4 sum) {
    if (m >= push.m || n >= push.n) return;
    // The rows of weights for the columns.
    uvec4 rows = uvec4(batch % push.groups * push.m + m);
    if (FORM != PLANES) rows = min(n + uvec4(0, 1, 2, 3), uvec4(push.n - 1));
    ivec4 sums;
    [[unroll]] for (uint i = 0; i < 4; ++i) sums[i] = sum_of(rows[i]);
    vec4 v = vec4(sum - push.zero * sums) * scale_each(rows) * push.scale;
    if (HAS_BIAS != 0) v += bias_each(rows);
    v = mix(clamp(v, push.low, push.high), v, isnan(v));
    uint at = (batch * push.m + m) * push.pitch + n;
    uint count = min(push.n - n, 4);
    if (!is_float(OUT)) {
        v = clamp(roundEven(v * push.out_inverse) + push.out_zero, -128.0, 127.0);
        ivec4 codes = integers(v);
        write_codes(at, RECODED != 0 ? recoded(codes) : pack_bytes(codes), count);
    } else if (OUT_ALIGNED != 0) {
        y_write_f4(at, v);
    } else {
        y_write_run(at, v, count);
    }
}

#define PARTS_SLOT 5
#define SUM ivec4
#include "splits.glsl"

// Units of each operand that an invocation loads.
const uint A_UNITS = TILE_M * TILE_K / LANES;
const uint B_UNITS = TILE_N * TILE_K / LANES;
const uint MAX_UNITS = 8;
// Rows are padded by one unit, so that eight rows lie in different banks.
const uint ROW = TILE_K + 1;

shared uvec4 a_tile[TILE_M * ROW];
shared uvec4 b_tile[TILE_N * ROW];

// The positions of the windows that this invocation loads.
ivec2 windows[MAX_UNITS];

// Returns a unit of window number `own` of this invocation. Outside the image, all elements are the
// zero point.
uvec4 window_unit(uint words, const uint unit, const uint own) {
    int tap = int(unit / push.place_units);
    ivec2 at = windows[own] + ivec2(tap / push.kernel_x * push.dilation_y, tap % push.kernel_x * push.dilation_x);
    bool inside = uint(at.x) < uint(push.in_y) && uint(at.y) < uint(push.in_x);
    if (!inside) return uvec4(uint(push.zero & 0xff) * 0x01010101u);
    words += uint(at.x * push.in_x + at.y) * push.place_units + unit % push.place_units;
    return FORM == PLANES ? b_by_4.words[words] : a_by_4.words[words];
}

// Returns unit `i` of a tile of `a`, which has the number `own` among the units of this invocation.
// `m` and `k` are the first row and the first unit of the tile. Units from `end` on are zero.
uvec4 a_unit(const uint base, const uint m, const uint k, const uint end, const uint i, const uint own) {
    uint unit = k + i % TILE_K;
    if (unit >= end) return uvec4(0);
    if (FORM == PLACES) return window_unit(base, unit, own);
    uint row = min(m + i / TILE_K, push.m - 1);
    uint pitch = push.units + (FORM == PLANES ? 1 : 0);
    return a_by_4.words[base + row * pitch + unit];
}

// Returns unit `i` of a tile of `b`, which begins at column `n`. Units from `end` on are arbitrary.
uvec4 b_unit(const uint base, const uint n, const uint k, const uint i, const uint own) {
    uint unit = k + i % TILE_K;
    if (FORM == PLANES) return window_unit(base, unit, own);
    uint row = min(n + i / TILE_K, push.n - 1);
    return b_by_4.words[base + row * (push.units + 1) + min(unit, push.units - 1)];
}

#ifdef COOPERATIVE
const uint SIDE = 16;
// The parts of the tile for subgroups: two rows of parts. Then the matrices of each part, down and
// across.
const uint PARTS = LANES / 32;
const uint PARTS_ACROSS = PARTS / 2;
const uint DOWN = TILE_M / 2 / SIDE;
const uint ACROSS = TILE_N / PARTS_ACROSS / SIDE;
#define SUMS coopmat<int, gl_ScopeSubgroup, SIDE, SIDE, gl_MatrixUseAccumulator>

// Subgroups store a matrix here to read its rows.
shared ivec4 results[PARTS * SIDE * SIDE / 4];
#else
const uint ACROSS = TILE_N / 4;
const uint OWN_ROWS = TILE_M * ACROSS / LANES;
#endif

void put(const uint batch, const uint split, const uint m, const uint n, const ivec4 sum) {
    if (SHARED != 0) leave(batch, split, m, n, sum);
    else finish(batch, m, n, sum);
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint batch = WORKGROUP_Z / push.splits;
    uint split = WORKGROUP_Z % push.splits;
    uint tile_m = gl_WorkGroupID.y * TILE_M;
    uint tile_n = gl_WorkGroupID.x * TILE_N;
    uint a_base = batch % push.groups * push.m * (push.units + 1);
    uint b_base = 0;
    uint picture = batch * uint(push.in_y * push.in_x) * push.place_units;
    if (FORM == PLANES) b_base = picture;
    if (FORM == PLACES) a_base = picture;
    uint start = split * push.split_units;
    uint end = min(start + push.split_units, push.units);

    if (OF_WINDOWS) {
        [[unroll]] for (uint i = 0; i < (FORM == PLANES ? B_UNITS : A_UNITS); ++i) {
            uint of_tile = (i * LANES + lane) / TILE_K;
            int place = int(FORM == PLANES ? min(tile_n + of_tile, push.n - 1) : min(tile_m + of_tile, push.m - 1));
            int row = place / push.out_x;
            windows[i] = ivec2(row * push.stride_y - push.padding_y, (place - row * push.out_x) * push.stride_x - push.padding_x);
        }
    }
    uvec4 a_next[MAX_UNITS];
    uvec4 b_next[MAX_UNITS];

#ifdef COOPERATIVE
    SUMS sums[16];
    // If the workgroup has fewer than PARTS subgroups, each processes several parts in turn.
    for (uint turn = 0; turn < PARTS; turn += gl_NumSubgroups) {
    uint part = turn + gl_SubgroupID;
    uint part_m = part / PARTS_ACROSS * (TILE_M / 2);
    uint part_n = part % PARTS_ACROSS * (TILE_N / PARTS_ACROSS);
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) sums[i] = SUMS(0);
#else
    ivec4 sums[32];
    uint own_m = lane / ACROSS * OWN_ROWS;
    uint own_n = lane % ACROSS * 4;
    [[unroll]] for (uint i = 0; i < OWN_ROWS; ++i) sums[i] = ivec4(0);
#endif

    [[unroll]] for (uint i = 0; i < A_UNITS; ++i) a_next[i] = a_unit(a_base, tile_m, start, end, i * LANES + lane, i);
    [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_next[i] = b_unit(b_base, tile_n, start, i * LANES + lane, i);
    for (uint k = start; k < end; k += TILE_K) {
        barrier();
        [[unroll]] for (uint i = 0; i < A_UNITS; ++i) a_tile[(i * LANES + lane) / TILE_K * ROW + lane % TILE_K] = a_next[i];
        [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_tile[(i * LANES + lane) / TILE_K * ROW + lane % TILE_K] = b_next[i];
        barrier();
        uint next = k + TILE_K;
        if (next < end) {
            [[unroll]] for (uint i = 0; i < A_UNITS; ++i) a_next[i] = a_unit(a_base, tile_m, next, end, i * LANES + lane, i);
            [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_next[i] = b_unit(b_base, tile_n, next, i * LANES + lane, i);
        }
#ifdef COOPERATIVE
        if (part < PARTS) {
            [[unroll]] for (uint j = 0; j < TILE_K; j += MATRIX_K / 16) {
                coopmat<int8_t, gl_ScopeSubgroup, SIDE, MATRIX_K, gl_MatrixUseA> rows[4];
                [[unroll]] for (uint i = 0; i < DOWN; ++i) {
                    coopMatLoad(rows[i], a_tile, (part_m + i * SIDE) * ROW + j, ROW, gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint c = 0; c < ACROSS; ++c) {
                    coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, SIDE, gl_MatrixUseB> columns;
                    coopMatLoad(columns, b_tile, (part_n + c * SIDE) * ROW + j, ROW, gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint i = 0; i < DOWN; ++i) {
                        sums[i * ACROSS + c] = coopMatMulAdd(rows[i], columns, sums[i * ACROSS + c]);
                    }
                }
            }
        }
#else
        for (uint j = 0; j < TILE_K; ++j) {
            uvec4 w[4];
            [[unroll]] for (uint c = 0; c < 4; ++c) w[c] = b_tile[(own_n + c) * ROW + j];
            [[unroll]] for (uint i = 0; i < OWN_ROWS; ++i) {
                uvec4 v = a_tile[(own_m + i) * ROW + j];
                [[unroll]] for (uint c = 0; c < 4; ++c) {
                    [[unroll]] for (uint word = 0; word < 4; ++word) sums[i][c] += dotPacked4x8EXT(int(v[word]), int(w[c][word]));
                }
            }
        }
#endif
    }

#ifdef COOPERATIVE
    if (part < PARTS) {
        uint place = part * (SIDE * SIDE / 4);
        [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) {
            coopMatStore(sums[i], results, place, SIDE / 4, gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            uint m = tile_m + part_m + i / ACROSS * SIDE;
            uint n = tile_n + part_n + i % ACROSS * SIDE;
            for (uint at = gl_SubgroupInvocationID; at < SIDE * SIDE / 4; at += gl_SubgroupSize) {
                put(batch, split, m + at / (SIDE / 4), n + at % (SIDE / 4) * 4, results[place + at]);
            }
            subgroupBarrier();
        }
    }
    }
#else
    [[unroll]] for (uint i = 0; i < OWN_ROWS; ++i) put(batch, split, tile_m + own_m + i, tile_n + own_n, sums[i]);
#endif

    if (SHARED != 0 && all_are_left(batch)) add_up(batch, tile_m, tile_n);
}
