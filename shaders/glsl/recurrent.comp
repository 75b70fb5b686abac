#version 450
//! module recurrent
//! module recurrent_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// The steps of a recurrent layer over a sequence, whose products with the inputs are there already.
// A workgroup takes all steps of one row of the batch, one after the other: what a step passes on
// to the next stays in shared memory, and the cell's state with the invocation that computes it.
// Weights are [hidden][gate][hidden], so that neighbours read neighbours.

layout(constant_id = 3) const uint CELL = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint STATE = 0;
layout(constant_id = 6) const uint WEIGHT = 0;
layout(constant_id = 7) const uint BIAS = 0;
layout(constant_id = 8) const uint OUT = 0;
layout(constant_id = 9) const uint HAS_BIAS = 0;
// Elements of the state, at most as many as there are invocations.
layout(constant_id = 10) const uint HIDDEN = 1;
// The products that an invocation sums, if it keeps its weights.
layout(constant_id = 11) const uint SUMS = 1;
// The weights of an invocation, if it keeps them: HIDDEN * SUMS, or 1.
layout(constant_id = 12) const uint KEPT = 1;
// Whether the cell's last state is asked for.
layout(constant_id = 13) const uint KEEPS_CELL = 0;

// Else it reads those of four products at a time. So many invocations share the four.
layout(constant_id = 14) const uint PARTS = 1;

#include "cell.glsl"

layout(push_constant) uniform Push {
    uint batch;
    uint steps;
    // From a row of weights to the next.
    uint pitch;
    // The step's place among the inputs and the results: of the first, and from one to the next.
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

// Four elements of padding: they are read by fours in the end.
shared float state[HIDDEN + 4];
shared float sums[PARTS * GATES * HIDDEN];

// How many loads are on their way at once, of as many elements of the state; a part has a multiple
// of them.
const uint AHEAD = 8;
const uint PART = (HIDDEN + PARTS * AHEAD - 1) / (PARTS * AHEAD) * AHEAD;
const uint QUADS = (GATES * HIDDEN + 3) / 4;

// The numbers of all invocations' `state`, written by as many as there are fours.
#define WRITE_STATE(name, row) { \
        uint first = lane * 4; \
        if (first < HIDDEN) { \
            vec4 v = vec4(state[first], state[first + 1], state[first + 2], state[first + 3]); \
            name##_write_run((row) * HIDDEN + first, v, min(HIDDEN - first, 4)); \
        } \
    }

// Four products from one on, over a part of the state.
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
            // What is beyond the last is read as the last, and not used.
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
