#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[index] = in[index - before] inside the input; outside, a constant, a reflection at the edge,
// or a repetition of the edge.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint AROUND = 0;

layout(push_constant) uniform Push {
    uint numel;
    float value;
    int value_int;
    // Dimensions before this one have size one.
    uint first;
    uint out_sizes[8];
    uint in_sizes[8];
    int before[8];
} push;

const uint NUMBER = 0;
const uint REFLECTED = 1;
const uint REPEATED = 2;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

// The position of an output element in the input: the offset of its row, whether that row exists,
// and the index in the row.
struct Place {
    uint row;
    bool has_row;
    int x;
};

// Maps an index outside a dimension according to the padding mode.
int within(const int index, const uint size) {
    int last = int(size) - 1;
    if (AROUND == REFLECTED) return index < 0 ? -index : index > last ? 2 * last - index : index;
    return AROUND == REPEATED ? clamp(index, 0, last) : index;
}

Place place(uint i) {
    Place p = Place(0, true, int(i % push.out_sizes[7]) - push.before[7]);
    i /= push.out_sizes[7];
    uint stride = push.in_sizes[7];
    for (int d = 6; d >= int(push.first); --d) {
        int index = within(int(i % push.out_sizes[d]) - push.before[d], push.in_sizes[d]);
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
    // Four neighbours usually belong to one row. All are read, because conditional loads would wait
    // for each other.
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
        int x = within(p.x, push.in_sizes[7]);
        inside[k] = p.has_row && x >= 0 && x < int(push.in_sizes[7]);
        from[k] = inside[k] ? p.row + uint(x) : 0;
    }
    if (is_float(OUT)) {
        vec4 v = vec4(x_f(from.x), x_f(from.y), x_f(from.z), x_f(from.w));
        y_write_f4(i, mix(vec4(push.value), v, inside));
    } else {
        ivec4 v = ivec4(x_i(from.x), x_i(from.y), x_i(from.z), x_i(from.w));
        y_write_i4(i, mix(ivec4(push.value_int), v, inside));
    }
}
