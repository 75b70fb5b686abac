//! Advanced indexing, `x[indices]` and `x[indices] = values`, with any mix of index tensors, masks
//! and unindexed dims.
//!
//! The indexed dims of the input are replaced by the broadcast shape of the index tensors: in place
//! if they are adjacent, else in front. The input offset of each index is computed in scratch
//! memory, masks included, before any element is moved.

use super::reading::copy_indexed;
use super::writing::Reduce;
use super::{Indices, index_type, steps};
use crate::number::{Number, elements, elements_mut, unsupported, with_number};
use crate::shape::moves::{by_size, items, items_mut};
use crate::shape::{bad, same_type, updated, views};
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Bool, OptionalTensorList, Out, Tensor};
use torchlet_core::layout::{MAX_RANK, Sizes, checked_numel};
use torchlet_core::rules::{broadcast, normalize_index};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
};

kernels! { ADVANCED:
    /// `aten::index.Tensor_out(self, indices, out)`: `self[indices]`.
    INDEX_TENSOR_OUT =
        Kernel::new("aten::index.Tensor_out", &[Tensor, OptionalTensorList, Out], |ctx| {
            let info = ctx.info(0)?;
            let scratch = scratch_bytes(ctx, &info)?;
            ctx.scratch_at_most(scratch);
            let pattern = Pattern::new(ctx, &info, |_, mask| Ok(mask.numel()));
            same_type(ctx, 0, 2)?;
            match pattern {
                Ok(pattern) if !pattern.masked => ctx.resize(2, &pattern.sizes(&info)?)?,
                // The number of elements that a mask selects is only known at run time.
                Err(error) if !has_mask(ctx)? => return Err(error),
                _ => {}
            }
            Ok(Plan::new(index).with_scratch(scratch))
        });
    /// `aten::index_put.out(self, indices, values, accumulate, out)`: a copy of `self` with
    /// `self[indices] = values`, or `+=` if `accumulate` is true.
    INDEX_PUT_OUT =
        Kernel::new("aten::index_put.out", &[Tensor, OptionalTensorList, Tensor, Bool, Out], |ctx| {
            let info = ctx.info(0)?;
            ctx.resize(4, &info.sizes)?;
            same_type(ctx, 0, 4)?;
            prepare_put(ctx).map(|scratch| Plan::new(|ctx| index_put(ctx, 4)).with_scratch(scratch))
        })
        .updating(4, 0);
    /// `aten::index_put_(self, indices, values, accumulate)`: in place.
    INDEX_PUT = Kernel::new("aten::index_put_", &[Out, OptionalTensorList, Tensor, Bool], |ctx| {
        prepare_put(ctx).map(|scratch| Plan::new(|ctx| index_put(ctx, 0)).with_scratch(scratch))
    });
}

fn is_mask(info: &TensorInfo) -> bool {
    matches!(info.scalar_type, ScalarType::Bool | ScalarType::Byte)
}

/// How the list of indices, argument 1, applies to a tensor.
struct Pattern {
    /// Whether each dim is indexed.
    indexed: [bool; MAX_RANK],
    /// Broadcast shape of the index tensors. A mask counts as a vector with an index for each
    /// element that it selects.
    shape: Sizes,
    /// Whether the list contains masks; the shape then depends on their data.
    masked: bool,
}

impl Pattern {
    /// Analyses the indices. `count` returns the number of elements that a mask selects.
    fn new(
        ctx: &Arguments,
        info: &TensorInfo,
        mut count: impl FnMut(usize, &TensorInfo) -> Result<usize, KernelError>,
    ) -> Result<Self, KernelError> {
        let mut pattern =
            Pattern { indexed: [false; MAX_RANK], shape: Sizes::new(), masked: false };
        let mut dim = 0;
        let mut any = false;
        for position in 0..ctx.list_len(1)? {
            let Some(index) = ctx.list_info(1, position)? else {
                dim += 1;
                continue;
            };
            any = true;
            let shape = if is_mask(&index) {
                let own = info.sizes.get(dim..).and_then(|sizes| sizes.get(..index.rank()));
                if index.rank() == 0 || own != Some(&index.sizes[..]) {
                    return Err(bad(
                        1,
                        "a mask: expected the shape of the input dims that it indexes",
                    ));
                }
                pattern.masked = true;
                let count = i32::try_from(count(position, &index)?);
                Sizes::from_slice(&[
                    count.map_err(|_| bad(1, "a mask selects more than 2^31 - 1 elements"))?
                ])
                .unwrap_or_default()
            } else {
                index_type(1, &index)?;
                index.sizes.clone()
            };
            let dims = if is_mask(&index) { index.rank() } else { 1 };
            for indexed in pattern.indexed.iter_mut().skip(dim).take(dims) {
                *indexed = true;
            }
            dim += dims;
            pattern.shape =
                broadcast(&pattern.shape, &shape).ok_or(bad(1, "index shapes do not broadcast"))?;
        }
        if !any || dim > info.rank() {
            return Err(bad(
                1,
                "expected at least one index tensor, and at most one per input dim",
            ));
        }
        Ok(pattern)
    }

