// Activations in epilogues of GEMMs and convolutions, on four values at a time.
//
// ACTIVATIONS(name, function) declares the function `name`, which computes the activation that the
// specialisation constant `function` selects; functions.glsl has further functions. The number of
// activations is kept small so that shaders compile quickly. A shader that applies several
// activations defines ACTIVATIONS_OF as the name of a function that selects among all activations
// by its first argument, so that their code is included only once.

const uint TANH = 11;
const uint SIGMOID = 12;
const uint GELU = 13;
const uint GELU_TANH = 14;
const uint CLAMP = 18;
const uint LEAKY_RELU = 19;
const uint HARDSWISH = 20;
const uint HARDSIGMOID = 21;
const uint SILU = 25;

// exp(-x * x) times a fit in 1 / (1 + |x| / 2) for large values, and a fit in x * x for small ones.
// The relative error is 1e-7.
vec4 erf_f(const vec4 x) {
    vec4 t = abs(x);
    vec4 u = 1.0 / (1.0 + 0.5 * t);
    vec4 far = ((((((0.0735823402 * u - 0.3265623) * u + 0.370369205) * u + 0.037130519) * u + 0.28710805) * u + 0.275170171) * u
        + 0.282746974) * u - 2.58693092e-05;
    vec4 s = min(x * x, 1.0);
    vec4 near = (((((7.85385995e-05 * s - 8.0101932e-04) * s + 0.00518832764) * s - 0.0268538119) * s + 0.112835851) * s
        - 0.376126258) * s + 1.12837917;
    return mix(sign(x) * (1.0 - exp(-t * t) * far), x * near, lessThan(t, vec4(1.0)));
}

// tanh that does not overflow and does not depend on the driver's tanh.
vec4 tanh_f(const vec4 x) {
    vec4 t = mix(clamp(x, -15.0, 15.0), x, isnan(x));
    vec4 e = exp(-2.0 * abs(t));
    vec4 s = t * t;
    vec4 near = t * (1.0 - s * (1.0 / 3.0 - s * (2.0 / 15.0)));
    return mix(sign(t) * (1.0 - e) / (1.0 + e), near, lessThan(abs(t), vec4(0.05)));
}

// NaN is preserved explicitly: compilers turn comparisons into min and max, which may return the
// other operand.
vec4 clamp_f(const vec4 x, const float low, const float high) {
    return mix(min(max(x, low), high), x, isnan(x));
}

#define ACTIVATION_CASES \
    case TANH: return tanh_f(x); \
    case SIGMOID: return 1.0 / (1.0 + exp(-x)); \
    case GELU: return 0.5 * x * (1.0 + erf_f(x * 0.7071067811865476)); \
    case GELU_TANH: return 0.5 * x * (1.0 + tanh_f(0.7978845608028654 * (x + 0.044715 * x * x * x))); \
    case CLAMP: return clamp_f(x, a, b); \
    case LEAKY_RELU: return mix(x * a, x, greaterThan(x, vec4(0.0))); \
    case HARDSWISH: return x * clamp_f(x + 3.0, 0.0, 6.0) / 6.0; \
    case HARDSIGMOID: return clamp_f(x + 3.0, 0.0, 6.0) / 6.0; \
    case SILU: return x / (1.0 + exp(-x));

#define ACTIVATIONS(name, function) \
    vec4 name(const vec4 x, const float a, const float b) { \
        switch (function) { \
            ACTIVATION_CASES \
        } \
        return x; \
    }

#ifdef ACTIVATIONS_OF
vec4 ACTIVATIONS_OF(const uint function, const vec4 x, const float a, const float b) {
    switch (function) {
        ACTIVATION_CASES
    }
    return x;
}
#undef ACTIVATIONS
#define ACTIVATIONS(name, function) \
    vec4 name(const vec4 x, const float a, const float b) { return ACTIVATIONS_OF(function, x, a, b); }
#endif
