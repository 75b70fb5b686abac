#version 450
//! module attention_cooperative
//! module attention_cooperative_replayed REPLAYED
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "tensor.glsl"
#include "run.glsl"

// Scaled dot product attention, as attention_tiled.comp, of halves, by matrices of 16 times 16: each part of a workgroup, a subgroup of 32 where
// subgroups have so many, computes 16 rows of q over 32 keys at a time, which the workgroup brings to shared memory; the next ones are on
// their way meanwhile. Scores, weights and sums are a subgroup's own, and pass through shared memory wherever a row is looked at as such.

layout(constant_id = 3) const uint MASK = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint HAS_MASK = 0;
layout(constant_id = 6) const uint CAUSAL = 0; // row i sees keys up to offset + i
layout(constant_id = 7) const uint HIDDEN_ZEROS = 0; // rows of which every key is hidden are zeros, not NaN
// Sixteens of elements of a head, of q and k and of v: at most 8. All strides of q, k and v are multiples of eight.
layout(constant_id = 8) const uint SIDES = 4;
layout(constant_id = 9) const uint VALUE_SIDES = 4;
// 1, 2 or 4; the workgroup has 32 invocations for each.
layout(constant_id = 10) const uint PARTS = 4;

PUSH(5) {
    uint heads;
    uint heads_per_key; // heads of q that share one of k and v
    uint rows;
    uint keys;
    uint offset;
    float scale;
    uint q_strides[3]; // batch, head, row
    uint k_strides[3];
    uint v_strides[3];
    uint mask_strides[4]; // batch, head, row, key
    uint out_strides[3];
} push;

layout(set = 0, binding = 0) readonly buffer q_block { uvec4 octets[]; } q;
layout(set = 0, binding = 1) readonly buffer k_block { uvec4 octets[]; } k;
layout(set = 0, binding = 2) readonly buffer v_block { uvec4 octets[]; } v;
TENSOR_IN(3, mask, MASK)
RUN_OUT(4, y, OUT)

const uint SIDE = 16;
const uint KEYS = 32;
const uint LANES = PARTS * 32;
const uint ROWS = PARTS * SIDE;
const float INFINITY = uintBitsToFloat(0x7f800000);

// Groups of eight elements of a row. Rows in shared memory have one more, so that eight of them lie in different banks.
const uint OCTETS = SIDES * 2;
const uint VALUE_OCTETS = VALUE_SIDES * 2;
const uint PITCH = OCTETS + 1;
const uint VALUE_PITCH = VALUE_OCTETS + 1;
// What an invocation brings of keys and values.
const uint BROUGHT = KEYS * OCTETS / LANES;
const uint VALUES_BROUGHT = KEYS * VALUE_OCTETS / LANES;
const uint MOST_BROUGHT = 16;

shared uvec4 queries[ROWS * PITCH];
shared uvec4 key_tile[KEYS * PITCH];
shared uvec4 value_tile[KEYS * VALUE_PITCH];
// Of each part: scores, later sums; weights; what rows of sums are multiplied with.
const uint SCORE_PITCH = KEYS / 4 + 1;
const uint WEIGHT_PITCH = KEYS / 8 + 1;
shared vec4 scores[ROWS * SCORE_PITCH];
shared uvec4 weights[ROWS * WEIGHT_PITCH];
shared vec4 corrections[ROWS * SIDE / 4];
shared float halves_of_rows[ROWS * 2];

#define MATRIX(type, use) coopmat<type, gl_ScopeSubgroup, SIDE, SIDE, use>

// A lane's share of keys or values from `first` on; zeros behind the last.
#define BRING(source, target, base, stride, first, octets_of_row, count) \
    [[unroll]] for (uint i = 0; i < (count); ++i) { \
        uint at = i * LANES + lane; \
        uint key = (first) + at / (octets_of_row); \
        target[i] = key < keys ? source.octets[((base) + key * (stride)) / 8 + at % (octets_of_row)] : uvec4(0); \
    }

// Puts it into shared memory.
#define STORE(target, tile, pitch, octets_of_row, count) \
    [[unroll]] for (uint i = 0; i < (count); ++i) { \
        uint at = i * LANES + lane; \
        tile[at / (octets_of_row) * (pitch) + at % (octets_of_row)] = target[i]; \
    }

