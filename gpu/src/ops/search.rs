//! Searches in sorted sequences.

use super::elementwise::{number, rounded};
use super::index::take_each;
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{BucketizeTensorArgs, Operator, SearchsortedArgs};
use torchlet_shaders::{Element, Search, SearchPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::BUCKETIZE_TENSOR, |e, args| {
        let call = BucketizeTensorArgs::of(args)?;
        let (values, sequence) = (e.tensor(call.input)?, e.tensor(call.boundaries)?);
        if sequence.rank() != 1 {
            return Err(Error::Invalid(format!(
                "boundaries: expected 1 dim, found shape {:?}",
                sequence.sizes
            )));
        }
        let right = e.optional_bool(call.right)?.unwrap_or(false);
        among(e, args, [&sequence, &values], right)
    }),
    operator(Operator::SEARCHSORTED_TENSOR, |e, args| {
        let call = SearchsortedArgs::of(args)?;
        let (sequence, values) = (e.tensor(call.sorted_sequence)?, e.tensor(call.input)?);
        let right = goes_right(e, args)?;
        let sequence = in_order(e, args, sequence)?;
        among(e, args, [&sequence, &values], right)
    }),
    operator(Operator::SEARCHSORTED_SCALAR, |e, args| {
        let call = SearchsortedArgs::of(args)?;
        let (sequence, argument) = (e.tensor(call.sorted_sequence)?, call.input);
        let right = goes_right(e, args)?;
        if let Ok(number) = e.int(argument)
            && !has(e.scalar_type(&sequence), number)
        {
            return Err(Error::unsupported(format!(
                "a search for {number} in a sequence whose type cannot represent it"
            )));
        }
        let value = rounded(e, sequence.value, e.float(argument)?)?;
        let value = number(e, &sequence, argument, value)?;
        let value = Operand { sizes: Vec::new(), ..value };
        let sequence = in_order(e, args, sequence)?;
        among(e, args, [&sequence, &value], right)
    }),
];

/// Whether a type can represent the integer. PyTorch would truncate the integer otherwise.
fn has(scalar_type: Option<ScalarType>, number: i64) -> bool {
    match scalar_type {
        Some(ScalarType::Byte) => u8::try_from(number).is_ok(),
        Some(ScalarType::Char) => i8::try_from(number).is_ok(),
        Some(ScalarType::Short) => i16::try_from(number).is_ok(),
        Some(ScalarType::Int) => i32::try_from(number).is_ok(),
        _ => true,
    }
}

/// Whether the result is the index after equal elements (`right`), instead of before them.
fn goes_right(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<bool, Error> {
    let call = SearchsortedArgs::of(args)?;
    let right = e.optional_bool(call.right)?.unwrap_or(false);
    let side = e.optional_string(call.side)?;
    match side {
        None => Ok(right),
        Some("right") => Ok(true),
        Some("left") if !right => Ok(false),
        Some(side) => {
            Err(Error::Invalid(format!("side '{side}' is unknown or contradicts right = {right}")))
        }
    }
}

/// Sorts a sequence by the sorter argument, if the call has one.
fn in_order(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    sequence: Operand,
) -> Result<Operand, Error> {
    let places = e.optional_tensor(SearchsortedArgs::of(args)?.sorter)?;
    let Some(places) = places else { return Ok(sequence) };
    if places.element != Element::I32 || places.sizes != sequence.sizes {
        let (element, places, sequence) = (places.element, &places.sizes, &sequence.sizes);
        return Err(Error::Invalid(format!(
            "sorter: expected int32 or int64 of shape {sequence:?}, found {element:?} of shape \
             {places:?}"
        )));
    }
    let sorted = e.temporary(sequence.element, &sequence.sizes)?;
    take_each(e, &sequence, &places, sequence.rank().saturating_sub(1), &sorted)?;
    Ok(sorted)
}

/// Emits a search for each value, in the row of the sequence that corresponds to the value's row,
/// or in the only row.
fn among(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    [sequence, values]: [&Operand; 2],
    right: bool,
) -> Result<(), Error> {
    let mismatch = || {
        let (values, sequence) = (&values.sizes, &sequence.sizes);
        Error::Invalid(format!(
            "values of shape {values:?} do not match sequence shape {sequence:?}"
        ))
    };
    let (count, outer) = sequence.sizes.split_last().ok_or_else(mismatch)?;
    let row = match (outer.is_empty(), values.sizes.split_last()) {
        (true, _) => values.numel(),
        (false, Some((row, rows))) if rows == outer => *row,
        _ => return Err(mismatch()),
    };
    let is_number = values.rank() == 0;
    if sequence.element.is_floating() != values.element.is_floating() && !is_number {
        return Err(Error::unsupported(format!(
            "a search for values of type {:?} in a sequence of type {:?}",
            values.element, sequence.element
        )));
    }
    let out = e.out(args)?;
    let out = e.resize(out.id, &values.sizes)?;
    if out.element != Element::I32 {
        return Err(Error::Invalid(format!(
            "output: expected int32 or int64, found {:?}",
            out.element
        )));
    }
    let push = SearchPush {
        numel: u32_of(out.numel())?,
        count: u32_of(*count)?,
        row: u32_of(row.max(1))?,
    };
    u32_of(sequence.numel())?;
    let pipeline = Search { sequence: sequence.element, values: values.element, right };
    let accesses = [read(sequence.id), read(values.id), write(out.id)];
    e.dispatch_along_x(&pipeline, accesses, &push, out.numel())
}
