#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Reads a tensor, so that it is in the device's cache when another dispatch reads it. An invocation
// reads TIMES times 128 bits.

layout(push_constant) uniform Push {
    // How many times 128 bits there are.
    uint quads;
} push;

WORDS_IN(0, x)
// What nobody reads: loads that nothing comes of are not made, not even those of what is `volatile`
// (on an NVIDIA H200, driver 580.159).
WORDS_OUT(1, nothing)

const uint TIMES = 8;

void main() {
    uint size = gl_WorkGroupSize.x;
    uint first = invocation_x() / size * size * TIMES + gl_LocalInvocationID.x;
    uvec4 all = uvec4(0);
    [[unroll]] for (uint i = 0; i < TIMES; ++i) all ^= x_by_4.words[min(first + i * size, push.quads - 1)];
    if (all == uvec4(push.quads)) atomicAnd(nothing.words[0], 0);
}
