// Sums that invocations of a workgroup share: each leaves what it has in shared memory. Include
// behind the constants PARTIALS (the size of that, at least SHARES times SUMS times the sums side
// by side), SHARES (the invocations that share a sum), SUMS (the groups of four sums of each) and
// MOST_SUMS.

shared vec4 partials[PARTIALS];

// Into so many parts a sum is made first.
const uint SEGMENTS = SHARES < 2 * SUMS ? 1 : SHARES / SUMS > 8 ? 8 : SHARES / SUMS;

// Leaves the sums of a share, at `place` of `plane` side by side. All invocations of the workgroup
// come here together.
void leave_sums(const uint share, const uint place, const uint plane, vec4 sums[MOST_SUMS]) {
    [[unroll]] for (uint i = 0; i < SUMS; ++i) partials[(share * SUMS + i) * plane + place] = sums[i];
    barrier();
    // As the sums were shared, so is adding them up, and where there are more invocations than
    // these, the parts of each.
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

// Sum `i` of all shares.
vec4 whole_sum(const uint i, const uint place, const uint plane) {
    vec4 sum = vec4(0);
    [[unroll]] for (uint s = 0; s < (SEGMENTS > 1 ? SEGMENTS : SHARES); ++s) sum += partials[(s * SUMS + i) * plane + place];
    return sum;
}
