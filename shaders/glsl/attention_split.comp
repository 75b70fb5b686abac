#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"

// Scaled dot-product attention for few rows and many keys: each workgroup processes a share of the
// keys, for GROUP query heads that have these keys in common. The last workgroup of a row to finish
// combines the partial results.
//
// Tiles of keys, then of values, are staged in shared memory, with all loads of a tile in flight
// together. Partial sums are rescaled whenever a tile raises the maximum. Invocations alternate
// between one key of a head (scores, weights) and four columns of a head (sums). A partial result
// consists of VALUE_QUADS groups of four sums, and one group with the maximum and the sum of the
// weights.

layout(constant_id = 3) const uint Q = 0;
layout(constant_id = 4) const uint K = 0;
layout(constant_id = 5) const uint V = 0;
layout(constant_id = 6) const uint MASK = 0;
layout(constant_id = 7) const uint HAS_MASK = 0;
layout(constant_id = 8) const uint CAUSAL = 0; // row i attends to keys up to offset + i
layout(constant_id = 9) const uint QUADS = 1; // of q and k
layout(constant_id = 10) const uint VALUE_QUADS = 1;
layout(constant_id = 11) const uint GROUP = 1; // heads of q
layout(constant_id = 12) const uint TILE = 16; // keys
layout(constant_id = 13) const uint OUT = 0;
layout(constant_id = 14) const uint HIDDEN_ZEROS = 0; // rows with all keys masked are zero, not NaN
layout(constant_id = 15) const uint GROUPS = 1; // of heads that share one of k and v

layout(push_constant) uniform Push {
    uint groups; // of all heads
    uint keys;
    uint offset;
    float scale;
    uint q_strides[3]; // batch, head, row: multiples of four, as all but those of the mask
    uint k_strides[3];
    uint v_strides[3];
    uint mask_strides[4]; // batch, head, row, key
    uint out_strides[3];
    uint first_share; // in groups of four: after the counters
    uint base_z;
} push;

RUN_IN(0, q, Q)
RUN_IN(1, k, K)
RUN_IN(2, v, V)
TENSOR_IN(3, mask, MASK)
// Coherent, since other workgroups of the dispatch read it. First a counter of finished workgroups
// for each row, which is zero before and after the dispatch; then [batch, head, row, share], with
// the heads of all keys side by side.
layout(set = 0, binding = 5) coherent buffer counts_block { uint done[]; } counts;
layout(set = 0, binding = 5) coherent buffer shares_block { vec4 quads[]; } shares;
RUN_OUT(4, y, OUT)

const uint LANES = 128;
const uint MAX_QUADS = QUADS > VALUE_QUADS ? QUADS : VALUE_QUADS;
// One group of padding, so that neighbours lie in different banks.
const uint PITCH = MAX_QUADS + 1;

shared vec4 tile[TILE * PITCH];
shared vec4 queries[GROUP * QUADS];
shared float weights[GROUP * TILE];
shared float highest[GROUP];
shared float corrections[GROUP];
shared bool is_last;

// Groups of four sums per invocation.
const uint OUTPUTS = GROUP * VALUE_QUADS;
const uint SUMS = (OUTPUTS + LANES - 1) / LANES;
// Scores, and groups of four elements of keys and values, per invocation and tile.
const uint SCORES = (GROUP * TILE + LANES - 1) / LANES;
const uint BROUGHT = (TILE * QUADS + LANES - 1) / LANES;
const uint VALUES_BROUGHT = (TILE * VALUE_QUADS + LANES - 1) / LANES;
const uint STEP = VALUE_QUADS + 1;
// Partial results loaded together when they are combined.
const uint AT_ONCE = 8;

// The position of the partial results of a head's row.
uint shares_of(const uint head, const uint row) {
    return push.first_share + (head * gl_NumWorkGroups.y + row) * gl_NumWorkGroups.x * STEP;
}

