//! Flash attention: processes the keys tile by tile for a tile of queries, without materialising
//! all scores. Online softmax rescales the accumulated sums when a larger score occurs.

use crate::compute::gemm::{
    Context, Epilogue, Matrix, MatrixMut, ShapeMismatch, gemm, gemm_workspace_len,
};
use crate::compute::simd::Tier;
use crate::compute::split::{Tile, for_each_tile_mut};
use crate::compute::storage::Stored;
use crate::compute::strided::{ExpSum, Lines, Mix, RowMax, Scores};
use crate::number::{elements, load, store};
use half::{bf16, f16};
use torchlet_core::{KernelError, Parallel, ScalarType, Serial};

/// Maximum number of query rows of a tile. A tile has rows of all heads that share a key head.
const MAX_ROWS: usize = 64;
/// Number of keys of a tile.
const KEY_TILE: usize = 128;
/// Maximum number of rows for which keys and values are read one by one, as for a single token:
/// GEMM tiles would be mostly empty.
const MAX_DIRECT_ROWS: usize = 4;

/// Layout of heads and positions: `[batch, position, head, depth]` or
/// `[batch, head, position, depth]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) heads: usize,
    pub(super) positions: usize,
    pub(super) heads_first: bool,
}

impl Order {
    /// Index of the vector of a position of a head of a sample.
    fn vector(&self, sample: usize, head: usize, position: usize) -> usize {
        let Order { heads, positions, heads_first } = *self;
        match heads_first {
            true => (sample * heads + head) * positions + position,
            false => (sample * positions + position) * heads + head,
        }
    }

    /// Stride between neighbouring positions, in vectors.
    fn step(&self) -> usize {
        if self.heads_first { 1 } else { self.heads }
    }
}

/// Scale and zero point of each vector of an int8 tensor, with their strides in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuantParams<'a> {
    pub(super) scales: &'a [f32],
    pub(super) zero_points: &'a [i8],
    pub(super) scale_step: usize,
    pub(super) zero_point_step: usize,
}

/// Queries, keys or values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vectors<'a> {
    pub(super) order: Order,
    pub(super) scalar_type: ScalarType,
    pub(super) bytes: &'a [u8],
    pub(super) quant: Option<QuantParams<'a>>,
}

impl Vectors<'_> {
    /// Reads a vector, dequantized if necessary.
    fn read(&self, vector: usize, out: &mut [f32]) {
        load(self.scalar_type, self.bytes, (vector * out.len()) as isize, 1, out);
        if let Some(quant) = &self.quant {
            let scale = quant.scales.get(vector * quant.scale_step).copied().unwrap_or(0.0);
            let zero = quant.zero_points.get(vector * quant.zero_point_step).copied();
            let zero = f32::from(zero.unwrap_or(0));
            out.iter_mut().for_each(|x| *x = (*x - zero) * scale);
        }
    }
}

/// Operands of one attention call.
pub(super) struct Attention<'a> {
    pub(super) q: Vectors<'a>,
    pub(super) k: Vectors<'a>,
    pub(super) v: Vectors<'a>,
    pub(super) depth: usize,
    pub(super) samples: Samples<'a>,
    pub(super) is_causal: bool,
    pub(super) mask: Option<Mask<'a>>,
    pub(super) scale: f32,
}

/// Additive mask over all keys.
#[derive(Clone, Copy)]
pub(super) struct Mask<'a> {
    pub(super) scalar_type: ScalarType,
    pub(super) bytes: &'a [u8],
    /// Number of elements between the masks of neighbouring rows of [`Samples::Slots`]; 0 if all
    /// share a mask.
    pub(super) step: usize,
}

/// Keys of each sample of the queries.
#[derive(Clone, Copy)]
pub(super) enum Samples<'a> {
    /// Sample `i` attends to sample `i`. All queries start at the same position.
    Same { start: usize },
    /// Rows of `batch` samples: row `i` attends to slot `slots[i]` of the caches, and its queries
    /// start at position `starts[i]`.
    Slots { batch: usize, slots: &'a [i64], starts: &'a [i64] },
}

