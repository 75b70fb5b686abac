//! Layers and arithmetic whose results are rescaled to int8.

use super::{Rescale, Takes, constant};
use crate::graph::{Node, Tensor, Value, ValueId};
use crate::operators::{
    AddArgs, BinaryArgs, Operator, Q8taAddArgs, Q8taAvgPool2dArgs, Q8taConv2dArgs, Q8taLinearArgs,
    Q8taMulArgs, TosaAvgPool2dArgs, TosaConvArgs,
};
use crate::passes::rewrite::Rewriter;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Permutations between channels-last and channels-first images.
const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];

/// Replaces the call that computes the input of a rescaling to int8.
pub(super) fn rescaled(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    // Sums have no zero point.
    if rescale.input_zp != 0 || !rescale.is_signed() || rewriter.uses(rescale.input) != 1 {
        return None;
    }
    let node = rewriter.producer(rescale.input)?.clone();
    match node.operator {
        Operator::TOSA_CONV2D | Operator::TOSA_DEPTHWISE_CONV2D => {
            convolution(rewriter, rescale, &node, out, takes)
        }
        Operator::ADD_TENSOR | Operator::SUB_TENSOR => sum(rewriter, rescale, &node, out, takes),
        Operator::MUL_TENSOR => product(rewriter, rescale, &node, out, takes),
        _ => None,
    }
}

fn double(rewriter: &mut Rewriter<'_, '_>, value: f64) -> ValueId {
    rewriter.value(Value::Double(value))
}

fn int(rewriter: &mut Rewriter<'_, '_>, value: i64) -> ValueId {
    rewriter.value(Value::Int(value))
}

fn ints(rewriter: &mut Rewriter<'_, '_>, items: &[i64]) -> ValueId {
    rewriter.value(Value::IntList(items.to_vec()))
}

fn viewed(rewriter: &mut Rewriter<'_, '_>, value: ValueId, sizes: &[usize], out: ValueId) {
    let list: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
    let list = ints(rewriter, &list);
    rewriter.call(Operator::VIEW_COPY, &[value, list], out);
}

/// Symmetric padding that gives the same windows: PyTorch ignores what windows do not reach.
pub(crate) fn symmetric_padding(
    size: usize,
    kernel: usize,
    made: usize,
    [before, after]: [i64; 2],
    [stride, dilation]: [i64; 2],
) -> Option<i64> {
    let window = (kernel as i64).checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    let room = (size as i64).checked_add(before.checked_mul(2)?)?.checked_sub(window)?;
    let same = room >= 0 && room.checked_div(stride)?.checked_add(1)? == made as i64;
    (before >= 0 && (before == after || same)).then_some(before)
}

