#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "functions.glsl"
#include "angles.glsl"

// out = function(a, b), with a and b broadcast to the output's shape; four elements per invocation.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint A = 0;
layout(constant_id = 5) const uint B = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint SAME_LAYOUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    float alpha;
    int alpha_int;
    uint sizes[8];
    uint a_strides[8];
    uint b_strides[8];
} push;

TENSOR_IN(0, a, A)
TENSOR_IN(1, b, B)
TENSOR_OUT(2, y, OUT)

// Functions that chains do not support; functions.glsl has the others.
const uint FMOD = 21;
const uint REMAINDER = 22;
const uint ATAN2 = 23;
const uint FMAX = 24;
const uint FMIN = 25;
const uint HYPOT = 26;
const uint COPYSIGN = 27;
const uint SHIFT_LEFT = 28;
const uint SHIFT_RIGHT = 29;
const uint LOGICAL_XOR = 30;

BINARY(common_f, FUNCTION)

// The remainder of a / b with the sign of a, exactly. An iteration subtracts a quotient of 23 bits,
// so that twelve suffice for the whole range from the largest to the least normal value. Quotients
// that would overflow are reduced in steps, by multiples of b. For large b, the exact product would
// overflow, so both operands are scaled by a power of two.
vec4 fmod_f(const vec4 a, const vec4 b) {
    const float STEP = 1.2676506002282294e30; // 2^100
    vec4 less = mix(vec4(1.0), vec4(1.0 / 1073741824.0), greaterThan(abs(b), vec4(STEP)));
    vec4 r = a * less;
    vec4 d = b * less;
    // Successively, because the square of STEP overflows.
    precise vec4 once = d * STEP;
    precise vec4 twice = once * STEP;
    for (int turn = 0; turn < 12; ++turn) {
        bvec4 more = greaterThanEqual(abs(r), abs(d));
        if (!any(more)) break;
        vec4 by = mix(d, once, greaterThan(abs(r), abs(once)));
        by = mix(by, twice, greaterThan(abs(r), abs(twice)));
        r = mix(r, rest_f(r, by, trunc(r / by)), more);
    }
    // A quotient may have been rounded up to an integer.
    r += mix(vec4(0.0), sign(a) * abs(d), lessThan(r * sign(a), vec4(0.0)));
    r = mix(r / less, a * 0.0, equal(r, vec4(0.0)));
    r = mix(r, a, isinf(b));
    vec4 none = vec4(isinf(a)) + vec4(equal(b, vec4(0.0))) + vec4(either_is_nan(a, b));
    return mix(r, vec4(0.0 / 0.0), notEqual(none, vec4(0.0)));
}

// sqrt(a² + b²), scaled by a power of two if the squares would overflow or underflow.
vec4 hypot_f(const vec4 a, const vec4 b) {
    const float SMALL = 8.673617379884035e-19; // 2^-60
    const float UP = 1.2089258196146292e24;    // 2^80
    const float DOWN = 8.470329472543003e-22;  // 2^-70
    vec4 most = max(abs(a), abs(b));
    vec4 by = mix(vec4(1.0), vec4(UP), lessThan(most, vec4(SMALL)));
    by = mix(by, vec4(DOWN), greaterThan(most, vec4(1.0 / SMALL)));
    vec4 back = mix(vec4(1.0), vec4(1.0 / UP), lessThan(most, vec4(SMALL)));
    back = mix(back, vec4(1.0 / DOWN), greaterThan(most, vec4(1.0 / SMALL)));
    vec4 u = a * by;
    vec4 v = b * by;
    vec4 r = sqrt(u * u + v * v) * back;
    r = mix(r, a + b, either_is_nan(a, b));
    return mix(r, vec4(uintBitsToFloat(0x7f800000u)), notEqual(vec4(isinf(a)) + vec4(isinf(b)), vec4(0.0)));
}

vec4 with_sign_of(const vec4 a, const vec4 b) {
    return uintBitsToFloat((floatBitsToUint(a) & 0x7fffffffu) | (floatBitsToUint(b) & 0x80000000u));
}

