#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[i] = in[base + strides * index(i)]: a strided view of the input, in the output's type.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint CONTIGUOUS = 0;
// Whether aligned groups of four outputs map to aligned groups of four inputs.
layout(constant_id = 6) const uint BY_FOUR = 0;

layout(push_constant) uniform Push {
    uint numel;
    int base;
    uint rank; // number of dimensions, the last of those below
    uint sizes[8];
    int strides[8];
} push;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

uint place(uint i) {
    int at = push.base;
    for (int d = 7; d >= 8 - int(push.rank); --d) {
        uint size = push.sizes[d];
        at += int(i % size) * push.strides[d];
        i /= size;
    }
    return uint(at);
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    if (CONTIGUOUS != 0) {
        if (is_float(IN)) y_write_f4(i, x_f4(i));
        else y_write_i4(i, x_i4(i));
        return;
    }
    uint first = place(i);
    if (BY_FOUR != 0) {
        if (is_float(IN)) y_write_f4(i, x_f4(first));
        else y_write_i4(i, x_i4(first));
        return;
    }
    // Divisions dominate the cost, and neighbours in a row need none.
    uint across = i % push.sizes[7];
    uvec4 from;
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        bool is_beside = across + k < push.sizes[7] || i + k >= push.numel;
        from[k] = is_beside ? uint(int(first) + int(k) * push.strides[7]) : place(i + k);
    }
    if (is_float(IN)) {
        vec4 r = vec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k < push.numel) r[k] = x_f(from[k]);
        y_write_f4(i, r);
    } else {
        ivec4 r = ivec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k < push.numel) r[k] = x_i(from[k]);
        y_write_i4(i, r);
    }
}
