//! Reshapes, copies, splits and padding.

use super::{Builder, Info, Rule, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    BinaryArgs, ChannelShuffleArgs, ChunkArgs, CompositePadArgs, DiffArgs, FlattenArgs, Im2colArgs,
    MeshgridArgs, MovedimArgs, NarrowArgs, Operator, ReshapeArgs, StackedArgs, TensorSplitArgs,
    TensorSplitIndicesArgs, TileArgs, UnflattenArgs,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::CHANNEL_SHUFFLE, channel_shuffle),
    (Operator::CHUNK, |b, args| {
        let call = ChunkArgs::of(args)?;
        split(b, call.input, call.dim, args)
    }),
    (Operator::COLUMN_STACK, |b, args| stacked(b, args, Stack::Columns)),
    (Operator::CONTIGUOUS, same),
    (Operator::DIFF, diff),
    (Operator::DROPOUT, |b, args| {
        if b.truth(args.get(2).copied())? {
            return Err(Error::unsupported("dropout of training; call `eval()` before the export"));
        }
        same(b, args)
    }),
    (Operator::DSTACK, |b, args| stacked(b, args, Stack::Deeply)),
    (Operator::EXPAND_AS, |b, args| {
        let call = BinaryArgs::of(args)?;
        let sizes = sizes_of(b, call.other)?;
        let (sizes, no) = (b.sizes(&sizes)?, b.push(Value::Bool(false)));
        b.call_into(Operator::EXPAND_COPY, &[call.input, sizes, no], call.out);
        Ok(())
    }),
    (Operator::FLATTEN, flatten),
    (Operator::HSTACK, |b, args| stacked(b, args, Stack::Horizontally)),
    (Operator::IM2COL, im2col),
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
        let end = match (b.int(call.start), b.int(call.length)) {
            (Ok(start), Ok(length)) if narrow_end(start, length) == i64::MAX => b.new_int(i64::MAX),
            _ => b.sum(call.start, call.length)?,
        };
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
    (Operator::TENSOR_SPLIT_INDICES, |b, args| {
        let call = TensorSplitIndicesArgs::of(args)?;
        split(b, call.input, call.dim, args)
    }),
    (Operator::TILE, |b, args| {
        let call = TileArgs::of(args)?;
        let rank = b.info(call.input)?.rank();
        let mut repeats = b.ints(call.dims)?;
        while repeats.len() < rank {
            repeats.insert(0, 1);
        }
        let repeats = b.new_ints(&repeats);
        b.call_into(Operator::REPEAT, &[call.input, repeats], call.out);
        Ok(())
    }),
    (Operator::TO_DEVICE, same),
    (Operator::TO_DTYPE, same),
    (Operator::TO_DTYPE_LAYOUT, same),
    (Operator::TO_OTHER, same),
    (Operator::TYPE_AS, same),
    (Operator::UNFLATTEN, unflatten),
    (Operator::VSTACK, |b, args| stacked(b, args, Stack::Vertically)),
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

