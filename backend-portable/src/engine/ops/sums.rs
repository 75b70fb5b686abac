//! Sums and means in PyTorch's order of summation ([`cascade`](crate::reduce::cascade)), whatever
//! the memory order in the engine. In PyTorch, all tensors are assumed to be contiguous.

use super::dimension;
use super::rows::rows;
use crate::compute::gemm::ShapeMismatch;
use crate::compute::simd::{LINE, Simd, Vectorized};
use crate::compute::split::{Serial, chunk_len, for_each_chunk_mut, for_each_tile_mut};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Io, Step};
use crate::engine::view::dense_strides;
use crate::reduce::cascade::{
    Accumulation, Adds, MAX_PARALLEL, MergedDim, add_all, sum_columns, sum_run, vectors,
};
use std::vec::Vec;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::SumArgs;

/// Minimum number of additions per thread.
const GRAIN: usize = 1 << 14;

pub(super) fn mean(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    reduce(builder, args, |count| count as f32)
}

pub(super) fn sum(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    reduce(builder, args, |_| 1.0)
}

/// Lowers a sum over dims, divided by a function of the number of summands.
fn reduce(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    by: fn(usize) -> f32,
) -> Result<(), Refusal> {
    let call = SumArgs::of(args)?;
    let input = builder.view(call.input)?;
    let keeps = builder.truth(call.keepdim)?;
    let rank = input.sizes.len();
    let dims = builder.integers(call.dim)?;
    let mut is_reduced = std::vec![dims.is_empty(); rank];
    for dim in dims {
        if let Some(slot) = is_reduced.get_mut(dimension(dim, rank)?) {
            *slot = true;
        }
    }
    let pick = |reduced: bool| {
        let dims = is_reduced.iter().enumerate();
        dims.filter(move |(_, is)| **is == reduced).map(|(dim, _)| dim)
    };
    let size = |dim: usize| input.sizes.get(dim).copied().unwrap_or(1);
    let count: usize = pick(true).map(size).product();
    let by = by(count);
    let sizes = input.sizes.iter().zip(&is_reduced).filter_map(|(size, reduced)| match reduced {
        true => keeps.then_some(1),
        false => Some(*size),
    });
    let sizes: Vec<usize> = sizes.collect();
    if count == 0 {
        // Without summands, every result is the same constant.
        let nothing = builder.made(&[1], &[0.0 / by])?.expanded(&sizes);
        return builder.define(
            call.out,
            nothing.ok_or("internal error: a constant does not broadcast to the output shape")?,
        );
    }
    let strides = dense_strides(&input.sizes, &(0..rank).collect::<Vec<usize>>());
    let innermost = |reduced: bool| {
        let of = |dim: usize| (size(dim), strides.get(dim).copied().unwrap_or(0));
        innermost(pick(reduced).map(of))
    };
    let ((summands, runs), (results, _)) = (innermost(true), innermost(false));
    let run = summands.size;
    let accumulation = Accumulation::of::<f32>(summands, results, runs);
    let sum = Sum { accumulation, runs: count / run.max(1), run, by };
    // Looks for a permutation in which the input is contiguous and kept dims, such as channels, are
    // innermost: then whole rows are added. Otherwise, the summands of each result are made
    // contiguous.
    let permuted = (0..pick(false).count()).rev().find_map(|lead| {
        let order = pick(false).take(lead).chain(pick(true)).chain(pick(false).skip(lead));
        let permuted = input.permuted(&order.collect::<Vec<usize>>())?;
        permuted.is_contiguous().then_some((lead, permuted))
    });
    let (reads, row) = match permuted {
        Some((lead, permuted)) => (permuted, pick(false).skip(lead).map(size).product()),
        None => {
            let order: Vec<usize> = pick(false).chain(pick(true)).collect();
            let permuted =
                input.permuted(&order).ok_or("internal error: dims are not a permutation")?;
            (builder.contiguous(&permuted)?, 1)
        }
    };
    let result = builder.make(&sizes)?;
    builder.push(Sums { from: reads.offset, row, sum }, &[&reads], &result);
    builder.define(call.out, result)
}

