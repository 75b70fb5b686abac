//! Reductions, softmax and normalisations.

use super::elementwise::{apply_binary, apply_unary_with};
use super::{Operator, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ir::ValueId;
use crate::tensors::Operand;
use torchlet_shaders::{Element, Normalize, NormalizePush, Reduce, ReducePush};

pub(super) const OPERATORS: &[Operator] = &[
    operator("aten.sum.dim_IntList", |e, args| over_dims(e, args, Function::Sum, false)),
    operator("aten.mean.dim", |e, args| over_dims(e, args, Function::Sum, true)),
    operator("aten.amax.default", |e, args| over_dims(e, args, Function::Max, false)),
    operator("aten.amin.default", |e, args| over_dims(e, args, Function::Min, false)),
    operator("aten.argmax.default", |e, args| search(e, args, Function::ArgMax)),
    operator("aten.argmin.default", |e, args| search(e, args, Function::ArgMin)),
    operator("aten.var.dim", variance),
    operator("aten._softmax.default", |e, args| softmax(e, args, 0)),
    operator("aten._log_softmax.default", |e, args| softmax(e, args, 1)),
    operator("aten.native_layer_norm.default", layer_norm),
    operator("aten.native_group_norm.default", group_norm),
    operator("et_vk.rms_norm.default", rms_norm),
    operator("aten._native_batch_norm_legit_no_training.default", batch_norm),
];

/// The functions of the reduce shader, by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Sum = 0,
    Max = 1,
    Min = 2,
    ArgMax = 3,
    ArgMin = 4,
    SumExp = 5,
    SumSquaredDifference = 6,
    SumSquares = 7,
}

/// The invocations of a workgroup.
const WORKGROUP: u32 = 256;

/// Emits a reduction of the middle one of three dimensions: `input` as `outer * count * inner`.
pub(super) fn emit(
    e: &mut Encoder<'_, '_>,
    function: Function,
    input: &Operand,
    other: Option<&Operand>,
    out: &Operand,
    [count, inner]: [usize; 2],
    scale: f64,
) -> Result<(), Error> {
    let numel = out.numel();
    let push = ReducePush {
        numel: u32_of(numel)?,
        count: u32_of(count)?,
        inner: u32_of(inner.max(1))?,
        scale: scale as f32,
    };
    let other_operand = other.unwrap_or(input);
    let pipeline = Reduce {
        function: function as u32,
        input: input.element,
        other: other_operand.element,
        output: out.element,
    };
    // Few invocations share a short reduction, many a long one.
    let lanes = (count.div_ceil(4).next_power_of_two() as u32).clamp(1, WORKGROUP);
    let rows = (WORKGROUP / lanes).min((numel.div_ceil(4) as u32).next_power_of_two()).max(1);
    let accesses = [read(input.id), read(other_operand.id), write(out.id)];
    e.dispatch(&pipeline, accesses, &push, [lanes as usize, numel.div_ceil(4), 1], [lanes, rows, 1])
}

/// The dimensions to reduce, in order, without repetition; all for an empty list or nothing.
fn dims_of(input: &Operand, dims: &[i64]) -> Result<Vec<usize>, Error> {
    if dims.is_empty() {
        return Ok((0..input.rank()).collect());
    }
    let mut found = Vec::new();
    for dim in dims {
        let dim = input.dim(*dim)?;
        if dim < input.rank() && !found.contains(&dim) {
            found.push(dim);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn reduced_sizes(input: &Operand, dims: &[usize], keep: bool) -> Vec<usize> {
    let sizes = input.sizes.iter().enumerate();
    if keep {
        sizes.map(|(dim, size)| if dims.contains(&dim) { 1 } else { *size }).collect()
    } else {
        sizes.filter(|(dim, _)| !dims.contains(dim)).map(|(_, size)| *size).collect()
    }
}

/// Reduces several dimensions: one dispatch for each run of neighbours, innermost first.
fn reduce_dims(
    e: &mut Encoder<'_, '_>,
    function: Function,
    input: &Operand,
    out: &Operand,
    dims: &[usize],
    scale: f64,
) -> Result<(), Error> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for dim in dims {
        match runs.last_mut() {
            Some((_, end)) if *end == *dim => *end += 1,
            _ => runs.push((*dim, *dim + 1)),
        }
    }
    if runs.is_empty() {
        // Nothing is reduced: a reduction over a dimension of one.
        runs.push((input.rank(), input.rank()));
    }
    let mut current = input.clone();
    while let Some((start, end)) = runs.pop() {
        let count: usize = current.sizes[start..end].iter().product();
        let inner: usize = current.sizes[end..].iter().product();
        let last = runs.is_empty();
        let target = if last {
            out.clone()
        } else {
            let mut sizes = current.sizes.clone();
            sizes[start..end].fill(1);
            let element = if current.element.is_floating() { Element::F32 } else { Element::I32 };
            e.temporary(element, &sizes)?
        };
        emit(e, function, &current, None, &target, [count, inner], if last { scale } else { 1.0 })?;
        current = target;
    }
    Ok(())
}

fn keep_dim(e: &Encoder<'_, '_>, args: &[ValueId], position: usize) -> Result<bool, Error> {
    if args.len() > position + 1 { e.bool(args[position]) } else { Ok(false) }
}

fn over_dims(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    function: Function,
    mean: bool,
) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let dims = e.optional_ints(e.arg(args, 1)?)?.unwrap_or_default();
    let dims = dims_of(&input, &dims)?;
    let keep = keep_dim(e, args, 2)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &reduced_sizes(&input, &dims, keep))?;
    let count: usize = dims.iter().map(|dim| input.size(*dim)).product();
    let scale = if mean { 1.0 / count as f64 } else { 1.0 };
    reduce_dims(e, function, &input, &out, &dims, scale)
}

