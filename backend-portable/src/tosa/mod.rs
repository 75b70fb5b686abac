//! Integer operators of TOSA, with the exact arithmetic of its 1.0 specification.
//!
//! Images are channels-last and contiguous. Accumulators are `i32` for int8 and `i64` (TOSA's
//! int48) for int16. TOSA leaves overflow undefined; here it wraps.

mod convolve;
mod elementwise;
mod pool;
mod product;
mod rescale;
mod resize;

pub use convolve::*;
pub use elementwise::*;
pub use pool::*;
pub use product::*;
pub use rescale::*;
pub use resize::*;

use crate::shape::bad;
use torchlet_core::rules::window::Window;
use torchlet_core::{Arguments, Element, KernelError, ScalarType, TensorInfo};

/// Integer elements of layers, with the type of their accumulator.
trait Operand: Element + Sync {
    type Sum: Sum;
    /// Widens a value and subtracts a zero point.
    fn less(self, zero_point: i32) -> Self::Sum;
    /// Narrows a value, saturated.
    fn saturated(value: i64) -> Self;
}

/// Accumulator.
trait Sum: Element + Into<i64> + Send + Sync + Default {
    fn add(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Converts a weight.
    fn of(value: i32) -> Self;
}

macro_rules! operand {
    ($of:ty, $sum:ty) => {
        impl Operand for $of {
            type Sum = $sum;
            #[inline(always)]
            fn less(self, zero_point: i32) -> $sum {
                <$sum>::from(self).wrapping_sub(zero_point.into())
            }
            #[inline(always)]
            fn saturated(value: i64) -> Self {
                value.clamp(<$of>::MIN.into(), <$of>::MAX.into()) as $of
            }
        }
    };
}
operand!(i8, i32);
operand!(i16, i64);

macro_rules! sum {
    ($of:ty) => {
        impl Sum for $of {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn of(value: i32) -> Self {
                value.into()
            }
        }
    };
}
sum!(i32);
sum!(i64);

/// Checks that an argument is a contiguous tensor of this rank; returns its description.
fn contiguous(ctx: &Arguments, arg: usize, rank: usize) -> Result<TensorInfo, KernelError> {
    let info = ctx.info(arg)?;
    if info.rank() != rank {
        return Err(KernelError::rank(arg, info.rank()));
    }
    match info.is_contiguous() {
        true => Ok(info),
        false => Err(bad(arg, "must be contiguous")),
    }
}

fn expect_type(ctx: &Arguments, arg: usize, expected: &[ScalarType]) -> Result<(), KernelError> {
    match ctx.info(arg)?.scalar_type {
        found if expected.contains(&found) => Ok(()),
        found => Err(KernelError::scalar_type(arg, found)),
    }
}

/// A zero point, which fits 17 bits.
fn zero_point(ctx: &Arguments, arg: usize) -> Result<i32, KernelError> {
    let found = ctx.int(arg)?;
    match (-(1 << 16)..1 << 17).contains(&found) {
        true => Ok(found as i32),
        false => Err(bad(arg, "is out of range")),
    }
}

/// A list of `N` integers of up to 32 bits.
fn list<const N: usize>(ctx: &Arguments, arg: usize) -> Result<[i64; N], KernelError> {
    let mut items = [0; N];
    if ctx.list_len(arg)? != N {
        return Err(bad(arg, "has another length"));
    }
    for (at, item) in items.iter_mut().enumerate() {
        *item = ctx.list_int(arg, at)?;
        if i32::try_from(*item).is_err() {
            return Err(bad(arg, "is out of range"));
        }
    }
    Ok(items)
}

fn positive<const N: usize>(ctx: &Arguments, arg: usize) -> Result<[i64; N], KernelError> {
    let items = list(ctx, arg)?;
    match items.iter().all(|item| *item > 0) {
        true => Ok(items),
        false => Err(bad(arg, "must be positive")),
    }
}

/// Number of windows over a dim that `pad` extends before and after, or crops.
fn window_count(
    size: usize,
    kernel: i64,
    pad: [i64; 2],
    [stride, dilation]: [i64; 2],
) -> Option<usize> {
    Window::new(kernel, stride, 0, dilation)?.convolved(padded(size, pad)?)
}

fn padded(size: usize, [before, after]: [i64; 2]) -> Option<usize> {
    let size = i64::try_from(size).ok()?.checked_add(before)?.checked_add(after)?;
    usize::try_from(size).ok()
}

/// Multiplication by `multiplier / 2^shift`, rounded half up.
#[derive(Debug, Clone, Copy)]
struct Scale {
    multiplier: i64,
    shift: u32,
    /// Whether large shifts round twice, away from zero.
    double_round: bool,
}

impl Scale {
    #[inline(always)]
    fn apply(self, value: i64) -> i64 {
        let mut round = (1i64 << self.shift) >> 1;
        if self.double_round && self.shift > 31 {
            round += if value >= 0 { 1 << 30 } else { -(1 << 30) };
        }
        value.wrapping_mul(self.multiplier).wrapping_add(round) >> self.shift
    }

    /// The reciprocal of a positive integer of up to 30 bits.
    fn reciprocal(value: u32) -> Self {
        let value = value.max(1);
        let bits = 32 - (value - 1).leading_zeros();
        let numerator = ((1i64 << 30) + 1) << bits;
        let multiplier = numerator / i64::from(value);
        Scale { multiplier, shift: 30 + bits, double_round: false }
    }
}
