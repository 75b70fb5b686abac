#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// out = function(a, b), with a and b broadcast to the output's shape, four elements an invocation.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint A = 0;
layout(constant_id = 5) const uint B = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint SAME_LAYOUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    float alpha;
    uint sizes[8];
    uint a_strides[8];
    uint b_strides[8];
} push;

TENSOR_IN(0, a, A)
TENSOR_IN(1, b, B)
TENSOR_OUT(2, y, OUT)

// floor(a / b) as PyTorch has it: exact where the quotient is.
float floor_div(float a, float b) {
    float r = a - b * trunc(a / b);
    float q = (a - r) / b;
    if (r != 0.0 && (b < 0.0) != (r < 0.0)) q -= 1.0;
    return b == 0.0 ? a / b : q == 0.0 ? q : floor(q + 0.5);
}

// pow for all signs; the driver's is undefined below zero.
float pow_of(float a, float b) {
    if (b == 0.0) return 1.0;
    if (b == 2.0) return a * a;
    if (b == 0.5) return sqrt(a);
    float p = pow(abs(a), b);
    if (a >= 0.0) return p;
    float whole = trunc(b);
    if (whole != b) return 0.0 / 0.0;
    return mod(whole, 2.0) == 0.0 ? p : -p;
}

float apply_f(float a, float b) {
    switch (FUNCTION) {
        case 0: return a + push.alpha * b;
        case 1: return a - push.alpha * b;
        case 2: return a * b;
        case 3: return a / b;
        case 4: return floor_div(a, b);
        case 5: return trunc(a / b);
        case 6: return pow_of(a, b);
        case 7: return isnan(a) || isnan(b) ? a + b : min(a, b);
        case 8: return isnan(a) || isnan(b) ? a + b : max(a, b);
        case 9: return a == b ? 1.0 : 0.0;
        case 10: return a != b ? 1.0 : 0.0;
        case 11: return a < b ? 1.0 : 0.0;
        case 12: return a <= b ? 1.0 : 0.0;
        case 13: return a > b ? 1.0 : 0.0;
        case 14: return a >= b ? 1.0 : 0.0;
        case 15: return a != 0.0 && b != 0.0 ? 1.0 : 0.0;
        case 16: return a != 0.0 || b != 0.0 ? 1.0 : 0.0;
    }
    return a;
}

int apply_i(int a, int b) {
    switch (FUNCTION) {
        case 0: return a + int(push.alpha) * b;
        case 1: return a - int(push.alpha) * b;
        case 2: return a * b;
        case 4: {
            if (b == 0) return 0;
            int q = a / b;
            return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
        }
        case 3:
        case 5: return b == 0 ? 0 : a / b;
        case 7: return min(a, b);
        case 8: return max(a, b);
        case 9: return int(a == b);
        case 10: return int(a != b);
        case 11: return int(a < b);
        case 12: return int(a <= b);
        case 13: return int(a > b);
        case 14: return int(a >= b);
        case 15: return int(a != 0 && b != 0);
        case 16: return int(a != 0 || b != 0);
        case 17: return a & b;
        case 18: return a | b;
        case 19: return a ^ b;
        case 20: return a * int(push.alpha) + b; // linear index
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
    uint i = gl_GlobalInvocationID.x * 4;
    if (i >= push.numel) return;
    bool floating = is_float(A) || is_float(B) || (is_float(OUT) && FUNCTION < 9);
    if (SAME_LAYOUT != 0 && floating) {
        vec4 u = a_f4(i);
        vec4 v = b_f4(i);
        y_write_f4(i, vec4(apply_f(u.x, v.x), apply_f(u.y, v.y), apply_f(u.z, v.z), apply_f(u.w, v.w)));
        return;
    }
    if (floating) {
        vec4 r = vec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (i + k < push.numel) {
                uvec2 at = places(i + k);
                r[k] = apply_f(a_f(at.x), b_f(at.y));
            }
        }
        y_write_f4(i, r);
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
