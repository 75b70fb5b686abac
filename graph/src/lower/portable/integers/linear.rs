//! Lowers int8 linear layers and softmax.

use super::{
    Channels, Entry, Quantization, RANGE, constant, lowest, new_constant, new_integers, no_scratch,
};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::lower::portable::builder::{Builder, Size};
use crate::lower::portable::quantized::linear::rounded_rows;
use crate::operators::{
    DynamicLinearArgs, LinearInt8Args, Operator, Q8taLinearArgs, Q8taSoftmaxArgs,
};
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(super) const RULES: &[Entry] = &[
    (Operator::ET_VK_Q8TA_LINEAR, linear, Operator::CORTEX_M_QUANTIZED_CONV2D_NHWC),
    (Operator::DYNAMIC_LINEAR, dynamic_linear, Operator::QUANTIZED_DECOMPOSED_MIXED_LINEAR),
    (Operator::LINEAR_INT8, linear_int8, Operator::QUANTIZED_DECOMPOSED_MIXED_LINEAR),
    (Operator::Q8TA_SOFTMAX, softmax, Operator::CORTEX_M_SOFTMAX),
];

/// A linear layer: `(input, input_scale, input_zero, weight, weight_sums, weight_scales,
/// output_scale, output_zero, bias, activation)`.
fn linear(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taLinearArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let (weight, weights) = b.tensor(call.weights)?;
    let out = b.out(args)?;
    let (count, depth) = (weights.size(0), info.last());
    if info.rank() == 0 || weights.sizes != [count, depth] || info.scalar_type != ScalarType::Char {
        return Err(Error::Unsupported(format!(
            "linear layer with input {} {:?} and weights of shape {:?}; expected int8 and matching \
             columns",
            info.scalar_type, info.sizes, weights.sizes
        )));
    }
    constant(b, weight)?;
    let parameters =
        [[call.input_scale, call.input_zero_point], [call.output_scale, call.output_zero_point]];
    let bias = call.bias.unwrap_or_else(|| b.none());
    let columns = [call.weight_scales, bias];
    let (channels, [from, to]) = Channels::of(b, parameters, columns, count, depth)?;
    let low = lowest(b, call.activation, to)?;
    let [_, high] = RANGE;
    let first = channels.factors.first().copied();
    if let Some(factor) = first.filter(|first| channels.factors.iter().all(|own| own == first)) {
        let (bias, none) = (channels.bias(b), b.none());
        let inputs = [
            input,
            weight,
            bias,
            none,
            b.new_int(-from.zero),
            b.new_int(0),
            b.new_int(to.zero),
            b.new_ints(&[factor.fraction.into()]),
            b.new_ints(&[factor.shift.into()]),
            b.new_int(high),
            b.new_int(low),
        ];
        b.call_into(Operator::CORTEX_M_QUANTIZED_LINEAR, &inputs, out);
        return Ok(());
    }
    // That kernel supports only one scale for all channels. A 1x1 convolution with rows as pixels
    // supports one per channel.
    let data = match b.value(weight)? {
        Value::Tensor(tensor) => tensor.data.clone(),
        _ => None,
    };
    let data = data.unwrap_or(Cow::Borrowed(&[]));
    let weight = new_constant(b, ScalarType::Char, [count, 1, 1, depth].to_vec(), data);
    let rows =
        info.sizes.iter().rev().skip(1).try_fold(1usize, |rows, size| rows.checked_mul(*size));
    let rows =
        rows.ok_or_else(|| Error::Invalid(format!("input shape {:?} overflows", info.sizes)))?;
    let any = b.new_int(-1);
    let (one, width) = (b.known(1), b.known(depth));
    let pixels = b.view(input, &[one, Size { bound: rows, value: any }, one, width])?;
    let inputs = [
        pixels,
        weight,
        channels.bias(b),
        b.new_ints(&[1, 1]),
        b.new_ints(&[0, 0]),
        b.new_ints(&[1, 1]),
        b.new_int(-from.zero),
        b.new_int(to.zero),
        new_integers(b, &channels.fractions()),
        new_integers(b, &channels.shifts()),
        b.new_int(low),
        b.new_int(high),
        no_scratch(b),
    ];
    let made = info.with_sizes([1, rows, 1, count].to_vec());
    let made = b.call(Operator::CORTEX_M_QUANTIZED_CONV2D_NHWC, &inputs, made);
    let mut sizes = Vec::new();
    for dim in 0..info.rank() - 1 {
        sizes.push(b.size(input, dim)?);
    }
    sizes.push(b.known(count));
    let made = b.view(made, &sizes)?;
    b.finish_with(made, out)
}