// What a subgroup wrote to shared memory is there for all of it.
void exchange() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    // Read once, also where they are in memory.
    uint keys = push.keys;
    uint offset = push.offset;
    uint row_count = push.rows;
    float scale = push.scale;
    uint k_stride = push.k_strides[2];
    uint v_stride = push.v_strides[2];
    uint first_row = gl_WorkGroupID.y * ROWS;
    uint batch = gl_WorkGroupID.z / push.heads;
    uint head = gl_WorkGroupID.z % push.heads;
    uint key_head = head / push.heads_per_key;
    uint q_base = batch * push.q_strides[0] + head * push.q_strides[1];
    uint k_base = batch * push.k_strides[0] + key_head * push.k_strides[1];
    uint v_base = batch * push.v_strides[0] + key_head * push.v_strides[1];
    uint mask_base = batch * push.mask_strides[0] + head * push.mask_strides[1];
    // Rows behind the last are others, and not written.
    for (uint at = lane; at < ROWS * OCTETS; at += LANES) {
        uint row = min(first_row + at / OCTETS, row_count - 1);
        queries[at / OCTETS * PITCH + at % OCTETS] = q.octets[(q_base + row * push.q_strides[2]) / 8 + at % OCTETS];
    }
    uint limit = CAUSAL != 0 ? min(keys, offset + first_row + ROWS) : keys;

    // Where subgroups are so large that there are fewer than PARTS, they do the parts in turns.
    for (uint turn = 0; turn < PARTS; turn += gl_NumSubgroups) {
        uint part = turn + gl_SubgroupID;
        bool works = part < PARTS;
        uint own = part * SIDE;
        uvec4 next_keys[MOST_BROUGHT];
        uvec4 next_values[MOST_BROUGHT];
        BRING(k, next_keys, k_base, k_stride, 0, OCTETS, BROUGHT)
        BRING(v, next_values, v_base, v_stride, 0, VALUE_OCTETS, VALUES_BROUGHT)
        barrier();
        MATRIX(float16_t, gl_MatrixUseA) rows[8];
        MATRIX(float, gl_MatrixUseAccumulator) sums[8];
        if (works) {
            [[unroll]] for (uint d = 0; d < SIDES; ++d) {
                coopMatLoad(rows[d], queries, own * PITCH + d * 2, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint d = 0; d < VALUE_SIDES; ++d) sums[d] = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
        }
        // For each half of a row, of every 32 of a subgroup's invocations: its maximum so far, that of the row, and its sum of weights.
        float highest = -INFINITY;
        float total = 0.0;
        uint half_row = gl_SubgroupInvocationID;
        bool looks = works && half_row < 2 * SIDE;
        uint row = own + half_row / 2;
        uint first_key = half_row % 2 * (KEYS / 2);

        for (uint base = 0; base < limit; base += KEYS) {
            barrier();
            STORE(next_keys, key_tile, PITCH, OCTETS, BROUGHT)
            STORE(next_values, value_tile, VALUE_PITCH, VALUE_OCTETS, VALUES_BROUGHT)
            barrier();
            if (base + KEYS < limit) {
                BRING(k, next_keys, k_base, k_stride, base + KEYS, OCTETS, BROUGHT)
                BRING(v, next_values, v_base, v_stride, base + KEYS, VALUE_OCTETS, VALUES_BROUGHT)
            }
            // Nothing of the tile is seen by the part's rows, or by all of them.
            uint first_own = first_row + own;
            if (!works || CAUSAL != 0 && base > offset + first_own + SIDE - 1) continue;
            bool all_seen = HAS_MASK == 0 && base + KEYS <= keys && (CAUSAL == 0 || base + KEYS - 1 <= offset + first_own);
            [[unroll]] for (uint c = 0; c < KEYS / SIDE; ++c) {
                MATRIX(float, gl_MatrixUseAccumulator) score = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
                [[unroll]] for (uint d = 0; d < SIDES; ++d) {
                    MATRIX(float16_t, gl_MatrixUseB) columns;
                    coopMatLoad(columns, key_tile, c * SIDE * PITCH + d * 2, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
                    score = coopMatMulAdd(rows[d], columns, score);
                }
                coopMatStore(score, scores, own * SCORE_PITCH + c * SIDE / 4, SCORE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            }
            exchange();
            vec4 four[KEYS / 8];
            if (looks) {
                float most = -INFINITY;
                [[unroll]] for (uint i = 0; i < KEYS / 8; ++i) four[i] = scores[row * SCORE_PITCH + first_key / 4 + i] * scale;
                if (!all_seen) {
                    [[unroll]] for (uint i = 0; i < KEYS / 8; ++i) {
                        [[unroll]] for (uint j = 0; j < 4; ++j) {
                            uint key = base + first_key + i * 4 + j;
                            bool seen = key < keys && (CAUSAL == 0 || key <= offset + first_row + row);
                            if (HAS_MASK != 0 && seen && first_row + row < row_count) {
                                uint at = mask_base + (first_row + row) * push.mask_strides[2] + key * push.mask_strides[3];
                                if (MASK == BOOL) seen = mask_i(at) != 0;
                                else four[i][j] += mask_f(at);
                            }
                            if (!seen) four[i][j] = -INFINITY;
                        }
                    }
                }
                [[unroll]] for (uint i = 0; i < KEYS / 8; ++i) {
                    vec4 score = four[i];
                    most = max(max(most, max(score.x, score.y)), max(score.z, score.w));
                }
                halves_of_rows[own * 2 + half_row] = most;
            }
            exchange();
            if (looks) {
                float next = max(highest, max(halves_of_rows[row * 2], halves_of_rows[row * 2 + 1]));
                // Nothing is visible so far: all weights are zero, whatever they are relative to.
                float reference = next == -INFINITY ? 0.0 : next;
                float correction = highest == -INFINITY ? 0.0 : exp(highest - reference);
                highest = next;
                total *= correction;
                uint words[KEYS / 4];
                [[unroll]] for (uint i = 0; i < KEYS / 8; ++i) {
                    vec4 weight = exp(four[i] - reference);
                    total += weight.x + weight.y + weight.z + weight.w;
                    words[i * 2] = packHalf2x16(weight.xy);
                    words[i * 2 + 1] = packHalf2x16(weight.zw);
                }
                [[unroll]] for (uint i = 0; i < KEYS / 16; ++i) {
                    weights[row * WEIGHT_PITCH + first_key / 8 + i] = uvec4(words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]);
                }
                [[unroll]] for (uint i = 0; i < SIDE / 8; ++i) corrections[row * SIDE / 4 + half_row % 2 * (SIDE / 8) + i] = vec4(correction);
            }
            exchange();
            MATRIX(float, gl_MatrixUseAccumulator) factors;
            coopMatLoad(factors, corrections, own * SIDE / 4, SIDE / 4, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint d = 0; d < VALUE_SIDES; ++d) sums[d] *= factors;
            [[unroll]] for (uint c = 0; c < KEYS / SIDE; ++c) {
                MATRIX(float16_t, gl_MatrixUseA) parts;
                coopMatLoad(parts, weights, own * WEIGHT_PITCH + c * 2, WEIGHT_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint d = 0; d < VALUE_SIDES; ++d) {
                    MATRIX(float16_t, gl_MatrixUseB) columns;
                    coopMatLoad(columns, value_tile, c * SIDE * VALUE_PITCH + d * 2, VALUE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                    sums[d] = coopMatMulAdd(parts, columns, sums[d]);
                }
            }
        }

        if (works) {
            exchange();
            if (looks) halves_of_rows[own * 2 + half_row] = total;
            [[unroll]] for (uint d = 0; d < VALUE_SIDES; ++d) {
                coopMatStore(sums[d], scores, own * SCORE_PITCH, SCORE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                exchange();
                for (uint at = gl_SubgroupInvocationID; at < SIDE * SIDE / 4; at += gl_SubgroupSize) {
                    uint of_row = own + at / (SIDE / 4);
                    if (first_row + of_row >= row_count) continue;
                    float all = halves_of_rows[of_row * 2] + halves_of_rows[of_row * 2 + 1];
                    vec4 sum = scores[of_row * SCORE_PITCH + at % (SIDE / 4)];
                    uint place = batch * push.out_strides[0] + head * push.out_strides[1] + (first_row + of_row) * push.out_strides[2]
                        + d * SIDE + at % (SIDE / 4) * 4;
                    y_write_f4(place, HIDDEN_ZEROS != 0 && all == 0.0 ? vec4(0) : sum / all);
                }
                exchange();
            }
        }
    }
}
