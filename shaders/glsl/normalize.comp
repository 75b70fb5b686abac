#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// The second dispatch of softmax and normalisations, after the statistics of each row are computed:
// out = function(in, statistics of the row, weight, bias).

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint WEIGHT = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint HAS_WEIGHT = 0;
layout(constant_id = 8) const uint HAS_BIAS = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint row_size;   // elements of a group of interleaved rows
    uint row_inner;  // the number of interleaved rows
    uint weight_step; // consecutive elements that share a weight
    uint weight_count;
    float epsilon;
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, a, F32)
TENSOR_IN(2, b, F32)
TENSOR_IN(3, weight, WEIGHT)
TENSOR_IN(4, bias, WEIGHT)
TENSOR_OUT(5, y, OUT)

const uint SOFTMAX = 0;
const uint LOG_SOFTMAX = 1;
const uint LAYER = 2;
const uint RMS = 3;
const uint AFFINE = 4;

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = x_f4(i);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        uint at = i + k;
        if (at >= push.numel) break;
        uint row = at / push.row_size * push.row_inner + at % push.row_inner;
        if (FUNCTION == SOFTMAX) v[k] = exp(v[k] - a_f(row)) / b_f(row);
        if (FUNCTION == LOG_SOFTMAX) v[k] = v[k] - a_f(row) - log(b_f(row));
        if (FUNCTION == LAYER) v[k] = (v[k] - a_f(row)) * inversesqrt(b_f(row) + push.epsilon);
        if (FUNCTION == RMS) v[k] = v[k] * inversesqrt(a_f(row) + push.epsilon);
        uint w = at / push.weight_step % push.weight_count;
        if (HAS_WEIGHT != 0) v[k] *= weight_f(w);
        if (HAS_BIAS != 0) v[k] += bias_f(w);
    }
    y_write_f4(i, v);
}