fn search(e: &mut Encoder<'_, '_>, args: &[ValueId], function: Function) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let dim = if args.len() > 2 { e.optional_int(args[1])? } else { None };
    let keep = keep_dim(e, args, 2)?;
    let out = e.out(args)?;
    let (sizes, shape) = match dim {
        Some(dim) => {
            let dim = input.dim(dim)?;
            let inner = input.sizes.iter().skip(dim + 1).product();
            (reduced_sizes(&input, &[dim], keep), [input.size(dim), inner])
        }
        None => {
            let all: Vec<usize> = (0..input.rank()).collect();
            (reduced_sizes(&input, &all, keep), [input.numel(), 1])
        }
    };
    let out = e.resize(out.id, &sizes)?;
    emit(e, function, &input, None, &out, shape, 1.0)
}

/// Mean and sum of squared differences of rows, in `F32`.
fn moments(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    rows: usize,
    shape: [usize; 2],
    divisor: f64,
) -> Result<[Operand; 2], Error> {
    let mean = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::Sum, input, None, &mean, shape, 1.0 / shape[0] as f64)?;
    let variance = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::SumSquaredDifference, input, Some(&mean), &variance, shape, 1.0 / divisor)?;
    Ok([mean, variance])
}

fn variance(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let dims = e.optional_ints(e.arg(args, 1)?)?.unwrap_or_default();
    let dims = dims_of(&input, &dims)?;
    let unbiased = if args.len() > 3 { e.bool(args[2])? } else { true };
    let keep = keep_dim(e, args, 3)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &reduced_sizes(&input, &dims, keep))?;
    let count: usize = dims.iter().map(|dim| input.size(*dim)).product();
    let neighbours = dims.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let (input, dims) = if neighbours {
        (input, dims)
    } else {
        // The reduced dimensions are brought to the end.
        let kept = (0..input.rank()).filter(|dim| !dims.contains(dim));
        let order: Vec<usize> = kept.chain(dims.iter().copied()).collect();
        let ordered = super::views::permuted(e, &input, &order)?;
        (ordered, (input.rank() - dims.len()..input.rank()).collect())
    };
    let end = dims.last().map_or(input.rank(), |dim| dim + 1);
    let inner: usize = input.sizes[end..].iter().product();
    let mean = e.temporary(Element::F32, &[out.numel()])?;
    let divisor = count as f64 - if unbiased { 1.0 } else { 0.0 };
    emit(e, Function::Sum, &input, None, &mean, [count, inner], 1.0 / count as f64)?;
    let scale = 1.0 / divisor;
    emit(e, Function::SumSquaredDifference, &input, Some(&mean), &out, [count, inner], scale)
}

fn softmax(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let dim = input.dim(e.int(e.arg(args, 1)?)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let (count, inner) = (input.size(dim), input.sizes.iter().skip(dim + 1).product::<usize>());
    if out.numel() == 0 {
        return Ok(());
    }
    let rows = input.numel() / count;
    let max = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::Max, &input, None, &max, [count, inner], 1.0)?;
    let sum = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::SumExp, &input, Some(&max), &sum, [count, inner], 1.0)?;
    let rows = Rows { size: count * inner, inner };
    normalize(e, function, &input, [&max, &sum], rows, Weights::default(), 0.0, &out)
}

/// Which elements share statistics.
#[derive(Debug, Clone, Copy)]
struct Rows {
    size: usize,
    inner: usize,
}

