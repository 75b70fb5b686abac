#version 450
//! module matmul_sum
//! module matmul_sum_storage16 STORAGE16
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// Adds up the partial sums that matmul_tiled.comp writes, and applies the epilogue in product.glsl;
// four columns per invocation.

#define FIELDS \
    uint batches; \
    uint splits;
#include "product.glsl"

RUN_IN(3, part, F32)

void main() {
    uint pitch = (push.n + 3) & ~3u;
    uint i = invocation_x() * 4;
    uint row = i / pitch;
    uint batch = row / push.m;
    if (batch >= push.batches) return;
    // The partial sums of a batch are consecutive.
    uint count = push.m * pitch;
    uint first = i + batch * (push.splits - 1) * count;
    vec4 sum = vec4(0);
    // Four loads are in flight together.
    uint split = 0;
    for (; split + 3 < push.splits; split += 4) {
        vec4 parts[4];
        [[unroll]] for (uint j = 0; j < 4; ++j) parts[j] = part_f4(first + (split + j) * count);
        [[unroll]] for (uint j = 0; j < 4; ++j) sum += parts[j];
    }
    for (; split < push.splits; ++split) sum += part_f4(first + split * count);
    finish(batch, row % push.m, i % pitch, sum);
}
