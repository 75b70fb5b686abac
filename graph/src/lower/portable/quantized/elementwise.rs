//! Sums, activations and shuffles of quantized tensors, from one scale to another.

use super::{dequantize, finish, pair};
use crate::graph::Value;
use crate::lower::portable::Rule;
use crate::operators::Operator;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in crate::lower::portable) const RULES: &[(Operator, Rule)] = &[
    (Operator::ET_VK_Q8TA_ADD, |b, args| {
        let (first, second) = (b.arg(args, 0)?, b.arg(args, 1)?);
        let first = dequantize(b, first, pair(b, args, [2, 3])?)?;
        let [scale, zero] = pair(b, args, [4, 5])?;
        let alpha = b.number(args, 8)?;
        let second = dequantize(b, second, [scale * alpha, zero])?;
        let sum = b.binary(Operator::ADD_TENSOR, first, second)?;
        finish(b, sum, false, Some(pair(b, args, [6, 7])?), b.out(args)?)
    }),
    (Operator::Q8TA_AVG_POOL2D, |b, args| {
        // An average is rounded to the steps that its values have, whatever these stand for.
        let input = b.arg(args, 0)?;
        let numbers = dequantize(b, input, [1.0, 0.0])?;
        let (no, none) = (b.push(Value::Bool(false)), b.none());
        let mut inputs = Vec::from([numbers]);
        for place in 1..5 {
            inputs.push(b.arg(args, place)?);
        }
        inputs.extend([no, none]);
        let out = b.out(args)?;
        let made = b.info(out)?.with_type(ScalarType::Float);
        let averages = b.call(Operator::AVG_POOL2D, &inputs, made);
        finish(b, averages, false, Some([1.0, 0.0]), out)
    }),
    (Operator::Q8TA_SOFTMAX, |b, args| {
        let input = b.arg(args, 0)?;
        let numbers = dequantize(b, input, pair(b, args, [1, 2])?)?;
        let (dim, no) = (b.arg(args, 3)?, b.push(Value::Bool(false)));
        let made = b.info(numbers)?;
        let shares = b.call(Operator::SOFTMAX, &[numbers, dim, no], made);
        finish(b, shares, false, Some([1.0 / 256.0, -128.0]), b.out(args)?)
    }),
    (Operator::Q8TA_LOOKUP, |b, args| {
        let (codes, table) = (b.arg(args, 0)?, b.arg(args, 1)?);
        let out = b.out(args)?;
        let wide = b.cast(codes, ScalarType::Long)?;
        let places = b.with_number(Operator::ADD_SCALAR, wide, 128.0)?;
        let made = b.info(out)?;
        let list = b.push(Value::List([places].to_vec()));
        let found = b.call(Operator::INDEX_TENSOR, &[table, list], made);
        b.finish_with(found, out)
    }),
    (Operator::Q8TA_MUL, |b, args| {
        let (first, second) = (b.arg(args, 0)?, b.arg(args, 1)?);
        let first = dequantize(b, first, pair(b, args, [2, 3])?)?;
        let second = dequantize(b, second, pair(b, args, [4, 5])?)?;
        let product = b.binary(Operator::MUL_TENSOR, first, second)?;
        finish(b, product, false, Some(pair(b, args, [6, 7])?), b.out(args)?)
    }),
    (Operator::ET_VK_Q8TA_RELU, |b, args| {
        let input = b.arg(args, 0)?;
        let numbers = dequantize(b, input, pair(b, args, [1, 2])?)?;
        finish(b, numbers, true, Some(pair(b, args, [3, 4])?), b.out(args)?)
    }),
    (Operator::ET_VK_Q8TA_PIXEL_SHUFFLE, |b, args| {
        let input = b.arg(args, 0)?;
        let (out, factor) = (b.out(args)?, b.arg(args, 5)?);
        let numbers = dequantize(b, input, pair(b, args, [1, 2])?)?;
        let made = b.info(out)?.with_type(ScalarType::Float);
        let shuffled = b.call(Operator::PIXEL_SHUFFLE, &[numbers, factor], made);
        let [inverse, zero] = pair(b, args, [3, 4])?;
        finish(b, shuffled, false, Some([1.0 / inverse, zero]), out)
    }),
];
