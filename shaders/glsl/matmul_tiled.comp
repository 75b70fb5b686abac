#version 450
//! module matmul_tiled
//! module matmul_cooperative COOPERATIVE
//! module convolution_tiled WINDOWS
//! module convolution_cooperative COOPERATIVE WINDOWS
#extension GL_GOOGLE_include_directive : require
#ifdef COOPERATIVE
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// Products of large matrices: a workgroup of 128 computes TILE_M rows of TILE_N columns, of factors that it brings to shared memory,
// TILE_K terms of the sums at a time; the next ones are on their way meanwhile. The workgroups that differ in z share the sums
// over k among themselves, if there are several splits: then matmul_sum.comp adds up what they write.
//
// Plain: an invocation keeps a block of rows of four columns, in 32-bit arithmetic. COOPERATIVE: the factors have 16 bits; each of four
// subgroups keeps a quarter of the tile in matrices of 16 times 16, whose sums have 32 bits.
//
// WINDOWS: a convolution. The columns of `b` are windows of a picture, one for each element of a plane of the output; its terms are the
// channels of the picture, and the taps of each. They are read where they lie.

#ifdef WINDOWS
#define WINDOW_FIELDS \
    int in_y; \
    int in_x; \
    int out_x; \
    int padding_y; \
    int padding_x;
#else
#define WINDOW_FIELDS
#endif
#define FIELDS \
    uint k; \
    uint a_pitch; \
    uint b_pitch; \
    /* Elements from batch to batch; `a` starts again after `period` batches. */ \
    uint a_batch; \
    uint b_batch; \
    uint splits; \
    /* The terms of a split: a multiple of TILE_K. */ \
    uint terms; \
    WINDOW_FIELDS
#include "product.glsl"

layout(constant_id = 10) const uint A = 0;
layout(constant_id = 11) const uint B = 0;
// 0: a[m][k]; 1: a[k][m], with rows that are padded to a multiple of 8.
layout(constant_id = 12) const uint A_TRANSPOSED = 0;
// Whether all rows start at multiples of four elements.
layout(constant_id = 13) const uint A_ALIGNED = 0;
layout(constant_id = 14) const uint B_ALIGNED = 0;
// Multiples of 32; an invocation has at most 32 rows.
layout(constant_id = 15) const uint TILE_M = 64;
layout(constant_id = 16) const uint TILE_N = 64;
// Whether to write the sums of each split by themselves, in rows that are padded to a multiple of 4.
layout(constant_id = 17) const uint PARTIAL = 0;
#ifdef WINDOWS
layout(constant_id = 18) const uint KERNEL_Y = 1;
layout(constant_id = 19) const uint KERNEL_X = 1;
layout(constant_id = 20) const uint STRIDE_Y = 1;
layout(constant_id = 21) const uint STRIDE_X = 1;
layout(constant_id = 22) const uint DILATION_Y = 1;
layout(constant_id = 23) const uint DILATION_X = 1;
#endif

RUN_IN(3, a, A)
RUN_IN(4, b, B)

const uint LANES = 128;

// Four elements of a factor, as they are in shared memory.
#ifdef COOPERATIVE
#define QUAD uvec2
const uint TILE_K = 32;
// Rows are padded so that eight of them lie in different banks.
const uint PAD = 2;
const uint A_ROW = A_TRANSPOSED != 0 ? TILE_M / 4 + PAD : TILE_K / 4 + PAD;
const uint A_ROWS = A_TRANSPOSED != 0 ? TILE_K : TILE_M;
QUAD quad(vec4 v) { return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); }
QUAD a_four(uint i) { return a_by_2.words[i >> 2]; }
QUAD b_four(uint i) { return b_by_2.words[i >> 2]; }
#else
#define QUAD vec4
const uint TILE_K = 16;
const uint PAD = 1;
const uint A_ROW = TILE_M / 4 + PAD;
const uint A_ROWS = TILE_K;
QUAD quad(vec4 v) { return v; }
QUAD a_four(uint i) { return a_f4(i); }
QUAD b_four(uint i) { return b_f4(i); }
#endif
const uint B_ROW = TILE_N / 4 + PAD;

// Quads that an invocation brings.
const uint A_QUADS = TILE_M * TILE_K / 4 / LANES;
const uint B_QUADS = TILE_N * TILE_K / 4 / LANES;
const uint MOST_QUADS = 8;

shared QUAD a_tile[A_ROWS * A_ROW];
shared QUAD b_tile[TILE_K * B_ROW];

