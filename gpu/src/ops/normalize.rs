//! Softmax and normalisations.
//!
//! Contiguous rows of limited length need one dispatch ([`row`]). For other rows, separate
//! dispatches compute their statistics first.

use super::elementwise::{apply_binary, apply_unary_with};
use super::layer_norms::LayerNorm;
use super::normed::Norm;
use super::reduce::{Function, emit};
use super::row_norms::{Rows, Sum, Weights, centered, normalize, round_rows, row};
use super::{Entry, operator};
use crate::derived::{BatchNorm, Derived};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    BatchNormArgs, BatchNormNoStatsArgs, GroupNormArgs, LayerNormArgs, Operator, SoftmaxArgs,
    UnaryArgs,
};
use torchlet_shaders::Element;
use torchlet_shaders::functions::normalize::{AFFINE, LOG_SOFTMAX, SOFTMAX};
use torchlet_shaders::functions::{binary, unary};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SOFTMAX, |e, args| softmax(e, args, SOFTMAX)),
    operator(Operator::LOG_SOFTMAX, |e, args| softmax(e, args, LOG_SOFTMAX)),
    operator(Operator::NATIVE_LAYER_NORM, left_layer_norm),
    operator(Operator::NATIVE_GROUP_NORM, group_norm),
    operator(Operator::ET_VK_RMS_NORM, |e, args| rms_norm(e, args, false)),
    operator(Operator::RMS_NORM_PROLOGUE, |e, args| rms_norm(e, args, true)),
    operator(Operator::NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, batch_norm),
    operator(Operator::NATIVE_BATCH_NORM_LEGIT_NO_STATS, own_statistics),
    operator(Operator::ROUNDED_ROWS, |e, args| {
        let call = UnaryArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let out = e.out(args)?;
        let out = e.resize(out.id, &input.sizes)?;
        round_rows(e, &input, &out)
    }),
];

fn softmax(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let call = SoftmaxArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = input.dim(e.int(call.dim)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let (count, inner) = (input.size(dim), input.sizes.iter().skip(dim + 1).product::<usize>());
    if out.numel() == 0 {
        return Ok(());
    }
    // If the rows are not contiguous at the largest shape, all shapes use several dispatches.
    let apart = e.bound_sizes(&input).iter().skip(dim + 1).product();
    let rows = Rows { inner: apart, ..Rows::from_dim(e, &input, dim) };
    if rows.are_short() {
        return row(e, function, &input, rows, Weights::default(), 0.0, &out);
    }
    let rows = input.numel() / count;
    let max = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::Max, &input, None, &max, [count, inner], 1.0)?;
    let sum = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::SumExp, &input, Some(&max), &sum, [count, inner], 1.0)?;
    let spread = [count * inner, inner];
    normalize(e, function, &input, [&max, &sum], spread, Weights::default(), 0.0, &out)
}

/// Encodes a layer norm, unless it is fused into the calls that read its result.
fn left_layer_norm(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LayerNormArgs::of(args)?;
    let norm = LayerNorm::of_call(e, args)?;
    let is_of_rows = e.ints(call.normalized_shape)?.len() == 1;
    let out = e
        .outs(args)?
        .first()
        .copied()
        .ok_or_else(|| Error::invalid("the call has no output tensor"))?;
    let out = e.resize(out, &norm.input.sizes)?;
    if is_of_rows && norm.leave(e, &out) {
        return Ok(());
    }
    layer_norm(e, args, None)
}

/// Encodes a layer norm, with a fused sum if the rows are short.
pub(super) fn layer_norm(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    sum: Option<&Sum>,
) -> Result<(), Error> {
    let LayerNorm { input, weight, bias, epsilon } = &LayerNorm::of_call(e, args)?;
    let normalized = e.ints(LayerNormArgs::of(args)?.normalized_shape)?.len();
    let first = input.rank().checked_sub(normalized).ok_or_else(|| {
        Error::Invalid(format!(
            "normalized_shape has {normalized} dims, the input has {}",
            input.rank()
        ))
    })?;
    let count: usize = input.sizes[first..].iter().product();
    let out = e
        .outs(args)?
        .first()
        .copied()
        .ok_or_else(|| Error::invalid("the call has no output tensor"))?;
    let out = e.resize(out, &input.sizes)?;
    let weights = Weights { weight: weight.as_ref(), bias: bias.as_ref(), step: 1, count };
    let rows = Rows { sum, ..Rows::from_dim(e, input, first) };
    centered(e, input, rows, weights, *epsilon, &out)
}

