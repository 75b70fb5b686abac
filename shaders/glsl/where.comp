#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out = condition ? a : b, all broadcast to the output's shape.

layout(constant_id = 3) const uint CONDITION = 0;
layout(constant_id = 4) const uint A = 0;
layout(constant_id = 5) const uint B = 0;
layout(constant_id = 6) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint sizes[6];
    uint c_strides[6];
    uint a_strides[6];
    uint b_strides[6];
} push;

TENSOR_IN(0, condition, CONDITION)
TENSOR_IN(1, a, A)
TENSOR_IN(2, b, B)
TENSOR_OUT(3, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 f = vec4(0);
    ivec4 n = ivec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        uint rest = i + k;
        if (rest >= push.numel) break;
        uvec3 at = uvec3(0);
        [[unroll]] for (int d = 5; d >= 0; --d) {
            at += rest % push.sizes[d] * uvec3(push.c_strides[d], push.a_strides[d], push.b_strides[d]);
            rest /= push.sizes[d];
        }
        bool first = condition_i(at.x) != 0;
        if (is_float(OUT)) f[k] = first ? a_f(at.y) : b_f(at.z);
        else n[k] = first ? a_i(at.y) : b_i(at.z);
    }
    if (is_float(OUT)) y_write_f4(i, f);
    else y_write_i4(i, n);
}
