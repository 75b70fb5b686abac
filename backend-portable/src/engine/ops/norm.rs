//! Batch norms that no layer before could take into its weights: a factor and an addend for each
//! channel.

use super::elementwise::{Binary, broadcasting};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::Constant;
use crate::engine::view::View;
use std::vec::Vec;
use torchlet_graph::graph::{Value, ValueId};
use torchlet_graph::operators::BatchNormArgs;

/// `_native_batch_norm_legit_no_training(self, weight, bias, mean, variance, momentum, epsilon)`
pub(super) fn batch_norm(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = BatchNormArgs::of(args)?;
    let out = call.out;
    let [out, statistics @ ..] = builder.members(out) else {
        return Err("a call without outputs".into());
    };
    if statistics.iter().any(|id| builder.is_taken(*id)) {
        return Err("the engine's batch norm gives no statistics".into());
    }
    let input = builder.view(call.input)?;
    let &[_, channels, ..] = &input.sizes[..] else {
        return Err("a tensor without channels".into());
    };
    let mut parameter = |id| match builder.value(id) {
        Value::None => Ok(None),
        _ => builder.constant(id).map(Some),
    };
    let (weight, bias) = (parameter(call.weight)?, parameter(call.bias)?);
    let (mean, variance) = (parameter(call.running_mean)?, parameter(call.running_var)?);
    let epsilon = builder.number(call.eps)?;
    // Elements that are only asked for are not there.
    let element = |parameter: &Option<Option<Constant<'_>>>, channel: usize, absent: f64| {
        let data = parameter.as_ref().and_then(Option::as_ref);
        data.and_then(|data| data.as_slice().get(channel)).map_or(absent, |it| f64::from(*it))
    };
    let affine = (0..channels).map(|channel| {
        let deviation = libm::sqrt(element(&variance, channel, 1.0) + epsilon);
        let factor = (element(&weight, channel, 1.0) / deviation) as f32;
        // Of the factor that is multiplied with: where means are far from zero, what it lacks would
        // be seen.
        let mean = element(&mean, channel, 0.0) * f64::from(factor);
        (factor, (element(&bias, channel, 0.0) - mean) as f32)
    });
    let (factors, addends): (Vec<f32>, Vec<f32>) = affine.unzip();
    let mut sizes = std::vec![1; input.sizes.len() - 1];
    if let Some(first) = sizes.first_mut() {
        *first = channels;
    }
    let mut result = input;
    for (function, numbers) in [(Binary::Mul, factors), (Binary::Add, addends)] {
        let numbers: View = builder.made(&sizes, &numbers)?;
        result = broadcasting(builder, &result, &numbers, function)?;
    }
    builder.define(*out, result)
}
