#version 450
//! module recurrent_step
//! module recurrent_step_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// One step of a recurrent layer, given the input projections, for states so large that one
// workgroup would read the weights too slowly. A workgroup computes some elements of the state of
// one batch row. A team of invocations shares the dot products of one element. It reads the
// previous state, which other workgroups computed in the previous step, from memory. Weights are in
// the original layout, [gate][hidden][hidden], so that a team reads neighbouring elements.

layout(constant_id = 3) const uint CELL = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint STATE = 0;
layout(constant_id = 6) const uint CELL_IN = 0;
layout(constant_id = 7) const uint WEIGHT = 0;
layout(constant_id = 8) const uint BIAS = 0;
layout(constant_id = 9) const uint OUT = 0;
layout(constant_id = 10) const uint CELL_OUT = 0;
layout(constant_id = 11) const uint HAS_BIAS = 0;
// Elements of the state, a multiple of four.
layout(constant_id = 12) const uint HIDDEN = 4;

#include "cell.glsl"

layout(push_constant) uniform Push {
    uint batch;
    // The positions of the input projections, the previous state, and the result, in rows of a
    // batch.
    uint place_in;
    uint place_before;
    uint place_out;
} push;

RUN_IN(0, x, IN)
RUN_IN(1, h, STATE)
RUN_IN(2, c, CELL_IN)
RUN_IN(3, w, WEIGHT)
RUN_IN(4, bias, BIAS)
RUN_OUT(5, y, OUT)
RUN_OUT(6, next_cell, CELL_OUT)

// Invocations per team.
const uint TEAM = 32;
// State elements per workgroup. It has this many teams, 256 invocations in total, as in the
// catalogue.
const uint ELEMENTS = 8;
// Invocations that add up the parts of a sum; one of them adds up their results.
const uint ADDERS = 8;
// One more than the size of a team, so that neighbours in a column lie in different banks.
const uint PITCH = TEAM + 1;

shared float parts[GATES * ELEMENTS * PITCH];
shared float sums[GATES * ELEMENTS * ADDERS];
shared vec4 states[ELEMENTS / 4];
shared vec4 cells[ELEMENTS / 4];

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint row = invocation_y();
    if (row >= push.batch) return;
    uint first = gl_WorkGroupID.x * ELEMENTS;
    uint member = lane % TEAM;
    // Teams beyond the end compute the last element again; their results are not used.
    uint element = min(first + lane / TEAM, HIDDEN - 1);
    uint before = (push.place_before * push.batch + row) * HIDDEN;

    float sum[GATES];
    [[unroll]] for (uint g = 0; g < GATES; ++g) sum[g] = 0.0;
    for (uint k = member * 4; k < HIDDEN; k += TEAM * 4) {
        vec4 read[GATES];
        [[unroll]] for (uint g = 0; g < GATES; ++g) read[g] = w_f4((g * HIDDEN + element) * HIDDEN + k);
        vec4 state = h_f4(before + k);
        [[unroll]] for (uint g = 0; g < GATES; ++g) sum[g] += dot(read[g], state);
    }
    [[unroll]] for (uint g = 0; g < GATES; ++g) parts[(lane / TEAM * GATES + g) * PITCH + member] = sum[g];

    // The other inputs of the cell are being loaded meanwhile.
    uint own = min(first + lane % ELEMENTS, HIDDEN - 1);
    uint in_row = (push.place_in * push.batch + row) * GATES * HIDDEN;
    vec4 given = vec4(0.0);
    vec4 products = vec4(0.0);
    float state = 0.0;
    float cell = 0.0;
    if (lane < ELEMENTS) {
        [[unroll]] for (uint g = 0; g < GATES; ++g) {
            given[g] = x_f(in_row + g * HIDDEN + own);
            if (HAS_BIAS != 0) products[g] = bias_f(g * HIDDEN + own);
        }
        state = h_f(before + own);
        if (CELL == LSTM) cell = c_f(row * HIDDEN + own);
    }
    barrier();

    // With four gates, this uses all invocations.
    if (lane < GATES * ELEMENTS * ADDERS) {
        float part = 0.0;
        uint from = lane / ADDERS * PITCH + lane % ADDERS;
        [[unroll]] for (uint j = 0; j < TEAM; j += ADDERS) part += parts[from + j];
        sums[lane] = part;
    }
    barrier();

    if (lane < ELEMENTS) {
        [[unroll]] for (uint g = 0; g < GATES; ++g) {
            [[unroll]] for (uint j = 0; j < ADDERS; ++j) products[g] += sums[(lane * GATES + g) * ADDERS + j];
        }
        states[lane / 4][lane % 4] = next_state(given, products, state, cell);
        cells[lane / 4][lane % 4] = cell;
    }
    barrier();

    uint at = first + lane * 4;
    if (lane < ELEMENTS / 4 && at < HIDDEN) {
        y_write_run((push.place_out * push.batch + row) * HIDDEN + at, states[lane], 4);
        if (CELL == LSTM) next_cell_write_run(row * HIDDEN + at, cells[lane], 4);
    }
}
