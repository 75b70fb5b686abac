#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[index] = in[index - before] where that is inside, else a number.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    float value;
    int value_int;
    // Dimensions before this are of one element.
    uint first;
    uint out_sizes[8];
    uint in_sizes[8];
    int before[8];
} push;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

// Where an element of the output lies in the input: the place of its row, whether the input has that, and its number there.
struct Place {
    uint row;
    bool has_row;
    int x;
};

Place place(uint i) {
    Place p = Place(0, true, int(i % push.out_sizes[7]) - push.before[7]);
    i /= push.out_sizes[7];
    uint stride = push.in_sizes[7];
    for (int d = 6; d >= int(push.first); --d) {
        int index = int(i % push.out_sizes[d]) - push.before[d];
        i /= push.out_sizes[d];
        p.has_row = p.has_row && index >= 0 && index < int(push.in_sizes[d]);
        p.row += uint(index) * stride;
        stride *= push.in_sizes[d];
    }
    return p;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    // Four neighbours are mostly of one row. All are read, as loads behind conditions would wait for each other.
    Place p = place(i);
    uvec4 from;
    bvec4 inside;
    uint count = push.out_sizes[7];
    bool in_row = i % count + 3 < count;
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k > 0) {
            if (in_row) ++p.x;
            else p = place(min(i + k, push.numel - 1));
        }
        inside[k] = p.has_row && p.x >= 0 && p.x < int(push.in_sizes[7]);
        from[k] = inside[k] ? p.row + uint(p.x) : 0;
    }
    if (is_float(OUT)) {
        vec4 v = vec4(x_f(from.x), x_f(from.y), x_f(from.z), x_f(from.w));
        y_write_f4(i, mix(vec4(push.value), v, inside));
    } else {
        ivec4 v = ivec4(x_i(from.x), x_i(from.y), x_i(from.z), x_i(from.w));
        y_write_i4(i, mix(ivec4(push.value_int), v, inside));
    }
}
