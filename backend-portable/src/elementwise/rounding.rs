//! Rounding to integers. Integer tensors are unchanged.

use super::{Real, TypeRule, by_compute, prepare, unary};
use crate::map::map;
use crate::number::Compute;
use crate::table::kernels;
use torchlet_core::Param::{Int, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError};

kernels! {
    /// `aten::ceil.out(self, out)`: rounds up.
    CEIL_OUT = unary!("aten::ceil.out", Common, Rounding, C::up, recompiled Rounding::up);
    /// `aten::floor.out(self, out)`: rounds down.
    FLOOR_OUT = unary!("aten::floor.out", Common, Rounding, C::down, recompiled Rounding::down);
    /// `aten::trunc.out(self, out)`: rounds towards zero.
    TRUNC_OUT = unary!("aten::trunc.out", Common, Rounding, C::inward, recompiled Rounding::inward);
    /// `aten::round.out(self, out)`: rounds to the nearest integer, ties to even.
    ROUND_OUT =
        unary!("aten::round.out", Common, Rounding, C::nearest, recompiled Rounding::nearest);
    /// `aten::round.decimals_out(self, decimals, out)`: rounds to a number of decimal digits;
    /// negative `decimals` round digits before the decimal point.
    ROUND_DECIMALS_OUT = Kernel::new("aten::round.decimals_out", &[Tensor, Int, Out], |ctx| {
        prepare(ctx, &[0], &[], 2, TypeRule::Common, by_compute!(float round_decimals))
    });
}

/// Rounding; the identity for integers.
pub(crate) trait Rounding: Compute {
    fn up(self) -> Self;
    fn down(self) -> Self;
    fn inward(self) -> Self;
    fn nearest(self) -> Self;
}

macro_rules! rounding {
    ($($t:ty: $up:ident $down:ident $inward:ident $nearest:ident;)*) => {$(impl Rounding for $t {
        #[inline(always)]
        fn up(self) -> Self { Real::$up(self) }
        #[inline(always)]
        fn down(self) -> Self { Real::$down(self) }
        #[inline(always)]
        fn inward(self) -> Self { Real::$inward(self) }
        #[inline(always)]
        fn nearest(self) -> Self { Real::$nearest(self) }
    })*};
}
rounding! {
    f32: ceil floor trunc round_even;
    f64: ceil floor trunc round_even;
}

impl Rounding for i64 {
    #[inline(always)]
    fn up(self) -> Self {
        self
    }
    #[inline(always)]
    fn down(self) -> Self {
        self
    }
    #[inline(always)]
    fn inward(self) -> Self {
        self
    }
    #[inline(always)]
    fn nearest(self) -> Self {
        self
    }
}

fn round_decimals<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let decimals = ctx.int(1)?;
    let scale = C::real(10.0).pow(C::real(decimals.unsigned_abs() as f64));
    if decimals < 0 {
        map(ctx, [0], 2, &move |a: C| (a / scale).round_even() * scale)
    } else {
        map(ctx, [0], 2, &move |a: C| (a * scale).round_even() / scale)
    }
}
