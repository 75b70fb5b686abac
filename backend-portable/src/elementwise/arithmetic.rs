//! Addition, subtraction, multiplication, sign and absolute value. Integer overflow wraps.

use super::complex::with_complex;
use super::{TypeRule, binary, by_compute, prepare, unary, with_other};
use crate::map::{in_type, map, rounded_operand};
use crate::number::Compute;
use crate::table::kernels;
use torchlet_core::Param::{Out, Scalar, Tensor};
use torchlet_core::rules::{Operand, result_type};
use torchlet_core::{Invoke, Kernel, KernelError};

kernels! {
    /// `aten::add.out(self, other, alpha, out)`: `self + alpha * other`.
    ADD_OUT = with_complex!(Kernel::new("aten::add.out", &[Tensor, Tensor, Scalar, Out], |ctx| {
        prepare(ctx, &[0, 1], &[], 3, TypeRule::Common, by_compute!(add_tensor))
    }), &[0, 1], 3, Complex, add::<false>);
    /// `aten::add.Scalar_out(self, other, alpha, out)`: `self + alpha * other`.
    ADD_SCALAR_OUT = with_complex!(
        Kernel::new("aten::add.Scalar_out", &[Tensor, Scalar, Scalar, Out], |ctx| {
            prepare(ctx, &[0], &[1], 3, TypeRule::Common, by_compute!(add_scalar))
        }),
        &[0], 3, Complex, add::<true>
    );
    /// `aten::sub.out(self, other, alpha, out)`: `self - alpha * other`.
    SUB_OUT = with_complex!(Kernel::new("aten::sub.out", &[Tensor, Tensor, Scalar, Out], |ctx| {
        prepare(ctx, &[0, 1], &[], 3, TypeRule::Common, by_compute!(sub_tensor))
    }), &[0, 1], 3, Complex, sub::<false>);
    /// `aten::sub.Scalar_out(self, other, alpha, out)`: `self - alpha * other`.
    SUB_SCALAR_OUT = with_complex!(
        Kernel::new("aten::sub.Scalar_out", &[Tensor, Scalar, Scalar, Out], |ctx| {
            prepare(ctx, &[0], &[1], 3, TypeRule::Common, by_compute!(sub_scalar))
        }),
        &[0], 3, Complex, sub::<true>
    );
    /// `aten::rsub.Scalar_out(self, other, alpha, out)`: `other - alpha * self`.
    RSUB_SCALAR_OUT = Kernel::new("aten::rsub.Scalar_out", &[Tensor, Scalar, Scalar, Out], |ctx| {
        prepare(ctx, &[0], &[1], 3, TypeRule::Common, by_compute!(rsub_scalar))
    });
    /// `aten::mul.out(self, other, out)`: `self * other`.
    MUL_OUT = with_complex!(
        binary!("aten::mul.out", Common, Arithmetic, C::mul), &[0, 1], 2, Complex, mul::<false>
    );
    /// `aten::mul.Scalar_out(self, other, out)`: `self * other`.
    MUL_SCALAR_OUT = with_complex!(
        binary!("aten::mul.Scalar_out" Scalar, Common, Arithmetic, C::mul), &[0], 2, Complex,
        mul::<true>
    );
    /// `aten::abs.out(self, out)`: the absolute value.
    ABS_OUT = with_complex!(
        unary!("aten::abs.out", Common, Arithmetic, C::magnitude), &[0], 1, Real, abs
    );
    /// `aten::neg.out(self, out)`: `-self`.
    NEG_OUT = with_complex!(
        unary!("aten::neg.out", Common, Arithmetic, C::negated), &[0], 1, Complex, neg
    );
    /// `aten::sign.out(self, out)`: -1, 0 or 1; 0 for NaN.
    SIGN_OUT = unary!("aten::sign.out", Common, Arithmetic, |a: C| {
        let zero = C::default();
        C::of_bool(a > zero).sub(C::of_bool(a < zero))
    });
}

/// Arithmetic that cannot fail: integer overflow wraps.
pub(crate) trait Arithmetic: Compute {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn negated(self) -> Self;
    fn magnitude(self) -> Self;
}

macro_rules! float_arithmetic {
    ($($t:ty),*) => {$(impl Arithmetic for $t {
        #[inline(always)]
        fn add(self, other: Self) -> Self { self + other }
        #[inline(always)]
        fn sub(self, other: Self) -> Self { self - other }
        #[inline(always)]
        fn mul(self, other: Self) -> Self { self * other }
        #[inline(always)]
        fn negated(self) -> Self { -self }
        #[inline(always)]
        fn magnitude(self) -> Self { self.abs() }
    })*};
}
float_arithmetic!(f32, f64);

impl Arithmetic for i64 {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    #[inline(always)]
    fn negated(self) -> Self {
        self.wrapping_neg()
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        self.wrapping_abs()
    }
}

/// Computes `function(self, other, alpha)`; `alpha` is argument 2. For half and bfloat16 tensors,
/// scalars are rounded first, as in PyTorch.
fn with_alpha<C: Arithmetic, const SCALAR: bool>(
    ctx: &mut Invoke,
    function: impl Fn(C, C, C) -> C + Sync,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let own = Operand::from(&ctx.info(0)?);
    let other = if SCALAR { Operand::from(ctx.scalar(1)?) } else { Operand::from(&ctx.info(1)?) };
    let common = result_type([own, other]);
    let alpha = in_type(common, C::of_scalar(ctx.scalar(2)?));
    if SCALAR {
        let other = rounded_operand::<C>(ctx, 0, 1)?;
        return map(ctx, [0], 3, &move |a| function(a, other, alpha));
    }
    if alpha == C::of_bool(true) {
        // The common case `alpha == 1`, without the multiplication.
        return with_other::<C, false>(ctx, 3, move |a, b| function(a, b, C::of_bool(true)));
    }
    with_other::<C, false>(ctx, 3, move |a, b| function(a, b, alpha))
}

fn add_tensor<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    with_alpha::<C, false>(ctx, |a, b, alpha| a.add(b.mul(alpha)))
}

fn add_scalar<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    with_alpha::<C, true>(ctx, |a, b, alpha| a.add(b.mul(alpha)))
}

fn sub_tensor<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    with_alpha::<C, false>(ctx, |a, b, alpha| a.sub(b.mul(alpha)))
}

fn sub_scalar<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    with_alpha::<C, true>(ctx, |a, b, alpha| a.sub(b.mul(alpha)))
}

fn rsub_scalar<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    with_alpha::<C, true>(ctx, |a, b, alpha| b.sub(a.mul(alpha)))
}
