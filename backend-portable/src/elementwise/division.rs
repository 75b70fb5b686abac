//! True and rounded division, and the matching remainders.
//!
//! Integer division by zero is an error, as in PyTorch; the smallest integer divided by -1 wraps.

use super::complex::with_complex;
use super::{ByCompute, Real, TypeRule, binary, by_compute, prepare, with_other};
use crate::map::{Function, Rounded, map, rounded_operand};
use crate::number::{Compute, round_through};
use crate::table::kernels;
use core::sync::atomic::{AtomicBool, Ordering};
use torchlet_core::Param::{OptionalString, Out, Scalar, Tensor};
use torchlet_core::rules::{Operand, result_type};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType};

/// A kernel `(self, other, out)` for a method of [`Division`]. With `Scalar` after the name,
/// `other` is a scalar; with `Of`, `self` is.
macro_rules! division_kernel {
    ($name:literal Of, $method:ident) => {
        Kernel::new($name, &[Scalar, Tensor, Out], |ctx| {
            fn invoke<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
                with_checked_divisors::<C>(C::$method, |function| {
                    let number = rounded_operand::<C>(ctx, 1, 0)?;
                    map(ctx, [1], 2, &move |other| function(number, other))
                })
            }
            prepare(ctx, &[1], &[0], 2, TypeRule::Common, by_compute!(invoke))
        })
    };
    ($name:literal Scalar, $method:ident) => {
        Kernel::new($name, &[Tensor, Scalar, Out], |ctx| {
            fn invoke<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
                with_checked_divisors::<C>(C::$method, |function| {
                    let other = rounded_operand::<C>(ctx, 0, 1)?;
                    map(ctx, [0], 2, &move |number| function(number, other))
                })
            }
            prepare(ctx, &[0], &[1], 2, TypeRule::Common, by_compute!(invoke))
        })
    };
    ($name:literal rounded, $method:ident) => {
        Kernel::new($name, &[Tensor, Tensor, Out], |ctx| {
            fn invoke<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
                with_checked_divisors::<C>(C::$method, |function| {
                    map(ctx, [0, 1], 2, &Rounded(function))
                })
            }
            prepare(ctx, &[0, 1], &[], 2, TypeRule::Common, by_compute!(invoke))
        })
    };
    ($name:literal, $method:ident) => {
        Kernel::new($name, &[Tensor, Tensor, Out], |ctx| {
            fn invoke<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
                checked::<C, false>(ctx, 2, C::$method)
            }
            prepare(ctx, &[0, 1], &[], 2, TypeRule::Common, by_compute!(invoke))
        })
    };
}

kernels! {
    /// `aten::div.out(self, other, out)`: `self / other`; `float32` for integers.
    DIV_OUT = with_complex!(
        binary!("aten::div.out", Float, float Real, |a: C, b: C| a / b), &[0, 1], 2, Complex,
        div::<false>
    );
    /// `aten::div.Scalar_out(self, other, out)`: `self / other`; `float32` for integers.
    DIV_SCALAR_OUT = with_complex!(
        binary!("aten::div.Scalar_out" Scalar, Float, float Real, |a: C, b: C| a / b), &[0], 2,
        Complex, div::<true>
    );
    /// `aten::div.out_mode(self, other, rounding_mode, out)`: `self / other`, rounded down for
    /// "floor", towards zero for "trunc".
    DIV_OUT_MODE = Kernel::new("aten::div.out_mode", &[Tensor, Tensor, OptionalString, Out], |ctx| {
        prepare_mode::<false>(ctx, &[0, 1], &[])
    });
    /// `aten::div.Scalar_mode_out(self, other, rounding_mode, out)`: like [`DIV_OUT_MODE`], with a
    /// scalar divisor.
    DIV_SCALAR_MODE_OUT =
        Kernel::new("aten::div.Scalar_mode_out", &[Tensor, Scalar, OptionalString, Out], |ctx| {
            prepare_mode::<true>(ctx, &[0], &[1])
        });
    /// `aten::floor_divide.out(self, other, out)`: `self / other` rounded down.
    FLOOR_DIVIDE_OUT = division_kernel!("aten::floor_divide.out", floor_div);
    /// `aten::fmod.Tensor_out(self, other, out)`: the remainder with the sign of `self`.
    FMOD_TENSOR_OUT = division_kernel!("aten::fmod.Tensor_out" rounded, fmod);
    /// `aten::fmod.Scalar_out(self, other, out)`: the remainder with the sign of `self`.
    FMOD_SCALAR_OUT = division_kernel!("aten::fmod.Scalar_out" Scalar, fmod);
    /// `aten::remainder.Tensor_out(self, other, out)`: the remainder with the sign of `other`.
    REMAINDER_TENSOR_OUT = division_kernel!("aten::remainder.Tensor_out" rounded, remainder);
    /// `aten::remainder.Scalar_out(self, other, out)`: the remainder with the sign of `other`.
    REMAINDER_SCALAR_OUT = division_kernel!("aten::remainder.Scalar_out" Scalar, remainder);
    /// `aten::remainder.Scalar_Tensor_out(self, other, out)`: the remainder with the sign of
    /// `other`.
    REMAINDER_SCALAR_TENSOR_OUT =
        division_kernel!("aten::remainder.Scalar_Tensor_out" Of, remainder);
}

