//! Concatenation, and writes of one tensor into a part of another.

use super::moves::{by_size, copy_items, copy_range, items, items_mut, write_run};
use super::{bad, same_type, steps_of, updated, walk_of};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::elementwise::can_cast;
use crate::number::{Compute, ComputeType, load, store, unsupported};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Int, OptionalInt, Out, Tensor, TensorList};
use torchlet_core::layout::Sizes;
use torchlet_core::rules::{View, cat, normalize_dim};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
    TensorRef,
};

kernels! { JOINING:
    /// `aten::cat.out(tensors, dim, out)`: concatenates tensors over `dim`.
    CAT_OUT = Kernel::new("aten::cat.out", &[TensorList, Int, Out], |ctx| {
        let (sizes, _) = cat_rule(ctx)?;
        ctx.resize(2, &sizes)?;
        check_types(ctx)?;
        Ok(Plan::new(|ctx| {
            let (_, dim) = cat_rule(ctx)?;
            join(ctx, dim, false)
        }))
    });
    /// `aten::stack.out(tensors, dim, out)`: concatenates tensors over a new dim.
    STACK_OUT = Kernel::new("aten::stack.out", &[TensorList, Int, Out], |ctx| {
        let (sizes, _) = stack_rule(ctx)?;
        ctx.resize(2, &sizes)?;
        check_types(ctx)?;
        Ok(Plan::new(|ctx| {
            let (_, dim) = stack_rule(ctx)?;
            join(ctx, dim, true)
        }))
    });
    /// `aten::slice_scatter.out(self, src, dim, start, end, step, out)`: a copy of `self` with a
    /// slice of `dim` replaced by `src`.
    SLICE_SCATTER_OUT = Kernel::new(
        "aten::slice_scatter.out",
        &[Tensor, Tensor, Int, OptionalInt, OptionalInt, Int, Out],
        |ctx| prepare_scatter(ctx, 6, slice, |ctx| invoke_scatter(ctx, 6, slice)),
    )
    .updating(6, 0);
    /// `aten::select_scatter.out(self, src, dim, index, out)`: a copy of `self` with one index of
    /// `dim` replaced by `src`.
    SELECT_SCATTER_OUT =
        Kernel::new("aten::select_scatter.out", &[Tensor, Tensor, Int, Int, Out], |ctx| {
            prepare_scatter(ctx, 4, select, |ctx| invoke_scatter(ctx, 4, select))
        })
        .updating(4, 0);
    /// `aten::diagonal_scatter.out(self, src, offset, dim1, dim2, out)`: a copy of `self` with a
    /// diagonal replaced by `src`.
    DIAGONAL_SCATTER_OUT =
        Kernel::new("aten::diagonal_scatter.out", &[Tensor, Tensor, Int, Int, Int, Out], |ctx| {
            prepare_scatter(ctx, 5, diagonal, |ctx| invoke_scatter(ctx, 5, diagonal))
        })
        .updating(5, 0);
}

fn item(ctx: &Arguments, position: usize) -> Result<TensorInfo, KernelError> {
    ctx.list_info(0, position)?.ok_or(bad(0, "a tensor of the list is missing"))
}

fn cat_rule(ctx: &Arguments) -> Result<(Sizes, usize), KernelError> {
    let shapes =
        (0..ctx.list_len(0)?).map(|position| item(ctx, position).ok().map(|info| info.sizes));
    cat(shapes, ctx.int(1)?).ok_or(bad(
        0,
        "expected at least one tensor, and shapes that differ at most in argument 1 (`dim`)",
    ))
}

fn stack_rule(ctx: &Arguments) -> Result<(Sizes, usize), KernelError> {
    let count = ctx.list_len(0)?;
    let mut sizes = item(ctx, 0)?.sizes;
    for position in 1..count {
        if item(ctx, position)?.sizes != sizes {
            return Err(bad(0, "the tensors have different shapes"));
        }
    }
    let dim = normalize_dim(ctx.int(1)?, sizes.len() + 1)
        .ok_or(bad(1, "dim is out of range for the input"))?;
    let count = i32::try_from(count).map_err(|_| bad(0, "too many tensors"))?;
    sizes
        .insert(dim, count)
        .map_err(|_| bad(0, "the result exceeds the highest supported rank"))?;
    Ok((sizes, dim))
}

