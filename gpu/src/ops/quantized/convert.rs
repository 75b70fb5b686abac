//! Quantization and dequantization operators.

use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::dims::merge_dims;
use crate::ops::{Entry, elementwise, operator};
use crate::tensors::{Operand, strides};
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    DequantizePerChannelArgs, DequantizePerTensorArgs, DequantizePerTensorTensorArgs,
    DequantizePerTokenArgs, Operator, QuantizePerTokenArgs, TorchaoDequantizeAffineArgs,
};
use torchlet_shaders::functions::{affine, unary};
use torchlet_shaders::{Affine, AffinePush, Element, MAX_DIMS};

pub(in crate::ops) const OPERATORS: &[Entry] = &[
    operator(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, |e, args| {
        per_tensor(e, args, Direction::Quantize)
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, |e, args| {
        per_tensor(e, args, Direction::Dequantize)
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR, |e, args| {
        per_tensor_by_tensor(e, args, Direction::Quantize)
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR, |e, args| {
        per_tensor_by_tensor(e, args, Direction::Dequantize)
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_CHANNEL, |e, args| {
        per_channel(e, args, Direction::Quantize)
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL, |e, args| {
        per_channel(e, args, Direction::Dequantize)
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TOKEN, |e, args| {
        per_token(e, args, Direction::Quantize)
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TOKEN, |e, args| {
        per_token(e, args, Direction::Dequantize)
    }),
    operator(Operator::TORCHAO_QUANTIZE_AFFINE, |e, args| by_blocks(e, args, Direction::Quantize)),
    operator(Operator::TORCHAO_DEQUANTIZE_AFFINE, |e, args| {
        by_blocks(e, args, Direction::Dequantize)
    }),
];

/// The direction of a conversion: quantize or dequantize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Direction {
    Quantize = affine::QUANTIZE,
    Dequantize = affine::DEQUANTIZE,
}

/// Returns the range of quantized values of a type.
pub(super) fn bounds(element: Element) -> [f64; 2] {
    match element {
        Element::U8 => [0.0, 255.0],
        Element::I8 => [-128.0, 127.0],
        _ => [-2_147_483_648.0, 2_147_483_520.0],
    }
}

/// Returns the range of quantized values from arguments; without these, the range of the type.
pub(super) fn bounds_at(
    e: &Encoder<'_, '_>,
    given: [impl Into<Option<ValueId>>; 2],
    element: Element,
) -> Result<[f64; 2], Error> {
    let ([low, high], [least, most]) = (bounds(element), given);
    Ok([e.optional_float(least)?.unwrap_or(low), e.optional_float(most)?.unwrap_or(high)])
}

fn per_tensor(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let call = DequantizePerTensorArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let (scale, zero) = (e.float(call.scale)?, e.float(call.zero_point)?);
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    match to {
        Direction::Quantize => {
            let bounds = bounds_at(e, [call.quant_min, call.quant_max], out.element)?;
            quantize(e, &input, &out, [scale, zero], bounds)
        }
        Direction::Dequantize => dequantize(e, &input, &out, [scale, zero]),
    }
}

/// Emits `out = round(input / scale) + zero`, clamped.
pub(super) fn quantize(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    [scale, zero]: [f64; 2],
    [low, high]: [f64; 2],
) -> Result<(), Error> {
    let parameters = [1.0 / scale, zero, low, high];
    elementwise::apply_unary_with(e, unary::QUANTIZE, input, out, parameters)
}

/// Emits `out = (input - zero) * scale`.
pub(super) fn dequantize(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    [scale, zero]: [f64; 2],
) -> Result<(), Error> {
    elementwise::apply_unary_with(e, unary::DEQUANTIZE, input, out, [scale, zero, 0.0, 0.0])
}

/// Quantizes or dequantizes with scales from a tensor. The index of the scale is the sum of
/// `index * step` over the dims.
#[allow(clippy::too_many_arguments)]
pub(super) fn affine(
    e: &mut Encoder<'_, '_>,
    to: Direction,
    input: &Operand,
    scale: &Operand,
    zero: Option<&Operand>,
    view: &[usize],
    steps: &[i64],
    [low, high]: [f64; 2],
    out: &Operand,
) -> Result<(), Error> {
    let reach: i64 =
        view.iter().zip(steps).map(|(size, step)| (*size as i64 - 1).max(0) * step).sum();
    if input.numel() > 0
        && reach >= scale.numel().min(zero.map_or(usize::MAX, Operand::numel)) as i64
    {
        let zeros = zero.map_or(0, Operand::numel);
        return Err(Error::Invalid(format!(
            "expected at least {} scales and zero points, found {} and {zeros}",
            reach + 1,
            scale.numel()
        )));
    }
    let dims = merge_dims(view, &[steps.to_vec()])?;
    let mut push = AffinePush {
        numel: u32_of(out.numel())?,
        low: low as f32,
        high: high as f32,
        sizes: [1; MAX_DIMS],
        strides: [0; MAX_DIMS],
    };
    for (slot, (size, strides)) in (0..MAX_DIMS).rev().zip(dims.iter().rev()) {
        push.sizes[slot] = u32_of(*size)?;
        push.strides[slot] = strides[0] as u32;
    }
    let zero_operand = zero.unwrap_or(scale);
    let pipeline = Affine {
        function: to as u32,
        input: input.element,
        scale: scale.element,
        zero: zero_operand.element,
        output: out.element,
        has_zero: zero.is_some(),
    };
    let accesses = [read(input.id), read(scale.id), read(zero_operand.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}

/// Quantizes or dequantizes with one scale and zero point, given as tensors.
fn per_tensor_by_tensor(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    to: Direction,
) -> Result<(), Error> {
    let call = DequantizePerTensorTensorArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let (scale, zero) = (e.tensor(call.scale)?, e.tensor(call.zero_point)?);
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let bounds = match to {
        Direction::Quantize => bounds_at(e, [call.quant_min, call.quant_max], out.element)?,
        Direction::Dequantize => bounds(input.element),
    };
    affine(e, to, &input, &scale, Some(&zero), &[input.numel()], &[0], bounds, &out)
}

/// Quantizes or dequantizes per channel, with one scale per index of a dim.
fn per_channel(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let call = DequantizePerChannelArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let scale = e.tensor(call.scales)?;
    let zero = e.optional_tensor(call.zero_points)?;
    let axis = input.dim(e.int(call.axis)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let bounds = match to {
        Direction::Quantize => bounds_at(e, [call.quant_min, call.quant_max], out.element)?,
        Direction::Dequantize => bounds(input.element),
    };
    let steps: Vec<i64> = (0..input.rank()).map(|dim| i64::from(dim == axis)).collect();
    affine(e, to, &input, &scale, zero.as_ref(), &input.sizes, &steps, bounds, &out)
}

/// Quantizes or dequantizes per token, with one scale per row.
fn per_token(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let ([input, scale, zero], given) = match to {
        Direction::Quantize => {
            let call = QuantizePerTokenArgs::of(args)?;
            let tensors = [call.input, call.scales, call.zero_points];
            (tensors, [call.quant_min, call.quant_max])
        }
        Direction::Dequantize => {
            let call = DequantizePerTokenArgs::of(args)?;
            let tensors = [call.input, call.scales, call.zero_points];
            (tensors, [call.quant_min, call.quant_max])
        }
    };
    let (input, scale, zero) = (e.tensor(input)?, e.tensor(scale)?, e.tensor(zero)?);
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let bounds = match to {
        Direction::Quantize => bounds_at(e, given, out.element)?,
        Direction::Dequantize => bounds(input.element),
    };
    let count = input.sizes.last().copied().unwrap_or(1);
    let view = [input.numel() / count.max(1), count];
    affine(e, to, &input, &scale, Some(&zero), &view, &[1, 0], bounds, &out)
}

/// Returns the block size of each dim, which must divide the size of that dim.
pub(super) fn blocks_of(
    e: &Encoder<'_, '_>,
    blocks: ValueId,
    input: &Operand,
) -> Result<Vec<usize>, Error> {
    let blocks = e.ints(blocks)?;
    let sizes: Vec<usize> = blocks
        .iter()
        .zip(&input.sizes)
        .map(|(block, size)| if *block < 0 { *size } else { *block as usize })
        .collect();
    let fit = blocks.len() == input.rank()
        && sizes.iter().zip(&input.sizes).all(|(block, size)| *block > 0 && size % block == 0);
    if fit {
        Ok(sizes)
    } else {
        Err(Error::Invalid(format!(
            "block_size {blocks:?} does not divide input shape {:?}",
            input.sizes
        )))
    }
}

fn by_blocks(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let call = TorchaoDequantizeAffineArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let blocks = blocks_of(e, call.block_size, &input)?;
    let scale = e.tensor(call.scale)?;
    let zero = e.optional_tensor(call.zero_point)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let codes = if to == Direction::Quantize { out.element } else { input.element };
    let bounds = bounds_at(e, [call.quant_min, call.quant_max], codes)?;
    let counts: Vec<usize> =
        input.sizes.iter().zip(&blocks).map(|(size, block)| size / block).collect();
    let own = strides(&counts);
    let (mut view, mut steps) = (Vec::new(), Vec::new());
    for (dim, block) in blocks.iter().enumerate() {
        view.extend([counts[dim], *block]);
        steps.extend([own[dim] as i64, 0]);
    }
    affine(e, to, &input, &scale, zero.as_ref(), &view, &steps, bounds, &out)
}