/// Division. Methods may only be called if `other` [is a valid divisor](Self::is_valid_divisor).
pub(crate) trait Division: Compute {
    /// Whether this is a valid divisor: any value except integer zero.
    fn is_valid_divisor(self) -> bool;
    /// Floor division.
    fn floor_div(self, other: Self) -> Self;
    /// Truncating division.
    fn trunc_div(self, other: Self) -> Self;
    /// The remainder with the sign of `self`.
    fn fmod(self, other: Self) -> Self;
    /// The remainder with the sign of `other`.
    fn remainder(self, other: Self) -> Self;
}

macro_rules! float_division {
    ($($t:ty),*) => {$(impl Division for $t {
        #[inline(always)]
        fn is_valid_divisor(self) -> bool {
            true
        }
        /// Like Python's `//`: consistent with the remainder.
        #[inline(always)]
        fn floor_div(self, other: Self) -> Self {
            if other == 0.0 {
                return self / other;
            }
            let remainder = self % other;
            let mut quotient = (self - remainder) / other;
            if remainder != 0.0 && (other < 0.0) != (remainder < 0.0) {
                quotient -= 1.0;
            }
            if quotient == 0.0 {
                return Real::copysign(0.0, self / other);
            }
            let rounded = Real::floor(quotient);
            if quotient - rounded > 0.5 { rounded + 1.0 } else { rounded }
        }
        #[inline(always)]
        fn trunc_div(self, other: Self) -> Self {
            Real::trunc(self / other)
        }
        #[inline(always)]
        fn fmod(self, other: Self) -> Self {
            self % other
        }
        #[inline(always)]
        fn remainder(self, other: Self) -> Self {
            let remainder = self % other;
            let adjust = remainder != 0.0 && (other < 0.0) != (remainder < 0.0);
            if adjust { remainder + other } else { remainder }
        }
    })*};
}
float_division!(f32, f64);

impl Division for i64 {
    #[inline(always)]
    fn is_valid_divisor(self) -> bool {
        self != 0
    }
    #[inline(always)]
    fn floor_div(self, other: Self) -> Self {
        let quotient = self.wrapping_div(other);
        let exact = quotient.wrapping_mul(other) == self;
        if !exact && (self < 0) != (other < 0) { quotient - 1 } else { quotient }
    }
    #[inline(always)]
    fn trunc_div(self, other: Self) -> Self {
        self.wrapping_div(other)
    }
    #[inline(always)]
    fn fmod(self, other: Self) -> Self {
        self.wrapping_rem(other)
    }
    #[inline(always)]
    fn remainder(self, other: Self) -> Self {
        let remainder = self.wrapping_rem(other);
        if remainder != 0 && (other < 0) != (remainder < 0) { remainder + other } else { remainder }
    }
}

/// Computes `function(self, other)`; fails if an `other` is not a valid divisor.
fn checked<C: Division, const SCALAR: bool>(
    ctx: &mut Invoke,
    out: usize,
    function: impl Fn(C, C) -> C + Sync,
) -> Result<(), KernelError> {
    with_checked_divisors(function, |function| with_other::<C, SCALAR>(ctx, out, function))
}

/// Runs a loop with a function that skips invalid divisors, then fails if any occurred.
fn with_checked_divisors<C: Division>(
    function: impl Fn(C, C) -> C + Sync,
    run: impl FnOnce(&(dyn Fn(C, C) -> C + Sync)) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let by_zero = AtomicBool::new(false);
    run(&|a, b: C| {
        if b.is_valid_divisor() {
            function(a, b)
        } else {
            by_zero.store(true, Ordering::Relaxed);
            C::default()
        }
    })?;
    if by_zero.into_inner() {
        return Err(KernelError::argument(1, "integer division by zero"));
    }
    Ok(())
}

