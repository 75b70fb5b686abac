//! Sums, products and functions, element by element.

use super::{Entry, Factor, Quantization, RANGE, new_constant};
use crate::error::Error;
use crate::graph::ValueId;
use crate::lower::portable::builder::Builder;
use crate::operators::Operator;
use crate::passes::quantized::requantized;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(super) const RULES: &[Entry] = &[
    (Operator::ET_VK_Q8TA_ADD, add, Operator::CORTEX_M_QUANTIZED_ADD),
    (Operator::Q8TA_MUL, multiply, Operator::CORTEX_M_QUANTIZED_MUL),
    (Operator::Q8TA_LOOKUP, look_up, Operator::CORTEX_M_QUANTIZED_ACTIVATION),
    (Operator::ET_VK_Q8TA_RELU, relu, Operator::CORTEX_M_QUANTIZED_ACTIVATION),
];

/// `(a, b, scale, zero, scale, zero, scale, zero, alpha)`, where `b` counts `alpha` times.
fn add(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    /// Bits that the kernel shifts both operands to the left by.
    const ROOM: i32 = 20;
    /// The most bits to the left that sums of both fit 32 bits with.
    const MAX_SHIFT: i32 = 3;
    let [first, second, to] = quantizations(b, args)?;
    let alpha = b.number(args, 8)?;
    let scale = second.scale * alpha.abs();
    let wide = 2.0 * first.scale.max(scale);
    let own = Factor::of(first.scale / wide)?;
    let other = Factor::of(scale / wide)?;
    let other = if alpha < 0.0 { other.negated() } else { other };
    let result = Factor::of(wide / (to.scale * f64::from(1 << ROOM)))?;
    if result.shift > MAX_SHIFT {
        return Err(Error::unsupported("a sum that is quantized far finer than its operands"));
    }
    let mut inputs = Vec::new();
    for (place, zero, factor) in [(0, first.zero, own), (1, second.zero, other)] {
        inputs.extend([b.arg(args, place)?, b.new_int(zero)]);
        inputs.extend([factor.fraction, factor.shift].map(|number| b.new_int(number.into())));
    }
    inputs.push(b.new_int(to.zero));
    inputs.extend([result.fraction, result.shift].map(|number| b.new_int(number.into())));
    inputs.extend(RANGE.map(|bound| b.new_int(bound)));
    b.call_into(Operator::CORTEX_M_QUANTIZED_ADD, &inputs, b.out(args)?);
    Ok(())
}

/// `(a, b, scale, zero, scale, zero, scale, zero)`
fn multiply(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    /// The most bits to the left that products of both fit 32 bits with.
    const MAX_SHIFT: i32 = 14;
    let [first, second, to] = quantizations(b, args)?;
    let factor = Factor::of(first.scale * second.scale / to.scale)?;
    if factor.shift > MAX_SHIFT {
        return Err(Error::unsupported("a product that is quantized far finer than its operands"));
    }
    let inputs = [
        b.arg(args, 0)?,
        b.new_int(first.zero),
        b.arg(args, 1)?,
        b.new_int(second.zero),
        b.new_int(to.zero),
        b.new_int(factor.fraction.into()),
        b.new_int(factor.shift.into()),
    ];
    b.call_into(Operator::CORTEX_M_QUANTIZED_MUL, &inputs, b.out(args)?);
    Ok(())
}

/// Those of two operands and the result.
fn quantizations(b: &Builder<'_, '_>, args: &[ValueId]) -> Result<[Quantization; 3], Error> {
    Ok([
        Quantization::of(b, args, [2, 3])?,
        Quantization::of(b, args, [4, 5])?,
        Quantization::of(b, args, [6, 7])?,
    ])
}

/// `(input, table)`
fn look_up(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let inputs = [b.arg(args, 0)?, b.arg(args, 1)?];
    b.call_into(Operator::CORTEX_M_QUANTIZED_ACTIVATION, &inputs, b.out(args)?);
    Ok(())
}

/// `(input, scale, zero, scale, zero)`
fn relu(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let from = Quantization::of(b, args, [1, 2])?;
    let to = Quantization::of(b, args, [3, 4])?;
    let table = requantized([from.scale, to.scale], [from.zero, to.zero], [0.0, f64::INFINITY]);
    let table = new_constant(b, ScalarType::Char, [table.len()].to_vec(), Cow::Owned(table));
    let inputs = [b.arg(args, 0)?, table];
    b.call_into(Operator::CORTEX_M_QUANTIZED_ACTIVATION, &inputs, b.out(args)?);
    Ok(())
}