/// Inserts dims of size one, as NumPy does, up to a rank of 1, 2 or 3.
pub(super) fn raised(
    b: &mut Builder<'_, '_>,
    mut value: ValueId,
    rank: usize,
) -> Result<ValueId, Error> {
    while b.info(value)?.rank() < rank {
        // [n] becomes [1, n], and [m, n] becomes [m, n, 1].
        let dim = if b.info(value)?.rank() == 2 { 2 } else { 0 };
        value = b.unsqueeze(value, dim)?;
    }
    Ok(value)
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

/// Splits a dim, by default the first, into parts with the sizes of the outputs.
fn split(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dim: Option<ValueId>,
    args: &[ValueId],
) -> Result<(), Error> {
    let dim = b.info(input)?.dim(b.optional(dim).map_or(Ok(0), |dim| b.int(dim))?)?;
    split_at(b, input, dim, args)
}

/// Splits a dim into parts with the sizes of the outputs.
pub(super) fn split_at(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dim: usize,
    args: &[ValueId],
) -> Result<(), Error> {
    if !b.is_known(input, dim) {
        return Err(Error::unsupported("a split of a dynamic dim into a number of parts"));
    }
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
    if outs.len() != tensors.len() {
        return Err(Error::Invalid(format!(
            "meshgrid: expected {} outputs, found {}",
            tensors.len(),
            outs.len()
        )));
    }
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

/// Interleaves the groups of channels.
fn channel_shuffle(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = ChannelShuffleArgs::of(args)?;
    let info = b.info(call.input)?;
    let groups = usize::try_from(b.int(call.groups)?).unwrap_or(0);
    if groups == 0 || info.rank() < 2 || info.size(1) % groups != 0 {
        return Err(Error::Invalid(format!("shuffle of {} channels", info.size(1))));
    }
    let mut sizes = sizes_of(b, call.input)?;
    let each = [b.known(groups), b.known(info.size(1) / groups)];
    sizes.splice(1..2, each);
    let value = b.view(call.input, &sizes)?;
    let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..sizes.len()).collect();
    let value = b.permute(value, &order)?;
    let sizes = sizes_of(b, call.input)?;
    let value = b.view(value, &sizes)?;
    b.finish_with(value, call.out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stack {
    Columns,
    Deeply,
    Horizontally,
    Vertically,
}

/// Concatenation of tensors with at least one, two or three dims.
fn stacked(b: &mut Builder<'_, '_>, args: &[ValueId], stack: Stack) -> Result<(), Error> {
    let call = StackedArgs::of(args)?;
    let items = match b.value(call.tensors)? {
        Value::List(items) => items.clone(),
        _ => vec![call.tensors],
    };
    let (mut parts, mut rank) = (Vec::new(), 0);
    for mut item in items {
        if b.info(item)?.rank() == 0 {
            item = b.unsqueeze(item, 0)?;
        }
        if stack == Stack::Deeply {
            item = raised(b, item, 3)?;
        }
        if b.info(item)?.rank() == 1 && stack != Stack::Horizontally {
            item = b.unsqueeze(item, usize::from(stack == Stack::Columns))?;
        }
        rank = b.info(item)?.rank();
        parts.push(item);
    }
    let dim = match stack {
        Stack::Vertically => 0,
        Stack::Columns => 1,
        Stack::Deeply => 2,
        Stack::Horizontally => usize::from(rank > 1),
    };
    let value = b.cat(&parts, dim)?;
    b.finish_with(value, call.out)
}

/// The end of a part of a dim, for a slice. The end of a part that is counted from the end, and
/// reaches it, is not 0.
pub(crate) fn narrow_end(start: i64, length: i64) -> i64 {
    let end = start.saturating_add(length);
    if start < 0 && end == 0 { i64::MAX } else { end }
}

/// Maximum order of differences: each one adds three calls.
const MAX_ORDER: i64 = 64;

/// Differences of adjacent elements.
fn diff(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = DiffArgs::of(args)?;
    let info = b.info(call.input)?;
    let dim = info.dim(b.optional(call.dim).map_or(Ok(-1), |dim| b.int(dim))?)?;
    let mut parts: Vec<ValueId> = b.optional(call.prepend).into_iter().collect();
    parts.push(call.input);
    parts.extend(b.optional(call.append));
    let mut value = if parts.len() > 1 { b.cat(&parts, dim)? } else { call.input };
    let count = b.optional(call.n).map_or(Ok(1), |n| b.int(n))?;
    // More differences than elements leave nothing.
    let count = count.min(i64::try_from(info.size(dim)).unwrap_or(i64::MAX).saturating_add(2));
    if count > MAX_ORDER {
        return Err(Error::Unsupported(format!("diff of order {count}; at most {MAX_ORDER}")));
    }
    for _ in 0..count {
        let (zero, one, minus, end) =
            (b.new_int(0), b.new_int(1), b.new_int(-1), b.new_int(i64::MAX));
        let mut made = b.info(value)?;
        if let Some(size) = made.sizes.get_mut(dim) {
            *size = size.saturating_sub(1);
        }
        let (at, step) = (b.new_int(dim as i64), b.new_int(1));
        let inputs = [value, at, zero, minus, step];
        let front = b.call(Operator::SLICE_COPY_TENSOR, &inputs, made.clone());
        let inputs = [value, at, one, end, step];
        let back = b.call(Operator::SLICE_COPY_TENSOR, &inputs, made);
        value = if b.info(value)?.scalar_type == ScalarType::Bool {
            b.comparison(Operator::NE_TENSOR, back, front)?
        } else {
            b.binary(Operator::SUB_TENSOR, back, front)?
        };
    }
    b.finish_with(value, call.out)
}

/// The patches of an image, as columns.
fn im2col(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Im2colArgs::of(args)?;
    let info = b.info(call.input)?;
    let pair = |b: &Builder<'_, '_>, list: ValueId| -> Result<[i64; 2], Error> {
        match b.ints(list)?[..] {
            [one] => Ok([one, one]),
            [height, width] => Ok([height, width]),
            _ => Err(Error::invalid("im2col: expected one or two sizes")),
        }
    };
    let (kernel, dilation) = (pair(b, call.kernel_size)?, pair(b, call.dilation)?);
    let (padding, stride) = (pair(b, call.padding)?, pair(b, call.stride)?);
    if info.rank() != 4 || info.dynamic || dilation != [1, 1] || stride.contains(&0) {
        return Err(Error::unsupported("im2col with a dilation, of dynamic shapes or no batch"));
    }
    let mut value = call.input;
    let mut sizes = info.sizes.clone();
    if padding != [0, 0] {
        for (size, padding) in sizes.iter_mut().skip(2).zip(padding) {
            *size = size.saturating_add(usize::try_from(padding).unwrap_or(0).saturating_mul(2));
        }
        let [height, width] = padding;
        let (pads, zero) = (b.new_ints(&[width, width, height, height]), b.new_int(0));
        let made = info.with_sizes(sizes.clone());
        value = b.call(Operator::CONSTANT_PAD_ND, &[value, pads, zero], made);
    }
    for (at, (kernel, stride)) in kernel.into_iter().zip(stride).enumerate() {
        let (dim, size, step) = (at + 2, usize::try_from(kernel), usize::try_from(stride));
        let (Ok(size), Ok(step)) = (size, step) else {
            return Err(Error::invalid("im2col with a negative size"));
        };
        if let Some(count) = sizes.get_mut(dim) {
            *count = count.saturating_sub(size) / step + 1;
        }
        sizes.push(size);
        let inputs = [value, b.new_int(dim as i64), b.new_int(kernel), b.new_int(stride)];
        value = b.call(Operator::UNFOLD_COPY, &inputs, info.with_sizes(sizes.clone()));
    }
    let value = b.permute(value, &[0, 1, 4, 5, 2, 3])?;
    let wanted = b.info(call.out)?.sizes;
    let value = b.view_known(value, &wanted)?;
    b.finish_with(value, call.out)
}
