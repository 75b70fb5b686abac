#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// A step of putting the middle of three dimensions in order, of which order.comp compares each
// element with each other one: runs of it are in order, and here two each become one. What is in
// order are the places of elements, at[o, n, r] = k; those of a run come after as many of the other
// one as are before them there, which is a search. Equal ones keep their order. FIRST_STEP: nothing
// is in order yet, and elements of a run are compared with each other.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint DESCENDING = 0;
layout(constant_id = 5) const uint FIRST_STEP = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint count; // of the dimension
    uint inner; // elements behind it
    uint run;   // elements of a run: those there are, FIRST_STEP: those there will be
} push;

TENSOR_IN(0, x, IN)
WORDS_IN(1, from)
WORDS_OUT(2, places)

#include "key.glsl"

void main() {
    uint i = invocation_x();
    if (i >= push.numel) return;
    uint r = i % push.inner;
    uint n = i / push.inner % push.count;
    uint start = i / push.inner / push.count * push.count * push.inner + r;
    uint pair = n / push.run * push.run;
    if (FIRST_STEP != 0) {
        uint own = key(i);
        uint before = 0;
        for (uint j = pair; j < min(pair + push.run, push.count); ++j) {
            uint other = key(start + j * push.inner);
            before += uint(other < own || (other == own && j < n));
        }
        places.words[start + (pair + before) * push.inner] = n;
        return;
    }
    bool first = (n / push.run) % 2 == 0;
    if (!first) pair -= push.run;
    uint middle = min(pair + push.run, push.count);
    uint end = min(middle + push.run, push.count);
    uint place = from.words[i];
    uint own = key(start + place * push.inner);
    // How many of the other run come before: between what is known to and what is known not to.
    uint low = first ? middle : pair;
    uint high = first ? end : middle;
    uint before = low;
    while (before < high) {
        uint between = before + (high - before) / 2;
        uint other = key(start + from.words[start + between * push.inner] * push.inner);
        if (first ? other < own : other <= own) before = between + 1;
        else high = between;
    }
    // Those of its own run before it, and those of the other one.
    uint at = first ? n + (before - low) : n - push.run + (before - low);
    places.words[start + at * push.inner] = place;
}
