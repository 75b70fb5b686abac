#version 450
//! module row
//! module row_subgroups SUBGROUPS
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#include "tensor.glsl"
#include "run.glsl"

// Softmax and normalisations of contiguous rows, with one workgroup per row, which computes both
// statistics and results. ROUND: int8 quantization followed by dequantization, with the range of
// the row (as in qparams.comp, asymmetric by the nearer end).

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint WEIGHT = 0;
layout(constant_id = 6) const uint OUT = 0;
layout(constant_id = 7) const uint HAS_WEIGHT = 0;
layout(constant_id = 8) const uint HAS_BIAS = 0;
// Groups of four elements that an invocation keeps in registers, so that a row is read once: at
// most 4. 0: all are read each time.
layout(constant_id = 9) const uint KEPT = 0;
// Whether element i of a row has weight i, and rows are whole groups of four.
layout(constant_id = 10) const uint WEIGHTS_ALIGNED = 0;
// Whether rows start at multiples of four elements for all shapes. Loads are then unconditional,
// and do not wait for each other.
layout(constant_id = 11) const uint ALIGNED = 0;
// Whether the rows are the sum of `x` and `added`, rounded to the type of both: ADDED, or WRITTEN
// if the sum is also an output. They then start at multiples of four elements.
layout(constant_id = 12) const uint SUM = 0;

layout(push_constant) uniform Push {
    uint rows;
    uint count;       // elements of a row
    uint aligned;     // whether rows start at multiples of four elements
    uint weight_step; // consecutive elements that share a weight
    uint weight_count;
    float epsilon;
    uint added_rows; // rows of `added`, which repeat
} push;

RUN_IN(0, x, IN)
RUN_IN(1, weight, WEIGHT)
RUN_IN(2, bias, WEIGHT)
RUN_OUT(3, y, OUT)
RUN_IN(4, added, IN)
RUN_OUT(5, made, IN)

// The same codes as in normalize.comp.
const uint SOFTMAX = 0;
const uint LOG_SOFTMAX = 1;
const uint LAYER = 2;
const uint RMS = 3;
const uint ROUND = 5;

const uint ADDED = 1;
const uint WRITTEN = 2;

const uint MAX_LANES = 256;
shared float partials[MAX_LANES];

// Reduces the values of all invocations through shared memory: by subgroups first, if supported;
// otherwise by a tree over invocations.
#ifdef SUBGROUPS
#define COMBINE(NAME, FUNCTION, SUBGROUP_FUNCTION) \
    float NAME(float value) { \
        value = SUBGROUP_FUNCTION(value); \
        if (gl_NumSubgroups == 1) return value; \
        barrier(); \
        if (subgroupElect()) partials[gl_SubgroupID] = value; \
        barrier(); \
        value = partials[0]; \
        for (uint i = 1; i < gl_NumSubgroups; ++i) value = FUNCTION(value, partials[i]); \
        return value; \
    }
#else
#define COMBINE(NAME, FUNCTION, SUBGROUP_FUNCTION) \
    float NAME(float value) { \
        uint lane = gl_LocalInvocationID.x; \
        barrier(); \
        partials[lane] = value; \
        for (uint lanes = gl_WorkGroupSize.x / 2; lanes > 0; lanes /= 2) { \
            barrier(); \
            if (lane < lanes) partials[lane] = FUNCTION(partials[lane], partials[lane + lanes]); \
        } \
        barrier(); \
        return partials[0]; \
    }
#endif

float plus(const float a, const float b) {
    return a + b;
}

COMBINE(summed, plus, subgroupAdd)
COMBINE(highest, max, subgroupMax)

// The position of the row of `added`.
uint added_base;

// Four elements of the row at `base`; beyond its end, the last one is repeated.
vec4 elements(const uint base, const uint i) {
    if (SUM != 0) {
        vec4 v = x_f4(base + i) + added_f4(added_base + i);
        return IN == F16 ? vec4(unpackHalf2x16(packHalf2x16(v.xy)), unpackHalf2x16(packHalf2x16(v.zw))) : v;
    }
    if (ALIGNED != 0 || push.aligned != 0) return x_f4(base + i);
    return x_each(base + min(i + uvec4(0, 1, 2, 3), uvec4(push.count - 1)));
}

// The sum of the elements of v that are in the row.
float sum_of(const vec4 v, const uint i) {
    return dot(v, vec4(lessThan(i + uvec4(0, 1, 2, 3), uvec4(push.count))));
}

