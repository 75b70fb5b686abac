//! Sums and means, added up in PyTorch's order ([`cascade`](crate::reduce::cascade)) whatever lies innermost here. In PyTorch, all
//! tensors are taken to lie in the order of their dimensions.

use super::rows::rows;
use super::{argument, dimension, output};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::simd::{LINE, Simd, Vectorized};
use crate::compute::split::{Serial, chunk_len, for_each_chunk_mut, for_each_tile_mut};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Io, Step};
use crate::engine::view::dense_strides;
use crate::reduce::cascade::{Along, WIDE, Way, abreast, add_all, along, in_fours, in_vectors};
use std::vec::Vec;
use torchlet_graph::graph::ValueId;

/// Additions that a thread should at least do.
const GRAIN: usize = 1 << 14;

pub(super) fn mean(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    reduce(builder, args, |count| count as f32)
}

pub(super) fn sum(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    reduce(builder, args, |_| 1.0)
}

/// Sums along dimensions, divided by what follows from how many elements there are in each.
fn reduce(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    by: fn(usize) -> f32,
) -> Result<(), Refusal> {
    let input = builder.view(argument(args, 0)?)?;
    let keeps = builder.truth(argument(args, 2)?)?;
    let rank = input.sizes.len();
    let dims = builder.integers(argument(args, 1)?)?;
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
        // The sum of nothing, everywhere: there is nothing to read.
        let nothing = builder.made(&[1], &[0.0 / by])?.expanded(&sizes);
        return builder
            .define(output(args)?, nothing.ok_or("it does not broadcast to this shape")?);
    }
    let strides = dense_strides(&input.sizes, &(0..rank).collect::<Vec<usize>>());
    let innermost = |reduced: bool| {
        let of = |dim: usize| (size(dim), strides.get(dim).copied().unwrap_or(0));
        innermost(pick(reduced).map(of))
    };
    let ((summands, runs), (results, _)) = (innermost(true), innermost(false));
    let run = summands.size;
    let way = Way::of::<f32>(summands, results, runs);
    let sum = Sum { way, runs: count / run.max(1), run, by };
    // Rows of what is summed up; or, where some of what stays is innermost, as channels may be, sums of rows.
    let turned = (0..pick(false).count()).rev().find_map(|lead| {
        let order = pick(false).take(lead).chain(pick(true)).chain(pick(false).skip(lead));
        let turned = input.permuted(&order.collect::<Vec<usize>>())?;
        turned.is_contiguous().then_some((lead, turned))
    });
    let (reads, row) = match turned {
        Some((lead, turned)) => (turned, pick(false).skip(lead).map(size).product()),
        None => {
            let order: Vec<usize> = pick(false).chain(pick(true)).collect();
            let turned = input.permuted(&order).ok_or("a permutation that is none")?;
            (builder.contiguous(&turned)?, 1)
        }
    };
    let result = builder.make(&sizes)?;
    builder.push(Sums { from: reads.offset, row, sum }, &[&reads], &result);
    builder.define(output(args)?, result)
}

/// What dimensions of so many elements, so far apart, are inside, as one where they lie behind one another; and whether there is more around it.
fn innermost(dims: impl DoubleEndedIterator<Item = (usize, usize)>) -> (Along, bool) {
    let mut dims = dims.rev().filter(|(size, _)| *size != 1);
    let Some((mut size, step)) = dims.next() else {
        return (Along { size: 1, step: 0 }, false);
    };
    let mut more = false;
    for (of, stride) in dims {
        if stride != size.saturating_mul(step) {
            more = true;
            break;
        }
        size = size.saturating_mul(of);
    }
    (Along { size, step: isize::try_from(step).unwrap_or(isize::MAX) }, more)
}

/// How summands become a result.
#[derive(Debug, Clone, Copy)]
struct Sum {
    way: Way,
    /// Runs, and the summands of each.
    runs: usize,
    run: usize,
    /// What it is divided by.
    by: f32,
}

/// Sums of the rows of `row` elements that blocks consist of; with rows of one element, sums of what lies in a row.
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
        // Whole lines of the caches.
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

/// Sums of what lies in a row, from the one of result `first` on.
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
        let Sum { way, runs, run, by } = self.sum;
        let rows = self.input.chunks_exact((runs * run).max(1)).skip(self.first);
        for ((out, row), result) in self.out.iter_mut().zip(rows).zip(self.first..) {
            let mut total = 0.0;
            for row in row.chunks_exact(run.max(1)) {
                let add = |i: usize, sums: &mut [f32]| add_all(sums, row.get(i..).unwrap_or(&[]));
                total += match way {
                    Way::Vectors => along::<f32, WIDE>(&Serial, run, add),
                    Way::Columns(columns) if columns.place(result).0 => {
                        abreast::<f32, 1>(run, 1, add)[0]
                    }
                    Way::Fours | Way::Columns(_) => along::<f32, 4>(&Serial, run, add),
                };
            }
            *out = total / by;
        }
    }
}

/// Columns that are added up together, and four times as many.
const TOGETHER: usize = LINE;
const FOURFOLD: usize = 4 * TOGETHER;

/// Sums of rows of a block, of some of their elements.
struct OfRows<'a> {
    /// The block.
    input: &'a [f32],
    /// Elements of a row, and the first that is summed up here.
    from: (usize, usize),
    /// The number of the first result.
    result: usize,
    sum: Sum,
    out: &'a mut [f32],
}

impl Vectorized for OfRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Sum { way, runs, run, by } = self.sum;
        let (input, (row, first)) = (self.input, self.from);
        let mut done = 0;
        while done < self.out.len() {
            let (is_abreast, alike) = match way {
                Way::Columns(columns) => columns.place(self.result + done),
                Way::Vectors | Way::Fours => (false, usize::MAX),
            };
            let most = if is_abreast { WIDE } else { TOGETHER };
            let columns = alike.min(self.out.len() - done).clamp(1, most);
            let mut total = [0.0; WIDE];
            for index in 0..runs {
                let base = index * run;
                let add = |i: usize, sums: &mut [f32]| {
                    let at = (base + i) * row + first + done;
                    add_all(sums, input.get(at..).unwrap_or(&[]));
                };
                if is_abreast {
                    add_all(&mut total, &abreast::<f32, WIDE>(run, columns, add));
                } else if way == Way::Vectors {
                    add_all(&mut total, &in_vectors::<f32, FOURFOLD>(run, columns, add));
                } else {
                    add_all(&mut total, &in_fours::<f32, FOURFOLD>(run, columns, add));
                }
            }
            let out = &mut self.out[done..][..columns];
            out.iter_mut().zip(&total).for_each(|(out, total)| *out = total / by);
            done += columns;
        }
    }
}
