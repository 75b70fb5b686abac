#version 450
//! module matmul_tiled
//! module matmul_cooperative COOPERATIVE STORAGE16
//! module matmul_bfloat16 COOPERATIVE BFLOAT16 STORAGE16
//! module convolution_tiled WINDOWS
//! module convolution_cooperative COOPERATIVE WINDOWS STORAGE16
#extension GL_GOOGLE_include_directive : require
#ifdef COOPERATIVE
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#ifdef BFLOAT16
#extension GL_EXT_bfloat16 : require
#define MATRIX_ELEMENT bfloat16_t
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define MATRIX_ELEMENT float16_t
#endif
#endif
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// Multiplication of large matrices: a workgroup computes TILE_M rows of TILE_N columns. Operands
// are staged in shared memory, TILE_K terms at a time, while the next terms are being loaded. With
// several splits, workgroups that differ in z share the sums over k (split-K). The last workgroup
// of a tile to finish adds up the partial sums, or matmul_sum.comp does.
//
// Without COOPERATIVE, an invocation keeps a block of rows of four columns, in 32-bit arithmetic.
// With COOPERATIVE, operands are 16-bit floats, or are converted when they are stored in shared
// memory (BFLOAT16: they are stored in another type, and rounded to bfloat16). Each subgroup of 32
// invocations keeps a part of the tile in 16×16 matrices with 32-bit sums. A step lasts as long as
// the memory latency, unless there are many workgroups or much to multiply; small tiles therefore
// have more terms per step.
//
// NORMED: layer norm of the rows of `a`, which subtracts the mean and divides by the deviation. The
// result for `a · b` is then the GEMM of `a`, minus the mean times the sum of each column of `b`,
// divided by the deviation. Mean and deviation are computed from the loaded data, so the norm needs
// no separate dispatch.
//
// WINDOWS: a convolution (implicit GEMM). The columns of `b` are windows of an image, one for each
// element of an output plane. The terms are the taps of all channels of the image. They are read
// directly from the image. Images may be 3D, with 3D outputs.

#ifdef WINDOWS
#define WINDOW_FIELDS \
    int in_y; \
    int in_x; \
    int out_x; \
    int padding_y; \
    int padding_x; \
    /* For 3D images. */ \
    int in_z; \
    int out_y; \
    int padding_z;
#else
#define WINDOW_FIELDS
#endif
#define FIELDS \
    uint k; \
    uint a_pitch; \
    uint b_pitch; \
    /* Batch strides; `a` repeats after `period` batches. */ \
    uint a_batch; \
    uint b_batch; \
    uint splits; \
    /* Terms per split: a multiple of TILE_K. */ \
    uint terms; \
    uint base_z; \
    WINDOW_FIELDS
#include "product.glsl"