vec4 kept[4];
vec4 kept_weights[4];
vec4 kept_biases[4];

// The group of four elements from `i` on, number `turn` of the invocation.
vec4 group(const uint base, const uint i, const uint turn) {
    return KEPT != 0 ? kept[turn] : elements(base, i);
}

// The weights of four elements from `at` on; `i` is the index in the row.
vec4 weights(const uint at, const uint i) {
    if (WEIGHTS_ALIGNED != 0) return weight_f4(i);
    return weight_each((at + uvec4(0, 1, 2, 3)) / push.weight_step % push.weight_count);
}

vec4 biases(const uint at, const uint i) {
    if (WEIGHTS_ALIGNED != 0) return bias_f4(i);
    return bias_each((at + uvec4(0, 1, 2, 3)) / push.weight_step % push.weight_count);
}

// Iterates over an invocation's groups: `i` is the index of the first element in the row, `turn`
// the number of the group.
#define EACH_GROUP \
    [[unroll]] for (uint turn = 0, i = first; turn < (KEPT != 0 ? KEPT : turns); ++turn, i += step) \
        if (i < push.count)

void main() {
    uint row = invocation_y();
    if (row >= push.rows) return;
    uint base = row * push.count;
    if (SUM != 0) added_base = row % push.added_rows * push.count;
    uint first = gl_LocalInvocationID.x * 4;
    uint step = gl_WorkGroupSize.x * 4;
    uint turns = (push.count + step - 1) / step;
    // Groups beyond the end are clamped and not used, because conditional loads would wait for each
    // other.
    [[unroll]] for (uint turn = 0; turn < KEPT; ++turn) {
        uint i = min(first + turn * step, (push.count - 1) & ~3u);
        kept[turn] = elements(base, i);
        if (HAS_WEIGHT != 0) kept_weights[turn] = weights(base + i, i);
        if (HAS_BIAS != 0) kept_biases[turn] = biases(base + i, i);
    }
    float offset = 0.0;
    float scale = 1.0;
    if (FUNCTION == ROUND) {
        float low = 0.0;
        float high = 0.0;
        EACH_GROUP {
            vec4 v = group(base, i, turn);
            low = min(low, min(min(v.x, v.y), min(v.z, v.w)));
            high = max(high, max(max(v.x, v.y), max(v.z, v.w)));
        }
        low = -highest(-low);
        high = highest(high);
        scale = max((high - low) / 255.0, 1.1920929e-7);
        bool from_low = low / scale + high / scale > 1.0;
        offset = roundEven(clamp(from_low ? -128.0 - low / scale : 127.0 - high / scale, -128.0, 127.0));
    } else if (FUNCTION == SOFTMAX || FUNCTION == LOG_SOFTMAX) {
        float high = uintBitsToFloat(0xff800000);
        EACH_GROUP {
            vec4 v = group(base, i, turn);
            high = max(high, max(max(v.x, v.y), max(v.z, v.w)));
        }
        offset = highest(high);
        float sum = 0.0;
        EACH_GROUP {
            vec4 e = exp(group(base, i, turn) - offset);
            [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k < push.count) sum += e[k];
        }
        scale = summed(sum);
    } else {
        if (FUNCTION == LAYER) {
            float sum = 0.0;
            EACH_GROUP sum += sum_of(group(base, i, turn), i);
            offset = summed(sum) / float(push.count);
        }
        float squares = 0.0;
        EACH_GROUP {
            vec4 v = group(base, i, turn) - offset;
            squares += sum_of(v * v, i);
        }
        scale = inversesqrt(summed(squares) / float(push.count) + push.epsilon);
    }
    EACH_GROUP {
        vec4 v = group(base, i, turn);
        if (SUM == WRITTEN) made_write_f4(base + i, v);
        if (FUNCTION == ROUND) v = clamp(roundEven(v * (1.0 / scale)) + offset, -128.0, 127.0);
        v -= offset;
        if (FUNCTION == SOFTMAX) v = exp(v) / scale;
        else if (FUNCTION == LOG_SOFTMAX) v -= log(scale);
        else v *= scale;
        if (HAS_WEIGHT != 0) v *= KEPT != 0 ? kept_weights[turn] : weights(base + i, i);
        if (HAS_BIAS != 0) v += KEPT != 0 ? kept_biases[turn] : biases(base + i, i);
        if (ALIGNED != 0 || push.aligned != 0) y_write_f4(base + i, v);
        else y_write_run(base + i, v, min(push.count - i, 4));
    }
}
