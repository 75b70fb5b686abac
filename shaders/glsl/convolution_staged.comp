#version 450
//! module convolution_staged COOPERATIVE STORAGE16
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// fp16 convolutions with overlapping windows. A workgroup stages a part of the image in shared
// memory once for all taps, CHANNELS channels at a time, channels last. Each tap is then a GEMM of
// TILE_M output channels times CHANNELS channels of TILE_N pixels, which are contiguous there and
// shifted for each tap.
//
// For that, pixels are numbered over the rows of a strip of the plane, including a margin for the
// windows. Rows have `pitch` pixels, of which the first `strip` produce outputs. The same tap of
// all pixels is therefore a constant distance away; the results for the margin are not written.
//
// Subgroups keep parts of the tile as in matmul_tiled.comp. Workgroups that differ in z share the
// sums over channels.
//
// In 3D convolutions, each output plane is computed like an image. Its channels are the input
// planes that its windows reach, of all input channels.

uint run_left;
#define RUN_LEFT(n) run_left
#define FIELDS \
    uint k; \
    uint a_pitch; \
    uint a_batch; \
    uint b_batch; \
    uint splits; \
    /* Input channels per split: a multiple of CHANNELS. */ \
    uint channels; \
    int in_y; \
    int in_x; \
    uint out_y; \
    uint out_x; \
    int padding_y; \
    int padding_x; \
    uint pitch; \
    uint strip; \
    /* Tiles per strip. */ \
    uint tiles; \
    /* 3D: planes per channel. */ \
    int in_z; \
    uint out_z; \
    int padding_z; \
    uint base_z;
#include "product.glsl"

// Multiples of 32 and of 16 * PARTS_ACROSS.
layout(constant_id = 10) const uint TILE_M = 64;
layout(constant_id = 11) const uint TILE_N = 128;
// 2: the sums of each split are written separately as tiles, and added up by this shader.
layout(constant_id = 12) const uint PARTIAL = 0;
layout(constant_id = 13) const uint LANES = 128;
layout(constant_id = 14) const uint KERNEL_Y = 1;
layout(constant_id = 15) const uint KERNEL_X = 1;
layout(constant_id = 16) const uint DILATION_Y = 1;
layout(constant_id = 17) const uint DILATION_X = 1;
// Pixels that an invocation stages.
layout(constant_id = 18) const uint PLACES = 2;
// 0: 2D. Otherwise, this many planes of each channel count as separate channels.
layout(constant_id = 19) const uint KERNEL_Z = 0;
layout(constant_id = 20) const uint STRIDE_Z = 1;
layout(constant_id = 21) const uint DILATION_Z = 1;

const uint A = F16;
RUN_IN(3, a, A)
layout(set = 0, binding = 4) readonly buffer b_block { uint16_t elements[]; } b;
#define PARTS_SLOT 5
#define SUM vec4
#define FINISH place
void place(const uint batch, const uint m, const uint p, const vec4 sum);
#include "splits.glsl"

const uint CHANNELS = 16;
const uint TAPS = KERNEL_Y * KERNEL_X;
const bool DEEP = KERNEL_Z != 0;
const uint DEPTH = DEEP ? KERNEL_Z : 1;

// Groups of eight fp16 values. Rows of both operands are padded so that eight rows lie in different
// banks.
const uint A_ROW = (TILE_M + 8) / 8;
const uint A_UNITS = CHANNELS * TAPS * (TILE_M / 8);
const uint A_TIMES = (A_UNITS + LANES - 1) / LANES;
const uint B_ROW = 3;
// The maximum loads per invocation.
const uint MAX_WEIGHTS = 12;
const uint MAX_PLACES = 4;

shared uvec4 a_tile[CHANNELS * TAPS * A_ROW];
shared uvec4 b_tile[PLACES * LANES * B_ROW];

const uint SIDE = 16;
const uint PARTS = LANES / 32;
const uint PARTS_ACROSS = PARTS / 2;
const uint DOWN = TILE_M / 2 / SIDE;
const uint ACROSS = TILE_N / PARTS_ACROSS / SIDE;
#define MATRIX(type, use) coopmat<type, gl_ScopeSubgroup, SIDE, SIDE, use>

