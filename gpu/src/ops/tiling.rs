//! Tilings of GEMMs, in which each workgroup stages operands in shared memory and computes a tile.
//!
//! If the tiles are too few to saturate the device, tiles become smaller, or several workgroups
//! share the terms of a tile (split-K).

use crate::device::{DeviceFeatures, DeviceKind, GemmProfile, Profile, is_parallel, processors};
use crate::encoder::Encoder;
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_shaders::{Element, Module, Pipeline};

/// Whether a GEMM with these operand types and maximum sizes `[batches, m, n, k]` is tiled.
pub(super) fn is_tiled(
    e: &Encoder<'_, '_>,
    factors: Factors,
    [batches, m, n, k]: [usize; 4],
) -> bool {
    Tiling::of(Shape::of([batches, m, n, k]), &Constraints::of(e, factors)).is_some()
}

/// Whether an implicit GEMM with these sizes is tiled; its second operand consists of windows of
/// images. Reading windows needs more instructions per element. It is faster only if many
/// invocations hide the memory latency together, and, for fp16 operands, only with matrix units.
pub(super) fn windows_are_tiled(
    e: &Encoder<'_, '_>,
    factors: [Element; 2],
    [batches, m, n, k]: [usize; 4],
) -> bool {
    let shape = Shape { windows: true, ..Shape::of([batches, m, n, k]) };
    let means = Constraints::of(e, factors.into());
    let tiling = Tiling::of(shape, &means);
    let numbers = |it: Tiling| it.matrices.is_some() || factors == [Element::F32; 2];
    tiling.is_some_and(|it| means.is_parallel() && numbers(it))
}

/// The types of both operands of a GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Factors {
    /// The element types in device memory.
    elements: [Element; 2],
    /// Whether the program computes in `bfloat16`, which is stored as another type.
    bfloat16: bool,
}

impl Factors {
    /// Returns the types of two operands. In a `bfloat16` program, at least one operand that is not
    /// derived has the scalar type `bfloat16`.
    pub(super) fn of(e: &Encoder<'_, '_>, a: &Operand, b: &Operand) -> Self {
        let is_bfloat16 = |it: &Operand| e.scalar_type(it) == Some(ScalarType::BFloat16);
        Factors { elements: [a.element, b.element], bfloat16: is_bfloat16(a) || is_bfloat16(b) }
    }
}

impl From<[Element; 2]> for Factors {
    fn from(elements: [Element; 2]) -> Self {
        Factors { elements, bfloat16: false }
    }
}

/// The element type of cooperative matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matrices {
    Halves,
    /// `bfloat16`, converted from another type when the operand is staged in shared memory.
    Bfloat16,
}

/// Properties of the operands and the device that a tiling depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constraints {
    factors: Factors,
    /// The number of invocations that saturate the device.
    busy: usize,
    /// The number of processors of the device.
    processors: usize,
    /// Bytes of shared memory per workgroup.
    shared: u32,
    halves: bool,
    bfloat16: bool,
    /// Whether two subgroups can share the terms of the same part of a tile, which requires full
    /// subgroups of 32.
    pairs: bool,
    /// The tuned constants of the device's class.
    profile: GemmProfile,
}

impl Constraints {
    pub(super) fn of(e: &Encoder<'_, '_>, factors: Factors) -> Self {
        let means = Constraints::new(factors, e.busy(), e.features(), e.shared_memory());
        Constraints { processors: e.processors(), profile: e.profile().gemm, ..means }
    }

    fn new(factors: Factors, busy: usize, features: &DeviceFeatures, shared: u32) -> Self {
        let (halves, bfloat16) = (features.multiply_halves(), features.multiply_bfloat16());
        let pairs = features.fill_subgroups_of_32();
        let (processors, profile) = (processors(busy), Profile::of(DeviceKind::Discrete).gemm);
        Constraints { factors, busy, processors, shared, halves, bfloat16, pairs, profile }
    }

