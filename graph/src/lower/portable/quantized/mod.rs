//! Lowers operators on quantized tensors and weights to floating point.
//!
//! Inputs are dequantized first, and results are quantized last. The operators are defined this
//! way; integer arithmetic differs only in that it rounds less often.

pub(super) mod convert;
pub(super) mod convolution;
pub(super) mod elementwise;
pub(super) mod embedding;
pub(super) mod linear;
pub(super) mod parameters;
pub(super) mod weights;

use super::builder::Builder;
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::Operator;
use alloc::format;
use torchlet_core::ScalarType;

/// Reads scale and zero point.
fn pair(b: &Builder<'_, '_>, [scale, zero]: [ValueId; 2]) -> Result<[f64; 2], Error> {
    Ok([b.number(scale)?, b.number(zero)?])
}

/// Whether the activation is a relu.
///
/// # Errors
/// The activation is neither a relu nor absent.
pub(in crate::lower::portable) fn is_relu(
    b: &Builder<'_, '_>,
    activation: Option<ValueId>,
) -> Result<bool, Error> {
    match b.text(activation)?.as_deref() {
        None | Some("none" | "") => Ok(false),
        Some("relu") => Ok(true),
        Some(other) => {
            Err(Error::Unsupported(format!("activation '{other}'; expected 'relu' or 'none'")))
        }
    }
}

/// Lowest and highest value of a quantized type.
fn bounds(scalar_type: ScalarType) -> [i64; 2] {
    match scalar_type {
        ScalarType::Byte => [0, 255],
        ScalarType::Char => [-128, 127],
        ScalarType::Short => [-32768, 32767],
        _ => [i64::from(i32::MIN), i64::from(i32::MAX)],
    }
}

/// Quantizes a tensor.
fn quantize(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    [scale, zero]: [f64; 2],
    scalar_type: ScalarType,
) -> Result<ValueId, Error> {
    let made = b.info(value)?.with_type(scalar_type);
    let [low, high] = bounds(scalar_type);
    let (scale, zero) = (b.new_number(scale), b.new_number(zero));
    let (low, high) = (b.new_int(low), b.new_int(high));
    let number = b.new_int(scalar_type as i64);
    let inputs = [value, scale, zero, low, high, number];
    Ok(b.call(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, &inputs, made))
}

/// Dequantizes a tensor.
fn dequantize(
    b: &mut Builder<'_, '_>,
    codes: ValueId,
    [scale, zero]: [f64; 2],
) -> Result<ValueId, Error> {
    let info = b.info(codes)?;
    let [low, high] = bounds(info.scalar_type);
    let (scale, zero) = (b.new_number(scale), b.new_number(zero));
    let (low, high) = (b.new_int(low), b.new_int(high));
    let (number, none) = (b.new_int(info.scalar_type as i64), b.none());
    let inputs = [codes, scale, zero, low, high, number, none];
    let made = info.with_type(ScalarType::Float);
    Ok(b.call(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, &inputs, made))
}

/// Dequantizes an input. A floating-point input is quantized first.
fn through_codes(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    parameters: [f64; 2],
) -> Result<ValueId, Error> {
    let codes = if b.info(input)?.scalar_type.is_floating() {
        quantize(b, input, parameters, ScalarType::Char)?
    } else {
        input
    };
    dequantize(b, codes, parameters)
}

/// Produces the output from sums: applies the relu, and quantizes if parameters are given.
fn finish(
    b: &mut Builder<'_, '_>,
    sums: ValueId,
    relu: bool,
    parameters: Option<[f64; 2]>,
    out: ValueId,
) -> Result<(), Error> {
    let sums = if relu { b.unary(Operator::RELU, sums)? } else { sums };
    let made = b.info(out)?.scalar_type;
    if made.is_floating() == parameters.is_some() {
        let expected = if parameters.is_some() { "an integer dtype" } else { "a float dtype" };
        return Err(Error::Invalid(format!("output: expected {expected}, found {made}")));
    }
    let result = match parameters {
        Some(parameters) => quantize(b, sums, parameters, made)?,
        None => sums,
    };
    b.finish_with(result, out)
}