/// Checks that the common dtype of the inputs converts to the output's.
fn check_types(ctx: &Arguments) -> Result<(), KernelError> {
    let found = ctx.info(2)?.scalar_type;
    let mut common = item(ctx, 0)?.scalar_type;
    let mut all_same = true;
    for position in 0..ctx.list_len(0)? {
        let own = item(ctx, position)?.scalar_type;
        all_same &= own == found;
        common = common.promote(own).ok_or(unsupported(0, own))?;
    }
    if !all_same && (ComputeType::of(common).is_none() || !can_cast(common, found)) {
        return Err(unsupported(2, found));
    }
    Ok(())
}

fn join(ctx: &mut Invoke, dim: usize, stack: bool) -> Result<(), KernelError> {
    let out = ctx.out(2)?;
    let info = out.info().clone();
    let out = out.into_bytes();
    // In memory, the output consists of rows; each input is a contiguous part of every row.
    let level = info.dim_order.iter().position(|&at| usize::from(at) == dim);
    let inner = info.dim_order.iter().skip(level.map_or(0, |level| level + 1));
    let unit: usize = inner.map(|&dim| info.size(usize::from(dim))).product();
    let row = unit.saturating_mul(info.size(dim));
    let mut offset = 0;
    for position in 0..ctx.list_len(0)? {
        let tensor =
            ctx.list_tensor(0, position)?.ok_or(bad(0, "a tensor of the list is missing"))?;
        if !stack && tensor.sizes == [0] {
            continue;
        }
        let mut view = View::of(tensor.info()).ok_or(bad(0, "shape is too large"))?;
        if stack {
            let dim = i64::try_from(dim).unwrap_or(-1);
            view = view.unsqueeze(dim).ok_or(bad(1, "dim is out of range for the input"))?;
        }
        let part = TensorInfo { sizes: view.sizes().clone(), ..info.clone() };
        let len = unit.saturating_mul(part.size(dim));
        if offset + len > row {
            return Err(bad(0, "the tensors exceed the output in the joined dim"));
        }
        let walk = walk_of(&part, &view)?;
        fill_rows(ctx, &walk, &tensor, info.scalar_type, out, row, offset..offset + len);
        offset += len;
    }
    Ok(())
}

/// Fills the range `part` of each output row. The walk runs over these parts of all rows.
fn fill_rows(
    ctx: &Invoke,
    walk: &Walk<1>,
    input: &TensorRef,
    out_type: ScalarType,
    out: &mut [u8],
    row: usize,
    part: core::ops::Range<usize>,
) {
    let (parallel, size, len) = (ctx.parallel(), out_type.size(), part.len());
    if row == 0 || len == 0 {
        return;
    }
    if input.scalar_type != out_type {
        for (index, out) in out.chunks_mut(row * size).enumerate() {
            let out = out.get_mut(part.start * size..part.end * size).unwrap_or_default();
            convert_range(walk, index * len, input, out_type, out);
        }
        return;
    }
    by_size!(size, |E| {
        let (input, out) = (items::<E>(input.bytes()), items_mut::<E>(out));
        if out.len() == row {
            return copy_items(parallel, walk, input, out.get_mut(part).unwrap_or_default());
        }
        let (sizes, steps, [base]) = walk.levels();
        let dense = sizes.len() <= 1 && steps.iter().all(|step| *step == [1]) && base == 0;
        let rows = (chunk_len(parallel, out.len(), 64 * 1024 / size) / row).max(1);
        for_each_chunk_mut(parallel, out, rows * row, &|chunk, out: &mut [E]| {
            for (index, out) in out.chunks_mut(row).enumerate() {
                let from = (chunk * rows + index) * len;
                let Some(out) = out.get_mut(part.clone()) else { return };
                match input.get(from..from + len) {
                    Some(input) if dense => out.copy_from_slice(input),
                    _ => copy_range(walk, from, input, out),
                }
            }
        });
    });
}

/// Fills output positions from `from` on, converting to the dtype of the output.
pub(crate) fn convert_range(
    walk: &Walk<1>,
    from: usize,
    input: &TensorRef,
    out_type: ScalarType,
    out: &mut [u8],
) {
    match ComputeType::of(input.scalar_type) {
        Some(ComputeType::F32) => convert_as::<f32>(walk, from, input, out_type, out),
        Some(ComputeType::F64) => convert_as::<f64>(walk, from, input, out_type, out),
        Some(ComputeType::I64) => convert_as::<i64>(walk, from, input, out_type, out),
        None => {}
    }
}

