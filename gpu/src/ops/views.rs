//! Operators that move elements without computing: views, permutations, slices, copies.

use super::dims::merge_dims;
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    AsStridedArgs, CopyArgs, DiagonalArgs, DimArgs, DimsArgs, ExpandArgs, Operator, RepeatArgs,
    RepeatInterleaveArgs, SelectArgs, SliceArgs, SplitArgs, SplitWithSizesArgs, TransposeArgs,
    UnaryArgs, UnbindArgs, UnfoldArgs, ViewArgs,
};
use torchlet_shaders::functions::special;
use torchlet_shaders::{Gather, GatherPush, MAX_DIMS};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::VIEW_COPY, |e, args| {
        let call = ViewArgs::of(args)?;
        let sizes = e.ints(call.size)?;
        let input = e.tensor(call.input)?;
        let mut known = sizes.iter().filter(|size| **size >= 0);
        let known = known.try_fold(1i64, |known, size| known.checked_mul(*size));
        let known = known
            .ok_or_else(|| Error::Invalid(format!("view size {sizes:?} overflows 64 bits")))?;
        let numel = input.numel() as i64;
        let sizes: Vec<usize> = sizes
            .iter()
            .map(|size| if *size >= 0 { *size } else { numel / known.max(1) } as usize)
            .collect();
        reshape(e, args, &sizes)
    }),
    operator(Operator::UNSQUEEZE_COPY, |e, args| {
        let call = DimArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let dim = e.int(call.dim)?;
        let dim = torchlet_core::rules::normalize_dim(dim, input.rank() + 1).ok_or_else(|| {
            Error::Invalid(format!(
                "dim {dim} is out of range for a result of {} dims",
                input.rank() + 1
            ))
        })?;
        let mut sizes = input.sizes.clone();
        sizes.insert(dim, 1);
        reshape(e, args, &sizes)
    }),
    operator(Operator::SQUEEZE_COPY_DIM, squeeze),
    operator(Operator::SQUEEZE_COPY_DIMS, squeeze),
    operator(Operator::DETACH_COPY, same_shape),
    operator(Operator::LIFT_FRESH_COPY, same_shape),
    operator(Operator::CLONE, same_shape),
    operator(Operator::ALIAS_COPY, same_shape),
    operator(Operator::TO_COPY, same_shape),
    operator(Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY, same_shape),
    operator(Operator::DIM_ORDER_OPS_CLONE_DIM_ORDER, same_shape),
    operator(Operator::ET_VK_PREPACK, same_shape),
    operator(Operator::PERMUTE_COPY, permute),
    operator(Operator::PERMUTE, permute),
    operator(Operator::T_COPY, |e, args| {
        let call = UnaryArgs::of(args)?;
        let input = e.tensor(call.input)?;
        if input.rank() > 2 {
            return Err(Error::Invalid(format!(
                "input: expected at most 2 dims, found shape {:?}",
                input.sizes
            )));
        }
        let order: Vec<usize> = (0..input.rank()).rev().collect();
        reorder(e, args, &input, &order)
    }),
    operator(Operator::TRANSPOSE_COPY_INT, |e, args| {
        let call = TransposeArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let (a, b) = (e.int(call.dim0)?, e.int(call.dim1)?);
        let (a, b) = (input.dim(a)?, input.dim(b)?);
        let mut order: Vec<usize> = (0..input.rank()).collect();
        // A scalar has no dims to swap.
        if a.max(b) < order.len() {
            order.swap(a, b);
        }
        reorder(e, args, &input, &order)
    }),
    operator(Operator::COPY, |e, args| {
        let call = CopyArgs::of(args)?;
        let (like, input) = (e.tensor(call.input)?, e.tensor(call.src)?);
        let wanted: Vec<i64> = like.sizes.iter().map(|size| *size as i64).collect();
        expand(e, args, &input, &wanted)
    }),
    operator(Operator::EXPAND_COPY, |e, args| {
        let call = ExpandArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let wanted = e.ints(call.size)?;
        expand(e, args, &input, &wanted)
    }),
    operator(Operator::AS_STRIDED_COPY, |e, args| {
        let call = AsStridedArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let (sizes, strides) = (e.ints(call.size)?, e.ints(call.stride)?);
        let base = e.optional_int(call.storage_offset)?.unwrap_or(0);
        let known: Option<Vec<usize>> =
            sizes.iter().map(|size| usize::try_from(*size).ok()).collect();
        let wanted = known.filter(|sizes| sizes.len() == strides.len()).ok_or_else(|| {
            Error::Invalid(format!(
                "expected nonnegative sizes and as many strides, found {sizes:?} and {strides:?}"
            ))
        })?;
        let out = e.out(args)?;
        let out = e.resize(out.id, &wanted)?;
        pick(e, &input, &out, &wanted, &strides, base)
    }),
    operator(Operator::DIAGONAL_COPY, |e, args| {
        let call = DiagonalArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let given = |id, none: i64| Ok::<_, Error>(e.optional_int(id)?.unwrap_or(none));
        let offset = given(call.offset, 0)?;
        let (a, b) = (input.dim(given(call.dim1, 0)?)?, input.dim(given(call.dim2, 1)?)?);
        if a == b || input.rank() < 2 {
            return Err(Error::Invalid(format!(
                "diagonal: expected two different dims, found dims {a} and {b} of shape {:?}",
                input.sizes
            )));
        }
        let strides: Vec<i64> = input.strides().iter().map(|stride| *stride as i64).collect();
        // The diagonal starts at a column right of the first element, or at a row below it.
        let [below, right] = [offset.saturating_neg().max(0), offset.max(0)];
        let left = |dim: usize, skipped: i64| (input.size(dim) as i64 - skipped).max(0);
        let length = left(a, below).min(left(b, right));
        let others = (0..input.rank()).filter(|dim| *dim != a && *dim != b);
        let (mut sizes, mut steps): (Vec<usize>, Vec<i64>) =
            others.map(|dim| (input.size(dim), strides[dim])).unzip();
        sizes.push(length as usize);
        steps.push(strides[a] + strides[b]);
        let base = if length == 0 { 0 } else { below * strides[a] + right * strides[b] };
        let out = e.out(args)?;
        let out = e.resize(out.id, &sizes)?;
        gather(e, &input, &out, &sizes, &steps, base)
    }),
    operator(Operator::SELECT_COPY_INT, select),
    operator(Operator::SELECT_INT, select),
    operator(Operator::SLICE_COPY_TENSOR, slice),
    operator(Operator::SLICE_TENSOR, slice),
    operator(Operator::FLIP, |e, args| {
        let call = DimsArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let mut strides: Vec<i64> = input.strides().iter().map(|stride| *stride as i64).collect();
        let mut base = 0;
        for dim in e.ints(call.dims)? {
            let dim = input.dim(dim)?;
            if let Some(stride) = strides.get_mut(dim) {
                base += *stride * (input.size(dim) as i64 - 1).max(0);
                *stride = -*stride;
            }
        }
        let out = e.out(args)?;
        let out = e.resize(out.id, &input.sizes)?;
        gather(e, &input, &out, &input.sizes, &strides, base)
    }),
    operator(Operator::REPEAT, |e, args| {
        let call = RepeatArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let repeats = e.ints(call.repeats)?;
        let missing = repeats.len().checked_sub(input.rank());
        let missing = missing.ok_or_else(|| {
            Error::Invalid(format!(
                "repeats: expected at least {} values, found {repeats:?}",
                input.rank()
            ))
        })?;
        let own = input.strides();
        let (mut sizes, mut shape, mut strides) = (Vec::new(), Vec::new(), Vec::new());
        for (dim, repeat) in repeats.iter().enumerate() {
            let source = dim.checked_sub(missing);
            let size = source.map_or(1, |dim| input.size(dim));
            let repeat = usize::try_from(*repeat).map_err(|_| {
                Error::Invalid(format!("repeats: expected at least 0, found {repeat}"))
            })?;
            let whole = repeat.checked_mul(size);
            sizes.push(whole.ok_or_else(|| {
                Error::Invalid(format!("{repeat} repeats of {size} elements overflow"))
            })?);
            shape.extend([repeat, size]);
            strides.extend([0, source.map_or(0, |dim| own[dim] as i64)]);
        }
        let out = e.out(args)?;
        let out = e.resize(out.id, &sizes)?;
        gather(e, &input, &out, &shape, &strides, 0)
    }),
    operator(Operator::REPEAT_INTERLEAVE_SELF_INT, |e, args| {
        let call = RepeatInterleaveArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let given = e.int(call.repeats)?;
        let repeat = usize::try_from(given);
        let repeat = repeat
            .map_err(|_| Error::Invalid(format!("repeats: expected at least 0, found {given}")))?;
        let (mut view, dim) = match e.optional_int(call.dim)? {
            Some(dim) if input.rank() > 0 => (input.sizes.clone(), input.dim(dim)?),
            _ => (vec![input.numel()], 0),
        };
        let mut sizes = view.clone();
        let whole = sizes[dim].checked_mul(repeat);
        sizes[dim] = whole
            .ok_or_else(|| Error::Invalid(format!("{repeat} repeats of dim {dim} overflow")))?;
        let own = crate::tensors::strides(&view);
        let mut strides: Vec<i64> = own.iter().map(|stride| *stride as i64).collect();
        view.insert(dim + 1, repeat);
        strides.insert(dim + 1, 0);
        let out = e.out(args)?;
        let out = e.resize(out.id, &sizes)?;
        gather(e, &input, &out, &view, &strides, 0)
    }),
    operator(Operator::UNFOLD_COPY, |e, args| {
        let call = UnfoldArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let dim = input.dim(e.int(call.dimension)?)?;
        let (size, step) = (e.int(call.size)?, e.int(call.step)?);
        let length = input.size(dim) as i64;
        if size < 0 || size > length || step <= 0 {
            return Err(Error::Invalid(format!(
                "expected a size of 0 to {length} and a positive step, found size {size} and step \
                 {step}"
            )));
        }
        let step = step.min(length + 1);
        let mut sizes = input.sizes.clone();
        let mut strides: Vec<i64> = input.strides().iter().map(|stride| *stride as i64).collect();
        let stride = strides.get(dim).copied().unwrap_or(1);
        if let (Some(count), Some(slot)) = (sizes.get_mut(dim), strides.get_mut(dim)) {
            *count = ((length - size) / step + 1) as usize;
            *slot = stride * step;
        }
        sizes.push(size as usize);
        strides.push(stride);
        let out = e.out(args)?;
        let out = e.resize(out.id, &sizes)?;
        gather(e, &input, &out, &sizes, &strides, 0)
    }),
    operator(Operator::SPLIT_WITH_SIZES_COPY, |e, args| {
        let call = SplitWithSizesArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let sizes = e.ints(call.split_sizes)?;
        let dim = e.optional_int(call.dim)?.unwrap_or(0);
        let dim = input.dim(dim)?;
        let outs = e.outs(args)?;
        let mut start = 0usize;
        for (size, out) in sizes.iter().zip(outs) {
            let size = usize::try_from(*size).map_err(|_| {
                Error::Invalid(format!("split size: expected at least 0, found {size}"))
            })?;
            if size > input.size(dim) - start {
                return Err(Error::Invalid(format!(
                    "split sizes {sizes:?} exceed dim {dim} of {} elements",
                    input.size(dim)
                )));
            }
            slice_into(e, &input, dim, start, size, 1, out)?;
            start += size;
        }
        Ok(())
    }),
    operator(Operator::SPLIT_COPY_TENSOR, |e, args| {
        let call = SplitArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let given = e.int(call.split_size)?;
        let size = usize::try_from(given).ok().filter(|size| *size > 0);
        let size = size.ok_or_else(|| {
            Error::Invalid(format!("split_size: expected at least 1, found {given}"))
        })?;
        let dim = e.optional_int(call.dim)?.unwrap_or(0);
        let dim = input.dim(dim)?;
        for (number, out) in e.outs(args)?.into_iter().enumerate() {
            let rest =
                number.checked_mul(size).and_then(|start| input.size(dim).checked_sub(start));
            let rest = rest.ok_or_else(|| {
                Error::Invalid(format!(
                    "output {number} of splits of {size} exceeds dim {dim} of {} elements",
                    input.size(dim)
                ))
            })?;
            slice_into(e, &input, dim, number * size, size.min(rest), 1, out)?;
        }
        Ok(())
    }),
    operator(Operator::UNBIND_COPY_INT, |e, args| {
        let call = UnbindArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let dim = e.optional_int(call.dim)?.unwrap_or(0);
        let dim = input.dim(dim)?;
        for (number, out) in e.outs(args)?.into_iter().enumerate() {
            select_into(e, &input, dim, number, out)?;
        }
        Ok(())
    }),
];

