//! Arithmetic of two tensors, or of a tensor and a number.

use super::{TypeRule, by_compute, prepare};
use crate::map::{Two, map};
use crate::number::Compute;
use torchlet_core::Param::{Out, Scalar, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError};

/// `aten::add.out(self, other, alpha, out)`: `self + alpha * other`.
pub const ADD_OUT: Kernel = Kernel::new("aten::add.out", &[Tensor, Tensor, Scalar, Out], |ctx| {
    prepare(ctx, &[0, 1], &[], 3, TypeRule::Common, by_compute!(add))
});

/// Addition that wraps where integers overflow.
pub(crate) trait Arithmetic: Compute {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

macro_rules! float_arithmetic {
    ($($t:ty),*) => {$(impl Arithmetic for $t {
        #[inline(always)]
        fn add(self, other: Self) -> Self { self + other }
        #[inline(always)]
        fn mul(self, other: Self) -> Self { self * other }
    })*};
}
float_arithmetic!(f32, f64);

impl Arithmetic for i64 {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

fn add<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let alpha = C::of_scalar(ctx.scalar(2)?);
    map(ctx, [0, 1], 3, &Two(|a: C, b: C| a.add(alpha.mul(b))))
}