/// What a sample of the queries attends to.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Sample of keys and values.
    keys: usize,
    /// Row of [`Samples::Slots`].
    row: usize,
    /// Position of the first query.
    start: usize,
}

impl Samples<'_> {
    fn of(&self, sample: usize) -> Sample {
        match *self {
            Samples::Same { start } => Sample { keys: sample, row: 0, start },
            Samples::Slots { batch, slots, starts } => {
                let (row, inner) = (sample / batch.max(1), sample % batch.max(1));
                // Slots and positions were checked against the caches.
                let at = |list: &[i64]| {
                    list.get(row).and_then(|it| usize::try_from(*it).ok()).unwrap_or(0)
                };
                Sample { keys: at(slots) * batch + inner, row, start: at(starts) }
            }
        }
    }
}

/// Workspace per thread, in floats.
pub(super) fn slot_len(tier: Tier, depth: usize) -> Result<usize, KernelError> {
    let len = || {
        let rows = MAX_ROWS.checked_mul(depth)?.checked_mul(2)?;
        let others = MAX_ROWS * (KEY_TILE + 2) + KEY_TILE;
        let scores = gemm_workspace_len(tier, 1, MAX_ROWS, KEY_TILE, depth)?;
        let values = gemm_workspace_len(tier, 1, MAX_ROWS, depth, KEY_TILE)?;
        let tile = KEY_TILE.checked_mul(depth)?;
        rows.checked_add(others)?.checked_add(tile)?.checked_add(scores.max(values))
    };
    len().ok_or(KernelError::unsupported(
        "attention with a head size whose scratch memory exceeds the address space",
    ))
}

/// Sections of a thread's workspace.
struct Workspace<'w> {
    queries: &'w mut [f32],
    sums: &'w mut [f32],
    scores: &'w mut [f32],
    /// Running maximum and sum of exponentials of each row.
    max: &'w mut [f32],
    total: &'w mut [f32],
    /// A row of the mask.
    mask: &'w mut [f32],
    /// Keys or values that are converted to `f32`.
    tile: &'w mut [f32],
    rest: &'w mut [f32],
}

impl<'w> Workspace<'w> {
    fn new(all: &'w mut [f32], depth: usize) -> Option<Self> {
        let (queries, all) = all.split_at_mut_checked(MAX_ROWS * depth)?;
        let (sums, all) = all.split_at_mut_checked(MAX_ROWS * depth)?;
        let (scores, all) = all.split_at_mut_checked(MAX_ROWS * KEY_TILE)?;
        let (max, all) = all.split_at_mut_checked(MAX_ROWS)?;
        let (total, all) = all.split_at_mut_checked(MAX_ROWS)?;
        let (mask, all) = all.split_at_mut_checked(KEY_TILE)?;
        let (tile, rest) = all.split_at_mut_checked(KEY_TILE * depth)?;
        Some(Workspace { queries, sums, scores, max, total, mask, tile, rest })
    }
}

