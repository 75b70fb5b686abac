//! Sums, products, unary functions and shuffles of quantized tensors, with requantization.

use super::convert::bounds;
use super::pair;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::elementwise::{broadcast_sizes, broadcast_strides};
use crate::ops::views::gather;
use crate::ops::{Entry, operator, resize};
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    LookupArgs, Operator, Q8taAddArgs, Q8taPixelShuffleArgs, Q8taReluArgs,
};
use torchlet_shaders::functions::requantize as functions;
use torchlet_shaders::{Element, Lookup, LookupPush, Requantize, RequantizePush};

pub(in crate::ops) const OPERATORS: &[Entry] = &[
    operator(Operator::ET_VK_Q8TA_ADD, |e, args| {
        let call = Q8taAddArgs::of(args)?;
        let alpha = e.float(call.alpha)?;
        of_two(e, args, functions::ADD, alpha)
    }),
    operator(Operator::Q8TA_MUL, |e, args| of_two(e, args, functions::MUL, 1.0)),
    operator(Operator::Q8TA_LOOKUP, |e, args| {
        let call = LookupArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let table = table_of(e, args)?;
        let out = e.out(args)?;
        let out = e.resize(out.id, &input.sizes)?;
        look_up(e, &input, &table, &out)
    }),
    operator(Operator::ET_VK_Q8TA_RELU, |e, args| {
        let call = Q8taReluArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let from = [e.float(call.input_scale)?, e.float(call.input_zero_point)?];
        let to = [e.float(call.output_scale)?, e.float(call.output_zero_point)?];
        let out = e.out(args)?;
        let out = e.resize(out.id, &input.sizes)?;
        let codes = bounds(out.element).map(|bound| bound as f32);
        let (inverse, zero) = (1.0 / to[0], to[1]);
        let inputs = [&input, &input];
        requantize(e, functions::RELU, inputs, [from, from], [inverse, zero], codes, &out)
    }),
    operator(Operator::ET_VK_Q8TA_PIXEL_SHUFFLE, |e, args| {
        let call = Q8taPixelShuffleArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let from = [e.float(call.input_scale)?, e.float(call.input_zero_point)?];
        let (inverse, zero) = (e.float(call.output_inv_scale)?, e.float(call.output_zero_point)?);
        let factor = e.int(call.upscale_factor)?;
        let shuffled = e.temporary(Element::I8, &input.sizes)?;
        let (inputs, to) = ([&input, &input], [inverse, zero]);
        let codes = bounds(shuffled.element).map(|bound| bound as f32);
        requantize(e, functions::COPY, inputs, [from, from], to, codes, &shuffled)?;
        let out = e.out(args)?.id;
        resize::pixel_shuffle(e, &shuffled, factor, out)
    }),
];

/// Emits a requantization, sum or product by the shader's function code. The result is clamped to
/// `[low, high]`; `inverse` is the reciprocal of its scale.
pub(super) fn requantize(
    e: &mut Encoder<'_, '_>,
    function: u32,
    [a, b]: [&Operand; 2],
    [a_scale, b_scale]: [[f64; 2]; 2],
    [inverse, zero]: [f64; 2],
    [low, high]: [f32; 2],
    out: &Operand,
) -> Result<(), Error> {
    let push = RequantizePush {
        numel: u32_of(out.numel())?,
        a_scale: a_scale[0] as f32,
        a_zero: a_scale[1] as f32,
        b_scale: b_scale[0] as f32,
        b_zero: b_scale[1] as f32,
        out_inverse: inverse as f32,
        out_zero: zero as f32,
        low,
        high,
    };
    let pipeline = Requantize { function, a: a.element, b: b.element, output: out.element };
    e.dispatch_by_four(&pipeline, [read(a.id), read(b.id), write(out.id)], &push, out.numel())
}

/// Emits the sum or product of two quantized tensors, the second scaled by `alpha`.
fn of_two(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    function: u32,
    alpha: f64,
) -> Result<(), Error> {
    let [a, b, a_scale, a_zero, b_scale, b_zero, scale, zero, ..] = args[..] else {
        return Err(Error::Invalid(format!(
            "expected two inputs and three pairs of scale and zero point, found {} arguments",
            args.len()
        )));
    };
    let (a, b) = (e.tensor(a)?, e.tensor(b)?);
    let (from_a, from_b) = (pair(e, [a_scale, a_zero])?, pair(e, [b_scale, b_zero])?);
    let to = pair(e, [scale, zero])?;
    let sizes = broadcast_sizes(&a.sizes, &b.sizes)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    let mut expanded = Vec::new();
    for operand in [a, b] {
        if operand.sizes == sizes {
            expanded.push(operand);
            continue;
        }
        let whole = e.temporary(operand.element, &sizes)?;
        let steps = broadcast_strides(&operand, sizes.len());
        gather(e, &operand, &whole, &sizes, &steps, 0)?;
        expanded.push(whole);
    }
    let from_b = [from_b[0] * alpha, from_b[1]];
    let (inputs, codes) = ([&expanded[0], &expanded[1]], bounds(out.element).map(|it| it as f32));
    let to = [1.0 / to[0], to[1]];
    requantize(e, function, inputs, [from_a, from_b], to, codes, &out)
}

/// Returns the lookup table, which has 256 entries.
pub(super) fn table_of(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<Operand, Error> {
    let table = e.tensor(LookupArgs::of(args)?.lut)?;
    match (table.element, table.numel()) {
        (Element::I8, 256) => Ok(table),
        _ => Err(Error::Invalid(format!(
            "lookup table: expected 256 int8 values, found {:?} of shape {:?}",
            table.element, table.sizes
        ))),
    }
}

/// Emits `out[i] = table[input[i] + 128]`.
pub(super) fn look_up(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    table: &Operand,
    out: &Operand,
) -> Result<(), Error> {
    if input.element != Element::I8 || out.element != Element::I8 {
        return Err(Error::Invalid(format!(
            "expected int8 input and output, found {:?} and {:?}",
            input.element, out.element
        )));
    }
    let push = LookupPush { numel: u32_of(out.numel())? };
    let accesses = [read(input.id), read(table.id), write(out.id)];
    e.dispatch_by_four(&Lookup {}, accesses, &push, out.numel())
}
