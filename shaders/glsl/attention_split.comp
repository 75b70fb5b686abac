#version 450
//! module attention_split
//! module attention_split_replayed REPLAYED
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"

// Scaled dot product attention for few rows and many keys: each workgroup has a share of the keys, and all heads of queries that have these
// keys in common. attention_join.comp adds the shares up.
//
// Keys come to shared memory in tiles; sums so far are rescaled whenever a tile raises the maximum. A share is VALUE_QUADS groups of four sums,
// and one with the maximum and the sum of the weights.

layout(constant_id = 3) const uint Q = 0;
layout(constant_id = 4) const uint K = 0;
layout(constant_id = 5) const uint V = 0;
layout(constant_id = 6) const uint MASK = 0;
layout(constant_id = 7) const uint HAS_MASK = 0;
layout(constant_id = 8) const uint CAUSAL = 0; // row i sees keys up to offset + i
layout(constant_id = 9) const uint QUADS = 1; // of q and k
layout(constant_id = 10) const uint VALUE_QUADS = 1;
layout(constant_id = 11) const uint GROUP = 1; // heads of q that share one of k and v
layout(constant_id = 12) const uint TILE = 16; // keys

PUSH(5) {
    uint key_heads;
    uint keys;
    uint offset;
    float scale;
    uint q_strides[3]; // batch, head, row: multiples of four, as all but those of the mask
    uint k_strides[3];
    uint v_strides[3];
    uint mask_strides[4]; // batch, head, row, key
} push;

RUN_IN(0, q, Q)
RUN_IN(1, k, K)
RUN_IN(2, v, V)
TENSOR_IN(3, mask, MASK)
layout(set = 0, binding = 4) writeonly buffer shares_block { vec4 quads[]; } shares;

const uint LANES = 128;
const uint MAX_QUADS = QUADS > VALUE_QUADS ? QUADS : VALUE_QUADS;
// One more, so that neighbours lie in different banks.
const uint PITCH = MAX_QUADS + 1;

shared vec4 tile[TILE * PITCH];
shared vec4 queries[GROUP * QUADS];
shared float weights[GROUP * TILE];
shared float highest[GROUP];
shared float corrections[GROUP];
shared float totals[GROUP];

// The sums of four elements that an invocation has.
const uint OUTPUTS = GROUP * VALUE_QUADS;
const uint SUMS = (OUTPUTS + LANES - 1) / LANES;

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint share = gl_WorkGroupID.x;
    uint row = gl_WorkGroupID.y;
    uint batch = gl_WorkGroupID.z / push.key_heads;
    uint key_head = gl_WorkGroupID.z % push.key_heads;
    float infinity = uintBitsToFloat(0x7f800000);
    uint limit = CAUSAL != 0 ? min(push.keys, push.offset + row + 1) : push.keys;
    uint tiles = (limit + TILE - 1) / TILE;
    uint each = (tiles + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x * TILE;
    uint first = min(share * each, limit);
    uint last = min(first + each, limit);

    uint q_base = batch * push.q_strides[0] + key_head * GROUP * push.q_strides[1] + row * push.q_strides[2];
    uint k_base = batch * push.k_strides[0] + key_head * push.k_strides[1];
    uint v_base = batch * push.v_strides[0] + key_head * push.v_strides[1];
    uint mask_base = batch * push.mask_strides[0] + key_head * GROUP * push.mask_strides[1] + row * push.mask_strides[2];
    for (uint i = lane; i < GROUP * QUADS; i += LANES) {
        queries[i] = q_f4(q_base + i / QUADS * push.q_strides[1] + i % QUADS * 4) * push.scale;
    }
    if (lane < GROUP) {
        highest[lane] = -infinity;
        totals[lane] = 0.0;
    }
    vec4 sums[SUMS];
    [[unroll]] for (uint s = 0; s < SUMS; ++s) sums[s] = vec4(0);
    for (uint base = first; base < last; base += TILE) {
        uint count = min(TILE, last - base);
        barrier();
        for (uint i = lane; i < count * QUADS; i += LANES) {
            tile[i / QUADS * PITCH + i % QUADS] = k_f4(k_base + (base + i / QUADS) * push.k_strides[2] + i % QUADS * 4);
        }
        barrier();
        for (uint i = lane; i < GROUP * TILE; i += LANES) {
            uint head = i / TILE;
            uint key = i % TILE;
            float score = -infinity;
            if (key < count) {
                vec4 products = vec4(0);
                for (uint d = 0; d < QUADS; ++d) products += queries[head * QUADS + d] * tile[key * PITCH + d];
                score = products.x + products.y + products.z + products.w;
                if (HAS_MASK != 0) {
                    uint m = mask_base + head * push.mask_strides[1] + (base + key) * push.mask_strides[3];
                    if (MASK == BOOL) score = mask_i(m) != 0 ? score : -infinity;
                    else score += mask_f(m);
                }
            }
            weights[i] = score;
        }
        barrier();
        // Values come while the weights are made.
        for (uint i = lane; i < count * VALUE_QUADS; i += LANES) {
            tile[i / VALUE_QUADS * PITCH + i % VALUE_QUADS] =
                v_f4(v_base + (base + i / VALUE_QUADS) * push.v_strides[2] + i % VALUE_QUADS * 4);
        }
        if (lane < GROUP) {
            float next = highest[lane];
            for (uint key = 0; key < count; ++key) next = max(next, weights[lane * TILE + key]);
            // Nothing is visible so far: all weights are zero, whatever they are relative to.
            float reference = next == -infinity ? 0.0 : next;
            float correction = highest[lane] == -infinity ? 0.0 : exp(highest[lane] - reference);
            float total = totals[lane] * correction;
            for (uint key = 0; key < count; ++key) {
                float weight = exp(weights[lane * TILE + key] - reference);
                weights[lane * TILE + key] = weight;
                total += weight;
            }
            totals[lane] = total;
            corrections[lane] = correction;
            highest[lane] = next;
        }
        barrier();
        [[unroll]] for (uint s = 0; s < SUMS; ++s) {
            uint i = lane + s * LANES;
            if (i < OUTPUTS) {
                uint head = i / VALUE_QUADS;
                vec4 sum = sums[s] * corrections[head];
                for (uint key = 0; key < count; ++key) sum += weights[head * TILE + key] * tile[key * PITCH + i % VALUE_QUADS];
                sums[s] = sum;
            }
        }
    }
    barrier();
    // [batch, head, row, share], heads of all keys side by side.
    uint heads = push.key_heads * GROUP;
    [[unroll]] for (uint s = 0; s < SUMS; ++s) {
        uint i = lane + s * LANES;
        if (i < OUTPUTS) {
            uint head = batch * heads + key_head * GROUP + i / VALUE_QUADS;
            uint at = ((head * gl_NumWorkGroups.y + row) * gl_NumWorkGroups.x + share) * (VALUE_QUADS + 1);
            shares.quads[at + i % VALUE_QUADS] = sums[s];
            if (i % VALUE_QUADS == 0) shares.quads[at + VALUE_QUADS] = vec4(highest[i / VALUE_QUADS], totals[i / VALUE_QUADS], 0.0, 0.0);
        }
    }
}