    /// Returns the type of cooperative matrices to use for these operands; `windows` means an
    /// implicit GEMM. Returns `None` if cooperative matrices are unsupported.
    fn matrices(&self, windows: bool) -> Option<Matrices> {
        let fits = cooperative_shared([64, 64], 32, LANES) <= self.shared as usize;
        let Factors { elements, bfloat16 } = self.factors;
        match elements {
            _ if !fits => None,
            [Element::F16, Element::F16] if self.halves => Some(Matrices::Halves),
            _ if bfloat16 && self.bfloat16 && !windows => Some(Matrices::Bfloat16),
            _ => None,
        }
    }

    /// Whether invocations run in parallel, rather than in sequence.
    fn is_parallel(&self) -> bool {
        is_parallel(self.busy)
    }
}

/// Invocations per workgroup of a normal tile.
const LANES: u32 = 128;

/// Invocations per workgroup of a large tile with cooperative matrices.
const MANY_LANES: u32 = 256;

/// The maximum sizes of a GEMM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) batches: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Whether the second operand consists of windows of images (implicit GEMM).
    pub(super) windows: bool,
    /// Whether all rows of both operands start at multiples of eight elements.
    pub(super) octets: bool,
    /// Whether the sizes change from run to run, and are usually smaller than the maximum.
    pub(super) varies: bool,
}

impl Shape {
    /// A GEMM whose rows all start at multiples of eight elements.
    pub(super) fn of([batches, m, n, k]: [usize; 4]) -> Self {
        Shape { batches, m, n, k, windows: false, octets: true, varies: false }
    }

    /// Returns the number of tiles of this size.
    pub(super) fn tiles(&self, [height, width]: [usize; 2]) -> usize {
        let Shape { batches, m, n, .. } = self;
        m.div_ceil(height).saturating_mul(n.div_ceil(width)).saturating_mul(*batches)
    }
}

/// The tiling of a GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Rows and columns of a tile.
    pub(super) tile: [usize; 2],
    /// The number of workgroups that share the terms of a tile (split-K).
    pub(super) splits: usize,
    /// Whether another dispatch adds up the partial sums. Otherwise, the last workgroup of a tile
    /// does.
    pub(super) apart: bool,
    /// The element type of cooperative matrices, if they are used.
    pub(super) matrices: Option<Matrices>,
    /// The number of terms staged in shared memory at a time.
    pub(super) terms: usize,
    /// Invocations per workgroup.
    pub(super) lanes: u32,
    /// The number of subgroups that share the terms of each part of a tile.
    pub(super) term_parts: u32,
}

impl Tiling {
    /// Returns the module of a pipeline for this tiling.
    pub(super) fn module<P: Pipeline>(&self) -> Module {
        let better = self.matrices.and_then(|matrices| match matrices {
            Matrices::Halves => P::BETTER.first(),
            Matrices::Bfloat16 => P::BETTER.get(1),
        });
        better.copied().unwrap_or(P::MODULE)
    }

    /// Returns the tiling of a GEMM, if tiles are faster than the untiled kernel.
    pub(super) fn of(shape: Shape, means: &Constraints) -> Option<Self> {
        let tiling = Self::of_any(shape, means)?;
        let least = means.profile.work;
        let least = if tiling.matrices.is_some() { least / 2 } else { least };
        let Shape { batches, m, n, k, .. } = shape;
        let work = [batches, m, n, k].into_iter().fold(1, usize::saturating_mul);
        (work >= means.busy.saturating_mul(least)).then_some(tiling)
    }

    /// Returns the tiling of a GEMM with a fused layer norm of its rows, if a tiling supports that.
    pub(super) fn normed(shape: Shape, means: &Constraints) -> Option<Self> {
        Self::of(shape, means).filter(|it| it.can_norm(shape, means.shared))
    }

