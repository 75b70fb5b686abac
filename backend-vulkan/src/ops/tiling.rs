//! How products of matrices are cut into tiles, which workgroups bring to shared memory.
//!
//! Where there are fewer tiles than it takes to keep the device busy, they are smaller, or several
//! workgroups share the sums of one.

use crate::device::{DeviceFeatures, is_parallel, processors};
use crate::encoder::Encoder;
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_shaders::{Element, Module, Pipeline};

/// Whether tiles in shared memory compute a product of factors of these types: `[batches, m, n, k]`
/// at most.
pub(super) fn is_tiled(
    e: &Encoder<'_, '_>,
    factors: Factors,
    [batches, m, n, k]: [usize; 4],
) -> bool {
    Tiling::of(Shape::of([batches, m, n, k]), &Means::of(e, factors)).is_some()
}

/// The same of a product whose second factor are windows of pictures. That takes more instructions
/// for each element: it is worth it where many invocations wait for memory together, and not for
/// halves that are multiplied as if they were wider.
pub(super) fn windows_are_tiled(
    e: &Encoder<'_, '_>,
    factors: [Element; 2],
    [batches, m, n, k]: [usize; 4],
) -> bool {
    let shape = Shape { windows: true, ..Shape::of([batches, m, n, k]) };
    let means = Means::of(e, factors.into());
    let tiling = Tiling::of(shape, &means);
    let numbers = |it: Tiling| it.matrices.is_some() || factors == [Element::F32; 2];
    tiling.is_some_and(|it| means.is_parallel() && numbers(it))
}

/// What a product is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Factors {
    /// What both are kept as.
    elements: [Element; 2],
    /// Whether they are numbers of `bfloat16`, which are kept as others.
    bfloat16: bool,
}

impl Factors {
    /// The factors of a product; a program that computes in `bfloat16` says so of one at least that
    /// is not made here.
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

/// What subgroups multiply matrices of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matrices {
    Halves,
    /// Numbers of `bfloat16`, which workgroups make of others on their way to shared memory.
    Bfloat16,
}

/// What tiles depend on beside the shape of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    factors: Factors,
    /// How many invocations keep the device busy.
    busy: usize,
    /// The device's processors.
    processors: usize,
    /// Bytes that a workgroup shares.
    shared: u32,
    halves: bool,
    bfloat16: bool,
    /// Whether two subgroups can share the terms of a part: workgroups have as many subgroups as
    /// they count on.
    pairs: bool,
}

impl Means {
    pub(super) fn of(e: &Encoder<'_, '_>, factors: Factors) -> Self {
        let means = Means::new(factors, e.busy(), e.features(), e.shared_memory());
        Means { processors: e.processors(), ..means }
    }

    fn new(factors: Factors, busy: usize, features: &DeviceFeatures, shared: u32) -> Self {
        let (halves, bfloat16) = (features.multiply_halves(), features.multiply_bfloat16());
        let pairs = features.fill_subgroups_of_32();
        Means { factors, busy, processors: processors(busy), shared, halves, bfloat16, pairs }
    }

    /// What subgroups multiply for such factors, of a convolution over windows or not.
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

    /// Whether invocations run beside each other, rather than in turns.
    fn is_parallel(&self) -> bool {
        is_parallel(self.busy)
    }
}

/// Invocations of a workgroup for a tile.
const LANES: u32 = 128;

/// Invocations of one for a large tile of matrices.
const MANY_LANES: u32 = 256;

/// The sizes of a product at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) batches: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Whether the second factor are windows of pictures.
    pub(super) windows: bool,
    /// Whether all rows of both factors start at multiples of eight elements.
    pub(super) octets: bool,
    /// Whether the sizes change from run to run, and mostly are smaller.
    pub(super) varies: bool,
}

impl Shape {
    /// Of matrices whose rows all start at multiples of eight elements.
    pub(super) fn of([batches, m, n, k]: [usize; 4]) -> Self {
        Shape { batches, m, n, k, windows: false, octets: true, varies: false }
    }

