#version 450
//! module matmul
//! module matmul_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// Products of matrices: the sum over k of a[m][k] * b[k][n], and what product.glsl makes of it. An invocation computes ROWS rows
// of four columns. The invocations of a workgroup that differ in z share the sum over k among themselves.

#define FIELDS \
    uint k; \
    uint a_pitch; \
    uint b_pitch; \
    /* Elements from batch to batch; `a` starts again after `period` batches. */ \
    uint a_batch; \
    uint b_batch;
#include "product.glsl"

layout(constant_id = 10) const uint A = 0;
layout(constant_id = 11) const uint B = 0;
// 0: a[m][k]; 1: a[k][m], with rows that are padded to a multiple of 8.
layout(constant_id = 12) const uint A_TRANSPOSED = 0;
// Whether all rows start at multiples of four elements.
layout(constant_id = 13) const uint A_ALIGNED = 0;
layout(constant_id = 14) const uint B_ALIGNED = 0;
// 1, 2, 4 or 8.
layout(constant_id = 15) const uint ROWS = 4;
// The invocations that share a sum; ROWS times the workgroup's size, or 1 if sums are not shared.
layout(constant_id = 16) const uint SHARES = 1;
layout(constant_id = 17) const uint PARTIALS = 1;

RUN_IN(3, a, A)
RUN_IN(4, b, B)

shared vec4 partials[PARTIALS];

// Into so many parts a sum is made first.
const uint SEGMENTS = SHARES < 2 * ROWS ? 1 : SHARES / ROWS > 8 ? 8 : SHARES / ROWS;

vec4 b_row(uint at, uvec4 columns) {
    return B_ALIGNED != 0 ? b_f4(at + columns.x) : b_each(at + columns);
}

vec4 a_row(uint at) {
    return A_ALIGNED != 0 ? a_f4(at) : a_each(at + uvec4(0, 1, 2, 3));
}

void main() {
    uint batch = gl_WorkGroupID.z;
    uint m = gl_GlobalInvocationID.y * ROWS;
    uint n = gl_GlobalInvocationID.x * 4;
    uint share = gl_LocalInvocationID.z;
    bool inside = m < push.m && n < push.n;
    uint part = batch % push.period;

    vec4 sums[8];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = vec4(0);

    if (inside) {
        // Columns beyond the last are read as the last, and not written.
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
            for (uint k = share * 4; k < whole; k += 4 * SHARES) {
                vec4 v0 = b_row(b_at, columns);
                vec4 v1 = b_row(b_at + push.b_pitch, columns);
                vec4 v2 = b_row(b_at + 2 * push.b_pitch, columns);
                vec4 v3 = b_row(b_at + 3 * push.b_pitch, columns);
                [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                    vec4 w = a_row(a_at[r] + k);
                    sums[r] += w.x * v0;
                    sums[r] += w.y * v1;
                    sums[r] += w.z * v2;
                    sums[r] += w.w * v3;
                }
                b_at += b_step;
            }
            if (share == 0) {
                for (uint k = whole; k < push.k; ++k) {
                    vec4 v = b_row(batch * push.b_batch + k * push.b_pitch, columns);
                    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] += a_f(a_at[r] + k) * v;
                }
            }
        }
    }

    if (SHARES == 1) {
        if (!inside) return;
        [[unroll]] for (uint r = 0; r < ROWS; ++r) finish(batch, m + r, n, sums[r]);
        return;
    }
    uint plane = gl_WorkGroupSize.x * gl_WorkGroupSize.y;
    uint place = gl_LocalInvocationID.y * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) partials[(share * ROWS + r) * plane + place] = sums[r];
    barrier();
    // As the sums were shared, so are the rows, and where there are more invocations than these, the parts of each.
    if (SEGMENTS > 1) {
        uint r = share % ROWS;
        uint segment = share / ROWS;
        vec4 sum = vec4(0);
        if (segment < SEGMENTS) {
            uint first = segment * SHARES / SEGMENTS;
            [[unroll]] for (uint s = 0; s < SHARES / SEGMENTS; ++s) sum += partials[((first + s) * ROWS + r) * plane + place];
        }
        barrier();
        if (segment < SEGMENTS) partials[(segment * ROWS + r) * plane + place] = sum;
        barrier();
    }
    if (!inside) return;
    for (uint r = share; r < ROWS; r += SHARES) {
        vec4 sum = vec4(0);
        [[unroll]] for (uint s = 0; s < (SEGMENTS > 1 ? SEGMENTS : SHARES); ++s) sum += partials[(s * ROWS + r) * plane + place];
        finish(batch, m + r, n, sum);
    }
}
