#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Argmax of each row: the index of the first of equal elements, or -1 if no element is larger than
// minus infinity. NaN is ignored.
//
// Workgroups in x share a row. If a row has several workgroups, each writes a key and an index, and
// another dispatch with one workgroup per row combines them. Values are compared as integer keys
// with the same order, which does not depend on the device's floating-point behaviour.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint COMBINES = 0; // whether x contains keys and indices

layout(push_constant) uniform Push {
    uint rows;
    uint count; // elements of a row, or keys with indices
    uint share; // the same per workgroup
} push;

WORDS_IN(0, x)
WORDS_OUT(1, y)

const uint MAX_LANES = 256;
shared uint keys[MAX_LANES];
shared uint places[MAX_LANES];

const uint NOWHERE = 0xffffffffu;

// 16-bit values are in the upper half of a word, so that sign, order and zero match those of 32
// bits.
uint key_of(const uint bits) {
    uint infinity = IN == F16 ? 0x7c000000u : 0x7f800000u;
    uint magnitude = bits & 0x7fffffffu;
    if (magnitude > infinity || bits == (infinity | 0x80000000u)) return 0;
    // Positive and negative zero are equal.
    if (magnitude == 0) return 0x80000000u;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Elements from 4 * i on.
uvec4 four(const uint i) {
    if (IN == F16) {
        uvec2 pair = x_by_2.words[i];
        return uvec4(pair.x << 16, pair.x & 0xffff0000u, pair.y << 16, pair.y & 0xffff0000u);
    }
    return x_by_4.words[i];
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint lanes = gl_WorkGroupSize.x;
    uint row = invocation_y();
    uint best = 0;
    uint place = NOWHERE;
    if (row < push.rows) {
        uint from = min(gl_WorkGroupID.x * push.share, push.count);
        uint end = min(from + push.share, push.count);
        uint base = row * push.count;
        if (COMBINES != 0) {
            for (uint i = from + lane; i < end; i += lanes) {
                uvec2 found = x_by_2.words[base + i];
                if (found.x > best) {
                    best = found.x;
                    place = found.y;
                }
            }
        } else {
            // Rows may be unaligned.
            for (uint i = (base + from) / 4 + lane; i * 4 < base + end; i += lanes) {
                uvec4 bits = four(i);
                [[unroll]] for (uint k = 0; k < 4; ++k) {
                    uint at = i * 4 + k;
                    uint key = at >= base + from && at < base + end ? key_of(bits[k]) : 0;
                    if (key > best) {
                        best = key;
                        place = at - base;
                    }
                }
            }
        }
    }
    keys[lane] = best;
    places[lane] = place;
    for (uint half_lanes = lanes / 2; half_lanes > 0; half_lanes /= 2) {
        barrier();
        if (lane < half_lanes) {
            uint key = keys[lane + half_lanes];
            uint other = places[lane + half_lanes];
            if (key > best || (key == best && other < place)) {
                best = key;
                place = other;
            }
            keys[lane] = best;
            places[lane] = place;
        }
    }
    if (lane == 0 && row < push.rows) {
        if (gl_NumWorkGroups.x == 1) y.words[row] = place;
        else y_by_2.words[row * gl_NumWorkGroups.x + gl_WorkGroupID.x] = uvec2(best, place);
    }
}
