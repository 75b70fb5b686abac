#version 450
//! module linear_quantized
//! module linear_quantized_dot DOT
#extension GL_GOOGLE_include_directive : require
#ifdef DOT
#extension GL_EXT_integer_dot_product : require
#endif
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// out[m, n] = bias[n] + sum over k of x[m, k] * weight[n, k] * scale[k / group, n], with 8-bit or
// 4-bit weights.
//
// x is floating point, or quantized with one scale and zero point in total or per row. An
// invocation of row y of the workgroup computes four neighbouring outputs (of ROWS rows); the
// invocations in x share the sum.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint SCALE = 0;
layout(constant_id = 5) const uint BIAS = 0;
layout(constant_id = 6) const uint IN_SCALE = 0;
layout(constant_id = 7) const uint IN_ZERO = 0;
layout(constant_id = 8) const uint OUT = 0;
layout(constant_id = 9) const uint WEIGHT = 0; // 0: bytes; 1: nibbles, low one first; 2: nibbles, high one first
layout(constant_id = 10) const uint HAS_BIAS = 0;
layout(constant_id = 11) const uint BY_ROW = 0; // x_scale and x_zero have one element per row
layout(constant_id = 12) const uint ALIGNED = 0; // rows of x and of the weights can be read four elements at a time
layout(constant_id = 13) const uint GROUPED = 0; // scales per group of k
layout(constant_id = 14) const uint ROWS = 1; // 0: n is not a multiple of four
layout(constant_id = 15) const uint ACTIVATION = 0; // see epilogue.glsl
layout(constant_id = 16) const uint RESIDUAL = 0;
layout(constant_id = 17) const uint HAS_RESIDUAL = 0;

layout(push_constant) uniform Push {
    uint m;
    uint n;
    uint k;
    uint weight_row; // bytes
    uint group;
    uint scale_row;
    float input_scale;
    int input_zero;
    float out_inverse; // reciprocal of the output's scale, if it is quantized
    float out_zero;
    float a; // of the activation
    float b;
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, weight, U8)
TENSOR_IN(2, scale, SCALE)
TENSOR_IN(3, bias, BIAS)
TENSOR_IN(4, x_scale, IN_SCALE)
TENSOR_IN(5, x_zero, IN_ZERO)
// Shares the binding of x_scale, if that is unused.
RUN_IN(4, residual, RESIDUAL)
TENSOR_OUT(6, y, OUT)

#include "epilogue.glsl"

shared vec4 partial[64];

const bool FLOATING = IN == F32 || IN == F16;

ivec4 weights(const uint n, const uint k) {
    uint row = n * push.weight_row;
    if (ALIGNED == 0) {
        if (WEIGHT == 0) return ivec4(bitfieldExtract(weight_i(row + k), 0, 8), 0, 0, 0);
        int shift = (int(k & 1) ^ (WEIGHT == 2 ? 1 : 0)) * 4;
        return ivec4(((weight_i(row + k / 2) >> shift) & 15) - 8, 0, 0, 0);
    }
    if (WEIGHT == 0) {
        int w = int(weight.words[(row + k) >> 2]);
        return ivec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), bitfieldExtract(w, 24, 8));
    }
    uint at = row + k / 2;
    uint w = weight.words[at >> 2] >> ((at & 2) * 8);
    ivec4 low_first = ivec4(w & 15, (w >> 4) & 15, (w >> 8) & 15, (w >> 12) & 15) - 8;
    return WEIGHT == 1 ? low_first : low_first.yxwz;
}

vec4 inputs_f(const uint m, const uint k) {
    uint at = m * push.k + k;
    return ALIGNED != 0 ? x_f4(at) : vec4(x_f(at), 0, 0, 0);
}

ivec4 inputs_i(const uint m, const uint k, const int zero) {
    uint at = m * push.k + k;
    return ALIGNED != 0 ? x_i4(at) - zero : ivec4(x_i(at) - zero, 0, 0, 0);
}

int zero_of(const uint m) { return BY_ROW != 0 ? x_zero_i(m) : push.input_zero; }

#ifdef DOT
// Four signed bytes of inputs and of weights form one word each, whose dot product is one
// instruction. (x - zero) w is x w - zero w.
const bool PACKED = IN == I8 && WEIGHT == 0 && ALIGNED != 0;

int weights_word(const uint n, const uint k) { return int(weight.words[(n * push.weight_row + k) >> 2]); }

int inputs_word(const uint m, const uint k) { return int(x.words[(m * push.k + k) >> 2]); }

int sum_of(const int word) { return dotPacked4x8EXT(word, 0x01010101); }
#endif

// The product of four elements from k on.
float product(const uint m, const uint k, const int zero, const ivec4 w) {
    if (FLOATING) return dot(inputs_f(m, k), vec4(w));
    ivec4 p = inputs_i(m, k, zero) * w;
    return float(p.x + p.y + p.z + p.w);
}