// Loads an invocation's share of the keys or values of a tile. Beyond the end, the last one is
// repeated, with a weight of zero.
#define BRING(name, target, base, stride, quads, count) \
    [[unroll]] for (uint i = 0; i < (count); ++i) { \
        uint at = min(i * LANES + lane, TILE * (quads) - 1); \
        target[i] = name##_f4((base) + min(first_key + at / (quads), last - 1) * (stride) + at % (quads) * 4); \
    }

// Stores it in shared memory.
#define STORE(target, quads, count) \
    [[unroll]] for (uint i = 0; i < (count); ++i) { \
        uint at = i * LANES + lane; \
        if (at < TILE * (quads)) tile[at / (quads) * PITCH + at % (quads)] = target[i]; \
    }

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint share = gl_WorkGroupID.x;
    uint row = gl_WorkGroupID.y;
    uint batch = WORKGROUP_Z / push.groups;
    uint group = WORKGROUP_Z % push.groups;
    uint key_head = group / GROUPS;
    float infinity = uintBitsToFloat(0x7f800000);
    uint limit = CAUSAL != 0 ? min(push.keys, push.offset + row + 1) : push.keys;
    uint tiles = (limit + TILE - 1) / TILE;
    uint each = (tiles + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x * TILE;
    uint first = min(share * each, limit);
    uint last = min(first + each, limit);

    uint q_base = batch * push.q_strides[0] + group * GROUP * push.q_strides[1] + row * push.q_strides[2];
    uint k_base = batch * push.k_strides[0] + key_head * push.k_strides[1];
    uint v_base = batch * push.v_strides[0] + key_head * push.v_strides[1];
    uint mask_base = batch * push.mask_strides[0] + group * GROUP * push.mask_strides[1] + row * push.mask_strides[2];
    for (uint i = lane; i < GROUP * QUADS; i += LANES) {
        queries[i] = q_f4(q_base + i / QUADS * push.q_strides[1] + i % QUADS * 4) * push.scale;
    }
    if (lane < GROUP) highest[lane] = -infinity;
    vec4 sums[SUMS];
    float totals[SUMS];
    [[unroll]] for (uint s = 0; s < SUMS; ++s) {
        sums[s] = vec4(0);
        totals[s] = 0.0;
    }
    for (uint first_key = first; first_key < last; first_key += TILE) {
        vec4 keys[BROUGHT];
        vec4 values[VALUES_BROUGHT];
        BRING(k, keys, k_base, push.k_strides[2], QUADS, BROUGHT)
        BRING(v, values, v_base, push.v_strides[2], VALUE_QUADS, VALUES_BROUGHT)
        barrier();
        STORE(keys, QUADS, BROUGHT)
        barrier();
        [[unroll]] for (uint s = 0; s < SCORES; ++s) {
            uint i = lane + s * LANES;
            uint key = i % TILE;
            uint head = min(i / TILE, GROUP - 1);
            float score = -infinity;
            if (first_key + key < last) {
                vec4 products = vec4(0);
                [[unroll]] for (uint d = 0; d < QUADS; ++d) products += queries[head * QUADS + d] * tile[key * PITCH + d];
                score = products.x + products.y + products.z + products.w;
                if (HAS_MASK != 0) {
                    uint m = mask_base + head * push.mask_strides[1] + (first_key + key) * push.mask_strides[3];
                    if (MASK == BOOL) score = mask_i(m) != 0 ? score : -infinity;
                    else score += mask_f(m);
                }
            }
            if (i < GROUP * TILE) weights[i] = score;
        }
        barrier();
        STORE(values, VALUE_QUADS, VALUES_BROUGHT)
        float own[SCORES];
        float next[SCORES];
        float correction[SCORES];
        [[unroll]] for (uint s = 0; s < SCORES; ++s) {
            uint i = lane + s * LANES;
            uint head = min(i / TILE, GROUP - 1);
            next[s] = highest[head];
            [[unroll]] for (uint key = 0; key < TILE; ++key) next[s] = max(next[s], weights[head * TILE + key]);
            // No key is visible so far: all weights are zero, for any reference.
            float reference = next[s] == -infinity ? 0.0 : next[s];
            correction[s] = highest[head] == -infinity ? 0.0 : exp(highest[head] - reference);
            own[s] = exp(weights[head * TILE + i % TILE] - reference);
        }
        barrier();
        [[unroll]] for (uint s = 0; s < SCORES; ++s) {
            uint i = lane + s * LANES;
            if (i >= GROUP * TILE) continue;
            weights[i] = own[s];
            if (i % TILE == 0) {
                corrections[i / TILE] = correction[s];
                highest[i / TILE] = next[s];
            }
        }
        barrier();
        [[unroll]] for (uint s = 0; s < SUMS; ++s) {
            uint i = lane + s * LANES;
            if (i >= OUTPUTS) continue;
            uint head = i / VALUE_QUADS;
            vec4 sum = sums[s] * corrections[head];
            float total = totals[s] * corrections[head];
            [[unroll]] for (uint key = 0; key < TILE; ++key) {
                float weight = weights[head * TILE + key];
                sum += weight * tile[key * PITCH + i % VALUE_QUADS];
                total += weight;
            }
            sums[s] = sum;
            totals[s] = total;
        }
    }
    barrier();
    uint first_head = (batch * push.groups + group) * GROUP;
    [[unroll]] for (uint s = 0; s < SUMS; ++s) {
        uint i = lane + s * LANES;
        if (i >= OUTPUTS) continue;
        uint at = shares_of(first_head + i / VALUE_QUADS, row) + share * STEP;
        shares.quads[at + i % VALUE_QUADS] = sums[s];
        if (i % VALUE_QUADS == 0) shares.quads[at + VALUE_QUADS] = vec4(highest[i / VALUE_QUADS], totals[s], 0.0, 0.0);
    }
    // Makes this workgroup's writes visible before it counts as finished.
    memoryBarrierBuffer();
    barrier();
    uint place = WORKGROUP_Z * gl_NumWorkGroups.y + row;
    if (lane == 0) {
        memoryBarrierBuffer();
        is_last = atomicAdd(counts.done[place], 1) == gl_NumWorkGroups.x - 1;
        memoryBarrierBuffer();
        if (is_last) counts.done[place] = 0;
    }
    barrier();
    if (!is_last) return;
    memoryBarrierBuffer();
    // Partial results with at least one key; the others are ignored.
    uint used = each == 0 ? 1 : (limit + each - 1) / each;
    [[unroll]] for (uint s = 0; s < SUMS; ++s) {
        uint i = lane + s * LANES;
        if (i >= OUTPUTS) continue;
        uint head = i / VALUE_QUADS;
        uint from = shares_of(first_head + head, row);
        float maximum = -infinity;
        float total = 0.0;
        vec4 sum = vec4(0);
        for (uint start = 0; start < used; start += AT_ONCE) {
            vec4 theirs[AT_ONCE];
            vec2 states[AT_ONCE];
            float next = maximum;
            [[unroll]] for (uint t = 0; t < AT_ONCE; ++t) {
                uint at = from + min(start + t, used - 1) * STEP;
                theirs[t] = shares.quads[at + i % VALUE_QUADS];
                states[t] = start + t < used ? shares.quads[at + VALUE_QUADS].xy : vec2(-infinity, 0.0);
                next = max(next, states[t].x);
            }
            float reference = next == -infinity ? 0.0 : next;
            float correction = exp(maximum - reference);
            total *= correction;
            sum *= correction;
            [[unroll]] for (uint t = 0; t < AT_ONCE; ++t) {
                float factor = exp(states[t].x - reference);
                total += states[t].y * factor;
                if (factor != 0.0) sum += theirs[t] * factor;
            }
            maximum = next;
        }
        uint at = batch * push.out_strides[0] + (group * GROUP + head) * push.out_strides[1] + row * push.out_strides[2];
        y_write_f4(at + i % VALUE_QUADS * 4, HIDDEN_ZEROS != 0 && total == 0.0 ? vec4(0) : sum / total);
    }
}
