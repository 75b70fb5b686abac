//! Arithmetic of rescaled tensors, in floating point between dequantization and quantization.

use super::{Rescale, Takes, constant};
use crate::graph::{Node, Tensor, Value, ValueId};
use crate::operators::{AddArgs, BinaryArgs, Operator, SumArgs, TosaAvgPool2dArgs};
use crate::passes::rewrite::Rewriter;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Float tensors with the values of int32 tensors, by the latter.
pub(super) type Twins = BTreeMap<ValueId, ValueId>;

/// Limit on the calls between rescalings.
const MAX_DEPTH: usize = 16;

/// Replaces a rescaling to int8 of arithmetic on rescaled int8 tensors.
pub(super) fn rescaled(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    out: ValueId,
    twins: &mut Twins,
    takes: Takes<'_>,
) -> Option<()> {
    let is_plain = rescale.input_zp == 0 && rescale.is_signed();
    let factor = rescale.factor().filter(|factor| is_plain && factor.is_normal())?;
    let made = twin(rewriter, rescale.input, twins, takes, MAX_DEPTH)?;
    quantize(rewriter, made, factor.recip(), rescale.output_zp, out, takes)
}

/// Average pooling, whose zero points may differ.
pub(super) fn averaged(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    pads: [i64; 2],
    takes: Takes<'_>,
) -> Option<()> {
    let call = TosaAvgPool2dArgs::of(node).ok()?;
    let zeros = [rewriter.int(call.input_zp)?, rewriter.int(call.output_zp)?];
    let (&[batch, height, width, channels], &[_, tall, wide, _]) =
        (rewriter.sizes(call.input)?, rewriter.sizes(call.out)?)
    else {
        return None;
    };
    let float = ScalarType::Float;
    let floats = dequantize(rewriter, call.input, 1.0, zeros[0], takes)?;
    let image = rewriter.new_tensor(float, [batch, channels, height, width].to_vec());
    let made = rewriter.new_tensor(float, [batch, channels, tall, wide].to_vec());
    let last = rewriter.new_tensor(float, [batch, tall, wide, channels].to_vec());
    let padding = rewriter.value(Value::IntList(pads.to_vec()));
    let (no, none) = (rewriter.value(Value::Bool(false)), rewriter.value(Value::None));
    // The average excludes padding.
    let args = [image, call.kernel_size, call.stride, padding, no, no, none];
    if !rewriter.is_taken(Operator::AVG_POOL2D, &args, made, takes) {
        return None;
    }
    let [first, second] = [[0, 3, 1, 2], [0, 2, 3, 1]]
        .map(|order: [i64; 4]| rewriter.value(Value::IntList(order.to_vec())));
    // Averages in the middle between two integers are frequent. TOSA rounds them up, quantization
    // to even. Other averages differ from the middle by at least half of the reciprocal.
    let count: i64 = rewriter.ints(call.kernel_size)?.iter().product();
    let up = rewriter.value(Value::Double(0.25 / count.max(1) as f64));
    let one = rewriter.value(Value::Int(1));
    let raised = rewriter.new_tensor(float, [batch, channels, tall, wide].to_vec());
    if !rewriter.is_taken(Operator::ADD_SCALAR, &[made, up, one], raised, takes) {
        return None;
    }
    rewriter.call(Operator::PERMUTE_COPY, &[floats, first], image);
    rewriter.call(Operator::AVG_POOL2D, &args, made);
    rewriter.call(Operator::ADD_SCALAR, &[made, up, one], raised);
    rewriter.call(Operator::PERMUTE_COPY, &[raised, second], last);
    quantize(rewriter, last, 1.0, zeros[1], call.out, takes)
}

