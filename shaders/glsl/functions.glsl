// Functions of floating-point numbers, four at a time.
//
// UNARY(name, function) and BINARY(name, function) declare one for a specialisation constant: the choice is then made before
// anything else is compiled, which saves drivers most of their work.

// exp(-x * x) times a fit in 1 / (1 + |x| / 2) for large numbers, and a fit in x * x for small ones: to 1e-7 of the result.
vec4 erf_f(vec4 x) {
    vec4 t = abs(x);
    vec4 u = 1.0 / (1.0 + 0.5 * t);
    vec4 far = ((((((0.0735823402 * u - 0.3265623) * u + 0.370369205) * u + 0.037130519) * u + 0.28710805) * u + 0.275170171) * u
        + 0.282746974) * u - 2.58693092e-05;
    vec4 s = min(x * x, 1.0);
    vec4 near = (((((7.85385995e-05 * s - 8.0101932e-04) * s + 0.00518832764) * s - 0.0268538119) * s + 0.112835851) * s
        - 0.376126258) * s + 1.12837917;
    return mix(sign(x) * (1.0 - exp(-t * t) * far), x * near, lessThan(t, vec4(1.0)));
}

// tanh that neither overflows nor depends on how the driver's tanh does.
vec4 tanh_f(vec4 x) {
    vec4 t = mix(clamp(x, -15.0, 15.0), x, isnan(x));
    vec4 e = exp(-2.0 * abs(t));
    vec4 s = t * t;
    vec4 near = t * (1.0 - s * (1.0 / 3.0 - s * (2.0 / 15.0)));
    return mix(sign(t) * (1.0 - e) / (1.0 + e), near, lessThan(abs(t), vec4(0.05)));
}

// NaN stays.
vec4 clamp_f(vec4 x, float low, float high) {
    x = mix(x, vec4(low), lessThan(x, vec4(low)));
    return mix(x, vec4(high), greaterThan(x, vec4(high)));
}

#define UNARY(name, function) \
    vec4 name(vec4 x, float a, float b) { \
        switch (function) { \
            case 0: return x; \
            case 1: return abs(x); \
            case 2: return -x; \
            case 3: return sqrt(x); \
            case 4: return inversesqrt(x); \
            case 5: return exp(x); \
            case 6: return log(x); \
            case 7: return log(x) * 0.4342944819032518; \
            case 8: return sin(x); \
            case 9: return cos(x); \
            case 10: return tan(x); \
            case 11: return tanh_f(x); \
            case 12: return 1.0 / (1.0 + exp(-x)); \
            case 13: return 0.5 * x * (1.0 + erf_f(x * 0.7071067811865476)); \
            case 14: return 0.5 * x * (1.0 + tanh_f(0.7978845608028654 * (x + 0.044715 * x * x * x))); \
            case 15: return roundEven(x); \
            case 16: return floor(x); \
            case 17: return ceil(x); \
            case 18: return clamp_f(x, a, b); \
            case 19: return mix(x * a, x, greaterThan(x, vec4(0.0))); /* leaky relu */ \
            case 20: return x * clamp_f(x + 3.0, 0.0, 6.0) / 6.0; /* hardswish */ \
            case 21: return clamp_f(x + 3.0, 0.0, 6.0) / 6.0; /* hardsigmoid */ \
            case 22: return mix(x, vec4(0.0), lessThanEqual(abs(x), vec4(a))); /* hardshrink */ \
            case 23: return vec4(equal(x, vec4(0.0))); /* logical not */ \
            case 24: return a * x + b; \
            case 25: return x / (1.0 + exp(-x)); /* silu */ \
            case 26: return 1.0 / x; \
            case 27: return erf_f(x); \
            case 28: return mix(a * (exp(x) - 1.0), x, greaterThan(x, vec4(0.0))); /* elu */ \
        } \
        return x; \
    }

// floor(a / b) as PyTorch has it: exact where the quotient is.
vec4 floor_div_f(vec4 a, vec4 b) {
    vec4 r = a - b * trunc(a / b);
    vec4 q = (a - r) / b;
    bvec4 apart = notEqual(lessThan(b, vec4(0.0)), lessThan(r, vec4(0.0)));
    q -= vec4(notEqual(r, vec4(0.0))) * vec4(apart);
    q = mix(floor(q + 0.5), q, equal(q, vec4(0.0)));
    return mix(q, a / b, equal(b, vec4(0.0)));
}

// pow for all signs; the driver's is undefined below zero.
vec4 pow_f(vec4 a, vec4 b) {
    vec4 whole = trunc(b);
    vec4 p = pow(abs(a), b);
    vec4 negative = mix(vec4(0.0 / 0.0), mix(-p, p, equal(mod(whole, 2.0), vec4(0.0))), equal(whole, b));
    p = mix(negative, p, greaterThanEqual(a, vec4(0.0)));
    p = mix(p, a * a, equal(b, vec4(2.0)));
    p = mix(p, sqrt(a), equal(b, vec4(0.5)));
    return mix(p, vec4(1.0), equal(b, vec4(0.0)));
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
