//! The `cortex_m` operators: networks of 8-bit numbers in integer arithmetic, as CMSIS-NN computes them.
//!
//! Pictures are channels last. What is computed is in [`compute::q8`](crate::compute::q8); this is what operators ask of it.

mod convolution;
mod elementwise;
mod linear;
mod pooling;

pub use convolution::*;
pub use elementwise::*;
pub use linear::*;
pub use pooling::*;

use crate::compute::q8::Scale;
use crate::compute::q8::convolve::Extent;
use crate::shape::bad;
use torchlet_core::layout::same_layout;
use torchlet_core::{Arguments, KernelError, ScalarType, TensorInfo};

/// The scale of arguments `arg`, a multiplier, and the next, a shift.
fn scale(ctx: &Arguments, arg: usize) -> Result<Scale, KernelError> {
    Scale::new(ctx.int(arg)?, ctx.int(arg + 1)?)
        .ok_or(bad(arg, "this multiplier or the shift behind it is out of range"))
}

/// An argument that fits 32 bits.
fn int(ctx: &Arguments, arg: usize) -> Result<i32, KernelError> {
    i32::try_from(ctx.int(arg)?).map_err(|_| bad(arg, "is out of range"))
}

/// Checks that a tensor has this element type.
fn expect_type(ctx: &Arguments, arg: usize, expected: ScalarType) -> Result<(), KernelError> {
    match ctx.info(arg)?.scalar_type {
        found if found == expected => Ok(()),
        found => Err(KernelError::ScalarType { arg, found }),
    }
}

/// Whether a picture lies in memory as batch, rows, columns, channels.
fn is_picture(info: &TensorInfo) -> bool {
    info.rank() == 4 && same_layout(&info.sizes, &info.dim_order, &[0, 2, 3, 1])
}

/// Checks that argument `arg` is an 8-bit picture.
fn picture(ctx: &Arguments, arg: usize) -> Result<TensorInfo, KernelError> {
    expect_type(ctx, arg, ScalarType::Char)?;
    let info = ctx.info(arg)?;
    if info.rank() != 4 {
        return Err(KernelError::Rank { arg, found: info.rank() });
    }
    if is_picture(&info) { Ok(info) } else { Err(KernelError::Layout { arg }) }
}

/// A picture's rows, columns and channels.
fn extent(info: &TensorInfo) -> Extent {
    Extent { rows: info.size(2), columns: info.size(3), channels: info.size(1) }
}
