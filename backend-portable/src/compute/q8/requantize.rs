//! Requantization of 32-bit sums to int8: a multiplier with 31 fractional bits, a shift, an offset
//! and bounds.

use super::CHANNELS;
use crate::compute::simd::Tier;

/// A fixed-point factor: `multiplier * 2^(shift - 31)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    multiplier: i32,
    shift: i32,
}

impl Scale {
    /// Returns `None` for a shift outside `-31..=31`, and for a multiplier that does not fit `i32`
    /// or is `i32::MIN`, whose negation overflows.
    pub const fn new(multiplier: i64, shift: i64) -> Option<Self> {
        let scale = Scale { multiplier: multiplier as i32, shift: shift as i32 };
        let is_exact = scale.multiplier as i64 == multiplier && scale.shift as i64 == shift;
        if is_exact && scale.is_valid() { Some(scale) } else { None }
    }

    /// Creates a scale from a valid multiplier and shift.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn known(multiplier: i32, shift: i32) -> Self {
        Scale { multiplier, shift }
    }

    const fn is_valid(self) -> bool {
        self.multiplier != i32::MIN && -31 <= self.shift && self.shift <= 31
    }

    /// The multiplier.
    pub fn multiplier(self) -> i32 {
        self.multiplier
    }

    /// The shift; positive shifts are to the left.
    pub fn shift(self) -> i32 {
        self.shift
    }

    /// Multiplies `value`, with two roundings: a doubling high multiplication rounds to the
    /// nearest, ties up; then the right shift rounds ties away from zero. Bits shifted out to the
    /// left are lost.
    #[inline(always)]
    pub fn apply(self, value: i32) -> i32 {
        let left = self.shift.max(0) as u32;
        let right = self.shift.min(0).unsigned_abs();
        let value = i64::from(value.wrapping_shl(left));
        // No overflow: no factor is `i32::MIN`, so the product is less than 2^62, even with the
        // rounding term.
        rounding_shift_right(((value * i64::from(self.multiplier) + (1 << 30)) >> 31) as i32, right)
    }

    /// Like [`apply`](Self::apply), and adds an offset.
    #[inline(always)]
    pub(super) fn apply_and_add(self, value: i32, offset: i32) -> i32 {
        #[cfg(arm_dsp)]
        {
            /// Out of line, since large values and left shifts are rare.
            #[cold]
            #[inline(never)]
            fn apply(scale: Scale, value: i32) -> i32 {
                scale.apply(value)
            }
            let (twice, overflow) = value.overflowing_add(value);
            if overflow || self.shift > 0 {
                return apply(self, value).wrapping_add(offset);
            }
            let smmulr = super::dsp::smmulr(twice, self.multiplier);
            if self.shift == 0 {
                return smmulr.wrapping_add(offset);
            }
            super::dsp::rounding_shift_add(smmulr, self.shift, offset)
        }
        #[cfg(not(arm_dsp))]
        self.apply(value).wrapping_add(offset)
    }
}

/// Rounding right shift by up to 31 bits, ties away from zero. `value` must not be `i32::MIN`.
#[inline(always)]
pub(super) fn rounding_shift_right(value: i32, bits: u32) -> i32 {
    // Subtracting one from negative values rounds their ties down. The last bit is shifted out
    // separately, so that nothing overflows.
    let twice = value.wrapping_add(value >> 31) >> (bits.wrapping_sub(1) & 31);
    let rounded = (twice >> 1).wrapping_add(twice & 1);
    if bits == 0 { value } else { rounded }
}

/// The sum of two values below this bound can be doubled without overflow.
#[cfg(arm_dsp)]
const NEAR: i32 = 1 << 29;

#[cfg(arm_dsp)]
const fn is_simple(mut shifts: &[i32], mut bias: &[i32]) -> bool {
    let mut is_simple = true;
    while let [shift, rest @ ..] = shifts {
        is_simple &= *shift < 0;
        shifts = rest;
    }
    while let [value, rest @ ..] = bias {
        is_simple &= -NEAR <= *value && *value < NEAR;
        bias = rest;
    }
    is_simple
}

/// Scales of the channels.
#[derive(Debug, Clone, Copy)]
enum Scales<'a> {
    One(Scale),
    /// Multipliers and shifts, of the same length.
    PerChannel(&'a [i32], &'a [i32]),
}

#[cfg(all(arm_dsp, not(arm_mve)))]
use super::dsp as inner;
#[cfg(arm_mve)]
use super::mve as inner;

/// Parameters of channels that are requantized in registers, from [`Results::each`]. All slices
/// have the same length.
#[cfg(arm_mve)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelParams<'a> {
    pub(super) bias: &'a [i32],
    pub(super) multipliers: &'a [i32],
    /// Left shifts, all of them negative (so the values shift to the right).
    pub(super) shifts: &'a [i32],
    pub(super) offset: i32,
    pub(super) bounds: [i32; 2],
}

