#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Samples planes at the places that a grid gives, from -1 to 1 in each direction.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint GRID = 0;
layout(constant_id = 5) const uint OUT = 0;
layout(constant_id = 6) const uint NEAREST = 0;
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

// Where the grid points to, in elements of a dimension.
float source(float at, uint size) {
    float n = float(size);
    float p = ALIGN_CORNERS != 0 ? (at + 1.0) / 2.0 * (n - 1.0) : ((at + 1.0) * n - 1.0) / 2.0;
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
    // Far outside is outside, whatever fits into an integer.
    return isnan(p) ? -1.0 : clamp(p, -2.0, n + 1.0);
}

float at(uint plane, int iy, int ix) {
    if (iy < 0 || ix < 0 || iy >= int(push.height) || ix >= int(push.width)) return 0.0;
    return x_f((plane * push.height + uint(iy)) * push.width + uint(ix));
}

void main() {
    uint i = gl_GlobalInvocationID.x * 4;
    if (i >= push.numel) return;
    vec4 v = vec4(0);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (i + k >= push.numel) break;
        uint plane = (i + k) / push.out_plane;
        uint place = (plane / push.channels * push.out_plane + (i + k) % push.out_plane) * 2;
        float fx = source(grid_f(place), push.width);
        float fy = source(grid_f(place + 1), push.height);
        if (NEAREST != 0) {
            v[k] = at(plane, int(roundEven(fy)), int(roundEven(fx)));
            continue;
        }
        int ix = int(floor(fx));
        int iy = int(floor(fy));
        float wx = fx - float(ix);
        float wy = fy - float(iy);
        v[k] = (at(plane, iy, ix) * (1.0 - wx) + at(plane, iy, ix + 1) * wx) * (1.0 - wy)
            + (at(plane, iy + 1, ix) * (1.0 - wx) + at(plane, iy + 1, ix + 1) * wx) * wy;
    }
    y_write_f4(i, v);
}