    /// Number of dims of the result before the broadcast shape of the indices.
    fn leading_dims(&self) -> usize {
        let first = self.indexed.iter().position(|&indexed| indexed).unwrap_or(0);
        let count = self.indexed.iter().filter(|&&indexed| indexed).count();
        let together = self.indexed.iter().skip(first).take(count).all(|&indexed| indexed);
        if together { first } else { 0 }
    }

    /// Shape of the result.
    fn sizes(&self, info: &TensorInfo) -> Result<Sizes, KernelError> {
        let kept = info.sizes.iter().zip(&self.indexed).filter(|(_, indexed)| !**indexed);
        let mut kept = kept.map(|(&size, _)| size);
        let mut sizes: Sizes = kept.by_ref().take(self.leading_dims()).collect();
        let many = KernelError::rank(0, info.rank());
        for size in self.shape.iter().copied().chain(kept) {
            sizes.push(size).map_err(|_| many.clone())?;
        }
        checked_numel(&sizes).ok_or(bad(1, "the indexed shape is too large"))?;
        Ok(sizes)
    }

    /// Strides for walks over the result: in the tensor, and in the computed offsets.
    fn steps(&self, info: &TensorInfo) -> [Steps; 2] {
        let (leading_dims, depth) = (self.leading_dims(), self.shape.len());
        let strides = info.strides();
        let mut kept = strides.iter().zip(&self.indexed).filter(|(_, indexed)| !**indexed);
        let (mut tensor, mut offsets) = (steps(|_| 0), steps(|_| 0));
        for (dim, step) in tensor.strides.iter_mut().enumerate() {
            if dim < leading_dims || dim >= leading_dims + depth {
                *step = kept.next().map_or(0, |(&stride, _)| stride as isize);
            }
        }
        let mut step = 1usize;
        for (dim, &size) in self.shape.iter().enumerate().rev() {
            if let Some(slot) = offsets.strides.get_mut(leading_dims + dim) {
                *slot = step as isize;
            }
            step = step.saturating_mul(usize::try_from(size).unwrap_or(1).max(1));
        }
        [tensor, offsets]
    }
}

/// Maximum bytes of scratch memory for the offsets.
fn scratch_bytes(ctx: &Arguments, info: &TensorInfo) -> Result<usize, KernelError> {
    let (mut max_len, mut masks) = (0usize, 1usize);
    let mut shape = Sizes::new();
    for position in 0..ctx.list_len(1)? {
        let Some(index) = ctx.list_info(1, position)? else { continue };
        if is_mask(&index) {
            masks = masks.max(index.numel());
        } else if let Some(common) = broadcast(&shape, &index.sizes) {
            shape = common;
        }
        max_len = max_len.max(index.numel());
    }
    let last = shape.last().and_then(|&last| usize::try_from(last).ok()).unwrap_or(1);
    let numel = checked_numel(&shape).unwrap_or(0);
    let widened = (numel / last.max(1)).max(1).saturating_mul(last.max(masks));
    let large = bad(1, "indices are too large");
    let _ = info;
    widened.max(max_len).checked_mul(8).filter(|&bytes| bytes <= isize::MAX as usize).ok_or(large)
}

/// Number of true elements of a mask.
fn count_true(ctx: &Invoke, position: usize) -> Result<usize, KernelError> {
    let mask = ctx.list_tensor(1, position)?.ok_or(bad(1, "a mask is missing"))?;
    Ok(mask.bytes().iter().filter(|&&byte| byte != 0).count())
}

