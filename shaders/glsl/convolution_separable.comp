#version 450
//! module convolution_separable STORAGE16
#extension GL_GOOGLE_include_directive : require
#define ACTIVATIONS_OF activated
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// A depthwise convolution followed by a pointwise convolution. The pointwise convolution is a GEMM
// of weights `a` and the result of the depthwise convolution, with the epilogue in product.glsl.
//
// A workgroup computes TILE_M channels of TILE_Y rows of TILE_X outputs. In each iteration over
// CHANNELS channels, it stages the inputs of the windows in shared memory, computes the depthwise
// results there, and multiplies them. An invocation computes SUMS channels of four neighbours;
// SHARES invocations share the sums over channels. The inputs of an iteration are loaded during the
// previous one.

#define FIELDS \
    uint k; \
    uint a_pitch; \
    uint w_pitch; \
    int in_y; \
    int in_x; \
    uint out_y; \
    uint out_x; \
    int padding_y; \
    /* The last four elements of the input. */ \
    int last; \
    /* Parameters of the activation of the depthwise convolution. */ \
    float c; \
    float d; \
    uint base_z;
// Neighbours are in one row of the image.
#define RUN_LEFT(n) (push.out_x - n % push.out_x)
#include "product.glsl"

// Pointwise weights: [channel][output channel], with rows padded to a multiple of 8.
layout(constant_id = 10) const uint A = 0;
layout(constant_id = 11) const uint X = 0;
// Depthwise weights: [tap][channel].
layout(constant_id = 12) const uint W = 0;
layout(constant_id = 13) const uint SHIFT = 0;
layout(constant_id = 14) const uint HAS_SHIFT = 0;
// The activation of the depthwise convolution, and whether its results are rounded to fp16.
layout(constant_id = 15) const uint BETWEEN = 0;
layout(constant_id = 16) const uint ROUNDED = 0;
layout(constant_id = 17) const uint KERNEL_X = 1;
layout(constant_id = 18) const uint KERNEL_Y = 1;
layout(constant_id = 19) const uint STRIDE_X = 1;
layout(constant_id = 20) const uint STRIDE_Y = 1;
layout(constant_id = 21) const uint DILATION_X = 1;
layout(constant_id = 22) const uint DILATION_Y = 1;
layout(constant_id = 23) const uint PADDING_X = 0;
// Whether all rows of the input start at multiples of four elements.
layout(constant_id = 24) const uint X_ALIGNED = 0;
// TILE_X is a multiple of 4, TILE_M one of SUMS, which is 4 or 8.
layout(constant_id = 25) const uint TILE_X = 4;
layout(constant_id = 26) const uint TILE_Y = 1;
layout(constant_id = 27) const uint TILE_M = 4;
layout(constant_id = 28) const uint SUMS = 4;
// A multiple of SHARES.
layout(constant_id = 29) const uint CHANNELS = 1;
layout(constant_id = 30) const uint SHARES = 1;
// Staged groups of four elements in 32 and 16 bits; vectors for depthwise results or shared sums.
layout(constant_id = 31) const uint STAGED_32 = 1;
layout(constant_id = 32) const uint STAGED_16 = 1;
layout(constant_id = 33) const uint PARTIALS = 1;

RUN_IN(3, a, A)
RUN_IN(4, x, X)
RUN_IN(5, w, W)
RUN_IN(6, shift, SHIFT)

const uint MAX_SUMS = 8;
#include "shares.glsl"

shared uvec4 staged_32[STAGED_32];
shared uvec2 staged_16[STAGED_16];

// Groups of four neighbouring outputs per row, and in total.
const uint RUNS_X = TILE_X / 4;
const uint RUNS = RUNS_X * TILE_Y;
// Invocations per share, and in total.
const uint PLACES = TILE_M / SUMS * RUNS;
const uint LANES = PLACES * SHARES;

// The maximum offset of a window from a multiple of four elements. If rows are aligned, the exact
// offset.
const uint OFFSET = X_ALIGNED != 0 ? (4 - PADDING_X % 4) % 4 : 3;
// Input elements in a row: for four neighbouring outputs, and for the whole workgroup.
const uint TAPS = 3 * STRIDE_X + (KERNEL_X - 1) * DILATION_X + 1;
const uint REACH = (TILE_X - 1) * STRIDE_X + (KERNEL_X - 1) * DILATION_X + 1;
// The number of aligned groups of four elements that contain these input elements.
const uint RUN_QUADS = (OFFSET + TAPS + 3) / 4;
const uint ROW_QUADS = (OFFSET + REACH + 3) / 4;
const uint STAGE_ROWS = (TILE_Y - 1) * STRIDE_Y + (KERNEL_Y - 1) * DILATION_Y + 1;
const uint QUADS = STAGE_ROWS * ROW_QUADS;
// Odd, so that invocations for neighbouring channels read from different banks.
const uint PITCH = QUADS | 1;