/// Encodes a reshape of the input: an alias, unless the types differ.
fn reshape(e: &mut Encoder<'_, '_>, args: &[ValueId], sizes: &[usize]) -> Result<(), Error> {
    let input = e.tensor(e.ends(args)?.0)?;
    if input.numel() != crate::encoder::numel_of(sizes)? {
        return Err(Error::Invalid(format!(
            "shape {:?} cannot be viewed as {sizes:?}",
            input.sizes
        )));
    }
    let out = e.resize(e.out_id(args)?, sizes)?;
    if input.element == out.element && !e.is_taken_over(out.id, input.id) {
        e.alias(out.id, input.id)?;
        return e.keep_strides(&out, &input);
    }
    let numel = [input.numel()];
    gather(e, &input, &out, &numel, &[1], 0)
}

fn squeeze(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = DimArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let mut dims = Vec::new();
    for dim in e.ints(call.dim)? {
        dims.push(input.dim(dim)?);
    }
    let kept = input.sizes.iter().enumerate();
    let sizes: Vec<usize> = kept
        .filter(|(dim, size)| **size != 1 || !dims.contains(dim))
        .map(|(_, size)| *size)
        .collect();
    reshape(e, args, &sizes)
}

fn same_shape(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (input, out) = (e.tensor(e.ends(args)?.0)?, e.out(args)?);
    // Tensors that are stored with more precision than their type are rounded where the program
    // converts to that type, and when they are returned.
    let is_narrow = |tensor: &Operand| e.scalar_type(tensor) == Some(ScalarType::BFloat16);
    if is_narrow(&out) && !is_narrow(&input) {
        let out = e.resize(out.id, &input.sizes)?;
        return super::special::emit(e, special::TO_BFLOAT16, &input, &out);
    }
    reshape(e, args, &input.sizes)
}

