#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// A step of merge sort over the middle of three dimensions; order.comp sorts short dimensions by
// comparing all pairs. Sorted runs are merged in pairs. The runs consist of element indices, at[o,
// n, r] = k. The position of an index in the merged run is its position in its own run plus the
// number of smaller elements in the other run, found by binary search. The sort is stable.
// FIRST_STEP: creates the initial runs by comparing the elements of a run with each other.

layout(constant_id = 3) const uint IN = 0;
layout(constant_id = 4) const uint DESCENDING = 0;
layout(constant_id = 5) const uint FIRST_STEP = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint count; // of the dimension
    uint inner; // elements of the inner dimensions
    uint run;   // elements of an input run; FIRST_STEP: of an output run
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
    // Binary search for the number of elements of the other run that come first.
    uint low = first ? middle : pair;
    uint high = first ? end : middle;
    uint before = low;
    while (before < high) {
        uint between = before + (high - before) / 2;
        uint other = key(start + from.words[start + between * push.inner] * push.inner);
        if (first ? other < own : other <= own) before = between + 1;
        else high = between;
    }
    // The position in the element's own run plus the position in the other run.
    uint at = first ? n + (before - low) : n - push.run + (before - low);
    places.words[start + at * push.inner] = place;
}
