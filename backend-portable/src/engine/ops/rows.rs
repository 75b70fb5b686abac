//! What works on rows: softmax, norms and means.

use super::{argument, dimension, output};
use crate::compute::functions::{Div, With, map1_in_place};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::pool::{Fold, PoolWindow};
use crate::compute::rows::{layer_norm_rows, log_softmax_rows, softmax_rows, sum_rows};
use crate::compute::simd::LINE;
use crate::compute::split::{chunk_len, for_each_tile_mut};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Io, Step};
use crate::engine::view::View;
use std::vec::Vec;
use torchlet_graph::graph::ValueId;

/// Additions that a thread should at least do.
const GRAIN: usize = 1 << 14;

pub(super) fn softmax(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    of_last_dimension(builder, args, Function::Softmax)
}

pub(super) fn log_softmax(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    of_last_dimension(builder, args, Function::LogSoftmax)
}

fn of_last_dimension(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    function: Function,
) -> Result<(), Refusal> {
    let input = builder.view(argument(args, 0)?)?;
    let rank = input.sizes.len();
    let dim = dimension(builder.integer(argument(args, 1)?)?, rank.max(1))?;
    if dim + 1 != rank {
        return Err("the engine has functions of rows along the last dimension".into());
    }
    let input = builder.contiguous(&input)?;
    let out = builder.make(&input.sizes)?;
    let len = input.sizes.last().copied().unwrap_or(1);
    builder.push(Rows { from: input.offset, len, function }, &[&input], &out);
    builder.define(output(args)?, out)
}

pub(super) fn layer_norm(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let outs = args.last().map_or(&[][..], |out| builder.items(out));
    let [out, statistics @ ..] = outs else { return Err("a call without outputs".into()) };
    if statistics.iter().any(|id| builder.is_taken(*id)) {
        return Err("the engine's layer norm gives no statistics".into());
    }
    let input = builder.view(argument(args, 0)?)?;
    let normalized = builder.integers(argument(args, 1)?)?.len();
    let lead = input.sizes.len().checked_sub(normalized).ok_or("more dimensions than it has")?;
    let len = input.sizes.iter().skip(lead).product::<usize>();
    let input = builder.contiguous(&input)?;
    let mut reads = std::vec![input.clone()];
    let mut parameter = |builder: &mut Builder<'_, '_>, at| {
        let Some(view) = builder.optional(argument(args, at)?)? else { return Ok(None) };
        if view.numel() != len {
            return Err(Refusal::from("parameters of another shape"));
        }
        let view = builder.contiguous(&view)?;
        reads.push(view.clone());
        Ok(Some((reads.len() - 1, view.offset)))
    };
    let (gamma, beta) = (parameter(builder, 2)?, parameter(builder, 3)?);
    let epsilon = builder.number(argument(args, 4)?)? as f32;
    let result = builder.make(&input.sizes)?;
    let function = Function::LayerNorm { gamma, beta, epsilon };
    let reads: Vec<&View> = reads.iter().collect();
    builder.push(Rows { from: input.offset, len, function }, &reads, &result);
    builder.define(*out, result)
}

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
    // Rows of what is summed up; or, where some of what stays is innermost, as channels may be, sums of rows.
    let turned = (0..pick(false).count()).rev().find_map(|lead| {
        let order = pick(false).take(lead).chain(pick(true)).chain(pick(false).skip(lead));
        let turned = input.permuted(&order.collect::<Vec<usize>>())?;
        turned.is_contiguous().then_some((lead, turned))
    });
    let (from, reads, function, len) = match turned {
        Some((lead, turned)) => {
            let row: usize = pick(false).skip(lead).map(size).product();
            (turned.offset, turned, Function::SumOfRows { row, by }, row.saturating_mul(count))
        }
        _ => {
            let order: Vec<usize> = pick(false).chain(pick(true)).collect();
            let turned = input.permuted(&order).ok_or("a permutation that is none")?;
            let turned = builder.contiguous(&turned)?;
            (turned.offset, turned, Function::Sum { by }, count)
        }
    };
    let result = builder.make(&sizes)?;
    builder.push(Rows { from, len, function }, &[&reads], &result);
    builder.define(output(args)?, result)
}

/// A function of rows of so many elements.
struct Rows {
    from: usize,
    len: usize,
    function: Function,
}

enum Function {
    Softmax,
    LogSoftmax,
    /// Of the parameters: which of the buffers that are read has them, and where.
    LayerNorm {
        gamma: Option<(usize, usize)>,
        beta: Option<(usize, usize)>,
        epsilon: f32,
    },
    /// The sum of each row, divided by a number.
    Sum {
        by: f32,
    },
    /// The sum of the rows of `row` elements that each row consists of, divided by a number.
    SumOfRows {
        row: usize,
        by: f32,
    },
}

impl Step for Rows {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, context, .. } = io;
        let [source, ..] = inputs;
        let source = source.get(self.from..).ok_or(ShapeMismatch)?;
        match &self.function {
            Function::Softmax => softmax_rows(context, rows(source, out.len())?, self.len, out),
            Function::LogSoftmax => {
                log_softmax_rows(context, rows(source, out.len())?, self.len, out);
            }
            Function::LayerNorm { gamma, beta, epsilon } => {
                let parameter = |place: &Option<(usize, usize)>| {
                    let Some((read, at)) = *place else { return Ok(None) };
                    inputs.get(read).and_then(|data| data.get(at..)).ok_or(ShapeMismatch).map(Some)
                };
                let parameters = (parameter(gamma)?, parameter(beta)?);
                let source = rows(source, out.len())?;
                layer_norm_rows(context, source, self.len, parameters, *epsilon, out);
            }
            Function::Sum { by } => {
                let source = rows(source, out.len().saturating_mul(self.len))?;
                sum_rows(context, source, self.len, out);
                map1_in_place(context, With(Div, *by), out);
            }
            Function::SumOfRows { row, by } => {
                let row = (*row).max(1);
                let count = self.len / row;
                let input = rows(source, (out.len() / row).saturating_mul(self.len))?;
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
                            context.tier.dispatch(PoolWindow {
                                input,
                                at: index * self.len + first,
                                counts: [1, 1, count],
                                steps: [0, 0, row],
                                fold: Fold::Average(*by),
                                out: tile.row(index),
                            });
                        }
                    },
                );
            }
        }
        Ok(())
    }
}

fn rows(source: &[f32], len: usize) -> Result<&[f32], ShapeMismatch> {
    source.get(..len).ok_or(ShapeMismatch)
}
