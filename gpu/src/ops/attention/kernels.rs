//! Attention kernels for many query rows, and the division of their work.

use crate::encoder::Encoder;
use crate::tensors::Operand;
use torchlet_shaders::{AttentionCooperative, Element, Pipeline};

/// The maximum head depth for tiles of rows; with a depth of 512, single rows were faster on
/// lavapipe.
const TILED_DEPTH: usize = 256;

/// The minimum number of query rows for tiles.
const TILED_ROWS: usize = 8;

/// Rows, columns and terms of cooperative matrices.
pub(super) const SIDE: usize = 16;

/// A kernel for many query rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Subgroups multiply cooperative matrices.
    Cooperative(Units),
    /// Workgroups stage tiles of keys and values in shared memory, for this many rows.
    Tiled(usize),
    /// One workgroup computes one query row.
    Plain,
}

impl Kernel {
    /// Returns the kernels for heads of these sizes, best first. `sizes` are the maximum numbers of
    /// heads in all batches, of rows, and of keys.
    pub(super) fn all(
        e: &Encoder<'_, '_>,
        [q, k, v]: [&Operand; 3],
        strides: [[u32; 3]; 3],
        sizes: [usize; 3],
    ) -> Vec<Self> {
        let (depths, rows) = ([q.size(3), v.size(3)], sizes[1]);
        let multiplies = [q, k, v].iter().all(|operand| operand.element == Element::F16)
            && e.features().multiply_halves()
            && e.features().keep_sums_as_halves()
            && e.can_run(&AttentionCooperative::MODULE)
            && strides.iter().flatten().all(|stride| stride % 8 == 0);
        let subgroup = e.features().subgroup_size as usize;
        let fills = e.features().fill_subgroups_of_32();
        let device = (subgroup, fills, e.shared_memory() as usize, e.processors());
        let units = match multiplies {
            true => Units::all(depths, sizes, device),
            false => Vec::new(),
        };
        let mut tiles = tiles(depths, rows, e.shared_memory() as usize);
        // Matrix units are faster than any tiles.
        tiles.truncate(if units.is_empty() { tiles.len() } else { 1 });
        let units = units.into_iter().map(Kernel::Cooperative);
        let mut all: Vec<Self> = units.chain(tiles.into_iter().map(Kernel::Tiled)).collect();
        // Single rows are so slow with many rows that autotuning does not try them if another
        // kernel exists.
        if all.is_empty() {
            all.push(Kernel::Plain);
        }
        all
    }
}

/// Returns the possible numbers of query rows for workgroups that stage tiles of keys and values in
/// shared memory, best first; empty if another kernel must be used. `depths` are the head depths of
/// keys and values; `shared` is in bytes.
pub(super) fn tiles(depths: [usize; 2], rows: usize, shared: usize) -> Vec<usize> {
    if rows < TILED_ROWS
        || depths.iter().any(|it| !(4..=TILED_DEPTH).contains(it) || !it.is_multiple_of(4))
    {
        return Vec::new();
    }
    let fits = |tile: &usize| tile_bytes(depths, *tile) <= shared;
    // A tile of twice the size loads keys half as often.
    let larger = (rows > 16).then_some(32);
    let all = [16].into_iter().chain(larger).chain([8, 4]);
    all.filter(fits).collect()
}

/// Returns the shared memory in bytes that a workgroup with this many query rows needs.
pub(super) fn tile_bytes(depths: [usize; 2], rows: usize) -> usize {
    // Groups of four elements, at most sixteen groups of a key at a time.
    let [[times, width], [_, value_width]] = depths.map(|depth| {
        let times = (depth / 4).div_ceil(16);
        [times, (depth / 4).div_ceil(times.max(1))]
    });
    let (keys, weights) = (32, 9);
    let quads = rows * (times * width + 1) + keys * (width.max(value_width) | 1) + rows * weights;
    16 * quads + 4 * rows * (keys / 4 + 1)
}