layout(constant_id = 10) const uint A = 0;
layout(constant_id = 11) const uint B = 0;
// 0: a[m][k]; 1: a[k][m], with rows padded to a multiple of 8.
layout(constant_id = 12) const uint A_TRANSPOSED = 0;
// All rows start at multiples of this many elements: 1, 4 or 8.
layout(constant_id = 13) const uint A_ALIGNED = 1;
layout(constant_id = 14) const uint B_ALIGNED = 1;
// Multiples of 32. Without COOPERATIVE, powers of two, so that each invocation has a multiple of
// four rows, at most 32.
layout(constant_id = 15) const uint TILE_M = 64;
layout(constant_id = 16) const uint TILE_N = 64;
// 1: the sums of each split are written separately, in rows padded to a multiple of 4; 2: they are
// written as tiles, and added up by this shader.
layout(constant_id = 17) const uint PARTIAL = 0;
// Terms loaded at a time: 16; with COOPERATIVE 32, 64 or 128. An invocation may load at most
// MAX_UNITS of each operand.
layout(constant_id = 18) const uint TILE_K = 16;
#ifdef WINDOWS
layout(constant_id = 19) const uint KERNEL_Y = 1;
layout(constant_id = 20) const uint KERNEL_X = 1;
layout(constant_id = 21) const uint STRIDE_Y = 1;
layout(constant_id = 22) const uint STRIDE_X = 1;
layout(constant_id = 23) const uint DILATION_Y = 1;
layout(constant_id = 24) const uint DILATION_X = 1;
layout(constant_id = 25) const uint LANES = 128;
layout(constant_id = 26) const uint TERM_PARTS = 1;
// 0: images are 2D.
layout(constant_id = 27) const uint KERNEL_Z = 0;
layout(constant_id = 28) const uint STRIDE_Z = 1;
layout(constant_id = 29) const uint DILATION_Z = 1;
layout(constant_id = 30) const uint EXACT = 0;
layout(constant_id = 31) const uint A_DIRECT = 0;
const uint B_TRANSPOSED = 0;
const bool DEEP = KERNEL_Z != 0;
const uint PLANE_TAPS = KERNEL_Y * KERNEL_X;
const uint TAPS = DEEP ? KERNEL_Z * PLANE_TAPS : PLANE_TAPS;
#else
// 0: b[k][n]; 1: b[n][k].
layout(constant_id = 19) const uint B_TRANSPOSED = 0;
// Invocations per workgroup: 128, or 256 for large tiles.
layout(constant_id = 20) const uint LANES = 128;
// COOPERATIVE: the number of subgroups that share the terms of each part of the tile. More than one
// requires subgroups of 32, and correspondingly more invocations.
layout(constant_id = 21) const uint TERM_PARTS = 1;
// Requires a[m][k], aligned units and a single split. PARTS_SLOT contains the sums of the columns.
layout(constant_id = 22) const uint NORMED = 0;
// COOPERATIVE: the number of subgroups equals the number of parts of the tile times the shares of
// the terms.
layout(constant_id = 23) const uint EXACT = 0;
// The distance of an operand's units from one step to the next is the same for all invocations, so
// that their position is computed once: the terms of all splits are multiples of TILE_K, and rows
// start at multiples of eight elements. (A separate constant, because NVIDIA's compiler, driver
// 580.159, crashed on boolean expressions of several constants.)
layout(constant_id = 24) const uint A_DIRECT = 0;
layout(constant_id = 25) const uint B_DIRECT = 0;
// Both operands are direct. After the last step, its terms are loaded again: for some tiles,
// compilers generate better loops without a guard.
layout(constant_id = 26) const uint UNGUARDED = 0;
#ifndef BFLOAT16
#define NORMS
#endif
#endif
#if defined(COOPERATIVE) && !defined(BFLOAT16)
#define DIRECT
#endif

RUN_IN(3, a, A)
RUN_IN(4, b, B)
#if defined(WINDOWS) && defined(COOPERATIVE)
// Images are fp16 in this case.
layout(set = 0, binding = 4) readonly buffer b_block16 { uint16_t elements[]; } b_by_half;
#endif
#define PARTS_SLOT 5
#define SUM vec4
#include "splits.glsl"
#ifdef NORMS
// First the epsilon of the variance and the factor of deviations, then the sums of all columns.
layout(set = 0, binding = PARTS_SLOT) readonly buffer columns_block { vec4 quads[]; } columns;
#endif

// The unit of an operand that is loaded at once, as stored in shared memory: eight fp16 values;
// four, if they are gathered one by one; or four 32-bit floats. Rows are padded so that eight rows
// lie in different banks.
#ifdef COOPERATIVE
#define A_UNIT uvec4
const uint A_WIDTH = 8;
#ifdef WINDOWS
#define B_UNIT uvec2
const uint B_WIDTH = 4;
#else
#define B_UNIT uvec4
const uint B_WIDTH = 8;
#endif
const uint PAD = 8;
const uint A_ROW = ((A_TRANSPOSED != 0 ? TILE_M : TILE_K) + PAD) / A_WIDTH;
const uint A_SIZE = (A_TRANSPOSED != 0 ? TILE_K : TILE_M) * A_ROW;
const uint B_ROW = ((B_TRANSPOSED != 0 ? TILE_K : TILE_N) + PAD) / B_WIDTH;
const uint B_SIZE = (B_TRANSPOSED != 0 ? TILE_N : TILE_K) * B_ROW;
#else
#define A_UNIT vec4
#define B_UNIT vec4
const uint A_WIDTH = 4;
const uint B_WIDTH = 4;
const uint PAD = 4;
const uint A_ROW = (TILE_M + PAD) / A_WIDTH;
const uint A_SIZE = TILE_K * A_ROW;
const uint B_ROW = (TILE_N + PAD) / B_WIDTH;
const uint B_SIZE = TILE_K * B_ROW;
#endif

