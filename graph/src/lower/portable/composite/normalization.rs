//! Norms and softmax.

use super::{Builder, Rule, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    CompositeBatchNormArgs, CompositeGroupNormArgs, CompositeLayerNormArgs, CompositeRmsNormArgs,
    InstanceNormArgs, Operator, SoftmaxIntArgs,
};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::BATCH_NORM, batch_norm),
    (Operator::GROUP_NORM, |b, args| {
        let call = CompositeGroupNormArgs::of(args)?;
        let eps = b.optional_number(call.eps)?.unwrap_or(EPS);
        let groups = b.int(call.num_groups)?;
        let affine = [b.optional(call.weight), b.optional(call.bias)];
        group_norm(b, call.input, affine, groups, eps, call.out)
    }),
    (Operator::INSTANCE_NORM, instance_norm),
    (Operator::LAYER_NORM, layer_norm),
    (Operator::RMS_NORM, rms_norm),
    (Operator::SAFE_SOFTMAX, safe_softmax),
    (Operator::SOFTMAX_INT, |b, args| softmax(b, args, Operator::SOFTMAX)),
    (Operator::LOG_SOFTMAX_INT, |b, args| softmax(b, args, Operator::LOG_SOFTMAX)),
];

/// Default of norms.
const EPS: f64 = 1e-5;

fn or_none(b: &mut Builder<'_, '_>, id: Option<ValueId>) -> ValueId {
    match id {
        Some(id) => id,
        None => b.none(),
    }
}

/// Batch norm with the running statistics, or with those of the batch if there are none.
fn batch_norm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CompositeBatchNormArgs::of(args)?;
    let info = b.info(call.input)?;
    let statistics = b.optional(call.running_mean).zip(b.optional(call.running_var));
    let is_training = b.truth(call.training)?;
    let channels = info.size(1);
    let inputs = [call.input, call.weight, call.bias];
    let (operator, rest, saved) = match statistics {
        Some((mean, variance)) if !is_training => {
            let rest = vec![mean, variance, call.momentum, call.eps];
            (Operator::NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, rest, 0)
        }
        None => {
            let training = b.push(Value::Bool(true));
            let rest = vec![training, call.momentum, call.eps];
            (Operator::NATIVE_BATCH_NORM_LEGIT_NO_STATS, rest, channels)
        }
        Some(_) => {
            return Err(Error::unsupported(
                "batch norm that updates its statistics; call `eval()` before the export",
            ));
        }
    };
    let mut outs = vec![call.out];
    for _ in 0..2 {
        let info = info.with_sizes(vec![saved]).with_type(ScalarType::Float);
        outs.push(b.new_tensor(super::Info { dynamic: false, ..info }));
    }
    let list = b.push(Value::List(outs));
    b.call_into(operator, &[&inputs[..], &rest].concat(), list);
    Ok(())
}

fn group_norm(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    affine: [Option<ValueId>; 2],
    groups: i64,
    eps: f64,
    out: ValueId,
) -> Result<(), Error> {
    let info = b.info(input)?;
    let [weight, bias] = affine.map(|id| or_none(b, id));
    let (batch, channels) = (b.size(input, 0)?, b.known(info.size(1)));
    let mut area = b.known(1);
    for dim in 2..info.rank() {
        let size = b.size(input, dim)?;
        let bound = area.bound.saturating_mul(size.bound);
        let value = match (b.value(area.value)?, b.value(size.value)?) {
            (Value::Int(_), Value::Int(_)) => b.new_int(bound as i64),
            (Value::Int(1), _) => size.value,
            _ => {
                let product = b.push(Value::SymInt(bound as i64));
                b.call_into(Operator::SYM_MUL, &[area.value, size.value], product);
                product
            }
        };
        area = Size { bound, value };
    }
    let (count, eps) = (b.new_int(groups), b.push(Value::Double(eps)));
    let saved = vec![info.size(0), usize::try_from(groups).unwrap_or(0)];
    let mut outs = vec![out];
    for _ in 0..2 {
        outs.push(b.new_tensor(info.with_sizes(saved.clone())));
    }
    let list = b.push(Value::List(outs));
    let inputs = [input, weight, bias, batch.value, channels.value, area.value, count, eps];
    b.call_into(Operator::NATIVE_GROUP_NORM, &inputs, list);
    Ok(())
}