/// The division of a workgroup that uses cooperative matrices into subgroups. Query rows are
/// divided into groups of sixteen. The subgroups of each group divide the keys and the elements of
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units {
    /// The number of groups of sixteen query rows.
    pub(super) parts: usize,
    /// The number of subgroups per row group that process different keys.
    pub(super) key_parts: usize,
    /// The number of subgroups per row group and key part that process different elements of
    /// values.
    pub(super) value_parts: usize,
}

impl Units {
    /// The number of keys that a subgroup multiplies at a time.
    const KEYS: usize = 32;

    /// The maximum number of query elements that fit into the registers of a subgroup.
    const MAX_DEPTH: usize = 256;

    /// The maximum number of value elements whose sums fit into the registers.
    const MAX_VALUES: usize = 128;

    /// Returns the possible workgroups, best first; empty if another kernel must be used.
    /// Parameters: the depths of keys and values; the numbers of heads, rows and keys; and for the
    /// device, the subgroup size, whether workgroups consist of full subgroups of 32, bytes of
    /// shared memory, and processors.
    pub(super) fn all(
        depths: [usize; 2],
        [heads, rows, keys]: [usize; 3],
        (subgroup, fills, shared, processors): (usize, bool, usize, usize),
    ) -> Vec<Self> {
        let device = (subgroup, fills, shared);
        if depths.iter().any(|it| !(SIDE..=Self::MAX_DEPTH).contains(it) || it % SIDE != 0)
            || subgroup < 32
            || rows < SIDE / 2
        {
            return Vec::new();
        }
        // If each processor has more than one workgroup, sharing keys among subgroups only adds the
        // final reduction. Otherwise, it pays off.
        let workgroups = |parts: usize| rows.div_ceil(SIDE * parts).saturating_mul(heads);
        let order = if workgroups(4) > processors {
            [(4, 1), (2, 1), (1, 1), (4, 2), (2, 2), (1, 2), (2, 4), (1, 4)]
        } else if workgroups(2) > processors {
            [(4, 2), (4, 1), (2, 1), (2, 2), (1, 1), (1, 2), (2, 4), (1, 4)]
        } else {
            [(2, 2), (1, 2), (2, 1), (1, 1), (4, 2), (4, 1), (2, 4), (1, 4)]
        };
        let value_parts = depths[1].div_ceil(Self::MAX_VALUES);
        let all = order.map(|(parts, key_parts)| Units { parts, key_parts, value_parts });
        all.into_iter().filter(|it| it.fits(depths, [rows, keys], device)).collect()
    }

    fn subgroups(self) -> usize {
        self.parts * self.key_parts * self.value_parts
    }

    /// Returns the invocations, assuming subgroups of 32.
    pub(super) fn lanes(self) -> usize {
        32 * self.subgroups()
    }

    fn fits(
        self,
        depths: [usize; 2],
        [rows, keys]: [usize; 2],
        (subgroup, fills, shared): (usize, bool, usize),
    ) -> bool {
        let Units { parts, key_parts, value_parts } = self;
        let [depth, value_depth] = depths;
        // The number of elements that an invocation loads at a time grows with the head depth.
        let least = if depth.max(value_depth) > 64 { 2 } else { 1 };
        // Keys use the same shared memory as the queries, which are in registers by then.
        let of_keys = (SIDE * parts).max(Self::KEYS * key_parts) * (depth + 8) * 2;
        let of_values = Self::KEYS * key_parts * (value_depth + 8) * 2;
        let own = self.subgroups() * SIDE * (9 * 16 + 2 * 4);
        // All invocations load the same amount, all invocations of a subgroup participate, and all
        // have the same number of value elements.
        let even = depths.iter().all(|it| (2 * it / SIDE).is_multiple_of(parts * value_parts))
            && self.lanes().is_multiple_of(subgroup)
            && (value_depth / SIDE).is_multiple_of(value_parts);
        parts >= least
            && self.subgroups() <= 8
            && (parts == least || SIDE * parts < rows + SIDE * parts / 2)
            && (key_parts == 1 || Self::KEYS * key_parts < keys + Self::KEYS)
            && (fills || key_parts * value_parts == 1)
            && even
            && of_keys + of_values + own <= shared
    }
}
