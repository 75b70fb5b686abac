//! Operators that move elements: copies of views, concatenating and splitting, padding and
//! repeating.
//!
//! They do not interpret the elements, so they support every element type. [`moves`] is the copy
//! loop that they share. Operators of one input are views, in `views.rs`.

mod blocks;
mod joining;
pub(crate) mod maps;
pub(crate) mod moves;
pub(crate) mod padding;
pub(crate) mod views;

pub use blocks::*;
pub use joining::*;
pub use padding::*;
pub use views::*;

use crate::walk::{Steps, Walk};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::rules::View;
use torchlet_core::{Arguments, Invoke, KernelError, ScalarType, TensorInfo, TensorMut};

/// Error for an argument's value.
pub(crate) fn bad(arg: usize, what: &'static str) -> KernelError {
    KernelError::argument(arg, what)
}

/// Checks that two arguments have the same element type.
pub(crate) fn same_type(ctx: &Arguments, input: usize, out: usize) -> Result<(), KernelError> {
    let found = ctx.info(out)?.scalar_type;
    if found == ctx.info(input)?.scalar_type {
        Ok(())
    } else {
        Err(KernelError::scalar_type(out, found))
    }
}

/// Checks that an argument has this element type.
pub(crate) fn of_type(
    arg: usize,
    info: &TensorInfo,
    wanted: ScalarType,
) -> Result<(), KernelError> {
    let found = info.scalar_type;
    if found == wanted { Ok(()) } else { Err(KernelError::scalar_type(arg, found)) }
}

/// Checks that an argument is contiguous.
pub(crate) fn contiguous(arg: usize, info: &TensorInfo) -> Result<(), KernelError> {
    if info.is_contiguous() { Ok(()) } else { Err(KernelError::layout(arg)) }
}

/// Returns the strides of a view, for a [`Walk`](crate::walk::Walk) over its elements.
pub(crate) fn steps_of(view: &View) -> Steps {
    let mut strides = [0; MAX_RANK];
    for (stride, step) in strides.iter_mut().zip(view.strides()) {
        *stride = *step;
    }
    Steps { strides, base: view.base() }
}

/// Creates a walk over an output of the view's shape.
pub(crate) fn walk_of(out: &TensorInfo, view: &View) -> Result<Walk<1>, KernelError> {
    if out.sizes != *view.sizes() {
        return Err(KernelError::rank(0, out.rank()));
    }
    Ok(Walk::new(out, &[steps_of(view)]))
}

/// Returns an output that is initialized with argument 0, for the kernel to modify in part. Nothing
/// is copied if the exporter planned the output over the input (the kernel is declared
/// [`updating`](torchlet_core::Kernel::updating)).
pub(crate) fn updated<'c>(
    ctx: &mut Invoke<'c, '_>,
    out: usize,
) -> Result<TensorMut<'c>, KernelError> {
    if ctx.is_in_place() {
        return ctx.out(out);
    }
    let input = ctx.tensor(0)?;
    let mut out = ctx.out(out)?;
    let whole = View::of(input.info()).ok_or(bad(0, "shape is too large"))?;
    let walk = walk_of(out.info(), &whole)?;
    moves::copy(ctx.parallel(), input.scalar_type.size(), &walk, input.bytes(), out.bytes_mut());
    Ok(out)
}
