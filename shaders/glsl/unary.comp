#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out = function(in), four elements an invocation.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    float a;
    float b;
    float c;
    float d;
} push;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

// erf by Abramowitz and Stegun 7.1.26 has too few digits; this is a rational fit in two ranges.
float erf_of(float x) {
    float t = abs(x);
    if (t < 1.0) {
        float s = x * x;
        // Taylor series around 0: 2/sqrt(pi) * sum (-1)^n x^(2n+1) / (n! (2n+1)).
        float sum = 0.0;
        float term = 1.0;
        for (int n = 0; n < 12; ++n) {
            sum += term / float(2 * n + 1);
            term *= -s / float(n + 1);
        }
        return 1.1283791670955126 * x * sum;
    }
    // Continued fraction for erfc, evaluated backwards.
    float f = 0.0;
    for (int n = 24; n > 0; --n) f = float(n) * 0.5 / (t + f);
    float erfc = exp(-t * t) * 0.5641895835477563 / (t + f);
    return sign(x) * (1.0 - erfc);
}

// tanh that neither overflows nor depends on how the driver's tanh does.
float tanh_of(float x) {
    float t = clamp(x, -15.0, 15.0);
    float e = exp(-2.0 * abs(t));
    if (abs(t) < 0.05) {
        float s = t * t;
        return t * (1.0 - s * (1.0 / 3.0 - s * (2.0 / 15.0)));
    }
    return sign(t) * (1.0 - e) / (1.0 + e);
}

float apply_f(float x) {
    switch (FUNCTION) {
        case 0: return x;
        case 1: return abs(x);
        case 2: return -x;
        case 3: return sqrt(x);
        case 4: return inversesqrt(x);
        case 5: return exp(x);
        case 6: return log(x);
        case 7: return log(x) * 0.4342944819032518;
        case 8: return sin(x);
        case 9: return cos(x);
        case 10: return tan(x);
        case 11: return tanh_of(x);
        case 12: return 1.0 / (1.0 + exp(-x));
        case 13: return 0.5 * x * (1.0 + erf_of(x * 0.7071067811865476));
        case 14: return 0.5 * x * (1.0 + tanh_of(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        case 15: return roundEven(x);
        case 16: return floor(x);
        case 17: return ceil(x);
        case 18: return x < push.a ? push.a : x > push.b ? push.b : x; // clamp; NaN stays
        case 19: return x > 0.0 ? x : x * push.a; // leaky relu
        case 20: return x * clamp(x + 3.0, 0.0, 6.0) / 6.0; // hardswish
        case 21: return clamp(x + 3.0, 0.0, 6.0) / 6.0; // hardsigmoid
        case 22: return abs(x) > push.a ? x : 0.0; // hardshrink
        case 23: return x == 0.0 ? 1.0 : 0.0; // logical not
        case 24: return push.a * x + push.b;
        case 25: return x / (1.0 + exp(-x)); // silu
        case 26: return 1.0 / x;
        case 27: return erf_of(x);
        case 28: return x > 0.0 ? x : push.a * (exp(x) - 1.0); // elu
        case 31: return clamp(roundEven(x * push.a) + push.b, push.c, push.d); // quantize
        case 32: return (x - push.b) * push.a; // dequantize
    }
    return x;
}

int apply_i(int x) {
    switch (FUNCTION) {
        case 1: return abs(x);
        case 2: return -x;
        case 18: return x < int(push.a) ? int(push.a) : x > int(push.b) ? int(push.b) : x;
        case 23: return x == 0 ? 1 : 0;
        case 30: return IN == BOOL ? 1 - x : ~x; // bitwise not
    }
    return x;
}

void main() {
    uint i = gl_GlobalInvocationID.x * 4;
    if (i >= push.numel) return;
    if (is_float(IN) || is_float(OUT)) {
        vec4 v = x_f4(i);
        y_write_f4(i, vec4(apply_f(v.x), apply_f(v.y), apply_f(v.z), apply_f(v.w)));
    } else {
        ivec4 v = x_i4(i);
        y_write_i4(i, ivec4(apply_i(v.x), apply_i(v.y), apply_i(v.z), apply_i(v.w)));
    }
}
