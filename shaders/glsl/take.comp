#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[o, k, r] = in[o, index[k], r]; or, element by element, in[o, index[o, k, r], r]. Negative indices count from the end;
// indices out of range read the nearest element (the host cannot see them).

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint BY_ELEMENT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint in_size;  // of the dimension, in the input
    uint out_size; // in the output
    uint inner;    // elements behind it in the output
    uint in_outer_step; // elements from one o to the next in the input
    uint in_inner; // elements behind it in the input

} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, index, I32)
TENSOR_OUT(2, y, OUT)

uint place(const uint i) {
    uint r = i % push.inner;
    uint k = i / push.inner % push.out_size;
    uint o = i / push.inner / push.out_size;
    int at = index_i(BY_ELEMENT != 0 ? i : k);
    if (at < 0) at += int(push.in_size);
    at = clamp(at, 0, int(push.in_size) - 1);
    return o * push.in_outer_step + uint(at) * push.in_inner + r;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    if (is_float(OUT)) {
        vec4 r = vec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k < push.numel) r[k] = x_f(place(i + k));
        y_write_f4(i, r);
    } else {
        ivec4 r = ivec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k < push.numel) r[k] = x_i(place(i + k));
        y_write_i4(i, r);
    }
}
