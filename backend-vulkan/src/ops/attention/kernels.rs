//! The kernels of attention for many rows, and how they divide it.

use crate::encoder::Encoder;
use crate::tensors::Operand;
use torchlet_shaders::{AttentionCooperative, Element, Pipeline};

/// The heads that are short enough for tiles of rows: of 512 elements, a row alone was faster on
/// lavapipe.
const TILED_DEPTH: usize = 256;

/// The rows from which on tiles of them are worth it.
const TILED_ROWS: usize = 8;

/// Rows, columns and terms of the matrices that subgroups multiply.
pub(super) const SIDE: usize = 16;

/// The kernels for many rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Subgroups multiply matrices.
    Cooperative(Units),
    /// Workgroups bring tiles of keys and values to shared memory, for so many rows.
    Tiled(usize),
    /// A workgroup for each row.
    Plain,
}

impl Kernel {
    /// The kernels that there are for heads of these sizes, the one first that is known to be good:
    /// `sizes` are how many heads there are in all batches, rows and keys, each at most.
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
        // Matrix units are faster, whatever the tiles.
        tiles.truncate(if units.is_empty() { tiles.len() } else { 1 });
        let units = units.into_iter().map(Kernel::Cooperative);
        let mut all: Vec<Self> = units.chain(tiles.into_iter().map(Kernel::Tiled)).collect();
        // Of many rows it takes so long that it is not even tried, where there is another one.
        if all.is_empty() {
            all.push(Kernel::Plain);
        }
        all
    }
}

/// How many rows a workgroup can have that brings tiles of keys and values to shared memory, the
/// best first; none if this is for another kernel. By the depths of keys and values, how many rows
/// there are, and bytes of shared memory.
pub(super) fn tiles(depths: [usize; 2], rows: usize, shared: usize) -> Vec<usize> {
    if rows < TILED_ROWS
        || depths.iter().any(|it| !(4..=TILED_DEPTH).contains(it) || !it.is_multiple_of(4))
    {
        return Vec::new();
    }
    let fits = |tile: &usize| tile_bytes(depths, *tile) <= shared;
    // A tile that is twice as large brings keys half as often.
    let larger = (rows > 16).then_some(32);
    let all = [16].into_iter().chain(larger).chain([8, 4]);
    all.filter(fits).collect()
}

/// What the shader keeps in the memory of a workgroup with so many rows.
pub(super) fn tile_bytes(depths: [usize; 2], rows: usize) -> usize {
    // Groups of four elements, at most sixteen of a key at a time.
    let [[times, width], [_, value_width]] = depths.map(|depth| {
        let times = (depth / 4).div_ceil(16);
        [times, (depth / 4).div_ceil(times.max(1))]
    });
    let (keys, weights) = (32, 9);
    let quads = rows * (times * width + 1) + keys * (width.max(value_width) | 1) + rows * weights;
    16 * quads + 4 * rows * (keys / 4 + 1)
}

/// The subgroups of a workgroup that multiplies matrices: for sixteens of rows, and for each of
/// these so many that share the keys, and the elements of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units {
    /// Sixteens of rows.
    pub(super) parts: usize,
    /// Subgroups of each of these that have keys of their own.
    pub(super) key_parts: usize,
    /// Subgroups of each of these and the same keys that have elements of their own.
    pub(super) value_parts: usize,
}

impl Units {
    /// Keys that each multiplies at a time.
    const KEYS: usize = 32;

    /// Elements of queries that a subgroup has the registers for.
    const MOST_DEPTH: usize = 256;

    /// Elements of values whose sums it has the registers for.
    const MOST_VALUES: usize = 128;

    /// How workgroups can be made up, the best first; none if this is for another kernel. By the
    /// depths of keys and values, how many heads, rows and keys there are, and of the device: the
    /// invocations of a subgroup, whether workgroups are filled with subgroups of 32, bytes of
    /// shared memory, and processors.
    pub(super) fn all(
        depths: [usize; 2],
        [heads, rows, keys]: [usize; 3],
        (subgroup, fills, shared, processors): (usize, bool, usize, usize),
    ) -> Vec<Self> {
        let device = (subgroup, fills, shared);
        if depths.iter().any(|it| !(SIDE..=Self::MOST_DEPTH).contains(it) || it % SIDE != 0)
            || subgroup < 32
            || rows < SIDE / 2
        {
            return Vec::new();
        }
        // On an NVIDIA H200: where all processors have a workgroup and more, subgroups of it that
        // share keys only add what joins them at the end; where they have one of many rows, or need
        // not have one, these are worth it.
        let workgroups = |parts: usize| rows.div_ceil(SIDE * parts).saturating_mul(heads);
        let order = if workgroups(4) > processors {
            [(4, 1), (2, 1), (1, 1), (4, 2), (2, 2), (1, 2), (2, 4), (1, 4)]
        } else if workgroups(2) > processors {
            [(4, 2), (4, 1), (2, 1), (2, 2), (1, 1), (1, 2), (2, 4), (1, 4)]
        } else {
            [(2, 2), (1, 2), (2, 1), (1, 1), (4, 2), (4, 1), (2, 4), (1, 4)]
        };
        let value_parts = depths[1].div_ceil(Self::MOST_VALUES);
        let all = order.map(|(parts, key_parts)| Units { parts, key_parts, value_parts });
        all.into_iter().filter(|it| it.fits(depths, [rows, keys], device)).collect()
    }

    fn subgroups(self) -> usize {
        self.parts * self.key_parts * self.value_parts
    }

    /// Invocations, as many as if subgroups had 32.
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
        // What an invocation brings at a time grows with the depth.
        let least = if depth.max(value_depth) > 64 { 2 } else { 1 };
        // Keys lie where queries did.
        let of_keys = (SIDE * parts).max(Self::KEYS * key_parts) * (depth + 8) * 2;
        let of_values = Self::KEYS * key_parts * (value_depth + 8) * 2;
        let own = self.subgroups() * SIDE * (9 * 16 + 2 * 4);
        // All invocations bring as much, all of a subgroup take part, and all have as many elements
        // of values.
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