/// Emits a normalisation of this many rows. Each channel has a weight and a bias.
fn by_channels(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    [weight, bias]: [ValueId; 2],
    rows: usize,
    epsilon: f64,
) -> Result<(), Error> {
    let (weight, bias) = (e.optional_tensor(weight)?, e.optional_tensor(bias)?);
    let rows = Rows::of_number(e, input, rows);
    let outs = e.outs(args)?;
    let out =
        outs.first().copied().ok_or_else(|| Error::invalid("the call has no output tensor"))?;
    let out = e.resize(out, &input.sizes)?;
    let (count, step) = (input.size(1), input.sizes.iter().skip(2).product());
    let weights = Weights { weight: weight.as_ref(), bias: bias.as_ref(), step, count };
    centered(e, input, rows, weights, epsilon, &out)
}

fn group_norm(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = GroupNormArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let groups = usize::try_from(e.int(call.group)?).unwrap_or(0);
    let epsilon = e.float(call.eps)?;
    let (batch, channels) = (input.size(0), input.size(1));
    if groups == 0 || channels % groups != 0 || input.rank() < 2 {
        return Err(Error::Invalid(format!(
            "input shape {:?} has no channels in dim 1 that are divisible into {groups} groups",
            input.sizes
        )));
    }
    by_channels(e, args, &input, [call.weight, call.bias], batch * groups, epsilon)
}

/// Encodes a batch norm with the statistics of its input. For a batch of one, these are the
/// statistics of each channel, so that each channel is normalised as a row.
fn own_statistics(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = BatchNormNoStatsArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let epsilon = e.float(call.eps)?;
    let channels = input.size(1);
    if e.bound_sizes(&input).first() != Some(&1) || input.rank() < 2 {
        return Err(Error::unsupported(format!(
            "batch norm without running statistics for input shape {:?}; expected a batch size \
             of 1",
            input.sizes
        )));
    }
    if !e.bool(call.training)? {
        return Err(Error::invalid(
            "expected running statistics or training = true, found neither",
        ));
    }
    by_channels(e, args, &input, [call.weight, call.bias], channels, epsilon)
}

/// Encodes an RMS norm, unless the calls that read its result compute the norm themselves.
fn rms_norm(e: &mut Encoder<'_, '_>, args: &[ValueId], is_prologue: bool) -> Result<(), Error> {
    let norm = Norm::of_call(e, args)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &norm.input.sizes)?;
    if is_prologue && norm.is_left {
        return Ok(());
    }
    norm.emit(e, &out, None)
}

fn batch_norm(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = BatchNormArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let channels = input.size(1);
    let epsilon = e.float(call.eps)?;
    let parameters = [call.weight, call.bias, call.running_mean, call.running_var];
    let [scale, shift] = match constant_batch_norm(e, parameters, channels, epsilon)? {
        Some(norm) => [e.derived(Derived::Scale(norm))?, e.derived(Derived::Shift(norm))?],
        None => scale_and_shift(e, parameters, channels, epsilon)?,
    };
    let out = e
        .outs(args)?
        .first()
        .copied()
        .ok_or_else(|| Error::invalid("the call has no output tensor"))?;
    let out = e.resize(out, &input.sizes)?;
    let step = input.sizes.iter().skip(2).product();
    let weights = Weights { weight: Some(&scale), bias: Some(&shift), step, count: channels };
    normalize(e, AFFINE, &input, [&scale, &scale], [1, 1], weights, 0.0, &out)
}

