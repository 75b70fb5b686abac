//! Lowers operators for which blobs and portable kernels differ in the dtype or the number of
//! results.

use super::Rule;
use super::builder::Builder;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{Operator, PowArgs};
use torchlet_core::ScalarType;

pub(super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ARGMAX, |b, args| long_result(b, args, Operator::ARGMAX)),
    (Operator::ARGMIN, |b, args| long_result(b, args, Operator::ARGMIN)),
    (Operator::MAX_POOL2D, max_pool),
    (Operator::MAX_POOL2D_WITH_INDICES, max_pool),
    (Operator::POW_TENSOR_SCALAR, |b, args| {
        let call = PowArgs::of(args)?;
        let (input, info) = b.tensor(call.input)?;
        let out = b.out(args)?;
        let made = b.info(out)?.scalar_type;
        // Power of an integer tensor with a floating-point result. A whole exponent is an integer
        // in blobs.
        let input = if made.is_floating() && !info.scalar_type.is_floating() {
            b.cast(input, made)?
        } else {
            input
        };
        let exponent = call.exponent;
        b.call_into(Operator::POW_TENSOR_SCALAR, &[input, exponent], out);
        Ok(())
    }),
];

pub(super) fn inputs(args: &[ValueId]) -> &[ValueId] {
    args.split_last().map_or(&[][..], |(_, inputs)| inputs)
}

/// An operator whose kernel returns 64-bit integers.
fn long_result(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let out = b.out(args)?;
    let made = b.info(out)?.with_type(ScalarType::Long);
    let found = b.call(operator, inputs(args), made);
    b.finish_with(found, out)
}

/// Max pooling with indices. The graph may lack the indices output.
fn max_pool(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let outs = b.outs(args)?;
    let first =
        outs.first().copied().ok_or_else(|| Error::invalid("the call has no output tensor"))?;
    let made = b.info(first)?;
    let indices = b.new_tensor(made.with_type(ScalarType::Long));
    let list = b.push(Value::List([first, indices].to_vec()));
    b.call_into(Operator::MAX_POOL2D_WITH_INDICES, inputs(args), list);
    match outs.get(1) {
        // Some exporters give unused indices an empty shape.
        Some(out) if b.info(*out)?.sizes == made.sizes => b.finish_with(indices, *out),
        _ => Ok(()),
    }
}
