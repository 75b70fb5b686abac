//! Sums, activations and shuffles of quantized tensors, from one scale to another.

use super::convert::bounds;
use super::pair;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::elementwise::{broadcast_sizes, broadcast_strides};
use crate::ops::views::gather;
use crate::ops::{Entry, operator, resize};
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::functions::requantize as functions;
use torchlet_shaders::{Element, Requantize, RequantizePush};

pub(in crate::ops) const OPERATORS: &[Entry] = &[
    operator(Operator::ET_VK_Q8TA_ADD, q8ta_add),
    operator(Operator::ET_VK_Q8TA_RELU, |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let from = [e.float(e.arg(args, 1)?)?, e.float(e.arg(args, 2)?)?];
        let to = [e.float(e.arg(args, 3)?)?, e.float(e.arg(args, 4)?)?];
        let out = e.out(args)?;
        let out = e.resize(out.id, &input.sizes)?;
        let codes = bounds(out.element).map(|bound| bound as f32);
        let (inverse, zero) = (1.0 / to[0], to[1]);
        let inputs = [&input, &input];
        requantize(e, functions::RELU, inputs, [from, from], [inverse, zero], codes, &out)
    }),
    operator(Operator::ET_VK_Q8TA_PIXEL_SHUFFLE, |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let from = [e.float(e.arg(args, 1)?)?, e.float(e.arg(args, 2)?)?];
        let (inverse, zero) = (e.float(e.arg(args, 3)?)?, e.float(e.arg(args, 4)?)?);
        let factor = e.int(e.arg(args, 5)?)?;
        let shuffled = e.temporary(Element::I8, &input.sizes)?;
        let (inputs, to) = ([&input, &input], [inverse, zero]);
        let codes = bounds(shuffled.element).map(|bound| bound as f32);
        requantize(e, functions::COPY, inputs, [from, from], to, codes, &shuffled)?;
        let out = e.out(args)?.id;
        resize::pixel_shuffle(e, &shuffled, factor, out)
    }),
];

/// Emits a change of scale and zero point, or a sum, by number of the shader's function: to codes between two, by what one over their scale is.
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

fn q8ta_add(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (a, b) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
    let (from_a, from_b) = (pair(e, args, [2, 3])?, pair(e, args, [4, 5])?);
    let to = pair(e, args, [6, 7])?;
    let alpha = e.float(e.arg(args, 8)?)?;
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
    requantize(e, functions::ADD, inputs, [from_a, from_b], to, codes, &out)
}
