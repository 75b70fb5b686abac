#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"
#include "run.glsl"
#include "activations.glsl"

// The fold (col2im) of a 2D transposed convolution: every output element is the sum of the products
// of weights and input elements that contribute to it. An invocation computes four elements that
// are contiguous in memory. The products are [output plane][ky][kx][iy][ix].

layout(constant_id = 3) const uint PRODUCTS = 0;
layout(constant_id = 4) const uint BIAS = 0;
layout(constant_id = 5) const uint OUT = 0;
layout(constant_id = 6) const uint HAS_BIAS = 0;
layout(constant_id = 7) const uint STRIDE_Y = 1;
layout(constant_id = 8) const uint STRIDE_X = 1;
layout(constant_id = 9) const uint DILATION_Y = 1;
layout(constant_id = 10) const uint DILATION_X = 1;
// The distance between taps that contribute to the same element: the stride divided by its greatest
// common divisor with the dilation.
layout(constant_id = 11) const uint STEP_Y = 1;
layout(constant_id = 12) const uint STEP_X = 1;

// See epilogue.glsl.
layout(constant_id = 13) const uint ACTIVATION = 0;
layout(constant_id = 14) const uint RESIDUAL = 0;
layout(constant_id = 15) const uint HAS_RESIDUAL = 0;

#include "epilogue.glsl"

layout(push_constant) uniform Push {
    uint numel;
    uint channels;
    uint in_y;
    uint in_x;
    uint out_y;
    uint out_x;
    uint kernel_y;
    uint kernel_x;
    uint padding_y;
    uint padding_x;
    // Parameters of the activation.
    float a;
    float b;
} push;

RUN_IN(0, products, PRODUCTS)
RUN_IN(1, bias, BIAS)
RUN_IN(2, residual, RESIDUAL)
RUN_OUT(3, y, OUT)

// Larger than any kernel, and small enough not to overflow when a kernel size is added.
const uint NONE = 1u << 30;

// Returns, for each element, the first of `taps` taps that contributes to index `place`, relative
// to the first element's first tap; NONE if no tap does.
uvec4 first_tap(const uvec4 place, const uint stride, const uint dilation, const uint taps) {
    uvec4 phase = place % stride;
    if (dilation == 1) return phase;
    uvec4 first = uvec4(NONE);
    for (uint tap = taps; tap-- > 0;) first = mix(first, uvec4(tap), equal(uvec4(tap * dilation % stride), phase));
    return first;
}

// Returns the input elements that taps map to `place`, and which of them exist.
uvec4 source(const uvec4 place, const uvec4 tap, const uint kernel, const uint count, const uint stride, const uint dilation, inout bvec4 there) {
    uvec4 far = min(tap, uvec4(kernel)) * dilation;
    uvec4 from = (place - min(far, place)) / stride;
    there = bvec4(uvec4(there) * uvec4(lessThan(tap, uvec4(kernel))) * uvec4(lessThanEqual(far, place)) * uvec4(lessThan(from, uvec4(count))));
    return from;
}

void main() {
    uint at = invocation_x() * 4;
    if (at >= push.numel) return;
    uvec4 i = at + uvec4(0, 1, 2, 3);
    uvec4 row = i / push.out_x;
    uvec4 place_x = i - row * push.out_x + push.padding_x;
    uvec4 plane = row / push.out_y;
    uvec4 place_y = row - plane * push.out_y + push.padding_y;
    uvec4 first_x = first_tap(place_x, STRIDE_X, DILATION_X, min(STEP_X, push.kernel_x));
    uvec4 ky = first_tap(place_y, STRIDE_Y, DILATION_Y, min(STEP_Y, push.kernel_y));
    uint in_plane = push.in_y * push.in_x;
    vec4 sum = vec4(0);
    for (uint turn_y = 0; turn_y < push.kernel_y; turn_y += STEP_Y) {
        bvec4 in_rows = lessThan(i, uvec4(push.numel));
        uvec4 iy = source(place_y, ky, push.kernel_y, push.in_y, STRIDE_Y, DILATION_Y, in_rows);
        uvec4 kx = first_x;
        for (uint turn_x = 0; turn_x < push.kernel_x; turn_x += STEP_X) {
            bvec4 there = in_rows;
            uvec4 ix = source(place_x, kx, push.kernel_x, push.in_x, STRIDE_X, DILATION_X, there);
            uvec4 from = ((plane * push.kernel_y + ky) * push.kernel_x + kx) * in_plane + iy * push.in_x + ix;
            sum += mix(vec4(0), products_each(mix(uvec4(0), from, there)), there);
            kx += STEP_X;
        }
        ky += STEP_Y;
    }
    if (HAS_BIAS != 0) sum += bias_each(plane % push.channels);
    EPILOGUE(at, sum, min(push.numel - at, 4))
    y_write_f4(at, sum);
}