impl Attention<'_> {
    /// Number of query heads that share a key head.
    fn shared(&self) -> usize {
        self.q.order.heads / self.k.order.heads.max(1)
    }

    /// Computes `out`, in the layout of the queries, with elements of type `scalar_type`.
    pub(super) fn run(
        &self,
        parallel: &dyn Parallel,
        (scalar_type, out): (ScalarType, &mut [u8]),
        (workspace, slot): (&mut [f32], usize),
    ) {
        let Order { heads, positions, heads_first } = self.q.order;
        let bytes = self.depth * scalar_type.size();
        // If heads come first, an output row is one position of a head; otherwise it has all heads
        // of a position.
        let (across, heads_per_tile) =
            if heads_first { (1, 1) } else { (heads, heads_per_tile(self.shared())) };
        let share = positions.div_ceil(parallel.threads().max(1));
        let rows = (MAX_ROWS / heads_per_tile.max(1)).clamp(1, share.max(1));
        let shape = (rows, heads_per_tile.saturating_mul(bytes));
        let width = across.saturating_mul(bytes);
        let sample_len = positions.saturating_mul(width);
        // Tiles that extend into the next row would make a row's sums depend on the rows before it.
        let row_by_row = matches!(self.samples, Samples::Slots { .. }) && positions % rows != 0;
        if row_by_row && sample_len > 0 {
            for (sample, out) in out.chunks_exact_mut(sample_len).enumerate() {
                self.run_tiles(parallel, (scalar_type, out), sample, shape, (workspace, slot));
            }
        } else {
            self.run_tiles(parallel, (scalar_type, out), 0, shape, (workspace, slot));
        }
    }

    /// Computes the samples from `first` on, in tiles of this shape.
    fn run_tiles(
        &self,
        parallel: &dyn Parallel,
        (scalar_type, out): (ScalarType, &mut [u8]),
        first: usize,
        shape: (usize, usize),
        (workspace, slot): (&mut [f32], usize),
    ) {
        let Order { heads, positions, heads_first } = self.q.order;
        let bytes = self.depth * scalar_type.size();
        let (across, heads_per_tile) =
            if heads_first { (1, 1) } else { (heads, heads_per_tile(self.shared())) };
        let task = |column: usize, tile: &mut Tile<u8>, workspace: &mut [f32]| {
            let Some(mut workspace) = Workspace::new(workspace, self.depth) else { return };
            let rows = tile.rows();
            let mut row = rows.start;
            while row < rows.end {
                // A tile may extend into the next sample or head.
                let position = row % positions.max(1);
                let count = (rows.end - row).min(positions - position);
                let outer = row / positions.max(1);
                let (sample, head) = match heads_first {
                    true => (outer / heads.max(1), outer % heads.max(1)),
                    false => (outer, column / bytes.max(1)),
                };
                let wide = if heads_first { 1 } else { heads_per_tile };
                let group = Group { sample: first + sample, head, wide, position, count };
                // Cannot fail: sizes were checked.
                if self.group(&group, &mut workspace).is_ok() {
                    for (number, sums) in
                        workspace.sums.chunks_exact(self.depth).take(count * wide).enumerate()
                    {
                        let target = tile.row(row + number / wide);
                        let at = number % wide * bytes;
                        let target = target.get_mut(at..at + bytes).unwrap_or_default();
                        store(scalar_type, target, sums);
                    }
                }
                row += count;
            }
        };
        let width = across.saturating_mul(bytes);
        for_each_tile_mut(parallel, out, width, shape, (workspace, slot), &task);
    }

    /// Computes attention of a group of queries, into `sums`.
    fn group(&self, group: &Group, workspace: &mut Workspace<'_>) -> Result<(), ShapeMismatch> {
        let depth = self.depth;
        let rows = group.count * group.wide;
        let queries = workspace.queries.get_mut(..rows * depth).ok_or(ShapeMismatch)?;
        for (number, query) in queries.chunks_exact_mut(depth).enumerate() {
            let (position, head) = group.row(number);
            self.q.read(self.q.order.vector(group.sample, head, position), query);
        }
        workspace.sums.get_mut(..rows * depth).ok_or(ShapeMismatch)?.fill(0.0);
        workspace.max.get_mut(..rows).ok_or(ShapeMismatch)?.fill(f32::NEG_INFINITY);
        workspace.total.get_mut(..rows).ok_or(ShapeMismatch)?.fill(0.0);
        // Keys after the last query of the group are masked.
        let last = group.position + group.count;
        let Order { positions, .. } = self.q.order;
        let start = self.samples.of(group.sample).start;
        let all = self.k.order.positions;
        let all = if self.mask.is_some() { all } else { all.min(start + positions) };
        let keys = if self.is_causal { all.min(start + last) } else { all };
        for first in (0..keys).step_by(KEY_TILE) {
            self.tile(group, first, KEY_TILE.min(keys - first), workspace)?;
        }
        let sums = workspace.sums.chunks_exact_mut(depth).take(rows);
        for (sums, total) in sums.zip(&*workspace.total) {
            // If all keys are masked the result is NaN, as in ExecuTorch.
            sums.iter_mut().for_each(|sum| *sum /= total);
        }
        Ok(())
    }

    /// Accumulates a tile of keys.
    fn tile(
        &self,
        group: &Group,
        first: usize,
        keys: usize,
        workspace: &mut Workspace<'_>,
    ) -> Result<(), ShapeMismatch> {
        let rows = group.count * group.wide;
        let Workspace { queries, sums, scores, max, total, mask, tile, rest } = workspace;
        let head = group.head / self.shared().max(1);
        let sample = self.samples.of(group.sample);
        let keys_range = KeyRange { vectors: &self.k, sample: sample.keys, head, first, keys };
        let values = KeyRange { vectors: &self.v, ..keys_range };
        let context = Context { tier: Tier::detect(), parallel: &Serial };
        if let Some(vectors) = keys_range.lines(self.depth).filter(|_| rows <= MAX_DIRECT_ROWS) {
            let next = values.lines(self.depth);
            let a = queries.get(..rows * self.depth).ok_or(ShapeMismatch)?;
            let c = scores.get_mut(..rows * keys).ok_or(ShapeMismatch)?;
            context.tier.dispatch(Scores { a, vectors, next, scale: self.scale, c });
        } else {
            let a = Matrix::row_major(queries, rows, self.depth).ok_or(ShapeMismatch)?;
            let c = MatrixMut::row_major(scores, rows, keys).ok_or(ShapeMismatch)?;
            let scaled = Epilogue { alpha: self.scale, ..Epilogue::default() };
            keys_range.matmul(self.depth, a, true, c, &scaled, (tile, rest))?;
        }
        for number in 0..rows {
            let (position, _) = group.row(number);
            let row = scores.get_mut(number * keys..(number + 1) * keys).ok_or(ShapeMismatch)?;
            if let Some(Mask { scalar_type, bytes, step }) = self.mask {
                let mask = mask.get_mut(..keys).ok_or(ShapeMismatch)?;
                let at = sample.row * step + position * self.k.order.positions + first;
                load(scalar_type, bytes, at as isize, 1, mask);
                row.iter_mut().zip(mask).for_each(|(score, mask)| *score += *mask);
            }
            if self.is_causal {
                let seen = (sample.start + position + 1).saturating_sub(first);
                row.iter_mut().skip(seen).for_each(|score| *score = f32::NEG_INFINITY);
            }
            let (Some(max), Some(total)) = (max.get_mut(number), total.get_mut(number)) else {
                return Err(ShapeMismatch);
            };
            // A NaN score leaves the maximum unchanged, but makes the sum NaN.
            let new_max = context.tier.dispatch(RowMax { row, least: *max });
            if new_max == f32::NEG_INFINITY && !row.iter().any(|score| score.is_nan()) {
                row.fill(0.0);
                continue;
            }
            let rescale = if *max == f32::NEG_INFINITY { 0.0 } else { libm::expf(*max - new_max) };
            *max = new_max;
            *total = *total * rescale + context.tier.dispatch(ExpSum { row, max: new_max });
            if rescale != 1.0 {
                let sums = sums.get_mut(number * self.depth..(number + 1) * self.depth);
                sums.unwrap_or_default().iter_mut().for_each(|sum| *sum *= rescale);
            }
        }
        if let Some(vectors) = values.lines(self.depth).filter(|_| rows <= MAX_DIRECT_ROWS) {
            let a = scores.get(..rows * keys).ok_or(ShapeMismatch)?;
            let c = sums.get_mut(..rows * self.depth).ok_or(ShapeMismatch)?;
            context.tier.dispatch(Mix { a, vectors, c });
            return Ok(());
        }
        let a = Matrix::row_major(scores, rows, keys).ok_or(ShapeMismatch)?;
        let c = MatrixMut::row_major(sums, rows, self.depth).ok_or(ShapeMismatch)?;
        let added = Epilogue { beta: 1.0, ..Epilogue::default() };
        values.matmul(self.depth, a, false, c, &added, (tile, rest))
    }
}