vec4 apply_f(const vec4 a, const vec4 b, const float alpha) {
    switch (FUNCTION) {
        case ATAN2: return atan2_f(a, b);
        // NaN only if both operands are NaN.
        case FMAX: return mix(mix(max(a, b), b, isnan(a)), a, isnan(b));
        case FMIN: return mix(mix(min(a, b), b, isnan(a)), a, isnan(b));
        case HYPOT: return hypot_f(a, b);
        case COPYSIGN: return with_sign_of(a, b);
        case LOGICAL_XOR: return vec4(notEqual(vec4(notEqual(a, vec4(0.0))), vec4(notEqual(b, vec4(0.0)))));
    }
    if (FUNCTION != FMOD && FUNCTION != REMAINDER) return common_f(a, b, alpha);
    vec4 r = fmod_f(a, b);
    if (FUNCTION == FMOD) return r;
    vec4 other_side = vec4(notEqual(r, vec4(0.0))) * vec4(notEqual(lessThan(r, vec4(0.0)), lessThan(b, vec4(0.0))));
    return mix(r, r + b, greaterThan(other_side, vec4(0.5)));
}

// Integer powers. Those with negative exponents are fractions, rounded towards zero.
int power_of(int a, int b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (b & 1) : 0;
    int result = 1;
    for (; b > 0; b >>= 1) {
        if ((b & 1) != 0) result *= a;
        a *= a;
    }
    return result;
}

int apply_i(const int a, const int b) {
    switch (FUNCTION) {
        case ADD: return a + push.alpha_int * b;
        case SUB: return a - push.alpha_int * b;
        case MUL: return a * b;
        case DIV_FLOOR: {
            if (b == 0) return 0;
            int q = a / b;
            return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
        }
        case DIV:
        case DIV_TRUNC: return b == 0 ? 0 : a / b;
        case POW: return power_of(a, b);
        case FMIN:
        case MINIMUM: return min(a, b);
        case FMAX:
        case MAXIMUM: return max(a, b);
        case EQ: return int(a == b);
        case NE: return int(a != b);
        case LT: return int(a < b);
        case LE: return int(a <= b);
        case GT: return int(a > b);
        case GE: return int(a >= b);
        case LOGICAL_AND: return int(a != 0 && b != 0);
        case LOGICAL_OR: return int(a != 0 || b != 0);
        case BITWISE_AND: return a & b;
        case BITWISE_OR: return a | b;
        case BITWISE_XOR: return a ^ b;
        case LOGICAL_XOR: return int((a != 0) != (b != 0));
        // Negative or too large shift counts shift out all bits.
        case SHIFT_LEFT: return b < 0 || b > 31 ? 0 : a << b;
        case SHIFT_RIGHT: return a >> (b < 0 || b > 31 ? 31 : b);
        case FMOD: return b == 0 ? 0 : a - a / b * b;
        case REMAINDER: {
            if (b == 0) return 0;
            int r = a - a / b * b;
            return r != 0 && (r < 0) != (b < 0) ? r + b : r;
        }
        case LINEAR_INDEX: return a * push.alpha_int + (b < 0 ? b + push.alpha_int : b); // b may count from the end
    }
    return a;
}

uvec2 places(uint i) {
    if (SAME_LAYOUT != 0) return uvec2(i);
    uvec2 at = uvec2(0);
    [[unroll]] for (int d = 7; d >= 0; --d) {
        uint size = push.sizes[d];
        uint index = i % size;
        i /= size;
        at += index * uvec2(push.a_strides[d], push.b_strides[d]);
    }
    return at;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    bool floating = is_float(A) || is_float(B) || (is_float(OUT) && (FUNCTION < EQ || FUNCTION == ATAN2 || FUNCTION == COPYSIGN));
    if (SAME_LAYOUT != 0 && floating) {
        y_write_f4(i, apply_f(a_f4(i), b_f4(i), push.alpha));
        return;
    }
    if (floating) {
        vec4 u = vec4(0);
        vec4 v = vec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (i + k < push.numel) {
                uvec2 at = places(i + k);
                u[k] = a_f(at.x);
                v[k] = b_f(at.y);
            }
        }
        y_write_f4(i, apply_f(u, v, push.alpha));
    } else {
        ivec4 r = ivec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (i + k < push.numel) {
                uvec2 at = places(i + k);
                r[k] = apply_i(a_i(at.x), b_i(at.y));
            }
        }
        y_write_i4(i, r);
    }
}
