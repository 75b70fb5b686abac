#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Max or average pooling over two dimensions. In adaptive pooling, windows extend from floor(o * in
// / out) to ceil((o + 1) * in / out), and may overlap by one element. Four consecutive outputs per
// invocation.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint OUT = 0;
layout(constant_id = 5) const uint INDICES = 0;
// 0: maximum; 1: maximum and its index in the plane; 2: mean.
layout(constant_id = 6) const uint KIND = 0;
// Whether padding counts in the mean.
layout(constant_id = 7) const uint COUNT_PADDING = 0;
layout(constant_id = 8) const uint ADAPTIVE = 0;

layout(push_constant) uniform Push {
    uint numel;
    int in_y;
    int in_x;
    uint out_y;
    uint out_x;
    int kernel_y;
    int kernel_x;
    int stride_y;
    int stride_x;
    int padding_y;
    int padding_x;
    int dilation_y;
    int dilation_x;
    // The divisor of the mean; 0 for the number of elements.
    int divisor;
} push;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)
TENSOR_OUT(2, indices, INDICES)

void main() {
    uint first = invocation_x() * 4;
    if (first >= push.numel) return;
    vec4 results = vec4(0);
    ivec4 places = ivec4(0);
    for (uint lane = 0; lane < 4; ++lane) {
        uint i = first + lane;
        if (i >= push.numel) break;
        int ox = int(i % push.out_x);
        int oy = int(i / push.out_x % push.out_y);
        uint plane = i / push.out_x / push.out_y * uint(push.in_y * push.in_x);
        int start_y = oy * push.stride_y - push.padding_y;
        int start_x = ox * push.stride_x - push.padding_x;
        // The part of the window inside the input.
        int ky_first = start_y < 0 ? (push.dilation_y - 1 - start_y) / push.dilation_y : 0;
        int kx_first = start_x < 0 ? (push.dilation_x - 1 - start_x) / push.dilation_x : 0;
        int ky_end = min(push.kernel_y, (push.in_y - start_y + push.dilation_y - 1) / push.dilation_y);
        int kx_end = min(push.kernel_x, (push.in_x - start_x + push.dilation_x - 1) / push.dilation_x);
        if (ADAPTIVE != 0) {
            ivec2 o = ivec2(oy, ox);
            ivec2 size = ivec2(push.in_y, push.in_x);
            ivec2 outs = ivec2(push.out_y, push.out_x);
            ivec2 start = o * size / outs;
            ivec2 end = ((o + 1) * size + outs - 1) / outs;
            start_y = start.x;
            start_x = start.y;
            ky_first = 0;
            kx_first = 0;
            ky_end = end.x - start.x;
            kx_end = end.y - start.y;
        }
        float best = KIND == 2 ? 0.0 : -1.0 / 0.0;
        int place = max(start_y + ky_first * push.dilation_y, 0) * push.in_x + max(start_x + kx_first * push.dilation_x, 0);
        for (int ky = ky_first; ky < ky_end; ++ky) {
            for (int kx = kx_first; kx < kx_end; ++kx) {
                int at = (start_y + ky * push.dilation_y) * push.in_x + start_x + kx * push.dilation_x;
                float v = x_f(plane + uint(at));
                if (KIND == 2) {
                    best += v;
                } else if (v > best || isnan(v)) {
                    best = v;
                    place = at;
                }
            }
        }
        if (KIND == 2) {
            int count = push.divisor;
            if (count == 0) {
                if (COUNT_PADDING != 0) {
                    // A window that extends into the padding after the input ends with that
                    // padding.
                    int height = min(start_y + push.kernel_y, push.in_y + push.padding_y) - start_y;
                    int width = min(start_x + push.kernel_x, push.in_x + push.padding_x) - start_x;
                    count = height * width;
                } else {
                    count = max(ky_end - ky_first, 0) * max(kx_end - kx_first, 0);
                }
            }
            best /= float(count);
        }
        results[lane] = best;
        places[lane] = place;
    }
    y_write_f4(first, results);
    if (KIND == 1) indices_write_i4(first, places);
}