/// Encodes a broadcast of dims of size one, with additional leading dims.
fn expand(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    wanted: &[i64],
) -> Result<(), Error> {
    let missing = wanted.len().checked_sub(input.rank()).ok_or_else(|| {
        Error::Invalid(format!("size: expected at least {} dims, found {wanted:?}", input.rank()))
    })?;
    let own = input.strides();
    let (mut sizes, mut strides) = (Vec::new(), Vec::new());
    for (dim, size) in wanted.iter().enumerate() {
        let source = dim.checked_sub(missing);
        let from = source.map_or(1, |dim| input.size(dim));
        let size = if *size < 0 { from } else { *size as usize };
        sizes.push(size);
        strides.push(match source {
            Some(source) if from != 1 => own[source] as i64,
            _ => 0,
        });
    }
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    pick(e, input, &out, &sizes, &strides, 0)
}

fn permute(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = DimsArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let mut order = Vec::new();
    for dim in e.ints(call.dims)? {
        order.push(input.dim(dim)?);
    }
    reorder(e, args, &input, &order)
}

/// Encodes a permutation of dims.
fn reorder(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    order: &[usize],
) -> Result<(), Error> {
    let (sizes, strides) = reordered(input, order);
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    if e.is_permuted(input, &out) {
        return Ok(());
    }
    pick(e, input, &out, &sizes, &strides, 0)
}