/// Returns size and stride of the innermost dims, merged while they are contiguous with each other,
/// and whether more dims remain. Input: (size, stride) of each dim.
fn innermost(dims: impl DoubleEndedIterator<Item = (usize, usize)>) -> (MergedDim, bool) {
    let mut dims = dims.rev().filter(|(size, _)| *size != 1);
    let Some((mut size, step)) = dims.next() else {
        return (MergedDim { size: 1, step: 0 }, false);
    };
    let mut more = false;
    for (of, stride) in dims {
        if stride != size.saturating_mul(step) {
            more = true;
            break;
        }
        size = size.saturating_mul(of);
    }
    (MergedDim { size, step: isize::try_from(step).unwrap_or(isize::MAX) }, more)
}

/// How one result is summed.
#[derive(Debug, Clone, Copy)]
struct Sum {
    accumulation: Accumulation,
    /// Number of runs of contiguous summands, and summands per run.
    runs: usize,
    run: usize,
    /// Divisor.
    by: f32,
}

/// Step that sums the rows, of `row` elements, of each block. If `row` is 1, a result sums
/// contiguous elements.
struct Sums {
    from: usize,
    row: usize,
    sum: Sum,
}

impl Step for Sums {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs: [source, ..], out, context, .. } = io;
        let source = source.get(self.from..).ok_or(ShapeMismatch)?;
        let (row, count) = (self.row.max(1), self.sum.runs.saturating_mul(self.sum.run));
        let input = rows(source, out.len().saturating_mul(count))?;
        let sum = self.sum;
        if row == 1 {
            let together = (GRAIN / count.max(1)).max(1);
            for_each_chunk_mut(context.parallel, out, together, &|job, out| {
                context.tier.dispatch(InRow { input, first: job * together, sum, out });
            });
            return Ok(());
        }
        // Chunks of columns consist of whole cache lines.
        let columns = chunk_len(context.parallel, row, (GRAIN / count.max(1)).max(LINE));
        let columns = columns.next_multiple_of(LINE);
        for_each_tile_mut::<_, ()>(
            context.parallel,
            out,
            row,
            (1, columns),
            (&mut [], 0),
            &|first, tile, _| {
                for index in tile.rows() {
                    let block = index * row * count;
                    let input = input.get(block..).unwrap_or(&[]);
                    let (from, result) = ((row, first), index * row + first);
                    let out = tile.row(index);
                    context.tier.dispatch(OfRows { input, from, result, sum, out });
                }
            },
        );
        Ok(())
    }
}

/// Sums contiguous elements, for the results from `first` on.
struct InRow<'a> {
    input: &'a [f32],
    first: usize,
    sum: Sum,
    out: &'a mut [f32],
}

impl Vectorized for InRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Sum { accumulation, runs, run, by } = self.sum;
        let rows = self.input.chunks_exact((runs * run).max(1)).skip(self.first);
        for ((out, row), result) in self.out.iter_mut().zip(rows).zip(self.first..) {
            let mut total = 0.0;
            for row in row.chunks_exact(run.max(1)) {
                let add = |i: usize, sums: &mut [f32]| add_all(sums, row.get(i..).unwrap_or(&[]));
                total += match accumulation {
                    Accumulation::Vectors => sum_run::<f32, MAX_PARALLEL>(&Serial, run, add),
                    Accumulation::Columns(columns) if columns.run_from(result).0 => {
                        sum_columns::<f32, 1>(run, 1, add)[0]
                    }
                    Accumulation::Fours | Accumulation::Columns(_) => {
                        sum_run::<f32, 4>(&Serial, run, add)
                    }
                };
            }
            *out = total / by;
        }
    }
}

/// Addition of SIMD vectors.
#[derive(Clone, Copy)]
struct Lanes<S>(S);

