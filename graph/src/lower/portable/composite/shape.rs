//! Reshapes, copies, splits and padding.

use super::{Builder, Info, Rule, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    BinaryArgs, ChunkArgs, CompositePadArgs, FlattenArgs, MeshgridArgs, MovedimArgs, NarrowArgs,
    Operator, ReshapeArgs, TensorSplitArgs, UnflattenArgs,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::CHUNK, |b, args| {
        let call = ChunkArgs::of(args)?;
        split(b, call.input, call.dim, args)
    }),
    (Operator::CONTIGUOUS, same),
    (Operator::DROPOUT, |b, args| {
        if b.truth(args.get(2).copied())? {
            return Err(Error::unsupported("dropout of training; call `eval()` before the export"));
        }
        same(b, args)
    }),
    (Operator::EXPAND_AS, |b, args| {
        let call = BinaryArgs::of(args)?;
        let sizes = sizes_of(b, call.other)?;
        let (sizes, no) = (b.sizes(&sizes)?, b.push(Value::Bool(false)));
        b.call_into(Operator::EXPAND_COPY, &[call.input, sizes, no], call.out);
        Ok(())
    }),
    (Operator::FLATTEN, flatten),
    (Operator::MESHGRID, meshgrid),
    (Operator::MOVEDIM, movedim),
    (Operator::MT, |b, args| {
        let (input, out) = b.ends(args)?;
        let (last, before) = (b.new_int(-1), b.new_int(-2));
        b.call_into(Operator::TRANSPOSE_COPY_INT, &[input, before, last], out);
        Ok(())
    }),
    (Operator::NARROW, |b, args| {
        let call = NarrowArgs::of(args)?;
        let end = b.sum(call.start, call.length)?;
        let step = b.new_int(1);
        let inputs = [call.input, call.dim, call.start, end, step];
        b.call_into(Operator::SLICE_COPY_TENSOR, &inputs, call.out);
        Ok(())
    }),
    (Operator::NUMPY_T, |b, args| {
        let (input, out) = b.ends(args)?;
        let order: Vec<i64> = (0..b.info(input)?.rank() as i64).rev().collect();
        let order = b.new_ints(&order);
        b.call_into(Operator::PERMUTE_COPY, &[input, order], out);
        Ok(())
    }),
    (Operator::PAD, pad),
    (Operator::RESHAPE, |b, args| {
        let call = ReshapeArgs::of(args)?;
        b.call_into(Operator::VIEW_COPY, &[call.input, call.shape], call.out);
        Ok(())
    }),
    (Operator::TENSOR_SPLIT, |b, args| {
        let call = TensorSplitArgs::of(args)?;
        split(b, call.input, call.dim, args)
    }),
    (Operator::TO_DEVICE, same),
    (Operator::TO_DTYPE, same),
    (Operator::TO_DTYPE_LAYOUT, same),
    (Operator::TO_OTHER, same),
    (Operator::TYPE_AS, same),
    (Operator::UNFLATTEN, unflatten),
    (Operator::VIEW_AS, |b, args| {
        let call = BinaryArgs::of(args)?;
        let sizes = sizes_of(b, call.other)?;
        let sizes = b.sizes(&sizes)?;
        b.call_into(Operator::VIEW_COPY, &[call.input, sizes], call.out);
        Ok(())
    }),
];

/// The first argument, converted to the dtype of the output.
fn same(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    b.stand_in(input, out)
}

/// The sizes of a tensor.
pub(super) fn sizes_of(b: &mut Builder<'_, '_>, id: ValueId) -> Result<Vec<Size>, Error> {
    (0..b.info(id)?.rank()).map(|dim| b.size(id, dim)).collect()
}

