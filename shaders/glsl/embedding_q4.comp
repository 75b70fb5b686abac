#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Rows of a 4-bit embedding table, with one scale per group of a row.

layout(constant_id = 3) const uint SCALE = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint LOW_FIRST = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint rows;
    uint depth; // elements of a row
    uint group;
    uint scale_row;
} push;

TENSOR_IN(0, weight, U8)
TENSOR_IN(1, scale, SCALE)
TENSOR_IN(2, index, I32)
TENSOR_OUT(3, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = vec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        uint at = i + k;
        if (at >= push.numel) break;
        uint row = uint(clamp(index_i(at / push.depth), 0, int(push.rows) - 1));
        uint d = at % push.depth;
        uint shift = ((d & 1) ^ (LOW_FIRST != 0 ? 0 : 1)) * 4;
        int w = int((uint(weight_i(row * (push.depth / 2) + d / 2)) >> shift) & 15) - 8;
        v[k] = float(w) * scale_f(push.scale_row == 0 ? 0 : row * push.scale_row + d / push.group);
    }
    y_write_f4(i, v);
}