    /// Whether workgroups can normalise rows, which requires that they load whole rows.
    fn can_norm(&self, shape: Shape, shared: u32) -> bool {
        let Shape { windows, octets, varies, .. } = shape;
        let [rows, columns] = self.tile;
        let (factors, units) = match self.matrices {
            Some(_) => (self.shared(), self.terms / 8),
            None => ((rows + columns + 8) * self.terms * 4, self.terms / 4),
        };
        // Shared memory for the norm: two 32-bit values per unit and row, two per row, and one per
        // column.
        let bytes = factors + rows * (units + 1) * 8 + columns * 4;
        let is_able = self.splits == 1 && self.matrices != Some(Matrices::Bfloat16);
        is_able && octets && !windows && !varies && bytes <= shared as usize
    }

    /// Returns alternatives for the same GEMM with a fused norm.
    pub(super) fn others_normed(&self, shape: Shape, shared: u32) -> Vec<Self> {
        let others = self.others(shape, shared).into_iter();
        others.filter(|it| it.can_norm(shape, shared)).collect()
    }

    /// Returns a tiling even if the GEMM is too small to keep the device busy.
    pub(super) fn of_any(shape: Shape, means: &Constraints) -> Option<Self> {
        let Shape { m, n, k, windows, octets, varies, .. } = shape;
        let Constraints { busy, shared, .. } = *means;
        let matrices = means.matrices(windows);
        let cooperative = matrices.is_some();
        if m.min(n).min(k) < MIN_SIDE {
            return None;
        }
        if !varies && let Some(large) = Self::large(shape, means) {
            return Some(large);
        }
        if !varies && let Some(tiling) = Self::in_a_round(shape, means) {
            return Some(tiling);
        }
        let tiles = |tile| shape.tiles(tile);
        // Large tiles need fewer loads per multiplication, but require enough tiles. On software
        // devices, invocations run in sequence and keep their registers in memory.
        let parallel = means.is_parallel();
        let workgroups = busy / LANES as usize;
        let enough = match (cooperative, varies) {
            (false, _) => workgroups / 2 * 3,
            (true, true) => workgroups / 4 * 3,
            (true, false) => workgroups / 8 * 3,
        };
        let many = Self::of_large(matrices, true, 1);
        let whole = match cooperative && octets && many.shared() <= shared as usize {
            true => many,
            false => Self::of_large(matrices, false, 1),
        };
        if m.min(n) >= LARGE_SIDE
            && !windows
            && parallel
            && tiles(whole.tile) >= enough
            && shared as usize >= whole.shared()
        {
            return Some(whole);
        }
        let tile = match (m <= MIN_SIDE, n <= MIN_SIDE) {
            (true, false) => [32, 64],
            (false, true) => [64, 32],
            _ => [64, 64],
        };
        let enough = workgroups.max(MIN_WORKGROUPS);
        // Returns how many workgroups may share each of `tiles` tiles.
        let splits = |tiles: usize, terms: usize| {
            let least = means.profile.split_terms * if terms > 32 { 6 } else { 1 };
            (enough / tiles).clamp(1, k.div_ceil(least).min(MAX_SPLITS))
        };
        // If few workgroups hide memory latency, smaller tiles increase the number of workgroups,
        // and loads of eight elements increase the number of loads in flight.
        let sharing = tiles(tile).saturating_mul(splits(tiles(tile), 64));
        let few = sharing < enough / 4;
        let wide = cooperative && octets && !windows;
        let tile = match tile {
            [64, 64] if wide && parallel && few => [32, 64],
            [64, 64] if cooperative && !wide && tiles(tile) < enough => [64, 32],
            tile => tile,
        };
        let terms = match cooperative {
            false => PLAIN_TERMS,
            true if !wide => 32,
            true => {
                let most = if tile == [64, 64] && sharing > enough / 4 { 64 } else { 128 };
                let fits = |terms: &usize| {
                    *terms < 2 * k && cooperative_shared(tile, *terms, LANES) <= shared as usize
                };
                [most, 64].into_iter().find(fits).unwrap_or(32)
            }
        };
        let splits = splits(tiles(tile), terms);
        let tiling =
            Tiling { tile, splits, apart: false, matrices, terms, lanes: LANES, term_parts: 1 };
        // If rows cannot be loaded in eights, twice as many terms are staged.
        let pairs = Tiling { terms: 64, lanes: MANY_LANES, term_parts: 2, ..tiling };
        let is_better = matrices == Some(Matrices::Halves)
            && !octets
            && !windows
            && parallel
            && means.pairs
            && k >= 128
            && pairs.is_even()
            && pairs.shared() <= shared as usize;
        Some(if is_better { pairs } else { tiling })
    }