fn flatten(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = FlattenArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    if info.rank() == 0 {
        let one = b.new_ints(&[1]);
        b.call_into(Operator::VIEW_COPY, &[input, one], call.out);
        return Ok(());
    }
    let dim = |b: &Builder<'_, '_>, id: Option<ValueId>, default: i64| {
        info.dim(b.optional(id).map_or(Ok(default), |id| b.int(id))?)
    };
    let (start, end) = (dim(b, call.start_dim, 0)?, dim(b, call.end_dim, -1)?);
    if start > end {
        return Err(Error::Invalid(format!("flatten of dims {start} to {end}")));
    }
    let mut sizes = Vec::new();
    for at in 0..start {
        sizes.push(b.size(input, at)?);
    }
    let merged = info.sizes.get(start..=end).unwrap_or_default();
    let bound = merged.iter().fold(1usize, |bound, size| bound.saturating_mul(*size));
    // Zero elements leave a size of -1 undefined.
    sizes.push(if info.dynamic && bound > 0 {
        Size { bound, value: b.new_int(-1) }
    } else {
        b.known(bound)
    });
    for at in end + 1..info.rank() {
        sizes.push(b.size(input, at)?);
    }
    let sizes = b.sizes(&sizes)?;
    b.call_into(Operator::VIEW_COPY, &[input, sizes], call.out);
    Ok(())
}

fn unflatten(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = UnflattenArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let dim = info.dim(b.int(call.dim)?)?;
    let inner: Vec<ValueId> = match b.value(call.sizes)?.clone() {
        Value::IntList(items) => items.iter().map(|item| b.new_int(*item)).collect(),
        Value::List(items) => items,
        _ => return Err(Error::invalid("the sizes of unflatten are no list")),
    };
    let mut list = Vec::new();
    for at in 0..info.rank() {
        if at == dim {
            list.extend(inner.iter().copied());
        } else {
            list.push(b.size(input, at)?.value);
        }
    }
    let sizes: Vec<Size> = list.into_iter().map(|value| Size { bound: 0, value }).collect();
    let sizes = b.sizes(&sizes)?;
    b.call_into(Operator::VIEW_COPY, &[input, sizes], call.out);
    Ok(())
}

/// Splits a dim into parts with the sizes of the outputs.
fn split(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dim: Option<ValueId>,
    args: &[ValueId],
) -> Result<(), Error> {
    let info = b.info(input)?;
    let dim = info.dim(b.optional(dim).map_or(Ok(0), |dim| b.int(dim))?)?;
    let mut parts = Vec::new();
    for out in b.outs(args)? {
        parts.push(b.info(out)?.size(dim) as i64);
    }
    let (parts, dim) = (b.new_ints(&parts), b.new_int(dim as i64));
    b.call_into(Operator::SPLIT_WITH_SIZES_COPY, &[input, parts, dim], b.out(args)?);
    Ok(())
}

fn movedim(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MovedimArgs::of(args)?;
    let info = b.info(call.input)?;
    let dims = |b: &Builder<'_, '_>, list: ValueId| -> Result<Vec<usize>, Error> {
        b.ints(list)?.into_iter().map(|dim| info.dim(dim)).collect()
    };
    let (from, to) = (dims(b, call.source)?, dims(b, call.destination)?);
    let mut order: Vec<Option<usize>> = vec![None; info.rank()];
    for (from, to) in from.iter().zip(&to) {
        if let Some(slot) = order.get_mut(*to) {
            *slot = Some(*from);
        }
    }
    let mut others = (0..info.rank()).filter(|dim| !from.contains(dim));
    let order = order.into_iter().map(|slot| slot.or_else(|| others.next()));
    let order: Option<Vec<i64>> = order.map(|dim| dim.map(|dim| dim as i64)).collect();
    let order = order.ok_or_else(|| Error::invalid("movedim with repeated dims"))?;
    let order = b.new_ints(&order);
    b.call_into(Operator::PERMUTE_COPY, &[call.input, order], call.out);
    Ok(())
}

