//! Selection of values by condition, mask or bounds.

use super::comparison::{maximum, minimum};
use super::complex::with_complex;
use super::{TypeRule, by_compute, prepare, prepare_with, with_other};
use crate::map::{Three, Two, map};
use crate::number::Compute;
use crate::table::kernels;
use torchlet_core::Param::{OptionalScalar, OptionalTensor, Out, Scalar, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError};

kernels! {
    /// `aten::where.self_out(condition, self, other, out)`: `self` if the condition is true, else
    /// `other`.
    WHERE_SELF_OUT = with_complex!(
        Kernel::new("aten::where.self_out", &[Tensor, Tensor, Tensor, Out], |ctx| {
            prepare_with(ctx, &[0], &[1, 2], &[], 3, TypeRule::Common, by_compute!(choose))
        }),
        &[0, 1, 2],
        3,
        Complex,
        choose
    );
    /// `aten::masked_fill.Scalar_out(self, mask, value, out)`: the value if the mask is true, else
    /// `self`.
    MASKED_FILL_SCALAR_OUT =
        Kernel::new("aten::masked_fill.Scalar_out", &[Tensor, Tensor, Scalar, Out], |ctx| {
            prepare_with(ctx, &[1], &[0], &[], 3, TypeRule::Common, by_compute!(masked_fill))
        });
    /// `aten::clamp.out(self, min, max, out)`: clamps `self` to a range, either end of which is
    /// optional; NaN propagates.
    CLAMP_OUT =
        Kernel::new("aten::clamp.out", &[Tensor, OptionalScalar, OptionalScalar, Out], |ctx| {
            prepare(ctx, &[0], &[1, 2], 3, TypeRule::Common, by_compute!(ordered clamp))
        });
    /// `aten::clamp_min.out(self, min, out)`: the maximum of `self` and `min`; NaN if either is
    /// NaN.
    CLAMP_MIN_OUT = Kernel::new("aten::clamp_min.out", &[Tensor, Scalar, Out], |ctx| {
        fn clamp_min<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
            with_other::<C, true>(ctx, 2, maximum)
        }
        prepare(ctx, &[0], &[1], 2, TypeRule::Common, by_compute!(ordered clamp_min))
    });
    /// `aten::clamp.Tensor_out(self, min, max, out)`: clamps `self` to tensor bounds, either of
    /// which is optional; NaN if any operand is NaN.
    CLAMP_TENSOR_OUT = Kernel::new(
        "aten::clamp.Tensor_out",
        &[Tensor, OptionalTensor, OptionalTensor, Out],
        |ctx| {
            let (inputs, functions): (&[usize], _) = match (ctx.is_none(1), ctx.is_none(2)) {
                (false, false) => (&[0, 1, 2], by_compute!(ordered clamp_both)),
                (false, true) => (&[0, 1], by_compute!(ordered clamp_low)),
                (true, false) => (&[0, 2], by_compute!(ordered clamp_high)),
                (true, true) => {
                    return Err(KernelError::argument(1, "expected min, max or both, found \
                                                         neither"));
                }
            };
            prepare(ctx, inputs, &[], 3, TypeRule::Common, functions)
        });
}

fn choose<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    map(
        ctx,
        [0, 1, 2],
        3,
        &Three(move |condition: C, a: C, b: C| if condition.truth() { a } else { b }),
    )
}

fn masked_fill<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let value = C::of_scalar(ctx.scalar(2)?);
    map(ctx, [0, 1], 3, &Two(move |a: C, mask: C| if mask.truth() { value } else { a }))
}

fn clamp<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let low = ctx.optional_scalar(1)?.map(C::of_scalar);
    let high = ctx.optional_scalar(2)?.map(C::of_scalar);
    match (low, high) {
        (Some(low), Some(high)) => map(ctx, [0], 3, &move |a: C| minimum(maximum(a, low), high)),
        (Some(low), None) => map(ctx, [0], 3, &move |a: C| maximum(a, low)),
        (None, Some(high)) => map(ctx, [0], 3, &move |a: C| minimum(a, high)),
        (None, None) => Err(KernelError::argument(1, "expected min, max or both, found neither")),
    }
}

fn clamp_both<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    map(ctx, [0, 1, 2], 3, &Three(move |a: C, low: C, high: C| minimum(maximum(a, low), high)))
}

fn clamp_low<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    map(ctx, [0, 1], 3, &Two(move |a: C, low: C| maximum(a, low)))
}

fn clamp_high<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    map(ctx, [0, 2], 3, &Two(move |a: C, high: C| minimum(a, high)))
}