// Units that an invocation loads.
const uint A_UNITS = TILE_M * TILE_K / A_WIDTH / LANES;
const uint B_UNITS = TILE_N * TILE_K / B_WIDTH / LANES;
const uint MAX_UNITS = 8;

#ifdef COOPERATIVE
const uint SIDE = 16;
// Groups of four elements in a matrix of results.
const uint MATRIX_QUADS = SIDE * SIDE / 4;
// After the last step, each subgroup stores a matrix here to read its rows.
const uint RESULTS_SIZE = LANES / 32 * MATRIX_QUADS;
shared A_UNIT a_tile[A_SIZE > RESULTS_SIZE ? A_SIZE : RESULTS_SIZE];
#else
shared A_UNIT a_tile[A_SIZE];
#endif
shared B_UNIT b_tile[B_SIZE];

// Maps unit `i` of this invocation to a line and a position in the line, for lines of `units`
// units. If the invocations cover whole lines, the lines of consecutive units have a constant
// distance, and compilers compute only the first.
uint line_of(const uint i, const uint units) {
    uint lane = gl_LocalInvocationID.x;
    return LANES % units == 0 ? i * (LANES / units) + lane / units : (i * LANES + lane) / units;
}
uint place_of(const uint i, const uint units) {
    uint lane = gl_LocalInvocationID.x;
    return LANES % units == 0 ? lane % units : (i * LANES + lane) % units;
}

// Four neighbours in k of a row of an operand, from term `first` on; zeros from term `end` on.
#define TERMS_OF(NAME, ALIGNED) \
    vec4 NAME##_terms(const uint at, const uint first, const uint end) { \
        if (first >= end) return vec4(0); \
        if (ALIGNED >= 4) return NAME##_f4(at); \
        vec4 v = NAME##_each(at + min(uvec4(0, 1, 2, 3), uvec4(end - 1 - first))); \
        return mix(vec4(0), v, lessThan(first + uvec4(0, 1, 2, 3), uvec4(end))); \
    }

TERMS_OF(a, A_ALIGNED)
#ifndef WINDOWS
TERMS_OF(b, B_ALIGNED)
#endif

// Four neighbours in a row of `b`, from column `n` on.
vec4 b_quad(const uint row, const uint n) {
    if (B_ALIGNED >= 4) return b_f4(row + min(n, push.b_pitch - 4));
    return b_each(row + min(n + uvec4(0, 1, 2, 3), uvec4(push.n - 1)));
}

#ifdef COOPERATIVE
#ifdef BFLOAT16
// Rounds 32-bit floats to the upper 16 bits, to nearest even.
uvec2 halves(const vec4 v) {
    uvec4 bits = floatBitsToUint(v);
    bits = mix(bits + 0x7fff + ((bits >> 16) & 1), bits | 0x400000, isnan(v));
    return bits.xz >> 16 | (bits.yw & 0xffff0000u);
}
#else
uvec2 halves(const vec4 v) { return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); }
#endif
#endif

// Units are kept as loaded: any operation on them before the current tile is multiplied would wait
// for the loads, and conditional loads may wait for each other. LATE: units beyond the last term
// are therefore clamped, and replaced by zeros when they are stored. Not for fp16, whose GEMMs were
// measured to last 3 to 8 % longer with it.
#if defined(COOPERATIVE) && !defined(BFLOAT16)
const bool LATE = false;
#define UNLESS_LATE(term) if (term >= end) return uvec4(0);
#else
const bool LATE = true;
#define UNLESS_LATE(term)
#endif
#ifdef BFLOAT16
struct Octet { vec4 low; vec4 high; };
#define A_BROUGHT Octet
#define AS_UNIT(v) uvec4(halves(v.low), halves(v.high))
#else
#define A_BROUGHT A_UNIT
#define AS_UNIT(v) v
#endif