// Quad `i` of the tile of `a` whose first row is `m` and whose first term is `k`: zeros from term `end` on. Rows beyond the last
// are others, and not written.
QUAD a_quad(uint base, uint m, uint k, uint end, uint i) {
    if (A_TRANSPOSED != 0) {
        uint at = k + i / (TILE_M / 4);
        uint row = min(m + i % (TILE_M / 4) * 4, push.a_pitch - 4);
        return at < end ? a_four(base + at * push.a_pitch + row) : QUAD(0);
    }
    uint first = k + i % (TILE_K / 4) * 4;
    uint at = base + min(m + i / (TILE_K / 4), push.m - 1) * push.a_pitch + first;
    if (first >= end) return QUAD(0);
    if (A_ALIGNED != 0) return a_four(at);
    vec4 v = a_each(at + min(uvec4(0, 1, 2, 3), uvec4(end - 1 - first)));
    return quad(mix(vec4(0), v, lessThan(first + uvec4(0, 1, 2, 3), uvec4(end))));
}

#ifdef WINDOWS
// Where the windows of the four columns begin that this invocation brings: they are the same for all terms, as there are at most LANES
// quads in a row of the tile.
ivec4 windows_y;
ivec4 windows_x;

void find_windows(uint n) {
    uvec4 columns = min(n + gl_LocalInvocationID.x % (TILE_N / 4) * 4 + uvec4(0, 1, 2, 3), uvec4(push.n - 1));
    ivec4 y = ivec4(columns) / push.out_x;
    windows_y = y * int(STRIDE_Y) - push.padding_y;
    windows_x = (ivec4(columns) - y * push.out_x) * int(STRIDE_X) - push.padding_x;
}

// The same of the windows of a picture.
QUAD b_quad(uint base, uint n, uint k, uint end, uint i) {
    uint row = k + i / (TILE_N / 4);
    if (row >= end) return QUAD(0);
    uint tap = row % (KERNEL_Y * KERNEL_X);
    uint plane = base + row / (KERNEL_Y * KERNEL_X) * uint(push.in_y * push.in_x);
    ivec4 y = windows_y + int(tap / KERNEL_X * DILATION_Y);
    ivec4 x = windows_x + int(tap % KERNEL_X * DILATION_X);
    vec4 v;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        bool inside = uint(y[j]) < uint(push.in_y) && uint(x[j]) < uint(push.in_x);
        v[j] = inside ? b_f(plane + uint(y[j] * push.in_x + x[j])) : 0.0;
    }
    return quad(v);
}
#else
// The same of `b`, whose first column is `n`.
QUAD b_quad(uint base, uint n, uint k, uint end, uint i) {
    uint row = k + i / (TILE_N / 4);
    if (row >= end) return QUAD(0);
    uint column = n + i % (TILE_N / 4) * 4;
    uint at = base + row * push.b_pitch;
    if (B_ALIGNED != 0) return b_four(at + min(column, push.b_pitch - 4));
    return quad(b_each(at + min(column + uvec4(0, 1, 2, 3), uvec4(push.n - 1))));
}
#endif

// Puts a quad into its place in shared memory.
void store_a(uint i, QUAD v) {
    if (A_TRANSPOSED != 0) {
        a_tile[i / (TILE_M / 4) * A_ROW + i % (TILE_M / 4)] = v;
        return;
    }
    uint k = i % (TILE_K / 4);
    uint m = i / (TILE_K / 4);
#ifdef COOPERATIVE
    a_tile[m * A_ROW + k] = v;
#else
    [[unroll]] for (uint j = 0; j < 4; ++j) a_tile[(k * 4 + j) * A_ROW + m / 4][m % 4] = v[j];
#endif
}

void store_b(uint i, QUAD v) {
    b_tile[i / (TILE_N / 4) * B_ROW + i % (TILE_N / 4)] = v;
}

// Writes four columns of a row of sums.
void write(uint batch, uint split, uint m, uint n, vec4 sum) {
    if (PARTIAL == 0) {
        finish(batch, m, n, sum);
    } else if (m < push.m && n < push.n) {
        uint batches = gl_NumWorkGroups.z / push.splits;
        y_write_f4(((split * batches + batch) * push.m + m) * ((push.n + 3) & ~3u) + n, sum);
    }
}

#ifdef COOPERATIVE
const uint SIDE = 16;
// Matrices of a subgroup's quarter, down and across.
const uint DOWN = TILE_M / 2 / SIDE;
const uint ACROSS = TILE_N / 2 / SIDE;
#define MATRIX(type, use) coopmat<type, gl_ScopeSubgroup, SIDE, SIDE, use>