/// A dynamically quantized linear layer. Sums are floating-point, the weights stay quantized.
fn dynamic_linear(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = DynamicLinearArgs::of(args)?;
    let rounded = rounded_rows(b, call.input)?;
    mixed_linear(b, call.input, rounded, [call.weights, call.weight_scales], call.bias, call.out)
}

/// A linear layer of floating-point values whose weights stay quantized.
fn linear_int8(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LinearInt8Args::of(args)?;
    let weights = [call.weights, call.weight_scales];
    mixed_linear(b, call.input, call.input, weights, call.bias, call.out)
}

/// Multiplies `values`, of the shape of `input`, by int8 weights with scales.
fn mixed_linear(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    values: ValueId,
    [weight, scales]: [ValueId; 2],
    bias: ValueId,
    out: ValueId,
) -> Result<(), Error> {
    let (info, weights) = (b.info(input)?, b.info(weight)?);
    if info.rank() == 0 || weights.rank() != 2 || weights.scalar_type != ScalarType::Char {
        return Err(Error::Unsupported(format!(
            "linear layer with input shape {:?} and weight {} {:?}; expected int8 weights of 2 \
             dims",
            info.sizes, weights.scalar_type, weights.sizes
        )));
    }
    let rows = b.rows(values)?;
    let (none, count) = (b.none(), weights.size(0));
    let made = b.info(rows)?;
    let made = made.with_sizes([made.size(0), count].to_vec());
    let mixed = Operator::QUANTIZED_DECOMPOSED_MIXED_LINEAR;
    let mut sums = b.call(mixed, &[rows, weight, scales, none, none], made);
    if let Some(bias) = b.optional(bias) {
        sums = b.binary(Operator::ADD_TENSOR, sums, bias)?;
    }
    let mut sizes = Vec::new();
    for dim in 0..info.rank() - 1 {
        sizes.push(b.size(input, dim)?);
    }
    sizes.push(b.known(count));
    let sums = b.view(sums, &sizes)?;
    b.finish_with(sums, out)
}

/// A softmax: `(input, scale, zero, dim)`. The kernel supports only the last dim, so others are
/// permuted.
fn softmax(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taSoftmaxArgs::of(args)?;
    /// Integer bits of the fixed-point differences of the input.
    const INTEGER_BITS: i32 = 5;
    let (input, info) = b.tensor(call.input)?;
    let from = Quantization::of(b, [call.input_scale, call.input_zero_point])?;
    let dim = info.dim(b.int(call.dim)?)?;
    let out = b.out(args)?;
    let factor = (from.scale * f64::from(1 << (31 - INTEGER_BITS))).min(f64::from(i32::MAX));
    let factor = super::Factor::of(factor)?;
    if factor.shift < 0 {
        return Err(Error::unsupported(
            "a softmax whose input scale rounds to zero in fixed point",
        ));
    }
    // The exponentials of smaller differences are zero.
    let most = i64::from((1 << INTEGER_BITS) - 1) << (31 - INTEGER_BITS);
    let least = -(most >> factor.shift);
    let mut order: Vec<usize> = (0..info.rank()).filter(|other| *other != dim).collect();
    order.push(dim);
    let is_last = dim + 1 == info.rank();
    let rows = if is_last { input } else { b.permute(input, &order)? };
    let last = b.new_int(-1);
    let [low, _] = RANGE;
    let inputs = [
        rows,
        last,
        b.new_int(from.zero),
        b.new_int(low),
        b.new_int(factor.fraction.into()),
        b.new_int(factor.shift.into()),
        b.new_int(least),
    ];
    let made = b.info(rows)?;
    let made = b.call(Operator::CORTEX_M_SOFTMAX, &inputs, made);
    let made = if is_last {
        made
    } else {
        let back: Vec<usize> =
            (0..order.len()).filter_map(|dim| order.iter().position(|own| *own == dim)).collect();
        b.permute(made, &back)?
    };
    b.finish_with(made, out)
}
