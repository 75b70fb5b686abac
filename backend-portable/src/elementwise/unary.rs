//! Functions of one tensor.

use super::{TypeRule, by_compute, prepare};
use crate::map::map;
use crate::number::Compute;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError};

/// `aten::relu.out(self, out)`: `max(self, 0)`; NaN stays.
pub const RELU_OUT: Kernel = Kernel::new("aten::relu.out", &[Tensor, Out], |ctx| {
    prepare(ctx, &[0], &[], 1, TypeRule::Common, by_compute!(relu))
});

fn relu<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map(ctx, [0], 1, &|a: C| if a < C::default() { C::default() } else { a })
}
