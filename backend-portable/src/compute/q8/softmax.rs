//! int8 softmax in fixed-point arithmetic: a polynomial for the exponential, and Newton's method
//! for the reciprocal.
//!
//! Number formats and the order of rounding are those of the public gemmlowp algorithms, which
//! CMSIS-NN also uses, so results are bit-exact.

use super::requantize::rounding_shift_right;
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::parallel::Parallel;

/// Parameters of a softmax.
#[derive(Debug, Clone, Copy)]
pub struct Softmax {
    /// Multiplier of the difference of two values, after a left shift by `shift`. The result has 26
    /// fractional bits.
    pub multiplier: i32,
    /// Left shift in bits, below 32.
    pub shift: u32,
    /// Minimum difference from the maximum whose exponential is not zero.
    pub least: i32,
}

/// Fractional bits of the sum of exponentials.
const SUM_BITS: u32 = 31 - 12;

impl Softmax {
    /// Computes a row. The output scale is 1/256, the zero point -128.
    pub fn row(&self, quantized: &[i8], out: &mut [i8]) {
        let largest = i32::from(quantized.iter().copied().max().unwrap_or(0));
        let power = |element: i8| {
            let difference = i32::from(element) - largest;
            let exponent = difference.wrapping_shl(self.shift);
            (difference >= self.least)
                .then(|| exponential(rounding_doubling_high_mul(exponent, self.multiplier)))
        };
        let sum = quantized
            .iter()
            .filter_map(|&element| power(element))
            .fold(0i32, |sum, power| sum.wrapping_add(rounding_shift_right(power, 31 - SUM_BITS)));
        let headroom = sum.leading_zeros();
        // The sum without its leading one, as a fraction.
        let fraction = if sum > 0 { sum.wrapping_shl(headroom) } else { 0 };
        let reciprocal = reciprocal_of_one_plus(fraction.wrapping_sub(i32::MIN));
        let bits = (31 - SUM_BITS + 23).saturating_sub(headroom);
        // If the sum is 512 or more, every result is below half an output quantum and rounds to
        // zero. (In this case, CMSIS-NN's scalar code shifts by 32 bits and more, which is
        // undefined behaviour in C; its vector code has this result.)
        let is_seen = bits < i32::BITS;
        for (out, &element) in out.iter_mut().zip(quantized) {
            let power = power(element).filter(|_| is_seen);
            let share = power.map_or(0, |power| {
                rounding_shift_right(rounding_doubling_high_mul(reciprocal, power), bits)
            });
            *out = share.wrapping_sub(128).clamp(-128, 127) as i8;
        }
    }
}

/// Computes rows of `width` values.
pub fn rows(parallel: &dyn Parallel, softmax: Softmax, width: usize, input: &[i8], out: &mut [i8]) {
    let width = width.max(1);
    let rows = (chunk_len(parallel, out.len(), 1024) / width).max(1);
    for_each_chunk_mut(parallel, out, rows * width, &|chunk, out: &mut [i8]| {
        let input = input.get(chunk * rows * width..).unwrap_or(&[]);
        for (input, out) in input.chunks(width).zip(out.chunks_mut(width)) {
            softmax.row(input, out);
        }
    });
}

/// Saturating rounding doubling high multiplication: the product in 31 fractional bits, rounded to
/// the nearest, ties up. One times one saturates.
#[inline(always)]
fn rounding_doubling_high_mul(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    // No overflow, except for the case above.
    ((i64::from(a) * i64::from(b) + (1 << 30)) >> 31) as i32
}

/// Saturating left shift.
#[inline(always)]
fn saturating_shl(value: i32, bits: u32) -> i32 {
    let limit = (1 << (31 - bits)) - 1;
    if value > limit {
        i32::MAX
    } else if value < -limit {
        i32::MIN
    } else {
        value << bits
    }
}

/// 1/4 with 26 fractional bits.
const QUARTER: i32 = 1 << 24;

/// `exp(-1/8)` and 1/3 with 31 fractional bits.
const EXP_EIGHTH: i32 = 1_895_147_668;
const THIRD: i32 = 715_827_883;

/// `exp(-2^n / 4)` with 31 fractional bits, starting at `n = 0`.
const POWERS: [i32; 7] =
    [1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242];

/// The exponential, with 31 fractional bits, of a non-positive number with 26 fractional bits.
fn exponential(exponent: i32) -> i32 {
    if exponent == 0 {
        return i32::MAX;
    }
    // The remainder in -1/4..0, and the number of quarters.
    let part = (exponent & (QUARTER - 1)) - QUARTER;
    let quarters = part.wrapping_sub(exponent) as u32 >> 24;
    // Taylor series about -1/8, up to the fourth power.
    let x = (part << 5) + (1 << 28);
    let square = rounding_doubling_high_mul(x, x);
    let fourth = rounding_shift_right(rounding_doubling_high_mul(square, square), 2);
    let above =
        rounding_doubling_high_mul(fourth + rounding_doubling_high_mul(square, x), THIRD) + square;
    let series = rounding_doubling_high_mul(EXP_EIGHTH, x + rounding_shift_right(above, 1));
    let mut result = EXP_EIGHTH + series;
    for (bit, &power) in POWERS.iter().enumerate() {
        if quarters >> bit & 1 != 0 {
            result = rounding_doubling_high_mul(result, power);
        }
    }
    result
}

/// `1 / (1 + x)` for `x` in 0..=1, both with 31 fractional bits.
fn reciprocal_of_one_plus(x: i32) -> i32 {
    // Half the sum, rounded away from zero: in 1/2..=1.
    let sum = i64::from(x) + i64::from(i32::MAX);
    let half = ((sum + if sum >= 0 { 1 } else { -1 }) / 2) as i32;
    // Newton's method with 29 fractional bits, starting from 48/17 - 32/17 x.
    let mut result =
        1_515_870_810i32.wrapping_add(rounding_doubling_high_mul(half, -1_010_580_540));
    for _ in 0..3 {
        let error = (1i32 << 29).wrapping_sub(rounding_doubling_high_mul(half, result));
        result = result.wrapping_add(saturating_shl(rounding_doubling_high_mul(result, error), 2));
    }
    saturating_shl(result, 1)
}
