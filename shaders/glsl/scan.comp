#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Sums or products of all elements up to each one, along the middle of three dimensions: out[o, k, r] = in[o, 0, r] + … + in[o, k, r].
// Each of four consecutive outputs of an invocation goes on where the one before it ended, if that is of the same line.
//
// PyTorch has 64 bits in between, where sums and products of finite numbers may be larger than those of 32 bits: so they are counted twice, the
// second time by a fraction of them, or with their exponents apart, and that is the result where the first is none.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint count; // of the dimension
    uint inner; // elements behind it
} push;

const uint SUM = 0;
const uint PROD = 1;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

const float LESS = 1.0 / 65536.0;

// In two steps, as a power of two may have no place where a product with it has.
float scaled(const float f, const int exponent) {
    int half_exponent = clamp(exponent / 2, -126, 126);
    return f * exp2(float(half_exponent)) * exp2(float(clamp(exponent - half_exponent, -126, 126)));
}

void main() {
    uint first = invocation_x() * 4;
    if (first >= push.numel) return;
    vec4 results = vec4(0);
    ivec4 whole = ivec4(0);
    float f = 0.0;
    float apart = 0.0;
    int exponent = 0;
    bool finite = true;
    int n = 0;
    for (uint lane = 0; lane < 4; ++lane) {
        uint i = first + lane;
        if (i >= push.numel) break;
        uint k = i / push.inner % push.count;
        uint from = k;
        if (lane == 0 || push.inner != 1 || k == 0) {
            f = FUNCTION == SUM ? 0.0 : 1.0;
            apart = f;
            exponent = 0;
            finite = true;
            n = FUNCTION == SUM ? 0 : 1;
            from = 0;
        }
        for (uint j = from; j <= k; ++j) {
            uint at = i - (k - j) * push.inner;
            if (is_float(OUT)) {
                float v = x_f(at);
                finite = finite && !isnan(v) && !isinf(v);
                f = FUNCTION == SUM ? f + v : f * v;
                if (FUNCTION == SUM) {
                    apart += v * LESS;
                } else if (finite) {
                    int own;
                    int both;
                    apart = frexp(apart * frexp(v, own), both);
                    exponent += own + both;
                }
            } else {
                int v = x_i(at);
                n = FUNCTION == SUM ? n + v : n * v;
            }
        }
        bool is_none = isnan(f) || isinf(f) || (FUNCTION == PROD && f == 0.0);
        results[lane] = is_none && finite ? (FUNCTION == SUM ? apart / LESS : scaled(apart, exponent)) : f;
        whole[lane] = n;
    }
    if (is_float(OUT)) y_write_f4(first, results);
    else y_write_i4(first, whole);
}
