//! Integer arithmetic between rescalings, in floating point.
//!
//! A quantized sum, softmax or matrix multiplication of activations is a chain of `int32` calls: it
//! begins with rescaled or multiplied int8 tensors and ends with a rescaling to int8. The same
//! calls on dequantized tensors need no integer kernels. They differ from the integers by rounding:
//! of the rescalings, which yield integers, and of `f32` beyond 24 bits. A chain is replaced only
//! if a bound of that difference is a small fraction of a step of the result.

use super::layers::{double, int, is_int8, operand};
use super::{Rescale, Takes, constant_tensor};
use crate::graph::{Tensor, Value, ValueId};
use crate::operators::{Operator, TosaMatmulArgs};
use crate::passes::constant::{decode, encode};
use crate::passes::rewrite::Rewriter;
use crate::passes::uses::inputs;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// A floating-point tensor with the values of an `int32` tensor.
#[derive(Clone, Copy)]
pub(super) struct Float {
    value: ValueId,
    /// Bound of the absolute values.
    most: f64,
    /// Bound of the difference from the integers.
    error: f64,
}

/// Floating-point tensors by `int32` tensor.
pub(super) type Floats = BTreeMap<ValueId, Float>;

/// Limit on the calls from a rescaling back to int8 tensors.
const MAX_DEPTH: usize = 32;
/// Limit on the elements of an `int32` constant.
const MAX_CONSTANT: usize = 1 << 16;
/// Maximum difference of a result before it is rounded, in steps.
const MAX_ERROR: f64 = 1.0 / 16.0;
/// Values up to this are integers in `f32`.
const EXACT: f64 = (1 << 24) as f64;
/// Relative rounding error of `f32`.
const UNIT: f64 = 1.0 / EXACT;
/// Maximum rounding of a rescaling, in integers. Double rounding adds at most a quarter.
const ROUNDING: f64 = 0.75;

/// Bound of the rounding of an int8 tensor's rescaling by this factor.
pub(super) fn rounding(factor: f64) -> f64 {
    let is_integer = (factor as i64) as f64 == factor;
    if is_integer { 0.0 } else { ROUNDING }
}

/// Bound of the absolute values of an int8 tensor minus its zero point.
pub(super) fn magnitude(zero: i64) -> f64 {
    128.0 + zero.unsigned_abs() as f64
}

/// Whether a difference of this many integers hardly changes results that are rescaled by this
/// factor.
pub(super) fn is_small(error: f64, factor: f64) -> bool {
    error * factor <= MAX_ERROR
}

/// Replaces a rescaling from `int32` to int8 and the calls before it.
pub(super) fn island(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    out: ValueId,
    floats: &mut Floats,
    takes: Takes<'_>,
) -> Option<()> {
    let factors = rescale.factors();
    let fits = |factor: &f64| (*factor as f32).is_normal() && *factor > 0.0;
    let is_plain = rescale.input_zp == 0 && rescale.is_signed() && is_int8(rescale.output_zp);
    if !is_plain || !factors.iter().all(fits) {
        return None;
    }
    let Float { mut value, error, .. } = float_of(rewriter, rescale.input, floats, takes, 0)?;
    let largest = factors.iter().copied().fold(0.0, f64::max);
    if !is_small(error, largest) {
        return None;
    }
    let scale = match factors[..] {
        [factor] => 1.0 / factor,
        _ => {
            // Factors of the last dim.
            let data = encode(ScalarType::Float, &factors)?;
            let factors = constant_tensor(ScalarType::Float, data);
            let args = [value, rewriter.value(Value::Tensor(factors))];
            value = float_call(rewriter, Operator::MUL_TENSOR, &args, rescale.input, takes)?;
            1.0
        }
    };
    quantized(rewriter, value, scale, rescale.output_zp, out, takes)
}

/// Adds a quantization to int8.
pub(super) fn quantized(
    rewriter: &mut Rewriter<'_, '_>,
    value: ValueId,
    scale: f64,
    zero: i64,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let mut args = [value].to_vec();
    args.extend(codes(rewriter, scale, zero));
    rewriter.call_if_taken(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, &args, out, takes)
}

/// Scale, zero point, lowest and highest value, and dtype of int8 values.
fn codes(rewriter: &mut Rewriter<'_, '_>, scale: f64, zero: i64) -> [ValueId; 5] {
    let scale = double(rewriter, scale);
    let [zero, low, high, dtype] =
        [zero, -128, 127, ScalarType::Char as i64].map(|value| int(rewriter, value));
    [scale, zero, low, high, dtype]
}

/// A call whose result has the shape of `like`.
fn float_call(
    rewriter: &mut Rewriter<'_, '_>,
    operator: Operator,
    args: &[ValueId],
    like: ValueId,
    takes: Takes<'_>,
) -> Option<ValueId> {
    let sizes = rewriter.sizes(like)?.to_vec();
    let made = rewriter.new_tensor(ScalarType::Float, sizes);
    rewriter.call_if_taken(operator, args, made, takes)?;
    Some(made)
}

/// Adds a dequantization of an int8 tensor.
pub(super) fn dequantized(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    scale: f64,
    zero: i64,
    takes: Takes<'_>,
) -> Option<ValueId> {
    let mut args = [input].to_vec();
    args.extend(codes(rewriter, scale, zero));
    args.push(rewriter.value(Value::None));
    let operator = Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR;
    float_call(rewriter, operator, &args, input, takes)
}

