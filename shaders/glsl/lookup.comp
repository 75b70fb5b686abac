#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "table.glsl"

// Maps int8 values by a lookup table, four per invocation.

layout(push_constant) uniform Push {
    uint numel;
} push;

TENSOR_IN(0, x, I8)
TABLE(1)
WORDS_OUT(2, y)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    y.words[i >> 2] = recoded(x_i4(i));
}
