#version 450
//! module attention_cooperative
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "tensor.glsl"
#include "run.glsl"

// Scaled dot-product attention as in attention_tiled.comp, in fp16 with 16×16 cooperative matrices.
// A workgroup has PARTS * 16 rows of q, and stages a multiple of 32 keys in shared memory at a
// time, while the next ones are being loaded. Each of its units, a subgroup of 32 if the subgroup
// size allows, is responsible for 16 rows and 32 of the keys. Units with the same rows combine
// their results at the end.
//
// With long heads, the sums exceed the registers of a subgroup. Units then divide the elements of
// values, and each computes all weights of its rows.
//
// The reference of a row's exponentials stays the same unless a score is far above it. In the usual
// case, scores are therefore never needed as rows, which would require shared memory. Sums of
// weights are computed as matrix multiplications by ones, so that they have the same layout as the
// sums of values.

layout(constant_id = 3) const uint MASK = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint HAS_MASK = 0;
layout(constant_id = 6) const uint CAUSAL = 0; // row i attends to keys up to offset + i
layout(constant_id = 7) const uint HIDDEN_ZEROS = 0; // rows with all keys masked are zero, not NaN
// Groups of 16 elements of a head, of q and k and of v: at most 16, and 8 for each of VALUE_PARTS.
// All strides of q, k and v are multiples of eight.
layout(constant_id = 8) const uint SIDES = 4;
layout(constant_id = 9) const uint VALUE_SIDES = 4;
// Groups of 16 rows; units that share the keys of each group, and units that share the elements of
// values: 1, 2 or 4. The workgroup has 32 invocations per unit. Several units for the same rows
// require subgroups of 32.
layout(constant_id = 10) const uint PARTS = 4;
layout(constant_id = 11) const uint KEY_PARTS = 1;
layout(constant_id = 12) const uint VALUE_PARTS = 1;

layout(push_constant) uniform Push {
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
    uint base_z;
} push;

layout(set = 0, binding = 0) readonly buffer q_block { uvec4 octets[]; } q;
layout(set = 0, binding = 1) readonly buffer k_block { uvec4 octets[]; } k;
layout(set = 0, binding = 2) readonly buffer v_block { uvec4 octets[]; } v;
TENSOR_IN(3, mask, MASK)
RUN_OUT(4, y, OUT)

const uint SIDE = 16;
const uint OWN_KEYS = 32;
const uint KEYS = KEY_PARTS * OWN_KEYS;
const uint UNITS = PARTS * KEY_PARTS * VALUE_PARTS;
const uint LANES = UNITS * 32;
const uint ROWS = PARTS * SIDE;
// Units with the same keys.
const uint ABREAST = PARTS * VALUE_PARTS;
const uint OWN_SIDES = VALUE_SIDES / VALUE_PARTS;
const float INFINITY = uintBitsToFloat(0x7f800000);
// Scores are exponents of two.
const float LOG2_E = 1.44269504;
// The maximum score relative to the reference of the row. The weight is then 4096, below the fp16
// maximum of 65504.
const float MAX_EXCESS = 12.0;

// Groups of eight elements of a row. Rows in shared memory have one more, so that eight rows lie in
// different banks.
const uint OCTETS = SIDES * 2;
const uint VALUE_OCTETS = VALUE_SIDES * 2;
const uint PITCH = OCTETS + 1;
const uint VALUE_PITCH = VALUE_OCTETS + 1;
// Groups of keys and values that an invocation loads.
const uint BROUGHT = KEYS * OCTETS / LANES;
const uint VALUES_BROUGHT = KEYS * VALUE_OCTETS / LANES;
const uint MAX_IMPORTED = 16;

// Queries until they are in registers, then keys. Four groups of 16 query rows need more memory
// than the keys of one unit.
shared uvec4 key_tile[(KEYS + PARTS / (4 * KEY_PARTS) * OWN_KEYS) * PITCH];
shared uvec4 value_tile[KEYS * VALUE_PITCH];
// For each unit, successively: its scores, 32 per row; its weights in fp16, followed by the
// references of its rows; its sums.
const uint OWN_PITCH = OWN_KEYS / 4 + 1;
const uint BEHIND = OWN_KEYS / 8;
shared uvec4 own_rows[UNITS * SIDE * OWN_PITCH];
shared float halves_of_rows[UNITS * SIDE * 2];

#define MATRIX(type, use) coopmat<type, gl_ScopeSubgroup, SIDE, SIDE, use>

