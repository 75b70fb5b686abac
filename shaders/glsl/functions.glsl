// Functions of floating-point numbers, four at a time.
//
// UNARY(name, function) and BINARY(name, function) declare one for a specialisation constant: the choice is then made before
// anything else is compiled, which saves drivers most of their work.

#include "activations.glsl"

// The sine after so many quarter turns. Drivers may err by 2^-11 in sines, and by more for large angles. Here, what is
// left of an angle after whole quarter turns is found by subtracting a quarter turn in four parts, whose multiples are exact.
vec4 sine_f(vec4 x, int quarters) {
    vec4 turns = roundEven(x * 0.6366197723675814);
    precise vec4 r = x - turns * 1.5703125;
    r -= turns * 4.825592041015625e-4;
    r -= turns * 1.26659870147705078125e-6;
    r -= turns * 9.9209357968054044e-10;
    vec4 s = r * r;
    vec4 sine = r * (1.0 + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s * (1.0 / 362880.0)))));
    vec4 cosine = 1.0 + s * (-0.5 + s * (1.0 / 24.0 + s * (-1.0 / 720.0 + s * (1.0 / 40320.0 - s * (1.0 / 3628800.0)))));
    // Beyond, multiples are not exact.
    bvec4 near = lessThan(abs(turns), vec4(65536.0));
    ivec4 quadrant = ivec4(mix(vec4(0.0), turns, near)) + quarters;
    vec4 y = mix(sine, cosine, notEqual(quadrant & 1, ivec4(0)));
    y = mix(y, -y, notEqual(quadrant & 2, ivec4(0)));
    return mix(quarters == 0 ? sin(x) : cos(x), y, near);
}

#define UNARY(name, function) \
    vec4 name(vec4 x, float a, float b) { \
        switch (function) { \
            ACTIVATION_CASES \
            case 0: return x; \
            case 1: return abs(x); \
            case 2: return -x; \
            case 3: return sqrt(x); \
            case 4: return inversesqrt(x); \
            case 5: return exp(x); \
            case 6: return log(x); \
            case 7: return log(x) * 0.4342944819032518; \
            case 8: return sine_f(x, 0); \
            case 9: return sine_f(x, 1); \
            case 10: return sine_f(x, 0) / sine_f(x, 1); \
            case 15: return roundEven(x); \
            case 16: return floor(x); \
            case 17: return ceil(x); \
            case 22: return mix(x, vec4(0.0), lessThanEqual(abs(x), vec4(a))); /* hardshrink */ \
            case 23: return vec4(equal(x, vec4(0.0))); /* logical not */ \
            case 24: return a * x + b; \
            case 26: return 1.0 / x; \
            case 27: return erf_f(x); \
            case 28: return mix(a * (exp(x) - 1.0), x, greaterThan(x, vec4(0.0))); /* elu */ \
        } \
        return x; \
    }

// a - b * q without rounding the product: its low half comes from halves of the factors.
vec4 rest_f(vec4 a, vec4 b, vec4 q) {
    precise vec4 product = b * q;
    precise vec4 b_far = b * 4097.0;
    precise vec4 q_far = q * 4097.0;
    precise vec4 b_high = b_far - (b_far - b);
    precise vec4 q_high = q_far - (q_far - q);
    precise vec4 b_low = b - b_high;
    precise vec4 q_low = q - q_high;
    precise vec4 low = ((b_high * q_high - product) + b_high * q_low + b_low * q_high) + b_low * q_low;
    precise vec4 r = a - product;
    return r - low;
}