    /// How many tiles of so many rows and columns there are.
    pub(super) fn tiles(&self, [height, width]: [usize; 2]) -> usize {
        let Shape { batches, m, n, .. } = self;
        m.div_ceil(height).saturating_mul(n.div_ceil(width)).saturating_mul(*batches)
    }
}

/// How a product is cut into tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Rows and columns.
    pub(super) tile: [usize; 2],
    /// The workgroups that share the sums of a tile.
    pub(super) splits: usize,
    /// Whether another dispatch adds up what these have, in place of the last of them to be done.
    pub(super) apart: bool,
    /// What subgroups multiply matrices of, if they do.
    pub(super) matrices: Option<Matrices>,
    /// The terms that workgroups bring to shared memory at a time.
    pub(super) terms: usize,
    /// The invocations of a workgroup.
    pub(super) lanes: u32,
    /// The subgroups that share the terms of each part of a tile.
    pub(super) term_parts: u32,
}

impl Tiling {
    /// The module of a pipeline that computes the tiles.
    pub(super) fn module<P: Pipeline>(&self) -> Module {
        let better = self.matrices.and_then(|matrices| match matrices {
            Matrices::Halves => P::BETTER.first(),
            Matrices::Bfloat16 => P::BETTER.get(1),
        });
        better.copied().unwrap_or(P::MODULE)
    }

    /// The tiles for a product of two factors of these types, if it is for tiles.
    pub(super) fn of(shape: Shape, means: &Means) -> Option<Self> {
        let tiling = Self::of_any(shape, means)?;
        let least = if tiling.matrices.is_some() { LEAST_WORK / 2 } else { LEAST_WORK };
        let Shape { batches, m, n, k, .. } = shape;
        let work = [batches, m, n, k].into_iter().fold(1, usize::saturating_mul);
        (work >= means.busy.saturating_mul(least)).then_some(tiling)
    }

    /// The tiles of a product that normalises the rows of its first factor on the way, if its tiles
    /// can.
    pub(super) fn normed(shape: Shape, means: &Means) -> Option<Self> {
        Self::of(shape, means).filter(|it| it.can_norm(shape, means.shared))
    }

    /// Whether workgroups can normalise rows: they have to see all of them.
    fn can_norm(&self, shape: Shape, shared: u32) -> bool {
        let Shape { windows, octets, varies, .. } = shape;
        let [rows, columns] = self.tile;
        let (factors, units) = match self.matrices {
            Some(_) => (self.shared(), self.terms / 8),
            None => ((rows + columns + 8) * self.terms * 4, self.terms / 4),
        };
        // Two numbers of 32 bits for each unit of a row, and for each row; one for each column.
        let bytes = factors + rows * (units + 1) * 8 + columns * 4;
        let is_able = self.splits == 1 && self.matrices != Some(Matrices::Bfloat16);
        is_able && octets && !windows && !varies && bytes <= shared as usize
    }

    /// Others for the same product of rows that are normalised.
    pub(super) fn others_normed(&self, shape: Shape, shared: u32) -> Vec<Self> {
        let others = self.others(shape, shared).into_iter();
        others.filter(|it| it.can_norm(shape, shared)).collect()
    }