// Unit `i` of the tile of `a` with first row `m` and first term `k`, up to term `end`. Rows beyond
// the last are clamped, and not written.
A_BROUGHT a_unit(const uint base, const uint m, const uint k, const uint end, const uint i) {
    if (A_TRANSPOSED != 0) {
        uint term = k + line_of(i, TILE_M / A_WIDTH);
        UNLESS_LATE(term)
        uint at = base + min(term, end - 1) * push.a_pitch + min(m + place_of(i, TILE_M / A_WIDTH) * A_WIDTH, push.a_pitch - A_WIDTH);
#ifdef BFLOAT16
        return Octet(a_f4(at), a_f4(at + 4));
#elif defined(COOPERATIVE)
        return a_by_4.words[at >> 3];
#else
        return a_f4(at);
#endif
    }
    uint first = k + place_of(i, TILE_K / A_WIDTH) * A_WIDTH;
    uint row = base + min(m + line_of(i, TILE_K / A_WIDTH), push.m - 1) * push.a_pitch;
    UNLESS_LATE(first)
    if (A_ALIGNED >= A_WIDTH) first = min(first, end - A_WIDTH);
#ifdef BFLOAT16
    if (A_ALIGNED >= A_WIDTH) return Octet(a_f4(row + first), a_f4(row + first + 4));
    return Octet(a_terms(row + first, first, end), a_terms(row + first + 4, first + 4, end));
#elif defined(COOPERATIVE)
    if (A_ALIGNED >= A_WIDTH) return a_by_4.words[(row + first) >> 3];
    return uvec4(halves(a_terms(row + first, first, end)), halves(a_terms(row + first + 4, first + 4, end)));
#else
    if (A_ALIGNED >= A_WIDTH) return a_f4(row + first);
    return a_terms(row + first, first, end);
#endif
}

#ifdef DIRECT
// The position of such a unit, if steps are whole.
uint a_place(const uint base, const uint m, const uint k, const uint i) {
    if (A_TRANSPOSED != 0) return (base + (k + line_of(i, TILE_M / A_WIDTH)) * push.a_pitch + min(m + place_of(i, TILE_M / A_WIDTH) * A_WIDTH, push.a_pitch - A_WIDTH)) >> 3;
    return (base + min(m + line_of(i, TILE_K / A_WIDTH), push.m - 1) * push.a_pitch + k + place_of(i, TILE_K / A_WIDTH) * A_WIDTH) >> 3;
}
#endif

// The value of a unit in shared memory.
A_UNIT a_value(const A_BROUGHT v, const uint k, const uint end, const uint i) {
    uint term = A_TRANSPOSED != 0 ? line_of(i, TILE_M / A_WIDTH) : place_of(i, TILE_K / A_WIDTH) * A_WIDTH;
    return !LATE || k + term < end ? AS_UNIT(v) : A_UNIT(0);
}

#ifdef WINDOWS
// The origins of the windows of the four columns that this invocation loads. They are the same for
// all terms, since a row of the tile has at most LANES quads.
ivec4 windows_z;
ivec4 windows_y;
ivec4 windows_x;

void find_windows(const uint n) {
    uvec4 columns = min(n + gl_LocalInvocationID.x % (TILE_N / 4) * 4 + uvec4(0, 1, 2, 3), uvec4(push.n - 1));
    ivec4 y = ivec4(columns) / push.out_x;
    windows_x = (ivec4(columns) - y * push.out_x) * int(STRIDE_X) - push.padding_x;
    if (DEEP) {
        ivec4 z = y / push.out_y;
        windows_z = z * int(STRIDE_Z) - push.padding_z;
        y -= z * push.out_y;
    }
    windows_y = y * int(STRIDE_Y) - push.padding_y;
}

#ifdef COOPERATIVE
#define B_BROUGHT uvec4
#define B_ELEMENT(at) uint(b_by_half.elements[at])
#else
#define B_BROUGHT vec4
#define B_ELEMENT(at) b_f(at)
#endif

// Returns a unit of `b` from the windows of an image: one word per element, also for 16-bit
// elements. The bits of `inside` from 4 * `unit` on tell which elements are inside the image and
// belong to terms before `end`.
B_BROUGHT b_unit(const uint base, const uint n, const uint k, const uint end, const uint i, const uint unit, inout uint inside) {
    uint row = k + line_of(i, TILE_N / 4);
    uint tap = row % PLANE_TAPS;
    uint channel = min(row, end - 1) / TAPS * uint(push.in_y * push.in_x);
    uint plane = base + (DEEP ? channel * uint(push.in_z) : channel);
    ivec4 z = KERNEL_Z > 1 ? windows_z + int(row % TAPS / PLANE_TAPS * DILATION_Z) : windows_z;
    ivec4 y = windows_y + int(tap / KERNEL_X * DILATION_Y);
    ivec4 x = windows_x + int(tap % KERNEL_X * DILATION_X);
    B_BROUGHT v;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        bool is_inside = row < end && uint(y[j]) < uint(push.in_y) && uint(x[j]) < uint(push.in_x);
        int line = y[j];
        if (DEEP) {
            is_inside = is_inside && uint(z[j]) < uint(push.in_z);
            line += z[j] * push.in_y;
        }
        inside |= is_inside ? 1u << (unit * 4 + j) : 0;
        v[j] = B_ELEMENT(plane + (is_inside ? uint(line * push.in_x + x[j]) : 0));
    }
    return v;
}

