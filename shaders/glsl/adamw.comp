#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// A step of the AdamW optimiser, in place, in F32.

layout(push_constant) uniform Push {
    uint numel;
    float rate;
    float beta1;
    float beta2;
    float epsilon;
    float decay;
    float correction1;
    float correction2;
} push;

TENSOR_OUT(0, parameter, F32)
TENSOR_OUT(1, first, F32)
TENSOR_OUT(2, second, F32)
TENSOR_IN(3, gradient, F32)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 g = gradient_f4(i);
    vec4 m = first_f4(i) * push.beta1 + g * (1.0 - push.beta1);
    vec4 v = second_f4(i) * push.beta2 + g * g * (1.0 - push.beta2);
    vec4 p = parameter_f4(i) * (1.0 - push.rate * push.decay);
    first_write_f4(i, m);
    second_write_f4(i, v);
    parameter_write_f4(i, p - push.rate * (m / push.correction1) / (sqrt(v / push.correction2) + push.epsilon));
}