/// A convolution, as the channels-first int8 operator between two permutations.
fn convolution(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    node: &Node,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let call = TosaConvArgs::of(node).ok()?;
    let input_zero = rewriter.int(call.input_zp)?;
    let is_char = rewriter.scalar_type(call.input)? == ScalarType::Char;
    let in_range = |zero: i64| (-128..=127).contains(&zero);
    if !is_char || rewriter.int(call.weight_zp)? != 0 || !in_range(input_zero) {
        return None;
    }
    let (&[batch, height, width, depth], &[_, tall, wide, channels]) =
        (rewriter.sizes(call.input)?, rewriter.sizes(call.out)?)
    else {
        return None;
    };
    let depthwise = node.operator == Operator::TOSA_DEPTHWISE_CONV2D;
    let (weight, _) = rewriter.constant(call.weight)?;
    let weight = weight.clone();
    let (kernel, sizes, groups) = match (depthwise, &weight.sizes[..]) {
        (true, &[y, x, _, 1]) => ([y, x], vec![y, x, depth], depth),
        (false, &[outputs, y, x, inputs]) => {
            ([y, x], vec![outputs, y.saturating_mul(x).saturating_mul(inputs)], 1)
        }
        _ => return None,
    };
    let factors = rescale.factors();
    let factor = |channel: usize| match factors[..] {
        [factor] => Some(factor as f32),
        _ => factors.get(channel).map(|factor| *factor as f32),
    };
    let scales: Vec<f32> = (0..channels).filter_map(factor).collect();
    let is_scale = |scale: &f32| scale.is_normal() && *scale > 0.0;
    if scales.len() != channels || !scales.iter().all(is_scale) || !in_range(rescale.output_zp) {
        return None;
    }
    let (bias, data) = rewriter.constant(call.bias)?;
    if bias.scalar_type != ScalarType::Int || bias.sizes != [channels] {
        return None;
    }
    let bias: Vec<u8> = data
        .as_chunks::<4>()
        .0
        .iter()
        .zip(&scales)
        .flat_map(|(bytes, scale)| {
            ((f64::from(i32::from_le_bytes(*bytes)) * f64::from(*scale)) as f32).to_le_bytes()
        })
        .collect();
    let lists = [call.stride, call.dilation, call.padding].map(|id| rewriter.ints(id));
    let [Some(stride), Some(dilation), Some(pad)] = lists else { return None };
    let (&[sy, sx], &[dy, dx], &[top, bottom, left, right]) =
        (&stride[..], &dilation[..], &pad[..])
    else {
        return None;
    };
    let pad = [
        symmetric_padding(height, kernel[0], tall, [top, bottom], [sy, dy])?,
        symmetric_padding(width, kernel[1], wide, [left, right], [sx, dx])?,
    ];
    let stride = ints(rewriter, &[sy, sx]);
    let dilation = ints(rewriter, &[dy, dx]);
    let scales = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let weight_scales = constant(rewriter, ScalarType::Float, scales);
    let bias = Some(constant(rewriter, ScalarType::Float, bias));
    let weights = rewriter.value(Value::Tensor(Tensor { sizes, ..weight }));
    let (input_scale, output_scale) = (double(rewriter, 1.0), double(rewriter, 1.0));
    let input_zero_point = int(rewriter, input_zero);
    let output_zero_point = int(rewriter, rescale.output_zp);
    // The sums can be computed from the weights.
    let weight_sums = rewriter.value(Value::None);
    let activation = Some(rewriter.value(Value::String(String::from("none"))));
    let is_pixel = [height, width, tall, wide, kernel[0], kernel[1]] == [1; 6] && pad == [0, 0];
    if is_pixel && !depthwise {
        let input = rewriter.new_tensor(ScalarType::Char, vec![batch, depth]);
        let made = rewriter.new_tensor(ScalarType::Char, vec![batch, channels]);
        let linear = Q8taLinearArgs {
            input,
            input_scale,
            input_zero_point,
            weights,
            weight_sums,
            weight_scales,
            output_scale,
            output_zero_point,
            bias,
            activation,
            out: made,
        };
        let args = linear.inputs();
        if !rewriter.is_taken(Operator::ET_VK_Q8TA_LINEAR, &args, made, takes) {
            return None;
        }
        viewed(rewriter, call.input, &[batch, depth], input);
        rewriter.call(Operator::ET_VK_Q8TA_LINEAR, &args, made);
        viewed(rewriter, made, &[batch, 1, 1, channels], out);
        return Some(());
    }
    // The permuted image exists only if the call is possible.
    let image = rewriter.new_tensor(ScalarType::Char, vec![batch, depth, height, width]);
    let made = rewriter.new_tensor(ScalarType::Char, vec![batch, channels, tall, wide]);
    let convolution = Q8taConv2dArgs {
        input: image,
        input_scale,
        input_zero_point,
        weights,
        weight_sums,
        weight_scales,
        output_scale,
        output_zero_point,
        bias: bias?,
        kernel_size: ints(rewriter, &kernel.map(|size| size as i64)),
        stride,
        padding: ints(rewriter, &pad),
        dilation,
        groups: int(rewriter, groups as i64),
        activation,
        out: made,
    };
    let args = convolution.inputs();
    let operator = match depthwise {
        true => Operator::ET_VK_Q8TA_CONV2D_DW,
        false => Operator::ET_VK_Q8TA_CONV2D,
    };
    if !rewriter.is_taken(operator, &args, made, takes) {
        return None;
    }
    let order = ints(rewriter, &CHANNELS_FIRST.map(|dim| dim as i64));
    rewriter.call(Operator::PERMUTE_COPY, &[call.input, order], image);
    rewriter.call(operator, &args, made);
    let order = ints(rewriter, &CHANNELS_LAST.map(|dim| dim as i64));
    rewriter.call(Operator::PERMUTE_COPY, &[made, order], out);
    Some(())
}

/// An int8 tensor that is rescaled to int32: its zero point and its factor.
fn operand(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, i64, f64)> {
    let rescale = Rescale::producer(rewriter, id)?;
    let is_char = rewriter.scalar_type(rescale.input)? == ScalarType::Char;
    let is_plain = is_char && rescale.is_signed() && rescale.output_zp == 0;
    let in_range = (-128..=127).contains(&rescale.input_zp);
    let factor = rescale.factor().filter(|_| is_plain && in_range)?;
    Some((rescale.input, rescale.input_zp, factor))
}