// floor(a / b) as PyTorch has it: from the remainder, so that a quotient that was rounded up to a whole number is seen.
vec4 floor_div_f(vec4 a, vec4 b) {
    vec4 quotient = a / b;
    vec4 q = trunc(quotient);
    vec4 r = rest_f(a, b, q);
    vec4 zero = vec4(0.0);
    vec4 negative = vec4(notEqual(lessThan(a, zero), lessThan(b, zero)));
    vec4 over = vec4(notEqual(r, zero)) * vec4(notEqual(lessThan(r, zero), lessThan(a, zero)));
    // What was rounded up goes back to the number before, towards zero; then, fractions go down.
    vec4 exact = vec4(equal(r, zero));
    vec4 down = (1.0 - exact) * negative * (1.0 - over);
    vec4 result = q - over * (1.0 - negative) - down;
    // Where there is no remainder to find.
    vec4 special = vec4(isnan(r)) + vec4(isinf(b)) + vec4(greaterThanEqual(abs(q), vec4(16777216.0)));
    vec4 rounded = floor(quotient);
    // An infinite divisor of the other sign leaves a fraction below zero.
    rounded -= vec4(isinf(b)) * vec4(equal(quotient, zero)) * vec4(notEqual(a, zero)) * negative;
    result = mix(result, rounded, notEqual(special, zero));
    return mix(result, vec4(0.0 / 0.0), notEqual(vec4(isinf(a)) * vec4(notEqual(b, zero)), zero));
}

// pow for all numbers; the driver's is undefined below zero, and need not be right at the ends.
vec4 pow_f(vec4 a, vec4 b) {
    const float infinity = uintBitsToFloat(0x7f800000u);
    vec4 m = abs(a);
    vec4 p = pow(m, b);
    vec4 whole = trunc(b);
    vec4 raised = vec4(greaterThan(b, vec4(0.0)));
    // Where the exponent is infinite; then where the base is one of the ends.
    p = mix(p, mix(vec4(0.0), vec4(infinity), equal(vec4(greaterThan(m, vec4(1.0))), raised)), isinf(b));
    p = mix(p, vec4(1.0), equal(m, vec4(1.0)));
    p = mix(p, mix(vec4(infinity), vec4(0.0), greaterThan(raised, vec4(0.5))), equal(m, vec4(0.0)));
    p = mix(p, mix(vec4(0.0), vec4(infinity), greaterThan(raised, vec4(0.5))), isinf(m));
    bvec4 odd = notEqual(trunc(whole * 0.5) * 2.0, whole);
    bvec4 inner = notEqual(vec4(notEqual(m, vec4(0.0))) * vec4(not(isinf(m))), vec4(0.0));
    vec4 of_negative = mix(mix(p, -p, odd), mix(p, vec4(0.0 / 0.0), inner), notEqual(whole, b));
    p = mix(of_negative, p, greaterThanEqual(floatBitsToInt(a), ivec4(0)));
    p = mix(p, a + b, notEqual(vec4(isnan(a)) + vec4(isnan(b)), vec4(0.0)));
    p = mix(p, a * a, equal(b, vec4(2.0)));
    p = mix(p, sqrt(a), equal(b, vec4(0.5)));
    p = mix(p, inversesqrt(a), equal(b, vec4(-0.5)));
    return mix(p, vec4(1.0), notEqual(vec4(equal(b, vec4(0.0))) + vec4(equal(a, vec4(1.0))), vec4(0.0)));
}

bvec4 either_is_nan(vec4 a, vec4 b) { return notEqual(vec4(isnan(a)) + vec4(isnan(b)), vec4(0.0)); }

#define BINARY(name, function) \
    vec4 name(vec4 a, vec4 b, float alpha) { \
        switch (function) { \
            case 0: return a + alpha * b; \
            case 1: return a - alpha * b; \
            case 2: return a * b; \
            case 3: return a / b; \
            case 4: return floor_div_f(a, b); \
            case 5: return trunc(a / b); \
            case 6: return pow_f(a, b); \
     /* NaN is contagious. */ \
            case 7: return mix(min(a, b), a + b, either_is_nan(a, b)); \
            case 8: return mix(max(a, b), a + b, either_is_nan(a, b)); \
            case 9: return vec4(equal(a, b)); \
            case 10: return vec4(notEqual(a, b)); \
            case 11: return vec4(lessThan(a, b)); \
            case 12: return vec4(lessThanEqual(a, b)); \
            case 13: return vec4(greaterThan(a, b)); \
            case 14: return vec4(greaterThanEqual(a, b)); \
            case 15: return vec4(notEqual(a, vec4(0.0))) * vec4(notEqual(b, vec4(0.0))); \
            case 16: return max(vec4(notEqual(a, vec4(0.0))), vec4(notEqual(b, vec4(0.0)))); \
        } \
        return a; \
    }
