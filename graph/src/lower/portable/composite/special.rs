//! Special functions, and comparisons of floats.

use super::fourier::is_complex;
use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{
    BinaryArgs, FloatPowerArgs, HeavisideArgs, IscloseArgs, IsinArgs, MvlgammaArgs, Operator,
};
use alloc::format;
use core::f64::consts::{FRAC_1_SQRT_2, PI};

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::DEG2RAD, |b, args| scaled(b, args, PI / 180.0)),
    (Operator::FLOAT_POWER_TENSOR, |b, args| {
        let call = FloatPowerArgs::of(args)?;
        let made = b.info(call.out)?.scalar_type;
        let (base, exponent) = (b.cast(call.input, made)?, b.cast(call.exponent, made)?);
        b.call_into(Operator::POW_TENSOR_TENSOR, &[base, exponent], call.out);
        Ok(())
    }),
    (Operator::HEAVISIDE, |b, args| {
        let call = HeavisideArgs::of(args)?;
        let is_positive = b.compared(Operator::GT_SCALAR, call.input, 0.0)?;
        let step = b.cast(is_positive, b.info(call.out)?.scalar_type)?;
        // A NaN has the step 0, as in PyTorch.
        let is_zero = b.compared(Operator::EQ_SCALAR, call.input, 0.0)?;
        b.call_into(Operator::WHERE_SELF, &[is_zero, call.values, step], call.out);
        Ok(())
    }),
    (Operator::ISCLOSE, isclose),
    (Operator::ISIN, isin),
    (Operator::LOGADDEXP2, |b, args| {
        // `max(a, b) + log2(1 + 2^-|a - b|)`
        let call = BinaryArgs::of(args)?;
        let max = b.binary(Operator::MAXIMUM, call.input, call.other)?;
        let difference = b.binary(Operator::SUB_TENSOR, call.input, call.other)?;
        let size = b.unary(Operator::ABS, difference)?;
        let negative = b.unary(Operator::NEG, size)?;
        let power = b.unary(Operator::EXP2, negative)?;
        let rest = b.unary(Operator::LOG1P, power)?;
        let rest = b.with_number(Operator::MUL_SCALAR, rest, core::f64::consts::LOG2_E)?;
        let sum = b.binary(Operator::ADD_TENSOR, max, rest)?;
        // The difference of equal infinities is not a number.
        let is_same = b.comparison(Operator::EQ_TENSOR, call.input, call.other)?;
        let two = b.with_number(Operator::ADD_SCALAR, max, 1.0)?;
        b.call_into(Operator::WHERE_SELF, &[is_same, two, sum], call.out);
        Ok(())
    }),
    (Operator::MVLGAMMA, mvlgamma),
    (Operator::RAD2DEG, |b, args| scaled(b, args, 180.0 / PI)),
    (Operator::SGN, |b, args| {
        let (input, out) = b.ends(args)?;
        let own = b.info(input)?.scalar_type;
        if is_complex(own) {
            return Err(Error::Unsupported(format!("sgn of {own}")));
        }
        b.call_into(Operator::SIGN, &[input], out);
        Ok(())
    }),
    (Operator::SINC, |b, args| {
        // `sin(πx) / πx`, 1 at zero
        let (input, out) = b.ends(args)?;
        let input = b.cast(input, b.info(out)?.scalar_type)?;
        let angle = b.with_number(Operator::MUL_SCALAR, input, PI)?;
        let sine = b.unary(Operator::SIN, angle)?;
        let quotient = b.binary(Operator::DIV_TENSOR, sine, angle)?;
        let is_zero = b.compared(Operator::EQ_SCALAR, input, 0.0)?;
        let value = b.masked(quotient, is_zero, 1.0)?;
        b.finish_with(value, out)
    }),
    (Operator::SPECIAL_ENTR, |b, args| {
        // `-x * log(x)`, minus infinity below zero
        let (input, out) = b.ends(args)?;
        let input = b.cast(input, b.info(out)?.scalar_type)?;
        let log = b.unary(Operator::LOG, input)?;
        let negative = b.unary(Operator::NEG, input)?;
        let product = b.binary(Operator::MUL_TENSOR, negative, log)?;
        let is_zero = b.compared(Operator::EQ_SCALAR, input, 0.0)?;
        let value = b.masked(product, is_zero, 0.0)?;
        let is_negative = b.compared(Operator::LT_SCALAR, input, 0.0)?;
        let value = b.masked(value, is_negative, f64::NEG_INFINITY)?;
        b.finish_with(value, out)
    }),
    (Operator::SPECIAL_LOG_NDTR, log_ndtr),
    (Operator::SPECIAL_NDTR, |b, args| {
        // `erfc(-x / √2) / 2`
        let (input, out) = b.ends(args)?;
        let input = b.cast(input, b.info(out)?.scalar_type)?;
        let scaled = b.with_number(Operator::MUL_SCALAR, input, -FRAC_1_SQRT_2)?;
        let value = b.unary(Operator::ERFC, scaled)?;
        let value = b.with_number(Operator::MUL_SCALAR, value, 0.5)?;
        b.finish_with(value, out)
    }),
    (Operator::SPECIAL_XLOG1PY, |b, args| times_log(b, args, Operator::LOG1P)),
    (Operator::XLOGY, |b, args| times_log(b, args, Operator::LOG)),
];

fn scaled(b: &mut Builder<'_, '_>, args: &[ValueId], factor: f64) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let input = b.cast(input, b.info(out)?.scalar_type)?;
    let value = b.with_number(Operator::MUL_SCALAR, input, factor)?;
    b.finish_with(value, out)
}

