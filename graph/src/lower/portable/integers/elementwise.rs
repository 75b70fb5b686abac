//! Lowers elementwise int8 operators.

use super::{Entry, Factor, Quantization, RANGE, new_constant};
use crate::error::Error;
use crate::graph::ValueId;
use crate::lower::portable::builder::Builder;
use crate::operators::{LookupArgs, Operator, Q8taAddArgs, Q8taMulArgs, Q8taReluArgs};
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

/// `a + alpha * b`: `(a, b, scale, zero, scale, zero, scale, zero, alpha)`.
fn add(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taAddArgs::of(args)?;
    /// Left shift that the kernel applies to both operands.
    const ROOM: i32 = 20;
    /// Maximum left shift of the sum that does not overflow 32 bits.
    const MAX_SHIFT: i32 = 3;
    let first = Quantization::of(b, [call.input_a_scale, call.input_a_zero_point])?;
    let second = Quantization::of(b, [call.input_b_scale, call.input_b_zero_point])?;
    let to = Quantization::of(b, [call.output_scale, call.output_zero_point])?;
    let alpha = b.number(call.alpha)?;
    let scale = second.scale * alpha.abs();
    let wide = 2.0 * first.scale.max(scale);
    let own = Factor::of(first.scale / wide)?;
    let other = Factor::of(scale / wide)?;
    let other = if alpha < 0.0 { other.negated() } else { other };
    let result = Factor::of(wide / (to.scale * f64::from(1 << ROOM)))?;
    if result.shift > MAX_SHIFT {
        return Err(Error::unsupported(
            "addition with an output scale far smaller than the input scales",
        ));
    }
    let mut inputs = Vec::new();
    for (input, zero, factor) in
        [(call.input_a, first.zero, own), (call.input_b, second.zero, other)]
    {
        inputs.extend([input, b.new_int(zero)]);
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
    let call = Q8taMulArgs::of(args)?;
    /// Maximum left shift of the product that does not overflow 32 bits.
    const MAX_SHIFT: i32 = 14;
    let first = Quantization::of(b, [call.a_scale, call.a_zero_point])?;
    let second = Quantization::of(b, [call.b_scale, call.b_zero_point])?;
    let to = Quantization::of(b, [call.output_scale, call.output_zero_point])?;
    let factor = Factor::of(first.scale * second.scale / to.scale)?;
    if factor.shift > MAX_SHIFT {
        return Err(Error::unsupported(
            "multiplication with an output scale far smaller than the input scales",
        ));
    }
    let inputs = [
        call.a,
        b.new_int(first.zero),
        call.b,
        b.new_int(second.zero),
        b.new_int(to.zero),
        b.new_int(factor.fraction.into()),
        b.new_int(factor.shift.into()),
    ];
    b.call_into(Operator::CORTEX_M_QUANTIZED_MUL, &inputs, b.out(args)?);
    Ok(())
}

/// `(input, table)`
fn look_up(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LookupArgs::of(args)?;
    let inputs = [call.input, call.lut];
    b.call_into(Operator::CORTEX_M_QUANTIZED_ACTIVATION, &inputs, b.out(args)?);
    Ok(())
}

/// `(input, scale, zero, scale, zero)`
fn relu(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taReluArgs::of(args)?;
    let from = Quantization::of(b, [call.input_scale, call.input_zero_point])?;
    let to = Quantization::of(b, [call.output_scale, call.output_zero_point])?;
    let table = requantized([from.scale, to.scale], [from.zero, to.zero], [0.0, f64::INFINITY]);
    let table = new_constant(b, ScalarType::Char, [table.len()].to_vec(), Cow::Owned(table));
    let inputs = [call.input, table];
    b.call_into(Operator::CORTEX_M_QUANTIZED_ACTIVATION, &inputs, b.out(args)?);
    Ok(())
}
