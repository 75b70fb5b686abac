//! Copies int8 tensors to the memory order of the kernels if it differs.
//!
//! Exporters write these operators around channels-last tensors, but not always. Reflection
//! padding, for example, is decomposed into indexing, whose result is contiguous.

use super::Order;
use crate::scratch::take_from;
use crate::shape::{bad, moves, walk_of};
use crate::variants::{Variants, has, require};
use torchlet_core::layout::same_layout;
use torchlet_core::rules::View;
use torchlet_core::{ARENA_ALIGN, Arguments, Invoke, KernelError, Parallel, TensorInfo, TensorMut};

/// Bytes of scratch memory for copies of these arguments. Tensors already in `order` are not
/// copied.
pub(super) fn copies_len(
    ctx: &Arguments,
    args: &[usize],
    order: Order,
) -> Result<usize, KernelError> {
    args.iter().try_fold(0usize, |all, &arg| {
        let info = ctx.info(arg)?;
        if !lies_in(&info, order) {
            require(Variants::REORDERED_COPY)?;
        }
        copy_len(&info, order)
            .and_then(|len| all.checked_add(len))
            .ok_or(bad(arg, "shape is too large"))
    })
}

/// Bytes of scratch memory for a copy of one tensor, rounded up so that the next part is aligned.
fn copy_len(info: &TensorInfo, order: Order) -> Option<usize> {
    let len = if lies_in(info, order) { 0 } else { info.numel() };
    len.checked_next_multiple_of(ARENA_ALIGN)
}

fn lies_in(info: &TensorInfo, order: Order) -> bool {
    same_layout(&info.sizes, &info.dim_order, &order.dim_order(info.rank()))
}

/// The same tensor in memory order `order`.
fn relayout(info: &TensorInfo, order: Order) -> TensorInfo {
    TensorInfo { dim_order: order.dim_order(info.rank()), ..info.clone() }
}

/// Scratch memory of a call: copies of tensors, followed by the kernel's workspace.
pub(super) struct Relayout<'c> {
    scratch: &'c mut [u8],
    parallel: &'c dyn Parallel,
    order: Order,
}

impl<'c> Relayout<'c> {
    pub(super) fn new(ctx: &mut Invoke<'c, '_>, order: Order) -> Self {
        Relayout { scratch: ctx.scratch(), parallel: ctx.parallel(), order }
    }

    fn take_copy(&mut self, info: &TensorInfo) -> Result<&'c mut [i8], KernelError> {
        let len = copy_len(info, self.order).unwrap_or(usize::MAX);
        let copy = take_from::<i8>(&mut self.scratch, len)?;
        Ok(copy.get_mut(..info.numel()).unwrap_or_default())
    }

    /// Returns the values of an input in the kernel's memory order, copied if necessary.
    pub(super) fn input(
        &mut self,
        ctx: &Invoke<'c, '_>,
        arg: usize,
    ) -> Result<&'c [i8], KernelError> {
        let input = ctx.tensor(arg)?;
        if !has(Variants::REORDERED_COPY) || lies_in(input.info(), self.order) {
            return input.data::<i8>();
        }
        let copy = self.take_copy(input.info())?;
        copy_all(
            self.parallel,
            input.info(),
            &relayout(input.info(), self.order),
            input.bytes(),
            bytemuck::cast_slice_mut(copy),
        )?;
        Ok(copy)
    }

    /// Returns memory for the values of the output in the kernel's memory order.
    pub(super) fn output(
        &mut self,
        ctx: &mut Invoke<'c, '_>,
        arg: usize,
    ) -> Result<Output<'c>, KernelError> {
        let out = ctx.out(arg)?;
        if !has(Variants::REORDERED_COPY) || lies_in(out.info(), self.order) {
            return Ok(Output { values: out.into_data::<i8>()?, copied: None });
        }
        let info = relayout(out.info(), self.order);
        let values = self.take_copy(out.info())?;
        Ok(Output { values, copied: Some((out, info)) })
    }

    /// Returns the workspace: the remaining scratch memory.
    pub(super) fn workspace<T: bytemuck::Pod>(
        mut self,
        len: usize,
    ) -> Result<&'c mut [T], KernelError> {
        take_from(&mut self.scratch, len)
    }
}

/// Memory of an output.
pub(super) struct Output<'c> {
    pub(super) values: &'c mut [i8],
    /// The output tensor and the layout of `values`, if they must be copied to it.
    copied: Option<(TensorMut<'c>, TensorInfo)>,
}

impl Output<'_> {
    /// Copies the computed values to the output tensor, if necessary.
    pub(super) fn finish(self, parallel: &dyn Parallel) -> Result<(), KernelError> {
        let Some((out, info)) = self.copied.filter(|_| has(Variants::REORDERED_COPY)) else {
            return Ok(());
        };
        let to = out.info().clone();
        copy_all(parallel, &info, &to, bytemuck::cast_slice(self.values), out.into_bytes())
    }
}

/// Copies all elements of a tensor to one in another memory order.
fn copy_all(
    parallel: &dyn Parallel,
    from: &TensorInfo,
    to: &TensorInfo,
    input: &[u8],
    out: &mut [u8],
) -> Result<(), KernelError> {
    let view = View::of(from).ok_or(bad(0, "shape is too large"))?;
    moves::copy_items::<u8>(parallel, &walk_of(to, &view)?, input, out);
    Ok(())
}
