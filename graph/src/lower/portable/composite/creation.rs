//! Tensors filled with one value, and sequences.

use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{LinspaceArgs, NewArgs, NewFullArgs, Operator};
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ARANGE_START, |b, args| {
        let out = b.out(args)?;
        let (Some(start), Some(end)) = (args.first(), args.get(1)) else {
            return Err(Error::invalid("arange: expected a start and an end"));
        };
        let (one, none) = (b.new_int(1), b.none());
        let inputs = [*start, *end, one, none, none, none, none];
        b.call_into(Operator::ARANGE_START_STEP, &inputs, out);
        Ok(())
    }),
    (Operator::EMPTY_LIKE, |b, args| {
        let (input, out) = b.ends(args)?;
        let (zero, none) = (b.new_int(0), b.none());
        b.call_into(Operator::FULL_LIKE, &[input, zero, none, none, none, none, none], out);
        Ok(())
    }),
    (Operator::LINSPACE, linspace),
    (Operator::NEW_EMPTY, |b, args| filled(b, args, 0)),
    (Operator::NEW_FULL, |b, args| {
        let call = NewFullArgs::of(args)?;
        full(b, call.size, call.fill_value, call.out)
    }),
    (Operator::NEW_ONES, |b, args| filled(b, args, 1)),
    (Operator::NEW_ZEROS, |b, args| filled(b, args, 0)),
];

fn filled(b: &mut Builder<'_, '_>, args: &[ValueId], number: i64) -> Result<(), Error> {
    let call = NewArgs::of(args)?;
    let number = b.new_int(number);
    full(b, call.size, number, call.out)
}

/// The output determines the dtype.
fn full(
    b: &mut Builder<'_, '_>,
    size: ValueId,
    number: ValueId,
    out: ValueId,
) -> Result<(), Error> {
    let none = b.none();
    b.call_into(Operator::FULL, &[size, number, none, none, none, none], out);
    Ok(())
}

/// `steps` values from `start` to `end`. As in PyTorch, the second half counts down from the end.
fn linspace(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LinspaceArgs::of(args)?;
    let (start, end) = (b.number(call.start)?, b.number(call.end)?);
    let steps = usize::try_from(b.int(call.steps)?).unwrap_or(0);
    if steps > MAX_SEQUENCE {
        return Err(Error::unsupported("linspace with more than 2^24 steps"));
    }
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    let is_first = |at: usize| at < steps / 2 || steps == 1;
    // PyTorch computes in the dtype of the output.
    let (scalar_type, bytes) = if b.info(call.out)?.scalar_type == ScalarType::Double {
        let value = |at: usize| match is_first(at) {
            true => start + step * at as f64,
            false => end - step * (steps - 1 - at) as f64,
        };
        (ScalarType::Double, (0..steps).flat_map(|at| value(at).to_le_bytes()).collect())
    } else {
        let value = |at: usize| match is_first(at) {
            true => start as f32 + step as f32 * at as f32,
            false => end as f32 - step as f32 * (steps - 1 - at) as f32,
        };
        (ScalarType::Float, (0..steps).flat_map(|at| value(at).to_le_bytes()).collect())
    };
    let values = b.constant(scalar_type, [steps].to_vec(), bytes)?;
    b.finish_with(values, call.out)
}

/// Maximum number of elements of a sequence that becomes a constant.
pub(super) const MAX_SEQUENCE: usize = 1 << 24;