B_UNIT b_value(const B_BROUGHT v, const uint unit, const uint inside) {
    B_BROUGHT own = mix(B_BROUGHT(0), v, notEqual(uvec4(inside) & (uvec4(1, 2, 4, 8) << (unit * 4)), uvec4(0)));
#ifdef COOPERATIVE
    return own.xz | own.yw << 16;
#else
    return own;
#endif
}
#else
#define B_BROUGHT A_BROUGHT

// Returns unit `i` of a tile of `b` with first column `n` and first term `k`, up to term `end`.
B_BROUGHT b_unit(const uint base, const uint n, const uint k, const uint end, const uint i) {
    if (B_TRANSPOSED != 0) {
        uint first = k + place_of(i, TILE_K / B_WIDTH) * B_WIDTH;
        uint row = base + min(n + line_of(i, TILE_K / B_WIDTH), push.n - 1) * push.b_pitch;
        UNLESS_LATE(first)
        if (B_ALIGNED >= B_WIDTH) first = min(first, end - B_WIDTH);
#ifdef BFLOAT16
        if (B_ALIGNED >= B_WIDTH) return Octet(b_f4(row + first), b_f4(row + first + 4));
        return Octet(b_terms(row + first, first, end), b_terms(row + first + 4, first + 4, end));
#elif defined(COOPERATIVE)
        if (B_ALIGNED >= B_WIDTH) return b_by_4.words[(row + first) >> 3];
        return uvec4(halves(b_terms(row + first, first, end)), halves(b_terms(row + first + 4, first + 4, end)));
#else
        if (B_ALIGNED >= B_WIDTH) return b_f4(row + first);
        return b_terms(row + first, first, end);
#endif
    }
    uint term = k + line_of(i, TILE_N / B_WIDTH);
    UNLESS_LATE(term)
    uint row = base + min(term, end - 1) * push.b_pitch;
    uint column = n + place_of(i, TILE_N / B_WIDTH) * B_WIDTH;
#ifdef BFLOAT16
    return Octet(b_quad(row, column), b_quad(row, column + 4));
#elif defined(COOPERATIVE)
    if (B_ALIGNED >= B_WIDTH) return b_by_4.words[(row + min(column, push.b_pitch - B_WIDTH)) >> 3];
    return uvec4(halves(b_quad(row, column)), halves(b_quad(row, column + 4)));
#else
    return b_quad(row, column);
#endif
}

#ifdef DIRECT
uint b_place(const uint base, const uint n, const uint k, const uint i) {
    if (B_TRANSPOSED != 0) return (base + min(n + line_of(i, TILE_K / B_WIDTH), push.n - 1) * push.b_pitch + k + place_of(i, TILE_K / B_WIDTH) * B_WIDTH) >> 3;
    return (base + (k + line_of(i, TILE_N / B_WIDTH)) * push.b_pitch + min(n + place_of(i, TILE_N / B_WIDTH) * B_WIDTH, push.b_pitch - B_WIDTH)) >> 3;
}
#endif

B_UNIT b_value(const B_BROUGHT v, const uint k, const uint end, const uint i) {
    uint term = B_TRANSPOSED != 0 ? place_of(i, TILE_K / B_WIDTH) * B_WIDTH : line_of(i, TILE_N / B_WIDTH);
    return !LATE || k + term < end ? AS_UNIT(v) : B_UNIT(0);
}
#endif

// Stores a unit in shared memory.
void store_a(const uint i, const A_UNIT v) {
    if (A_TRANSPOSED != 0) {
        a_tile[line_of(i, TILE_M / A_WIDTH) * A_ROW + place_of(i, TILE_M / A_WIDTH)] = v;
        return;
    }
    uint k = place_of(i, TILE_K / A_WIDTH);
    uint m = line_of(i, TILE_K / A_WIDTH);
#ifdef COOPERATIVE
    a_tile[m * A_ROW + k] = v;
#else
    [[unroll]] for (uint j = 0; j < 4; ++j) a_tile[(k * 4 + j) * A_ROW + m / 4][m % 4] = v[j];
#endif
}

