#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Quantizes or dequantizes, with a scale and a zero point for each block of elements.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint SCALE = 0;
layout(constant_id = 6) const uint ZERO = 0;
layout(constant_id = 7) const uint OUT = 0;
layout(constant_id = 8) const uint HAS_ZERO = 0;

const uint QUANTIZE = 0;
const uint DEQUANTIZE = 1;

layout(push_constant) uniform Push {
    uint numel;
    float low; // bounds of quantized values
    float high;
    uint sizes[8]; // of the elements, innermost last
    uint strides[8]; // of the scales
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, scale, SCALE)
TENSOR_IN(2, zero, ZERO)
TENSOR_OUT(3, y, OUT)

uint place(uint i) {
    uint at = 0;
    [[unroll]] for (int d = 7; d >= 0; --d) {
        at += i % push.sizes[d] * push.strides[d];
        i /= push.sizes[d];
    }
    return at;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = x_f4(i);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (i + k >= push.numel) break;
        uint at = place(i + k);
        float z = HAS_ZERO != 0 ? zero_f(at) : 0.0;
        float code = roundEven(v[k] * (1.0 / scale_f(at))) + z;
        if (FUNCTION == QUANTIZE) v[k] = isnan(code) ? code : clamp(code, push.low, push.high);
        else v[k] = (v[k] - z) * scale_f(at);
    }
    y_write_f4(i, v);
}
