//! GEMM and convolution of int8 values with `f32` scales, as in PyTorch's quantizers and XNNPACK.
//!
//! A quantized value `q` represents `(q - zero) * scale`. Dot products are exact, in 32-bit
//! integers. Requantization multiplies and adds once in `f32`, and rounds to the nearest integer,
//! ties to even. ([`q8`](super::q8) computes purely in integers, as CMSIS-NN does.)
//!
//! - [`matmul`]: GEMM of int8 rows with packed weights ([`pack`]); convolutions are GEMMs over
//!   [`windows`].
//! - [`depthwise`]: depthwise convolution; `narrow`: convolution in groups of four or eight
//!   channels, on x86-64.
//! - [`rows`]: dynamic quantization of rows, and GEMM of them with int8 or int4 weights, the latter
//!   with group-wise [`scales`].
//! - [`elementwise`]: quantize, dequantize and element-wise arithmetic.
//!
//! The layout of packed weights is the same for all instruction sets ([`Dots`](super::simd::Dots)),
//! one of which is selected at run time.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod arm;
#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod depthwise;
pub(crate) mod elementwise;
pub(crate) mod left;
pub(crate) mod matmul;
#[cfg(target_arch = "x86_64")]
pub(crate) mod narrow;
pub(crate) mod pack;
mod plain;
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

/// Number of columns of a panel of packed weights.
pub(crate) const LANES: usize = 16;
/// Number of consecutive values of a column that are contiguous in packed weights: one *step*.
pub(crate) const STEP: usize = 4;

/// Requantization of column sums: `round((start + sum) * scale + bias) + zero`, clamped. The slices
/// have an element for each packed column, including padding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requantize<'a> {
    /// Initial value of the sums.
    pub(crate) start: &'a [i32],
    /// Scale of each column.
    pub(crate) scales: &'a [f32],
    /// Bias of each column.
    pub(crate) bias: &'a [f32],
    /// Zero point and clamping bounds of the result.
    pub(crate) range: Range,
}

/// Zero point and bounds of quantized results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Zero point.
    pub(crate) zero: i32,
    /// Minimum value.
    pub(crate) low: i8,
    /// Maximum value.
    pub(crate) high: i8,
}

impl Range {
    /// Narrows the bounds of the results to `low..=high` as well.
    pub(crate) fn limit(&mut self, low: f32, high: f32) {
        self.low = self.low.max(low as i8);
        self.high = self.high.min(high as i8);
    }

    /// Rounds and quantizes a scaled value. NaN becomes the minimum.
    #[inline(always)]
    pub(crate) fn quantize(self, value: f32) -> i8 {
        /// Adding this constant rounds to an integer, which is then in the lowest mantissa bits.
        const MAGIC: f32 = 12_582_912.0;
        // Clamps to values beyond the int8 range for every zero point, so the result is unchanged.
        // The integer then cannot overflow, and NaN becomes a number.
        #[allow(clippy::manual_clamp, reason = "`clamp` keeps NaN")]
        let value = value.max(-2048.0).min(2048.0) + MAGIC;
        let rounded = value.to_bits() as i32 - MAGIC.to_bits() as i32 + self.zero;
        // The bounds are int8 values.
        rounded.max(self.low.into()).min(self.high.into()) as i8
    }
}
