#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Gradients of a linear layer. OF_MATRIX: the gradient of the weight, out[n, k] = sum over m of
// d[m, n] * x[m, k]. OF_INPUT: the gradient of the input, out[m, k] = sum over n of d[m, n] * w[n,
// k] * scale[k / group, n], with 4-bit weights, low nibble first.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint GRADIENT = 0;
layout(constant_id = 5) const uint FACTOR = 0;
layout(constant_id = 6) const uint SCALE = 0;
layout(constant_id = 7) const uint OUT = 0;

const uint OF_MATRIX = 0;
const uint OF_INPUT = 1;

layout(push_constant) uniform Push {
    uint numel;
    uint m;
    uint n;
    uint k;
    uint row; // bytes of a row of weights
    uint group;
    uint scale_row;
} push;

TENSOR_IN(0, d, GRADIENT)
TENSOR_IN(1, x, FACTOR)
TENSOR_IN(2, scale, SCALE)
TENSOR_OUT(3, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = vec4(0);
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        uint at = i + c;
        if (at >= push.numel) break;
        uint k = at % push.k;
        uint row = at / push.k;
        float sum = 0.0;
        if (FUNCTION == OF_MATRIX) {
            for (uint m = 0; m < push.m; ++m) sum += d_f(m * push.n + row) * x_f(m * push.k + k);
        } else {
            for (uint n = 0; n < push.n; ++n) {
                int w = ((x_i(n * push.row + k / 2) >> ((k & 1) * 4)) & 15) - 8;
                sum += d_f(row * push.n + n) * float(w) * scale_f(k / push.group * push.scale_row + n);
            }
        }
        v[c] = sum;
    }
    y_write_f4(i, v);
}