    /// Returns fp16 tiles for one workgroup per processor, in which two subgroups share the terms
    /// of each part. They suit GEMMs whose workgroups all run in a single round; with more
    /// workgroups, some processors would have two while others have one.
    fn in_a_round(shape: Shape, means: &Constraints) -> Option<Self> {
        let Shape { k, windows, octets, .. } = shape;
        let processors = means.processors;
        let matrices = Some(Matrices::Halves);
        let is_for = means.matrices(windows) == matrices
            && octets
            && !windows
            && means.pairs
            && means.is_parallel()
            && k >= means.profile.round_terms;
        if !is_for {
            return None;
        }
        let of = |(tile, terms): ([usize; 2], usize)| {
            let tiles = shape.tiles(tile);
            let most = (k / (2 * terms)).clamp(1, MAX_SPLITS);
            let splits = (processors / tiles.max(1)).clamp(1, most);
            let (lanes, term_parts) = (MANY_LANES, 2);
            let tiling = Tiling { tile, splits, apart: false, matrices, terms, lanes, term_parts };
            let workgroups = tiles.saturating_mul(splits);
            let fits = workgroups <= processors
                && workgroups.saturating_mul(4) >= processors.saturating_mul(3)
                && tiling.shared() <= means.shared as usize;
            fits.then_some(tiling)
        };
        // Each step has a fixed cost. Adding up the partial sums costs as much as two steps for
        // each workgroup that shares a tile.
        let cost = |it: &Tiling| {
            let steps = k.div_ceil(it.splits).div_ceil(64);
            let adding = if it.splits > 1 { 2 * it.splits } else { 0 };
            (steps + adding) * (it.tile[0] * it.tile[1] + 3072)
        };
        let tiles = [([64, 96], 64), ([32, 128], 64), ([32, 96], 128), ([96, 64], 64)];
        tiles.into_iter().filter_map(of).min_by_key(cost)
    }

    /// Returns large tiles. `many` selects more invocations, which stage twice the terms at a time.
    fn of_large(matrices: Option<Matrices>, many: bool, splits: usize) -> Self {
        let (tile, terms, lanes) = match (matrices.is_some(), many) {
            (false, _) => (LARGE_PLAIN_TILE, PLAIN_TERMS, LANES),
            (true, false) => ([LARGE_SIDE; 2], 32, LANES),
            (true, true) => ([LARGE_SIDE; 2], 64, MANY_LANES),
        };
        Tiling { tile, splits, apart: false, matrices, terms, lanes, term_parts: 1 }
    }

    /// Returns large tiles with cooperative matrices and many invocations, if they are faster than
    /// other tiles. Three conditions must hold: rows can be loaded in units of 128 bytes, the last
    /// tiles exceed the matrix only a little, and every round of workgroups uses most of the
    /// device. Each processor runs one such workgroup at a time.
    pub(super) fn large(shape: Shape, means: &Constraints) -> Option<Self> {
        let Shape { k, windows, octets, varies, .. } = shape;
        let Constraints { processors: at_once, shared, .. } = *means;
        if !octets || windows || !means.is_parallel() {
            return None;
        }
        let matrices = means.matrices(windows)?;
        let tiles = shape.tiles([LARGE_SIDE; 2]);
        let GemmProfile { large_terms, round_terms, .. } = means.profile;
        let is_long = k >= large_terms || tiles >= at_once * 2;
        let splits = (at_once / tiles.max(1)).clamp(1, (k / large_terms).clamp(1, MAX_SPLITS));
        let square = Self::of_large(Some(matrices), true, splits);
        // Wide tiles support neither split-K nor dynamic rows.
        let many = splits == 1 && !varies && matrices == Matrices::Halves;
        let wide = many.then_some(Tiling { tile: WIDE_TILE, ..square });
        let fits = |it: &Tiling| {
            it.is_full(shape) && it.fills(shape, at_once) && it.shared() <= shared as usize
        };
        // A step of wide tiles lasts a fifth longer.
        let step = |it: &Tiling| if it.is_wide() { 6 } else { 5 };
        let cost = |it: &Tiling| it.rounds(shape, at_once).saturating_mul(step(it));
        let worthwhile = is_long.then_some(square);
        let wide = wide.filter(|_| is_long || k >= round_terms);
        worthwhile.into_iter().chain(wide).filter(fits).min_by_key(cost)
    }

