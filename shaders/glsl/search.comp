#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Counts the elements of a sorted row that are less than each value (RIGHT: not greater):
// `searchsorted`. Rows of values either have a row of their own, or share one. NaN is larger than
// all other values, as in PyTorch.

layout(constant_id = 3) const uint SEQUENCE = 0;
layout(constant_id = 4) const uint VALUES = 0;
layout(constant_id = 5) const uint RIGHT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint count; // of a row to search
    uint row;   // values that share a row
} push;

TENSOR_IN(0, sequence, SEQUENCE)
TENSOR_IN(1, values, VALUES)
WORDS_OUT(2, y)

bool is_behind(const uint at, const uint i) {
    if (is_float(SEQUENCE) || is_float(VALUES)) {
        float s = sequence_f(at);
        float v = values_f(i);
        return isnan(s) || isnan(v) || (RIGHT != 0 ? s <= v : s < v);
    }
    return RIGHT != 0 ? sequence_i(at) <= values_i(i) : sequence_i(at) < values_i(i);
}

void main() {
    uint i = invocation_x();
    if (i >= push.numel) return;
    uint start = i / push.row * push.count;
    uint low = 0;
    uint high = push.count;
    while (low < high) {
        uint middle = low + (high - low) / 2;
        if (is_behind(start + middle, i)) low = middle + 1;
        else high = middle;
    }
    y.words[i] = low;
}
