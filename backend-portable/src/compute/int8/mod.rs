//! Products and convolutions of 8-bit codes whose scales are `f32`, as PyTorch's quantizers and
//! XNNPACK have them.
//!
//! A code stands for `(code - zero) * scale`. Sums of products are exact, in 32 bits; a sum becomes
//! a number by one multiplication and one addition in `f32`, and a code by rounding that to the
//! nearest, ties to even. ([`q8`](super::q8) computes in integers throughout, as CMSIS-NN.)
//!
//! - [`product`]: rows of codes by packed weights ([`pack`]); convolutions are such products, of
//!   [`windows`].
//! - [`depthwise`]: convolutions of each channel for itself, and `narrow`: those of groups of four
//!   or eight channels, on x86-64.
//! - [`rows`]: rows of numbers that get a scale of their own each time, and products of these, with
//!   weights of 8 or 4 bits, whose groups have [`scales`].
//! - [`elementwise`]: between codes and numbers.
//!
//! The layout of packed weights is the same for all instructions ([`Dots`](super::simd::Dots));
//! which are used is decided at run time.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod arm;
#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod depthwise;
pub(crate) mod elementwise;
pub(crate) mod left;
#[cfg(target_arch = "x86_64")]
pub(crate) mod narrow;
pub(crate) mod pack;
mod plain;
pub(crate) mod product;
pub(crate) mod rows;
pub(crate) mod scales;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod token;
#[cfg(target_arch = "x86_64")]
mod vbmi;
#[cfg(target_arch = "x86_64")]
mod vnni;
pub(crate) mod windows;

/// Columns of a panel of packed weights.
pub(crate) const LANES: usize = 16;
/// Codes of a column that lie together.
pub(crate) const STEP: usize = 4;

/// How sums of columns become codes: `start + sum` times a scale, plus a bias, rounded, plus
/// `zero`, within limits. There are as many of each as packed weights have columns, with those that
/// only fill up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requantize<'a> {
    /// What sums start with.
    pub(crate) start: &'a [i32],
    /// The factor of each column.
    pub(crate) scales: &'a [f32],
    /// What is added to each column.
    pub(crate) bias: &'a [f32],
    /// The code of zero, and the least and greatest code of a result.
    pub(crate) range: Range,
}

/// The codes of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The code that stands for zero.
    pub(crate) zero: i32,
    /// The least code.
    pub(crate) low: i8,
    /// The greatest code.
    pub(crate) high: i8,
}

impl Range {
    /// Keeps results within these codes, too.
    pub(crate) fn limit(&mut self, low: f32, high: f32) {
        self.low = self.low.max(low as i8);
        self.high = self.high.min(high as i8);
    }

    /// Rounds to a code. What is not a number becomes the least one.
    #[inline(always)]
    pub(crate) fn code(self, number: f32) -> i8 {
        /// Numbers that this is added to have their integer part in the lowest bits, rounded as
        /// additions are.
        const MAGIC: f32 = 12_582_912.0;
        // Beyond all codes, whatever stands for zero, so that nothing is lost and no integer
        // overflows; and a number in any case.
        #[allow(clippy::manual_clamp, reason = "what is not a number would stay that")]
        let number = number.max(-2048.0).min(2048.0) + MAGIC;
        let rounded = number.to_bits() as i32 - MAGIC.to_bits() as i32 + self.zero;
        // The limits are those of 8 bits.
        rounded.max(self.low.into()).min(self.high.into()) as i8
    }
}
