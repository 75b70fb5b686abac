// Functions on floats, four at a time.
//
// UNARY(name, function) and BINARY(name, function) declare the function `name`, which computes the
// function that the specialisation constant `function` selects. The constant is evaluated before
// anything else is compiled, which saves drivers most of their work.

#include "activations.glsl"

// Unary functions.
const uint COPY = 0;
const uint ABS = 1;
const uint NEG = 2;
const uint SQRT = 3;
const uint RSQRT = 4;
const uint EXP = 5;
const uint LOG = 6;
const uint LOG10 = 7;
const uint SIN = 8;
const uint COS = 9;
const uint TAN = 10;
const uint ROUND = 15;
const uint FLOOR = 16;
const uint CEIL = 17;
const uint HARDSHRINK = 22;
const uint LOGICAL_NOT = 23;
const uint LINE = 24;
const uint RECIPROCAL = 26;
const uint ERF = 27;
const uint ELU = 28;
const uint BITWISE_NOT = 30;
const uint CELU = 33;

// Binary functions.
const uint ADD = 0;
const uint SUB = 1;
const uint MUL = 2;
const uint DIV = 3;
const uint DIV_FLOOR = 4;
const uint DIV_TRUNC = 5;
const uint POW = 6;
const uint MINIMUM = 7;
const uint MAXIMUM = 8;
const uint EQ = 9;
const uint NE = 10;
const uint LT = 11;
const uint LE = 12;
const uint GT = 13;
const uint GE = 14;
const uint LOGICAL_AND = 15;
const uint LOGICAL_OR = 16;
const uint BITWISE_AND = 17;
const uint BITWISE_OR = 18;
const uint BITWISE_XOR = 19;
const uint LINEAR_INDEX = 20;

// The sine, shifted by `quarters` quarter turns. Drivers may have errors of 2^-11, and larger ones
// for large angles. Here, the argument is reduced by subtracting multiples of a quarter turn in
// four parts, whose products are exact.
vec4 sine_f(const vec4 x, const int quarters) {
    vec4 turns = roundEven(x * 0.6366197723675814);
    precise vec4 r = x - turns * 1.5703125;
    r -= turns * 4.825592041015625e-4;
    r -= turns * 1.26659870147705078125e-6;
    r -= turns * 9.9209357968054044e-10;
    vec4 s = r * r;
    vec4 sine = r * (1.0 + s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s * (1.0 / 362880.0)))));
    vec4 cosine = 1.0 + s * (-0.5 + s * (1.0 / 24.0 + s * (-1.0 / 720.0 + s * (1.0 / 40320.0 - s * (1.0 / 3628800.0)))));
    // For larger angles, the products are not exact.
    bvec4 near = lessThan(abs(turns), vec4(65536.0));
    ivec4 quadrant = ivec4(mix(vec4(0.0), turns, near)) + quarters;
    vec4 y = mix(sine, cosine, notEqual(quadrant & 1, ivec4(0)));
    y = mix(y, -y, notEqual(quadrant & 2, ivec4(0)));
    return mix(quarters == 0 ? sin(x) : cos(x), y, near);
}

#define UNARY(name, function) \
    vec4 name(const vec4 x, const float a, const float b) { \
        switch (function) { \
            ACTIVATION_CASES \
            case COPY: return x; \
            case ABS: return abs(x); \
            case NEG: return -x; \
            case SQRT: return sqrt(x); \
            case RSQRT: return inversesqrt(x); \
            case EXP: return exp(x); \
            case LOG: return log(x); \
            case LOG10: return log(x) * 0.4342944819032518; \
            case SIN: return sine_f(x, 0); \
            case COS: return sine_f(x, 1); \
            case TAN: return sine_f(x, 0) / sine_f(x, 1); \
            case ROUND: return roundEven(x); \
            case FLOOR: return floor(x); \
            case CEIL: return ceil(x); \
            case HARDSHRINK: return mix(x, vec4(0.0), lessThanEqual(abs(x), vec4(a))); \
            case LOGICAL_NOT: return vec4(equal(x, vec4(0.0))); \
            case LINE: return a * x + b; \
            case RECIPROCAL: return 1.0 / x; \
            case ERF: return erf_f(x); \
            case ELU: return mix(a * (exp(x) - 1.0), b * x, greaterThan(x, vec4(0.0))); \
            case CELU: return mix(a * (exp(b * x) - 1.0), x, greaterThan(x, vec4(0.0))); \
        } \
        return x; \
    }

