//! Lowers elementwise and other operators on quantized tensors with different scales.

use super::{dequantize, finish, pair};
use crate::graph::Value;
use crate::lower::portable::Rule;
use crate::operators::{
    LookupArgs, Operator, Q8taAddArgs, Q8taAvgPool2dArgs, Q8taMulArgs, Q8taPixelShuffleArgs,
    Q8taReluArgs, Q8taSoftmaxArgs,
};
use torchlet_core::ScalarType;

pub(in crate::lower::portable) const RULES: &[(Operator, Rule)] = &[
    (Operator::ET_VK_Q8TA_ADD, |b, args| {
        let call = Q8taAddArgs::of(args)?;
        let (first, second) = (call.input_a, call.input_b);
        let first = dequantize(b, first, pair(b, [call.input_a_scale, call.input_a_zero_point])?)?;
        let [scale, zero] = pair(b, [call.input_b_scale, call.input_b_zero_point])?;
        let alpha = b.number(call.alpha)?;
        let second = dequantize(b, second, [scale * alpha, zero])?;
        let sum = b.binary(Operator::ADD_TENSOR, first, second)?;
        finish(
            b,
            sum,
            false,
            Some(pair(b, [call.output_scale, call.output_zero_point])?),
            b.out(args)?,
        )
    }),
    (Operator::Q8TA_AVG_POOL2D, |b, args| {
        let call = Q8taAvgPool2dArgs::of(args)?;
        // Averages are rounded to quantized values, so scale and zero point do not matter.
        let input = call.input;
        let numbers = dequantize(b, input, [1.0, 0.0])?;
        let (no, none) = (b.push(Value::Bool(false)), b.none());
        let Q8taAvgPool2dArgs { kernel_size, stride, padding, ceil_mode, .. } = call;
        let inputs = [numbers, kernel_size, stride, padding, ceil_mode, no, none];
        let out = b.out(args)?;
        let made = b.info(out)?.with_type(ScalarType::Float);
        let averages = b.call(Operator::AVG_POOL2D, &inputs, made);
        finish(b, averages, false, Some([1.0, 0.0]), out)
    }),
    (Operator::Q8TA_SOFTMAX, |b, args| {
        let call = Q8taSoftmaxArgs::of(args)?;
        let input = call.input;
        let numbers = dequantize(b, input, pair(b, [call.input_scale, call.input_zero_point])?)?;
        let (dim, no) = (call.dim, b.push(Value::Bool(false)));
        let made = b.info(numbers)?;
        let shares = b.call(Operator::SOFTMAX, &[numbers, dim, no], made);
        finish(b, shares, false, Some([1.0 / 256.0, -128.0]), b.out(args)?)
    }),
    (Operator::Q8TA_LOOKUP, |b, args| {
        let call = LookupArgs::of(args)?;
        let (codes, table) = (call.input, call.lut);
        let out = b.out(args)?;
        let wide = b.cast(codes, ScalarType::Long)?;
        let places = b.with_number(Operator::ADD_SCALAR, wide, 128.0)?;
        let made = b.info(out)?;
        let list = b.push(Value::List([places].to_vec()));
        let found = b.call(Operator::INDEX_TENSOR, &[table, list], made);
        b.finish_with(found, out)
    }),
    (Operator::Q8TA_MUL, |b, args| {
        let call = Q8taMulArgs::of(args)?;
        let (first, second) = (call.a, call.b);
        let first = dequantize(b, first, pair(b, [call.a_scale, call.a_zero_point])?)?;
        let second = dequantize(b, second, pair(b, [call.b_scale, call.b_zero_point])?)?;
        let product = b.binary(Operator::MUL_TENSOR, first, second)?;
        finish(
            b,
            product,
            false,
            Some(pair(b, [call.output_scale, call.output_zero_point])?),
            b.out(args)?,
        )
    }),
    (Operator::ET_VK_Q8TA_RELU, |b, args| {
        let call = Q8taReluArgs::of(args)?;
        let input = call.input;
        let numbers = dequantize(b, input, pair(b, [call.input_scale, call.input_zero_point])?)?;
        finish(
            b,
            numbers,
            true,
            Some(pair(b, [call.output_scale, call.output_zero_point])?),
            b.out(args)?,
        )
    }),
    (Operator::ET_VK_Q8TA_PIXEL_SHUFFLE, |b, args| {
        let call = Q8taPixelShuffleArgs::of(args)?;
        let input = call.input;
        let (out, factor) = (b.out(args)?, call.upscale_factor);
        let numbers = dequantize(b, input, pair(b, [call.input_scale, call.input_zero_point])?)?;
        let made = b.info(out)?.with_type(ScalarType::Float);
        let shuffled = b.call(Operator::PIXEL_SHUFFLE, &[numbers, factor], made);
        let [inverse, zero] = pair(b, [call.output_inv_scale, call.output_zero_point])?;
        finish(b, shuffled, false, Some([1.0 / inverse, zero]), out)
    }),
];
