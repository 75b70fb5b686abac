//! Element-wise functions.

use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{
    AddArgs, AddcmulArgs, BinaryArgs, CeluArgs, ClampMaxArgs, LerpArgs, LerpScalarArgs,
    NanToNumArgs, Operator, PowArgs, PreluArgs, RreluArgs, SoftshrinkArgs, ThresholdArgs,
};
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ADDCDIV, |b, args| product_added(b, args, Operator::DIV_TENSOR)),
    (Operator::ADDCMUL, |b, args| product_added(b, args, Operator::MUL_TENSOR)),
    (Operator::CELU, |b, args| {
        let call = CeluArgs::of(args)?;
        let alpha = b.optional_number(call.alpha)?.unwrap_or(1.0);
        let (own, one, inverse) = (b.new_number(alpha), b.new_int(1), b.new_number(1.0 / alpha));
        b.call_into(Operator::ELU, &[call.input, own, one, inverse], call.out);
        Ok(())
    }),
    (Operator::CLAMP_MAX, |b, args| {
        let call = ClampMaxArgs::of(args)?;
        let none = b.none();
        b.call_into(Operator::CLAMP, &[call.input, none, call.max], call.out);
        Ok(())
    }),
    (Operator::FLOAT_POWER_SCALAR, |b, args| {
        let call = PowArgs::of(args)?;
        let input = b.cast(call.input, b.info(call.out)?.scalar_type)?;
        b.call_into(Operator::POW_TENSOR_SCALAR, &[input, call.exponent], call.out);
        Ok(())
    }),
    (Operator::FRAC, |b, args| {
        let (input, out) = b.ends(args)?;
        let whole = b.unary(Operator::TRUNC, input)?;
        let rest = b.binary(Operator::SUB_TENSOR, input, whole)?;
        b.finish_with(rest, out)
    }),
    (Operator::ISFINITE, |b, args| {
        // Only finite values have a difference of zero with themselves.
        let (input, out) = b.ends(args)?;
        if !b.info(input)?.scalar_type.is_floating() {
            let same = b.comparison(Operator::EQ_TENSOR, input, input)?;
            return b.finish_with(same, out);
        }
        let zero = b.binary(Operator::SUB_TENSOR, input, input)?;
        let is_zero = b.compared(Operator::EQ_SCALAR, zero, 0.0)?;
        b.finish_with(is_zero, out)
    }),
    (Operator::ISNEGINF, |b, args| is_value(b, args, f64::NEG_INFINITY)),
    (Operator::ISPOSINF, |b, args| is_value(b, args, f64::INFINITY)),
    (Operator::LERP_SCALAR, |b, args| {
        let call = LerpScalarArgs::of(args)?;
        let difference = b.binary(Operator::SUB_TENSOR, call.end, call.input)?;
        let info = b.info(difference)?;
        let part = b.call(Operator::MUL_SCALAR, &[difference, call.weight], info);
        let sum = b.binary(Operator::ADD_TENSOR, call.input, part)?;
        b.finish_with(sum, call.out)
    }),
    (Operator::LERP_TENSOR, |b, args| {
        let call = LerpArgs::of(args)?;
        let difference = b.binary(Operator::SUB_TENSOR, call.end, call.input)?;
        let part = b.binary(Operator::MUL_TENSOR, difference, call.weight)?;
        let sum = b.binary(Operator::ADD_TENSOR, call.input, part)?;
        b.finish_with(sum, call.out)
    }),
    (Operator::LOGADDEXP, |b, args| {
        // `max(a, b) + log1p(exp(-|a - b|))`
        let call = BinaryArgs::of(args)?;
        let max = b.binary(Operator::MAXIMUM, call.input, call.other)?;
        let difference = b.binary(Operator::SUB_TENSOR, call.input, call.other)?;
        let size = b.unary(Operator::ABS, difference)?;
        let negative = b.unary(Operator::NEG, size)?;
        let power = b.unary(Operator::EXP, negative)?;
        let rest = b.unary(Operator::LOG1P, power)?;
        let sum = b.binary(Operator::ADD_TENSOR, max, rest)?;
        // The difference of equal infinities is not a number.
        let is_same = b.comparison(Operator::EQ_TENSOR, call.input, call.other)?;
        let two = b.with_number(Operator::ADD_SCALAR, max, core::f64::consts::LN_2)?;
        b.call_into(Operator::WHERE_SELF, &[is_same, two, sum], call.out);
        Ok(())
    }),
    (Operator::LOG_SIGMOID, |b, args| {
        // `min(x, 0) - log1p(exp(-|x|))`
        let (input, out) = b.ends(args)?;
        let low = b.clamp(input, None, Some(0.0))?;
        let size = b.unary(Operator::ABS, input)?;
        let negative = b.unary(Operator::NEG, size)?;
        let power = b.unary(Operator::EXP, negative)?;
        let rest = b.unary(Operator::LOG1P, power)?;
        let difference = b.binary(Operator::SUB_TENSOR, low, rest)?;
        b.finish_with(difference, out)
    }),
    (Operator::NAN_TO_NUM, nan_to_num),
    (Operator::RRELU, |b, args| {
        let call = RreluArgs::of(args)?;
        if b.truth(call.training)? {
            return Err(Error::unsupported("rrelu of training; call `eval()` before the export"));
        }
        let lower = b.optional_number(call.lower)?.unwrap_or(0.125);
        let upper = b.optional_number(call.upper)?.unwrap_or(1.0 / 3.0);
        let slope = b.new_number((lower + upper) / 2.0);
        b.call_into(Operator::LEAKY_RELU, &[call.input, slope], call.out);
        Ok(())
    }),
    (Operator::RSUB_TENSOR, |b, args| {
        let call = AddArgs::of(args)?;
        let one = b.new_int(1);
        let inputs = [call.other, call.input, call.alpha.unwrap_or(one)];
        b.call_into(Operator::SUB_TENSOR, &inputs, call.out);
        Ok(())
    }),
    (Operator::SOFTSHRINK, |b, args| {
        // `x - clamp(x, -lambda, lambda)`
        let call = SoftshrinkArgs::of(args)?;
        let lambda = b.optional_number(call.lambd)?.unwrap_or(0.5);
        let middle = b.clamp(call.input, Some(-lambda), Some(lambda))?;
        let rest = b.binary(Operator::SUB_TENSOR, call.input, middle)?;
        b.finish_with(rest, call.out)
    }),
    (Operator::THRESHOLD, |b, args| {
        let call = ThresholdArgs::of(args)?;
        let threshold = b.number(call.threshold)?;
        let is_low = b.compared(Operator::LE_SCALAR, call.input, threshold)?;
        b.call_into(Operator::MASKED_FILL_SCALAR, &[call.input, is_low, call.value], call.out);
        Ok(())
    }),
    (Operator::MISH, |b, args| {
        // `x * tanh(softplus(x))`
        let (input, out) = b.ends(args)?;
        let (one, twenty) = (b.new_int(1), b.new_int(20));
        let info = b.info(input)?;
        let soft = b.call(Operator::SOFTPLUS, &[input, one, twenty], info);
        let factor = b.unary(Operator::TANH, soft)?;
        let product = b.binary(Operator::MUL_TENSOR, input, factor)?;
        b.finish_with(product, out)
    }),
    (Operator::PRELU, prelu),
    (Operator::SELU, |b, args| {
        let (input, out) = b.ends(args)?;
        let (alpha, scale) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
        let (alpha, scale, one) = (b.new_number(alpha), b.new_number(scale), b.new_int(1));
        b.call_into(Operator::ELU, &[input, alpha, scale, one], out);
        Ok(())
    }),
    (Operator::SQUARE, |b, args| {
        let (input, out) = b.ends(args)?;
        b.call_into(Operator::MUL_TENSOR, &[input, input], out);
        Ok(())
    }),
];