/// Grids of coordinates: each tensor is repeated over the dims of the others.
fn meshgrid(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MeshgridArgs::of(args)?;
    let mut tensors = match b.value(call.tensors)? {
        Value::List(items) => items.clone(),
        _ => vec![call.tensors],
    };
    let swaps = b.text(call.indexing)?.is_some_and(|indexing| indexing == "xy");
    let mut outs = b.outs(args)?;
    if swaps && tensors.len() >= 2 {
        tensors.swap(0, 1);
        outs.swap(0, 1);
    }
    let mut sizes = Vec::new();
    for tensor in &tensors {
        sizes.push(match b.info(*tensor)?.rank() {
            0 => b.known(1),
            _ => b.size(*tensor, 0)?,
        });
    }
    for (at, (tensor, out)) in tensors.iter().zip(outs).enumerate() {
        let one = b.known(1);
        let mut line = vec![one; sizes.len()];
        if let (Some(slot), Some(size)) = (line.get_mut(at), sizes.get(at)) {
            *slot = *size;
        }
        let line = b.view(*tensor, &line)?;
        // The grid is transposed for "xy": the first two dims of each output are swapped.
        let (list, no) = (b.sizes(&sizes)?, b.push(Value::Bool(false)));
        if swaps && sizes.len() >= 2 {
            let info = b.info(line)?;
            let made = info.with_sizes(sizes.iter().map(|size| size.bound).collect());
            let plane = b.call(Operator::EXPAND_COPY, &[line, list, no], made);
            b.finish_with(plane, out)?;
        } else {
            b.call_into(Operator::EXPAND_COPY, &[line, list, no], out);
        }
    }
    Ok(())
}

fn pad(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CompositePadArgs::of(args)?;
    let pads = b.ints(call.pad)?.len();
    let mode = b.text(call.mode)?;
    let operator = match (mode.as_deref().unwrap_or("constant"), pads / 2) {
        ("constant", _) => {
            let value = match b.optional(call.value) {
                Some(value) => value,
                None => b.new_int(0),
            };
            b.call_into(Operator::CONSTANT_PAD_ND, &[call.input, call.pad, value], call.out);
            return Ok(());
        }
        ("circular", _) => return circular(b, &call),
        ("reflect", 1) => Operator::REFLECTION_PAD1D,
        ("reflect", 2) => Operator::REFLECTION_PAD2D,
        ("reflect", 3) => Operator::REFLECTION_PAD3D,
        ("replicate", 1) => Operator::REPLICATION_PAD1D,
        ("replicate", 2) => Operator::REPLICATION_PAD2D,
        ("replicate", 3) => Operator::REPLICATION_PAD3D,
        (mode, dims) => {
            return Err(Error::Unsupported(format!("padding of {dims} dims in the mode `{mode}`")));
        }
    };
    b.call_into(operator, &[call.input, call.pad], call.out);
    Ok(())
}

/// Padding with the elements of the other end of each dim.
fn circular(b: &mut Builder<'_, '_>, call: &CompositePadArgs) -> Result<(), Error> {
    let mut value = call.input;
    let pads = b.ints(call.pad)?;
    let info: Info = b.info(value)?;
    if info.dynamic {
        return Err(Error::unsupported("circular padding of dynamic shapes"));
    }
    for (back, pair) in pads.chunks_exact(2).enumerate() {
        let [front, behind] = [0, 1].map(|at| pair.get(at).copied().unwrap_or(0));
        let counts = usize::try_from(front).ok().zip(usize::try_from(behind).ok());
        let dim = info.rank().checked_sub(back + 1);
        let (Some((front, behind)), Some(dim)) = (counts, dim) else {
            return Err(Error::unsupported("circular padding by negative counts"));
        };
        let size = info.size(dim);
        let start = size.checked_sub(front);
        let start = start.filter(|_| behind <= size);
        let start =
            start.ok_or_else(|| Error::invalid("circular padding that exceeds the tensor"))?;
        let mut parts = Vec::new();
        if front > 0 {
            parts.push(b.slice_known(value, dim, start, size, 1)?);
        }
        parts.push(value);
        if behind > 0 {
            parts.push(b.slice_known(value, dim, 0, behind, 1)?);
        }
        if parts.len() > 1 {
            value = b.cat(&parts, dim)?;
        }
    }
    b.finish_with(value, call.out)
}
