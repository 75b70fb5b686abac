//! Rare mathematical functions, each of which needs a separate dispatch.

use super::elementwise::{apply_binary, apply_unary_with, number, rounded};
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{BinaryArgs, Operator, RoundDecimalsArgs};
use torchlet_shaders::functions::{binary, special, unary as functions};
use torchlet_shaders::{Element, Special, SpecialPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SIGN, |e, args| unary(e, args, special::SIGN)),
    operator(Operator::EXPM1, |e, args| unary(e, args, special::EXPM1)),
    operator(Operator::LOG1P, |e, args| unary(e, args, special::LOG1P)),
    operator(Operator::EXP2, |e, args| unary(e, args, special::EXP2)),
    operator(Operator::LOG2, |e, args| unary(e, args, special::LOG2)),
    operator(Operator::ASIN, |e, args| unary(e, args, special::ASIN)),
    operator(Operator::ACOS, |e, args| unary(e, args, special::ACOS)),
    operator(Operator::ATAN, |e, args| unary(e, args, special::ATAN)),
    operator(Operator::SINH, |e, args| unary(e, args, special::SINH)),
    operator(Operator::COSH, |e, args| unary(e, args, special::COSH)),
    operator(Operator::ASINH, |e, args| unary(e, args, special::ASINH)),
    operator(Operator::ACOSH, |e, args| unary(e, args, special::ACOSH)),
    operator(Operator::ATANH, |e, args| unary(e, args, special::ATANH)),
    operator(Operator::ISNAN, |e, args| unary(e, args, special::ISNAN)),
    operator(Operator::ISINF, |e, args| unary(e, args, special::ISINF)),
    operator(Operator::TRUNC, |e, args| {
        // Floats cannot represent all integers.
        match e.tensor(e.ends(args)?.0)?.element.is_floating() {
            true => unary(e, args, special::TRUNC),
            false => Err(Error::unsupported("trunc of integers")),
        }
    }),
    operator(Operator::FMOD_TENSOR, |e, args| of_two(e, args, binary::FMOD)),
    operator(Operator::FMOD_SCALAR, |e, args| with_number(e, args, binary::FMOD)),
    operator(Operator::REMAINDER_TENSOR, |e, args| of_two(e, args, binary::REMAINDER)),
    operator(Operator::REMAINDER_SCALAR, |e, args| with_number(e, args, binary::REMAINDER)),
    operator(Operator::REMAINDER_SCALAR_TENSOR, |e, args| from_number(e, args, binary::REMAINDER)),
    operator(Operator::POW_SCALAR, |e, args| from_number(e, args, binary::POW)),
    operator(Operator::ATAN2, |e, args| of_two(e, args, binary::ATAN2)),
    operator(Operator::FMAX, |e, args| of_two(e, args, binary::FMAX)),
    operator(Operator::FMIN, |e, args| of_two(e, args, binary::FMIN)),
    operator(Operator::HYPOT, |e, args| of_two(e, args, binary::HYPOT)),
    operator(Operator::COPYSIGN, |e, args| of_two(e, args, binary::COPYSIGN)),
    operator(Operator::COPYSIGN_SCALAR, |e, args| with_number(e, args, binary::COPYSIGN)),
    operator(Operator::LSHIFT_TENSOR, |e, args| of_bits(e, args, binary::SHIFT_LEFT)),
    operator(Operator::RSHIFT_TENSOR, |e, args| of_bits(e, args, binary::SHIFT_RIGHT)),
    operator(Operator::BITWISE_LEFT_SHIFT_TENSOR, |e, args| of_bits(e, args, binary::SHIFT_LEFT)),
    operator(Operator::BITWISE_RIGHT_SHIFT_TENSOR, |e, args| of_bits(e, args, binary::SHIFT_RIGHT)),
    operator(Operator::BITWISE_LEFT_SHIFT_SCALAR_TENSOR, |e, args| {
        from_number(e, args, binary::SHIFT_LEFT)
    }),
    operator(Operator::BITWISE_RIGHT_SHIFT_SCALAR_TENSOR, |e, args| {
        from_number(e, args, binary::SHIFT_RIGHT)
    }),
    operator(Operator::BITWISE_AND_SCALAR_TENSOR, |e, args| {
        from_number(e, args, binary::BITWISE_AND)
    }),
    operator(Operator::BITWISE_OR_SCALAR_TENSOR, |e, args| {
        from_number(e, args, binary::BITWISE_OR)
    }),
    operator(Operator::BITWISE_XOR_SCALAR_TENSOR, |e, args| {
        from_number(e, args, binary::BITWISE_XOR)
    }),
    operator(Operator::LOGICAL_XOR, |e, args| of_two(e, args, binary::LOGICAL_XOR)),
    operator(Operator::ERFC, |e, args| unary(e, args, special::ERFC)),
    operator(Operator::ERFINV, |e, args| unary(e, args, special::ERFINV)),
    operator(Operator::LGAMMA, |e, args| unary(e, args, special::LGAMMA)),
    operator(Operator::DIGAMMA, |e, args| unary(e, args, special::DIGAMMA)),
    operator(Operator::SIGNBIT, |e, args| unary(e, args, special::SIGNBIT)),
    operator(Operator::ROUND_DECIMALS, round_to_decimals),
];

