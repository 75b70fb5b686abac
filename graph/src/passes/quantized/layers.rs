//! Int8 layers with weights, and int8 arithmetic of two tensors.

use super::{Made, dequantized, fits_bias};
use crate::graph::{Value, ValueId};
use crate::operators::{
    AddArgs, BinaryArgs, ConvolutionArgs, LinearArgs, Operator, Q8taAddArgs, Q8taConv2dArgs,
    Q8taConv2dTransposedArgs, Q8taLinearArgs, Q8taMulArgs,
};
use crate::passes::rewrite::Rewriter;
use crate::passes::weights::{Filters, Weights};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Operator and arguments of the int8 call that produces the quantized result.
pub(super) fn call(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
) -> Option<(Operator, Vec<ValueId>)> {
    let node = rewriter.producer(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    match node.operator {
        Operator::CONVOLUTION => {
            let call = ConvolutionArgs::of(node).ok()?;
            convolution(rewriter, result, call, out)
        }
        Operator::LINEAR => {
            let call = LinearArgs::of(node).ok()?;
            linear(rewriter, result, call, out)
        }
        Operator::ADD_TENSOR if !result.relu => {
            let call = AddArgs::of(node).ok()?;
            sum(rewriter, result, call, 1.0, out)
        }
        Operator::SUB_TENSOR if !result.relu => {
            let call = AddArgs::of(node).ok()?;
            sum(rewriter, result, call, -1.0, out)
        }
        Operator::MUL_TENSOR if !result.relu => {
            let call = BinaryArgs::of(node).ok()?;
            let (a, [a_scale, a_zero_point]) = operand(rewriter, call.input)?;
            let (b, [b_scale, b_zero_point]) = operand(rewriter, call.other)?;
            let [output_scale, output_zero_point] = result.codes.values(rewriter);
            let call = Q8taMulArgs {
                a,
                b,
                a_scale,
                a_zero_point,
                b_scale,
                b_zero_point,
                output_scale,
                output_zero_point,
                out,
            };
            Some((Operator::Q8TA_MUL, call.inputs()))
        }
        _ => None,
    }
}

/// The int8 tensor that an operand was dequantized from, and its scale and zero point.
fn operand(rewriter: &mut Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, [ValueId; 2])> {
    let (codes, from) = dequantized(rewriter, id)?;
    Some((codes, from.values(rewriter)))
}

/// A sum, or a difference if the sign is negative.
fn sum(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    call: AddArgs,
    sign: f64,
    out: ValueId,
) -> Option<(Operator, Vec<ValueId>)> {
    let alpha = match call.alpha {
        alpha if rewriter.is_none(alpha.as_ref()) => 1.0,
        alpha => rewriter.number(alpha?)?,
    };
    let (input_a, [input_a_scale, input_a_zero_point]) = operand(rewriter, call.input)?;
    let (input_b, [input_b_scale, input_b_zero_point]) = operand(rewriter, call.other)?;
    let [output_scale, output_zero_point] = result.codes.values(rewriter);
    let alpha = rewriter.value(Value::Double(sign * alpha));
    let call = Q8taAddArgs {
        input_a,
        input_b,
        input_a_scale,
        input_a_zero_point,
        input_b_scale,
        input_b_zero_point,
        output_scale,
        output_zero_point,
        alpha,
        out,
    };
    Some((Operator::ET_VK_Q8TA_ADD, call.inputs()))
}

fn activation(rewriter: &mut Rewriter<'_, '_>, result: &Made) -> ValueId {
    rewriter.value(Value::String(String::from(if result.relu { "relu" } else { "none" })))
}

/// The bias of a layer, `None` if absent.
fn bias(
    rewriter: &mut Rewriter<'_, '_>,
    bias: Option<ValueId>,
    channels: usize,
) -> Option<ValueId> {
    let bias = bias.unwrap_or_else(|| rewriter.value(Value::None));
    fits_bias(rewriter, bias, channels).then_some(bias)
}

fn linear(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    call: LinearArgs,
    out: ValueId,
) -> Option<(Operator, Vec<ValueId>)> {
    let (input, [input_scale, input_zero_point]) = operand(rewriter, call.input)?;
    let weights = Weights::of(rewriter, call.weight, 0)?;
    let [width, depth] = *weights.sizes(rewriter)? else { return None };
    let bias = bias(rewriter, call.bias, width)?;
    let [output_scale, output_zero_point] = result.codes.values(rewriter);
    let call = Q8taLinearArgs {
        input,
        input_scale,
        input_zero_point,
        weight_scales: weights.scales,
        weights: weights.packed(rewriter, &[0, 1], vec![width, depth])?,
        // The sums can be computed from the weights.
        weight_sums: rewriter.value(Value::None),
        output_scale,
        output_zero_point,
        bias: Some(bias),
        activation: Some(activation(rewriter, result)),
        out,
    };
    Some((Operator::ET_VK_Q8TA_LINEAR, call.inputs()))
}

fn convolution(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    call: ConvolutionArgs,
    out: ValueId,
) -> Option<(Operator, Vec<ValueId>)> {
    let (input, [input_scale, input_zero_point]) = operand(rewriter, call.input)?;
    let is_transposed = rewriter.flag(Some(&call.transposed), false)?;
    let filters = Filters::of(rewriter, call.weight, is_transposed, call.groups)?;
    if rewriter.sizes(input)?.len() != 4 {
        return None;
    }
    let bias = bias(rewriter, Some(call.bias), filters.channels)?;
    let (operator, weights) = if is_transposed {
        (Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED, filters.rows(rewriter)?)
    } else if filters.are_single() {
        // Depthwise weights are stored by kernel position, then by channel.
        let [height, width] = filters.kernel;
        let sizes = vec![height, width, filters.channels];
        let packed = filters.weights.packed(rewriter, &[2, 3, 0, 1], sizes)?;
        (Operator::ET_VK_Q8TA_CONV2D_DW, packed)
    } else {
        (Operator::ET_VK_Q8TA_CONV2D, filters.rows(rewriter)?)
    };
    let [output_scale, output_zero_point] = result.codes.values(rewriter);
    // The sums can be computed from the weights.
    let weight_sums = rewriter.value(Value::None);
    let weight_scales = filters.weights.scales;
    let kernel_size = filters.kernel_size(rewriter);
    let activation = activation(rewriter, result);
    let ConvolutionArgs { stride, padding, output_padding, dilation, groups, .. } = call;
    let inputs = if is_transposed {
        let call = Q8taConv2dTransposedArgs {
            input,
            input_scale,
            input_zero_point,
            weights,
            weight_sums,
            weight_scales,
            output_scale,
            output_zero_point,
            bias,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            activation,
            out,
        };
        call.inputs()
    } else {
        let call = Q8taConv2dArgs {
            input,
            input_scale,
            input_zero_point,
            weights,
            weight_sums,
            weight_scales,
            output_scale,
            output_zero_point,
            bias,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            activation: Some(activation),
            out,
        };
        call.inputs()
    };
    Some((operator, inputs))
}