    /// Whether the last tiles exceed the matrix only a little.
    fn is_full(&self, shape: Shape) -> bool {
        let is_full = |(side, tile): (usize, usize)| side.next_multiple_of(tile) <= side / 8 * 9;
        [(shape.m, self.tile[0]), (shape.n, self.tile[1])].into_iter().all(is_full)
    }

    /// Whether these large tiles are also fast for the current number of rows.
    pub(super) fn suits(&self, shape: Shape, processors: usize) -> bool {
        // Up to a third of the tiles' rows may be padding: small tiles need half as much time again
        // for the same work.
        let padded = shape.m.next_multiple_of(self.tile[0]);
        padded.saturating_mul(2) <= shape.m.saturating_mul(3) && self.fills(shape, processors)
    }

    /// Returns the number of rounds of workgroups; each processor runs one workgroup of large tiles
    /// at a time.
    fn rounds(&self, shape: Shape, processors: usize) -> usize {
        self.workgroups(shape).div_ceil(processors)
    }

    /// Returns the number of workgroups of a GEMM.
    fn workgroups(&self, shape: Shape) -> usize {
        shape.tiles(self.tile).saturating_mul(self.splits)
    }

    /// Whether workgroups of large tiles use most of the device in every round.
    fn fills(&self, shape: Shape, processors: usize) -> bool {
        let places = self.rounds(shape, processors).saturating_mul(processors);
        self.workgroups(shape).saturating_mul(10) >= places.saturating_mul(7)
    }

    /// Whether the tiling uses [`WIDE_TILE`].
    pub(super) fn is_wide(&self) -> bool {
        self.tile == WIDE_TILE
    }

    /// Whether the tiling uses large tiles.
    fn is_large(&self) -> bool {
        let is_plain = self.matrices.is_none() && self.tile == LARGE_PLAIN_TILE;
        is_plain || self.tile.iter().all(|side| *side >= LARGE_SIDE)
    }

    /// Whether the shader divides the tile evenly: all invocations load the same amount, and all
    /// subgroups multiply.
    fn is_even(&self) -> bool {
        let lanes = self.lanes as usize;
        let brought = |side: &usize| (side * self.terms / 8).is_multiple_of(lanes);
        self.term_parts == 1
            || (self.tile.iter().all(brought) && self.terms >= 16 * self.term_parts as usize)
    }

    /// Returns the bytes of shared memory that the shader uses.
    fn shared(&self) -> usize {
        match self.matrices {
            Some(_) => cooperative_shared(self.tile, self.terms, self.lanes),
            None => LARGE_SHARED,
        }
    }

