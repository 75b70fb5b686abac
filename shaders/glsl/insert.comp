#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Writes the input into a part of the output over one dimension: out[o, start + step * k, r] =
// in[o, k, r]; the rest of the output is unchanged.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint out_size; // of the dimension, in the output
    uint in_size;
    uint inner;    // elements of the inner dimensions
    uint start;
    uint step;
    // The maximum number of groups of four output elements per input row, if no group contains
    // elements of two rows; otherwise 0.
    uint quads;
} push;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

// Writes four neighbouring outputs, some of which belong to a row that starts at `begin` and has
// `length` input elements.
void put(const uint i, const uint row, const uint begin, const uint length) {
    bool is_whole = i >= begin && i + 3 < begin + length;
    vec4 f = vec4(0);
    ivec4 n = ivec4(0);
    bool floating = is_float(OUT);
    if (!is_whole && floating) f = y_f4(i);
    if (!is_whole && !floating) n = y_i4(i);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (i + k < begin || i + k >= begin + length) continue;
        uint from = row * length + i + k - begin;
        if (floating) f[k] = x_f(from);
        else n[k] = x_i(from);
    }
    if (floating) y_write_f4(i, f);
    else y_write_i4(i, n);
}

void main() {
    if (push.quads != 0) {
        uint row = invocation_x() / push.quads;
        uint pitch = push.out_size * push.inner;
        if (row >= push.numel / pitch) return;
        uint begin = row * pitch + push.start * push.inner;
        uint length = push.in_size * push.inner;
        uint i = begin / 4 * 4 + invocation_x() % push.quads * 4;
        if (i < begin + length) put(i, row, begin, length);
        return;
    }
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 f = vec4(0);
    ivec4 n = ivec4(0);
    bool floating = is_float(OUT);
    if (floating) f = y_f4(i);
    else n = y_i4(i);
    bool changed = false;
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        uint at = i + k;
        if (at >= push.numel) break;
        uint r = at % push.inner;
        uint rest = at / push.inner;
        uint d = rest % push.out_size;
        uint o = rest / push.out_size;
        if (d < push.start || (d - push.start) % push.step != 0) continue;
        uint index = (d - push.start) / push.step;
        if (index >= push.in_size) continue;
        uint from = (o * push.in_size + index) * push.inner + r;
        changed = true;
        if (floating) f[k] = x_f(from);
        else n[k] = x_i(from);
    }
    if (!changed) return;
    if (floating) y_write_f4(i, f);
    else y_write_i4(i, n);
}