// Subgroups store a matrix here to read its rows.
shared vec4 results[PARTS * SIDE * SIDE / 4];

// The first column of the strip.
uint strip_x;

// Writes the sums of four pixels of a strip, of which the first is a multiple of four.
void place(const uint batch, const uint m, const uint p, const vec4 sum) {
    uint y = p / push.pitch;
    uint x = p - y * push.pitch;
    if (x >= push.strip || y >= push.out_y || strip_x + x >= push.out_x) return;
    run_left = min(push.strip - x, push.out_x - strip_x - x);
    if (DEEP) finish(batch / push.out_z, m, (batch % push.out_z * push.out_y + y) * push.out_x + strip_x + x, sum);
    else finish(batch, m, y * push.out_x + strip_x + x, sum);
}

void write(const uint batch, const uint split, const uint m, const uint p, const vec4 sum) {
    if (PARTIAL == 0) place(batch, m, p, sum);
    else leave(batch, split, m, p, sum);
}

// Returns unit `i` of the weights of the channels from `channel` on: eight neighbours in the row of
// a channel's tap. Channels from `end` on are clamped.
uvec4 a_unit(const uint base, const uint channel, const uint end, const uint i) {
    uint row = min(channel * TAPS + i / (TILE_M / 8), end * TAPS - 1);
    uint column = min(gl_WorkGroupID.y * TILE_M + i % (TILE_M / 8) * 8, push.a_pitch - 8);
    return a_by_4.words[(base + row * push.a_pitch + column) >> 3];
}

// Returns the plane of a channel, or of a plane that counts as one; clamped if it does not exist.
uint plane_of(const uint channel, const int first_z) {
    if (!DEEP) return channel;
    int z = clamp(first_z + int(channel % DEPTH * DILATION_Z), 0, push.in_z - 1);
    return channel / DEPTH * uint(push.in_z) + uint(z);
}

