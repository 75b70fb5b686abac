#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Distances between the rows of two matrices: out[o, r, c] = |a[o, r, …] - b[o, c, …]|, by one of
// several norms. All values are 32-bit floats, as PyTorch does not support fp16 distances.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint ALIGNED = 0; // whether rows are multiples of four elements

layout(push_constant) uniform Push {
    uint numel;
    uint rows;    // of a
    uint columns; // of the output: rows of b
    uint width;   // elements of a row
    float p;      // of POWERS
} push;

const uint COUNT = 0;
const uint SUM = 1;
const uint SQUARES = 2;
const uint MAX = 3;
const uint POWERS = 4;

WORDS_IN(0, a)
WORDS_IN(1, b)
WORDS_OUT(2, y)

// Zeros beyond the end of a row.
vec4 differences(const uint a_at, const uint b_at, const uint k) {
    if (ALIGNED != 0) {
        return abs(uintBitsToFloat(a_by_4.words[(a_at + k) / 4]) - uintBitsToFloat(b_by_4.words[(b_at + k) / 4]));
    }
    vec4 result = vec4(0.0);
    for (uint j = 0; j < min(push.width - k, 4); ++j) {
        result[j] = abs(uintBitsToFloat(a.words[a_at + k + j]) - uintBitsToFloat(b.words[b_at + k + j]));
    }
    return result;
}

// The driver's pow may be inexact at the ends of its range.
float power(const float v, const float exponent) {
    return v == 0.0 || isinf(v) || isnan(v) ? v : pow(v, exponent);
}

// Accumulates four more values in a norm. NaN propagates, except that it is never the largest, as
// in PyTorch.
float joined(const float norm, const vec4 v) {
    float result = norm;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (FUNCTION == COUNT) result += v[j] > 0.0 ? 1.0 : v[j];
        if (FUNCTION == SUM) result += v[j];
        if (FUNCTION == SQUARES) result += v[j] * v[j];
        if (FUNCTION == MAX && v[j] > result) result = v[j];
        if (FUNCTION == POWERS) result += power(v[j], push.p);
    }
    return result;
}

void main() {
    uint i = invocation_x();
    if (i >= push.numel) return;
    uint row = i / push.columns;
    uint a_at = row * push.width;
    uint b_at = (row / push.rows * push.columns + i % push.columns) * push.width;
    float norm = 0.0;
    for (uint k = 0; k < push.width; k += 4) norm = joined(norm, differences(a_at, b_at, k));
    if (FUNCTION == SQUARES) norm = sqrt(norm);
    if (FUNCTION == POWERS) norm = power(norm, 1.0 / push.p);
    y.words[i] = floatBitsToUint(norm);
}