/// The float tensor with the values of an int32 tensor.
fn twin(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    twins: &mut Twins,
    takes: Takes<'_>,
    depth: usize,
) -> Option<ValueId> {
    if let Some(found) = twins.get(&id) {
        return Some(*found);
    }
    let depth = depth.checked_sub(1)?;
    if rewriter.scalar_type(id)? != ScalarType::Int {
        return None;
    }
    let sizes = rewriter.sizes(id)?.to_vec();
    if let Some((_, data)) = rewriter.constant(id) {
        let float = |bytes: &[u8; 4]| (i32::from_le_bytes(*bytes) as f32).to_le_bytes();
        let data: Vec<u8> = data.as_chunks::<4>().0.iter().flat_map(float).collect();
        let flat = constant(rewriter, ScalarType::Float, data);
        let tensor = rewriter.tensor(flat)?.clone();
        let made = rewriter.value(Value::Tensor(Tensor { sizes, ..tensor }));
        twins.insert(id, made);
        return Some(made);
    }
    let node = rewriter.producer(id)?.clone();
    let mut operand = |rewriter: &mut Rewriter<'_, '_>, id, takes: Takes<'_>| {
        twin(rewriter, id, twins, takes, depth)
    };
    let (operator, args) = match node.operator {
        Operator::TOSA_RESCALE => {
            let rescale = Rescale::of(rewriter, &node)?;
            let is_char = rewriter.scalar_type(rescale.input)? == ScalarType::Char;
            let is_plain = is_char && rescale.is_signed() && rescale.output_zp == 0;
            let factor = rescale.factor().filter(|factor| is_plain && factor.is_normal())?;
            let made = dequantize(rewriter, rescale.input, factor, rescale.input_zp, takes)?;
            twins.insert(id, made);
            return Some(made);
        }
        Operator::ADD_TENSOR | Operator::SUB_TENSOR => {
            let call = AddArgs::of(&node).ok()?;
            let first = operand(rewriter, call.input, takes)?;
            let second = operand(rewriter, call.other, takes)?;
            (node.operator, [first, second].into_iter().chain(call.alpha).collect::<Vec<_>>())
        }
        Operator::MUL_TENSOR => {
            let call = BinaryArgs::of(&node).ok()?;
            let first = operand(rewriter, call.input, takes)?;
            (node.operator, [first, operand(rewriter, call.other, takes)?].to_vec())
        }
        Operator::SUM_DIM_INT_LIST => {
            let call = SumArgs::of(&node).ok()?;
            let input = operand(rewriter, call.input, takes)?;
            let rest = node.args.get(1..node.args.len().min(4).saturating_sub(1))?;
            (node.operator, [input].iter().chain(rest).copied().collect())
        }
        _ => return None,
    };
    let made = rewriter.new_tensor(ScalarType::Float, sizes);
    if !rewriter.is_taken(operator, &args, made, takes) {
        return None;
    }
    rewriter.call(operator, &args, made);
    twins.insert(id, made);
    Some(made)
}

/// Scale, zero point, lowest and highest value, and dtype of int8 values.
fn parameters(rewriter: &mut Rewriter<'_, '_>, scale: f64, zero: i64) -> Option<[ValueId; 5]> {
    // Scales are fp32.
    let is_scale = (scale as f32).is_normal() && scale > 0.0;
    let fits = is_scale && (-128..=127).contains(&zero);
    fits.then(|| {
        let scale = rewriter.value(Value::Double(scale));
        let [zero, low, high, dtype] = [zero, -128, 127, ScalarType::Char as i64]
            .map(|value| rewriter.value(Value::Int(value)));
        [scale, zero, low, high, dtype]
    })
}

fn dequantize(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    scale: f64,
    zero: i64,
    takes: Takes<'_>,
) -> Option<ValueId> {
    let parameters = parameters(rewriter, scale, zero)?;
    let none = rewriter.value(Value::None);
    let args: Vec<ValueId> = [input].into_iter().chain(parameters).chain([none]).collect();
    let sizes = rewriter.sizes(input)?.to_vec();
    let made = rewriter.new_tensor(ScalarType::Float, sizes);
    let operator = Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR;
    if !rewriter.is_taken(operator, &args, made, takes) {
        return None;
    }
    rewriter.call(operator, &args, made);
    Some(made)
}

fn quantize(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    scale: f64,
    zero: i64,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let parameters = parameters(rewriter, scale, zero)?;
    let args: Vec<ValueId> = [input].into_iter().chain(parameters).collect();
    let operator = Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR;
    if !rewriter.is_taken(operator, &args, out, takes) {
        return None;
    }
    rewriter.call(operator, &args, out);
    Some(())
}
