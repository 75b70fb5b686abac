//! Batch norm as a scale and an offset per channel, if it could not be folded into the preceding
//! layer.

use super::elementwise::{Binary, broadcasting};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::Constant;
use crate::engine::view::View;
use std::vec::Vec;
use torchlet_graph::graph::{Value, ValueId};
use torchlet_graph::operators::BatchNormArgs;

/// Lowers `_native_batch_norm_legit_no_training(self, weight, bias, mean,
/// variance, momentum, epsilon)`.
pub(super) fn batch_norm(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = BatchNormArgs::of(args)?;
    let out = call.out;
    let [out, statistics @ ..] = builder.members(out) else {
        return Err("expected at least one output, found none".into());
    };
    if statistics.iter().any(|id| builder.is_taken(*id)) {
        return Err("batch norm with statistics as outputs".into());
    }
    let input = builder.view(call.input)?;
    let &[_, channels, ..] = &input.sizes[..] else {
        return Err(std::format!("input: expected at least 2 dims, found shape {:?}", input.sizes));
    };
    let mut parameter = |id| match builder.value(id) {
        Value::None => Ok(None),
        _ => builder.constant(id).map(Some),
    };
    let (weight, bias) = (parameter(call.weight)?, parameter(call.bias)?);
    let (mean, variance) = (parameter(call.running_mean)?, parameter(call.running_var)?);
    let epsilon = builder.number(call.eps)?;
    // If only support is queried, constants have no elements.
    let element = |parameter: &Option<Option<Constant<'_>>>, channel: usize, absent: f64| {
        let data = parameter.as_ref().and_then(Option::as_ref);
        data.and_then(|data| data.as_slice().get(channel)).map_or(absent, |it| f64::from(*it))
    };
    let affine = (0..channels).map(|channel| {
        let deviation = libm::sqrt(element(&variance, channel, 1.0) + epsilon);
        let factor = (element(&weight, channel, 1.0) / deviation) as f32;
        // Uses the rounded factor, so that means far from zero do not amplify its rounding error.
        let mean = element(&mean, channel, 0.0) * f64::from(factor);
        (factor, (element(&bias, channel, 0.0) - mean) as f32)
    });
    let (factors, addends): (Vec<f32>, Vec<f32>) = affine.unzip();
    let mut sizes = std::vec![1; input.sizes.len() - 1];
    if let Some(first) = sizes.first_mut() {
        *first = channels;
    }
    let mut result = input;
    for (function, values) in [(Binary::Mul, factors), (Binary::Add, addends)] {
        let values: View = builder.made(&sizes, &values)?;
        result = broadcasting(builder, &result, &values, function)?;
    }
    builder.define(*out, result)
}
