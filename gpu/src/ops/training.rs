//! Operators for training: gradients, losses, optimiser steps.

use super::reduce::{Function, emit};
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    AdamwStepArgs, FusedCeArgs, LinearDWArgs, LinearQ4gswBackwardArgs, Operator, Q4gswRequantArgs,
};
use torchlet_shaders::functions::{cross_entropy, linear_backward};
use torchlet_shaders::{
    Adamw, AdamwPush, CrossEntropy, CrossEntropyPush, Element, LinearBackward, LinearBackwardPush,
    PackQ4, PackQ4Push,
};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::ET_VK_LINEAR_D_W, |e, args| {
        let call = LinearDWArgs::of(args)?;
        let (gradient, input) = (e.tensor(call.d_out)?, e.tensor(call.x)?);
        let (n, k) = (last(&gradient)?, last(&input)?);
        let m = input.numel() / k;
        if gradient.numel() / n != m {
            let (gradient, input) = (&gradient.sizes, &input.sizes);
            return Err(Error::Invalid(format!(
                "gradient shape {gradient:?} does not match input shape {input:?}"
            )));
        }
        let out = e.out(args)?;
        let out = e.resize(out.id, &[n, k])?;
        let push = LinearBackwardPush {
            numel: u32_of(out.numel())?,
            m: u32_of(m)?,
            n: u32_of(n)?,
            k: u32_of(k)?,
            row: 0,
            group: 1,
            scale_row: 0,
        };
        backward(e, linear_backward::OF_MATRIX, &gradient, &input, &input, &push, &out)
    }),
    operator(Operator::ET_VK_LINEAR_Q4GSW_BACKWARD, |e, args| {
        let call = LinearQ4gswBackwardArgs::of(args)?;
        let gradient = e.tensor(call.d_out)?;
        let (weight, scales) = (e.tensor(call.weights)?, e.tensor(call.weight_scales)?);
        let n = last(&gradient)?;
        let (row, k) = (weight.size(1), weight.size(1).saturating_mul(2));
        let (group, scale_row) = groups(e, call.group_size, &scales, k, n)?;
        if weight.rank() != 2 || weight.element.size() != 1 || weight.size(0) != n || k == 0 {
            let (gradient, weight) = (&gradient.sizes, &weight.sizes);
            return Err(Error::Invalid(format!(
                "gradient shape {gradient:?} does not match weight shape {weight:?}"
            )));
        }
        let mut sizes = gradient.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = k;
        }
        let out = e.out(args)?;
        let out = e.resize(out.id, &sizes)?;
        let push = LinearBackwardPush {
            numel: u32_of(out.numel())?,
            m: u32_of(gradient.numel() / n)?,
            n: u32_of(n)?,
            k: u32_of(k)?,
            row: u32_of(row)?,
            group: u32_of(group)?,
            scale_row: u32_of(scale_row)?,
        };
        backward(e, linear_backward::OF_INPUT, &gradient, &weight, &scales, &push, &out)
    }),
    operator(Operator::ET_VK_Q4GSW_REQUANT, |e, args| {
        let call = Q4gswRequantArgs::of(args)?;
        let (input, scales) = (e.tensor(call.latent)?, e.tensor(call.scales)?);
        let (n, k) = (input.size(0), input.size(1));
        let (group, scale_row) = groups(e, call.group_size, &scales, k, n)?;
        let out = e.out(args)?;
        let row = k.div_ceil(2);
        let out = e.resize(out.id, &[n, row])?;
        if input.rank() != 2 || out.element != Element::U8 {
            return Err(Error::Invalid(format!(
                "expected weights of 2 dims and a uint8 output, found shape {:?} and {:?}",
                input.sizes, out.element
            )));
        }
        u32_of(input.numel())?;
        let push = PackQ4Push {
            numel: u32_of(out.numel())?,
            k: u32_of(k)?,
            row: u32_of(row)?,
            group: u32_of(group)?,
            scale_row: u32_of(scale_row)?,
        };
        let pipeline = PackQ4 { input: input.element, scale: scales.element };
        let accesses = [read(input.id), read(scales.id), write(out.id)];
        e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
    }),
    operator(Operator::ET_VK_FUSED_CE, fused_ce),
    operator(Operator::ET_VK_ADAMW_STEP, adamw_step),
];

/// Returns the size of the last dim, which must not be empty.
fn last(tensor: &Operand) -> Result<usize, Error> {
    tensor.sizes.last().copied().filter(|size| *size > 0).ok_or_else(|| {
        Error::Invalid(format!("expected a nonempty last dim, found shape {:?}", tensor.sizes))
    })
}

