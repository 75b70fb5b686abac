#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"

// Scaled dot-product attention as in attention.comp, for many rows: a workgroup of 128 invocations
// computes ROWS rows of q. Keys and values are staged in shared memory, 32 at a time, and at most
// 64 of their elements at a time. Partial sums are rescaled whenever keys raise a row's maximum.
//
// Invocations alternate between one key and a quarter of the rows (scores), four keys of a row
// (weights), and four columns of some rows (sums).

layout(constant_id = 3) const uint Q = 0;
layout(constant_id = 4) const uint K = 0;
layout(constant_id = 5) const uint V = 0;
layout(constant_id = 6) const uint MASK = 0;
layout(constant_id = 7) const uint OUT = 0;
layout(constant_id = 8) const uint HAS_MASK = 0;
layout(constant_id = 9) const uint CAUSAL = 0; // row i attends to keys up to offset + i
layout(constant_id = 10) const uint HIDDEN_ZEROS = 0; // rows with all keys masked are zero, not NaN
// Groups of four elements of a head. All strides are multiples of four.
layout(constant_id = 11) const uint QUADS = 16;
layout(constant_id = 12) const uint VALUE_QUADS = 16;
layout(constant_id = 13) const uint ROWS = 16; // 4, 8, 16 or 32

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

RUN_IN(0, q, Q)
RUN_IN(1, k, K)
RUN_IN(2, v, V)
TENSOR_IN(3, mask, MASK)
RUN_OUT(4, y, OUT)

const uint LANES = 128;
const uint KEYS = 32;
// Groups of four columns, each with its own invocations.
const uint COLUMNS = 16;
// Keys and values are loaded in this many parts, with this many groups each; the last part may have
// fewer.
const uint TIMES = (QUADS + COLUMNS - 1) / COLUMNS;
const uint WIDTH = (QUADS + TIMES - 1) / TIMES;
const uint VALUE_TIMES = (VALUE_QUADS + COLUMNS - 1) / COLUMNS;
const uint VALUE_WIDTH = (VALUE_QUADS + VALUE_TIMES - 1) / VALUE_TIMES;
// Row lengths in shared memory: odd numbers of groups, so that eight rows lie in different banks.
const uint QUERY_PITCH = TIMES * WIDTH + 1;
const uint PITCH = (WIDTH > VALUE_WIDTH ? WIDTH : VALUE_WIDTH) | 1;
const uint WEIGHTS = KEYS / 4 + 1;
const uint PARTS = KEYS / 4;
// Rows per invocation, in the three phases.
const uint SCORE_ROWS = ROWS * KEYS / LANES;
const uint WEIGHT_ROWS = (ROWS * PARTS + LANES - 1) / LANES;
const uint SUM_ROWS = (ROWS * COLUMNS + LANES - 1) / LANES;
const float INFINITY = uintBitsToFloat(0x7f800000);

shared vec4 queries[ROWS * QUERY_PITCH];
shared vec4 pairs[KEYS * PITCH];
// Scores, then weights.
shared vec4 weights[ROWS * WEIGHTS];
shared float parts[ROWS * PARTS];
shared float corrections[ROWS];

// An invocation's share of keys or values, to be stored in shared memory.
vec4 next[KEYS * COLUMNS / LANES];

// Loads an invocation's share: keys or values from `first` on, groups from `start` on; zeros beyond
// the last.
void bring(const bool values, const uint lane, const uint base, const uint stride, const uint first, const uint keys, const uint start) {
    uint width = values ? VALUE_WIDTH : WIDTH;
    uint quads = values ? VALUE_QUADS : QUADS;
    [[unroll]] for (uint i = 0; i < KEYS * COLUMNS / LANES; ++i) {
        uint at = i * LANES + lane;
        uint key = first + at / width;
        uint quad = start + at % width;
        uint from = base + key * stride + quad * 4;
        bool there = at < KEYS * width && key < keys && (quads % width == 0 || quad < quads);
        if (values) next[i] = there ? v_f4(from) : vec4(0);
        else next[i] = there ? k_f4(from) : vec4(0);
    }
}