impl<S: Simd> Adds for Lanes<S> {
    type V = S::F;
    #[inline(always)]
    fn zero(self) -> S::F {
        self.0.splat(0.0)
    }
    #[inline(always)]
    fn add(self, a: S::F, b: S::F) -> S::F {
        self.0.add(a, b)
    }
}

/// Number of vectors of columns that are summed together, row by row.
const TOGETHER: usize = 4;

/// Sums the rows of a block, for a range of columns.
struct OfRows<'a> {
    /// Elements of the block.
    input: &'a [f32],
    /// Number of elements per row, and the first column of the range.
    from: (usize, usize),
    /// Index of the first result.
    result: usize,
    sum: Sum,
    out: &'a mut [f32],
}

impl OfRows<'_> {
    /// Whether the data contains all rows of the block.
    fn fits(&self) -> bool {
        let (row, first) = self.from;
        let count = self.sum.runs.checked_mul(self.sum.run);
        let last = count.and_then(|count| count.checked_sub(1)?.checked_mul(row));
        let end = last.and_then(|last| last.checked_add(first)?.checked_add(self.out.len()));
        end.is_some_and(|end| end <= self.input.len())
    }

    /// Sums `N` vectors of columns from `c` on; with `TAIL`, one vector of `columns` columns.
    ///
    /// # Safety
    /// The data contains all rows of the block, and the accessed columns from `c` on are in the
    /// range.
    #[inline(always)]
    unsafe fn columns<S: Simd, const N: usize, const TAIL: bool>(
        &mut self,
        s: S,
        c: usize,
        columns: usize,
        is_single: bool,
    ) {
        let Sum { accumulation, runs, run, by } = self.sum;
        let (row, first) = self.from;
        let start = self.input.as_ptr().wrapping_add(first + c);
        let adds = Lanes(s);
        let mut total = [adds.zero(); N];
        for index in 0..runs {
            let start = start.wrapping_add(index * run * row);
            let at = |i: usize, vector: usize| {
                let p = start.wrapping_add(i * row + vector * S::LANES);
                // SAFETY: guaranteed by the caller.
                unsafe { if TAIL { s.load_first(p, columns) } else { s.load(p) } }
            };
            let sums = if is_single {
                vectors::sum_columns::<_, N>(adds, run, at)
            } else if accumulation == Accumulation::Vectors {
                [vectors::in_vectors(adds, run, at); N]
            } else {
                [vectors::in_fours(adds, run, at); N]
            };
            for (total, sum) in total.iter_mut().zip(sums) {
                *total = adds.add(*total, sum);
            }
        }
        for (vector, total) in total.into_iter().enumerate() {
            let p = self.out.as_mut_ptr().wrapping_add(c + vector * S::LANES);
            let mean = s.div(total, s.splat(by));
            // SAFETY: guaranteed by the caller.
            unsafe { if TAIL { s.store_first(p, columns, mean) } else { s.store(p, mean) } };
        }
    }
}

impl Vectorized for OfRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        if !self.fits() {
            return;
        }
        let mut done = 0;
        while done < self.out.len() {
            let (is_single, alike) = match self.sum.accumulation {
                Accumulation::Columns(columns) => columns.run_from(self.result + done),
                Accumulation::Vectors | Accumulation::Fours => (false, usize::MAX),
            };
            let left = alike.min(self.out.len() - done).max(1);
            // SAFETY: `fits` checked that the block contains its rows, and each call accesses only
            // columns in the range.
            unsafe {
                if is_single && left >= TOGETHER * S::LANES {
                    self.columns::<S, TOGETHER, false>(s, done, left, true);
                    done += TOGETHER * S::LANES;
                } else if left >= S::LANES {
                    self.columns::<S, 1, false>(s, done, left, is_single);
                    done += S::LANES;
                } else {
                    self.columns::<S, 1, true>(s, done, left, is_single);
                    done += left;
                }
            }
        }
    }
}
