#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Rotary embedding (RoPE): rotates pairs of elements of each row by angles of its position. The
// result may be written into another tensor, unless batches are not multiples of four.

layout(constant_id = 3) const uint FORM = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint ANGLE = 0;
layout(constant_id = 6) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint depth; // of a row
    uint heads; // rows with the same position
    uint positions;
    uint start; // the first position
    uint rotated; // rotated elements of a row
    uint angle_row; // angles per position
    uint angle_head; // distance between the angles of heads
    uint out_start; // in the output: a multiple of four, and so is the next
    uint out_batch; // batch stride of the output
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, cosine, ANGLE)
TENSOR_IN(2, sine, ANGLE)
TENSOR_OUT(3, y, OUT)

const uint NEIGHBOURS = 0; // pairs are neighbours, with one angle per pair
const uint HALVES = 1; // pairs are element i of the first half and element i of the second, with one angle per element
const uint COMBINED = 2; // pairs are neighbours; cosines and sines are interleaved

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 r = x_f4(i);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        uint at = i + k;
        if (at >= push.numel) break;
        uint d = at % push.depth;
        if (d >= push.rotated) continue;
        uint head = at / push.depth % push.heads;
        uint position = push.start + at / push.depth / push.heads % push.positions;
        uint base = position * push.angle_row + head * push.angle_head;
        bool second = FORM == HALVES ? d >= push.rotated / 2 : (d & 1) != 0;
        uint step = FORM == HALVES ? push.rotated / 2 : 1;
        uint angle = base + (FORM == NEIGHBOURS ? d / 2 : FORM == HALVES ? d : d & ~1u);
        float c = cosine_f(angle);
        float s = FORM == COMBINED ? cosine_f(angle + 1) : sine_f(angle);
        r[k] = second ? x_f(at) * c + x_f(at - step) * s : x_f(at) * c - x_f(at + step) * s;
    }
    uint batch = push.positions * push.heads * push.depth;
    y_write_f4(push.out_start + i / batch * push.out_batch + i % batch, r);
}