/// Range and layout of the sums to requantize.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish {
    /// First channel, an index into the parameters.
    pub(super) first: usize,
    /// Number of channels, at most [`CHANNELS`].
    pub(super) count: usize,
    /// Exclusive upper bound of the magnitude of the sums without bias.
    pub(super) limit: i32,
    /// Row stride of the results.
    pub(super) stride: usize,
}

/// Requantization parameters of an output's channels.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    scales: Scales<'a>,
    bias: &'a [i32],
    offset: i32,
    bounds: (i32, i32),
    /// Whether all shifts are to the right and no bias is close to overflow, which permits a
    /// shorter loop with the DSP extension.
    #[cfg(arm_dsp)]
    simple: bool,
    /// The instruction set.
    #[cfg(target_arch = "x86_64")]
    tier: Tier,
}

impl<'a> Results<'a> {
    /// One scale for all channels. The bias may be empty.
    pub const fn uniform(scale: Scale, bias: &'a [i32], offset: i32, bounds: (i32, i32)) -> Self {
        Results {
            scales: Scales::One(scale),
            bias,
            offset,
            bounds,
            #[cfg(arm_dsp)]
            simple: is_simple(core::slice::from_ref(&scale.shift), bias),
            #[cfg(target_arch = "x86_64")]
            tier: Tier::SCALAR,
        }
    }

    /// A scale for each channel. Returns `None` if one is invalid (see [`Scale::new`]).
    pub const fn per_channel(
        multipliers: &'a [i32],
        shifts: &'a [i32],
        bias: &'a [i32],
        offset: i32,
        bounds: (i32, i32),
    ) -> Option<Self> {
        if multipliers.len() != shifts.len() {
            return None;
        }
        let (mut scales, mut is_valid) = ((multipliers, shifts), true);
        while let ([multiplier, multipliers @ ..], [shift, shifts @ ..]) = scales {
            is_valid &= Scale { multiplier: *multiplier, shift: *shift }.is_valid();
            scales = (multipliers, shifts);
        }
        if !is_valid {
            return None;
        }
        Some(Results {
            scales: Scales::PerChannel(multipliers, shifts),
            bias,
            offset,
            bounds,
            #[cfg(arm_dsp)]
            simple: is_simple(shifts, bias),
            #[cfg(target_arch = "x86_64")]
            tier: Tier::SCALAR,
        })
    }