/// The values of an `int32` tensor in floating point. `None` also if they may exceed `int32`.
fn float_of(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    floats: &mut Floats,
    takes: Takes<'_>,
    depth: usize,
) -> Option<Float> {
    if let Some(known) = floats.get(&id) {
        return Some(*known);
    }
    if rewriter.scalar_type(id)? != ScalarType::Int || depth == MAX_DEPTH {
        return None;
    }
    let made = match rewriter.constant(id) {
        Some((tensor, data)) => {
            let sizes = tensor.sizes.clone();
            let values: Vec<f64> = decode(ScalarType::Int, data)?.take(MAX_CONSTANT + 1).collect();
            let data =
                encode(ScalarType::Float, &values).filter(|_| values.len() <= MAX_CONSTANT)?;
            let most = values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
            let tensor = Tensor { sizes, ..constant_tensor(ScalarType::Float, data) };
            Float { value: rewriter.value(Value::Tensor(tensor)), most, error: in_f32(most, 0.0) }
        }
        None => computed(rewriter, id, floats, takes, depth)?,
    };
    if made.most >= f64::from(i32::MAX) {
        return None;
    }
    floats.insert(id, made);
    Some(made)
}

/// Error of a result of this size after an `f32` rounding, if its operands have this error.
/// Integers are exact up to [`EXACT`]; other values are rounded at any size.
fn in_f32(most: f64, error: f64) -> f64 {
    if error == 0.0 && most <= EXACT { 0.0 } else { error + most * UNIT }
}

/// A dequantized int8 tensor.
fn scaled(
    rewriter: &mut Rewriter<'_, '_>,
    (source, zero, factor): (ValueId, i64, f64),
    takes: Takes<'_>,
) -> Option<Float> {
    let value = dequantized(rewriter, source, factor, zero, takes)?;
    let most = factor * magnitude(zero) + 1.0;
    Some(Float { value, most, error: in_f32(most, rounding(factor)) })
}

fn computed(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    floats: &mut Floats,
    takes: Takes<'_>,
    depth: usize,
) -> Option<Float> {
    let node = rewriter.producer(id)?.clone();
    let (first, rest) = inputs(&node).split_first()?;
    let mut args = Vec::new();
    let (most, error) = match node.operator {
        Operator::TOSA_RESCALE => {
            let operand = operand(rewriter, id)?;
            return scaled(rewriter, operand, takes);
        }
        Operator::TO_COPY if rewriter.scalar_type(*first)? == ScalarType::Char => {
            return scaled(rewriter, (*first, 0, 1.0), takes);
        }
        Operator::TOSA_MATMUL => {
            let call = TosaMatmulArgs::of(&node).ok()?;
            let zeros = [rewriter.int(call.a_zp)?, rewriter.int(call.b_zp)?];
            let inner = *rewriter.sizes(call.a)?.last()? as f64;
            let mut most = inner;
            for (input, zero) in [call.a, call.b].into_iter().zip(zeros) {
                let is_char = rewriter.scalar_type(input)? == ScalarType::Char;
                if !is_char || !is_int8(zero) {
                    return None;
                }
                args.push(dequantized(rewriter, input, 1.0, zero, takes)?);
                most *= magnitude(zero);
            }
            // Sums of any order are exact up to `EXACT`.
            (most, if most <= EXACT { 0.0 } else { inner * most * UNIT })
        }
        Operator::ADD_TENSOR
        | Operator::SUB_TENSOR
        | Operator::MUL_TENSOR
        | Operator::MAXIMUM
        | Operator::MINIMUM => {
            let (second, rest) = rest.split_first()?;
            if !rest.iter().all(|alpha| rewriter.number(*alpha) == Some(1.0)) {
                return None;
            }
            let a = float_of(rewriter, *first, floats, takes, depth + 1)?;
            let b = float_of(rewriter, *second, floats, takes, depth + 1)?;
            args.extend([a.value, b.value]);
            args.extend(rest);
            match node.operator {
                Operator::ADD_TENSOR | Operator::SUB_TENSOR => {
                    let most = a.most + b.most;
                    (most, in_f32(most, a.error + b.error))
                }
                Operator::MUL_TENSOR => {
                    let most = a.most * b.most;
                    let error = a.most * b.error + b.most * a.error + a.error * b.error;
                    (most, in_f32(most, error))
                }
                _ => (a.most.max(b.most), a.error.max(b.error)),
            }
        }
        Operator::AMAX
        | Operator::AMIN
        | Operator::EXPAND_COPY
        | Operator::PERMUTE_COPY
        | Operator::SLICE_COPY_TENSOR
        | Operator::VIEW_COPY => {
            let Float { value, most, error } =
                float_of(rewriter, *first, floats, takes, depth + 1)?;
            args.push(value);
            args.extend(rest);
            (most, error)
        }
        Operator::SUM_DIM_INT_LIST => {
            let &[dims, keep, _] = rest else { return None };
            let Float { value, most, error } =
                float_of(rewriter, *first, floats, takes, depth + 1)?;
            args.extend([value, dims, keep, int(rewriter, ScalarType::Float as i64)]);
            let numel = |id| Some(rewriter.sizes(id)?.iter().product::<usize>() as f64);
            let count = numel(*first)? / numel(id)?.max(1.0);
            let most = count * most;
            (most, count * in_f32(most, error))
        }
        _ => return None,
    };
    let operator = match node.operator {
        Operator::TOSA_MATMUL => Operator::BMM,
        operator => operator,
    };
    let value = float_call(rewriter, operator, &args, id, takes)?;
    Some(Float { value, most, error })
}
