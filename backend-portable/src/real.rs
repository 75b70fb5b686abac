//! Elementary floating-point functions, from the standard library with feature `std` and from
//! `libm` without it.

use crate::number::{Compute, unsupported};
use core::ops::{Add, Div, Mul, Neg, Sub};
use torchlet_core::{Arguments, InvokeFn, KernelError, Plan, ScalarType};

/// Selects the function for the compute type, `f32` or `f64`, of a floating-point argument.
pub(crate) fn by_type(
    args: &Arguments,
    arg: usize,
    functions: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    match args.info(arg)?.scalar_type {
        ScalarType::Double => Ok(Plan::new(functions[1])),
        found if found.is_floating() => Ok(Plan::new(functions[0])),
        found => Err(unsupported(arg, found)),
    }
}

/// A floating-point compute type: `f32` or `f64`.
#[allow(missing_docs, reason = "self-explanatory names")]
pub(crate) trait Real:
    Compute
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Converts a constant.
    fn real(value: f64) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn exp_m1(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn log2(self) -> Self;
    fn log10(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn atan2(self, other: Self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn tanh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
    fn erf(self) -> Self;
    fn sqrt(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    /// Rounds to the nearest integer, ties to even. Uses additions only, which vectorize on every
    /// target.
    fn round_even(self) -> Self;
    fn pow(self, exponent: Self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn abs(self) -> Self;
    /// Splits the value into a mantissa in `0.5..1.0` and a power of two.
    fn frexp(self) -> (Self, i32);
    /// Converts an element count.
    fn count(count: usize) -> Self;

    /// `1 / (1 + e^-x)`
    #[inline(always)]
    fn sigmoid(self) -> Self {
        let one = Self::real(1.0);
        one / (one + (-self).exp())
    }
}

macro_rules! real {
    ($t:ident: $($name:ident($($arg:ident),*) = $std:ident, $libm:ident;)*) => {
        impl Real for $t {
            #[inline(always)]
            fn real(value: f64) -> Self { value as $t }
            #[inline(always)]
            fn count(count: usize) -> Self { count as $t }
            #[inline(always)]
            fn abs(self) -> Self { <$t>::abs(self) }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self { <$t>::copysign(self, sign) }
            #[inline(always)]
            fn round_even(self) -> Self {
                // Values of at least this magnitude are integers, so adding it to a value rounds
                // the fraction away.
                const WHOLE: $t = 1.0 / <$t>::EPSILON;
                let whole = WHOLE.copysign(self);
                let rounded = ((self + whole) - whole).copysign(self);
                if self.abs() < WHOLE { rounded } else { self }
            }
            $(
                #[inline(always)]
                fn $name(self $(, $arg: Self)*) -> Self {
                    #[cfg(any(test, feature = "std"))]
                    return <$t>::$std(self $(, $arg)*);
                    #[cfg(not(any(test, feature = "std")))]
                    return libm::$libm(self $(, $arg)*);
                }
            )*
            #[inline(always)]
            fn erf(self) -> Self { real!(@erf $t, self) }
            #[inline(always)]
            fn frexp(self) -> (Self, i32) { real!(@frexp $t, self) }
            // Not the standard library's functions, which overflow internally.
            #[inline(always)]
            fn asinh(self) -> Self { real!(@asinh $t, self) }
            #[inline(always)]
            fn acosh(self) -> Self { real!(@acosh $t, self) }
        }
    };
    (@erf f32, $x:expr) => { libm::erff($x) };
    (@erf f64, $x:expr) => { libm::erf($x) };
    (@frexp f32, $x:expr) => { libm::frexpf($x) };
    (@frexp f64, $x:expr) => { libm::frexp($x) };
    (@asinh f32, $x:expr) => { libm::asinhf($x) };
    (@asinh f64, $x:expr) => { libm::asinh($x) };
    (@acosh f32, $x:expr) => { libm::acoshf($x) };
    (@acosh f64, $x:expr) => { libm::acosh($x) };
}

real! { f32:
    exp() = exp, expf;
    exp2() = exp2, exp2f;
    exp_m1() = exp_m1, expm1f;
    ln() = ln, logf;
    ln_1p() = ln_1p, log1pf;
    log2() = log2, log2f;
    log10() = log10, log10f;
    sin() = sin, sinf;
    cos() = cos, cosf;
    tan() = tan, tanf;
    asin() = asin, asinf;
    acos() = acos, acosf;
    atan() = atan, atanf;
    atan2(other) = atan2, atan2f;
    sinh() = sinh, sinhf;
    cosh() = cosh, coshf;
    tanh() = tanh, tanhf;
    atanh() = atanh, atanhf;
    sqrt() = sqrt, sqrtf;
    floor() = floor, floorf;
    ceil() = ceil, ceilf;
    trunc() = trunc, truncf;
    pow(exponent) = powf, powf;
}

real! { f64:
    exp() = exp, exp;
    exp2() = exp2, exp2;
    exp_m1() = exp_m1, expm1;
    ln() = ln, log;
    ln_1p() = ln_1p, log1p;
    log2() = log2, log2;
    log10() = log10, log10;
    sin() = sin, sin;
    cos() = cos, cos;
    tan() = tan, tan;
    asin() = asin, asin;
    acos() = acos, acos;
    atan() = atan, atan;
    atan2(other) = atan2, atan2;
    sinh() = sinh, sinh;
    cosh() = cosh, cosh;
    tanh() = tanh, tanh;
    atanh() = atanh, atanh;
    sqrt() = sqrt, sqrt;
    floor() = floor, floor;
    ceil() = ceil, ceil;
    trunc() = trunc, trunc;
    pow(exponent) = powf, pow;
}

#[cfg(test)]
mod tests {
    use super::Real;

    /// Values of `torch.asinh` and `torch.acosh`.
    #[test]
    fn inverse_hyperbolic_functions_do_not_overflow() {
        for (x, expected) in [(3e38f32, 89.29), (1e30, 69.7707), (1e20, 46.7448)] {
            assert!((Real::asinh(x) - expected).abs() < 1e-4, "{}", Real::asinh(x));
            assert!((Real::asinh(-x) + expected).abs() < 1e-4);
            assert!((Real::acosh(x) - expected).abs() < 1e-4);
        }
        assert!((Real::acosh(3e307f64) - 708.6854).abs() < 1e-4);
    }

    #[test]
    fn rounds_half_to_even() {
        for (x, rounded) in [(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0), (2.51, 3.0), (-0.49, 0.0)] {
            assert_eq!((x as f32).round_even(), rounded as f32);
            assert_eq!(x.round_even(), rounded);
        }
        assert_eq!(8_388_609f32.round_even(), 8_388_609.0);
        assert!(f32::NAN.round_even().is_nan());
        assert_eq!(f32::INFINITY.round_even(), f32::INFINITY);
    }
}
