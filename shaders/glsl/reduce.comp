#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Reduces the middle of three dimensions: out[o, r] = reduce over k of in[o, k, r].
//
// An invocation of row y of the workgroup computes four outputs; the invocations in x share the
// reduction.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OTHER = 0;
layout(constant_id = 6) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;  // of the output
    uint count;  // of the reduced dimension
    uint inner;  // elements of the inner dimensions
    uint parts;  // consecutive outputs, `inner` apart, that share an element of `other`
    float scale;
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, other, OTHER) // per output; subtracted by some functions
TENSOR_OUT(2, y, OUT)

shared vec4 partial[256];
shared uvec4 partial_index[256];

const uint SUM = 0;
const uint MAX = 1;
const uint MIN = 2;
const uint ARGMAX = 3;
const uint ARGMIN = 4;
const uint SUM_EXP = 5;
const uint SUM_SQUARED_DIFFERENCE = 6;
const uint SUM_SQUARES = 7;
const uint ANY = 8;
const uint ALL = 9;
const uint PROD = 10;

const bool SEARCHES = FUNCTION == ARGMAX || FUNCTION == ARGMIN;

float start() {
    float infinity = uintBitsToFloat(0x7f800000);
    if (FUNCTION == MAX || FUNCTION == ARGMAX) return -infinity;
    if (FUNCTION == MIN || FUNCTION == ARGMIN) return infinity;
    return FUNCTION == ALL || FUNCTION == PROD ? 1.0 : 0.0;
}

float prepared(const float v, const float o) {
    if (FUNCTION == SUM_EXP) return exp(v - o);
    if (FUNCTION == SUM_SQUARED_DIFFERENCE) return (v - o) * (v - o);
    if (FUNCTION == SUM_SQUARES) return v * v;
    if (FUNCTION == ANY || FUNCTION == ALL) return v != 0.0 ? 1.0 : 0.0;
    return v;
}

float combine(const float a, const float b) {
    if (FUNCTION == MAX || FUNCTION == ANY) return isnan(a) || isnan(b) ? a + b : max(a, b);
    if (FUNCTION == MIN || FUNCTION == ALL) return isnan(a) || isnan(b) ? a + b : min(a, b);
    if (FUNCTION == PROD) return a * b;
    return a + b;
}

// Whether candidate (b, j) replaces (a, i). NaN counts as the extreme; the first of equal elements
// wins.
bool replaces(const float a, const uint i, const float b, const uint j) {
    if (isnan(a)) return isnan(b) && j < i;
    if (isnan(b)) return true;
    if (a == b) return j < i;
    return FUNCTION == ARGMAX ? b > a : b < a;
}

void main() {
    uint lanes = gl_WorkGroupSize.x;
    uint lane = gl_LocalInvocationID.x;
    uint slot = gl_LocalInvocationID.y * lanes + lane;
    uint i = invocation_y() * 4;
    vec4 sum = vec4(start());
    uvec4 best = uvec4(0xffffffffu);
    if (i < push.numel) {
        // Outputs beyond the last are clamped and not used, so that all four are read together.
        uvec4 at = min(i + uvec4(0, 1, 2, 3), uvec4(push.numel - 1));
        uvec4 base = at / push.inner * push.count * push.inner + at % push.inner;
        vec4 o = vec4(0);
        if (FUNCTION == SUM_EXP || FUNCTION == SUM_SQUARED_DIFFERENCE) {
            uvec4 from = at / push.inner / push.parts * push.inner + at % push.inner;
            o = vec4(other_f(from.x), other_f(from.y), other_f(from.z), other_f(from.w));
        }
        for (uint j = lane; j < push.count; j += lanes) {
            uvec4 from = base + j * push.inner;
            vec4 read = vec4(x_f(from.x), x_f(from.y), x_f(from.z), x_f(from.w));
            [[unroll]] for (uint k = 0; k < 4; ++k) {
                float v = read[k];
                if (SEARCHES) {
                    if (best[k] == 0xffffffffu || replaces(sum[k], best[k], v, j)) {
                        sum[k] = v;
                        best[k] = j;
                    }
                } else {
                    sum[k] = combine(sum[k], prepared(v, o[k]));
                }
            }
        }
    }
    partial[slot] = sum;
    if (SEARCHES) partial_index[slot] = best;
    for (uint half_lanes = lanes / 2; half_lanes > 0; half_lanes /= 2) {
        barrier();
        if (lane < half_lanes) {
            vec4 b = partial[slot + half_lanes];
            if (SEARCHES) {
                uvec4 j = partial_index[slot + half_lanes];
                [[unroll]] for (uint k = 0; k < 4; ++k) {
                    if (j[k] != 0xffffffffu && (best[k] == 0xffffffffu || replaces(sum[k], best[k], b[k], j[k]))) {
                        sum[k] = b[k];
                        best[k] = j[k];
                    }
                }
                partial_index[slot] = best;
            } else {
                [[unroll]] for (uint k = 0; k < 4; ++k) sum[k] = combine(sum[k], b[k]);
            }
            partial[slot] = sum;
        }
    }
    if (lane == 0 && i < push.numel) {
        if (SEARCHES) y_write_i4(i, ivec4(best));
        else if (is_float(OUT)) y_write_f4(i, sum * push.scale);
        else y_write_i4(i, ivec4(round(sum * push.scale)));
    }
}