void store_b(const uint i, const B_UNIT v) {
    if (B_TRANSPOSED != 0) {
        uint k = place_of(i, TILE_K / B_WIDTH);
        uint n = line_of(i, TILE_K / B_WIDTH);
#ifdef COOPERATIVE
        b_tile[n * B_ROW + k] = v;
#else
        [[unroll]] for (uint j = 0; j < 4; ++j) b_tile[(k * 4 + j) * B_ROW + n / 4][n % 4] = v[j];
#endif
        return;
    }
    b_tile[line_of(i, TILE_N / B_WIDTH) * B_ROW + place_of(i, TILE_N / B_WIDTH)] = v;
}

#ifdef NORMS
// Units of a row that are loaded at a time.
const uint ROW_UNITS = TILE_K / A_WIDTH;
// For each row and each unit of the row: an invocation's sum of the differences from the row's
// first element, and the sum of the squares of these differences.
shared vec2 row_sums[NORMED != 0 ? TILE_M * ROW_UNITS : 1];
// The mean of a row, and the reciprocal of its deviation; before they are known, the row's first
// element.
shared vec2 row_norms[NORMED != 0 ? TILE_M : 1];
shared vec4 column_sums[NORMED != 0 ? TILE_N / 4 : 1];

vec2 with_four(const vec2 sums, const float pivot, const vec4 v) {
    vec4 own = v - pivot;
    return sums + vec2(dot(own, vec4(1.0)), dot(own, own));
}

vec2 with_unit(const vec2 sums, const float pivot, const A_BROUGHT v) {
#ifdef COOPERATIVE
    vec2 some = with_four(sums, pivot, vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y)));
    return with_four(some, pivot, vec4(unpackHalf2x16(v.z), unpackHalf2x16(v.w)));
#else
    return with_four(sums, pivot, v);
#endif
}

// Computes the norm of each row from the sums in shared memory.
void find_norms(const vec2 head) {
    barrier();
    for (uint row = gl_LocalInvocationID.x; row < TILE_M; row += LANES) {
        vec2 all = vec2(0);
        [[unroll]] for (uint i = 0; i < ROW_UNITS; ++i) all += row_sums[row * ROW_UNITS + i];
        all /= float(push.k);
        float variance = all.y - all.x * all.x;
        // Written so that NaN is preserved, which max would turn into zero.
        if (variance < 0.0) variance = 0.0;
        // In a row of equal elements, however large, rounding errors do not count as deviation.
        float factor = all.y == 0.0 ? 0.0 : head.y * inversesqrt(variance + head.x);
        row_norms[row] = vec2(row_norms[row].x + all.x, factor);
    }
    barrier();
}
#endif

// Writes four columns of a row of sums.
void write(const uint batch, const uint split, const uint m, const uint n, vec4 sum) {
#ifdef NORMS
    if (NORMED != 0) {
        vec2 norm = row_norms[m % TILE_M];
        sum = (sum - norm.x * column_sums[n % TILE_N / 4]) * norm.y;
    }
#endif
    if (PARTIAL == 0) {
        finish(batch, m, n, sum);
    } else if (PARTIAL == 2) {
        leave(batch, split, m, n, sum);
    } else if (m < push.m && n < push.n) {
        y_write_f4(((batch * push.splits + split) * push.m + m) * ((push.n + 3) & ~3u) + n, sum);
    }
}

#ifdef COOPERATIVE
// The parts of the tile for subgroups: two rows of parts. Then the matrices of each part, down and
// across.
const uint PARTS = LANES / 32 / TERM_PARTS;
const uint PARTS_ACROSS = PARTS / 2;
// Terms of a step per subgroup.
const uint OWN_TERMS = TILE_K / TERM_PARTS;
const uint DOWN = TILE_M / 2 / SIDE;
const uint ACROSS = TILE_N / PARTS_ACROSS / SIDE;
#define MATRIX(type, use) coopmat<type, gl_ScopeSubgroup, SIDE, SIDE, use>

