#version 450
//! module matmul
//! module matmul_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// Matrix multiplication: the sum over k of a[m][k] * b[k][n], with the epilogue in product.glsl. An
// invocation computes ROWS rows of QUADS times four columns. Invocations of a workgroup that differ
// in z share the sum over k.

#define FIELDS \
    uint k; \
    uint a_pitch; \
    uint b_pitch; \
    /* Batch strides; `a` repeats after `period` batches. */ \
    uint a_batch; \
    uint b_batch; \
    uint base_z;
#include "product.glsl"

layout(constant_id = 10) const uint A = 0;
layout(constant_id = 11) const uint B = 0;
// 0: a[m][k]; 1: a[k][m], with rows padded to a multiple of 8.
layout(constant_id = 12) const uint A_TRANSPOSED = 0;
// Whether all rows start at multiples of four elements.
layout(constant_id = 13) const uint A_ALIGNED = 0;
layout(constant_id = 14) const uint B_ALIGNED = 0;
// 1, 2, 4 or 8.
layout(constant_id = 15) const uint ROWS = 4;
// Invocations that share a sum, and the number of vectors through which they exchange it: ROWS
// times QUADS times the workgroup size, or 1.
layout(constant_id = 16) const uint SHARES = 1;
layout(constant_id = 17) const uint PARTIALS = 1;
// Groups of four columns per invocation, which also loads QUADS times four terms before it
// multiplies them: 1; or 2, if `a` is not transposed and rows of `b` start at multiples of eight
// elements.
layout(constant_id = 18) const uint QUADS = 1;

RUN_IN(3, a, A)
RUN_IN(4, b, B)

// Groups of four sums per invocation.
const uint SUMS = ROWS * QUADS;
const uint MAX_SUMS = 8;

#include "shares.glsl"

vec4 b_row(const uint at, const uvec4 columns) {
    return B_ALIGNED != 0 ? b_f4(at + columns.x) : b_each(at + columns);
}

// Reads the columns of an invocation in the row of `b` that starts at `at`.
void b_quads(const uint at, const uvec4 columns, out vec4 v[QUADS]) {
    if (QUADS == 1) {
        v[0] = b_row(at, columns);
    } else if (B == F32) {
        [[unroll]] for (uint q = 0; q < QUADS; ++q) v[q] = b_f4(at + columns.x + 4 * q);
    } else {
        uvec4 words = b_by_4.words[(at + columns.x) >> 3];
        [[unroll]] for (uint q = 0; q < QUADS; ++q) v[q] = vec4(unpackHalf2x16(words[2 * q]), unpackHalf2x16(words[2 * q + 1]));
    }
}

vec4 a_row(const uint at) {
    return A_ALIGNED != 0 ? a_f4(at) : a_each(at + uvec4(0, 1, 2, 3));
}

void main() {
    uint batch = WORKGROUP_Z;
    uint m = gl_GlobalInvocationID.y * ROWS;
    uint n = gl_GlobalInvocationID.x * 4 * QUADS;
    uint share = gl_LocalInvocationID.z;
    bool inside = m < push.m && n < push.n;
    uint part = batch % push.period;

    vec4 sums[MAX_SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = vec4(0);

    if (inside) {
        // Columns beyond the last are clamped when read, and not written.
        uvec4 columns = min(n + uvec4(0, 1, 2, 3), uvec4(push.n - 1));
        uint whole = push.k & ~3u;
        uint b_at = batch * push.b_batch + share * 4 * push.b_pitch;
        uint b_step = 4 * SHARES * push.b_pitch;
        if (A_TRANSPOSED != 0) {
            uint a_at = part * push.a_batch + share * 4 * push.a_pitch + m;
            uint a_step = 4 * SHARES * push.a_pitch;
            for (uint k = share * 4; k < whole; k += 4 * SHARES) {
                [[unroll]] for (uint j = 0; j < 4; ++j) {
                    vec4 v = b_row(b_at + j * push.b_pitch, columns);
                    uint at = a_at + j * push.a_pitch;
                    if (ROWS < 4) {
                        [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] += a_f(at + r) * v;
                    } else {
                        [[unroll]] for (uint r = 0; r < ROWS; r += 4) {
                            vec4 w = a_f4(at + r);
                            sums[r] += w.x * v;
                            sums[r + 1] += w.y * v;
                            sums[r + 2] += w.z * v;
                            sums[r + 3] += w.w * v;
                        }
                    }
                }
                a_at += a_step;
                b_at += b_step;
            }
            if (share == 0) {
                for (uint k = whole; k < push.k; ++k) {
                    vec4 v = b_row(batch * push.b_batch + k * push.b_pitch, columns);
                    uint at = part * push.a_batch + k * push.a_pitch + m;
                    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] += a_f(at + r) * v;
                }
            }
        } else {
            uint a_at[8];
            [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                a_at[r] = part * push.a_batch + min(m + r, push.m - 1) * push.a_pitch;
            }
            uint k = share * 4;
            // All loads are in flight before the first multiplication.
            for (; k + (QUADS - 1) * 4 * SHARES < whole; k += QUADS * 4 * SHARES) {
                vec4 v[QUADS * 4][QUADS];
                vec4 w[QUADS * ROWS];
                [[unroll]] for (uint t = 0; t < QUADS; ++t) {
                    [[unroll]] for (uint j = 0; j < 4; ++j) b_quads(b_at + t * b_step + j * push.b_pitch, columns, v[t * 4 + j]);
                    [[unroll]] for (uint r = 0; r < ROWS; ++r) w[t * ROWS + r] = a_row(a_at[r] + k + t * 4 * SHARES);
                }
                [[unroll]] for (uint t = 0; t < QUADS; ++t) {
                    [[unroll]] for (uint i = 0; i < SUMS; ++i) {
                        [[unroll]] for (uint j = 0; j < 4; ++j) sums[i] += w[t * ROWS + i / QUADS][j] * v[t * 4 + j][i % QUADS];
                    }
                }
                b_at += QUADS * b_step;
            }
            for (; QUADS > 1 && k < whole; k += 4 * SHARES) {
                vec4 v[4][QUADS];
                [[unroll]] for (uint j = 0; j < 4; ++j) b_quads(b_at + j * push.b_pitch, columns, v[j]);
                [[unroll]] for (uint i = 0; i < SUMS; ++i) {
                    vec4 w = a_row(a_at[i / QUADS] + k);
                    [[unroll]] for (uint j = 0; j < 4; ++j) sums[i] += w[j] * v[j][i % QUADS];
                }
                b_at += b_step;
            }
            if (share == 0) {
                for (uint k = whole; k < push.k; ++k) {
                    vec4 v[QUADS];
                    b_quads(batch * push.b_batch + k * push.b_pitch, columns, v);
                    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] += a_f(a_at[i / QUADS] + k) * v[i % QUADS];
                }
            }
        }
    }

    if (SHARES == 1) {
        if (!inside) return;
        [[unroll]] for (uint i = 0; i < SUMS; ++i) finish(batch, m + i / QUADS, n + i % QUADS * 4, sums[i]);
        return;
    }
    uint plane = gl_WorkGroupSize.x * gl_WorkGroupSize.y;
    uint place = gl_LocalInvocationID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    leave_sums(share, place, plane, sums);
    if (!inside) return;
    for (uint i = share; i < SUMS; i += SHARES) finish(batch, m + i / QUADS, n + i % QUADS * 4, whole_sum(i, place, plane));
}