// Where subgroups put a matrix to read its rows.
shared vec4 results[4 * SIDE * SIDE / 4];
#else
const uint ACROSS = TILE_N / 4;
const uint ROWS = TILE_M * ACROSS / LANES;
#endif

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint batch = gl_WorkGroupID.z / push.splits;
    uint split = gl_WorkGroupID.z % push.splits;
    uint tile_m = gl_WorkGroupID.y * TILE_M;
    uint tile_n = gl_WorkGroupID.x * TILE_N;
    uint a_base = batch % push.period * push.a_batch;
    uint b_base = batch * push.b_batch;
    uint start = split * push.terms;
    uint end = min(start + push.terms, push.k);

#ifdef WINDOWS
    find_windows(tile_n);
#endif
    QUAD a_next[MOST_QUADS];
    QUAD b_next[MOST_QUADS];

#ifdef COOPERATIVE
    MATRIX(float, gl_MatrixUseAccumulator) sums[16];
    // Where subgroups are so large that there are fewer than four, they do the quarters in turns.
    for (uint turn = 0; turn < 4; turn += gl_NumSubgroups) {
    uint quarter = turn + gl_SubgroupID;
    uint quarter_m = quarter / 2 * (TILE_M / 2);
    uint quarter_n = quarter % 2 * (TILE_N / 2);
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) sums[i] = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
#else
    vec4 sums[32];
    uint own_m = lane / ACROSS * ROWS;
    uint own_n = lane % ACROSS;
    [[unroll]] for (uint i = 0; i < ROWS; ++i) sums[i] = vec4(0);
#endif

    [[unroll]] for (uint i = 0; i < A_QUADS; ++i) a_next[i] = a_quad(a_base, tile_m, start, end, i * LANES + lane);
    [[unroll]] for (uint i = 0; i < B_QUADS; ++i) b_next[i] = b_quad(b_base, tile_n, start, end, i * LANES + lane);
    for (uint k = start; k < end; k += TILE_K) {
        barrier();
        [[unroll]] for (uint i = 0; i < A_QUADS; ++i) store_a(i * LANES + lane, a_next[i]);
        [[unroll]] for (uint i = 0; i < B_QUADS; ++i) store_b(i * LANES + lane, b_next[i]);
        barrier();
        uint next = k + TILE_K;
        if (next < end) {
            [[unroll]] for (uint i = 0; i < A_QUADS; ++i) a_next[i] = a_quad(a_base, tile_m, next, end, i * LANES + lane);
            [[unroll]] for (uint i = 0; i < B_QUADS; ++i) b_next[i] = b_quad(b_base, tile_n, next, end, i * LANES + lane);
        }
#ifdef COOPERATIVE
        if (quarter < 4) {
            [[unroll]] for (uint j = 0; j < TILE_K; j += SIDE) {
                MATRIX(float16_t, gl_MatrixUseA) rows[4];
                [[unroll]] for (uint i = 0; i < DOWN; ++i) {
                    uint m = quarter_m + i * SIDE;
                    if (A_TRANSPOSED != 0) coopMatLoad(rows[i], a_tile, j * A_ROW + m / 4, A_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                    else coopMatLoad(rows[i], a_tile, m * A_ROW + j / 4, A_ROW, gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint c = 0; c < ACROSS; ++c) {
                    MATRIX(float16_t, gl_MatrixUseB) columns;
                    coopMatLoad(columns, b_tile, j * B_ROW + (quarter_n + c * SIDE) / 4, B_ROW, gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint i = 0; i < DOWN; ++i) {
                        sums[i * ACROSS + c] = coopMatMulAdd(rows[i], columns, sums[i * ACROSS + c]);
                    }
                }
            }
        }
#else
        [[unroll]] for (uint j = 0; j < TILE_K; ++j) {
            vec4 v = b_tile[j * B_ROW + own_n];
            [[unroll]] for (uint i = 0; i < ROWS; i += 4) {
                vec4 w = a_tile[j * A_ROW + (own_m + i) / 4];
                sums[i] += w.x * v;
                sums[i + 1] += w.y * v;
                sums[i + 2] += w.z * v;
                sums[i + 3] += w.w * v;
            }
        }
#endif
    }

#ifdef COOPERATIVE
    if (quarter < 4) {
        uint place = quarter * (SIDE * SIDE / 4);
        [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) {
            coopMatStore(sums[i], results, place, SIDE / 4, gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            uint m = tile_m + quarter_m + i / ACROSS * SIDE;
            uint n = tile_n + quarter_n + i % ACROSS * SIDE;
            for (uint at = gl_SubgroupInvocationID; at < SIDE * SIDE / 4; at += gl_SubgroupSize) {
                write(batch, split, m + at / (SIDE / 4), n + at % (SIDE / 4) * 4, results[place + at]);
            }
            subgroupBarrier();
        }
    }
    }
#else
    [[unroll]] for (uint i = 0; i < ROWS; ++i) write(batch, split, tile_m + own_m + i, tile_n + own_n * 4, sums[i]);
#endif
}