fn unary(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let input = e.tensor(e.ends(args)?.0)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    emit(e, function, &input, &out)
}

/// Emits a function of the shader for rare element-wise functions.
pub(super) fn emit(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    out: &Operand,
) -> Result<(), Error> {
    let pipeline = Special { function, input: input.element, output: out.element };
    let push = SpecialPush { numel: u32_of(out.numel())? };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, out.numel())
}

fn of_two(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let call = BinaryArgs::of(args)?;
    let (a, b) = (e.tensor(call.input)?, e.tensor(call.other)?);
    let out = e.out(args)?.id;
    apply_binary(e, function, [&a, &b], out, 1.0)
}

/// Encodes a bitwise function of integers.
fn of_bits(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    if e.out(args)?.element.is_floating() {
        return Err(Error::unsupported(format!(
            "a bitwise operator with an output of type {:?}",
            e.out(args)?.element
        )));
    }
    of_two(e, args, function)
}

/// Encodes rounding to a number of decimals, which may be negative.
fn round_to_decimals(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = RoundDecimalsArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let given = e.int(call.decimals)?;
    let decimals = i32::try_from(given).ok();
    let decimals = decimals.filter(|decimals| (-30..=30).contains(decimals));
    let decimals = decimals.ok_or_else(|| {
        Error::unsupported(format!("rounding to {given} decimals; expected -30 to 30"))
    })?;
    let out = e.out(args)?;
    let is_narrow = matches!(e.scalar_type(&out), Some(ScalarType::Half | ScalarType::BFloat16));
    if !out.element.is_floating() || (is_narrow && !e.is_narrowed()) {
        return Err(Error::unsupported(
            "rounding to decimals with an output of fp16, bfloat16 or integers",
        ));
    }
    let out = e.resize(out.id, &input.sizes)?;
    let function = match decimals {
        0 => functions::ROUND,
        1.. => functions::ROUND_PARTS,
        _ => functions::ROUND_MULTIPLES,
    };
    let power = 10.0_f64.powi(decimals.abs());
    apply_unary_with(e, function, &input, &out, [power, 0.0, 0.0, 0.0])
}

fn with_number(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let BinaryArgs { input: a, other: argument, .. } = BinaryArgs::of(args)?;
    let a = e.tensor(a)?;
    let value = rounded(e, a.id, e.float(argument)?)?;
    let out = e.out(args)?;
    // If an operation of integers and a scalar has a float result, the integers are converted
    // first.
    let beside = if out.element.is_floating() { &out } else { &a };
    let number = number(e, beside, argument, value)?;
    apply_binary(e, function, [&a, &number], out.id, 1.0)
}

/// Encodes a function of a scalar and each element of a tensor.
fn from_number(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let BinaryArgs { input: argument, other: elements, .. } = BinaryArgs::of(args)?;
    let elements = e.tensor(elements)?;
    let value = rounded(e, elements.id, e.float(argument)?)?;
    let out = e.out(args)?;
    let has_room = match out.element {
        Element::U8 => (0.0..=255.0).contains(&value),
        Element::I8 => (-128.0..=127.0).contains(&value),
        _ => true,
    };
    if !has_room {
        return Err(Error::unsupported(format!(
            "the scalar {value} for an output of type {:?}",
            out.element
        )));
    }
    let beside = if out.element.is_floating() { &out } else { &elements };
    let first = number(e, beside, argument, value)?;
    apply_binary(e, function, [&first, &elements], out.id, 1.0)
}
