#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out = function(in), four elements per invocation: rare functions of floats, separate from the
// common ones to keep their modules small. Drivers may have errors of 2^-11 in inverse
// trigonometric functions, and of 2^-21 in logarithms near 1; here, these functions are computed
// from sums and products.

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
const uint ERFC = 17;
const uint ERFINV = 18;
const uint LGAMMA = 19;
const uint DIGAMMA = 20;
const uint SIGNBIT = 21;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

#include "angles.glsl"

const float NOT_A_NUMBER = uintBitsToFloat(0x7fc00000u);
const float LN_2 = 0.6931471805599453;
const float INFINITY = uintBitsToFloat(0x7f800000u);

// exp(x) - 1. Near zero by its series, up to x^8 / 8!.
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

// log(1 + x) = 2 atanh(x / (2 + x)), by its series if that argument is below 0.2.
vec4 log1p_f(const vec4 x) {
    vec4 s = x / (2.0 + x);
    vec4 s2 = s * s;
    vec4 series = 2.0 * s * (1.0 + s2 * (1.0 / 3.0 + s2 * (0.2 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0)))));
    vec4 result = mix(log(max(1.0 + x, vec4(0.0))), series, lessThan(abs(s), vec4(0.2)));
    return mix(result, vec4(NOT_A_NUMBER), lessThan(x, vec4(-1.0)));
}

// log(2 x) for large arguments, whose squares would overflow.
vec4 log_twice(const vec4 x) { return log(x) + LN_2; }

const float LARGE = 1e9;

// The value of a with the sign of x, also for zeros.
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

// e^|x| / 2, which is finite even if e^|x| overflows.
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

// Rounds to the nearest value with 16 zero bits at the end, ties to even.
vec4 to_bfloat16(const vec4 x) {
    uvec4 bits = floatBitsToUint(x);
    bits += 0x7fff + ((bits >> 16) & 1);
    return uintBitsToFloat(bits & 0xffff0000u);
}

// The complementary error function: exp(-x * x) times a fit in 1 / (1 + |x| / 2), with an error of
// 1e-8. The square is split, because its rounding error would change the exponential.
vec4 erfc_f(const vec4 x) {
    vec4 t = min(abs(x), vec4(12.0));
    vec4 u = 1.0 / (1.0 + 0.5 * t);
    vec4 fit = 0.0376009532 * u - 0.2018284265;
    fit = 0.4092377704 + u * fit;
    fit = -0.3308174147 + u * fit;
    fit = 0.0168473954 + u * fit;
    fit = 0.0112256856 + u * fit;
    fit = 0.0649485436 + u * fit;
    fit = 0.1828344169 + u * fit;
    fit = 0.2456545697 + u * fit;
    fit = 0.2822060501 + u * fit;
    fit = 0.2820904603 + u * fit;
    vec4 coarse = uintBitsToFloat(floatBitsToUint(t) & 0xfffff000u);
    vec4 r = exp(-coarse * coarse) * exp((coarse - t) * (coarse + t)) * u * fit;
    return mix(r, 2.0 - r, lessThan(x, vec4(0.0)));
}

// x times a fit in w = -log(1 - x * x) below 5, with an error of 1e-8; above, in sqrt(w), up to the
// largest float below 1, with an error of 1e-7.
vec4 erfinv_f(const vec4 x) {
    vec4 a = abs(x);
    vec4 w = mix(-log((1.0 - a) * (1.0 + a)), -log1p_f(-x * x), lessThan(a, vec4(0.5)));
    vec4 v = w - 2.5;
    vec4 near = 2.328584451e-8 - 8.739830973e-9 * v;
    near = 4.654287305e-7 + v * near;
    near = -3.463356166e-6 + v * near;
    near = -4.959743495e-6 + v * near;
    near = 2.183469147e-4 + v * near;
    near = -1.252748416e-3 + v * near;
    near = -4.177389759e-3 + v * near;
    near = 0.2466402894 + v * near;
    near = 1.50140936 + v * near;
    vec4 u = sqrt(max(w, vec4(0.0))) - 3.0;
    vec4 far = 5.349397289e-5 - 1.363912439e-4 * u;
    far = 1.267379643e-3 + u * far;
    far = -3.624142638e-3 + u * far;
    far = 5.774279206e-3 + u * far;
    far = -7.636678455e-3 + u * far;
    far = 9.433860236e-3 + u * far;
    far = 1.001675068 + u * far;
    far = 2.832977038 + u * far;
    vec4 r = x * mix(far, near, lessThan(w, vec4(5.0)));
    r = mix(r, vec4(NOT_A_NUMBER), greaterThan(a, vec4(1.0)));
    return mix(r, x * INFINITY, equal(a, vec4(1.0)));
}

const float HALF_CIRCLE = 3.14159265358979;

