//! Operators that create tensors.

use super::{Entry, operator};
use crate::encoder::{Encoder, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    ArangeArgs, ArangeStartStepArgs, FillArgs, FullArgs, FullLikeArgs, OnesArgs, Operator,
    ScalarTensorArgs,
};
use torchlet_shaders::{Fill, FillPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::FULL, |e, args| {
        let call = FullArgs::of(args)?;
        let sizes = e.ints(call.size)?;
        let value = e.float(call.fill_value)?;
        fill(e, args, Some(&sizes), value)
    }),
    operator(Operator::FULL_LIKE, |e, args| {
        let call = FullLikeArgs::of(args)?;
        let value = e.float(call.fill_value)?;
        fill_like(e, args, value)
    }),
    operator(Operator::ZEROS, |e, args| {
        let call = OnesArgs::of(args)?;
        let sizes = e.ints(call.size)?;
        fill(e, args, Some(&sizes), 0.0)
    }),
    operator(Operator::ZEROS_LIKE, |e, args| fill_like(e, args, 0.0)),
    operator(Operator::ONES, |e, args| {
        let call = OnesArgs::of(args)?;
        let sizes = e.ints(call.size)?;
        fill(e, args, Some(&sizes), 1.0)
    }),
    operator(Operator::ONES_LIKE, |e, args| fill_like(e, args, 1.0)),
    operator(Operator::SCALAR_TENSOR, |e, args| {
        let call = ScalarTensorArgs::of(args)?;
        let value = e.float(call.s)?;
        fill(e, args, None, value)
    }),
    operator(Operator::FILL_SCALAR, |e, args| {
        let call = FillArgs::of(args)?;
        let value = e.float(call.value)?;
        fill_like(e, args, value)
    }),
    operator(Operator::ARANGE, |e, args| {
        let call = ArangeArgs::of(args)?;
        let end = e.float(call.end)?;
        count(e, args, 0.0, end, 1.0)
    }),
    operator(Operator::ARANGE_START_STEP, |e, args| {
        let call = ArangeStartStepArgs::of(args)?;
        let start = e.optional_float(call.start)?.unwrap_or(0.0);
        let end = e.float(call.end)?;
        let step = e.optional_float(call.step)?.unwrap_or(1.0);
        count(e, args, start, end, step)
    }),
];

/// Converts sizes to the encoder's type.
fn to_sizes(sizes: &[i64]) -> Result<Vec<usize>, Error> {
    sizes
        .iter()
        .map(|size| {
            usize::try_from(*size)
                .map_err(|_| Error::Invalid(format!("size: expected at least 0, found {size}")))
        })
        .collect()
}

fn fill_like(e: &mut Encoder<'_, '_>, args: &[ValueId], value: f64) -> Result<(), Error> {
    let sizes: Vec<i64> =
        e.tensor(e.ends(args)?.0)?.sizes.iter().map(|size| *size as i64).collect();
    fill(e, args, Some(&sizes), value)
}

fn fill(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    sizes: Option<&[i64]>,
    value: f64,
) -> Result<(), Error> {
    let out = e.out(args)?;
    let sizes = to_sizes(sizes.unwrap_or(&[]))?;
    let out = e.resize(out.id, &sizes)?;
    apply_fill(e, &out, value, 0.0)
}

/// Writes `value + index * step` to all elements.
pub(super) fn apply_fill(
    e: &mut Encoder<'_, '_>,
    out: &Operand,
    value: f64,
    step: f64,
) -> Result<(), Error> {
    let push = FillPush {
        numel: u32_of(out.numel())?,
        value: value as f32,
        value_int: value as i32,
        step: step as f32,
        step_int: step as i32,
    };
    e.dispatch_by_four(&Fill { output: out.element }, [write(out.id)], &push, out.numel())
}

/// Encodes `arange`: a range from `start` to `end` (exclusive).
fn count(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    start: f64,
    end: f64,
    step: f64,
) -> Result<(), Error> {
    if step == 0.0 {
        return Err(Error::invalid("step: expected a nonzero number, found 0"));
    }
    let count = ((end - start) / step).ceil().max(0.0);
    let out = e.out(args)?;
    if count > u32::MAX.into() {
        return Err(Error::unsupported(format!(
            "a range of {count} elements; the limit is 2^32 - 1"
        )));
    }
    let out = e.resize(out.id, &[count as usize])?;
    apply_fill(e, &out, start, step)
}