    /// Returns alternatives for autotuning. Each differs in the tile, in the number of splits, or
    /// in the number of terms staged at a time.
    pub(super) fn others(&self, shape: Shape, shared: u32) -> Vec<Self> {
        let Shape { m, n, k, windows, octets, .. } = shape;
        let cooperative = self.matrices.is_some();
        let fits = |tiling: &Self| {
            let is_large = tiling.is_large();
            tiling != self
                && tiling.is_even()
                && (!is_large || (!windows && m.min(n) >= LARGE_SIDE))
                && ((!is_large && tiling.matrices.is_none()) || tiling.shared() <= shared as usize)
                && (1..=MAX_SPLITS.min(k.div_ceil(tiling.terms))).contains(&tiling.splits)
        };
        let tiles = |tile| shape.tiles(tile);
        let in_tiles = |tile: [usize; 2]| {
            // About as many workgroups as before.
            let splits = self.splits.saturating_mul(tiles(self.tile)) / tiles(tile).max(1);
            let splits = splits.clamp(1, MAX_SPLITS);
            if tile == [LARGE_SIDE; 2] {
                let large = Self::of_large(self.matrices, false, splits);
                return Tiling { apart: self.apart, ..large };
            }
            Tiling { tile, splits, lanes: LANES, term_parts: 1, ..*self }
        };
        let sides = [[64, 64], [32, 64], [64, 32], [LARGE_SIDE; 2]].map(in_tiles);
        let many = cooperative && octets;
        let shared_by_many = many.then(|| Tiling {
            apart: self.apart,
            ..Self::of_large(self.matrices, true, in_tiles([LARGE_SIDE; 2]).splits)
        });
        let halves = self.matrices == Some(Matrices::Halves);
        let wide = (many && halves)
            .then(|| Tiling { tile: WIDE_TILE, ..Self::of_large(self.matrices, true, 1) });
        let shares = [self.splits * 2, self.splits / 2, self.splits * 4]
            .map(|splits| Tiling { splits, ..*self });
        let elsewhere = (self.splits > 1).then_some(Tiling { apart: !self.apart, ..*self });
        let eights = cooperative && octets && !windows && !self.is_large();
        let terms = [32, 64, 128]
            .into_iter()
            .filter(|terms| eights && (*terms == 32 || *terms < 2 * k))
            .map(|terms| Tiling { terms, ..*self });
        // Some drivers emulate cooperative matrices, so a tiling without them is tried as well. The
        // shader without them supports only these tile sides.
        let plain = self.tile.iter().all(|side| [32, 64].contains(side));
        let apart = cooperative.then(|| Tiling {
            matrices: None,
            terms: PLAIN_TERMS,
            term_parts: 1,
            lanes: LANES,
            ..in_tiles(if plain { self.tile } else { [64, 64] })
        });
        let ways = sides.into_iter().chain(shares).chain(elsewhere).chain(terms);
        ways.chain(shared_by_many).chain(wide).chain(apart).filter(fits).collect()
    }
}

/// Returns the number of elements that an operand's tile occupies in shared memory, with rows
/// padded by eight elements, in either order.
const fn padded(side: usize, terms: usize) -> usize {
    if side > terms { side * (terms + 8) } else { terms * (side + 8) }
}

/// Returns the bytes of shared memory for fp16 tiles. The result matrices of the subgroups reuse
/// the memory of the first operand.
const fn cooperative_shared([height, width]: [usize; 2], terms: usize, lanes: u32) -> usize {
    let (first, second) = (padded(height, terms) * 2, padded(width, terms) * 2);
    let results = lanes as usize / 32 * 16 * 16 * 4;
    // The last four bytes hold the flag for the last workgroup of a tile.
    (if first > results { first } else { results }) + second + 4
}

/// The number of terms staged at a time without cooperative matrices.
const PLAIN_TERMS: usize = 16;

/// The rows and columns of large tiles with cooperative matrices.
const LARGE_SIDE: usize = 128;

/// Large tiles without cooperative matrices: 16 rows of four columns per invocation, which is
/// faster than tiles of 128×128.
const LARGE_PLAIN_TILE: [usize; 2] = [64, 128];
/// The maximum bytes of shared memory that large tiles without cooperative matrices use.
const LARGE_SHARED: usize = 16 << 10;

/// The sides of wide fp16 tiles: half as much work again per step as large tiles, in a fifth more
/// time.
const WIDE_TILE: [usize; 2] = [128, 192];

/// The minimum rows, columns and terms of a tiled GEMM.
const MIN_SIDE: usize = 32;

/// The number of workgroups that any device runs concurrently.
const MIN_WORKGROUPS: usize = 4;

/// The maximum number of splits. With more, adding up the partial sums lasts longer than computing
/// them.
pub(super) const MAX_SPLITS: usize = 32;

#[cfg(test)]
mod tests;
