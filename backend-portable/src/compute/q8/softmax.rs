//! Softmax of codes, in fixed-point arithmetic: exponentials by a polynomial, and a quotient by
//! Newton's method.
//!
//! The number formats, and the order in which things are rounded, are those of the public
//! algorithms that CMSIS-NN uses as well (gemmlowp's); so results are the same in each bit.

use super::requantize::halve;

/// Parameters of a softmax.
#[derive(Debug, Clone, Copy)]
pub struct Softmax {
    /// What a difference of codes is multiplied by, after it is shifted to the left by `shift`:
    /// gives 26 fractional bits.
    pub multiplier: i32,
    /// Bits, fewer than 32.
    pub shift: u32,
    /// Differences from the largest code below this one count as infinite.
    pub least: i32,
}

/// Fractional bits of the sum of exponentials.
const SUM_BITS: u32 = 31 - 12;

impl Softmax {
    /// Computes a row. A quantum of the output is 1/256, and its zero point -128.
    pub fn row(&self, codes: &[i8], out: &mut [i8]) {
        let largest = i32::from(codes.iter().copied().max().unwrap_or(0));
        let power = |code: i8| {
            let difference = i32::from(code) - largest;
            let exponent = difference.wrapping_shl(self.shift);
            (difference >= self.least).then(|| exponential(product(exponent, self.multiplier)))
        };
        let sum = codes
            .iter()
            .filter_map(|&code| power(code))
            .fold(0i32, |sum, power| sum.wrapping_add(halve(power, 31 - SUM_BITS)));
        let headroom = sum.leading_zeros();
        // The sum without its leading one, as a fraction.
        let fraction = if sum > 0 { sum.wrapping_shl(headroom) } else { 0 };
        let reciprocal = reciprocal_of_more_than_one(fraction.wrapping_sub(i32::MIN));
        let places = (31 - SUM_BITS + 23).saturating_sub(headroom);
        // Where the sum is 512 or more, no share comes up to half a quantum. (There, CMSIS-NN's
        // code for processors without vectors shifts by 32 places and more, for which C has no
        // result; its code for those with vectors has this one.)
        let is_seen = places < i32::BITS;
        for (out, &code) in out.iter_mut().zip(codes) {
            let power = power(code).filter(|_| is_seen);
            let share = power.map_or(0, |power| halve(product(reciprocal, power), places));
            *out = share.wrapping_sub(128).clamp(-128, 127) as i8;
        }
    }
}

/// The product of two numbers of 31 fractional bits, rounded to the nearest, halves up; one times
/// one is a little less.
#[inline(always)]
fn product(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    // Fits, but for the case above.
    ((i64::from(a) * i64::from(b) + (1 << 30)) >> 31) as i32
}

/// Shifts to the left, no further than there is room.
#[inline(always)]
fn shifted(value: i32, bits: u32) -> i32 {
    let limit = (1 << (31 - bits)) - 1;
    if value > limit {
        i32::MAX
    } else if value < -limit {
        i32::MIN
    } else {
        value << bits
    }
}

/// A quarter in numbers of 26 fractional bits.
const QUARTER: i32 = 1 << 24;

/// `exp(-1/8)` and a third, of 31 fractional bits.
const EXP_EIGHTH: i32 = 1_895_147_668;
const THIRD: i32 = 715_827_883;

/// `exp(-2^n / 4)` of 31 fractional bits, for `n` from 0 on.
const POWERS: [i32; 7] =
    [1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242];

/// The exponential, of 31 fractional bits, of a number of 26 fractional bits that is not positive.
fn exponential(exponent: i32) -> i32 {
    if exponent == 0 {
        return i32::MAX;
    }
    // From -1/4 to 0, and how many quarters are left.
    let part = (exponent & (QUARTER - 1)) - QUARTER;
    let quarters = part.wrapping_sub(exponent) as u32 >> 24;
    // The series about -1/8, to the fourth power.
    let x = (part << 5) + (1 << 28);
    let square = product(x, x);
    let fourth = halve(product(square, square), 2);
    let above = product(fourth + product(square, x), THIRD) + square;
    let series = product(EXP_EIGHTH, x + halve(above, 1));
    let mut result = EXP_EIGHTH + series;
    for (bit, &power) in POWERS.iter().enumerate() {
        if quarters >> bit & 1 != 0 {
            result = product(result, power);
        }
    }
    result
}

/// `1 / (1 + x)` for `x` from 0 to 1; all of 31 fractional bits.
fn reciprocal_of_more_than_one(x: i32) -> i32 {
    // Half the sum, rounded away from zero: from 1/2 to 1.
    let sum = i64::from(x) + i64::from(i32::MAX);
    let half = ((sum + if sum >= 0 { 1 } else { -1 }) / 2) as i32;
    // Newton's method in numbers of 29 fractional bits, from the line 48/17 - 32/17 x on.
    let mut result = 1_515_870_810i32.wrapping_add(product(half, -1_010_580_540));
    for _ in 0..3 {
        let error = (1i32 << 29).wrapping_sub(product(half, result));
        result = result.wrapping_add(shifted(product(result, error), 2));
    }
    shifted(result, 1)
}
