//! Convolutions with bounds for what they give.

use super::Rule;
use super::builder::Builder;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;

pub(super) const RULES: &[(Operator, Rule)] = &[
    (Operator::CONVOLUTION, full),
    (Operator::CONV_WITH_CLAMP, full),
    (Operator::ET_VK_CONV_WITH_CLAMP, full),
    (Operator::ET_VK_CONV2D_GEMM, full),
    (Operator::ET_VK_CONV1D_PW, simple),
    (Operator::ET_VK_CONV1D_DW, simple),
];

/// Input, weight, bias, stride, padding, dilation, transposed, output padding, groups, perhaps a
/// lower and an upper bound.
fn full(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let mut inputs = alloc::vec::Vec::new();
    for place in 0..9 {
        inputs.push(b.arg(args, place)?);
    }
    clamped(b, args, &inputs, 9)
}

/// Input, weight, bias, stride, padding, dilation, groups, a lower and an upper bound.
fn simple(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let mut inputs = alloc::vec::Vec::new();
    for place in 0..6 {
        inputs.push(b.arg(args, place)?);
    }
    let rank = b.tensor(args, 1)?.1.rank();
    let (no, none) = (b.push(Value::Bool(false)), alloc::vec![0; rank.saturating_sub(2)]);
    inputs.extend([no, b.new_ints(&none), b.arg(args, 6)?]);
    clamped(b, args, &inputs, 7)
}

/// A convolution, and what it gives between the bounds that arguments are, if there are such.
fn clamped(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    inputs: &[ValueId],
    bounds: usize,
) -> Result<(), Error> {
    let out = b.out(args)?;
    let [low, high] = [b.optional_number(args, bounds)?, b.optional_number(args, bounds + 1)?];
    if low.is_none() && high.is_none() {
        b.call_into(Operator::CONVOLUTION, inputs, out);
        return Ok(());
    }
    let made = b.info(out)?;
    let sums = b.call(Operator::CONVOLUTION, inputs, made);
    let between = b.clamp(sums, low, high)?;
    b.finish_with(between, out)
}
