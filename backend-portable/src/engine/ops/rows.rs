//! Row-wise operators: softmax and layer norm.

use super::dimension;
use crate::compute::gemm::ShapeMismatch;
use crate::compute::rows::{layer_norm_rows, log_softmax_rows, softmax_rows};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Io, Step};
use crate::engine::view::View;
use std::vec::Vec;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{LayerNormArgs, SoftmaxArgs};

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
    let call = SoftmaxArgs::of(args)?;
    let input = builder.view(call.input)?;
    let rank = input.sizes.len();
    let dim = dimension(builder.integer(call.dim)?, rank.max(1))?;
    if dim + 1 != rank {
        return Err(std::format!("softmax over dim {dim} of {rank}; expected the last one"));
    }
    let input = builder.contiguous(&input)?;
    let out = builder.make(&input.sizes)?;
    let len = input.sizes.last().copied().unwrap_or(1);
    builder.push(Rows { from: input.offset, len, function }, &[&input], &out);
    builder.define(call.out, out)
}

pub(super) fn layer_norm(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = LayerNormArgs::of(args)?;
    let outs = args.last().map_or(&[][..], |out| builder.items(out));
    let [out, statistics @ ..] = outs else {
        return Err("expected at least one output, found none".into());
    };
    if statistics.iter().any(|id| builder.is_taken(*id)) {
        return Err("layer norm with statistics as outputs".into());
    }
    let input = builder.view(call.input)?;
    let normalized = builder.integers(call.normalized_shape)?.len();
    let lead = input.sizes.len().checked_sub(normalized).ok_or_else(|| {
        std::format!("normalized_shape has {normalized} dims, the input shape is {:?}", input.sizes)
    })?;
    let len = input.sizes.iter().skip(lead).product::<usize>();
    let input = builder.contiguous(&input)?;
    let mut reads = std::vec![input.clone()];
    let mut parameter = |builder: &mut Builder<'_, '_>, id: ValueId| {
        let Some(view) = builder.optional(id)? else { return Ok(None) };
        if view.numel() != len {
            return Err(std::format!(
                "weight or bias: expected {len} elements, found shape {:?}",
                view.sizes
            ));
        }
        let view = builder.contiguous(&view)?;
        reads.push(view.clone());
        Ok(Some((reads.len() - 1, view.offset)))
    };
    let (gamma, beta) = (parameter(builder, call.weight)?, parameter(builder, call.bias)?);
    let epsilon = builder.number(call.eps)? as f32;
    let result = builder.make(&input.sizes)?;
    let function = Function::LayerNorm { gamma, beta, epsilon };
    let reads: Vec<&View> = reads.iter().collect();
    builder.push(Rows { from: input.offset, len, function }, &reads, &result);
    builder.define(*out, result)
}

/// Step that applies a function to each row of `len` elements.
struct Rows {
    from: usize,
    len: usize,
    function: Function,
}

enum Function {
    Softmax,
    LogSoftmax,
    /// Weight and bias, each as index of the input buffer and offset in it.
    LayerNorm {
        gamma: Option<(usize, usize)>,
        beta: Option<(usize, usize)>,
        epsilon: f32,
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
                let parameter = |source: &Option<(usize, usize)>| {
                    let Some((read, at)) = *source else { return Ok(None) };
                    inputs.get(read).and_then(|data| data.get(at..)).ok_or(ShapeMismatch).map(Some)
                };
                let parameters = (parameter(gamma)?, parameter(beta)?);
                let source = rows(source, out.len())?;
                layer_norm_rows(context, source, self.len, parameters, *epsilon, out);
            }
        }
        Ok(())
    }
}

pub(super) fn rows(source: &[f32], len: usize) -> Result<&[f32], ShapeMismatch> {
    source.get(..len).ok_or(ShapeMismatch)
}