float finished(float sum, const uint m, const uint n) {
    if (GROUPED == 0) sum *= scale_f(n);
    if (!FLOATING) sum *= BY_ROW != 0 ? x_scale_f(m) : push.input_scale;
    if (HAS_BIAS != 0) sum += bias_f(n);
    return sum;
}

vec4 coded(vec4 v) {
    if (!is_float(OUT)) v = clamp(roundEven(v * push.out_inverse) + push.out_zero, vec4(-128.0), vec4(127.0));
    return v;
}

void main() {
    uint lanes = gl_WorkGroupSize.x;
    uint lane = gl_LocalInvocationID.x;
    uint tile = invocation_y();
    uint step = ALIGNED != 0 ? 4 : 1;
    if (ROWS > 1) {
        // One invocation per sum; four rows.
        uint quads = push.n / 4;
        uint n = tile % quads * 4;
        uint m = tile / quads * ROWS;
        if (m >= push.m) return;
        vec4 sum[4] = vec4[4](vec4(0), vec4(0), vec4(0), vec4(0));
        uvec4 rows = min(uvec4(m, m + 1, m + 2, m + 3), uvec4(push.m - 1));
        ivec4 zeros = FLOATING ? ivec4(0) : ivec4(zero_of(rows.x), zero_of(rows.y), zero_of(rows.z), zero_of(rows.w));
        for (uint k = 0; k < push.k; k += step) {
            ivec4 w[4];
#ifdef DOT
            ivec4 words, sums;
            if (PACKED) {
                [[unroll]] for (uint c = 0; c < 4; ++c) {
                    words[c] = weights_word(n + c, k);
                    sums[c] = sum_of(words[c]);
                }
            } else
#endif
            [[unroll]] for (uint c = 0; c < 4; ++c) w[c] = weights(n + c, k);
            vec4 s = vec4(1);
            if (GROUPED != 0) {
                uint at = k / push.group * push.scale_row + n;
                s = vec4(scale_f(at), scale_f(at + 1), scale_f(at + 2), scale_f(at + 3));
            }
            [[unroll]] for (uint r = 0; r < 4; ++r) {
                vec4 p;
#ifdef DOT
                if (PACKED) {
                    int v = inputs_word(rows[r], k);
                    [[unroll]] for (uint c = 0; c < 4; ++c) {
                        p[c] = float(dotPacked4x8EXT(v, words[c]) - zeros[r] * sums[c]);
                    }
                } else
#endif
                if (FLOATING) {
                    vec4 v = inputs_f(rows[r], k);
                    p = vec4(dot(v, vec4(w[0])), dot(v, vec4(w[1])), dot(v, vec4(w[2])), dot(v, vec4(w[3])));
                } else {
                    ivec4 v = inputs_i(rows[r], k, zeros[r]);
                    [[unroll]] for (uint c = 0; c < 4; ++c) {
                        ivec4 q = v * w[c];
                        p[c] = float(q.x + q.y + q.z + q.w);
                    }
                }
                sum[r] += p * s;
            }
        }
        [[unroll]] for (uint r = 0; r < 4; ++r) {
            if (m + r >= push.m) break;
            vec4 v = sum[r];
            [[unroll]] for (uint c = 0; c < 4; ++c) v[c] = finished(v[c], m + r, n + c);
            EPILOGUE((m + r) * push.n + n, v, 4)
            y_write_f4((m + r) * push.n + n, coded(v));
        }
        return;
    }
    uint i = tile * 4;
    uint numel = push.m * push.n;
    vec4 sum = vec4(0);
    if (i < numel) {
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            uint at = i + c;
            if (at >= numel) break;
            uint n = at % push.n;
            uint m = at / push.n;
            int zero = FLOATING ? 0 : zero_of(m);
            float total = 0.0;
            for (uint k = lane * step; k < push.k; k += lanes * step) {
                float p;
#ifdef DOT
                if (PACKED) {
                    int w = weights_word(n, k);
                    p = float(dotPacked4x8EXT(inputs_word(m, k), w) - zero * sum_of(w));
                } else
#endif
                p = product(m, k, zero, weights(n, k));
                if (GROUPED != 0) p *= scale_f(k / push.group * push.scale_row + n);
                total += p;
            }
            sum[c] = total;
        }
    }
    uint slot = gl_LocalInvocationID.y * lanes + lane;
    if (lanes > 1) {
        partial[slot] = sum;
        for (uint half_lanes = lanes / 2; half_lanes > 0; half_lanes /= 2) {
            barrier();
            if (lane < half_lanes) {
                sum += partial[slot + half_lanes];
                partial[slot] = sum;
            }
        }
    }
    if (lane == 0 && i < numel) {
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            if (i + c < numel) sum[c] = finished(sum[c], (i + c) / push.n, (i + c) % push.n);
        }
        EPILOGUE(i, sum, min(numel - i, 4))
        y_write_f4(i, coded(sum));
    }
}
