#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[i] = value + i * step

layout(constant_id = 3) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    float value;
    float step;
} push;

TENSOR_OUT(0, y, OUT)

void main() {
    uint i = gl_GlobalInvocationID.x * 4;
    if (i >= push.numel) return;
    vec4 index = vec4(i, i + 1, i + 2, i + 3);
    if (is_float(OUT)) {
        y_write_f4(i, push.value + index * push.step);
    } else {
        y_write_i4(i, int(push.value) + ivec4(index) * int(push.step));
    }
}