// Loads an invocation's share of keys or values from `first` on; zeros beyond the last.
#define BRING(source, target, base, stride, first, octets_of_row, count) \
    [[unroll]] for (uint i = 0; i < (count); ++i) { \
        uint at = i * LANES + lane; \
        uint key = (first) + at / (octets_of_row); \
        target[i] = key < keys ? source.octets[((base) + key * (stride)) / 8 + at % (octets_of_row)] : uvec4(0); \
    }

// Stores the loaded keys or values in shared memory.
#define STORE(target, tile, pitch, octets_of_row, count) \
    [[unroll]] for (uint i = 0; i < (count); ++i) { \
        uint at = i * LANES + lane; \
        tile[at / (octets_of_row) * (pitch) + at % (octets_of_row)] = target[i]; \
    }

// Multiplies a unit's rows by its keys.
#define SCORES \
    [[unroll]] for (uint c = 0; c < OWN_KEYS / SIDE; ++c) { \
        found[c] = MATRIX(float, gl_MatrixUseAccumulator)(0.0); \
        [[unroll]] for (uint d = 0; d < SIDES; ++d) { \
            MATRIX(float16_t, gl_MatrixUseB) columns; \
            coopMatLoad(columns, key_tile, (group * OWN_KEYS + c * SIDE) * PITCH + d * 2, PITCH, gl_CooperativeMatrixLayoutColumnMajor); \
            found[c] = coopMatMulAdd(rows[d], columns, found[c]); \
        } \
    }

// Makes writes of a subgroup to shared memory visible to the subgroup.
void exchange() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

vec4 own_score(const uint row, const uint quad) { return uintBitsToFloat(own_rows[row * OWN_PITCH + quad]); }

// The factor that changes the reference of a weight. Zero if no key was visible before.
float changed(const float before, const float after) { return before == -INFINITY ? 0.0 : exp2(before - after); }