/// `x * log(y)`; 0 where `x` is 0 and `y` is not NaN.
fn times_log(b: &mut Builder<'_, '_>, args: &[ValueId], log: Operator) -> Result<(), Error> {
    let call = BinaryArgs::of(args)?;
    let made = b.info(call.out)?.scalar_type;
    let (input, other) = (b.cast(call.input, made)?, b.cast(call.other, made)?);
    let log = b.unary(log, other)?;
    let product = b.binary(Operator::MUL_TENSOR, input, log)?;
    let is_zero = b.compared(Operator::EQ_SCALAR, input, 0.0)?;
    let is_number = b.comparison(Operator::EQ_TENSOR, other, other)?;
    let skips = b.comparison(Operator::LOGICAL_AND, is_zero, is_number)?;
    let value = b.masked(product, skips, 0.0)?;
    b.finish_with(value, call.out)
}

/// `|a - b| <= atol + |rtol * b|` for finite differences, else `a == b`.
fn isclose(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = IscloseArgs::of(args)?;
    b.refuse_complex(call.input, "isclose")?;
    b.refuse_complex(call.other, "isclose")?;
    let rtol = b.optional_number(call.rtol)?.unwrap_or(1e-5);
    let atol = b.optional_number(call.atol)?.unwrap_or(1e-8);
    let mut close = b.comparison(Operator::EQ_TENSOR, call.input, call.other)?;
    if b.truth(call.equal_nan)? {
        let one = b.comparison(Operator::NE_TENSOR, call.input, call.input)?;
        let other = b.comparison(Operator::NE_TENSOR, call.other, call.other)?;
        let both = b.comparison(Operator::LOGICAL_AND, one, other)?;
        close = b.comparison(Operator::LOGICAL_OR, close, both)?;
    }
    if rtol != 0.0 || atol != 0.0 {
        let own = b.info(call.other)?.scalar_type;
        let float = if own.is_floating() { own } else { torchlet_core::ScalarType::Float };
        let (one, other) = (b.cast(call.input, float)?, b.cast(call.other, float)?);
        let difference = b.binary(Operator::SUB_TENSOR, one, other)?;
        let difference = b.unary(Operator::ABS, difference)?;
        let allowed = b.with_number(Operator::MUL_SCALAR, other, rtol)?;
        let allowed = b.unary(Operator::ABS, allowed)?;
        let allowed = b.with_number(Operator::ADD_SCALAR, allowed, atol)?;
        let is_near = b.comparison(Operator::LE_TENSOR, difference, allowed)?;
        let is_finite = b.compared(Operator::LT_SCALAR, difference, f64::INFINITY)?;
        let is_near = b.comparison(Operator::LOGICAL_AND, is_near, is_finite)?;
        close = b.comparison(Operator::LOGICAL_OR, close, is_near)?;
    }
    b.finish_with(close, call.out)
}

/// Compares each element with all test elements.
fn isin(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = IsinArgs::of(args)?;
    let rank = b.info(call.elements)?.rank();
    let column = b.unsqueeze(call.elements, rank)?;
    let tests = b.flat(call.test_elements)?;
    let is_same = b.comparison(Operator::EQ_TENSOR, column, tests)?;
    let made = b.info(call.out)?;
    let (last, no) = (b.new_int(-1), b.push(crate::graph::Value::Bool(false)));
    let found = b.call(Operator::ANY_DIM, &[is_same, last, no], made);
    let found = if b.truth(call.invert)? { b.unary(Operator::LOGICAL_NOT, found)? } else { found };
    b.finish_with(found, call.out)
}

/// `p (p - 1) / 4 * log(π)`, plus the sum of `lgamma(x - i / 2)` over `i` below `p`
fn mvlgamma(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    const MAX_P: i64 = 64;
    let call = MvlgammaArgs::of(args)?;
    let p = b.int(call.p)?;
    if !(1..=MAX_P).contains(&p) {
        return Err(Error::Unsupported(format!("mvlgamma with p = {p}; from 1 to {MAX_P}")));
    }
    let input = b.cast(call.input, b.info(call.out)?.scalar_type)?;
    let mut sum = b.unary(Operator::LGAMMA, input)?;
    for i in 1..p {
        let moved = b.with_number(Operator::SUB_SCALAR, input, i as f64 / 2.0)?;
        let part = b.unary(Operator::LGAMMA, moved)?;
        sum = b.binary(Operator::ADD_TENSOR, sum, part)?;
    }
    // The logarithm of π.
    let constant = (p * (p - 1)) as f64 / 4.0 * 1.144_729_885_849_400_2;
    let value = b.with_number(Operator::ADD_SCALAR, sum, constant)?;
    b.finish_with(value, call.out)
}

/// `log(erfcx(-t) / 2) - t²` below -1, else `log1p(-erfc(t) / 2)`, with `t = x / √2`
fn log_ndtr(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let input = b.cast(input, b.info(out)?.scalar_type)?;
    let t = b.with_number(Operator::MUL_SCALAR, input, FRAC_1_SQRT_2)?;
    let negative = b.unary(Operator::NEG, t)?;
    let low = b.unary(Operator::SPECIAL_ERFCX, negative)?;
    let low = b.with_number(Operator::MUL_SCALAR, low, 0.5)?;
    let low = b.unary(Operator::LOG, low)?;
    let square = b.binary(Operator::MUL_TENSOR, t, t)?;
    let low = b.binary(Operator::SUB_TENSOR, low, square)?;
    let high = b.unary(Operator::ERFC, t)?;
    let high = b.with_number(Operator::MUL_SCALAR, high, -0.5)?;
    let high = b.unary(Operator::LOG1P, high)?;
    let is_low = b.compared(Operator::LT_SCALAR, input, -1.0)?;
    b.call_into(Operator::WHERE_SELF, &[is_low, low, high], out);
    Ok(())
}
