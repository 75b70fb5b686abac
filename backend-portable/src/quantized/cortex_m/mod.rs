//! The `cortex_m` operators: int8 networks in integer arithmetic, as in CMSIS-NN.
//!
//! The kernels compute on channels-last images and contiguous matrices. Tensors in another memory
//! order are copied to and from scratch memory (`relayout`). The arithmetic is in
//! [`compute::q8`](crate::compute::q8).

mod convolution;
mod elementwise;
mod linear;
mod pooling;
mod relayout;

pub use convolution::*;
pub use elementwise::*;
pub use linear::*;
pub use pooling::*;

use crate::compute::q8::Scale;
use crate::compute::q8::convolve::Extent;
use crate::shape::bad;
use torchlet_core::layout::{DimOrder, channels_last_order, contiguous_order};
use torchlet_core::{Arguments, KernelError, ScalarType, TensorInfo};

/// The scale given by a multiplier, argument `arg`, and a shift, argument `arg + 1`.
fn scale(ctx: &Arguments, arg: usize) -> Result<Scale, KernelError> {
    Scale::new(ctx.int(arg)?, ctx.int(arg + 1)?)
        .ok_or(bad(arg, "multiplier, or the shift in the next argument, is out of range"))
}

/// An integer argument that must fit 32 bits.
fn int(ctx: &Arguments, arg: usize) -> Result<i32, KernelError> {
    i32::try_from(ctx.int(arg)?).map_err(|_| bad(arg, "expected a 32-bit integer"))
}

/// Checks the element type of a tensor.
fn expect_type(ctx: &Arguments, arg: usize, expected: ScalarType) -> Result<(), KernelError> {
    match ctx.info(arg)?.scalar_type {
        found if found == expected => Ok(()),
        found => Err(KernelError::scalar_type(arg, found)),
    }
}

/// Order of the sizes of an image. The kernels compute on batch, rows, columns, channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// NCHW, as in PyTorch; the tensor's dim order is channels last.
    Logical,
    /// NHWC, the memory order: operators whose names end with `_nhwc`.
    Memory,
}

impl Order {
    /// The dims of batch, rows, columns and channels.
    fn dims(self) -> [usize; 4] {
        match self {
            Order::Logical => [0, 2, 3, 1],
            Order::Memory => [0, 1, 2, 3],
        }
    }

    /// The kernel's dim order for a tensor of this rank.
    fn dim_order(self, rank: usize) -> DimOrder {
        let channels_last = channels_last_order(rank).filter(|_| self == Order::Logical);
        channels_last.unwrap_or_else(|| contiguous_order(rank))
    }

    /// The sizes of an image, in this order.
    fn sizes(self, [batch, rows, columns, channels]: [i32; 4]) -> [i32; 4] {
        match self {
            Order::Logical => [batch, channels, rows, columns],
            Order::Memory => [batch, rows, columns, channels],
        }
    }

    fn extent(self, info: &TensorInfo) -> Extent {
        let [_, rows, columns, channels] = self.dims().map(|dim| info.size(dim));
        Extent { rows, columns, channels }
    }

    /// Checks that argument `arg` is an int8 image; returns its batch size and its extent.
    fn image(self, ctx: &Arguments, arg: usize) -> Result<(i32, Extent), KernelError> {
        expect_type(ctx, arg, ScalarType::Char)?;
        let info = ctx.info(arg)?;
        let (&[batch, ..], 4) = (&info.sizes[..], info.rank()) else {
            return Err(KernelError::rank(arg, info.rank()));
        };
        Ok((batch, self.extent(&info)))
    }
}