void store(const uint width, const uint lane) {
    [[unroll]] for (uint i = 0; i < KEYS * COLUMNS / LANES; ++i) {
        uint at = i * LANES + lane;
        if (at < KEYS * width) pairs[at / width * PITCH + at % width] = next[i];
    }
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    // Read only once, since they may be in memory.
    uint keys = push.keys;
    uint offset = push.offset;
    uint rows = push.rows;
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
    // Rows beyond the last repeat the last one, and are not written.
    for (uint at = lane; at < ROWS * TIMES * WIDTH; at += LANES) {
        uint row = min(first_row + at / (TIMES * WIDTH), rows - 1);
        uint quad = at % (TIMES * WIDTH);
        vec4 query = quad < QUADS ? q_f4(q_base + row * push.q_strides[2] + quad * 4) : vec4(0);
        queries[at / (TIMES * WIDTH) * QUERY_PITCH + quad] = query * push.scale;
    }

    // The positions of this invocation's work in the three phases: scores, weights, sums.
    uint key = lane % KEYS;
    uint score_row = lane / KEYS * SCORE_ROWS;
    uint weight_row = lane / PARTS;
    uint part = lane % PARTS;
    uint column = lane % COLUMNS;
    uint sum_row = lane / COLUMNS * SUM_ROWS;

    uint limit = CAUSAL != 0 ? min(keys, offset + first_row + ROWS) : keys;
    float highest[WEIGHT_ROWS];
    float total[WEIGHT_ROWS];
    [[unroll]] for (uint r = 0; r < WEIGHT_ROWS; ++r) {
        highest[r] = -INFINITY;
        total[r] = 0.0;
    }
    vec4 sums[VALUE_TIMES * SUM_ROWS];
    [[unroll]] for (uint i = 0; i < VALUE_TIMES * SUM_ROWS; ++i) sums[i] = vec4(0);
    bring(false, lane, k_base, k_stride, 0, keys, 0);
    for (uint base = 0; base < limit; base += KEYS) {
        float scores[SCORE_ROWS];
        [[unroll]] for (uint r = 0; r < SCORE_ROWS; ++r) scores[r] = 0.0;
        [[unroll]] for (uint start = 0; start < TIMES * WIDTH; start += WIDTH) {
            if (start > 0) barrier();
            store(WIDTH, lane);
            barrier();
            if (start + WIDTH < TIMES * WIDTH) bring(false, lane, k_base, k_stride, base, keys, start + WIDTH);
            else bring(true, lane, v_base, v_stride, base, keys, 0);
            [[unroll]] for (uint d = 0; d < WIDTH; ++d) {
                vec4 own = pairs[key * PITCH + d];
                [[unroll]] for (uint r = 0; r < SCORE_ROWS; ++r) {
                    scores[r] += dot(queries[(score_row + r) * QUERY_PITCH + start + d], own);
                }
            }
        }
        [[unroll]] for (uint r = 0; r < SCORE_ROWS; ++r) {
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
        store(VALUE_WIDTH, lane);
        vec4 own[WEIGHT_ROWS];
        [[unroll]] for (uint r = 0; r < WEIGHT_ROWS; ++r) {
            uint row = weight_row + r * (LANES / PARTS);
            if (ROWS >= LANES / PARTS || row < ROWS) {
                own[r] = weights[row * WEIGHTS + part];
                parts[row * PARTS + part] = max(max(own[r].x, own[r].y), max(own[r].z, own[r].w));
            }
        }
        barrier();
        if (VALUE_TIMES == 1 && base + KEYS < limit) bring(false, lane, k_base, k_stride, base + KEYS, keys, 0);
        [[unroll]] for (uint r = 0; r < WEIGHT_ROWS; ++r) {
            uint row = weight_row + r * (LANES / PARTS);
            if (ROWS < LANES / PARTS && row >= ROWS) continue;
            float most = highest[r];
            [[unroll]] for (uint i = 0; i < PARTS; ++i) most = max(most, parts[row * PARTS + i]);
            // No key is visible so far: all weights are zero, for any reference.
            float reference = most == -INFINITY ? 0.0 : most;
            float correction = highest[r] == -INFINITY ? 0.0 : exp(highest[r] - reference);
            highest[r] = most;
            own[r] = exp(own[r] - reference);
            total[r] = total[r] * correction + own[r].x + own[r].y + own[r].z + own[r].w;
            weights[row * WEIGHTS + part] = own[r];
            if (part == 0) corrections[row] = correction;
        }
        [[unroll]] for (uint t = 0; t < VALUE_TIMES; ++t) {
            if (t > 0) {
                barrier();
                store(VALUE_WIDTH, lane);
            }
            barrier();
            if (t + 1 < VALUE_TIMES) bring(true, lane, v_base, v_stride, base, keys, (t + 1) * VALUE_WIDTH);
            else if (VALUE_TIMES > 1 && base + KEYS < limit) bring(false, lane, k_base, k_stride, base + KEYS, keys, 0);
            if (column < VALUE_WIDTH && (ROWS >= LANES / COLUMNS || sum_row < ROWS)) {
                [[unroll]] for (uint r = 0; r < SUM_ROWS; ++r) sums[t * SUM_ROWS + r] *= corrections[sum_row + r];
                [[unroll]] for (uint i = 0; i < KEYS / 4; ++i) {
                    vec4 factors[SUM_ROWS];
                    [[unroll]] for (uint r = 0; r < SUM_ROWS; ++r) factors[r] = weights[(sum_row + r) * WEIGHTS + i];
                    [[unroll]] for (uint j = 0; j < 4; ++j) {
                        vec4 value = pairs[(i * 4 + j) * PITCH + column];
                        [[unroll]] for (uint r = 0; r < SUM_ROWS; ++r) sums[t * SUM_ROWS + r] += factors[r][j] * value;
                    }
                }
            }
        }
        barrier();
    }
    [[unroll]] for (uint r = 0; r < WEIGHT_ROWS; ++r) {
        uint row = weight_row + r * (LANES / PARTS);
        if (ROWS >= LANES / PARTS || row < ROWS) parts[row * PARTS + part] = total[r];
    }
    barrier();
    if (column >= VALUE_WIDTH || sum_row >= ROWS) return;
    [[unroll]] for (uint r = 0; r < SUM_ROWS; ++r) {
        uint row = first_row + sum_row + r;
        if (row >= rows) return;
        float all = 0.0;
        [[unroll]] for (uint i = 0; i < PARTS; ++i) all += parts[(sum_row + r) * PARTS + i];
        uint at = batch * push.out_strides[0] + head * push.out_strides[1] + row * push.out_strides[2];
        [[unroll]] for (uint t = 0; t < VALUE_TIMES; ++t) {
            uint quad = t * VALUE_WIDTH + column;
            if (quad >= VALUE_QUADS) continue;
            vec4 sum = sums[t * SUM_ROWS + r];
            y_write_f4(at + quad * 4, HIDDEN_ZEROS != 0 && all == 0.0 ? vec4(0) : sum / all);
        }
    }
}