/// What elements are multiplied with and what is added: element `i / step % count`.
#[derive(Debug, Clone, Copy, Default)]
struct Weights<'o> {
    weight: Option<&'o Operand>,
    bias: Option<&'o Operand>,
    step: usize,
    count: usize,
}

#[allow(clippy::too_many_arguments)]
fn normalize(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    [a, b]: [&Operand; 2],
    rows: Rows,
    weights: Weights<'_>,
    epsilon: f64,
    out: &Operand,
) -> Result<(), Error> {
    let push = NormalizePush {
        numel: u32_of(out.numel())?,
        row_size: u32_of(rows.size.max(1))?,
        row_inner: u32_of(rows.inner.max(1))?,
        weight_step: u32_of(weights.step.max(1))?,
        weight_count: u32_of(weights.count.max(1))?,
        epsilon: epsilon as f32,
    };
    let (weight, bias) = (weights.weight, weights.bias);
    let any = weight.or(bias).unwrap_or(input);
    let pipeline = Normalize {
        function,
        input: input.element,
        weight: any.element,
        output: out.element,
        has_weight: weight.is_some(),
        has_bias: bias.is_some(),
    };
    let accesses = [
        read(input.id),
        read(a.id),
        read(b.id),
        read(weight.unwrap_or(any).id),
        read(bias.unwrap_or(any).id),
        write(out.id),
    ];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}

fn layer_norm(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let normalized = e.ints(e.arg(args, 1)?)?.len();
    let weight = e.optional_tensor(e.arg(args, 2)?)?;
    let bias = e.optional_tensor(e.arg(args, 3)?)?;
    let epsilon = e.float(e.arg(args, 4)?)?;
    let first = input
        .rank()
        .checked_sub(normalized)
        .ok_or_else(|| Error::invalid("normalises more dimensions than there are"))?;
    let count: usize = input.sizes[first..].iter().product();
    let rows = input.numel() / count.max(1);
    let out = e.outs(args)?.first().copied().ok_or_else(|| Error::invalid("there is no output"))?;
    let out = e.resize(out, &input.sizes)?;
    let [mean, variance] = moments(e, &input, rows, [count, 1], count as f64)?;
    let weights = Weights { weight: weight.as_ref(), bias: bias.as_ref(), step: 1, count };
    normalize(
        e,
        2,
        &input,
        [&mean, &variance],
        Rows { size: count, inner: 1 },
        weights,
        epsilon,
        &out,
    )
}

fn group_norm(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let weight = e.optional_tensor(e.arg(args, 1)?)?;
    let bias = e.optional_tensor(e.arg(args, 2)?)?;
    let groups = usize::try_from(e.int(e.arg(args, 6)?)?).unwrap_or(0);
    let epsilon = e.float(e.arg(args, 7)?)?;
    let (batch, channels) = (input.size(0), input.size(1));
    if groups == 0 || channels % groups != 0 || input.rank() < 2 {
        return Err(Error::Invalid(format!("{groups} groups of {channels} channels")));
    }
    let rows = batch * groups;
    let count = input.numel() / rows.max(1);
    let outs = e.outs(args)?;
    let out = outs.first().copied().ok_or_else(|| Error::invalid("there is no output"))?;
    let out = e.resize(out, &input.sizes)?;
    let [mean, variance] = moments(e, &input, rows, [count, 1], count as f64)?;
    let step = input.sizes.iter().skip(2).product();
    let weights = Weights { weight: weight.as_ref(), bias: bias.as_ref(), step, count: channels };
    normalize(
        e,
        2,
        &input,
        [&mean, &variance],
        Rows { size: count, inner: 1 },
        weights,
        epsilon,
        &out,
    )
}

fn rms_norm(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let weight = e.tensor(e.arg(args, 1)?)?;
    let epsilon = e.float(e.arg(args, 2)?)?;
    let count = input.sizes.last().copied().unwrap_or(1);
    let rows = input.numel() / count.max(1);
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let mean = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::SumSquares, &input, None, &mean, [count, 1], 1.0 / count as f64)?;
    let weights = Weights { weight: Some(&weight), bias: None, step: 1, count };
    normalize(e, 3, &input, [&mean, &mean], Rows { size: count, inner: 1 }, weights, epsilon, &out)
}

/// Values of a constant tensor of floating-point numbers.
pub(super) fn constant_floats(e: &Encoder<'_, '_>, id: ValueId) -> Result<Option<Vec<f32>>, Error> {
    if e.is_none(id) {
        return Ok(None);
    }
    let element = e.tensor(id)?.element;
    let bytes = e
        .constant_data(id)
        .ok_or_else(|| Error::unsupported("parameters that are not constant"))?;
    Ok(Some(match element {
        Element::F32 => {
            bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        }
        Element::F16 => {
            let halves = bytes.as_chunks::<2>().0.iter();
            halves.map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect()
        }
        _ => return Err(Error::invalid("parameters are not floating-point numbers")),
    }))
}

