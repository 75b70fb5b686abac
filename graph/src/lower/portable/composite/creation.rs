//! Tensors filled with one value, and sequences.

use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{NewArgs, NewFullArgs, Operator};

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
