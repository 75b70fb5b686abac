#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// The scale and zero point for quantizing values between a minimum and a maximum.

layout(constant_id = 3) const uint MAPPING = 0; // 0 asymmetric, 1 symmetric, 2 symmetric without clipping, 3 asymmetric by the nearer end
layout(constant_id = 4) const uint SCALE = 0;
layout(constant_id = 5) const uint ZERO = 0;

layout(push_constant) uniform Push {
    uint numel;
    float low; // bounds of quantized values
    float high;
    float epsilon; // the minimum scale
} push;

TENSOR_IN(0, least, F32)
TENSOR_IN(1, most, F32)
TENSOR_OUT(2, scale, SCALE)
TENSOR_OUT(3, zero, ZERO)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 negative = min(least_f4(i), 0.0);
    vec4 positive = max(most_f4(i), 0.0);
    vec4 s;
    vec4 z = vec4(floor((push.low + push.high + 1.0) / 2.0));
    if (MAPPING == 0) {
        s = max((positive - negative) / (push.high - push.low), push.epsilon);
        z = clamp(push.low - roundEven(negative / s), push.low, push.high);
    } else if (MAPPING == 1) {
        s = max(max(-negative, positive) / ((push.high - push.low) / 2.0), push.epsilon);
    } else if (MAPPING == 3) {
        // The zero point is computed from the end of the range with the smaller error.
        s = max((positive - negative) / (push.high - push.low), push.epsilon);
        vec4 low = negative / s;
        vec4 high = positive / s;
        bvec4 from_low = greaterThan(push.low + low + push.high + high, vec4(0.0));
        z = roundEven(clamp(mix(push.high - high, push.low - low, from_low), push.low, push.high));
    } else {
        s = max(max(negative / push.low, positive / push.high), push.epsilon);
    }
    scale_write_f4(i, s);
    zero_write_f4(i, z);
}
