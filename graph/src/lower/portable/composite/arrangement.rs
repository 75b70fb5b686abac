//! Rearrangements of elements: splits, rotations, broadcasts, selections.

use super::creation::MAX_SEQUENCE;
use super::linear::broadcast;
use super::shape::{raised, sizes_of, split_at};
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::views::split_dim;
use crate::operators::{
    CombinationsArgs, FftShiftArgs, Operator, Rot90Args, StackedArgs, TakeArgs,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ATLEAST_1D, |b, args| at_least(b, args, 1)),
    (Operator::ATLEAST_1D_SEQUENCE, |b, args| all_at_least(b, args, 1)),
    (Operator::ATLEAST_2D, |b, args| at_least(b, args, 2)),
    (Operator::ATLEAST_2D_SEQUENCE, |b, args| all_at_least(b, args, 2)),
    (Operator::ATLEAST_3D, |b, args| at_least(b, args, 3)),
    (Operator::ATLEAST_3D_SEQUENCE, |b, args| all_at_least(b, args, 3)),
    (Operator::BROADCAST_TENSORS, broadcast_tensors),
    (Operator::CARTESIAN_PROD, cartesian_prod),
    (Operator::COMBINATIONS, combinations),
    (Operator::DSPLIT_ARRAY, |b, args| split(b, args, Operator::DSPLIT_ARRAY)),
    (Operator::DSPLIT_INT, |b, args| split(b, args, Operator::DSPLIT_INT)),
    (Operator::FFT_FFTSHIFT, |b, args| shift(b, args, |size| size / 2)),
    (Operator::FFT_IFFTSHIFT, |b, args| shift(b, args, |size| size.div_ceil(2))),
    (Operator::FLIPLR, |b, args| flip(b, args, 1)),
    (Operator::FLIPUD, |b, args| flip(b, args, 0)),
    (Operator::HSPLIT_ARRAY, |b, args| split(b, args, Operator::HSPLIT_ARRAY)),
    (Operator::HSPLIT_INT, |b, args| split(b, args, Operator::HSPLIT_INT)),
    (Operator::ROT90, rot90),
    (Operator::TAKE, take),
    (Operator::VSPLIT_ARRAY, |b, args| split(b, args, Operator::VSPLIT_ARRAY)),
    (Operator::VSPLIT_INT, |b, args| split(b, args, Operator::VSPLIT_INT)),
    (Operator::WHERE, nonzero_indices),
];

/// The members of a list of tensors.
pub(super) fn members(b: &Builder<'_, '_>, list: ValueId) -> Result<Vec<ValueId>, Error> {
    Ok(match b.value(list)? {
        Value::List(items) => items.clone(),
        _ => vec![list],
    })
}

fn at_least(b: &mut Builder<'_, '_>, args: &[ValueId], rank: usize) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let value = raised(b, input, rank)?;
    if value == input { b.stand_in(input, out) } else { b.finish_with(value, out) }
}

fn all_at_least(b: &mut Builder<'_, '_>, args: &[ValueId], rank: usize) -> Result<(), Error> {
    let call = StackedArgs::of(args)?;
    for (tensor, out) in members(b, call.tensors)?.into_iter().zip(b.outs(args)?) {
        at_least(b, &[tensor, out], rank)?;
    }
    Ok(())
}

fn broadcast_tensors(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = StackedArgs::of(args)?;
    let tensors = members(b, call.tensors)?;
    let mut sizes = Vec::new();
    for tensor in &tensors {
        sizes = broadcast(&sizes, &sizes_of(b, *tensor)?);
    }
    for (tensor, out) in tensors.into_iter().zip(b.outs(args)?) {
        let (list, no) = (b.sizes(&sizes)?, b.push(Value::Bool(false)));
        b.call_into(Operator::EXPAND_COPY, &[tensor, list, no], out);
    }
    Ok(())
}

/// All combinations of one element of each vector.
fn cartesian_prod(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = StackedArgs::of(args)?;
    let tensors = members(b, call.tensors)?;
    if let [only] = tensors[..] {
        return b.stand_in(only, call.out);
    }
    let mut sizes = Vec::new();
    for tensor in &tensors {
        sizes.push(b.static_info(*tensor, "cartesian_prod")?.size(0));
    }
    let count = sizes.iter().fold(1usize, |count, size| count.saturating_mul(*size));
    let mut columns = Vec::new();
    for (at, tensor) in tensors.iter().enumerate() {
        let mut line = vec![1; sizes.len()];
        if let (Some(slot), Some(size)) = (line.get_mut(at), sizes.get(at)) {
            *slot = *size;
        }
        let line = b.view_known(*tensor, &line)?;
        let grid = b.expand(line, &sizes)?;
        columns.push(b.view_known(grid, &[count, 1])?);
    }
    let table = b.cat(&columns, 1)?;
    b.finish_with(table, call.out)
}