/// Number of heads in a tile: a divisor of the heads that share a key head.
fn heads_per_tile(shared: usize) -> usize {
    (1..=MAX_ROWS.min(shared)).rev().find(|count| shared.is_multiple_of(*count)).unwrap_or(1)
}

/// Queries at some positions, of heads that share a key head.
#[derive(Debug, Clone, Copy)]
struct Group {
    sample: usize,
    /// First head.
    head: usize,
    /// Number of heads.
    wide: usize,
    /// First position.
    position: usize,
    /// Number of positions.
    count: usize,
}

impl Group {
    /// Position and head of a row.
    fn row(&self, number: usize) -> (usize, usize) {
        (self.position + number / self.wide, self.head + number % self.wide)
    }
}

/// A range of keys or values of a head.
#[derive(Clone, Copy)]
struct KeyRange<'p> {
    vectors: &'p Vectors<'p>,
    sample: usize,
    head: usize,
    first: usize,
    keys: usize,
}

impl<'p> KeyRange<'p> {
    /// Returns the vectors for reading in place if they are stored as `f32`.
    fn lines(&self, depth: usize) -> Option<Lines<'p>> {
        if self.vectors.scalar_type != ScalarType::Float || self.vectors.quant.is_some() {
            return None;
        }
        let start = self.vectors.order.vector(self.sample, self.head, self.first);
        let data = elements::<f32>(self.vectors.bytes).get(start.checked_mul(depth)?..)?;
        let step = self.vectors.order.step().checked_mul(depth)?;
        Lines::new(data, step, depth, self.keys)
    }

    /// Computes `c = a · matrix`. The key or value vectors are the columns of the matrix, or its
    /// rows.
    fn matmul(
        &self,
        depth: usize,
        a: Matrix<'_, f32>,
        columns: bool,
        c: MatrixMut<'_>,
        epilogue: &Epilogue<'_>,
        (tile, rest): (&mut [f32], &mut [f32]),
    ) -> Result<(), ShapeMismatch> {
        let start = self.vectors.order.vector(self.sample, self.head, self.first);
        let step = self.vectors.order.step();
        let call = TileGemm { a, columns, c, epilogue, rest, shape: (self.keys, depth) };
        let bytes = self.vectors.bytes;
        match (self.vectors.scalar_type, &self.vectors.quant) {
            (ScalarType::Float, None) => call.with(elements::<f32>(bytes), start, step),
            (ScalarType::Half, None) => call.with(elements::<f16>(bytes), start, step),
            (ScalarType::BFloat16, None) => call.with(elements::<bf16>(bytes), start, step),
            _ => {
                let tile = tile.get_mut(..self.keys * depth).ok_or(ShapeMismatch)?;
                for (number, vector) in tile.chunks_exact_mut(depth).enumerate() {
                    self.vectors.read(start + number * step, vector);
                }
                call.with(&*tile, 0, 1)
            }
        }
    }
}

struct TileGemm<'a, 'c> {
    a: Matrix<'a, f32>,
    columns: bool,
    c: MatrixMut<'c>,
    epilogue: &'a Epilogue<'a>,
    rest: &'a mut [f32],
    shape: (usize, usize),
}

impl TileGemm<'_, '_> {
    /// Runs the GEMM on the vectors of `data` that start at element `start`, `start + step`, and so
    /// on.
    fn with<E: Stored>(self, data: &[E], start: usize, step: usize) -> Result<(), ShapeMismatch> {
        let (keys, depth) = self.shape;
        let data = data.get(start * depth..).ok_or(ShapeMismatch)?;
        let b = Matrix::new(data, keys, depth, step * depth, 1).ok_or(ShapeMismatch)?;
        let b = if self.columns { b.transposed() } else { b };
        let context = Context { tier: Tier::detect(), parallel: &Serial };
        gemm(context, self.a, b, self.c, self.epilogue, self.rest)
    }
}
