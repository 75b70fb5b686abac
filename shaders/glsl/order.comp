#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Sorts the middle of three dimensions: out[o, n, r] = k of the n-th element in[o, k, r] in order.
// The sort is stable; NaN is larger than all other values, as in PyTorch. Or finds the index of the
// median, the lower of two; that is the first NaN, if any, unless NaN is ignored
// (MEDIAN_OF_NUMBERS).
//
// An invocation counts the elements that precede one input element, so that each word of the output
// has one writer.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint DESCENDING = 0;
layout(constant_id = 5) const uint FUNCTION = 0;

layout(push_constant) uniform Push {
    uint numel; // of the input
    uint count; // of the dimension
    uint inner; // elements of the inner dimensions
    uint first; // of the dimension in the output
} push;

const uint FIRST = 0;
const uint MEDIAN = 1;
const uint MEDIAN_OF_NUMBERS = 2;

TENSOR_IN(0, x, IN)
WORDS_OUT(1, places)

#include "key.glsl"

void main() {
    uint i = invocation_x();
    if (i >= push.numel) return;
    uint r = i % push.inner;
    uint k = i / push.inner % push.count;
    uint o = i / push.inner / push.count;
    uint start = o * push.count * push.inner + r;
    uint own = key(i);
    uint before = 0;
    uint numbers = 0;
    for (uint j = 0; j < push.count; ++j) {
        uint other = key(start + j * push.inner);
        before += uint(other < own || (other == own && j < k));
        numbers += uint(!is_float(IN) || other != NOT_A_NUMBER);
    }
    if (FUNCTION != FIRST) {
        uint median = FUNCTION == MEDIAN && numbers < push.count ? numbers : (max(numbers, 1) - 1) / 2;
        if (before < median) return;
        before -= median;
    }
    if (before < push.first) places.words[(o * push.first + before) * push.inner + r] = k;
}
