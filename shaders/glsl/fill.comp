#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[i] = value + i * step

layout(constant_id = 3) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    float value;
    int value_int;
    float step;
    int step_int;
} push;

TENSOR_OUT(0, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    if (is_float(OUT)) {
        y_write_f4(i, push.value + vec4(i, i + 1, i + 2, i + 3) * push.step);
    } else {
        y_write_i4(i, push.value_int + (int(i) + ivec4(0, 1, 2, 3)) * push.step_int);
    }
}
