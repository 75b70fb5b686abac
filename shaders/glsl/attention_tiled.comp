#version 450
//! module attention_tiled
//! module attention_tiled_replayed REPLAYED
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"

// Scaled dot product attention, as attention.comp, for many rows of short heads: a workgroup of 128 computes 16 rows of q, and brings keys
// and values to shared memory, 32 at a time. Sums so far are rescaled whenever keys raise a row's maximum.
//
// In turns, invocations are for a key and four rows (scores), for four keys of a row (weights), for four columns of two rows (sums).

layout(constant_id = 3) const uint Q = 0;
layout(constant_id = 4) const uint K = 0;
layout(constant_id = 5) const uint V = 0;
layout(constant_id = 6) const uint MASK = 0;
layout(constant_id = 7) const uint OUT = 0;
layout(constant_id = 8) const uint HAS_MASK = 0;
layout(constant_id = 9) const uint CAUSAL = 0; // row i sees keys up to offset + i
layout(constant_id = 10) const uint HIDDEN_ZEROS = 0; // rows of which every key is hidden are zeros, not NaN
// Groups of four elements of a head: at most 16. All strides are multiples of four.
layout(constant_id = 11) const uint QUADS = 16;
layout(constant_id = 12) const uint VALUE_QUADS = 16;

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

RUN_IN(0, q, Q)
RUN_IN(1, k, K)
RUN_IN(2, v, V)
TENSOR_IN(3, mask, MASK)
RUN_OUT(4, y, OUT)

const uint LANES = 128;
const uint ROWS = 16;
const uint KEYS = 32;
// Rows in shared memory: one group of four more, so that eight of them lie in different banks.
const uint PITCH = 17;
const uint WEIGHTS = KEYS / 4 + 1;
const uint PARTS = LANES / ROWS;
const float INFINITY = uintBitsToFloat(0x7f800000);

shared vec4 queries[ROWS * PITCH];
shared vec4 pairs[KEYS * PITCH];
// Scores, then weights.
shared vec4 weights[ROWS * WEIGHTS];
shared float parts[ROWS * PARTS];
shared float corrections[ROWS];

// A lane's share of keys or values from `first` on; zeros behind the last.
#define BRING(name, target, base, stride, first, quads) \
    [[unroll]] for (uint i = 0; i < 4; ++i) { \
        uint at = i * LANES + lane; \
        uint key = (first) + at / (quads); \
        bool there = at < KEYS * (quads) && key < keys; \
        target[i] = there ? name##_f4((base) + key * (stride) + at % (quads) * 4) : vec4(0); \
    }

// Puts it into shared memory.
#define STORE(target, quads) \
    [[unroll]] for (uint i = 0; i < 4; ++i) { \
        uint at = i * LANES + lane; \
        if (at < KEYS * (quads)) pairs[at / (quads) * PITCH + at % (quads)] = target[i]; \
    }

void main() {
    uint lane = gl_LocalInvocationID.x;
    // Read once, also where they are in memory.
    uint keys = push.keys;
    uint offset = push.offset;
    uint rows = push.rows;
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
    for (uint at = lane; at < ROWS * QUADS; at += LANES) {
        uint row = min(first_row + at / QUADS, rows - 1);
        queries[at / QUADS * PITCH + at % QUADS] = q_f4(q_base + row * push.q_strides[2] + at % QUADS * 4) * push.scale;
    }

    // For scores, for weights, for sums.
    uint key = lane % KEYS;
    uint score_row = lane / KEYS * 4;
    uint weight_row = lane / PARTS;
    uint part = lane % PARTS;
    uint column = lane % 16;
    uint sum_row = lane / 16 * 2;

    uint limit = CAUSAL != 0 ? min(keys, offset + first_row + ROWS) : keys;
    float highest = -INFINITY;
    float total = 0.0;
    vec4 sums[2] = {vec4(0), vec4(0)};
    vec4 next_keys[4];
    vec4 next_values[4];
    BRING(k, next_keys, k_base, k_stride, 0, QUADS)
    for (uint base = 0; base < limit; base += KEYS) {
        STORE(next_keys, QUADS)
        barrier();
        BRING(v, next_values, v_base, v_stride, base, VALUE_QUADS)
        float scores[4] = {0.0, 0.0, 0.0, 0.0};
        [[unroll]] for (uint d = 0; d < QUADS; ++d) {
            vec4 own = pairs[key * PITCH + d];
            [[unroll]] for (uint r = 0; r < 4; ++r) scores[r] += dot(queries[(score_row + r) * PITCH + d], own);
        }
        [[unroll]] for (uint r = 0; r < 4; ++r) {
            uint row = first_row + score_row + r;
            bool seen = base + key < keys && (CAUSAL == 0 || base + key <= offset + row);
            float score = scores[r];
            if (HAS_MASK != 0 && seen && row < rows) {
                uint at = mask_base + row * push.mask_strides[2] + (base + key) * push.mask_strides[3];
                if (MASK == BOOL) seen = mask_i(at) != 0;
                else score += mask_f(at);
            }
            weights[(score_row + r) * WEIGHTS + key / 4][key % 4] = seen ? score : -INFINITY;
        }
        barrier();
        STORE(next_values, VALUE_QUADS)
        vec4 own = weights[weight_row * WEIGHTS + part];
        parts[lane] = max(max(own.x, own.y), max(own.z, own.w));
        barrier();
        if (base + KEYS < limit) BRING(k, next_keys, k_base, k_stride, base + KEYS, QUADS)
        float next = highest;
        [[unroll]] for (uint i = 0; i < PARTS; ++i) next = max(next, parts[weight_row * PARTS + i]);
        // Nothing is visible so far: all weights are zero, whatever they are relative to.
        float reference = next == -INFINITY ? 0.0 : next;
        float correction = highest == -INFINITY ? 0.0 : exp(highest - reference);
        highest = next;
        own = exp(own - reference);
        total = total * correction + own.x + own.y + own.z + own.w;
        weights[weight_row * WEIGHTS + part] = own;
        if (part == 0) corrections[weight_row] = correction;
        barrier();
        if (column < VALUE_QUADS) {
            [[unroll]] for (uint r = 0; r < 2; ++r) sums[r] *= corrections[sum_row + r];
            [[unroll]] for (uint i = 0; i < KEYS / 4; ++i) {
                vec4 a = weights[sum_row * WEIGHTS + i];
                vec4 b = weights[(sum_row + 1) * WEIGHTS + i];
                [[unroll]] for (uint j = 0; j < 4; ++j) {
                    vec4 value = pairs[(i * 4 + j) * PITCH + column];
                    sums[0] += a[j] * value;
                    sums[1] += b[j] * value;
                }
            }
        }
        barrier();
    }
    parts[lane] = total;
    barrier();
    if (column >= VALUE_QUADS) return;
    [[unroll]] for (uint r = 0; r < 2; ++r) {
        uint row = first_row + sum_row + r;
        if (row >= rows) return;
        float all = 0.0;
        [[unroll]] for (uint i = 0; i < PARTS; ++i) all += parts[(sum_row + r) * PARTS + i];
        uint at = batch * push.out_strides[0] + head * push.out_strides[1] + row * push.out_strides[2] + column * 4;
        y_write_f4(at, HIDDEN_ZEROS != 0 && all == 0.0 ? vec4(0) : sums[r] / all);
    }
}
