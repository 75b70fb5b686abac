#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out = function(in), four elements an invocation: functions of floating-point numbers that few programs have, apart from those that many
// have, whose modules stay small so. Drivers may err by 2^-11 in inverse functions of angles, and by 2^-21 in logarithms near 1: these are
// made here of sums and products.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
} push;

const uint SIGN = 0;
const uint TRUNC = 1;
const uint EXPM1 = 2;
const uint LOG1P = 3;
const uint EXP2 = 4;
const uint LOG2 = 5;
const uint ASIN = 6;
const uint ACOS = 7;
const uint ATAN = 8;
const uint SINH = 9;
const uint COSH = 10;
const uint ASINH = 11;
const uint ACOSH = 12;
const uint ATANH = 13;
const uint ISNAN = 14;
const uint ISINF = 15;
const uint TO_BFLOAT16 = 16;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

#include "angles.glsl"

const float NOT_A_NUMBER = uintBitsToFloat(0x7fc00000u);
const float LN_2 = 0.6931471805599453;

// Near zero by its series, to x^8 / 8!.
vec4 expm1_f(const vec4 x) {
    vec4 series = 1.0 + x * 0.125;
    series = 1.0 + x * (1.0 / 7.0) * series;
    series = 1.0 + x * (1.0 / 6.0) * series;
    series = 1.0 + x * 0.2 * series;
    series = 1.0 + x * 0.25 * series;
    series = 1.0 + x * (1.0 / 3.0) * series;
    series = 1.0 + x * 0.5 * series;
    return mix(exp(x) - 1.0, x * series, lessThan(abs(x), vec4(0.5)));
}

// log(1 + x) = 2 atanh(x / (2 + x)), by the series of which while that is below a fifth.
vec4 log1p_f(const vec4 x) {
    vec4 s = x / (2.0 + x);
    vec4 s2 = s * s;
    vec4 series = 2.0 * s * (1.0 + s2 * (1.0 / 3.0 + s2 * (0.2 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0)))));
    vec4 result = mix(log(max(1.0 + x, vec4(0.0))), series, lessThan(abs(s), vec4(0.2)));
    return mix(result, vec4(NOT_A_NUMBER), lessThan(x, vec4(-1.0)));
}

// Of large numbers, whose squares have no place.
vec4 log_twice(const vec4 x) { return log(x) + LN_2; }

const float LARGE = 1e9;

// The number with the sign of another one, also of a zero.
vec4 with_sign(const vec4 a, const vec4 x) { return mix(a, -a, lessThan(floatBitsToInt(x), ivec4(0))); }

vec4 log2_f(const vec4 x) {
    vec4 near = log1p_f(x - 1.0) / LN_2;
    return mix(log2(x), near, lessThan(abs(x - 1.0), vec4(0.3)));
}

vec4 asinh_f(const vec4 x) {
    vec4 a = abs(x);
    vec4 b = min(a, vec4(LARGE));
    vec4 near = log1p_f(b + b * b / (1.0 + sqrt(b * b + 1.0)));
    return with_sign(mix(near, log_twice(a), greaterThan(a, vec4(LARGE))), x);
}

vec4 acosh_f(const vec4 x) {
    vec4 t = clamp(x - 1.0, vec4(0.0), vec4(LARGE));
    vec4 near = log1p_f(t + sqrt(t * (2.0 + t)));
    vec4 r = mix(near, log_twice(x), greaterThan(x, vec4(LARGE)));
    return mix(r, vec4(NOT_A_NUMBER), lessThan(x, vec4(1.0)));
}

vec4 atanh_f(const vec4 x) {
    vec4 a = abs(x);
    vec4 r = 0.5 * log1p_f(2.0 * a / (1.0 - a));
    return with_sign(mix(r, vec4(NOT_A_NUMBER), greaterThan(a, vec4(1.0))), x);
}

// Half of e^|x|, which is finite where e^|x| is not.
vec4 half_exp(const vec4 x) {
    vec4 root = exp(abs(x) * 0.5);
    return root * 0.5 * root;
}

vec4 sinh_f(const vec4 x) {
    vec4 a = abs(x);
    vec4 e = expm1_f(min(a, vec4(1.0)));
    vec4 near = 0.5 * (e + e / (e + 1.0));
    return with_sign(mix(half_exp(x) - 0.5 * exp(-a), near, lessThan(a, vec4(1.0))), x);
}

// The nearest number of which the last 16 bits are zero, and of two of them the even one.
vec4 to_bfloat16(const vec4 x) {
    uvec4 bits = floatBitsToUint(x);
    bits += 0x7fff + ((bits >> 16) & 1);
    return uintBitsToFloat(bits & 0xffff0000u);
}

vec4 apply(const vec4 x) {
    switch (FUNCTION) {
        case SIGN: return vec4(greaterThan(x, vec4(0.0))) - vec4(lessThan(x, vec4(0.0)));
        case TRUNC: return trunc(x);
        case EXPM1: return expm1_f(x);
        case LOG1P: return log1p_f(x);
        case EXP2: return exp2(x);
        case LOG2: return log2_f(x);
        case ASIN: return asin_f(x);
        case ACOS: return acos_f(x);
        case ATAN: return atan_f(x);
        case SINH: return sinh_f(x);
        case COSH: return half_exp(x) + 0.5 * exp(-abs(x));
        case ASINH: return asinh_f(x);
        case ACOSH: return acosh_f(x);
        case ATANH: return atanh_f(x);
        case ISINF: return vec4(isinf(x));
        case TO_BFLOAT16: return to_bfloat16(x);
    }
    return x;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = x_f4(i);
    // What is not a number stays so, whatever a driver makes of it.
    bvec4 is_nan = isnan(v);
    vec4 r = FUNCTION == ISNAN ? vec4(is_nan) : FUNCTION == SIGN || FUNCTION == ISINF ? apply(v) : mix(apply(v), v, is_nan);
    y_write_f4(i, r);
}