/// Emits the computation of a batch norm's scale and shift in every run.
fn scale_and_shift(
    e: &mut Encoder<'_, '_>,
    [weight, bias, mean, variance]: [ValueId; 4],
    channels: usize,
    epsilon: f64,
) -> Result<[Operand; 2], Error> {
    let (weight, bias) = (e.optional_tensor(weight)?, e.optional_tensor(bias)?);
    let (mean, variance) = (e.tensor(mean)?, e.tensor(variance)?);
    for parameter in [weight.as_ref(), bias.as_ref(), Some(&mean), Some(&variance)] {
        if let Some(parameter) = parameter.filter(|parameter| parameter.sizes != [channels]) {
            return Err(Error::Invalid(format!(
                "weight, bias or statistics: expected shape [{channels}], found {:?}",
                parameter.sizes
            )));
        }
    }
    let mut temporary = || e.temporary(Element::F32, &[channels]);
    let [raised, inverse, scale, moved, shift] =
        [temporary()?, temporary()?, temporary()?, temporary()?, temporary()?];
    apply_unary_with(e, unary::LINE, &variance, &raised, [1.0, epsilon, 0.0, 0.0])?;
    apply_unary_with(e, unary::RSQRT, &raised, &inverse, [0.0; 4])?;
    let scale = match &weight {
        Some(weight) => {
            apply_binary(e, binary::MUL, [weight, &inverse], scale.id, 1.0)?;
            scale
        }
        None => inverse,
    };
    apply_binary(e, binary::MUL, [&mean, &scale], moved.id, 1.0)?;
    match &bias {
        Some(bias) => apply_binary(e, binary::SUB, [bias, &moved], shift.id, 1.0)?,
        None => apply_unary_with(e, unary::NEG, &moved, &shift, [0.0; 4])?,
    }
    Ok([scale, shift])
}

/// Returns the parameters for computing a batch norm's scale and shift at load time; `None` if any
/// of them is not constant.
fn constant_batch_norm(
    e: &Encoder<'_, '_>,
    parameters: [ValueId; 4],
    channels: usize,
    epsilon: f64,
) -> Result<Option<BatchNorm>, Error> {
    let mut sources = [None; 4];
    for (source, id) in sources.iter_mut().zip(parameters) {
        let Some(parameter) = e.optional_tensor(id)? else { continue };
        if parameter.sizes != [channels] {
            return Err(Error::Invalid(format!(
                "weight, bias or statistics: expected shape [{channels}], found {:?}",
                parameter.sizes
            )));
        }
        if !parameter.element.is_floating() {
            return Err(Error::Invalid(format!(
                "weight, bias or statistics: expected floating point, found {:?}",
                parameter.element
            )));
        }
        match e.constant(parameter.id) {
            Some(constant) => *source = Some(constant),
            None => return Ok(None),
        }
    }
    let [weight, bias, Some(mean), Some(variance)] = sources else { return Ok(None) };
    let epsilon = (epsilon as f32).to_bits();
    Ok(Some(BatchNorm { weight, bias, mean, variance, channels, epsilon }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use crate::ops::testing::tensor;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Value};

    /// For all shapes, softmax uses the algorithm that was chosen for the largest shape.
    #[test]
    fn smaller_shapes_take_the_same_pipelines() {
        for dim in [0, 1, 2] {
            let graph = Graph {
                values: vec![
                    tensor(ScalarType::Float, &[40, 9, 300], false),
                    Value::Int(dim),
                    Value::Bool(false),
                    tensor(ScalarType::Float, &[40, 9, 300], false),
                ],
                nodes: vec![Node::new(Operator::SOFTMAX, vec![0, 1, 2, 3])],
                inputs: vec![0],
                outputs: vec![3],
                ..Graph::default()
            };
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            let (planned, _) = encode(&graph, &mut state, true).unwrap();
            for sizes in [[1, 1, 1], [40, 9, 1], [40, 1, 1], [3, 2, 300], [17, 9, 100]] {
                state.tensors[0].as_mut().unwrap().sizes = sizes.to_vec();
                let (steps, _) = encode(&graph, &mut state, false).unwrap();
                let keys = |steps: &[crate::steps::Step]| -> Vec<_> {
                    steps.iter().map(|step| step.key.clone()).collect()
                };
                assert!(keys(&steps) == keys(&planned), "{dim}, {sizes:?}");
            }
        }
    }
}