// The sine and the cosine of r half turns, for at most half of one.
vec4 sine_of_turns(const vec4 r) {
    vec4 t = r * HALF_CIRCLE;
    vec4 s = t * t;
    vec4 series = 1.0 / 362880.0 - s * (1.0 / 39916800.0);
    return t * (1.0 + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s * series))));
}

vec4 cosine_of_turns(const vec4 r) {
    // Computed from the zero of the cosine.
    return sine_of_turns(0.5 - abs(r));
}

// The difference from the nearest integer, from -1/2 to 1/2.
vec4 over_whole(const vec4 x) { return x - roundEven(x); }

bvec4 is_pole(const vec4 x) { return notEqual(vec4(lessThanEqual(x, vec4(0.0))) * vec4(equal(x, floor(x))), vec4(0.0)); }

// The log-gamma function for arguments of at least 1/2: near its zeros 1 and 2, by a fit of its
// quotient by (x - 1)(x - 2); above, by Stirling's series, from 8 on.
vec4 lgamma_above(const vec4 x) {
    bvec4 low = lessThan(x, vec4(1.25));
    vec4 z = mix(x - 1.5, x - 0.5, low);
    vec4 fit = -7.72675442e-4 + z * 1.36141266e-4;
    fit = 1.99503329e-3 + z * fit;
    fit = -3.48444946e-3 + z * fit;
    fit = 5.54043385e-3 + z * fit;
    fit = -9.38143047e-3 + z * fit;
    fit = 0.016772555 + z * fit;
    fit = -0.031310589 + z * fit;
    fit = 0.0629130757 + z * fit;
    fit = -0.145959874 + z * fit;
    fit = 0.483128933 + z * fit;
    // lgamma(x + 1) - log(x).
    vec4 near = mix((x - 1.0) * (x - 2.0), x * (x - 1.0), low) * fit;
    near -= mix(vec4(0.0), log1p_f(min(x, vec4(1.25)) - 1.0), low);
    bvec4 moves = lessThan(x, vec4(8.0));
    vec4 y = mix(x, x + 5.0, moves);
    vec4 factors = mix(vec4(1.0), x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0), moves);
    vec4 inverse = 1.0 / y;
    vec4 series = inverse * (1.0 / 12.0 - inverse * inverse * (1.0 / 360.0 - inverse * inverse * (1.0 / 1260.0)));
    vec4 size = log(y);
    vec4 far = y * (size - 1.0) - 0.5 * size + 0.9189385332046727 + series - mix(vec4(0.0), log(factors), moves);
    return mix(far, near, lessThan(x, vec4(2.75)));
}

vec4 lgamma_f(const vec4 x) {
    bvec4 turned = lessThan(x, vec4(0.5));
    vec4 r = lgamma_above(mix(x, 1.0 - x, turned));
    r = mix(r, log(HALF_CIRCLE / abs(sine_of_turns(over_whole(x)))) - r, turned);
    return mix(r, vec4(INFINITY), notEqual(vec4(is_pole(x)) + vec4(isinf(x)), vec4(0.0)));
}

// The derivative of log-gamma: by recurrence up to 10, then by a series.
vec4 digamma_f(const vec4 x) {
    bvec4 turned = lessThan(x, vec4(0.0));
    vec4 y = mix(x, 1.0 - x, turned);
    vec4 sum = vec4(0.0);
    for (int k = 0; k < 10; ++k) {
        bvec4 below = lessThan(y, vec4(10.0));
        sum -= mix(vec4(0.0), 1.0 / y, below);
        y += mix(vec4(0.0), vec4(1.0), below);
    }
    vec4 inverse = 1.0 / y;
    vec4 s = inverse * inverse;
    vec4 r = sum + log(y) - 0.5 * inverse - s * (1.0 / 12.0 - s * (1.0 / 120.0 - s * (1.0 / 252.0 - s * (1.0 / 240.0))));
    vec4 over = over_whole(x);
    r -= mix(vec4(0.0), HALF_CIRCLE * cosine_of_turns(over) / sine_of_turns(over), turned);
    r = mix(r, vec4(NOT_A_NUMBER), is_pole(x));
    return mix(r, with_sign(vec4(INFINITY), -x), equal(x, vec4(0.0)));
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
        case ERFC: return erfc_f(x);
        case ERFINV: return erfinv_f(x);
        case LGAMMA: return lgamma_f(x);
        case DIGAMMA: return digamma_f(x);
        case SIGNBIT: return vec4(lessThan(floatBitsToInt(x), ivec4(0)));
    }
    return x;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = x_f4(i);
    // NaN is preserved, whatever the driver's functions return.
    bvec4 is_nan = isnan(v);
    vec4 r = FUNCTION == ISNAN ? vec4(is_nan) : FUNCTION == SIGN || FUNCTION == ISINF || FUNCTION == SIGNBIT ? apply(v) : mix(apply(v), v, is_nan);
    y_write_f4(i, r);
}
