// Split-K: tiles whose terms are shared by several workgroups, which differ in z. Each writes its
// partial sums, and the last workgroup of a tile to finish adds them up. Include after TILE_M,
// TILE_N and LANES; SUM is the type of four sums. The buffers are PARTS_SLOT and the next one;
// `push.splits` is the number of workgroups per tile. Sums are passed to FINISH(batch, m, n, sum),
// which is finish() unless the shader defines it differently.
#ifndef FINISH
#define FINISH finish
#endif

// The partial sums as [batch, tile, split], and a counter of finished workgroups per tile, which is
// zero before and after the dispatch.
layout(set = 0, binding = PARTS_SLOT) coherent buffer parts_block { SUM quads[]; } parts;
layout(set = 0, binding = PARTS_SLOT + 1) coherent buffer counts_block { uint done[]; } counts;

shared bool is_last;

// The index of this workgroup's tile, and the position of a split of it among the partial sums.
uint own_tile(const uint batch) {
    return (batch * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

uint part_of(const uint batch, const uint split) {
    return (own_tile(batch) * push.splits + split) * (TILE_M * TILE_N / 4);
}

// Writes four columns of a row of the tile.
void leave(const uint batch, const uint split, const uint m, const uint n, const SUM sum) {
    parts.quads[part_of(batch, split) + m % TILE_M * (TILE_N / 4) + n % TILE_N / 4] = sum;
}

// Whether this workgroup is the last of its tile, so that all partial sums are available. Must be
// called by all invocations.
bool all_are_left(const uint batch) {
    // Makes this workgroup's writes visible before it counts as finished.
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        uint place = own_tile(batch);
        memoryBarrierBuffer();
        is_last = atomicAdd(counts.done[place], 1) == push.splits - 1;
        memoryBarrierBuffer();
        if (is_last) counts.done[place] = 0;
    }
    barrier();
    if (!is_last) return false;
    memoryBarrierBuffer();
    return true;
}

// The number of groups of four columns that an invocation adds up, and the number of groups that it
// adds up at once. The second must divide the first, since memory beyond the tile belongs to
// another tile.
const uint OWN_QUADS = TILE_M * TILE_N / 4 / LANES;
const uint AT_ONCE = OWN_QUADS % 4 == 0 ? 4 : OWN_QUADS % 3 == 0 ? 3 : OWN_QUADS % 2 == 0 ? 2 : 1;

// Adds up the partial sums of a tile, and passes them on. Four splits of AT_ONCE groups are in
// flight together.
void add_up(const uint batch, const uint tile_m, const uint tile_n) {
    for (uint first = gl_LocalInvocationID.x; first < TILE_M * TILE_N / 4; first += AT_ONCE * LANES) {
        SUM total[4];
        [[unroll]] for (uint g = 0; g < AT_ONCE; ++g) total[g] = SUM(0);
        for (uint split = 0; split < push.splits; split += 4) {
            SUM theirs[16];
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                uint part = part_of(batch, min(split + j, push.splits - 1)) + first;
                [[unroll]] for (uint g = 0; g < AT_ONCE; ++g) theirs[j * 4 + g] = parts.quads[part + g * LANES];
            }
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                if (split + j >= push.splits) continue;
                [[unroll]] for (uint g = 0; g < AT_ONCE; ++g) total[g] += theirs[j * 4 + g];
            }
        }
        [[unroll]] for (uint g = 0; g < AT_ONCE; ++g) {
            uint i = first + g * LANES;
            FINISH(batch, tile_m + i / (TILE_N / 4), tile_n + i % (TILE_N / 4) * 4, total[g]);
        }
    }
}