/// Returns the sizes and strides of a permutation.
fn reordered(input: &Operand, order: &[usize]) -> (Vec<usize>, Vec<i64>) {
    let own = input.strides();
    let size = |dim: &usize| input.size(*dim);
    let stride = |dim: &usize| own.get(*dim).copied().unwrap_or(1) as i64;
    (order.iter().map(size).collect(), order.iter().map(stride).collect())
}

/// Emits a permuted copy of a tensor, and returns the copy.
pub(super) fn permuted(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    order: &[usize],
) -> Result<Operand, Error> {
    let (sizes, strides) = reordered(input, order);
    let out = e.temporary(input.element, &sizes)?;
    gather(e, input, &out, &sizes, &strides, 0)?;
    Ok(out)
}

fn select(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = SelectArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = input.dim(e.int(call.dim)?)?;
    let index = e.int(call.index)?;
    let index = torchlet_core::rules::normalize_index(index, input.size(dim)).ok_or_else(|| {
        Error::Invalid(format!(
            "index {index} is out of range for dim {dim} of size {}",
            input.size(dim)
        ))
    })?;
    let out = e.out(args)?.id;
    select_into(e, &input, dim, index, out)
}

/// Encodes the selection of one index of a dim, which removes the dim.
fn select_into(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    dim: usize,
    index: usize,
    out: ValueId,
) -> Result<(), Error> {
    let mut strides: Vec<i64> = input.strides().iter().map(|stride| *stride as i64).collect();
    let mut sizes = input.sizes.clone();
    let base = strides.get(dim).copied().unwrap_or(0) * index as i64;
    if dim < sizes.len() {
        strides.remove(dim);
        sizes.remove(dim);
    }
    let out = e.resize(out, &sizes)?;
    pick(e, input, &out, &sizes, &strides, base)
}

