//! GEMM and convolution of int8 values with `f32` scales, as in PyTorch's quantizers and XNNPACK.
//!
//! A quantized value `q` represents `(q - zero) * scale`. Dot products are exact, in 32-bit
//! integers. Requantization multiplies and adds once in `f32`, and rounds to the nearest integer,
//! ties to even. ([`q8`](super::q8) computes purely in integers, as CMSIS-NN does.) With [`Exact`]
//! factors, results are those of integer arithmetic, ties up: sums whose `f32` result is close to a
//! tie, about one of 2000, are computed again in integers.
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
    /// Exact factors of the columns. The biases are zeros, and the scales are these factors,
    /// rounded.
    pub(crate) exact: Option<Exact<'a>>,
}

/// Factors of columns in integers: the result of a sum is `(sum * multiplier + half) >> shift`, as
/// TOSA's `RESCALE` defines it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact<'a> {
    /// Multipliers from 2^30 to 2^31, or 0.
    pub(crate) multipliers: &'a [i32],
    /// Shifts from 1 to 62.
    pub(crate) shifts: &'a [i32],
}

impl<'a> Exact<'a> {
    /// Distance of a scaled sum from the nearest integer beyond which `f32` may round to another
    /// one. Rounding the sum, the factor and the result changes results of the int8 range by less
    /// than 3 · 2^-24 · 256, a fifth of the remaining distance from a tie.
    pub(super) const TIE: f32 = 0.5 - 1.0 / 4096.0;

    /// The factor of a scale: its multiplier and shift. `None` if the scale has more than 31 bits
    /// or is not from 2^-32 to 2^30.
    pub(crate) fn factor(scale: f64) -> Option<(i32, i32)> {
        const MANTISSA_BITS: u32 = 52;
        const MULTIPLIER_BITS: u32 = 31;
        let dropped = MANTISSA_BITS + 1 - MULTIPLIER_BITS;
        let bits = scale.to_bits();
        let mantissa = bits & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS;
        // The sign is above the exponent, so negative scales have no valid shift.
        let exponent = (bits >> MANTISSA_BITS) as i32 - 1023;
        let shift = MULTIPLIER_BITS as i32 - 1 - exponent;
        let is_exact = mantissa.is_multiple_of(1 << dropped) && (1..=62).contains(&shift);
        is_exact.then_some(((mantissa >> dropped) as i32, shift))
    }

    /// The factors of `count` columns from `at` on.
    pub(crate) fn part(self, at: usize, count: usize) -> Option<Self> {
        let end = at.checked_add(count)?;
        let (multipliers, shifts) = (self.multipliers.get(at..end)?, self.shifts.get(at..end)?);
        Some(Exact { multipliers, shifts })
    }

    /// Whether a scaled sum may round to another integer than the exact result.
    #[inline(always)]
    fn is_near_tie(scaled: f32) -> bool {
        let rounded = (scaled + MAGIC) - MAGIC;
        (scaled - rounded).abs() >= Self::TIE
    }

    /// The exact result of a sum of column `at`.
    #[cold]
    pub(crate) fn rescale(self, sum: i32, at: usize) -> i32 {
        let multiplier = self.multipliers.get(at).copied().unwrap_or(0);
        let shift = self.shifts.get(at).copied().unwrap_or(1).clamp(1, 62);
        rescale(sum, multiplier, shift)
    }
}

/// Rescales an integer by a factor of [`Exact`], and clamps it to values beyond the int8 range for
/// every zero point.
#[inline(always)]
fn rescale(sum: i32, multiplier: i32, shift: i32) -> i32 {
    let product = i64::from(sum) * i64::from(multiplier);
    let rounded = (product + (1i64 << (shift - 1))) >> shift;
    rounded.clamp(-2048, 2048) as i32
}

/// Adding this constant to a small `f32` rounds it to an integer, which is then in the lowest
/// mantissa bits.
const MAGIC: f32 = 12_582_912.0;

impl Requantize<'_> {
    /// Requantizes the sum of column `at`, which includes the start value, and its scaled value.
    #[inline(always)]
    pub(crate) fn quantize(&self, sum: i32, at: usize, scaled: f32) -> i8 {
        match self.exact {
            Some(exact) if Exact::is_near_tie(scaled) => self.range.place(exact.rescale(sum, at)),
            _ => self.range.quantize(scaled),
        }
    }
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
        // Clamps to values beyond the int8 range for every zero point, so the result is unchanged.
        // The integer then cannot overflow, and NaN becomes a number.
        #[allow(clippy::manual_clamp, reason = "`clamp` keeps NaN")]
        let value = value.max(-2048.0).min(2048.0) + MAGIC;
        self.place(value.to_bits() as i32 - MAGIC.to_bits() as i32)
    }

    /// Quantizes an integer of up to 2048.
    #[inline(always)]
    fn place(self, rounded: i32) -> i8 {
        // The bounds are int8 values.
        (rounded + self.zero).max(self.low.into()).min(self.high.into()) as i8
    }
}