/// Returns the group size from an argument, and the row length of scales of shape `[group, n]`.
fn groups(
    e: &Encoder<'_, '_>,
    group_size: ValueId,
    scales: &Operand,
    k: usize,
    n: usize,
) -> Result<(usize, usize), Error> {
    let group = usize::try_from(e.int(group_size)?).unwrap_or(0);
    let row = scales.size(1);
    if group == 0 || scales.rank() != 2 || row < n || scales.size(0) < k.div_ceil(group) {
        return Err(Error::Invalid(format!(
            "scale shape {:?} does not match {n} columns and {k} rows in groups of {group}",
            scales.sizes
        )));
    }
    Ok((group, row))
}

fn backward(
    e: &mut Encoder<'_, '_>,
    function: u32,
    gradient: &Operand,
    factor: &Operand,
    scales: &Operand,
    push: &LinearBackwardPush,
    out: &Operand,
) -> Result<(), Error> {
    for operand in [gradient, factor, scales] {
        u32_of(operand.numel())?;
    }
    let pipeline = LinearBackward {
        function,
        gradient: gradient.element,
        factor: factor.element,
        scale: scales.element,
        output: out.element,
    };
    let accesses = [read(gradient.id), read(factor.id), read(scales.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, push, out.numel())
}

fn fused_ce(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = FusedCeArgs::of(args)?;
    let (logits, labels) = (e.tensor(call.logits)?, e.tensor(call.labels)?);
    let count = e.float(call.n_valid)?;
    let classes = last(&logits)?;
    let rows = logits.numel() / classes;
    let outs = e.outs(args)?;
    let [loss, gradient] = outs[..] else {
        return Err(Error::Invalid(format!(
            "expected two outputs, loss and gradient, found {}",
            outs.len()
        )));
    };
    if labels.numel() != rows || labels.element != Element::I32 {
        let (logits, labels) = (&logits.sizes, &labels.sizes);
        return Err(Error::Invalid(format!(
            "labels: expected {rows} integers for logits of shape {logits:?}, found shape \
             {labels:?}"
        )));
    }
    let loss = e.resize(loss, &[])?;
    let gradient = e.resize(gradient, &logits.sizes)?;
    let highest = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::Max, &logits, None, &highest, [classes, 1], 1.0)?;
    let total = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::SumExp, &logits, Some(&highest), &total, [classes, 1], 1.0)?;
    let losses = e.temporary(Element::F32, &[rows])?;
    for (function, out) in [(cross_entropy::LOSS, &losses), (cross_entropy::GRADIENT, &gradient)] {
        let push = CrossEntropyPush {
            numel: u32_of(out.numel())?,
            classes: u32_of(classes)?,
            inverse: (1.0 / count) as f32,
        };
        let pipeline = CrossEntropy { function, input: logits.element, output: out.element };
        let accesses =
            [read(logits.id), read(highest.id), read(total.id), read(labels.id), write(out.id)];
        e.dispatch_by_four(&pipeline, accesses, &push, out.numel())?;
    }
    emit(e, Function::Sum, &losses, None, &loss, [rows, 1], 1.0)
}

fn adamw_step(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = AdamwStepArgs::of(args)?;
    let mut tensors = Vec::new();
    for id in [call.param, call.m, call.v, call.grad] {
        tensors.push(e.tensor(id)?);
    }
    let fits = tensors
        .iter()
        .all(|tensor| tensor.numel() == tensors[0].numel() && tensor.element == Element::F32);
    if !fits {
        let shapes: Vec<_> = tensors.iter().map(|it| (it.element, &it.sizes)).collect();
        return Err(Error::Invalid(format!(
            "parameter, moments and gradient: expected F32 of the same size, found {shapes:?}"
        )));
    }
    let float = |id| Ok::<_, Error>(e.float(id)? as f32);
    let (rate, epsilon, decay) = (float(call.lr)?, float(call.eps)?, float(call.weight_decay)?);
    let (beta1, beta2) = (float(call.beta1)?, float(call.beta2)?);
    let correction1 = float(call.bias_correction1)?;
    let correction2 = float(call.bias_correction2)?;
    let numel = u32_of(tensors[0].numel())?;
    let push = AdamwPush { numel, rate, beta1, beta2, epsilon, decay, correction1, correction2 };
    let accesses =
        [write(tensors[0].id), write(tensors[1].id), write(tensors[2].id), read(tensors[3].id)];
    e.dispatch_by_four(&Adamw {}, accesses, &push, tensors[0].numel())?;
    // The outputs alias the modified tensors.
    for (out, tensor) in e.outs(args)?.into_iter().zip(tensors) {
        e.resize(out, &tensor.sizes)?;
        if out != tensor.id {
            e.alias(out, tensor.id)?;
        }
    }
    Ok(())
}
