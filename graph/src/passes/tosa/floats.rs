//! Integer arithmetic between rescalings, in floating point.
//!
//! A quantized sum, softmax or matrix multiplication of activations is a chain of `int32` calls: it
//! begins with rescaled or multiplied int8 tensors and ends with a rescaling to int8. The same
//! calls on dequantized tensors need no integer kernels. `f32` has more bits than the rounding to
//! int8 needs.

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

/// Floating-point tensors with the values of `int32` tensors.
pub(super) type Floats = BTreeMap<ValueId, ValueId>;

/// Limit on the calls from a rescaling back to int8 tensors.
const MAX_DEPTH: usize = 32;
/// Limit on the elements of an `int32` constant.
const MAX_CONSTANT: usize = 1 << 16;
/// Largest factor of a final rescaling. The first rescalings of a chain round to integers; with
/// this factor, that rounding is at most a sixteenth of a step of the result.
const MAX_FACTOR: f64 = 0.125;

/// Replaces a rescaling from `int32` to int8 and the calls before it.
pub(super) fn island(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    out: ValueId,
    floats: &mut Floats,
    takes: Takes<'_>,
) -> Option<()> {
    let factors = rescale.factors();
    let fits = |factor: &f64| (*factor as f32).is_normal() && (0.0..=MAX_FACTOR).contains(factor);
    let is_plain = rescale.input_zp == 0 && rescale.is_signed() && is_int8(rescale.output_zp);
    if !is_plain || !factors.iter().all(fits) {
        return None;
    }
    let mut value = float_of(rewriter, rescale.input, floats, takes, 0)?;
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

/// The values of an `int32` tensor in floating point.
fn float_of(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    floats: &mut Floats,
    takes: Takes<'_>,
    depth: usize,
) -> Option<ValueId> {
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
            let tensor = Tensor { sizes, ..constant_tensor(ScalarType::Float, data) };
            rewriter.value(Value::Tensor(tensor))
        }
        None => computed(rewriter, id, floats, takes, depth)?,
    };
    floats.insert(id, made);
    Some(made)
}

fn computed(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    floats: &mut Floats,
    takes: Takes<'_>,
    depth: usize,
) -> Option<ValueId> {
    let node = rewriter.producer(id)?.clone();
    let (first, rest) = inputs(&node).split_first()?;
    let mut args = Vec::new();
    match node.operator {
        Operator::TOSA_RESCALE => {
            let (source, zero, factor) = operand(rewriter, id)?;
            // The result must not saturate.
            let is_exact = factor * 255.0 < f64::from(i32::MAX);
            return dequantized(rewriter, source, factor, zero, takes).filter(|_| is_exact);
        }
        Operator::TO_COPY if rewriter.scalar_type(*first)? == ScalarType::Char => {
            return dequantized(rewriter, *first, 1.0, 0, takes);
        }
        Operator::TOSA_MATMUL => {
            let call = TosaMatmulArgs::of(&node).ok()?;
            let zeros = [rewriter.int(call.a_zp)?, rewriter.int(call.b_zp)?];
            for (input, zero) in [call.a, call.b].into_iter().zip(zeros) {
                let is_char = rewriter.scalar_type(input)? == ScalarType::Char;
                if !is_char || !is_int8(zero) {
                    return None;
                }
                args.push(dequantized(rewriter, input, 1.0, zero, takes)?);
            }
            return float_call(rewriter, Operator::BMM, &args, id, takes);
        }
        Operator::ADD_TENSOR
        | Operator::SUB_TENSOR
        | Operator::MUL_TENSOR
        | Operator::MAXIMUM
        | Operator::MINIMUM => {
            let (second, rest) = rest.split_first()?;
            args.push(float_of(rewriter, *first, floats, takes, depth + 1)?);
            args.push(float_of(rewriter, *second, floats, takes, depth + 1)?);
            args.extend(rest);
        }
        Operator::AMAX
        | Operator::AMIN
        | Operator::EXPAND_COPY
        | Operator::PERMUTE_COPY
        | Operator::SLICE_COPY_TENSOR
        | Operator::VIEW_COPY => {
            args.push(float_of(rewriter, *first, floats, takes, depth + 1)?);
            args.extend(rest);
        }
        Operator::SUM_DIM_INT_LIST => {
            let &[dims, keep, _] = rest else { return None };
            let input = float_of(rewriter, *first, floats, takes, depth + 1)?;
            args.extend([input, dims, keep, int(rewriter, ScalarType::Float as i64)]);
        }
        _ => return None,
    }
    float_call(rewriter, node.operator, &args, id, takes)
}