fn convert_as<C: Compute>(
    walk: &Walk<1>,
    from: usize,
    input: &TensorRef,
    out_type: ScalarType,
    out: &mut [u8],
) {
    let size = out_type.size();
    let [step] = walk.inner_steps();
    let mut block = [C::default(); 64];
    walk.for_each_run(from, from + out.len() / size, &mut |start, [at], len| {
        for done in (0..len).step_by(block.len()) {
            let count = (len - done).min(block.len());
            let values = block.get_mut(..count).unwrap_or_default();
            let at = at.wrapping_add(step.wrapping_mul(done as isize));
            load(input.scalar_type, input.bytes(), at, step, values);
            let byte_offset = (start - from + done) * size;
            store(
                out_type,
                out.get_mut(byte_offset..byte_offset + count * size).unwrap_or_default(),
                values,
            );
        }
    });
}

/// Function that narrows a view of the output to the part that argument 1 replaces.
type Target = fn(&Arguments, View) -> Result<View, KernelError>;

fn prepare_scatter(
    ctx: &mut Prepare,
    out: usize,
    target: Target,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let (info, source) = (ctx.info(0)?, ctx.info(1)?);
    let view = target(ctx, View::of(&info).ok_or(bad(0, "shape is too large"))?)?;
    if *view.sizes() != source.sizes {
        return Err(bad(1, "source: expected the shape of the replaced part"));
    }
    ctx.resize(out, &info.sizes)?;
    same_type(ctx, 0, out)?;
    if source.scalar_type != info.scalar_type {
        for (arg, found) in [(0, info.scalar_type), (1, source.scalar_type)] {
            ComputeType::of(found).ok_or(unsupported(arg, found))?;
        }
    }
    Ok(Plan::new(invoke))
}

fn invoke_scatter(ctx: &mut Invoke, out: usize, target: Target) -> Result<(), KernelError> {
    let (source, out) = (ctx.tensor(1)?, updated(ctx, out)?);
    let info = out.info().clone();
    let size = info.scalar_type.size();
    let out = out.into_bytes();
    let view = target(ctx, View::of(&info).ok_or(bad(0, "shape is too large"))?)?;
    if *view.sizes() != source.sizes {
        return Err(bad(1, "source: expected the shape of the replaced part"));
    }
    // The source is dense; the walk yields the output positions of its elements.
    let walk = Walk::new(source.info(), &[steps_of(&view)]);
    let [step] = walk.inner_steps();
    if source.scalar_type == info.scalar_type {
        by_size!(size, |E| {
            let (source, out) = (items::<E>(source.bytes()), items_mut::<E>(out));
            walk.for_each_run(0, walk.numel(), &mut |start, [at], len| {
                if let Some(values) = source.get(start..start + len) {
                    write_run(out, at, step, values);
                }
            });
        });
        return Ok(());
    }
    let elements = Walk::new(
        source.info(),
        &[steps_of(&View::of(source.info()).ok_or(bad(1, "shape is too large"))?)],
    );
    walk.for_each_run(0, walk.numel(), &mut |start, [at], len| {
        for index in 0..len {
            let at = at.wrapping_add(step.wrapping_mul(index as isize));
            let byte_offset = usize::try_from(at).unwrap_or(usize::MAX / 32) * size;
            let target = out.get_mut(byte_offset..byte_offset + size).unwrap_or_default();
            convert_range(&elements, start + index, &source, info.scalar_type, target);
        }
    });
    Ok(())
}

fn slice(ctx: &Arguments, view: View) -> Result<View, KernelError> {
    let (start, end) = (ctx.optional_int(3)?, ctx.optional_int(4)?);
    if view.rank() == 0 {
        return Err(KernelError::rank(0, 0));
    }
    view.slice(ctx.int(2)?, start, end, ctx.int(5)?)
        .ok_or(bad(2, "dim is out of range for the input, or step is not positive"))
}

fn select(ctx: &Arguments, view: View) -> Result<View, KernelError> {
    view.select(ctx.int(2)?, ctx.int(3)?)
        .ok_or(bad(3, "dim or index is out of range for the input"))
}

fn diagonal(ctx: &Arguments, view: View) -> Result<View, KernelError> {
    view.diagonal(ctx.int(2)?, ctx.int(3)?, ctx.int(4)?)
        .ok_or(bad(3, "diagonal: expected two different dims in range"))
}
