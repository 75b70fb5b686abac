// Inverse trigonometric functions.

const float HALF_TURN = 3.14159265358979;

// atan for arguments between 0 and 1, with an error of 2e-8: Abramowitz and Stegun, 4.4.49.
vec4 atan_of_fraction(const vec4 t) {
    vec4 s = t * t;
    vec4 r = -0.0161657367 + s * 0.0028662257;
    r = 0.0429096138 + s * r;
    r = -0.0752896400 + s * r;
    r = 0.1065626393 + s * r;
    r = -0.1420889944 + s * r;
    r = 0.1999355085 + s * r;
    r = -0.3333314528 + s * r;
    return t * (1.0 + s * r);
}

// The angle of a point. The result has the sign of y, also for zeros.
vec4 atan2_f(const vec4 y, const vec4 x) {
    vec4 a = abs(y);
    vec4 b = abs(x);
    vec4 least = min(a, b);
    vec4 most = max(a, b);
    vec4 t = least / most;
    t = mix(t, vec4(0.0), equal(most, vec4(0.0)));
    t = mix(t, vec4(1.0), isinf(least));
    vec4 r = atan_of_fraction(t);
    r = mix(r, HALF_TURN / 2.0 - r, greaterThan(a, b));
    r = mix(r, HALF_TURN - r, lessThan(floatBitsToInt(x), ivec4(0)));
    r = mix(r, -r, lessThan(floatBitsToInt(y), ivec4(0)));
    return mix(r, x + y, notEqual(vec4(isnan(x)) + vec4(isnan(y)), vec4(0.0)));
}

vec4 atan_f(const vec4 x) { return atan2_f(x, vec4(1.0)); }

// sqrt(1 - x²); NaN outside of [-1, 1].
vec4 other_side(const vec4 x) {
    vec4 square = (1.0 - x) * (1.0 + x);
    return mix(sqrt(max(square, vec4(0.0))), vec4(uintBitsToFloat(0x7fc00000u)), lessThan(square, vec4(0.0)));
}

vec4 asin_f(const vec4 x) { return atan2_f(x, other_side(x)); }

vec4 acos_f(const vec4 x) { return atan2_f(other_side(x), x); }
