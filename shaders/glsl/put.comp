#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out[o, index[k], r] = in[o, k, r], in place; the rest of the output is unchanged. Negative
// indices count from the end. Indices out of range are not written (the host cannot see them).

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;
// Rows consist of whole groups of four elements, so that an invocation can write a group of the
// input to its target. Otherwise, each searches for the inputs of a group of the output.
layout(constant_id = 5) const uint BY_ROWS = 0;

layout(push_constant) uniform Push {
    uint numel;    // of the input, by rows, or else of the output
    uint out_size; // of the dimension, in the output
    uint count;    // of indices
    uint inner;    // elements of the inner dimensions
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, index, I32)
TENSOR_OUT(2, y, OUT)

// Returns the output row for an index, or the dimension's size if the index is out of range.
uint row_of(const uint k) {
    int at = index_i(k);
    if (at < 0) at += int(push.out_size);
    return at < 0 || at >= int(push.out_size) ? push.out_size : uint(at);
}

void put_row(const uint i) {
    uint r = i % push.inner;
    uint rest = i / push.inner;
    uint at = row_of(rest % push.count);
    if (at == push.out_size) return;
    uint to = (rest / push.count * push.out_size + at) * push.inner + r;
    if (is_float(OUT)) y_write_f4(to, x_f4(i));
    else y_write_i4(to, x_i4(i));
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    if (BY_ROWS != 0) {
        put_row(i);
        return;
    }
    vec4 f = vec4(0);
    ivec4 n = ivec4(0);
    if (is_float(OUT)) f = y_f4(i);
    else n = y_i4(i);
    bool changed = false;
    [[unroll]] for (uint lane = 0; lane < 4; ++lane) {
        uint at = i + lane;
        if (at >= push.numel) break;
        uint r = at % push.inner;
        uint rest = at / push.inner;
        uint d = rest % push.out_size;
        uint o = rest / push.out_size;
        for (uint k = 0; k < push.count; ++k) {
            if (row_of(k) != d) continue;
            uint from = (o * push.count + k) * push.inner + r;
            changed = true;
            if (is_float(OUT)) f[lane] = x_f(from);
            else n[lane] = x_i(from);
        }
    }
    if (!changed) return;
    if (is_float(OUT)) y_write_f4(i, f);
    else y_write_i4(i, n);
}
