#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Reads a tensor to load it into the device's cache for another dispatch. An invocation reads TIMES
// times 128 bits.

layout(push_constant) uniform Push {
    // The size of the tensor in units of 128 bits.
    uint quads;
} push;

WORDS_IN(0, x)
// A dummy output: compilers remove loads without effect, even if they are `volatile` (NVIDIA driver
// 580.159).
WORDS_OUT(1, nothing)

const uint TIMES = 8;

void main() {
    uint size = gl_WorkGroupSize.x;
    uint first = invocation_x() / size * size * TIMES + gl_LocalInvocationID.x;
    uvec4 all = uvec4(0);
    [[unroll]] for (uint i = 0; i < TIMES; ++i) all ^= x_by_4.words[min(first + i * size, push.quads - 1)];
    if (all == uvec4(push.quads)) atomicAnd(nothing.words[0], 0);
}