/// A sum or difference of two rescaled tensors.
fn sum(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    node: &Node,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let call = AddArgs::of(node).ok()?;
    let alpha = match call.alpha {
        alpha if rewriter.is_none(alpha.as_ref()) => 1.0,
        alpha => rewriter.number(alpha?)?,
    };
    let sign = if node.operator == Operator::SUB_TENSOR { -alpha } else { alpha };
    let (input_a, zero_a, scale_a) = operand(rewriter, call.input)?;
    let (input_b, zero_b, scale_b) = operand(rewriter, call.other)?;
    let factor = rescale.factor().filter(|_| (-128..=127).contains(&rescale.output_zp))?;
    let call = Q8taAddArgs {
        input_a,
        input_b,
        input_a_scale: double(rewriter, scale_a * factor),
        input_a_zero_point: int(rewriter, zero_a),
        input_b_scale: double(rewriter, scale_b * factor),
        input_b_zero_point: int(rewriter, zero_b),
        output_scale: double(rewriter, 1.0),
        output_zero_point: int(rewriter, rescale.output_zp),
        alpha: double(rewriter, sign),
        out,
    };
    let args = call.inputs();
    if !rewriter.is_taken(Operator::ET_VK_Q8TA_ADD, &args, out, takes) {
        return None;
    }
    rewriter.call(Operator::ET_VK_Q8TA_ADD, &args, out);
    Some(())
}

/// A product of two rescaled tensors.
fn product(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    node: &Node,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let call = BinaryArgs::of(node).ok()?;
    let (a, zero_a, scale_a) = operand(rewriter, call.input)?;
    let (b, zero_b, scale_b) = operand(rewriter, call.other)?;
    let factor = rescale.factor().filter(|_| (-128..=127).contains(&rescale.output_zp))?;
    let call = Q8taMulArgs {
        a,
        b,
        a_scale: double(rewriter, scale_a * factor),
        a_zero_point: int(rewriter, zero_a),
        b_scale: double(rewriter, scale_b),
        b_zero_point: int(rewriter, zero_b),
        output_scale: double(rewriter, 1.0),
        output_zero_point: int(rewriter, rescale.output_zp),
        out,
    };
    let args = call.inputs();
    if !rewriter.is_taken(Operator::Q8TA_MUL, &args, out, takes) {
        return None;
    }
    rewriter.call(Operator::Q8TA_MUL, &args, out);
    Some(())
}

/// Average pooling that keeps the zero point.
pub(super) fn averaged(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: Takes<'_>,
) -> Option<()> {
    let call = TosaAvgPool2dArgs::of(node).ok()?;
    let same_zero = rewriter.int(call.input_zp)? == rewriter.int(call.output_zp)?;
    if !same_zero || rewriter.scalar_type(call.out)? != ScalarType::Char {
        return None;
    }
    let (&[batch, height, width, channels], &[_, tall, wide, _]) =
        (rewriter.sizes(call.input)?, rewriter.sizes(call.out)?)
    else {
        return None;
    };
    let lists = [call.kernel_size, call.stride, call.padding].map(|id| rewriter.ints(id));
    let [Some(kernel), Some(stride), Some(pad)] = lists else { return None };
    let (&[ky, kx], &[sy, sx], &[top, bottom, left, right]) = (&kernel[..], &stride[..], &pad[..])
    else {
        return None;
    };
    let size = |kernel: i64| usize::try_from(kernel).unwrap_or(0);
    let pad = [
        symmetric_padding(height, size(ky), tall, [top, bottom], [sy, 1])?,
        symmetric_padding(width, size(kx), wide, [left, right], [sx, 1])?,
    ];
    // PyTorch's padding is at most half of the window.
    if pad[0] > ky / 2 || pad[1] > kx / 2 {
        return None;
    }
    let image = rewriter.new_tensor(ScalarType::Char, vec![batch, channels, height, width]);
    let made = rewriter.new_tensor(ScalarType::Char, vec![batch, channels, tall, wide]);
    let pool = Q8taAvgPool2dArgs {
        input: image,
        kernel_size: call.kernel_size,
        stride: call.stride,
        padding: ints(rewriter, &pad),
        ceil_mode: rewriter.value(Value::Bool(false)),
        out: made,
    };
    let args = pool.inputs();
    if !rewriter.is_taken(Operator::Q8TA_AVG_POOL2D, &args, made, takes) {
        return None;
    }
    let order = ints(rewriter, &CHANNELS_FIRST.map(|dim| dim as i64));
    rewriter.call(Operator::PERMUTE_COPY, &[call.input, order], image);
    rewriter.call(Operator::Q8TA_AVG_POOL2D, &args, made);
    let order = ints(rewriter, &CHANNELS_LAST.map(|dim| dim as i64));
    rewriter.call(Operator::PERMUTE_COPY, &[made, order], call.out);
    Some(())
}