/// Computes the offset in the tensor for each element of the indices' broadcast shape.
fn fill_offsets(
    ctx: &Invoke,
    info: &TensorInfo,
    pattern: &Pattern,
    offsets: &mut [i64],
) -> Result<(), KernelError> {
    let strides = info.strides();
    let shape = TensorInfo::contiguous(ScalarType::Long, &pattern.shape);
    let shape = shape.ok_or(bad(1, "indices are too large"))?;
    offsets.fill(0);
    let mut dim = 0;
    for position in 0..ctx.list_len(1)? {
        let Some(index) = ctx.list_tensor(1, position)? else {
            dim += 1;
            continue;
        };
        if is_mask(index.info()) {
            add_mask(&index, strides.get(dim..).unwrap_or(&[]), offsets);
            dim += index.rank();
            continue;
        }
        let (size, stride) = (info.size(dim), strides.get(dim).copied().unwrap_or(1));
        let first = i64::try_from(size).map_or(0, |size| -size);
        let indices = Indices::checked(&index, 1, first, size)?;
        let walk = Walk::broadcast(&shape, [index.info()])?;
        let [step] = walk.inner_steps();
        walk.for_each_run(0, walk.numel(), &mut |start, [mut at], len| {
            for offset in offsets.get_mut(start..start + len).unwrap_or_default() {
                let index = normalize_index(indices.at(at), size).unwrap_or(0);
                *offset = offset.wrapping_add(index.wrapping_mul(stride) as i64);
                at = at.wrapping_add(step);
            }
        });
        dim += 1;
    }
    Ok(())
}

/// Adds the offsets of the elements that a mask selects. They extend over the last dim of the
/// offsets, or are broadcast over it.
fn add_mask(mask: &torchlet_core::TensorRef, strides: &[usize], offsets: &mut [i64]) {
    let bytes = mask.bytes();
    let count = bytes.iter().filter(|&&byte| byte != 0).count();
    let mut found = 0;
    for index in 0..bytes.len() {
        if bytes.get(views::position(mask.info(), index)).is_none_or(|&byte| byte == 0) {
            continue;
        }
        let (mut rest, mut at) = (index, 0usize);
        for (&size, &stride) in mask.sizes.iter().zip(strides).rev() {
            let size = usize::try_from(size).unwrap_or(1).max(1);
            at = at.wrapping_add((rest % size).wrapping_mul(stride));
            rest /= size;
        }
        for offset in offsets.iter_mut().skip(found).step_by(count) {
            *offset = offset.wrapping_add(at as i64);
        }
        found += 1;
    }
}