/// All combinations of `r` elements of a vector, in the order of their indices.
fn combinations(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CombinationsArgs::of(args)?;
    let size = b.static_info(call.input, "combinations")?.size(0);
    let r = b.optional(call.r).map_or(Ok(2), |r| b.int(r))?;
    let repeats = b.truth(call.with_replacement)?;
    let made = b.info(call.out)?;
    let expected = made.sizes.iter().fold(1usize, |count, size| count.saturating_mul(*size));
    let r = usize::try_from(r).ok().filter(|r| *r > 0 && *r <= MAX_SEQUENCE);
    let r = r.ok_or_else(|| Error::unsupported("combinations of no elements"))?;
    if expected > MAX_SEQUENCE {
        return Err(Error::unsupported("combinations with more than 2^24 elements"));
    }
    b.spend(expected.saturating_add(r).saturating_mul(24))?;
    let step = usize::from(!repeats);
    let mut row: Vec<usize> = (0..r).map(|at| at * step).collect();
    let (mut indices, mut is_last) = (Vec::new(), row.last().is_none_or(|last| *last >= size));
    while !is_last && indices.len() < expected {
        indices.extend(row.iter().map(|index| *index as i64));
        // The last index that can grow; those behind it start over.
        let limit = |at: usize| size.saturating_sub((r - at) * step + usize::from(repeats));
        match (0..r).rev().find(|at| row.get(*at).is_some_and(|index| *index < limit(*at))) {
            Some(grows) => {
                let next = row.get(grows).map_or(0, |index| index + 1);
                for (behind, index) in row.iter_mut().skip(grows).enumerate() {
                    *index = next + behind * step;
                }
            }
            None => is_last = true,
        }
    }
    let bytes = indices.iter().flat_map(|index: &i64| index.to_le_bytes()).collect();
    let index = b.constant(ScalarType::Long, vec![indices.len()], bytes)?;
    let zero = b.new_int(0);
    let info = b.info(call.input)?.with_sizes(vec![indices.len()]);
    let chosen = b.call(Operator::INDEX_SELECT, &[call.input, zero, index], info);
    let table = b.view_known(chosen, &[indices.len() / r, r])?;
    b.finish_with(table, call.out)
}

/// Splits the dim that a name such as `hsplit` means.
fn split(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let (input, _) = b.ends(args)?;
    let rank = b.info(input)?.rank();
    let dim = split_dim(operator, rank).filter(|dim| *dim < rank);
    let dim = dim.ok_or_else(|| Error::Invalid(format!("a split of a tensor of {rank} dims")))?;
    split_at(b, input, dim, args)
}

/// Rotates dims, each by a number of positions that depends on its size.
fn shift(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    count: fn(usize) -> usize,
) -> Result<(), Error> {
    let call = FftShiftArgs::of(args)?;
    let info = b.static_info(call.input, "a shift of frequencies")?;
    let dims: Vec<i64> = match b.optional(call.dim) {
        Some(dims) => b.ints(dims)?,
        None => (0..info.rank() as i64).collect(),
    };
    let mut shifts = Vec::new();
    for dim in &dims {
        shifts.push(count(info.size(info.dim(*dim)?)) as i64);
    }
    let (shifts, dims) = (b.new_ints(&shifts), b.new_ints(&dims));
    b.call_into(Operator::ROLL, &[call.input, shifts, dims], call.out);
    Ok(())
}

fn flip(b: &mut Builder<'_, '_>, args: &[ValueId], dim: i64) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let dims = b.new_ints(&[dim]);
    b.call_into(Operator::FLIP, &[input, dims], out);
    Ok(())
}

/// Rotates the plane of two dims by multiples of 90 degrees.
fn rot90(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Rot90Args::of(args)?;
    let (turns, dims) = (b.optional(call.k).map_or(Ok(1), |k| b.int(k))?, b.optional(call.dims));
    let dims = dims.map_or(Ok(vec![0, 1]), |dims| b.ints(dims))?;
    let [first, second] = dims[..] else {
        return Err(Error::Invalid(format!("rot90 of {} dims, expected 2", dims.len())));
    };
    let (flipped, transposes) = match turns.rem_euclid(4) {
        1 => (vec![second], true),
        2 => (vec![first, second], false),
        3 => (vec![first], true),
        _ => (vec![], false),
    };
    let info: Info = b.info(call.input)?;
    let mut value = call.input;
    if !flipped.is_empty() {
        let dims = b.new_ints(&flipped);
        value = b.call(Operator::FLIP, &[value, dims], info.clone());
    }
    if transposes {
        let (one, other) = (info.dim(first)?, info.dim(second)?);
        let mut order: Vec<usize> = (0..info.rank()).collect();
        order.swap(one, other);
        value = b.permute(value, &order)?;
    }
    b.finish_with(value, call.out)
}

/// Elements of the flattened tensor.
fn take(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = TakeArgs::of(args)?;
    let flat = b.flat(call.input)?;
    let list = b.push(Value::List(vec![call.index]));
    b.call_into(Operator::INDEX_TENSOR, &[flat, list], call.out);
    Ok(())
}

/// Indices of the elements that are not zero, one vector for each dim.
fn nonzero_indices(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (input, _) = b.ends(args)?;
    let input = raised(b, input, 1)?;
    let info = b.info(input)?;
    let outs = b.outs(args)?;
    if outs.len() != info.rank() {
        return Err(Error::Invalid(format!("{} outputs for {} dims", outs.len(), info.rank())));
    }
    let rows = info.sizes.iter().fold(1usize, |rows, size| rows.saturating_mul(*size));
    let made =
        Info { scalar_type: ScalarType::Long, sizes: vec![rows, info.rank()], dynamic: true };
    let table = b.call(Operator::NONZERO, &[input], made);
    for (dim, out) in outs.into_iter().enumerate() {
        let (one, dim) = (b.new_int(1), b.new_int(dim as i64));
        b.call_into(Operator::SELECT_COPY_INT, &[table, one, dim], out);
    }
    Ok(())
}
