//! The `cortex_m` operators: networks of 8-bit numbers in integer arithmetic, as CMSIS-NN computes them.
//!
//! Pictures are channels last. A real scale is a multiplier of 31 fractional bits and a shift, applied by
//! `requantize`. Sums are 32 bits wide and wrap, as on the processors that the operators are named after.

mod convolution;
mod elementwise;
mod linear;
mod pooling;

pub use convolution::*;
pub use elementwise::*;
pub use linear::*;
pub use pooling::*;

use crate::shape::bad;
use torchlet_core::layout::same_layout;
use torchlet_core::{Arguments, KernelError, ScalarType, TensorInfo};

/// A multiplier and a shift, and what is added to the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    multiplier: i32,
    shift: i32,
}

impl Scale {
    /// From values that the program has as integers.
    fn new(multiplier: i64, shift: i64) -> Option<Self> {
        let multiplier = i32::try_from(multiplier).ok()?;
        let shift = i32::try_from(shift).ok().filter(|shift| (-31..=31).contains(shift))?;
        Some(Scale { multiplier, shift })
    }

    /// From arguments `arg` and the next.
    fn of(ctx: &Arguments, arg: usize) -> Result<Self, KernelError> {
        Scale::new(ctx.int(arg)?, ctx.int(arg + 1)?)
            .ok_or(bad(arg, "this multiplier or the shift behind it is out of range"))
    }

    /// `value * multiplier * 2^(shift - 31)`, rounded: the product to nearest, then what is shifted out, half away from
    /// zero.
    #[inline(always)]
    fn requantize(self, value: i32) -> i32 {
        let left = self.shift.max(0);
        let right = (-self.shift).max(0);
        let value = i64::from(value.wrapping_shl(left as u32));
        let product = value.wrapping_mul(i64::from(self.multiplier)).wrapping_add(1 << 30);
        let high = (product >> 31) as i32;
        if right == 0 {
            return high;
        }
        let mask = ((1u32 << right) - 1) as i32;
        let remainder = high & mask;
        let result = high.checked_shr(right as u32).unwrap_or(high >> 31);
        let threshold = (mask >> 1).wrapping_add(i32::from(result < 0));
        result.wrapping_add(i32::from(remainder > threshold))
    }
}

/// An argument that fits 32 bits.
fn int(ctx: &Arguments, arg: usize) -> Result<i32, KernelError> {
    i32::try_from(ctx.int(arg)?).map_err(|_| bad(arg, "is out of range"))
}

/// Checks that a tensor has this element type.
fn expect_type(ctx: &Arguments, arg: usize, expected: ScalarType) -> Result<(), KernelError> {
    match ctx.info(arg)?.scalar_type {
        found if found == expected => Ok(()),
        found => Err(KernelError::ScalarType { arg, found }),
    }
}

/// Whether a picture lies in memory as batch, rows, columns, channels.
fn is_picture(info: &TensorInfo) -> bool {
    info.rank() == 4 && same_layout(&info.sizes, &info.dim_order, &[0, 2, 3, 1])
}

/// Checks that argument `arg` is an 8-bit picture.
fn picture(ctx: &Arguments, arg: usize) -> Result<TensorInfo, KernelError> {
    expect_type(ctx, arg, ScalarType::Char)?;
    let info = ctx.info(arg)?;
    if info.rank() != 4 {
        return Err(KernelError::Rank { arg, found: info.rank() });
    }
    if is_picture(&info) { Ok(info) } else { Err(KernelError::Layout { arg }) }
}

/// Adds an offset and cuts to bounds.
#[inline(always)]
fn finish(value: i32, offset: i32, bounds: (i32, i32)) -> i8 {
    value.wrapping_add(offset).max(bounds.0).min(bounds.1) as i8
}

/// The sum of `(a + offset) * b`.
#[inline(always)]
fn dot(a: &[i8], b: &[i8], offset: i32) -> i32 {
    let mut sum = 0i32;
    for (&a, &b) in a.iter().zip(b) {
        sum = sum.wrapping_add(i32::from(a).wrapping_add(offset).wrapping_mul(i32::from(b)));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::Scale;

    /// Values of ExecuTorch's reference of the same arithmetic.
    #[test]
    fn requantizing_rounds_half_away() {
        let half = Scale::new(1 << 30, 0).unwrap();
        assert_eq!([5, -5, 4, -4].map(|x| half.requantize(x)), [3, -2, 2, -2]);
        let eighth = Scale::new(1 << 30, -2).unwrap();
        assert_eq!([4, 12, -4, -12, 100].map(|x| eighth.requantize(x)), [1, 2, -1, -2, 13]);
        let double = Scale::new(1 << 30, 2).unwrap();
        assert_eq!(double.requantize(7), 14);
        let tiny = Scale::new(i64::from(i32::MAX), -31).unwrap();
        assert_eq!([1, i32::MAX, i32::MIN].map(|x| tiny.requantize(x)), [0, 1, -1]);
        assert_eq!(Scale::new(1 << 31, 0), None);
        assert_eq!(Scale::new(1, 32), None);
    }
}
