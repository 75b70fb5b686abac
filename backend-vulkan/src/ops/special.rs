//! Functions of numbers that few programs have: each a dispatch of its own.

use super::elementwise::{apply_binary, number, rounded};
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::functions::{binary, special};
use torchlet_shaders::{Special, SpecialPush};

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
        // Floating-point numbers have no room for all integers.
        match e.tensor(e.arg(args, 0)?)?.element.is_floating() {
            true => unary(e, args, special::TRUNC),
            false => Err(Error::unsupported("the whole part of integers")),
        }
    }),
    operator(Operator::FMOD_TENSOR, |e, args| of_two(e, args, binary::FMOD)),
    operator(Operator::FMOD_SCALAR, |e, args| with_number(e, args, binary::FMOD)),
    operator(Operator::REMAINDER_TENSOR, |e, args| of_two(e, args, binary::REMAINDER)),
    operator(Operator::REMAINDER_SCALAR, |e, args| with_number(e, args, binary::REMAINDER)),
    operator(Operator::POW_SCALAR, power_of_number),
    operator(Operator::ATAN2, |e, args| of_two(e, args, binary::ATAN2)),
];

fn unary(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    emit(e, function, &input, &out)
}

/// Emits a function of each element.
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
    let (a, b) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
    let out = e.out(args)?.id;
    apply_binary(e, function, [&a, &b], out, 1.0)
}

fn with_number(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let a = e.tensor(e.arg(args, 0)?)?;
    let argument = e.arg(args, 1)?;
    let value = rounded(e, a.id, e.float(argument)?)?;
    let out = e.out(args)?;
    // Where integers and a number make a fraction, they are fractions before.
    let beside = if out.element.is_floating() { &out } else { &a };
    let number = number(e, beside, argument, value)?;
    apply_binary(e, function, [&a, &number], out.id, 1.0)
}

/// A number to the power of each element.
fn power_of_number(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let argument = e.arg(args, 0)?;
    let exponents = e.tensor(e.arg(args, 1)?)?;
    let value = rounded(e, exponents.id, e.float(argument)?)?;
    let out = e.out(args)?;
    let beside = if out.element.is_floating() { &out } else { &exponents };
    let base = number(e, beside, argument, value)?;
    apply_binary(e, binary::POW, [&base, &exponents], out.id, 1.0)
}
