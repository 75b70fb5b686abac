//! Lowers linear layers with quantized weights.

use super::weights::{Scales, dequantized, unpacked};
use super::{finish, is_relu, pair, through_codes};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::lower::portable::Rule;
use crate::lower::portable::builder::Builder;
use crate::operators::{
    DynamicLinearArgs, LinearDq8caQ4gswArgs, LinearQ4gswArgs, LinearQ8cswArgs, LinearQ8taQ8cswArgs,
    LinearQcs4wArgs, Operator, Q8taLinearArgs, QuantizedLinear, WeightInt8packMmArgs,
};
use alloc::format;
use torchlet_core::ScalarType;

pub(in crate::lower::portable) const RULES: &[(Operator, Rule)] = &[
    (Operator::WEIGHT_INT8PACK_MM, |b, args| linear(b, WeightInt8packMmArgs::of(args)?)),
    (Operator::ET_VK_LINEAR_QCS4W, |b, args| linear(b, LinearQcs4wArgs::of(args)?)),
    (Operator::ET_VK_LINEAR_Q8CSW, |b, args| linear(b, LinearQ8cswArgs::of(args)?)),
    (Operator::ET_VK_LINEAR_Q4GSW, |b, args| linear(b, LinearQ4gswArgs::of(args)?)),
    (Operator::ET_VK_Q4GSW_LINEAR, |b, args| linear(b, LinearQ4gswArgs::of(args)?)),
    (Operator::ET_VK_LINEAR_DQ8CA_Q4GSW, |b, args| linear(b, LinearDq8caQ4gswArgs::of(args)?)),
    (Operator::ET_VK_LINEAR_Q8TA_Q8CSW, |b, args| linear(b, LinearQ8taQ8cswArgs::of(args)?)),
    (Operator::DYNAMIC_LINEAR, dynamic),
    (Operator::ET_VK_Q8TA_LINEAR, |b, args| linear(b, Q8taLinearArgs::of(args)?)),
    (Operator::ET_VK_Q8TA_LINEAR_GEMV, |b, args| linear(b, Q8taLinearArgs::of(args)?)),
];

fn linear(b: &mut Builder<'_, '_>, call: impl Into<QuantizedLinear>) -> Result<(), Error> {
    let call = call.into();
    let (input, info) = b.tensor(call.input)?;
    let (stored, weight) = b.tensor(call.weights)?;
    let (rows, columns) = (weight.size(0), info.last());
    if info.rank() == 0 || weight.rank() != 2 {
        return Err(Error::Invalid(format!(
            "input shape {:?} does not match weight shape {:?}",
            info.sizes, weight.sizes
        )));
    }
    let codes = unpacked(b, stored, call.packing, rows, columns)?;
    let group = call.group_size.map(|size| b.int(size)).transpose()?;
    let scales = Scales { tensor: call.weight_scales, group };
    let weight = dequantized(b, codes, &scales)?;
    let input = if let Some(parameters) = call.input_parameters {
        through_codes(b, input, pair(b, parameters)?)?
    } else if let Some([scale, zero]) = call.row_parameters {
        by_row(b, input, scale, zero)?
    } else {
        b.cast(input, ScalarType::Float)?
    };
    let bias = match b.optional(call.bias) {
        Some(bias) => Some(first(b, bias, rows)?),
        None => None,
    };
    let sums = b.linear(input, weight, bias)?;
    let relu = is_relu(b, call.activation)?;
    let output = call.output_parameters.map(|parameters| pair(b, parameters)).transpose()?;
    finish(b, sums, relu, output, call.out)
}

