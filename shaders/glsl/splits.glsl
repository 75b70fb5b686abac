// Tiles of a product whose terms several workgroups share, those of a dispatch that differ in z:
// each leaves its sums, and the last of a tile to be done adds up what all left. Include behind
// TILE_M, TILE_N and LANES; four sums are a SUM. The buffers are PARTS_SLOT and the one after it;
// `push.splits` are the workgroups of a tile. Sums are handed to FINISH(batch, m, n, sum): to
// finish(), unless the shader says otherwise.
#ifndef FINISH
#define FINISH finish
#endif

// The tiles of each split, as [batch, tile, split], and how many of a tile are there, which is zero
// before and after.
layout(set = 0, binding = PARTS_SLOT) coherent buffer parts_block { SUM quads[]; } parts;
layout(set = 0, binding = PARTS_SLOT + 1) coherent buffer counts_block { uint done[]; } counts;

shared bool is_last;

// The number of this workgroup's tile, and where a split of it lies among the parts.
uint own_tile(const uint batch) {
    return (batch * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

uint part_of(const uint batch, const uint split) {
    return (own_tile(batch) * push.splits + split) * (TILE_M * TILE_N / 4);
}

// Leaves four columns of a row of the tile.
void leave(const uint batch, const uint split, const uint m, const uint n, const SUM sum) {
    parts.quads[part_of(batch, split) + m % TILE_M * (TILE_N / 4) + n % TILE_N / 4] = sum;
}

// Whether this workgroup is the last of its tile, so that all parts are there. All invocations come
// here together.
bool all_are_left(const uint batch) {
    // What this workgroup wrote is there before it counts as done.
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

// Groups of four columns that an invocation adds up, and how many of them at once: a divisor of
// these, as what lies beyond the tile is another's.
const uint OWN_QUADS = TILE_M * TILE_N / 4 / LANES;
const uint AT_ONCE = OWN_QUADS % 4 == 0 ? 4 : OWN_QUADS % 3 == 0 ? 3 : OWN_QUADS % 2 == 0 ? 2 : 1;

// Adds up the parts of a tile that are all there, and hands them on. Four parts of so many groups
// are on their way together.
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