/// `x` where positive, else `weight * x`, with a weight for each channel.
fn prelu(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = PreluArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let mut weight = call.weight;
    let own = b.info(weight)?;
    if own.rank() <= 1 && own.size(0) != 1 && info.rank() > 2 {
        let mut sizes = alloc::vec![1; info.rank()];
        if let Some(slot) = sizes.get_mut(1) {
            *slot = own.size(0);
        }
        weight = b.view_known(weight, &sizes)?;
    }
    let negative = b.binary(Operator::MUL_TENSOR, input, weight)?;
    let is_positive = b.compared(Operator::GT_SCALAR, input, 0.0)?;
    b.call_into(Operator::WHERE_SELF, &[is_positive, input, negative], call.out);
    Ok(())
}

/// `x + value * (a ∘ b)`
fn product_added(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    operator: Operator,
) -> Result<(), Error> {
    let call = AddcmulArgs::of(args)?;
    let product = b.binary(operator, call.tensor1, call.tensor2)?;
    let one = b.new_int(1);
    let inputs = [call.input, product, call.value.unwrap_or(one)];
    b.call_into(Operator::ADD_TENSOR, &inputs, call.out);
    Ok(())
}

fn is_value(b: &mut Builder<'_, '_>, args: &[ValueId], value: f64) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let found = b.compared(Operator::EQ_SCALAR, input, value)?;
    b.finish_with(found, out)
}

fn nan_to_num(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = NanToNumArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    // By default, the largest finite value of the dtype replaces infinities.
    let most = match info.scalar_type {
        ScalarType::Half => 65504.0,
        ScalarType::BFloat16 => 3.389_531_389_251_535_5e38,
        ScalarType::Double => f64::MAX,
        ScalarType::Float => f64::from(f32::MAX),
        _ => return b.stand_in(input, call.out),
    };
    let nan = b.optional_number(call.nan)?.unwrap_or(0.0);
    let high = b.optional_number(call.posinf)?.unwrap_or(most);
    let low = b.optional_number(call.neginf)?.unwrap_or(-most);
    let is_nan = b.comparison(Operator::NE_TENSOR, input, input)?;
    let mut value = b.masked(input, is_nan, nan)?;
    for (infinity, number) in [(f64::INFINITY, high), (f64::NEG_INFINITY, low)] {
        let is_infinite = b.compared(Operator::EQ_SCALAR, input, infinity)?;
        value = b.masked(value, is_infinite, number)?;
    }
    b.finish_with(value, call.out)
}
