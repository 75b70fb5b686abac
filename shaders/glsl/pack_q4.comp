#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Quantizes weights to 4 bits with given scales, two per byte, low nibble first.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint SCALE = 0;

layout(push_constant) uniform Push {
    uint numel; // bytes
    uint k; // elements of a row
    uint row; // bytes of a row
    uint group;
    uint scale_row;
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, scale, SCALE)
TENSOR_OUT(2, y, U8)

int code(const uint n, const uint k) {
    if (k >= push.k) return 0;
    float s = scale_f(k / push.group * push.scale_row + n);
    float q = s != 0.0 ? roundEven(x_f(n * push.k + k) / s) : 0.0;
    return int(clamp(q, -8.0, 7.0)) + 8;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    ivec4 v = ivec4(0);
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        uint n = (i + c) / push.row;
        uint k = (i + c) % push.row * 2;
        if (i + c < push.numel) v[c] = code(n, k) | code(n, k + 1) << 4;
    }
    y_write_i4(i, v);
}
