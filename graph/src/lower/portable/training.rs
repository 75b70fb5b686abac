//! Lowers training operators: gradients, losses, optimizer steps.

use super::Rule;
use super::builder::{Builder, Info, Size};
use super::quantized::weights;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    AdamwStepArgs, FusedCeArgs, LinearDWArgs, LinearQ4gswBackwardArgs, Operator, Q4gswRequantArgs,
    WeightPacking,
};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ET_VK_LINEAR_D_W, |b, args| {
        let call = LinearDWArgs::of(args)?;
        let (gradient, input) = (call.d_out, call.x);
        let (gradient, input) = (b.rows(gradient)?, b.rows(input)?);
        let gradient = b.permute(gradient, &[1, 0])?;
        let product = b.matmul(gradient, input)?;
        b.finish_with(product, b.out(args)?)
    }),
    (Operator::ET_VK_LINEAR_Q4GSW_BACKWARD, |b, args| {
        let call = LinearQ4gswBackwardArgs::of(args)?;
        let (gradient, info) = b.tensor(call.d_out)?;
        let (weight, packed) = b.tensor(call.weights)?;
        let k = packed.last().saturating_mul(2);
        let form = WeightPacking::LowNibbleFirst;
        let codes = weights::unpacked(b, weight, form, info.last(), k)?;
        let scales =
            weights::Scales { tensor: call.weight_scales, group: Some(b.int(call.group_size)?) };
        let weight = weights::dequantized(b, codes, &scales)?;
        let columns = b.permute(weight, &[1, 0])?;
        let gradient = b.cast(gradient, ScalarType::Float)?;
        let product = b.linear(gradient, columns, None)?;
        b.finish_with(product, b.out(args)?)
    }),
    (Operator::ET_VK_Q4GSW_REQUANT, |b, args| {
        let call = Q4gswRequantArgs::of(args)?;
        let (latent, info) = b.tensor(call.latent)?;
        let scales = weights::Scales { tensor: call.scales, group: Some(b.int(call.group_size)?) };
        let packed = weights::packed(b, latent, &info, &scales)?;
        b.finish_with(packed, b.out(args)?)
    }),
    (Operator::ET_VK_FUSED_CE, fused_ce),
    (Operator::ET_VK_ADAMW_STEP, adamw_step),
];

/// Cross entropy of logits and labels, and its gradient. Negative labels are ignored.
fn fused_ce(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = FusedCeArgs::of(args)?;
    let (logits, info) = b.tensor(call.logits)?;
    let labels = call.labels;
    let inverse = 1.0 / b.number(call.n_valid)?;
    let [loss, gradient] = b.outs(args)?[..] else {
        return Err(Error::invalid("expected two outputs, loss and gradient"));
    };
    let classes = info.last();
    let rows = b.rows(logits)?;
    let rows = b.cast(rows, ScalarType::Float)?;
    let any = b.new_int(-1);
    let bound = b.info(rows)?.size(0);
    let one = b.known(1);
    let labels = b.view(labels, &[Size { bound, value: any }, one])?;
    let labels = b.cast(labels, ScalarType::Long)?;
    let counts = b.compared(Operator::GE_SCALAR, labels, 0.0)?;
    let counts = b.cast(counts, ScalarType::Float)?;
    let counts = b.with_number(Operator::MUL_SCALAR, counts, inverse)?;
    let wanted = b.clamp(labels, Some(0.0), Some(classes.saturating_sub(1) as f64))?;

    let logarithms = b.softmax(Operator::LOG_SOFTMAX, rows)?;
    let (last, no) = (b.new_int(1), b.push(Value::Bool(false)));
    let made = b.info(logarithms)?.with_sizes(vec![bound, 1]);
    let chosen = b.call(Operator::GATHER, &[logarithms, last, wanted, no], made);
    let losses = b.binary(Operator::MUL_TENSOR, chosen, counts)?;
    let negative = b.unary(Operator::NEG, losses)?;
    let total = b.reduce(Operator::SUM_DIM_INT_LIST, negative, &[0, 1])?;
    let total = b.view_known(total, &[])?;
    b.finish_with(total, loss)?;

    let chances = b.softmax(Operator::SOFTMAX, rows)?;
    let (zero, end) = (b.new_int(0), b.new_int(classes as i64));
    let numbers = b.range(zero, end, classes)?;
    let is_wanted = b.comparison(Operator::EQ_TENSOR, wanted, numbers)?;
    let is_wanted = b.cast(is_wanted, ScalarType::Float)?;
    let rest = b.binary(Operator::SUB_TENSOR, chances, is_wanted)?;
    let rest = b.binary(Operator::MUL_TENSOR, rest, counts)?;
    let mut sizes = Vec::new();
    for dim in 0..info.rank() {
        sizes.push(b.size(logits, dim)?);
    }
    let rest = b.view(rest, &sizes)?;
    b.finish_with(rest, gradient)
}

/// An AdamW step, which overwrites parameters and moments.
fn adamw_step(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = AdamwStepArgs::of(args)?;
    let AdamwStepArgs { param: parameter, m: first, v: second, grad: gradient, .. } = call;
    let (rate, epsilon, decay) =
        (b.number(call.lr)?, b.number(call.eps)?, b.number(call.weight_decay)?);
    let (beta1, beta2) = (b.number(call.beta1)?, b.number(call.beta2)?);
    let correction1 = b.number(call.bias_correction1)?;
    let correction2 = b.number(call.bias_correction2)?;
    let mean = |b: &mut Builder<'_, '_>, old: ValueId, new: ValueId, beta: f64| {
        let old = b.with_number(Operator::MUL_SCALAR, old, beta)?;
        let new = b.with_number(Operator::MUL_SCALAR, new, 1.0 - beta)?;
        b.binary(Operator::ADD_TENSOR, old, new)
    };
    let new_first = mean(b, first, gradient, beta1)?;
    let square = b.binary(Operator::MUL_TENSOR, gradient, gradient)?;
    let new_second = mean(b, second, square, beta2)?;
    let decayed = b.with_number(Operator::MUL_SCALAR, parameter, 1.0 - rate * decay)?;
    let step = b.with_number(Operator::MUL_SCALAR, new_first, rate / correction1)?;
    let spread = b.with_number(Operator::DIV_SCALAR, new_second, correction2)?;
    let spread = b.unary(Operator::SQRT, spread)?;
    let spread = b.with_number(Operator::ADD_SCALAR, spread, epsilon)?;
    let step = b.binary(Operator::DIV_TENSOR, step, spread)?;
    let new_parameter = b.binary(Operator::SUB_TENSOR, decayed, step)?;
    let outs = b.outs(args)?;
    let news = [(parameter, new_parameter), (first, new_first), (second, new_second)];
    for (place, (old, new)) in news.into_iter().enumerate() {
        let no = b.push(Value::Bool(false));
        let made: Info = b.info(old)?;
        // The outputs may be the overwritten tensors.
        match outs.get(place).filter(|out| **out != old) {
            Some(out) => b.call_into(Operator::COPY_ATEN, &[old, new, no], *out),
            None => drop(b.call(Operator::COPY_ATEN, &[old, new, no], made)),
        }
    }
    Ok(())
}
