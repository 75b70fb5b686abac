//! Lowers convolutions with clamped outputs.

use super::Rule;
use super::builder::Builder;
use super::results::inputs;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{Conv1dArgs, ConvolutionArgs, ConvolutionWithClampArgs, Operator};

pub(super) const RULES: &[(Operator, Rule)] = &[
    (Operator::CONVOLUTION, plain),
    (Operator::CONV_WITH_CLAMP, full),
    (Operator::ET_VK_CONV_WITH_CLAMP, full),
    (Operator::ET_VK_CONV2D_GEMM, full),
    (Operator::ET_VK_CONV1D_PW, simple),
    (Operator::ET_VK_CONV1D_DW, simple),
];

/// A convolution with the arguments of [`ConvolutionArgs`].
pub(super) fn plain(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = ConvolutionArgs::of(args)?;
    b.call_into(Operator::CONVOLUTION, inputs(args), call.out);
    Ok(())
}

/// The same, followed by the limits.
fn full(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = ConvolutionWithClampArgs::of(args)?;
    let (shared, _) = inputs(args).split_at_checked(ConvolutionArgs::COUNT).unwrap_or_default();
    clamped(b, shared, [call.output_min, call.output_max], call.out)
}

/// A 1-D convolution that is not transposed.
fn simple(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Conv1dArgs::of(args)?;
    let rank = b.info(call.weight)?.rank();
    let (no, none) = (b.push(Value::Bool(false)), alloc::vec![0; rank.saturating_sub(2)]);
    let Conv1dArgs { input, weight, bias, stride, padding, dilation, groups, .. } = call;
    let none = b.new_ints(&none);
    let shared = [input, weight, bias, stride, padding, dilation, no, none, groups];
    clamped(b, &shared, [call.output_min, call.output_max], call.out)
}

/// A convolution with these arguments, clamped to the limits if they are present.
fn clamped(
    b: &mut Builder<'_, '_>,
    inputs: &[ValueId],
    [low, high]: [ValueId; 2],
    out: ValueId,
) -> Result<(), Error> {
    let [low, high] = [b.optional_number(low)?, b.optional_number(high)?];
    if low.is_none() && high.is_none() {
        b.call_into(Operator::CONVOLUTION, inputs, out);
        return Ok(());
    }
    let made = b.info(out)?;
    let sums = b.call(Operator::CONVOLUTION, inputs, made);
    let between = b.clamp(sums, low, high)?;
    b.finish_with(between, out)
}
