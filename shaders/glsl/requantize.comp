#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Requantizes to another scale and zero point; or the sum or product of two quantized tensors.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint A = 0;
layout(constant_id = 5) const uint B = 0;
layout(constant_id = 6) const uint OUT = 0;

const uint COPY = 0;
const uint RELU = 1;
const uint ADD = 2;
const uint MUL = 3;

layout(push_constant) uniform Push {
    uint numel;
    float a_scale;
    float a_zero;
    float b_scale; // with the factor of b
    float b_zero;
    float out_inverse; // reciprocal of the output's scale
    float out_zero;
    float low;
    float high;
} push;

TENSOR_IN(0, a, A)
TENSOR_IN(1, b, B)
TENSOR_OUT(2, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = (a_f4(i) - push.a_zero) * push.a_scale;
    if (FUNCTION == RELU) v = max(v, 0.0);
    if (FUNCTION == ADD) v += (b_f4(i) - push.b_zero) * push.b_scale;
    if (FUNCTION == MUL) v *= (b_f4(i) - push.b_zero) * push.b_scale;
    y_write_f4(i, clamp(roundEven(v * push.out_inverse) + push.out_zero, push.low, push.high));
}
