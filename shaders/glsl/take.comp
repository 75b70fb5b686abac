#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[o, k, r] = in[o, index[k], r]; or, element by element, in[o, index[o, k, r], r]. Negative
// indices count from the end. Indices out of range read the nearest element (the host cannot see
// them).

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint BY_ELEMENT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint in_size;  // of the dimension, in the input
    uint out_size; // in the output
    uint inner;    // elements of the inner dimensions of the output
    uint in_outer_step; // distance between values of o in the input
    uint in_inner; // elements of the inner dimensions of the input
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, index, I32)
TENSOR_OUT(2, y, OUT)

// The positions of four elements. All indices are loaded together, and so are all elements
// afterwards, because conditional loads would wait for each other. Beyond the last element, it is
// repeated.
uvec4 places(const uint first) {
    uvec4 i = min(first + uvec4(0, 1, 2, 3), uvec4(push.numel - 1));
    uvec4 rows = i / push.inner;
    uvec4 outer = rows / push.out_size;
    uvec4 k = BY_ELEMENT != 0 ? i : rows - outer * push.out_size;
    ivec4 at = ivec4(index_i(k.x), index_i(k.y), index_i(k.z), index_i(k.w));
    at = mix(at, at + int(push.in_size), lessThan(at, ivec4(0)));
    at = clamp(at, ivec4(0), ivec4(int(push.in_size) - 1));
    return outer * push.in_outer_step + uvec4(at) * push.in_inner + (i - rows * push.inner);
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    uvec4 from = places(i);
    if (is_float(OUT)) y_write_f4(i, vec4(x_f(from.x), x_f(from.y), x_f(from.z), x_f(from.w)));
    else y_write_i4(i, ivec4(x_i(from.x), x_i(from.y), x_i(from.z), x_i(from.w)));
}