/// The bytes of numbers as an `F32` tensor has them.
pub(super) fn float_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn batch_norm(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let channels = input.size(1);
    let epsilon = e.float(e.arg(args, 6)?)?;
    let parameters = [e.arg(args, 1)?, e.arg(args, 2)?, e.arg(args, 3)?, e.arg(args, 4)?];
    let constant = |id: &ValueId| e.is_none(*id) || e.constant_data(*id).is_some();
    let [scale, shift] = if parameters.iter().all(constant) {
        constant_scale_and_shift(e, parameters, channels, epsilon)?
    } else {
        scale_and_shift(e, parameters, channels, epsilon)?
    };
    let out = e.outs(args)?.first().copied().ok_or_else(|| Error::invalid("there is no output"))?;
    let out = e.resize(out, &input.sizes)?;
    let step = input.sizes.iter().skip(2).product();
    let weights = Weights { weight: Some(&scale), bias: Some(&shift), step, count: channels };
    normalize(e, 4, &input, [&scale, &scale], Rows { size: 1, inner: 1 }, weights, 0.0, &out)
}

/// What a batch normalisation multiplies with and adds, computed in every run.
fn scale_and_shift(
    e: &mut Encoder<'_, '_>,
    [weight, bias, mean, variance]: [ValueId; 4],
    channels: usize,
    epsilon: f64,
) -> Result<[Operand; 2], Error> {
    let (weight, bias) = (e.optional_tensor(weight)?, e.optional_tensor(bias)?);
    let (mean, variance) = (e.tensor(mean)?, e.tensor(variance)?);
    for parameter in [weight.as_ref(), bias.as_ref(), Some(&mean), Some(&variance)] {
        if parameter.is_some_and(|parameter| parameter.sizes != [channels]) {
            return Err(Error::invalid("parameters do not match the channels"));
        }
    }
    let mut temporary = || e.temporary(Element::F32, &[channels]);
    let [raised, inverse, scale, moved, shift] =
        [temporary()?, temporary()?, temporary()?, temporary()?, temporary()?];
    apply_unary_with(e, 24, &variance, &raised, [1.0, epsilon, 0.0, 0.0])?;
    apply_unary_with(e, 4, &raised, &inverse, [0.0; 4])?;
    let scale = match &weight {
        Some(weight) => {
            apply_binary(e, 2, [weight, &inverse], scale.id, 1.0)?;
            scale
        }
        None => inverse,
    };
    apply_binary(e, 2, [&mean, &scale], moved.id, 1.0)?;
    match &bias {
        Some(bias) => apply_binary(e, 1, [bias, &moved], shift.id, 1.0)?,
        None => apply_unary_with(e, 2, &moved, &shift, [0.0; 4])?,
    }
    Ok([scale, shift])
}

/// What a batch normalisation multiplies with and adds, made once.
fn constant_scale_and_shift(
    e: &mut Encoder<'_, '_>,
    parameters: [ValueId; 4],
    channels: usize,
    epsilon: f64,
) -> Result<[Operand; 2], Error> {
    let id = parameters[2];
    let values = |e: &Encoder<'_, '_>, position: usize, default: f32| -> Result<Vec<f32>, Error> {
        let values =
            constant_floats(e, parameters[position])?.unwrap_or_else(|| vec![default; channels]);
        if values.len() == channels {
            Ok(values)
        } else {
            Err(Error::invalid("parameters do not match the channels"))
        }
    };
    let scales = move |e: &Encoder<'_, '_>| -> Result<Vec<f32>, Error> {
        let (weight, variance) = (values(e, 0, 1.0)?, values(e, 3, 1.0)?);
        let scale = |(weight, variance): (f32, f32)| weight / (variance + epsilon as f32).sqrt();
        Ok(weight.into_iter().zip(variance).map(scale).collect())
    };
    let scale = e.derived(id, "batch norm scale", Element::F32, &[channels], |e| {
        Ok(float_bytes(scales(e)?))
    })?;
    let shift = e.derived(id, "batch norm shift", Element::F32, &[channels], |e| {
        let (bias, mean) = (values(e, 1, 0.0)?, values(e, 2, 0.0)?);
        let scales = scales(e)?;
        let shift = |((bias, mean), scale): ((f32, f32), f32)| bias - mean * scale;
        Ok(float_bytes(bias.into_iter().zip(mean).zip(scales).map(shift)))
    })?;
    Ok([scale, shift])
}