fn slice(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = SliceArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = e.optional_int(call.dim)?.unwrap_or(0);
    let dim = input.dim(dim)?;
    let size = input.size(dim) as i64;
    let clamp =
        |index: i64| if index < 0 { (index.saturating_add(size)).max(0) } else { index.min(size) };
    let start = clamp(e.optional_int(call.start)?.unwrap_or(0));
    let end = clamp(e.optional_int(call.end)?.unwrap_or(i64::MAX)).max(start);
    let step = e.optional_int(call.step)?.unwrap_or(1);
    if step <= 0 {
        return Err(Error::Invalid(format!("step: expected at least 1, found {step}")));
    }
    // A step beyond the end is clamped to the end.
    let step = step.min(size.max(1));
    let count = (end - start + step - 1) / step;
    let out = e.out(args)?.id;
    slice_into(e, &input, dim, start as usize, count as usize, step, out)
}

fn slice_into(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    dim: usize,
    start: usize,
    count: usize,
    step: i64,
    out: ValueId,
) -> Result<(), Error> {
    let mut strides: Vec<i64> = input.strides().iter().map(|stride| *stride as i64).collect();
    let mut sizes = input.sizes.clone();
    let mut base = 0;
    if let (Some(stride), Some(size)) = (strides.get_mut(dim), sizes.get_mut(dim)) {
        base = *stride * start as i64;
        *stride *= step;
        *size = count;
    }
    let out = e.resize(out, &sizes)?;
    pick(e, input, &out, &sizes, &strides, base)
}

/// Returns the tensor to write to for an output that starts with the contents of `old`. If no later
/// call reads `old`, this is `old` itself, else a copy. `written` is the data that the caller
/// writes there.
pub(super) fn successor(
    e: &mut Encoder<'_, '_>,
    old: &Operand,
    out: &Operand,
    written: &Operand,
) -> Result<Operand, Error> {
    let (out, is_alias) = e.take_over(old, out, written)?;
    if !is_alias {
        copy_all(e, old, &out)?;
    }
    Ok(out)
}

