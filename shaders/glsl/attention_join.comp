#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Adds up the shares of attention_split.comp, a workgroup of 128 for a row of a head. Each invocation has four neighbours of the output and every
// so manieth share.

layout(constant_id = 3) const uint OUT = 0;
layout(constant_id = 4) const uint HIDDEN_ZEROS = 0; // rows of which every key is hidden are zeros, not NaN
layout(constant_id = 5) const uint VALUE_QUADS = 1; // groups of four elements of a head, at most 64

layout(push_constant) uniform Push {
    uint heads;
    uint rows;
    uint shares;
    uint out_strides[3]; // batch, head, row
} push;

layout(set = 0, binding = 0) readonly buffer shares_block { vec4 quads[]; } shares;
TENSOR_OUT(1, y, OUT)

const uint LANES = 128;
const uint PARTS = LANES / VALUE_QUADS;
const uint STEP = VALUE_QUADS + 1;
// The shares of an invocation, at most: as many are on their way together. There are at most 32 in all.
const uint TURNS = (32 + PARTS - 1) / PARTS;

shared vec4 sums[LANES];
shared vec2 states[LANES]; // the maximum, and the sum of the weights

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint quad = lane % VALUE_QUADS;
    uint part = lane / VALUE_QUADS;
    uint row = gl_WorkGroupID.x;
    uint head = gl_WorkGroupID.y;
    uint batch = gl_WorkGroupID.z;
    uint first = ((batch * push.heads + head) * push.rows + row) * push.shares * STEP;
    float infinity = uintBitsToFloat(0x7f800000);
    vec2 state = vec2(-infinity, 0.0);
    vec4 sum = vec4(0);
    if (part < PARTS) {
        vec4 others[TURNS];
        vec2 theirs[TURNS];
        [[unroll]] for (uint t = 0; t < TURNS; ++t) {
            uint s = min(part + t * PARTS, push.shares - 1);
            others[t] = shares.quads[first + s * STEP + quad];
            theirs[t] = shares.quads[first + s * STEP + VALUE_QUADS].xy;
            if (part + t * PARTS >= push.shares) theirs[t] = vec2(-infinity, 0.0);
            state.x = max(state.x, theirs[t].x);
        }
        float reference = state.x == -infinity ? 0.0 : state.x;
        [[unroll]] for (uint t = 0; t < TURNS; ++t) {
            float factor = exp(theirs[t].x - reference);
            state.y += theirs[t].y * factor;
            if (factor != 0.0) sum += others[t] * factor;
        }
    }
    states[lane] = state;
    sums[lane] = sum;
    barrier();
    if (part != 0) return;
    float highest = -infinity;
    for (uint p = 0; p < PARTS; ++p) highest = max(highest, states[p * VALUE_QUADS + quad].x);
    float reference = highest == -infinity ? 0.0 : highest;
    float total = 0.0;
    sum = vec4(0);
    for (uint p = 0; p < PARTS; ++p) {
        float factor = exp(states[p * VALUE_QUADS + quad].x - reference);
        total += states[p * VALUE_QUADS + quad].y * factor;
        sum += sums[p * VALUE_QUADS + quad] * factor;
    }
    uint at = batch * push.out_strides[0] + head * push.out_strides[1] + row * push.out_strides[2] + quad * 4;
    y_write_f4(at, HIDDEN_ZEROS != 0 && total == 0.0 ? vec4(0) : sum / total);
}
