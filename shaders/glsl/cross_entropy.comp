#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// From the maximum and the sum of exponentials of each row of logits, computes the loss of each row
// (LOSS) or the gradient of the logits (GRADIENT). Rows with a negative label contribute nothing.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OUT = 0;

const uint LOSS = 0;
const uint GRADIENT = 1;

layout(push_constant) uniform Push {
    uint numel;
    uint classes;
    float inverse; // reciprocal of the number of rows with a label
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, highest, F32)
TENSOR_IN(2, total, F32)
TENSOR_IN(3, label, I32)
TENSOR_OUT(4, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = vec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (i + k >= push.numel) break;
        uint row = FUNCTION == LOSS ? i + k : (i + k) / push.classes;
        int wanted = min(label_i(row), int(push.classes) - 1);
        if (wanted < 0) continue;
        if (FUNCTION == LOSS) {
            v[k] = (highest_f(row) + log(total_f(row)) - x_f(row * push.classes + uint(wanted))) * push.inverse;
        } else {
            float p = exp(x_f(i + k) - highest_f(row)) / total_f(row);
            v[k] = (p - ((i + k) % push.classes == uint(wanted) ? 1.0 : 0.0)) * push.inverse;
        }
    }
    y_write_f4(i, v);
}