// a - b * q without rounding the product, whose low part is computed from split operands (Dekker).
vec4 rest_f(const vec4 a, const vec4 b, const vec4 q) {
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

// floor(a / b) as in PyTorch, based on the remainder, which reveals quotients that were rounded up
// to an integer.
vec4 floor_div_f(const vec4 a, const vec4 b) {
    vec4 quotient = a / b;
    vec4 q = trunc(quotient);
    vec4 r = rest_f(a, b, q);
    vec4 zero = vec4(0.0);
    vec4 negative = vec4(notEqual(lessThan(a, zero), lessThan(b, zero)));
    vec4 over = vec4(notEqual(r, zero)) * vec4(notEqual(lessThan(r, zero), lessThan(a, zero)));
    // Rounded-up quotients are corrected towards zero; then fractions are rounded down.
    vec4 exact = vec4(equal(r, zero));
    vec4 down = (1.0 - exact) * negative * (1.0 - over);
    vec4 result = q - over * (1.0 - negative) - down;
    // The remainder cannot be computed.
    vec4 special = vec4(isnan(r)) + vec4(isinf(b)) + vec4(greaterThanEqual(abs(q), vec4(16777216.0)));
    vec4 rounded = floor(quotient);
    // An infinite divisor of the opposite sign leaves a negative fraction.
    rounded -= vec4(isinf(b)) * vec4(equal(quotient, zero)) * vec4(notEqual(a, zero)) * negative;
    result = mix(result, rounded, notEqual(special, zero));
    return mix(result, vec4(0.0 / 0.0), notEqual(vec4(isinf(a)) * vec4(notEqual(b, zero)), zero));
}

// pow for all arguments. The driver's pow is undefined for negative bases, and may be inexact at
// the ends of its range.
vec4 pow_f(const vec4 a, const vec4 b) {
    const float infinity = uintBitsToFloat(0x7f800000u);
    vec4 m = abs(a);
    vec4 p = pow(m, b);
    vec4 whole = trunc(b);
    vec4 raised = vec4(greaterThan(b, vec4(0.0)));
    // Infinite exponents, then bases of one, zero and infinity.
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

bvec4 either_is_nan(const vec4 a, const vec4 b) { return notEqual(vec4(isnan(a)) + vec4(isnan(b)), vec4(0.0)); }

// A binary function, selected by its code. Returns nothing if the code is unknown.
#define BINARY_CASES(function) \
    switch (function) { \
        case ADD: return a + alpha * b; \
        case SUB: return a - alpha * b; \
        case MUL: return a * b; \
        case DIV: return a / b; \
        case DIV_FLOOR: return floor_div_f(a, b); \
        case DIV_TRUNC: return trunc(a / b); \
        case POW: return pow_f(a, b); \
     /* NaN propagates. */ \
        case MINIMUM: return mix(min(a, b), a + b, either_is_nan(a, b)); \
        case MAXIMUM: return mix(max(a, b), a + b, either_is_nan(a, b)); \
        case EQ: return vec4(equal(a, b)); \
        case NE: return vec4(notEqual(a, b)); \
        case LT: return vec4(lessThan(a, b)); \
        case LE: return vec4(lessThanEqual(a, b)); \
        case GT: return vec4(greaterThan(a, b)); \
        case GE: return vec4(greaterThanEqual(a, b)); \
        case LOGICAL_AND: return vec4(notEqual(a, vec4(0.0))) * vec4(notEqual(b, vec4(0.0))); \
        case LOGICAL_OR: return max(vec4(notEqual(a, vec4(0.0))), vec4(notEqual(b, vec4(0.0)))); \
    }

#define BINARY(name, function) \
    vec4 name(const vec4 a, const vec4 b, const float alpha) { \
        BINARY_CASES(function) \
        return a; \
    }
