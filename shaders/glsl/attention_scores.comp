#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// The scores of attention, without softmax: out = q * k^T * scale, with minus infinity for masked
// keys.

layout(constant_id = 3) const uint Q = 0;
layout(constant_id = 4) const uint K = 0;
layout(constant_id = 5) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint heads;
    uint heads_per_key;
    uint rows; // of the output, for each head
    uint columns;
    uint q_rows;
    uint keys;
    uint depth;
    uint offset;
    float scale;
    uint q_strides[3]; // batch, head, row
    uint k_strides[3];
} push;

TENSOR_IN(0, q, Q)
TENSOR_IN(1, k, K)
TENSOR_OUT(2, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = vec4(0);
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        uint at = i + c;
        if (at >= push.numel) break;
        uint key = at % push.columns;
        uint row = at / push.columns % push.rows;
        uint head = at / push.columns / push.rows % push.heads;
        uint batch = at / push.columns / push.rows / push.heads;
        if (key >= push.keys || key > push.offset + row) {
            v[c] = uintBitsToFloat(0xff800000);
            continue;
        }
        if (row >= push.q_rows) continue;
        uint q_at = batch * push.q_strides[0] + head * push.q_strides[1] + row * push.q_strides[2];
        uint k_at = batch * push.k_strides[0] + head / push.heads_per_key * push.k_strides[1] + key * push.k_strides[2];
        float s = 0.0;
        for (uint d = 0; d < push.depth; ++d) s += q_f(q_at + d) * k_f(k_at + d);
        v[c] = s * push.scale;
    }
    y_write_f4(i, v);
}
