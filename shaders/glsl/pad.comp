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
    uint out_sizes[8];
    uint in_sizes[8];
    int before[8];
} push;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

// The input's element for output element i, or all ones outside.
uint place(uint i) {
    uint at = 0;
    uint stride = 1;
    bool inside = true;
    [[unroll]] for (int d = 7; d >= 0; --d) {
        int index = int(i % push.out_sizes[d]) - push.before[d];
        i /= push.out_sizes[d];
        inside = inside && index >= 0 && index < int(push.in_sizes[d]);
        at += uint(index) * stride;
        stride *= push.in_sizes[d];
    }
    return inside ? at : 0xffffffffu;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    if (is_float(OUT)) {
        vec4 r = vec4(push.value);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            uint at = i + k < push.numel ? place(i + k) : 0xffffffffu;
            if (at != 0xffffffffu) r[k] = x_f(at);
        }
        y_write_f4(i, r);
    } else {
        ivec4 r = ivec4(push.value_int);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            uint at = i + k < push.numel ? place(i + k) : 0xffffffffu;
            if (at != 0xffffffffu) r[k] = x_i(at);
        }
        y_write_i4(i, r);
    }
}
