#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "functions.glsl"

// out = function(in), four elements per invocation.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    float a;
    int a_int;
    float b;
    int b_int;
    float c;
    float d;
} push;

// Functions with more parameters than those of functions.glsl.
const uint QUANTIZE = 31;
const uint DEQUANTIZE = 32;
const uint ROUND_PARTS = 34; // to a multiple of 1 / a
const uint ROUND_MULTIPLES = 35; // to a multiple of a

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

UNARY(apply_f, FUNCTION)

int apply_i(const int x) {
    switch (FUNCTION) {
        case ABS: return abs(x);
        case NEG: return -x;
        case CLAMP: return min(max(x, push.a_int), push.b_int);
        case LOGICAL_NOT: return x == 0 ? 1 : 0;
        case BITWISE_NOT: return IN == BOOL ? 1 - x : ~x;
    }
    return x;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    if (is_float(IN) || is_float(OUT)) {
        vec4 v = x_f4(i);
        switch (FUNCTION) {
            case QUANTIZE: v = clamp_f(roundEven(v * push.a) + push.b, push.c, push.d); break;
            case DEQUANTIZE: v = (v - push.b) * push.a; break;
            case ROUND_PARTS: v = roundEven(v * push.a) / push.a; break;
            case ROUND_MULTIPLES: v = roundEven(v / push.a) * push.a; break;
            default: v = apply_f(v, push.a, push.b);
        }
        y_write_f4(i, v);
    } else {
        ivec4 v = x_i4(i);
        y_write_i4(i, ivec4(apply_i(v.x), apply_i(v.y), apply_i(v.z), apply_i(v.w)));
    }
}