void main() {
    uint lane = gl_LocalInvocationID.x;
    // Read only once, since they may be in memory.
    uint keys = push.keys;
    uint offset = push.offset;
    uint row_count = push.rows;
    float scale = push.scale * LOG2_E;
    uint k_stride = push.k_strides[2];
    uint v_stride = push.v_strides[2];
    uint first_row = gl_WorkGroupID.y * ROWS;
    uint batch = WORKGROUP_Z / push.heads;
    uint head = WORKGROUP_Z % push.heads;
    uint key_head = head / push.heads_per_key;
    uint q_base = batch * push.q_strides[0] + head * push.q_strides[1];
    uint k_base = batch * push.k_strides[0] + key_head * push.k_strides[1];
    uint v_base = batch * push.v_strides[0] + key_head * push.v_strides[1];
    uint mask_base = batch * push.mask_strides[0] + head * push.mask_strides[1];
    uint limit = CAUSAL != 0 ? min(keys, offset + first_row + ROWS) : keys;
    MATRIX(float16_t, gl_MatrixUseB) ones = MATRIX(float16_t, gl_MatrixUseB)(1.0);

    // If the workgroup has fewer than UNITS subgroups, each processes several units in turn.
    for (uint turn = 0; turn < UNITS; turn += gl_NumSubgroups) {
        uint unit = turn + gl_SubgroupID;
        bool works = unit < UNITS;
        uint group = unit / ABREAST;
        // The first row of the unit: in the workgroup, among units with the same keys, and in
        // shared memory; its first group of value elements.
        uint own = unit % PARTS * SIDE;
        uint abreast = unit % ABREAST * SIDE;
        uint area = unit * SIDE;
        uint first_side = unit % ABREAST / PARTS * OWN_SIDES;
        // Rows beyond the last repeat the last one, and are not written.
        for (uint at = lane; at < ROWS * OCTETS; at += LANES) {
            uint row = min(first_row + at / OCTETS, row_count - 1);
            key_tile[at / OCTETS * PITCH + at % OCTETS] = q.octets[(q_base + row * push.q_strides[2]) / 8 + at % OCTETS];
        }
        uvec4 next_keys[MAX_IMPORTED];
        uvec4 next_values[MAX_IMPORTED];
        BRING(k, next_keys, k_base, k_stride, 0, OCTETS, BROUGHT)
        BRING(v, next_values, v_base, v_stride, 0, VALUE_OCTETS, VALUES_BROUGHT)
        barrier();
        MATRIX(float16_t, gl_MatrixUseA) rows[16];
        MATRIX(float, gl_MatrixUseAccumulator) sums[8];
        if (works) {
            [[unroll]] for (uint d = 0; d < SIDES; ++d) {
                coopMatLoad(rows[d], key_tile, own * PITCH + d * 2, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint d = 0; d < OWN_SIDES; ++d) sums[d] = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
        }
        // For each row, in all columns: the sum of its weights, and their reference.
        MATRIX(float, gl_MatrixUseAccumulator) totals = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
        MATRIX(float, gl_MatrixUseAccumulator) references = MATRIX(float, gl_MatrixUseAccumulator)(-INFINITY);
        // Whether all rows have a reference.
        bool started = false;
        // The reference again, for each half of a row, in every 32 invocations of a subgroup.
        float reference = -INFINITY;
        uint half_row = gl_SubgroupInvocationID;
        bool looks = works && half_row < 2 * SIDE;
        uint row = half_row / 2;
        uint first_quad = half_row % 2 * (OWN_KEYS / 8);

        for (uint base = 0; base < limit; base += KEYS) {
            barrier();
            STORE(next_keys, key_tile, PITCH, OCTETS, BROUGHT)
            STORE(next_values, value_tile, VALUE_PITCH, VALUE_OCTETS, VALUES_BROUGHT)
            barrier();
            if (base + KEYS < limit) {
                BRING(k, next_keys, k_base, k_stride, base + KEYS, OCTETS, BROUGHT)
                BRING(v, next_values, v_base, v_stride, base + KEYS, VALUE_OCTETS, VALUES_BROUGHT)
            }
            // No row of the unit attends to keys of the tile, or all rows attend to all of them.
            uint first = base + group * OWN_KEYS;
            uint first_own = first_row + own;
            if (!works || first >= limit || CAUSAL != 0 && first > offset + first_own + SIDE - 1) continue;
            bool all_seen = HAS_MASK == 0 && first + OWN_KEYS <= keys && (CAUSAL == 0 || first + OWN_KEYS - 1 <= offset + first_own);
            MATRIX(float, gl_MatrixUseAccumulator) found[OWN_KEYS / SIDE];
            SCORES
            bool stays = all_seen && started;
            if (stays) {
                float above = -INFINITY;
                [[unroll]] for (uint c = 0; c < OWN_KEYS / SIDE; ++c) {
                    [[unroll]] for (uint i = 0; i < found[c].length(); ++i) {
                        found[c][i] = fma(found[c][i], scale, -references[i]);
                        above = max(above, found[c][i]);
                    }
                }
                stays = subgroupAll(above <= MAX_EXCESS);
                // The loop above overwrote the scores.
                if (!stays) SCORES
            }
            if (stays) {
                [[unroll]] for (uint c = 0; c < OWN_KEYS / SIDE; ++c) {
                    [[unroll]] for (uint i = 0; i < found[c].length(); ++i) found[c][i] = exp2(found[c][i]);
                    // Converted as a whole: matrices of other types may distribute elements
                    // differently over invocations.
                    MATRIX(float16_t, gl_MatrixUseAccumulator) weight = MATRIX(float16_t, gl_MatrixUseAccumulator)(found[c]);
                    coopMatStore(weight, own_rows, area * OWN_PITCH + c * 2, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                }
                exchange();
            } else {
                [[unroll]] for (uint c = 0; c < OWN_KEYS / SIDE; ++c) {
                    coopMatStore(found[c], own_rows, area * OWN_PITCH + c * SIDE / 4, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                }
                exchange();
                vec4 four[OWN_KEYS / 8];
                if (looks) {
                    float most = -INFINITY;
                    [[unroll]] for (uint i = 0; i < OWN_KEYS / 8; ++i) four[i] = own_score(area + row, first_quad + i) * scale;
                    if (!all_seen) {
                        uint own_row = first_own + row;
                        [[unroll]] for (uint i = 0; i < OWN_KEYS / 8; ++i) {
                            [[unroll]] for (uint j = 0; j < 4; ++j) {
                                uint key = first + (first_quad + i) * 4 + j;
                                bool seen = key < keys && (CAUSAL == 0 || key <= offset + own_row);
                                if (HAS_MASK != 0 && seen && own_row < row_count) {
                                    uint at = mask_base + own_row * push.mask_strides[2] + key * push.mask_strides[3];
                                    if (MASK == BOOL) seen = mask_i(at) != 0;
                                    else four[i][j] += mask_f(at) * LOG2_E;
                                }
                                if (!seen) four[i][j] = -INFINITY;
                            }
                        }
                    }
                    [[unroll]] for (uint i = 0; i < OWN_KEYS / 8; ++i) {
                        most = max(max(most, max(four[i].x, four[i].y)), max(four[i].z, four[i].w));
                    }
                    halves_of_rows[area * 2 + half_row] = most;
                }
                exchange();
                if (looks) {
                    uint pair = (area + row) * 2;
                    reference = max(reference, max(halves_of_rows[pair], halves_of_rows[pair + 1]));
                    // No key is visible so far: all weights are zero, for any reference.
                    float finite = reference == -INFINITY ? 0.0 : reference;
                    uvec2 words[OWN_KEYS / 8];
                    [[unroll]] for (uint i = 0; i < OWN_KEYS / 8; ++i) {
                        vec4 weight = exp2(four[i] - finite);
                        words[i] = uvec2(packHalf2x16(weight.xy), packHalf2x16(weight.zw));
                    }
                    uint place = (area + row) * OWN_PITCH + half_row % 2 * 2;
                    [[unroll]] for (uint i = 0; i < 2; ++i) {
                        own_rows[place + i] = uvec4(words[i * 2], words[i * 2 + 1]);
                        own_rows[place + BEHIND + i] = uvec4(floatBitsToUint(reference));
                    }
                }
                started = subgroupAll(!looks || reference > -INFINITY);
                exchange();
                MATRIX(float, gl_MatrixUseAccumulator) before = references;
                coopMatLoad(references, own_rows, area * OWN_PITCH + BEHIND, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint i = 0; i < before.length(); ++i) before[i] = changed(before[i], references[i]);
                [[unroll]] for (uint d = 0; d < OWN_SIDES; ++d) sums[d] *= before;
                totals *= before;
            }
            [[unroll]] for (uint c = 0; c < OWN_KEYS / SIDE; ++c) {
                MATRIX(float16_t, gl_MatrixUseA) parts;
                coopMatLoad(parts, own_rows, area * OWN_PITCH + c * 2, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                totals = coopMatMulAdd(parts, ones, totals);
                [[unroll]] for (uint d = 0; d < OWN_SIDES; ++d) {
                    MATRIX(float16_t, gl_MatrixUseB) columns;
                    coopMatLoad(columns, value_tile, (group * OWN_KEYS + c * SIDE) * VALUE_PITCH + (first_side + d) * 2, VALUE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                    sums[d] = coopMatMulAdd(parts, columns, sums[d]);
                }
            }
        }

        MATRIX(float, gl_MatrixUseAccumulator) factors = MATRIX(float, gl_MatrixUseAccumulator)(1.0);
        if (KEY_PARTS > 1) {
            // Converts the results of all units to a common reference, and divides by the total
            // sum.
            barrier();
            coopMatStore(references, own_rows, area * OWN_PITCH, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            barrier();
            MATRIX(float, gl_MatrixUseAccumulator) highest = references;
            MATRIX(float, gl_MatrixUseAccumulator) other;
            [[unroll]] for (uint g = 0; g < KEY_PARTS; ++g) {
                coopMatLoad(other, own_rows, (g * ABREAST * SIDE + abreast) * OWN_PITCH, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint i = 0; i < other.length(); ++i) highest[i] = max(highest[i], other[i]);
            }
            [[unroll]] for (uint i = 0; i < factors.length(); ++i) factors[i] = changed(references[i], highest[i]);
            totals *= factors;
            barrier();
            coopMatStore(totals, own_rows, area * OWN_PITCH, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            barrier();
            totals = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
            [[unroll]] for (uint g = 0; g < KEY_PARTS; ++g) {
                coopMatLoad(other, own_rows, (g * ABREAST * SIDE + abreast) * OWN_PITCH, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                totals += other;
            }
        }
        [[unroll]] for (uint i = 0; i < factors.length(); ++i) {
            factors[i] = HIDDEN_ZEROS != 0 && totals[i] == 0.0 ? 0.0 : factors[i] / totals[i];
        }
        [[unroll]] for (uint d = 0; d < OWN_SIDES; ++d) {
            barrier();
            if (works) {
                sums[d] *= factors;
                coopMatStore(sums[d], own_rows, area * OWN_PITCH, OWN_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            }
            barrier();
            // Writes the rows of this turn's units in groups of four, for each part of the
            // elements.
            uint parts = min(UNITS - turn, gl_NumSubgroups) / KEY_PARTS;
            for (uint at = lane; at < parts * SIDE * SIDE / 4; at += LANES) {
                uint own_row = turn * SIDE + at / (SIDE / 4);
                uint of_row = own_row % ROWS;
                if (first_row + of_row >= row_count) continue;
                vec4 sum = own_score(own_row, at % (SIDE / 4));
                [[unroll]] for (uint g = 1; g < KEY_PARTS; ++g) sum += own_score(g * ABREAST * SIDE + own_row, at % (SIDE / 4));
                uint side = own_row / ROWS * OWN_SIDES + d;
                uint place = batch * push.out_strides[0] + head * push.out_strides[1] + (first_row + of_row) * push.out_strides[2]
                    + side * SIDE + at % (SIDE / 4) * 4;
                y_write_f4(place, sum);
            }
        }
    }
}
