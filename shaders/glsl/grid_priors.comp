#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// The coordinates of the elements of a plane: out[y * width + x] = ((x + offset) * stride, (y +
// offset) * stride).

layout(constant_id = 3) const uint OUT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint width;
    float stride;
    float offset;
} push;

TENSOR_OUT(0, y, OUT)

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    uvec2 place = uvec2(i / 2, i / 2 + 1);
    vec4 v = vec4(place.x % push.width, place.x / push.width, place.y % push.width, place.y / push.width);
    y_write_f4(i, (v + push.offset) * push.stride);
}