// The number of channels loaded at a time, and the number of such loads per iteration.
const uint BROUGHT = LANES < QUADS ? 1 : LANES / QUADS;
const uint TIMES = (CHANNELS + BROUGHT - 1) / BROUGHT;
// Groups of four depthwise results per invocation and iteration, and their taps.
const uint ITEMS = (CHANNELS * RUNS + LANES - 1) / LANES;
const uint AREA = KERNEL_X * KERNEL_Y;
// Channels that an invocation multiplies per iteration.
const uint TERMS = CHANNELS / SHARES;
// The number of depthwise weights and shifts that are loaded early, if they fit into registers.
const uint MADE_EARLY = ITEMS * AREA <= 36 ? ITEMS : 0;

uvec4 a_raw(const uint at) {
    if (A == F32) return a_by_4.words[at >> 2];
    return uvec4(a_by_2.words[at >> 2], 0, 0);
}

vec4 a_of(const uvec4 raw) {
    if (A == F32) return uintBitsToFloat(raw);
    return vec4(unpackHalf2x16(raw.x), unpackHalf2x16(raw.y));
}

// Returns the taps of four neighbours from a row staged at `at`, whose first tap is the element
// with index `offset`.
void taps_of(const uint at, const uint offset, out float taps[16]) {
    uint words[22];
    if (X == F32) {
        [[unroll]] for (uint i = 0; i < min(RUN_QUADS, 5); ++i) {
            uvec4 quad = staged_32[at + i];
            [[unroll]] for (uint j = 0; j < 4; ++j) words[4 * i + j] = quad[j];
        }
        [[unroll]] for (uint i = 0; i < min(TAPS + 1, 17); ++i) words[i] = (offset & 2) != 0 ? words[i + 2] : words[i];
        [[unroll]] for (uint i = 0; i < min(TAPS, 16); ++i) taps[i] = uintBitsToFloat((offset & 1) != 0 ? words[i + 1] : words[i]);
    } else {
        [[unroll]] for (uint i = 0; i < min(RUN_QUADS, 5); ++i) {
            uvec2 quad = staged_16[at + i];
            words[2 * i] = quad.x;
            words[2 * i + 1] = quad.y;
        }
        [[unroll]] for (uint i = 0; i < min(TAPS / 2 + 1, 9); ++i) words[i] = (offset & 2) != 0 ? words[i + 1] : words[i];
        [[unroll]] for (uint i = 0; i < min(TAPS, 16); i += 2) {
            uint pair = (offset & 1) != 0 ? words[i / 2] >> 16 | words[i / 2 + 1] << 16 : words[i / 2];
            vec2 v = unpackHalf2x16(pair);
            taps[i] = v.x;
            taps[i + 1] = v.y;
        }
    }
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint across = (push.out_x + TILE_X - 1) / TILE_X;
    uint first_x = gl_WorkGroupID.x % across * TILE_X;
    uint first_y = gl_WorkGroupID.x / across * TILE_Y;
    uint batch = WORKGROUP_Z;
    int ix = int(first_x * STRIDE_X) - int(PADDING_X);
    int iy = int(first_y * STRIDE_Y) - push.padding_y;
    int plane = push.in_y * push.in_x;
    // The position of the first channel's windows, which may be before the image.
    int origin = (int(batch * push.k) * push.in_y + iy) * push.in_x + ix;

    // An invocation loads the same elements of each channel.
    uint bringer = lane / QUADS;
    uint quad = lane % QUADS;
    int row = iy + int(quad / ROW_QUADS);
    bool brings = bringer < BROUGHT && row >= 0 && row < push.in_y;
    int from = origin + int(quad / ROW_QUADS) * push.in_x;

    uint share = lane / PLACES;
    uint place = lane % PLACES;
    uint run = place / (TILE_M / SUMS);
    uint m = gl_WorkGroupID.y * TILE_M + place % (TILE_M / SUMS) * SUMS;

    vec4 sums[MAX_SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = vec4(0);

    uvec4 brought[TIMES];
    float f[MADE_EARLY * AREA + 1];
    float shifts[MADE_EARLY + 1];
    uvec4 read[TERMS * SUMS / 4];

    // Channels beyond the last are clamped when read, and not multiplied. The first iteration only
    // loads.
    for (uint next = 0;; next += CHANNELS) {
        uint first = next - CHANNELS;
        bool begun = next != 0;
        bool more = next < push.k;
        if (begun) {
            if (brings) {
                [[unroll]] for (uint t = 0; t < TIMES; ++t) {
                    uint channel = t * BROUGHT + bringer;
                    if (channel >= CHANNELS) continue;
                    if (X == F32) staged_32[channel * PITCH + quad] = brought[t];
                    else staged_16[channel * PITCH + quad] = brought[t].xy;
                }
            }
            barrier();
        }
        if (more && brings) {
            [[unroll]] for (uint t = 0; t < TIMES; ++t) {
                uint channel = min(next + t * BROUGHT + bringer, push.k - 1);
                int at = clamp(((from + int(channel) * plane) >> 2) + int(quad % ROW_QUADS), 0, push.last);
                if (X == F32) brought[t] = x_by_4.words[at];
                else brought[t].xy = x_by_2.words[at];
            }
        }
        if (begun) {
            [[unroll]] for (uint j = 0; j < ITEMS; ++j) {
                uint item = lane + j * LANES;
                if (item >= CHANNELS * RUNS) continue;
                uint channel = item % CHANNELS;
                uint there = min(first + channel, push.k - 1);
                uint left = item / CHANNELS % RUNS_X * 4 * STRIDE_X;
                uint top = item / CHANNELS / RUNS_X * STRIDE_Y;
                vec4 sum = vec4(0);
                if (HAS_SHIFT != 0) sum = vec4(MADE_EARLY != 0 ? shifts[min(j, MADE_EARLY)] : shift_f(there));
                [[unroll]] for (uint ky = 0; ky < KERNEL_Y; ++ky) {
                    uint y = top + ky * DILATION_Y;
                    if (uint(iy + int(y)) >= uint(push.in_y)) continue;
                    uint offset = X_ALIGNED != 0 ? OFFSET : uint(origin + int(there) * plane + int(y) * push.in_x) & 3;
                    float taps[16];
                    taps_of(channel * PITCH + y * ROW_QUADS + left / 4, offset, taps);
                    [[unroll]] for (uint i = 0; i < min(TAPS, 16); ++i) {
                        taps[i] = uint(ix + int(left + i)) < uint(push.in_x) ? taps[i] : 0.0;
                    }
                    [[unroll]] for (uint kx = 0; kx < min(KERNEL_X, 16); ++kx) {
                        uint tap = ky * KERNEL_X + kx;
                        float factor = MADE_EARLY != 0 ? f[min(j * AREA + tap, MADE_EARLY * AREA)] : w_f(tap * push.w_pitch + there);
                        [[unroll]] for (uint i = 0; i < 4; ++i) sum[i] += factor * taps[(kx * DILATION_X + i * STRIDE_X) & 15];
                    }
                }
                sum = activated(BETWEEN, sum, push.c, push.d);
                if (ROUNDED != 0) sum = vec4(unpackHalf2x16(packHalf2x16(sum.xy)), unpackHalf2x16(packHalf2x16(sum.zw)));
                partials[item] = sum;
            }
        }
        if (more) {
            [[unroll]] for (uint j = 0; j < MADE_EARLY; ++j) {
                uint channel = min(next + (lane + j * LANES) % CHANNELS, push.k - 1);
                [[unroll]] for (uint i = 0; i < AREA; ++i) f[j * AREA + i] = w_f(i * push.w_pitch + channel);
                if (HAS_SHIFT != 0) shifts[j] = shift_f(channel);
            }
        }
        if (begun) {
            barrier();
            [[unroll]] for (uint t = 0; t < TERMS; ++t) {
                uint channel = t * SHARES + share;
                if (first + channel >= push.k) continue;
                vec4 v = partials[run * CHANNELS + channel];
                [[unroll]] for (uint r = 0; r < SUMS; r += 4) {
                    vec4 u = a_of(read[t * SUMS / 4 + r / 4]);
                    [[unroll]] for (uint j = 0; j < 4; ++j) sums[r + j] += u[j] * v;
                }
            }
        }
        if (!more) break;
        [[unroll]] for (uint t = 0; t < TERMS; ++t) {
            uint at = min(next + t * SHARES + share, push.k - 1) * push.a_pitch;
            [[unroll]] for (uint r = 0; r < SUMS; r += 4) read[t * SUMS / 4 + r / 4] = a_raw(at + min(m + r, push.a_pitch - 4));
        }
    }

    uint ox = first_x + run % RUNS_X * 4;
    uint oy = first_y + run / RUNS_X;
    bool inside = ox < push.out_x && oy < push.out_y;
    uint n = oy * push.out_x + ox;
    if (SHARES == 1) {
        if (!inside) return;
        [[unroll]] for (uint i = 0; i < SUMS; ++i) finish(batch, m + i, n, sums[i]);
        return;
    }
    // The last elements must be multiplied before sums reuse their memory.
    barrier();
    leave_sums(share, place, PLACES, sums);
    if (!inside) return;
    for (uint i = share; i < SUMS; i += SHARES) finish(batch, m + i, n, whole_sum(i, place, PLACES));
}
