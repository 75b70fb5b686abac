//! Comparisons, maximum and minimum. Integers are compared as integers, other types in their common
//! dtype.

use super::binary;
use super::complex::with_complex;
use crate::number::{Compute, load, number_type};
use crate::table::{kernels, renamed};
use crate::walk::Walk;
use torchlet_core::Param::{Bool, Float, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! {
    /// `aten::eq.Tensor_out(self, other, out)`: `self == other`.
    EQ_TENSOR_OUT = with_complex!(
        binary!("aten::eq.Tensor_out", Bool, Compute, eq), &[0, 1], 2, Bool, equal::<false, false>
    );
    /// `aten::eq.Scalar_out(self, other, out)`: `self == other`.
    EQ_SCALAR_OUT = with_complex!(
        binary!("aten::eq.Scalar_out" Scalar, Bool, Compute, eq), &[0], 2, Bool,
        equal::<true, false>
    );
    /// `aten::ne.Tensor_out(self, other, out)`: `self != other`.
    NE_TENSOR_OUT = with_complex!(
        binary!("aten::ne.Tensor_out", Bool, Compute, ne), &[0, 1], 2, Bool, equal::<false, true>
    );
    /// `aten::ne.Scalar_out(self, other, out)`: `self != other`.
    NE_SCALAR_OUT = with_complex!(
        binary!("aten::ne.Scalar_out" Scalar, Bool, Compute, ne), &[0], 2, Bool,
        equal::<true, true>
    );
    /// `aten::lt.Tensor_out(self, other, out)`: `self < other`.
    LT_TENSOR_OUT = binary!("aten::lt.Tensor_out", Bool, ordered Compute, lt);
    /// `aten::lt.Scalar_out(self, other, out)`: `self < other`.
    LT_SCALAR_OUT = binary!("aten::lt.Scalar_out" Scalar, Bool, ordered Compute, lt);
    /// `aten::le.Tensor_out(self, other, out)`: `self <= other`.
    LE_TENSOR_OUT = binary!("aten::le.Tensor_out", Bool, ordered Compute, le);
    /// `aten::le.Scalar_out(self, other, out)`: `self <= other`.
    LE_SCALAR_OUT = binary!("aten::le.Scalar_out" Scalar, Bool, ordered Compute, le);
    /// `aten::gt.Tensor_out(self, other, out)`: `self > other`.
    GT_TENSOR_OUT = binary!("aten::gt.Tensor_out", Bool, ordered Compute, |a, b| lt(b, a));
    /// `aten::gt.Scalar_out(self, other, out)`: `self > other`.
    GT_SCALAR_OUT = binary!("aten::gt.Scalar_out" Scalar, Bool, ordered Compute, |a, b| lt(b, a));
    /// `aten::ge.Tensor_out(self, other, out)`: `self >= other`.
    GE_TENSOR_OUT = binary!("aten::ge.Tensor_out", Bool, ordered Compute, |a, b| le(b, a));
    /// `aten::ge.Scalar_out(self, other, out)`: `self >= other`.
    GE_SCALAR_OUT = binary!("aten::ge.Scalar_out" Scalar, Bool, ordered Compute, |a, b| le(b, a));
    /// `aten::maximum.out(self, other, out)`: the maximum; NaN if either is NaN.
    MAXIMUM_OUT = binary!("aten::maximum.out", Common, ordered Compute, maximum);
    /// `aten::minimum.out(self, other, out)`: the minimum; NaN if either is NaN.
    MINIMUM_OUT = binary!("aten::minimum.out", Common, ordered Compute, minimum);
    /// `aten::fmax.out(self, other, out)`: the maximum; NaN only if both are NaN.
    FMAX_OUT = binary!("aten::fmax.out", Common, ordered Compute, fmax);
    /// `aten::fmin.out(self, other, out)`: the minimum; NaN only if both are NaN.
    FMIN_OUT = binary!("aten::fmin.out", Common, ordered Compute, fmin);
    /// `aten::allclose.out(self, other, rtol, atol, equal_nan, dummy_param, out)`: whether all
    /// elements satisfy `|self - other| <= atol + |rtol * other|` (`torch.allclose`). With
    /// `equal_nan`, NaN equals NaN.
    ALLCLOSE_OUT = Kernel::new(
        "aten::allclose.out",
        &[Tensor, Tensor, Float, Float, Bool, Bool, Out],
        |ctx| {
            let (a, b, out) = (ctx.info(0)?, ctx.info(1)?, ctx.info(6)?);
            number_type(0, a.scalar_type)?;
            if a.scalar_type != b.scalar_type {
                return Err(KernelError::argument(1, "dtype differs from that of the first input"));
            }
            if out.scalar_type != ScalarType::Bool || out.numel() != 1 {
                return Err(KernelError::argument(6, "expected a bool tensor of one element"));
            }
            Walk::broadcast(&a, [&b])?;
            Ok(Plan::new(all_close))
        },
    );
    /// `allclose.out`: alias of [`ALLCLOSE_OUT`] without a namespace.
    ALLCLOSE_PLAIN_OUT = renamed(ALLCLOSE_OUT, "allclose.out");
    /// `allclose.Tensor`: alias of [`ALLCLOSE_OUT`].
    ALLCLOSE_TENSOR = renamed(ALLCLOSE_OUT, "allclose.Tensor");
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 32;

fn all_close(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (rtol, atol, equal_nan) = (ctx.float(2)?, ctx.float(3)?, ctx.bool(4)?);
    let close = |a: f64, b: f64| {
        let near = (a - b).abs() <= atol + (rtol * b).abs() && (a - b).is_finite();
        a == b || near || equal_nan && a.is_nan() && b.is_nan()
    };
    let walk = Walk::broadcast(a.info(), [b.info()])?;
    let [step] = walk.inner_steps();
    let mut all = true;
    walk.for_each_run(0, walk.numel(), &mut |start, [at], len| {
        let mut done = 0;
        while all && done < len {
            let count = BLOCK.min(len - done);
            let (mut left, mut right) = ([0f64; BLOCK], [0f64; BLOCK]);
            let right_at = at.wrapping_add(step.wrapping_mul(done as isize));
            load(a.scalar_type, a.bytes(), (start + done) as isize, 1, &mut left[..count]);
            load(b.scalar_type, b.bytes(), right_at, step, &mut right[..count]);
            all &= left.iter().zip(&right).take(count).all(|(&a, &b)| close(a, b));
            done += count;
        }
    });
    let out = ctx.out(6)?.into_data::<torchlet_core::Bool>()?;
    out.fill(torchlet_core::Bool::new(all));
    Ok(())
}

#[inline(always)]
fn eq<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a == b)
}

#[inline(always)]
fn ne<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a != b)
}

#[inline(always)]
fn lt<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a < b)
}

#[inline(always)]
fn le<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a <= b)
}

/// The maximum; NaN if either is NaN.
#[inline(always)]
pub(crate) fn maximum<C: Compute>(a: C, b: C) -> C {
    if a > b || a.is_nan() { a } else { b }
}

/// The maximum; NaN only if both are NaN.
#[inline(always)]
fn fmax<C: Compute>(a: C, b: C) -> C {
    if a >= b || b.is_nan() { a } else { b }
}

/// The minimum; NaN only if both are NaN.
#[inline(always)]
fn fmin<C: Compute>(a: C, b: C) -> C {
    if a <= b || b.is_nan() { a } else { b }
}

/// The minimum; NaN if either is NaN.
#[inline(always)]
pub(crate) fn minimum<C: Compute>(a: C, b: C) -> C {
    if a < b || a.is_nan() { a } else { b }
}