/// Instance norm is group norm with one channel per group.
fn instance_norm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = InstanceNormArgs::of(args)?;
    let info = b.info(call.input)?;
    let affine = [b.optional(call.weight), b.optional(call.bias)];
    if b.truth(call.use_input_stats)? {
        if b.optional(call.running_mean).is_some() {
            return Err(Error::unsupported("instance norm that updates its statistics"));
        }
        let eps = b.number(call.eps)?;
        return group_norm(b, call.input, affine, info.size(1) as i64, eps, call.out);
    }
    let no = b.push(Value::Bool(false));
    let inputs = [
        call.input,
        call.weight,
        call.bias,
        call.running_mean,
        call.running_var,
        no,
        call.momentum,
        call.eps,
        no,
        call.out,
    ];
    batch_norm(b, &inputs)
}

fn layer_norm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CompositeLayerNormArgs::of(args)?;
    let info = b.info(call.input)?;
    let (weight, bias) = (b.optional(call.weight), b.optional(call.bias));
    let [weight, bias] = [weight, bias].map(|id| or_none(b, id));
    let eps = b.optional_number(call.eps)?.unwrap_or(EPS);
    let eps = b.push(Value::Double(eps));
    let normed = b.ints(call.normalized_shape)?.len();
    let outer = info.rank().saturating_sub(normed);
    let saved = info.sizes.iter().enumerate();
    let saved: Vec<usize> = saved.map(|(dim, size)| if dim < outer { *size } else { 1 }).collect();
    let mut outs = vec![call.out];
    for _ in 0..2 {
        outs.push(b.new_tensor(info.with_sizes(saved.clone())));
    }
    let list = b.push(Value::List(outs));
    let inputs = [call.input, call.normalized_shape, weight, bias, eps];
    b.call_into(Operator::NATIVE_LAYER_NORM, &inputs, list);
    Ok(())
}

/// `x * rsqrt(mean(x²) + eps) * weight`, in `f32` or wider.
fn rms_norm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CompositeRmsNormArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let wide = match info.scalar_type {
        ScalarType::Double => ScalarType::Double,
        _ => ScalarType::Float,
    };
    // The default is the spacing of values at 1 in the type that the norm is computed in.
    let default = match wide {
        ScalarType::Double => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let eps = b.optional_number(call.eps)?.unwrap_or(default);
    let normed = b.ints(call.normalized_shape)?.len();
    let dims: Vec<usize> = (info.rank().saturating_sub(normed)..info.rank()).collect();
    let x = b.cast(input, wide)?;
    let square = b.binary(Operator::MUL_TENSOR, x, x)?;
    let mean = b.reduce(Operator::MEAN_DIM, square, &dims)?;
    let raised = b.with_number(Operator::ADD_SCALAR, mean, eps)?;
    let inverse = b.unary(Operator::RSQRT, raised)?;
    let mut normal = b.binary(Operator::MUL_TENSOR, x, inverse)?;
    if let Some(weight) = b.optional(call.weight) {
        let weight = b.cast(weight, wide)?;
        normal = b.binary(Operator::MUL_TENSOR, normal, weight)?;
    }
    b.finish_with(normal, call.out)
}

fn softmax(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let call = SoftmaxIntArgs::of(args)?;
    let out = b.info(call.out)?.scalar_type;
    let input = b.cast(call.input, out)?;
    let no = b.push(Value::Bool(false));
    b.call_into(operator, &[input, call.dim, no], call.out);
    Ok(())
}

/// A softmax whose rows of minus infinity are zeros.
fn safe_softmax(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = SoftmaxIntArgs::of(args)?;
    let out = b.info(call.out)?.scalar_type;
    let (input, no) = (b.cast(call.input, out)?, b.push(Value::Bool(false)));
    let info = b.info(input)?;
    let dim = info.dim(b.int(call.dim)?)?;
    let weights = b.call(Operator::SOFTMAX, &[input, call.dim, no], info);
    let most = b.reduce(Operator::AMAX, input, &[dim])?;
    let is_hidden = b.compared(Operator::EQ_SCALAR, most, f64::NEG_INFINITY)?;
    let weights = b.masked(weights, is_hidden, 0.0)?;
    b.finish_with(weights, call.out)
}
