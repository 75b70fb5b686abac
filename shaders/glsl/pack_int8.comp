#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Converts int8 images from [batch][channel][pixel] to channels-last [batch][pixel][channel], with
// channels padded with zeros to a multiple of 16. An invocation packs 16 channels of a pixel.

layout(push_constant) uniform Push {
    uint numel; // groups of 16 channels
    uint channels;
    uint plane;
} push;

TENSOR_IN(0, x, I8)
WORDS_OUT(1, y)

void main() {
    uint id = invocation_x();
    if (id >= push.numel) return;
    uint units = (push.channels + 15) / 16;
    uint place = id % push.plane;
    uint unit = id / push.plane % units;
    uint batch = id / push.plane / units;
    uint at = (batch * push.channels + unit * 16) * push.plane + place;
    uint left = push.channels - unit * 16;
    uvec4 words;
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        ivec4 codes = ivec4(0);
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            uint channel = word * 4 + j;
            if (channel < left) codes[j] = x_i(at + channel * push.plane);
        }
        words[word] = pack_bytes(codes);
    }
    y_by_4.words[(batch * push.plane + place) * units + unit] = words;
}