fn has_mask(ctx: &Arguments) -> Result<bool, KernelError> {
    for position in 0..ctx.list_len(1)? {
        if ctx.list_info(1, position)?.is_some_and(|info| is_mask(&info)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn index(ctx: &mut Invoke) -> Result<(), KernelError> {
    let info = ctx.info(0)?;
    let pattern = Pattern::new(ctx, &info, |position, _| count_true(ctx, position))?;
    if pattern.masked {
        ctx.resize(2, &pattern.sizes(&info)?)?;
    }
    let offsets = offsets(ctx, &info, &pattern)?;
    let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
    let walk = Walk::new(out.info(), &pattern.steps(&info));
    by_size!(info.scalar_type.size(), |E| {
        let (input, out) = (items::<E>(input.bytes()), items_mut::<E>(out.into_bytes()));
        let offset = |at: isize| offsets.get(at as usize).copied().unwrap_or(0) as isize;
        copy_indexed(ctx.parallel(), &walk, input, &offset, out);
    });
    Ok(())
}

/// Computes the offsets and stores them in scratch memory.
fn offsets<'c>(
    ctx: &mut Invoke<'c, '_>,
    info: &TensorInfo,
    pattern: &Pattern,
) -> Result<&'c [i64], KernelError> {
    let count = checked_numel(&pattern.shape).unwrap_or(0);
    let scratch = elements_mut::<i64>(ctx.scratch().as_chunks_mut::<8>().0.as_flattened_mut());
    let available = scratch.len().saturating_mul(8);
    let offsets =
        scratch.get_mut(..count).ok_or(KernelError::scratch(count.saturating_mul(8), available))?;
    fill_offsets(ctx, info, pattern, offsets)?;
    Ok(offsets)
}

/// Prepares `index_put` and returns its scratch size.
fn prepare_put(ctx: &mut Prepare) -> Result<usize, KernelError> {
    let (info, values) = (ctx.info(0)?, ctx.info(2)?);
    if values.scalar_type != info.scalar_type {
        return Err(unsupported(2, values.scalar_type));
    }
    let scratch = scratch_bytes(ctx, &info)?;
    ctx.scratch_at_most(scratch);
    let accumulates = ctx.bool(3)?;
    if accumulates && crate::number::ComputeType::of(info.scalar_type).is_none() {
        return Err(unsupported(0, info.scalar_type));
    }
    if !has_mask(ctx)? {
        let pattern = Pattern::new(ctx, &info, |_, mask| Ok(mask.numel()))?;
        check_values(&pattern.sizes(&info)?, &values)?;
    }
    Ok(scratch)
}

fn check_values(sizes: &[i32], values: &TensorInfo) -> Result<TensorInfo, KernelError> {
    let fits = broadcast(sizes, &values.sizes).is_some_and(|common| common == sizes);
    let info = TensorInfo::contiguous(values.scalar_type, sizes).filter(|_| fits);
    info.ok_or(bad(2, "values do not broadcast to the indexed shape"))
}

/// Writes values to output `out`, which is argument 0 (in place) or a copy of it.
fn index_put(ctx: &mut Invoke, out: usize) -> Result<(), KernelError> {
    let info = ctx.info(out)?;
    let pattern = Pattern::new(ctx, &info, |position, _| count_true(ctx, position))?;
    let (values, accumulates) = (ctx.tensor(2)?, ctx.bool(3)?);
    // Shape of the written part, in row-major order.
    let part = check_values(&pattern.sizes(&info)?, values.info())?;
    let offsets = offsets(ctx, &info, &pattern)?;
    let out = if out == 0 { ctx.out(0)? } else { updated(ctx, out)? };
    let out = out.into_bytes();
    let size = info.scalar_type.size();
    let [target, index] = pattern.steps(&info);
    let source = Steps::broadcast(&part, values.info())
        .ok_or(bad(2, "values do not broadcast to the indexed shape"))?;
    let walk = Walk::new(&part, &[target, index, source]);
    let offset = |at: isize| offsets.get(at as usize).copied().unwrap_or(0) as isize;
    if accumulates {
        with_number!(info.scalar_type, |T| {
            accumulate::<T>(&walk, &offset, elements(values.bytes()), elements_mut(out));
        }, else ());
    } else {
        by_size!(size, |E| {
            put::<E>(&walk, &offset, items(values.bytes()), items_mut(out));
        });
    }
    Ok(())
}

fn put<E: Copy>(walk: &Walk<3>, offset: &dyn Fn(isize) -> isize, values: &[E], out: &mut [E]) {
    for_each_run(walk, offset, &mut |[at, value], len| {
        let (out, values) = (run_mut(out, at, len), run(values, value, len));
        match (out, values) {
            // Copies a single element directly, without a call.
            (Some([out]), Some([value])) => *out = *value,
            (Some(out), Some(values)) => out.copy_from_slice(values),
            _ => {}
        }
    });
}

fn accumulate<T: Number>(
    walk: &Walk<3>,
    offset: &dyn Fn(isize) -> isize,
    values: &[T],
    out: &mut [T],
) {
    for_each_run(walk, offset, &mut |[at, value], len| {
        let (out, values) = (run_mut(out, at, len), run(values, value, len));
        for (out, value) in out.into_iter().flatten().zip(values.into_iter().flatten()) {
            *out = Reduce::Sum.combine(*out, *value);
        }
    });
}

fn run<E>(elements: &[E], from: usize, len: usize) -> Option<&[E]> {
    elements.get(from..from.checked_add(len)?)
}

fn run_mut<E>(elements: &mut [E], from: usize, len: usize) -> Option<&mut [E]> {
    elements.get_mut(from..from.checked_add(len)?)
}

/// Calls `visit` with output position, value position and length of runs that are contiguous in
/// both.
fn for_each_run(
    walk: &Walk<3>,
    offset: &dyn Fn(isize) -> isize,
    visit: &mut dyn FnMut([usize; 2], usize),
) {
    let steps = walk.inner_steps();
    walk.for_each_run(0, walk.numel(), &mut |_, [mut at, mut index, mut value], len| {
        if steps == [1, 0, 1] {
            return visit([at.wrapping_add(offset(index)) as usize, value as usize], len);
        }
        let fixed = (steps[1] == 0).then(|| offset(index));
        for _ in 0..len {
            let by = fixed.unwrap_or_else(|| offset(index));
            visit([at.wrapping_add(by) as usize, value as usize], 1);
            at = at.wrapping_add(steps[0]);
            index = index.wrapping_add(steps[1]);
            value = value.wrapping_add(steps[2]);
        }
    });
}
