#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Samples planes at the coordinates in a grid, from -1 to 1 in each dimension.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint GRID = 0;
layout(constant_id = 5) const uint OUT = 0;
layout(constant_id = 6) const uint MODE = 0; // 0 bilinear, 1 nearest, 2 bicubic
layout(constant_id = 7) const uint PADDING = 0; // 0 zeros, 1 border, 2 reflection
layout(constant_id = 8) const uint ALIGN_CORNERS = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint channels;
    uint height;
    uint width;
    uint out_plane;
} push;

TENSOR_IN(0, x, IN)
TENSOR_IN(1, grid, GRID)
TENSOR_OUT(2, y, OUT)

// Converts a grid coordinate to elements of a dimension.
float source(const float at, const uint size) {
    float n = float(size);
    return ALIGN_CORNERS != 0 ? (at + 1.0) / 2.0 * (n - 1.0) : ((at + 1.0) * n - 1.0) / 2.0;
}

// Maps a coordinate outside the plane according to the padding mode.
float padded(float p, const uint size) {
    float n = float(size);
    if (PADDING == 2) {
        float low = ALIGN_CORNERS != 0 ? 0.0 : -0.5;
        float span = ALIGN_CORNERS != 0 ? n - 1.0 : n;
        if (span <= 0.0) return 0.0;
        float rest = abs(p - low);
        float turns = floor(rest / span);
        rest -= turns * span;
        p = (mod(turns, 2.0) == 0.0 ? rest : span - rest) + low;
    }
    if (PADDING != 0) p = clamp(p, 0.0, n - 1.0);
    // Clamped so that it fits into an integer.
    return isnan(p) ? -1.0 : clamp(p, -2.0, n + 1.0);
}

float at(const uint plane, const int iy, const int ix) {
    if (iy < 0 || ix < 0 || iy >= int(push.height) || ix >= int(push.width)) return 0.0;
    return x_f((plane * push.height + uint(iy)) * push.width + uint(ix));
}

// The weights of the four elements around a position at distance t after the second one.
vec4 cubic(const float t) {
    const float a = -0.75;
    vec4 d = vec4(1.0 + t, t, 1.0 - t, 2.0 - t);
    vec4 near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    vec4 far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    return vec4(far.x, near.y, near.z, far.w);
}

float bicubic(const uint plane, const float fx, const float fy) {
    vec4 across = cubic(fx - floor(fx));
    vec4 down = cubic(fy - floor(fy));
    float sum = 0.0;
    for (int j = 0; j < 4; ++j) {
        int iy = int(padded(floor(fy) + float(j - 1), push.height));
        vec4 row;
        [[unroll]] for (int i = 0; i < 4; ++i) row[i] = at(plane, iy, int(padded(floor(fx) + float(i - 1), push.width)));
        sum += down[j] * dot(across, row);
    }
    return sum;
}

float bilinear(const uint plane, const float fx, const float fy) {
    int ix = int(floor(fx));
    int iy = int(floor(fy));
    float wx = fx - float(ix);
    float wy = fy - float(iy);
    return (at(plane, iy, ix) * (1.0 - wx) + at(plane, iy, ix + 1) * wx) * (1.0 - wy)
        + (at(plane, iy + 1, ix) * (1.0 - wx) + at(plane, iy + 1, ix + 1) * wx) * wy;
}

void main() {
    uint i = invocation_x() * 4;
    if (i >= push.numel) return;
    vec4 v = vec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (i + k >= push.numel) break;
        uint plane = (i + k) / push.out_plane;
        uint place = (plane / push.channels * push.out_plane + (i + k) % push.out_plane) * 2;
        float fx = source(grid_f(place), push.width);
        float fy = source(grid_f(place + 1), push.height);
        if (MODE == 2) {
            v[k] = bicubic(plane, fx, fy);
            continue;
        }
        fx = padded(fx, push.width);
        fy = padded(fy, push.height);
        v[k] = MODE == 1 ? at(plane, int(roundEven(fy)), int(roundEven(fx))) : bilinear(plane, fx, fy);
    }
    y_write_f4(i, v);
}