/// A dynamically quantized linear layer, with parameters per row.
fn dynamic(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = DynamicLinearArgs::of(args)?;
    let input = call.input;
    let (codes, weight) = b.tensor(call.weights)?;
    let (scales, by) = b.tensor(call.weight_scales)?;
    let (rows, columns, groups) = (weight.size(0), weight.last(), by.last());
    let lines = rows.checked_mul(groups);
    let size = columns.checked_div(groups).filter(|size| size * groups == columns);
    let (Some(lines), Some(size), 2, 2) = (lines, size, weight.rank(), by.rank()) else {
        return Err(Error::Invalid(format!(
            "weight shape {:?} does not match scale shape {:?}",
            weight.sizes, by.sizes
        )));
    };
    let input = rounded_rows(b, input)?;
    // One line per group.
    let (lines, size) = (b.known(lines), b.known(size));
    let codes = b.view(codes, &[lines, size])?;
    let scales = b.view(scales, &[lines])?;
    let (none, dim) = (b.none(), b.new_int(0));
    let (low, high) = (b.new_int(-128), b.new_int(127));
    let number = b.new_int(ScalarType::Char as i64);
    let numbers = b.info(codes)?.with_type(ScalarType::Float);
    let inputs = [codes, scales, none, dim, low, high, number, none];
    let dequantize = Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL;
    let numbers = b.call(dequantize, &inputs, numbers);
    let (rows, columns) = (b.known(rows), b.known(columns));
    let numbers = b.view(numbers, &[rows, columns])?;
    let bias = b.optional(call.bias);
    let (sums, out) = (b.linear(input, numbers, bias)?, b.out(args)?);
    finish(b, sums, false, None, out)
}

/// Quantizes and dequantizes each row of an input with its own parameters.
pub(in crate::lower::portable) fn rounded_rows(
    b: &mut Builder<'_, '_>,
    input: ValueId,
) -> Result<ValueId, Error> {
    let info = b.info(input)?;
    let mut sizes = info.sizes.clone();
    let last = sizes.last_mut().ok_or_else(|| {
        Error::invalid("per-row quantization: expected at least 1 dim, found a scalar")
    })?;
    *last = 1;
    let chosen = info.with_sizes(sizes);
    let scale = b.new_tensor(chosen.with_type(ScalarType::Float));
    let zero = b.new_tensor(chosen.with_type(ScalarType::Long));
    let list = b.push(Value::List([scale, zero].to_vec()));
    let number = b.new_int(ScalarType::Char as i64);
    let choose = Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC;
    b.call_into(choose, &[input, number], list);
    by_row(b, input, scale, zero)
}

/// The first `count` elements of a bias or of scales, as `f32`.
pub(super) fn first(
    b: &mut Builder<'_, '_>,
    bias: ValueId,
    count: usize,
) -> Result<ValueId, Error> {
    let info = b.info(bias)?;
    if info.rank() != 1 || info.size(0) < count {
        return Err(Error::Invalid(format!(
            "bias or scales: expected 1 dim of at least {count} values, found shape {:?}",
            info.sizes
        )));
    }
    let bias = b.slice_known(bias, 0, 0, count, 1)?;
    b.cast(bias, ScalarType::Float)
}

/// Quantizes and dequantizes rows with a scale and a zero point per row.
fn by_row(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    scale: ValueId,
    zero: ValueId,
) -> Result<ValueId, Error> {
    let info = b.info(input)?;
    // As a column that broadcasts over each row.
    let mut sizes = alloc::vec::Vec::new();
    for dim in 0..info.rank().saturating_sub(1) {
        sizes.push(b.size(input, dim)?);
    }
    sizes.push(b.known(1));
    let mut column = |tensor: ValueId| {
        let wide = b.view(tensor, &sizes)?;
        b.cast(wide, ScalarType::Float)
    };
    let (scale, zero) = (column(scale)?, column(zero)?);
    rounded(b, input, scale, zero)
}

/// Quantizes and dequantizes with scales and zero points that broadcast.
pub(super) fn rounded(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    scale: ValueId,
    zero: ValueId,
) -> Result<ValueId, Error> {
    let input = b.cast(input, ScalarType::Float)?;
    // Multiplies by the reciprocal, as `quantize` does.
    let inverse = b.unary(Operator::RECIPROCAL, scale)?;
    let scaled = b.binary(Operator::MUL_TENSOR, input, inverse)?;
    let rounded = b.unary(Operator::ROUND, scaled)?;
    let moved = b.binary(Operator::ADD_TENSOR, rounded, zero)?;
    let codes = b.clamp(moved, Some(-128.0), Some(127.0))?;
    let moved = b.binary(Operator::SUB_TENSOR, codes, zero)?;
    b.binary(Operator::MUL_TENSOR, moved, scale)
}