fn prepare_mode<const SCALAR: bool>(
    ctx: &mut Prepare,
    inputs: &[usize],
    scalars: &[usize],
) -> Result<Plan, KernelError> {
    let (rule, functions) = match (ctx.optional_string(2)?, SCALAR) {
        (None, false) => (TypeRule::Float, by_compute!(float exact_tensor)),
        (None, true) => (TypeRule::Float, by_compute!(float exact_scalar)),
        (Some("floor"), false) => (TypeRule::Common, by_compute!(floor_tensor)),
        (Some("floor"), true) => (TypeRule::Common, by_compute!(floor_scalar)),
        (Some("trunc"), false) => {
            let floats = by_compute!(float trunc_rounded);
            (TypeRule::Common, ByCompute { i64: Some(trunc_tensor::<i64>), ..floats })
        }
        (Some("trunc"), true) => (TypeRule::Common, by_compute!(trunc_scalar)),
        _ => return Err(KernelError::argument(2, "expected None, 'floor' or 'trunc'")),
    };
    prepare(ctx, inputs, scalars, 3, rule, functions)
}

fn exact_tensor<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    with_other::<C, false>(ctx, 3, move |a, b| a / b)
}

fn exact_scalar<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    with_other::<C, true>(ctx, 3, move |a, b| a / b)
}

fn floor_tensor<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    checked::<C, false>(ctx, 3, C::floor_div)
}

fn floor_scalar<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    checked::<C, true>(ctx, 3, C::floor_div)
}

fn trunc_tensor<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    checked::<C, false>(ctx, 3, C::trunc_div)
}

/// Rounds the quotient to half or bfloat16 before truncation, as PyTorch does; this may reach the
/// next integer. PyTorch does not round if the divisor is a single value.
fn trunc_rounded<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let operands = [Operand::from(&ctx.info(0)?), Operand::from(&ctx.info(1)?)];
    let is_number = ctx.info(1)?.numel() == 1;
    let common = result_type(operands).filter(|common| *common != C::SCALAR_TYPE && !is_number);
    map::<C, 2>(ctx, [0, 1], 3, &TruncRounded(common))
}

struct TruncRounded(Option<ScalarType>);

impl<C: Real> Function<2, C> for TruncRounded {
    fn apply(&self, [a, b]: [&[C]; 2], out: &mut [C]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a / b;
        }
        if let Some(narrow) = self.0 {
            round_through(narrow, out);
        }
        for out in out {
            *out = out.trunc();
        }
    }
}

fn trunc_scalar<C: Division>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    checked::<C, true>(ctx, 3, C::trunc_div)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `torch.div(a, b, rounding_mode="floor")`.
    #[test]
    fn floor_division_of_floats_matches_pytorch() {
        let inf = f32::INFINITY;
        for (b, expected) in [
            (0.0, [inf, -inf, inf, inf, -inf]),
            (2.0, [0.0, -1.0, f32::NAN, 2.0, -3.0]),
            (-2.0, [-1.0, 0.0, f32::NAN, -3.0, 2.0]),
            (inf, [0.0, -1.0, f32::NAN, 0.0, -1.0]),
        ] {
            for (a, expected) in [1.0, -1.0, inf, 5.5, -5.5].into_iter().zip(expected) {
                let found = Division::floor_div(a, b);
                assert!(
                    found == expected || found.is_nan() && expected.is_nan(),
                    "{a} {b} {found}"
                );
            }
        }
        // The quotient rounds to 10, but the remainder is not zero.
        assert_eq!(Division::floor_div(1.0f64, 0.1), 9.0);
    }

    #[test]
    fn integer_overflow_does_not_trap() {
        assert_eq!(Division::floor_div(i64::MIN, -1), i64::MIN);
        assert_eq!(Division::trunc_div(i64::MIN, -1), i64::MIN);
        assert_eq!(Division::remainder(i64::MIN, -1), 0);
        assert_eq!(Division::floor_div(-7i64, 2), -4);
        assert_eq!(Division::remainder(-7i64, 2), 1);
        assert_eq!(Division::fmod(-7i64, 2), -1);
        assert_eq!(Division::floor_div(i64::MIN, i64::MAX), -2);
    }
}
