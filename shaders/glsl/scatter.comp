#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Scatters elements of a source over the middle of three dimensions: out[o, index[o, j, r], r] =
// source[o, j, r], or FUNCTION of that and the old element. Four consecutive outputs per
// invocation, each of which searches all indices in order: the last source wins, and sums are
// deterministic.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint SOURCE = 0;
layout(constant_id = 6) const uint OUT = 0;
// Whether the source is a single element.
layout(constant_id = 7) const uint ONE_SOURCE = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint size;  // of the dimension, in the output
    uint count; // in the source
    uint inner; // elements of the inner dimensions
} push;

const uint REPLACE = 0;
const uint ADD = 1;
const uint MULTIPLY = 2;
const uint MAX = 3;
const uint MIN = 4;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, index, I32)
TENSOR_IN(2, source, SOURCE)
TENSOR_OUT(3, y, OUT)

float joined_f(const float a, const float b) {
    switch (FUNCTION) {
        case ADD: return a + b;
        case MULTIPLY: return a * b;
        case MAX: return isnan(a) || isnan(b) ? a + b : max(a, b);
        case MIN: return isnan(a) || isnan(b) ? a + b : min(a, b);
    }
    return b;
}

int joined_i(const int a, const int b) {
    switch (FUNCTION) {
        case ADD: return a + b;
        case MULTIPLY: return a * b;
        case MAX: return max(a, b);
        case MIN: return min(a, b);
    }
    return b;
}

void main() {
    uint first = invocation_x() * 4;
    if (first >= push.numel) return;
    vec4 results = x_f4(first);
    ivec4 whole = x_i4(first);
    for (uint lane = 0; lane < 4; ++lane) {
        uint i = first + lane;
        if (i >= push.numel) break;
        uint r = i % push.inner;
        uint k = i / push.inner % push.size;
        uint o = i / push.inner / push.size;
        for (uint j = 0; j < push.count; ++j) {
            uint at = (o * push.count + j) * push.inner + r;
            if (index_i(at) != int(k)) continue;
            uint from = ONE_SOURCE != 0 ? 0 : at;
            if (is_float(OUT)) results[lane] = joined_f(results[lane], source_f(from));
            else whole[lane] = joined_i(whole[lane], source_i(from));
        }
    }
    if (is_float(OUT)) y_write_f4(first, results);
    else y_write_i4(first, whole);
}
