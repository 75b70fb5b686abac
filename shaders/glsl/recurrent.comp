#version 450
//! module recurrent
//! module recurrent_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// All steps of a recurrent layer over a sequence, given the input projections. A workgroup computes
// all steps of one batch row in sequence: the hidden state stays in shared memory, and each element
// of the cell state in the invocation that computes it. Weights are [hidden][gate][hidden], so that
// neighbouring invocations read neighbouring elements.

layout(constant_id = 3) const uint CELL = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint STATE = 0;
layout(constant_id = 6) const uint WEIGHT = 0;
layout(constant_id = 7) const uint BIAS = 0;
layout(constant_id = 8) const uint OUT = 0;
layout(constant_id = 9) const uint HAS_BIAS = 0;
// Elements of the state, at most the number of invocations.
layout(constant_id = 10) const uint HIDDEN = 1;
// Dot products per invocation, if it keeps its weights in registers.
layout(constant_id = 11) const uint SUMS = 1;
// Weights per invocation, if it keeps them in registers: HIDDEN * SUMS; otherwise 1.
layout(constant_id = 12) const uint KEPT = 1;
// Whether the last cell state is an output.
layout(constant_id = 13) const uint KEEPS_CELL = 0;

// If weights are not kept, they are read for four dot products at a time, which this many
// invocations share.
layout(constant_id = 14) const uint PARTS = 1;

#include "cell.glsl"

layout(push_constant) uniform Push {
    uint batch;
    uint steps;
    // The row stride of the weights.
    uint pitch;
    // The positions of the steps in the inputs and the results: of the first step, and the distance
    // to the next.
    int first_in;
    int next_in;
    int first_out;
    int next_out;
} push;

RUN_IN(0, x, IN)
RUN_IN(1, h, STATE)
RUN_IN(2, c, STATE)
RUN_IN(3, w, WEIGHT)
RUN_IN(4, bias, BIAS)
RUN_OUT(5, y, OUT)
RUN_OUT(6, last, OUT)

// Four elements of padding, since the end is read in fours.
shared float state[HIDDEN + 4];
shared float sums[PARTS * GATES * HIDDEN];

// Loads in flight at once, for as many elements of the state; a part has a multiple of them.
const uint AHEAD = 8;
const uint PART = (HIDDEN + PARTS * AHEAD - 1) / (PARTS * AHEAD) * AHEAD;
const uint QUADS = (GATES * HIDDEN + 3) / 4;

// Writes all elements of `state`, four per invocation.
#define WRITE_STATE(name, row) { \
        uint first = lane * 4; \
        if (first < HIDDEN) { \
            vec4 v = vec4(state[first], state[first + 1], state[first + 2], state[first + 3]); \
            name##_write_run((row) * HIDDEN + first, v, min(HIDDEN - first, 4)); \
        } \
    }

// Four consecutive dot products, over a part of the state.
void put_products(const uint part, const uint at) {
    uint k = part * PART;
    uint end = min(k + PART, HIDDEN);
    vec4 sum = vec4(0.0);
    for (; k + AHEAD <= end; k += AHEAD) {
        vec4 read[AHEAD];
        [[unroll]] for (uint j = 0; j < AHEAD; ++j) read[j] = w_f4((k + j) * push.pitch + at);
        [[unroll]] for (uint j = 0; j < AHEAD; ++j) sum += read[j] * state[k + j];
    }
    for (; k < end; ++k) sum += w_f4(k * push.pitch + at) * state[k];
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        if (at + c < GATES * HIDDEN) sums[part * GATES * HIDDEN + at + c] = sum[c];
    }
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint lanes = gl_WorkGroupSize.x;
    uint row = invocation_y();
    if (row >= push.batch) return;
    bool owns = lane < HIDDEN;
    float cell = 0.0;
    if (owns) {
        state[lane] = h_f(row * HIDDEN + lane);
        if (CELL == LSTM) cell = c_f(row * HIDDEN + lane);
    }
    if (lane < 4) state[HIDDEN + lane] = 0.0;

    float kept[KEPT];
    if (KEPT > 1) {
        [[unroll]] for (uint s = 0; s < SUMS; ++s) {
            // Indices beyond the last are clamped; the results are not used.
            uint at = min(s * lanes + lane, GATES * HIDDEN - 1);
            [[unroll]] for (uint k = 0; k < HIDDEN; ++k) kept[min(s * HIDDEN + k, KEPT - 1)] = w_f(k * push.pitch + at);
        }
    }
    vec4 biases = vec4(0.0);
    if (HAS_BIAS != 0 && owns) {
        [[unroll]] for (uint g = 0; g < GATES; ++g) biases[g] = bias_f(g * HIDDEN + lane);
    }
    barrier();

    for (uint step = 0; step < push.steps; ++step) {
        uint in_row = (uint(push.first_in + int(step) * push.next_in) * push.batch + row) * GATES * HIDDEN;
        vec4 given = vec4(0.0);
        if (owns) {
            [[unroll]] for (uint g = 0; g < GATES; ++g) given[g] = x_f(in_row + g * HIDDEN + lane);
        }
        if (KEPT > 1) {
            [[unroll]] for (uint s = 0; s < SUMS; ++s) {
                uint at = s * lanes + lane;
                float sum = 0.0;
                [[unroll]] for (uint k = 0; k < HIDDEN; ++k) sum += kept[min(s * HIDDEN + k, KEPT - 1)] * state[k];
                if (at < GATES * HIDDEN) sums[at] = sum;
            }
        } else {
            for (uint place = lane; place < PARTS * QUADS; place += lanes) put_products(place / QUADS, place % QUADS * 4);
        }
        barrier();
        if (owns) {
            vec4 own = biases;
            [[unroll]] for (uint p = 0; p < PARTS; ++p) {
                [[unroll]] for (uint g = 0; g < GATES; ++g) own[g] += sums[(p * GATES + g) * HIDDEN + lane];
            }
            state[lane] = next_state(given, own, state[lane], cell);
        }
        barrier();
        WRITE_STATE(y, uint(push.first_out + int(step) * push.next_out) * push.batch + row)
    }
    if (CELL == LSTM && KEEPS_CELL != 0) {
        barrier();
        if (owns) state[lane] = cell;
        barrier();
        WRITE_STATE(last, row)
    }
}
