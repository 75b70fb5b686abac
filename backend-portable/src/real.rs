//! Arithmetic of the two floating-point types that kernels compute in.

use crate::number::Compute;
use core::ops::{Add, Div, Mul, Neg, Sub};

/// `f32` or `f64`.
pub(crate) trait Real:
    Compute
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    fn sqrt(self) -> Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn pow(self, exponent: Self) -> Self;
    fn abs(self) -> Self;
    /// The number of elements of something.
    fn count(count: usize) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn sqrt(self) -> f32 {
        libm::sqrtf(self)
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        libm::expf(self)
    }
    #[inline(always)]
    fn ln(self) -> f32 {
        libm::logf(self)
    }
    #[inline(always)]
    fn pow(self, exponent: f32) -> f32 {
        libm::powf(self, exponent)
    }
    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }
    #[inline(always)]
    fn count(count: usize) -> f32 {
        count as f32
    }
}

impl Real for f64 {
    #[inline(always)]
    fn sqrt(self) -> f64 {
        libm::sqrt(self)
    }
    #[inline(always)]
    fn exp(self) -> f64 {
        libm::exp(self)
    }
    #[inline(always)]
    fn ln(self) -> f64 {
        libm::log(self)
    }
    #[inline(always)]
    fn pow(self, exponent: f64) -> f64 {
        libm::pow(self, exponent)
    }
    #[inline(always)]
    fn abs(self) -> f64 {
        f64::abs(self)
    }
    #[inline(always)]
    fn count(count: usize) -> f64 {
        count as f64
    }
}