// Waits for the subgroups with the same part of the tile.
void together() {
    if (TERM_PARTS > 1) barrier();
    else subgroupBarrier();
}
#else
const uint ACROSS = TILE_N / 4;
const uint ROWS = TILE_M * ACROSS / LANES;
#endif

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint batch = WORKGROUP_Z / push.splits;
    uint split = WORKGROUP_Z % push.splits;
    uint tile_m = gl_WorkGroupID.y * TILE_M;
    uint tile_n = gl_WorkGroupID.x * TILE_N;
    uint a_base = batch % push.period * push.a_batch;
    uint b_base = batch * push.b_batch;
    uint start = split * push.terms;
    uint end = min(start + push.terms, push.k);

#ifdef WINDOWS
    find_windows(tile_n);
#endif
    A_BROUGHT a_next[MAX_UNITS];
    B_BROUGHT b_next[MAX_UNITS];
#ifdef DIRECT
    uint a_at[MAX_UNITS];
    if (A_DIRECT != 0) {
        [[unroll]] for (uint i = 0; i < A_UNITS; ++i) a_at[i] = a_place(a_base, tile_m, start, i);
    }
#ifndef WINDOWS
    uint b_at[MAX_UNITS];
    if (B_DIRECT != 0) {
        [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_at[i] = b_place(b_base, tile_n, start, i);
    }
#endif
#define BRING_A(k) { \
        if (A_DIRECT != 0) { \
            uint behind = ((k) - start) / A_WIDTH * (A_TRANSPOSED != 0 ? push.a_pitch : 1); \
            [[unroll]] for (uint i = 0; i < A_UNITS; ++i) a_next[i] = a_by_4.words[a_at[i] + behind]; \
        } else { \
            [[unroll]] for (uint i = 0; i < A_UNITS; ++i) a_next[i] = a_unit(a_base, tile_m, k, end, i); \
        } \
    }
#else
#define BRING_A(k) { \
        [[unroll]] for (uint i = 0; i < A_UNITS; ++i) a_next[i] = a_unit(a_base, tile_m, k, end, i); \
    }
#endif
#ifdef WINDOWS
    uint inside;
#define BRING_B(k) { \
        inside = 0; \
        [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_next[i] = b_unit(b_base, tile_n, k, end, i, i, inside); \
    }
#define B_VALUE(i) b_value(b_next[i], i, inside)
#elif defined(DIRECT)
#define BRING_B(k) { \
        if (B_DIRECT != 0) { \
            uint behind = ((k) - start) / B_WIDTH * (B_TRANSPOSED != 0 ? 1 : push.b_pitch); \
            [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_next[i] = b_by_4.words[b_at[i] + behind]; \
        } else { \
            [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_next[i] = b_unit(b_base, tile_n, k, end, i); \
        } \
    }
#define B_VALUE(i) b_value(b_next[i], k, end, i)
#else
#define BRING_B(k) { \
        [[unroll]] for (uint i = 0; i < B_UNITS; ++i) b_next[i] = b_unit(b_base, tile_n, k, end, i); \
    }
#define B_VALUE(i) b_value(b_next[i], k, end, i)
#endif

#ifdef COOPERATIVE
    MATRIX(float, gl_MatrixUseAccumulator) sums[16];
    // If the workgroup has fewer than PARTS subgroups, each processes several parts in turn.
    for (uint turn = 0; turn < (EXACT != 0 ? 1 : PARTS); turn += EXACT != 0 ? 1 : gl_NumSubgroups) {
    uint part = EXACT != 0 ? gl_SubgroupID % PARTS : turn + gl_SubgroupID;
    uint first_term = TERM_PARTS > 1 ? gl_SubgroupID / PARTS * OWN_TERMS : 0;
    uint part_m = part / PARTS_ACROSS * (TILE_M / 2);
    uint part_n = part % PARTS_ACROSS * (TILE_N / PARTS_ACROSS);
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) sums[i] = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
#else
    vec4 sums[32];
    uint own_m = lane / ACROSS * ROWS;
    uint own_n = lane % ACROSS;
    [[unroll]] for (uint i = 0; i < ROWS; ++i) sums[i] = vec4(0);
#endif

    BRING_A(start)
    BRING_B(start)
#ifdef NORMS
    // Relative to the first element of a row, sums and squares are not large.
    vec2 stats[MAX_UNITS];
    float pivots[MAX_UNITS];
    vec2 head;
    if (NORMED != 0) {
        head = columns.quads[0].xy;
        for (uint i = lane; i < TILE_N / 4; i += LANES) column_sums[i] = columns.quads[min(tile_n / 4 + i, (push.n - 1) / 4) + 1];
        [[unroll]] for (uint i = 0; i < A_UNITS; ++i) {
            stats[i] = vec2(0);
            pivots[i] = a_f(a_base + min(tile_m + line_of(i, ROW_UNITS), push.m - 1) * push.a_pitch);
        }
    }