bool is_there(const uint channel, const uint end, const int first_z) {
    return channel < end && (!DEEP || uint(first_z + int(channel % DEPTH * DILATION_Z)) < uint(push.in_z));
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint batch = WORKGROUP_Z / push.splits;
    uint split = WORKGROUP_Z % push.splits;
    uint tile_m = gl_WorkGroupID.y * TILE_M;
    strip_x = gl_WorkGroupID.x / push.tiles * push.strip;
    uint tile_p = gl_WorkGroupID.x % push.tiles * TILE_N;
    uint picture = DEEP ? batch / push.out_z : batch;
    uint a_base = picture % push.period * push.a_batch;
    uint b_base = picture * push.b_batch;
    // The first plane of a window.
    int first_z = DEEP ? int(batch % push.out_z * STRIDE_Z) - push.padding_z : 0;
    uint start = split * push.channels;
    uint end = min(start + push.channels, push.k);

    // The positions in a plane of the pixels that this invocation stages; pixels outside are zero.
    // All are read, because conditional loads would wait for each other.
    uint plane = uint(push.in_y * push.in_x);
    uint own[MAX_PLACES];
    bool within[MAX_PLACES];
    [[unroll]] for (uint j = 0; j < PLACES; ++j) {
        uint p = tile_p + j * LANES + lane;
        uint row = p / push.pitch;
        int y = int(row) - push.padding_y;
        int x = int(strip_x + p - row * push.pitch) - push.padding_x;
        bool inside = uint(y) < uint(push.in_y) && uint(x) < uint(push.in_x);
        own[j] = b_base + (inside ? uint(y * push.in_x + x) : 0);
        within[j] = inside;
    }

    // Kept as loaded: any conversion here would wait for the loads before the current tile is
    // multiplied.
    uvec4 a_next[MAX_WEIGHTS];
    uint b_next[MAX_PLACES * CHANNELS];
#define BRING(channel) { \
        [[unroll]] for (uint i = 0; i < A_TIMES; ++i) a_next[i] = a_unit(a_base, channel, end, i * LANES + lane); \
        [[unroll]] for (uint c = 0; c < CHANNELS; ++c) { \
            uint first = plane_of(min(channel + c, end - 1), first_z) * plane; \
            [[unroll]] for (uint j = 0; j < PLACES; ++j) b_next[j * CHANNELS + c] = uint(b.elements[own[j] + first]); \
        } \
    }

    MATRIX(float, gl_MatrixUseAccumulator) sums[16];
    // If the workgroup has fewer than PARTS subgroups, each processes several parts in turn.
    for (uint turn = 0; turn < PARTS; turn += gl_NumSubgroups) {
    uint part = turn + gl_SubgroupID;
    uint part_m = part / PARTS_ACROSS * (TILE_M / 2);
    uint part_n = part % PARTS_ACROSS * (TILE_N / PARTS_ACROSS);
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) sums[i] = MATRIX(float, gl_MatrixUseAccumulator)(0.0);

    BRING(start)
    for (uint channel = start; channel < end; channel += CHANNELS) {
        barrier();
        [[unroll]] for (uint i = 0; i < A_TIMES; ++i) {
            uint unit = i * LANES + lane;
            uint row = unit / (TILE_M / 8);
            uvec4 v = channel * TAPS + row < end * TAPS ? a_next[i] : uvec4(0);
            if ((i + 1) * LANES <= A_UNITS || unit < A_UNITS) a_tile[row * A_ROW + unit % (TILE_M / 8)] = v;
        }
        [[unroll]] for (uint i = 0; i < PLACES * CHANNELS / 8; ++i) {
            uvec4 v;
            [[unroll]] for (uint c = 0; c < 4; ++c) {
                uint of = channel + i % (CHANNELS / 8) * 8 + c * 2;
                uint there = (is_there(of, end, first_z) ? 0xffffu : 0) | (is_there(of + 1, end, first_z) ? 0xffff0000u : 0);
                v[c] = (b_next[i * 8 + c * 2] | b_next[i * 8 + c * 2 + 1] << 16) & there;
            }
            uint j = i / (CHANNELS / 8);
            b_tile[(j * LANES + lane) * B_ROW + i % (CHANNELS / 8)] = within[j] ? v : uvec4(0);
        }
        barrier();
        if (channel + CHANNELS < end) BRING(channel + CHANNELS)
        if (part < PARTS) {
            for (uint tap = 0; tap < TAPS; ++tap) {
                uint further = tap / KERNEL_X * DILATION_Y * push.pitch + tap % KERNEL_X * DILATION_X;
                MATRIX(float16_t, gl_MatrixUseA) rows[4];
                [[unroll]] for (uint i = 0; i < DOWN; ++i) {
                    coopMatLoad(rows[i], a_tile, tap * A_ROW + (part_m + i * SIDE) / 8, TAPS * A_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                }
                [[unroll]] for (uint c = 0; c < ACROSS; ++c) {
                    MATRIX(float16_t, gl_MatrixUseB) columns;
                    coopMatLoad(columns, b_tile, (further + part_n + c * SIDE) * B_ROW, B_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint i = 0; i < DOWN; ++i) {
                        sums[i * ACROSS + c] = coopMatMulAdd(rows[i], columns, sums[i * ACROSS + c]);
                    }
                }
            }
        }
    }

    if (part < PARTS) {
        uint at_results = part * (SIDE * SIDE / 4);
        [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) {
            coopMatStore(sums[i], results, at_results, SIDE / 4, gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            uint m = tile_m + part_m + i / ACROSS * SIDE;
            uint p = tile_p + part_n + i % ACROSS * SIDE;
            for (uint at = gl_SubgroupInvocationID; at < SIDE * SIDE / 4; at += gl_SubgroupSize) {
                write(batch, split, m + at / (SIDE / 4), p + at % (SIDE / 4) * 4, results[at_results + at]);
            }
            subgroupBarrier();
        }
    }
    }

    if (PARTIAL == 2 && all_are_left(batch)) add_up(batch, tile_m, tile_p);
}