    /// Returns the parameters for the instruction set of a tier.
    #[inline(always)]
    pub(super) fn on(self, tier: Tier) -> Self {
        #[cfg(target_arch = "x86_64")]
        return Results { tier, ..self };
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = tier;
            self
        }
    }

    /// The instruction set.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn tier(&self) -> Tier {
        self.tier
    }

    /// Requantizes the sums of the channels starting at `first`. `added` and the bias are added to
    /// the sums, whose magnitude is less than `limit` without them.
    #[inline(always)]
    pub(super) fn finish(
        &self,
        first: usize,
        added: i32,
        limit: i32,
        sums: &[i32],
        out: &mut [i8],
    ) {
        #[cfg(arm_dsp)]
        if self.simple && added == 0 && limit < NEAR {
            let bias = self.bias_of(first, sums.len());
            let results = [self.offset, self.bounds.0, self.bounds.1];
            return match self.scales {
                Scales::One(Scale { multiplier, shift }) => {
                    inner::requantize_uniform(sums, bias, [multiplier, shift], results, out);
                }
                Scales::PerChannel(multipliers, shifts) => {
                    let from = |all: &'a [i32]| all.get(first..).unwrap_or(&[]);
                    let scales = [bias, from(multipliers), from(shifts)];
                    inner::requantize_per_channel(sums, scales, results, out);
                }
            };
        }
        let _ = limit;
        #[cfg(target_arch = "x86_64")]
        self.finish_blocks(first, added, sums, out);
        #[cfg(not(target_arch = "x86_64"))]
        self.finish_within(self.bounds, first, added, sums, out);
    }

    /// Like [`finish`](Self::finish), for several rows, each with its own `added`.
    #[inline(always)]
    pub(super) fn finish_rows<const R: usize>(
        &self,
        finish: Finish,
        added: [i32; R],
        sums: &[[i32; CHANNELS]; R],
        out: &mut [i8],
    ) {
        let Finish { first, count, limit, stride } = finish;
        #[cfg(arm_mve)]
        if let Scales::PerChannel(multipliers, shifts) = self.scales
            && R > 1
            && self.simple
            && added == [0; R]
            && limit < NEAR
        {
            let from = |all: &'a [i32]| all.get(first..).unwrap_or(&[]);
            let channels = [self.bias_of(first, count), from(multipliers), from(shifts)];
            let results = [self.offset, self.bounds.0, self.bounds.1];
            return inner::finish_rows(sums, count, channels, results, out, stride);
        }
        for (row, sums) in sums.iter().enumerate() {
            let at = row * stride;
            let (Some(sums), Some(out)) = (sums.get(..count), out.get_mut(at..at + count)) else {
                return;
            };
            self.finish(first, added[row], limit, sums, out);
        }
    }

    /// Returns the parameters of `count` channels starting at `first` if the sums can be
    /// requantized in registers: each channel has a scale and a bias, and all are `simple`. The
    /// magnitude of the sums is less than `limit`. `offset` and bounds must be int8 values, so that
    /// 16-bit saturation does not change results.
    #[cfg(arm_mve)]
    pub(super) fn each(&self, first: usize, count: usize, limit: i32) -> Option<ChannelParams<'a>> {
        let Scales::PerChannel(multipliers, shifts) = self.scales else { return None };
        let is_code = |number: i32| i8::try_from(number).is_ok();
        let (offset, bounds) = (self.offset, [self.bounds.0, self.bounds.1]);
        if !self.simple || limit >= NEAR || !is_code(offset) || !bounds.into_iter().all(is_code) {
            return None;
        }
        let of = |all: &'a [i32]| all.get(first..first.checked_add(count)?);
        let [bias, multipliers, shifts] = [of(self.bias)?, of(multipliers)?, of(shifts)?];
        Some(ChannelParams { bias, multipliers, shifts, offset, bounds })
    }

    /// The bias of the channels, or zeros.
    #[inline(always)]
    fn bias_of(&self, first: usize, len: usize) -> &'a [i32] {
        let bias = self.bias.get(first..).unwrap_or(&[]);
        if bias.len() < len { &[0; CHANNELS] } else { bias }
    }

    /// Like `finish_within`, in blocks of sums.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn finish_blocks(&self, first: usize, added: i32, sums: &[i32], out: &mut [i8]) {
        use super::x86::{LANES, apply, block, write};
        let bias = self.bias_of(first, sums.len());
        let mut scales = match self.scales {
            Scales::One(Scale { multiplier, shift }) => [[multiplier; LANES], [shift; LANES]],
            Scales::PerChannel(..) => [[0; LANES]; 2],
        };
        let blocks = sums.chunks(LANES).zip(bias.chunks(LANES)).zip(out.chunks_mut(LANES));
        for (((sums, bias), out), at) in blocks.zip((first..).step_by(LANES)) {
            if let Scales::PerChannel(multipliers, shifts) = self.scales {
                // Lanes without parameters are not written.
                let from = |all: &'a [i32]| all.get(at..).unwrap_or(&[]);
                scales = [block(from(multipliers)), block(from(shifts))];
            }
            let (mut values, bias) = (block(sums), block(bias));
            for (value, bias) in values.iter_mut().zip(bias) {
                *value = value.wrapping_add(bias).wrapping_add(added);
            }
            apply(self.tier, &mut values, [&scales[0], &scales[1]]);
            let mut quantized = [0i8; LANES];
            for (code, value) in quantized.iter_mut().zip(values) {
                let value = value.wrapping_add(self.offset);
                *code = value.max(self.bounds.0).min(self.bounds.1) as i8;
            }
            write(quantized, out);
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[cfg_attr(arm_dsp, inline(never))]
    #[cfg_attr(not(arm_dsp), inline(always))]
    fn finish_within(
        &self,
        (least, greatest): (i32, i32),
        first: usize,
        added: i32,
        sums: &[i32],
        out: &mut [i8],
    ) {
        let bias = self.bias_of(first, sums.len());
        let sums =
            sums.iter().zip(bias).map(|(&sum, &bias)| sum.wrapping_add(bias).wrapping_add(added));
        let code = |scale: Scale, sum| {
            let code = scale.apply_and_add(sum, self.offset);
            code.max(least).min(greatest) as i8
        };
        match self.scales {
            Scales::One(scale) => {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = code(scale, sum);
                }
            }
            Scales::PerChannel(multipliers, shifts) => {
                let multipliers = multipliers.get(first..).unwrap_or(&[]);
                let shifts = shifts.get(first..).unwrap_or(&[]);
                let scales = multipliers.iter().zip(shifts);
                for ((out, sum), (&multiplier, &shift)) in out.iter_mut().zip(sums).zip(scales) {
                    *out = code(Scale { multiplier, shift }, sum);
                }
            }
        }
    }
}