    /// The same however little there is to do.
    pub(super) fn of_any(shape: Shape, means: &Means) -> Option<Self> {
        let Shape { m, n, k, windows, octets, varies, .. } = shape;
        let Means { busy, shared, .. } = *means;
        let matrices = means.matrices(windows);
        let cooperative = matrices.is_some();
        if m.min(n).min(k) < LEAST_SIDE {
            return None;
        }
        if !varies && let Some(large) = Self::large(shape, means) {
            return Some(large);
        }
        if !varies && let Some(tiling) = Self::in_a_round(shape, means) {
            return Some(tiling);
        }
        let tiles = |tile| shape.tiles(tile);
        // Large tiles take fewer bytes for each product, but there have to be enough of them.
        // Invocations of software devices take turns: what they keep lies in memory.
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
        let tile = match (m <= LEAST_SIDE, n <= LEAST_SIDE) {
            (true, false) => [32, 64],
            (false, true) => [64, 32],
            _ => [64, 64],
        };
        let enough = workgroups.max(LEAST_WORKGROUPS);
        // The workgroups that may share the sums of one of so many tiles.
        let splits = |tiles: usize, terms: usize| {
            let least = LEAST_TERMS_OF_SPLIT * if terms > 32 { 6 } else { 1 };
            (enough / tiles).clamp(1, k.div_ceil(least).min(MOST_SPLITS))
        };
        // Where few workgroups wait for memory, more of them wait at once; and for more, where an
        // invocation brings eight elements at a time.
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
        // Where rows are not brought at once, twice the terms are.
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

    /// Tiles of halves for one workgroup on each processor, in which two subgroups share the terms
    /// of each part: for products that one round of workgroups makes. Of more, some processors
    /// would have two while others have one.
    ///
    /// On an NVIDIA H200, 197×768 · 768×3072 takes 13.4 µs so, where 192 tiles of 64×64 took 15.6;
    /// and 197×3072 · 3072×768 with 197×768 · 768×768 take 26.9 together, where they took 28.9.
    fn in_a_round(shape: Shape, means: &Means) -> Option<Self> {
        let Shape { k, windows, octets, .. } = shape;
        let processors = means.processors;
        let matrices = Some(Matrices::Halves);
        let is_for = means.matrices(windows) == matrices
            && octets
            && !windows
            && means.pairs
            && means.is_parallel()
            && k >= LEAST_TERMS_OF_ROUND;
        if !is_for {
            return None;
        }
        let of = |(tile, terms): ([usize; 2], usize)| {
            let tiles = shape.tiles(tile);
            let most = (k / (2 * terms)).clamp(1, MOST_SPLITS);
            let splits = (processors / tiles.max(1)).clamp(1, most);
            let (lanes, term_parts) = (MANY_LANES, 2);
            let tiling = Tiling { tile, splits, apart: false, matrices, terms, lanes, term_parts };
            let workgroups = tiles.saturating_mul(splits);
            let fits = workgroups <= processors
                && workgroups.saturating_mul(4) >= processors.saturating_mul(3)
                && tiling.shared() <= means.shared as usize;
            fits.then_some(tiling)
        };
        // Steps take some time however small they are, and adding up as long as two for each that
        // shares the sums.
        let cost = |it: &Tiling| {
            let steps = k.div_ceil(it.splits).div_ceil(64);
            let adding = if it.splits > 1 { 2 * it.splits } else { 0 };
            (steps + adding) * (it.tile[0] * it.tile[1] + 3072)
        };
        let tiles = [([64, 96], 64), ([32, 128], 64), ([32, 96], 128), ([96, 64], 64)];
        tiles.into_iter().filter_map(of).min_by_key(cost)
    }

    /// Large tiles; `many`: that many invocations share, which bring twice the terms at a time.
    fn of_large(matrices: Option<Matrices>, many: bool, splits: usize) -> Self {
        let (tile, terms, lanes) = match (matrices.is_some(), many) {
            (false, _) => (LARGE_PLAIN_TILE, PLAIN_TERMS, LANES),
            (true, false) => ([LARGE_SIDE; 2], 32, LANES),
            (true, true) => ([LARGE_SIDE; 2], 64, MANY_LANES),
        };
        Tiling { tile, splits, apart: false, matrices, terms, lanes, term_parts: 1 }
    }

    /// Large tiles of matrices that many invocations share, where these take less time for a
    /// product than others: if rows of 128 bytes can be brought at once, little of the last tiles
    /// is beyond the matrix, and no round of workgroups keeps only a part of the device busy.
    ///
    /// On an NVIDIA H100, 512×2048 · 2048×8192 takes 79 µs so; with tiles of 64×64, 117, and with
    /// large ones that bring 32 terms, 82 where the second factor lies as it is written here, and
    /// 153 where it is transposed. Its cores take one such workgroup each.
    pub(super) fn large(shape: Shape, means: &Means) -> Option<Self> {
        let Shape { k, windows, octets, varies, .. } = shape;
        let Means { processors: at_once, shared, .. } = *means;
        if !octets || windows || !means.is_parallel() {
            return None;
        }
        let matrices = means.matrices(windows)?;
        let tiles = shape.tiles([LARGE_SIDE; 2]);
        let is_long = k >= LEAST_TERMS_OF_LARGE || tiles >= at_once * 2;
        let splits =
            (at_once / tiles.max(1)).clamp(1, (k / LEAST_TERMS_OF_LARGE).clamp(1, MOST_SPLITS));
        let square = Self::of_large(Some(matrices), true, splits);
        // Wide ones are for all terms, and of rows whose number is known.
        let many = splits == 1 && !varies && matrices == Matrices::Halves;
        let wide = many.then_some(Tiling { tile: WIDE_TILE, ..square });
        let fits = |it: &Tiling| {
            it.is_full(shape) && it.fills(shape, at_once) && it.shared() <= shared as usize
        };
        // On an NVIDIA H200, a step of wide tiles takes a fifth longer than one of others.
        let step = |it: &Tiling| if it.is_wide() { 6 } else { 5 };
        let cost = |it: &Tiling| it.rounds(shape, at_once).saturating_mul(step(it));
        let worthwhile = is_long.then_some(square);
        let wide = wide.filter(|_| is_long || k >= LEAST_TERMS_OF_ROUND);
        worthwhile.into_iter().chain(wide).filter(fits).min_by_key(cost)
    }

    /// Whether little of the last tiles is beyond the matrix.
    fn is_full(&self, shape: Shape) -> bool {
        let is_full = |(side, tile): (usize, usize)| side.next_multiple_of(tile) <= side / 8 * 9;
        [(shape.m, self.tile[0]), (shape.n, self.tile[1])].into_iter().all(is_full)
    }

    /// Whether these tiles, which are large, are for so many rows, too.
    pub(super) fn suits(&self, shape: Shape, processors: usize) -> bool {
        // A third of the rows of the tiles may be none of the product's: small tiles take half as
        // long again for the same.
        let padded = shape.m.next_multiple_of(self.tile[0]);
        padded.saturating_mul(2) <= shape.m.saturating_mul(3) && self.fills(shape, processors)
    }

    /// How often each processor has a workgroup of large tiles, of which it has one at a time.
    fn rounds(&self, shape: Shape, processors: usize) -> usize {
        self.workgroups(shape).div_ceil(processors)
    }

    /// The workgroups that compute a product.
    fn workgroups(&self, shape: Shape) -> usize {
        shape.tiles(self.tile).saturating_mul(self.splits)
    }

    /// Whether the workgroups for large tiles keep most of the device busy in every round.
    fn fills(&self, shape: Shape, processors: usize) -> bool {
        let places = self.rounds(shape, processors).saturating_mul(processors);
        self.workgroups(shape).saturating_mul(10) >= places.saturating_mul(7)
    }

    /// Whether these are [`WIDE_TILE`]s.
    pub(super) fn is_wide(&self) -> bool {
        self.tile == WIDE_TILE
    }

    /// Whether a product has no such tile that is not as large.
    fn is_large(&self) -> bool {
        let is_plain = self.matrices.is_none() && self.tile == LARGE_PLAIN_TILE;
        is_plain || self.tile.iter().all(|side| *side >= LARGE_SIDE)
    }

    /// Whether all invocations bring as much, and all subgroups multiply.
    fn is_even(&self) -> bool {
        let lanes = self.lanes as usize;
        let brought = |side: &usize| (side * self.terms / 8).is_multiple_of(lanes);
        self.term_parts == 1
            || (self.tile.iter().all(brought) && self.terms >= 16 * self.term_parts as usize)
    }

    /// Bytes of shared memory that the shader takes.
    fn shared(&self) -> usize {
        match self.matrices {
            Some(_) => cooperative_shared(self.tile, self.terms, self.lanes),
            None => LARGE_SHARED,
        }
    }

    /// Others for the same product, for devices to be measured with: each differs in the tile, in
    /// how many workgroups share the sums of one, or in how many terms they bring at a time.
    pub(super) fn others(&self, shape: Shape, shared: u32) -> Vec<Self> {
        let Shape { m, n, k, windows, octets, .. } = shape;
        let cooperative = self.matrices.is_some();
        let fits = |tiling: &Self| {
            let is_large = tiling.is_large();
            tiling != self
                && tiling.is_even()
                && (!is_large || (!windows && m.min(n) >= LARGE_SIDE))
                && ((!is_large && tiling.matrices.is_none()) || tiling.shared() <= shared as usize)
                && (1..=MOST_SPLITS.min(k.div_ceil(tiling.terms))).contains(&tiling.splits)
        };
        let tiles = |tile| shape.tiles(tile);
        let in_tiles = |tile: [usize; 2]| {
            // About as many workgroups as now.
            let splits = self.splits.saturating_mul(tiles(self.tile)) / tiles(tile).max(1);
            let splits = splits.clamp(1, MOST_SPLITS);
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
        // Some drivers compute with matrices what devices have no units for. Invocations by
        // themselves divide tiles of these sides alone.
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

/// Elements that the tile of a factor takes whose rows are padded by eight, in whichever order they
/// lie.
const fn padded(side: usize, terms: usize) -> usize {
    if side > terms { side * (terms + 8) } else { terms * (side + 8) }
}

/// Bytes of shared memory that tiles of halves take. A matrix of results for each subgroup lies
/// where the first factor was.
const fn cooperative_shared([height, width]: [usize; 2], terms: usize, lanes: u32) -> usize {
    let (first, second) = (padded(height, terms) * 2, padded(width, terms) * 2);
    let results = lanes as usize / 32 * 16 * 16 * 4;
    // The last four bytes tell whether a workgroup is the last of its tile.
    (if first > results { first } else { results }) + second + 4
}

/// The terms that workgroups bring at a time where each invocation multiplies by itself.
const PLAIN_TERMS: usize = 16;

/// The multiplications for each invocation that keeps a device busy from which on tiles are worth
/// it; half of them where subgroups multiply matrices. On an NVIDIA H200, smaller products take as
/// long as it takes to begin a dispatch, or two.
const LEAST_WORK: usize = 1024;

/// The rows and columns of large tiles of matrices.
const LARGE_SIDE: usize = 128;

/// Large tiles where each invocation multiplies by itself: 16 rows of four columns each. On an
/// NVIDIA H200, 4096×4096 · 4096×4096 takes 3.12 ms so, where tiles of 128×128 took 3.24.
const LARGE_PLAIN_TILE: [usize; 2] = [64, 128];
/// Bytes of shared memory that these take at most.
const LARGE_SHARED: usize = 16 << 10;

/// Wide tiles of halves: half as much again in each, for a fifth more time.
const WIDE_TILE: [usize; 2] = [128, 192];

/// The least rows, columns and terms of products for tiles.
const LEAST_SIDE: usize = 32;

/// The workgroups that any device runs at a time.
const LEAST_WORKGROUPS: usize = 4;

/// The terms of a split at least, unless there are fewer.
const LEAST_TERMS_OF_SPLIT: usize = 128;

/// The same of large tiles, where beginning and adding up take as long as many of their steps.
const LEAST_TERMS_OF_LARGE: usize = 1024;

/// The terms of products that are made in a round, at least.
const LEAST_TERMS_OF_ROUND: usize = 384;

/// Beyond, adding up the parts takes longer than the sums.
pub(super) const MOST_SPLITS: usize = 32;

#[cfg(test)]
mod tests;
