#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Overwrites a range of elements in each batch of another tensor, in place.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel; // of a batch of the input
    uint start; // in the output
    uint from; // in the input
    uint batch; // batch stride of the input
    uint out_batch; // and of the output: a multiple of 4 with several batches
} push;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

void main() {
    uint start = push.start + gl_GlobalInvocationID.y * push.out_batch;
    uint from = push.from + gl_GlobalInvocationID.y * push.batch;
    uint i = (start / 4 + gl_GlobalInvocationID.x) * 4;
    uint end = start + push.numel;
    if (i >= end) return;
    if (is_float(OUT)) {
        vec4 v = y_f4(i);
        [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k >= start && i + k < end) v[k] = x_f(from + i + k - start);
        y_write_f4(i, v);
    } else {
        ivec4 v = y_i4(i);
        [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k >= start && i + k < end) v[k] = x_i(from + i + k - start);
        y_write_i4(i, v);
    }
}
