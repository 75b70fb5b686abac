#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Upsamples planes: nearest neighbour, or bilinear.

layout(constant_id = 3) const uint BILINEAR = 0;
layout(constant_id = 4) const uint ALIGN_CORNERS = 0;
layout(constant_id = 5) const uint ELEMENT = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint in_height;
    uint in_width;
    uint out_height;
    uint out_width;
    float scale_y; // input rows per output row
    float scale_x;
} push;

TENSOR_IN(0, x, ELEMENT)
TENSOR_OUT(1, y, ELEMENT)

float source(const uint index, const float scale) {
    if (ALIGN_CORNERS != 0) return float(index) * scale;
    return max((float(index) + 0.5) * scale - 0.5, 0.0);
}

float at(const uint i) {
    uint ox = i % push.out_width;
    uint oy = i / push.out_width % push.out_height;
    uint plane = i / push.out_width / push.out_height * push.in_height * push.in_width;
    if (BILINEAR == 0) {
        uint sx = min(uint(float(ox) * push.scale_x), push.in_width - 1);
        uint sy = min(uint(float(oy) * push.scale_y), push.in_height - 1);
        return x_f(plane + sy * push.in_width + sx);
    }
    float fx = source(ox, push.scale_x);
    float fy = source(oy, push.scale_y);
    uint x0 = min(uint(fx), push.in_width - 1);
    uint y0 = min(uint(fy), push.in_height - 1);
    uint x1 = min(x0 + 1, push.in_width - 1);
    uint y1 = min(y0 + 1, push.in_height - 1);
    float wx = fx - float(x0);
    float wy = fy - float(y0);
    float top = mix(x_f(plane + y0 * push.in_width + x0), x_f(plane + y0 * push.in_width + x1), wx);
    float bottom = mix(x_f(plane + y1 * push.in_width + x0), x_f(plane + y1 * push.in_width + x1), wx);
    return mix(top, bottom, wy);
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 r = vec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) if (i + k < push.numel) r[k] = at(i + k);
    y_write_f4(i, r);
}
