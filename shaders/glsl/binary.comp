#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "functions.glsl"

// out = function(a, b), with a and b broadcast to the output's shape, four elements an invocation.

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

BINARY(apply_f, FUNCTION)

// Powers of integers; those of negative exponents are fractions, rounded towards zero.
int power_of(int a, int b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (b & 1) : 0;
    int result = 1;
    for (; b > 0; b >>= 1) {
        if ((b & 1) != 0) result *= a;
        a *= a;
    }
    return result;
}

int apply_i(int a, int b) {
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
        case MINIMUM: return min(a, b);
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
    bool floating = is_float(A) || is_float(B) || (is_float(OUT) && FUNCTION < EQ);
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