#endif
    for (uint k = start; k < end; k += TILE_K) {
        barrier();
#ifdef NORMS
        if (NORMED != 0 && k + lane % ROW_UNITS * A_WIDTH < end) {
            [[unroll]] for (uint i = 0; i < A_UNITS; ++i) stats[i] = with_unit(stats[i], pivots[i], a_next[i]);
        }
#endif
        [[unroll]] for (uint i = 0; i < A_UNITS; ++i) store_a(i, a_value(a_next[i], k, end, i));
        [[unroll]] for (uint i = 0; i < B_UNITS; ++i) store_b(i, B_VALUE(i));
        barrier();
        uint next = k + TILE_K;
#if defined(DIRECT) && !defined(WINDOWS)
        if (UNGUARDED != 0) next = min(next, end - TILE_K);
        if (UNGUARDED != 0 || next < end) {
#else
        if (next < end) {
#endif
            BRING_A(next)
            BRING_B(next)
        }
#ifdef COOPERATIVE
        if (EXACT != 0 || part < PARTS) {
            [[unroll]] for (uint own = 0; own < OWN_TERMS; own += SIDE) {
                uint j = first_term + own;
                MATRIX(MATRIX_ELEMENT, gl_MatrixUseA) rows[4];
                [[unroll]] for (uint i = 0; i < DOWN; ++i) {
                    uint m = part_m + i * SIDE;
                    if (A_TRANSPOSED != 0) coopMatLoad(rows[i], a_tile, j * A_ROW + m / A_WIDTH, A_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                    else coopMatLoad(rows[i], a_tile, m * A_ROW + j / A_WIDTH, A_ROW, gl_CooperativeMatrixLayoutRowMajor);
                }
                [[unroll]] for (uint c = 0; c < ACROSS; ++c) {
                    MATRIX(MATRIX_ELEMENT, gl_MatrixUseB) columns;
                    uint n = part_n + c * SIDE;
                    if (B_TRANSPOSED != 0) coopMatLoad(columns, b_tile, n * B_ROW + j / B_WIDTH, B_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                    else coopMatLoad(columns, b_tile, j * B_ROW + n / B_WIDTH, B_ROW, gl_CooperativeMatrixLayoutRowMajor);
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

#ifdef NORMS
    if (NORMED != 0) {
        [[unroll]] for (uint i = 0; i < A_UNITS; ++i) {
            row_sums[i * LANES + lane] = stats[i];
            if (lane % ROW_UNITS == 0) row_norms[line_of(i, ROW_UNITS)].x = pivots[i];
        }
        find_norms(head);
    }
#endif
#ifdef COOPERATIVE
    barrier();
    if (EXACT != 0 || part < PARTS) {
        uint place = (TERM_PARTS > 1 ? gl_SubgroupID : part) * MATRIX_QUADS;
        uint first = TERM_PARTS > 1 ? gl_SubgroupID / PARTS * 32 + gl_SubgroupInvocationID : gl_SubgroupInvocationID;
        uint step = TERM_PARTS > 1 ? TERM_PARTS * 32 : gl_SubgroupSize;
        [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) {
            coopMatStore(sums[i], a_tile, place, SIDE / 4, gl_CooperativeMatrixLayoutRowMajor);
            together();
            uint m = tile_m + part_m + i / ACROSS * SIDE;
            uint n = tile_n + part_n + i % ACROSS * SIDE;
            for (uint at = first; at < MATRIX_QUADS; at += step) {
                vec4 sum = uintBitsToFloat(a_tile[part * MATRIX_QUADS + at]);
                [[unroll]] for (uint other = 1; other < TERM_PARTS; ++other) sum += uintBitsToFloat(a_tile[(other * PARTS + part) * MATRIX_QUADS + at]);
                write(batch, split, m + at / (SIDE / 4), n + at % (SIDE / 4) * 4, sum);
            }
            together();
        }
    }
    }
#else
    [[unroll]] for (uint i = 0; i < ROWS; ++i) write(batch, split, tile_m + own_m + i, tile_n + own_n * 4, sums[i]);
#endif

    if (PARTIAL == 2 && all_are_left(batch)) add_up(batch, tile_m, tile_n);
}
