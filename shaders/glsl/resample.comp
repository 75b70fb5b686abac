#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Resizes the middle of three dimensions with antialiasing: out[o, k, r] is a weighted mean of
// in[o, j, r] around the position of k. When the size shrinks, the support of the filter grows by
// the same factor.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint FILTER = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint in_size;
    uint out_size;
    uint inner;  // elements of the inner dimensions
    float scale; // input elements per output element
} push;

const uint LINEAR = 0;
const uint CUBIC = 1;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

float weight(const float t) {
    if (FILTER == LINEAR) return max(1.0 - t, 0.0);
    if (t < 1.0) return (1.5 * t - 2.5) * t * t + 1.0;
    return t < 2.0 ? ((-0.5 * t + 2.5) * t - 4.0) * t + 2.0 : 0.0;
}

float mean(const uint i) {
    // With equal sizes, elements are copied, for any scale.
    if (push.in_size == push.out_size) return x_f(i);
    uint r = i % push.inner;
    uint k = i / push.inner % push.out_size;
    uint start = i / push.inner / push.out_size * push.in_size * push.inner + r;
    float further = max(push.scale, 1.0);
    float support = (FILTER == LINEAR ? 1.0 : 2.0) * further;
    float center = push.scale * (float(k) + 0.5);
    uint first = min(uint(max(center - support + 0.5, 0.0)), push.in_size);
    uint end = min(uint(max(center + support + 0.5, 0.0)), push.in_size);
    float sum = 0.0;
    float all = 0.0;
    for (uint j = first; j < end; ++j) {
        float w = weight(abs(float(j) - center + 0.5) / further);
        all += w;
        sum += w * x_f(start + j * push.inner);
    }
    return sum / all;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 r = vec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k < push.numel) r[k] = mean(i + k);
    y_write_f4(i, r);
}