/// Encodes a copy of all elements.
pub(super) fn copy_all(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
) -> Result<(), Error> {
    gather(e, input, out, &[input.numel()], &[1], 0)
}

/// Sets the output to the strided view `input[base + strides * index(i)]` over `sizes`, without a
/// copy if it is contiguous.
fn pick(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    sizes: &[usize],
    strides: &[i64],
    base: i64,
) -> Result<(), Error> {
    if out.numel() == 0 {
        return Ok(());
    }
    check_reach(input, sizes, strides, base)?;
    let dims = merge_dims(sizes, &[strides.to_vec()])?;
    let taken = match is_in_a_row(&dims) {
        true => e.take_part(out, input, base as usize)?,
        false => sizes == out.sizes && e.take_strided(out, input, strides, base as usize)?,
    };
    if taken {
        return Ok(());
    }
    gather_merged(e, input, out, &dims, base)
}

/// Whether merged dims are contiguous in memory.
fn is_in_a_row(dims: &[(usize, Vec<i64>)]) -> bool {
    match dims {
        [] => true,
        [(_, strides)] => strides.first() == Some(&1),
        _ => false,
    }
}

/// Emits `out[i] = input[base + strides * index(i)]` over `sizes`, the output's shape.
pub(super) fn gather(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    sizes: &[usize],
    strides: &[i64],
    base: i64,
) -> Result<(), Error> {
    if out.numel() == 0 {
        return Ok(());
    }
    check_reach(input, sizes, strides, base)?;
    gather_merged(e, input, out, &merge_dims(sizes, &[strides.to_vec()])?, base)
}

/// Emits a [`gather`] over merged dims. All of them must lie within the input.
fn gather_merged(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    dims: &[(usize, Vec<i64>)],
    base: i64,
) -> Result<(), Error> {
    let contiguous = base == 0 && !e.varies() && is_in_a_row(dims);
    let mut push = GatherPush {
        numel: u32_of(out.numel())?,
        base: i32::try_from(base).map_err(|_| {
            Error::unsupported(format!("a view from element {base}; the limit is 2^31"))
        })?,
        rank: u32_of(dims.len())?,
        sizes: [1; MAX_DIMS],
        strides: [0; MAX_DIMS],
    };
    for (slot, (size, strides)) in (0..MAX_DIMS).rev().zip(dims.iter().rev()) {
        push.sizes[slot] = u32_of(*size)?;
        push.strides[slot] = i32::try_from(strides[0]).map_err(|_| {
            Error::unsupported(format!("a stride of {} elements; the limit is 2^31", strides[0]))
        })?;
    }
    let fixed = !e.varies() && !e.is_of_varying_shapes();
    let by_four = fixed && is_by_four(dims, base);
    let pipeline = Gather { input: input.element, output: out.element, contiguous, by_four };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, out.numel())
}

/// Whether each aligned group of four outputs comes from an aligned group of four inputs.
fn is_by_four(dims: &[(usize, Vec<i64>)], base: i64) -> bool {
    let fits = |number: i64| number % 4 == 0;
    match dims.split_last() {
        Some(((size, steps), outer)) => {
            size.is_multiple_of(4)
                && steps.iter().all(|step| *step == 1)
                && fits(base)
                && outer.iter().flat_map(|(_, steps)| steps).all(|step| fits(*step))
        }
        None => false,
    }
}

/// Rejects a strided view that exceeds its tensor.
fn check_reach(input: &Operand, sizes: &[usize], strides: &[i64], base: i64) -> Result<(), Error> {
    let (mut least, mut most) = (i128::from(base), i128::from(base));
    for (size, stride) in sizes.iter().zip(strides) {
        let end = (*size as i128 - 1).max(0) * i128::from(*stride);
        if end < 0 { least += end } else { most += end }
    }
    if least < 0 || most >= input.numel() as i128 {
        return Err(Error::Invalid(format!(
            "a view of shape {sizes:?} with strides {strides:?} exceeds input shape {:?}",
            input.sizes
        )));
    }
    Ok(())
}
