#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"

// Scaled dot-product attention: out = softmax(q * k^T * scale + mask) * v, with one workgroup per
// row of q.
//
// Keys are processed in chunks with one key per invocation (online softmax): partial sums are
// rescaled whenever a chunk raises the maximum. Then each invocation computes four neighbouring
// outputs; several invocations compute the same outputs with different keys.

layout(constant_id = 3) const uint Q = 0;
layout(constant_id = 4) const uint K = 0;
layout(constant_id = 5) const uint V = 0;
layout(constant_id = 6) const uint MASK = 0;
layout(constant_id = 7) const uint OUT = 0;
layout(constant_id = 8) const uint HAS_MASK = 0;
layout(constant_id = 9) const uint CAUSAL = 0; // row i attends to keys up to offset + i
layout(constant_id = 10) const uint ALIGNED = 0; // all strides and depths are multiples of four
layout(constant_id = 11) const uint ROW = 512;
layout(constant_id = 12) const uint HIDDEN_ZEROS = 0; // rows with all keys masked are zero, not NaN

layout(push_constant) uniform Push {
    uint heads;
    uint heads_per_key; // heads of q that share one of k and v
    uint keys;
    uint depth; // of q and k, at most ROW
    uint value_start; // the elements of v to sum: at most 512
    uint value_end;
    uint offset;
    float scale;
    uint q_strides[3]; // batch, head, row
    uint k_strides[3];
    uint v_strides[3];
    uint mask_strides[4]; // batch, head, row, key
    uint out_strides[3]; // multiples of four
    uint base_z;
} push;

RUN_IN(0, q, Q)
RUN_IN(1, k, K)
RUN_IN(2, v, V)
TENSOR_IN(3, mask, MASK)
RUN_OUT(4, y, OUT)

const uint LANES = 128;

shared float row[ROW];
shared float weights[LANES];
shared float scratch[LANES];
shared vec4 sums[LANES];

float reduced_max(const uint lane, const float value) {
    scratch[lane] = value;
    barrier();
    for (uint half_lanes = LANES / 2; half_lanes > 0; half_lanes /= 2) {
        if (lane < half_lanes) scratch[lane] = max(scratch[lane], scratch[lane + half_lanes]);
        barrier();
    }
    float result = scratch[0];
    barrier();
    return result;
}

float reduced_sum(const uint lane, const float value) {
    scratch[lane] = value;
    barrier();
    for (uint half_lanes = LANES / 2; half_lanes > 0; half_lanes /= 2) {
        if (lane < half_lanes) scratch[lane] += scratch[lane + half_lanes];
        barrier();
    }
    return scratch[0];
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint i = gl_WorkGroupID.y;
    uint batch = WORKGROUP_Z / push.heads;
    uint head = WORKGROUP_Z % push.heads;
    uint key_head = head / push.heads_per_key;
    uint q_base = batch * push.q_strides[0] + head * push.q_strides[1] + i * push.q_strides[2];
    uint k_base = batch * push.k_strides[0] + key_head * push.k_strides[1];
    uint v_base = batch * push.v_strides[0] + key_head * push.v_strides[1];
    uint mask_base = batch * push.mask_strides[0] + head * push.mask_strides[1] + i * push.mask_strides[2];
    for (uint d = lane; d < push.depth; d += LANES) row[d] = q_f(q_base + d) * push.scale;
    barrier();

    uint quads = (push.value_end - push.value_start + 3) / 4;
    uint parts = LANES / quads;
    uint part = lane / quads;
    uint column = push.value_start + lane % quads * 4;
    uint limit = CAUSAL != 0 ? min(push.keys, push.offset + i + 1) : push.keys;
    float infinity = uintBitsToFloat(0x7f800000);
    float highest = -infinity;
    float total = 0.0;
    vec4 sum = vec4(0);
    for (uint base = 0; base < limit; base += LANES) {
        uint count = min(LANES, limit - base);
        float score = -infinity;
        if (lane < count) {
            uint at = k_base + (base + lane) * push.k_strides[2];
            float s = 0.0;
            if (ALIGNED != 0) {
                for (uint d = 0; d < push.depth; d += 4) {
                    s += dot(vec4(row[d], row[d + 1], row[d + 2], row[d + 3]), k_f4(at + d));
                }
            } else {
                for (uint d = 0; d < push.depth; ++d) s += row[d] * k_f(at + d);
            }
            if (HAS_MASK != 0) {
                uint m = mask_base + (base + lane) * push.mask_strides[3];
                if (MASK == BOOL) s = mask_i(m) != 0 ? s : -infinity;
                else s += mask_f(m);
            }
            score = s;
        }
        float next = max(highest, reduced_max(lane, score));
        // No key is visible so far: all weights are zero, for any reference.
        float reference = next == -infinity ? 0.0 : next;
        float correction = highest == -infinity ? 0.0 : exp(highest - reference);
        highest = next;
        float weight = lane < count ? exp(score - reference) : 0.0;
        weights[lane] = weight;
        total = total * correction + weight;
        barrier();
        sum *= correction;
        if (part < parts) {
            for (uint j = part; j < count; j += parts) {
                uint at = v_base + (base + j) * push.v_strides[2] + column;
                if (ALIGNED != 0) {
                    sum += weights[j] * v_f4(at);
                } else {
                    [[unroll]] for (uint d = 0; d < 4; ++d) {
                        if (column + d < push.value_end) sum[d] += weights[j] * v_f(at + d);
                    }
                }
            }
        }
        barrier();
    }
    total = reduced_sum(lane, total);
    sums[lane] = sum;
    barrier();
    if (part == 0) {
        for (uint p = 1; p < parts; ++p) sum += sums[p * quads + lane];
        uint at = batch * push.out_strides[0] + head * push.out_strides[1] + i * push.out_strides[2] + column;
        y_write_f4(at, HIDDEN_ZEROS != 0 && total == 0.0 ? vec4(0) : sum / total);
    }
}
