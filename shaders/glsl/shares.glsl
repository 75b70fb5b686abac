// Reduction of sums that invocations of a workgroup share, through shared memory. Include after the
// constants PARTIALS (its size, at least SHARES times SUMS times the sums side by side), SHARES
// (invocations per sum), SUMS (groups of four sums per invocation) and MAX_SUMS.

shared vec4 partials[PARTIALS];

// The number of parts into which the addition of a sum is divided.
const uint SEGMENTS = SHARES < 2 * SUMS ? 1 : SHARES / SUMS > 8 ? 8 : SHARES / SUMS;

// Stores the sums of a share, at index `place` of `plane` side by side. Must be called by all
// invocations of the workgroup.
void leave_sums(const uint share, const uint place, const uint plane, vec4 sums[MAX_SUMS]) {
    [[unroll]] for (uint i = 0; i < SUMS; ++i) partials[(share * SUMS + i) * plane + place] = sums[i];
    barrier();
    // The shares divide the sums among themselves; if there are more shares than sums, also the
    // parts of each sum.
    if (SEGMENTS > 1) {
        uint i = share % SUMS;
        uint segment = share / SUMS;
        vec4 sum = vec4(0);
        if (segment < SEGMENTS) {
            uint first = segment * SHARES / SEGMENTS;
            [[unroll]] for (uint s = 0; s < SHARES / SEGMENTS; ++s) sum += partials[((first + s) * SUMS + i) * plane + place];
        }
        barrier();
        if (segment < SEGMENTS) partials[(segment * SUMS + i) * plane + place] = sum;
        barrier();
    }
}

// Sum `i` over all shares.
vec4 whole_sum(const uint i, const uint place, const uint plane) {
    vec4 sum = vec4(0);
    [[unroll]] for (uint s = 0; s < (SEGMENTS > 1 ? SEGMENTS : SHARES); ++s) sum += partials[(s * SUMS + i) * plane + place];
    return sum;
}
