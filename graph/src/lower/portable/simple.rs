//! Lowers operators that are equivalent to one or a few others.

use super::Rule;
use super::builder::{Builder, Info, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    GridPriorsArgs, HardshrinkArgs, Operator, RepeatInterleaveArgs, RmsNormArgs,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ET_VK_PREPACK, |b, args| {
        let (input, out) = b.ends(args)?;
        b.stand_in(input, out)
    }),
    (Operator::PERMUTE, |b, args| renamed(b, args, Operator::PERMUTE_COPY)),
    (Operator::SELECT_INT, |b, args| renamed(b, args, Operator::SELECT_COPY_INT)),
    (Operator::SLICE_TENSOR, |b, args| renamed(b, args, Operator::SLICE_COPY_TENSOR)),
    (Operator::RELU6, |b, args| {
        let (input, out) = b.ends(args)?;
        let clamped = b.clamp(input, Some(0.0), Some(6.0))?;
        b.finish_with(clamped, out)
    }),
    (Operator::HARDSHRINK, |b, args| {
        let call = HardshrinkArgs::of(args)?;
        let input = call.input;
        let lambda = b.optional_number(call.lambd)?.unwrap_or(0.5);
        // Zero where the absolute value is at most lambda, so that NaN stays.
        let size = b.unary(Operator::ABS, input)?;
        let small = b.compared(Operator::LE_SCALAR, size, lambda)?;
        let rest = b.masked(input, small, 0.0)?;
        b.finish_with(rest, b.out(args)?)
    }),
    (Operator::ONES_LIKE, |b, args| filled_like(b, args, 1)),
    (Operator::ZEROS_LIKE, |b, args| filled_like(b, args, 0)),
    (Operator::REPEAT_INTERLEAVE_SELF_INT, repeat_interleave),
    (Operator::ET_VK_GRID_PRIORS, grid_priors),
    (Operator::ET_VK_RMS_NORM, rms_norm),
    (Operator::RMS_NORM_PROLOGUE, rms_norm),
];

fn renamed(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let out = b.out(args)?;
    b.call_into(operator, args.split_last().map_or(&[][..], |(_, inputs)| inputs), out);
    Ok(())
}

fn filled_like(b: &mut Builder<'_, '_>, args: &[ValueId], number: i64) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let (number, none) = (b.new_int(number), b.none());
    b.call_into(Operator::FULL_LIKE, &[input, number, none, none, none, none, none], out);
    Ok(())
}

/// Repeats each element of a dim.
fn repeat_interleave(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = RepeatInterleaveArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let repeats = call.repeats;
    let dim = match b.optional(call.dim) {
        Some(dim) => info.dim(b.int(dim)?)?,
        None if info.rank() <= 1 => 0,
        None => {
            return Err(Error::Unsupported(format!(
                "repeat_interleave without a dim for an input of {} dims",
                info.rank()
            )));
        }
    };
    let count = match b.value(repeats)? {
        Value::Int(count) => usize::try_from(*count),
        _ => {
            return Err(Error::unsupported(
                "repeat_interleave with repeats that are not a constant integer",
            ));
        }
    };
    let count = count.map_err(|_| Error::invalid("repeats: expected at least 0"))?;
    let wide = b.unsqueeze(input, dim + 1)?;
    let mut times = vec![1; info.rank() + 1];
    if let Some(slot) = times.get_mut(dim + 1) {
        *slot = count as i64;
    }
    let mut sizes = b.info(wide)?.sizes;
    if let Some(slot) = sizes.get_mut(dim + 1) {
        *slot = count;
    }
    let times = b.new_ints(&times);
    let repeated = b.call(Operator::REPEAT, &[wide, times], info.with_sizes(sizes));
    let mut shape = Vec::new();
    for own in 0..info.rank() {
        let size = b.size(input, own)?;
        shape.push(if own == dim {
            let value = b.product(size.value, count)?;
            Size { bound: size.bound.saturating_mul(count), value }
        } else {
            size
        });
    }
    let flat = b.view(repeated, &shape)?;
    b.finish_with(flat, b.out(args)?)
}

/// Coordinates of the elements of a plane in pixels.
fn grid_priors(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = GridPriorsArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let (stride, offset) = (b.number(call.stride)?, b.number(call.offset)?);
    let Some(row) = info.rank().checked_sub(2) else {
        return Err(Error::Invalid(format!(
            "input: expected at least 2 dims, found shape {:?}",
            info.sizes
        )));
    };
    let (height, width) = (b.size(input, row)?, b.size(input, row + 1)?);
    let mut places = Vec::new();
    for (size, dim) in [(width, 0), (height, 1)] {
        let zero = b.new_int(0);
        let range = b.range(zero, size.value, size.bound)?;
        let range = b.cast(range, ScalarType::Float)?;
        let moved = b.with_number(Operator::ADD_SCALAR, range, offset)?;
        let scaled = b.with_number(Operator::MUL_SCALAR, moved, stride)?;
        // Expand to a plane.
        let line = b.unsqueeze(scaled, dim)?;
        let list = b.sizes(&[height, width])?;
        let no = b.push(Value::Bool(false));
        let made = Info {
            scalar_type: ScalarType::Float,
            sizes: [height.bound, width.bound].to_vec(),
            dynamic: info.dynamic,
        };
        let plane = b.call(Operator::EXPAND_COPY, &[line, list, no], made);
        places.push(b.unsqueeze(plane, 2)?);
    }
    let pairs = b.cat(&places, 2)?;
    let all = b.new_int(-1);
    let bound = height.bound.saturating_mul(width.bound);
    let two = b.known(2);
    let list = b.view(pairs, &[Size { bound, value: all }, two])?;
    b.finish_with(list, b.out(args)?)
}

fn rms_norm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = RmsNormArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let weight = call.weight;
    let epsilon = b.number(call.eps)?;
    let Some(last) = info.rank().checked_sub(1) else {
        return Err(Error::invalid("input: expected at least 1 dim, found a scalar"));
    };
    let wide = b.cast(input, ScalarType::Float)?;
    let square = b.binary(Operator::MUL_TENSOR, wide, wide)?;
    let mean = b.reduce(Operator::MEAN_DIM, square, &[last])?;
    let raised = b.with_number(Operator::ADD_SCALAR, mean, epsilon)?;
    let inverse = b.unary(Operator::RSQRT, raised)?;
    let normal = b.binary(Operator::MUL_TENSOR, wide, inverse)?;
    let weight = b.cast(weight, ScalarType::Float)?;
    let scaled = b.binary(Operator::MUL_TENSOR, normal, weight)?;
    b.finish_with(scaled, b.out(args)?)
}
