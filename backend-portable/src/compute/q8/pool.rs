//! Pooling of int8 images.

use super::convolve::Extent;
use super::{CHANNELS, taps, vectorized};
use crate::compute::simd::Tier;
use crate::compute::split::for_each_chunk_mut;
use crate::parallel::Parallel;
use torchlet_core::rules::window::{Taps, Window};

#[cfg(all(arm_dsp, not(arm_mve)))]
use super::dsp as inner;
#[cfg(arm_mve)]
use super::mve as inner;

/// Pooling function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Average of the values inside the image, rounded to the nearest, ties away from zero.
    Average,
    /// Maximum, clamped to bounds.
    Max(i32, i32),
}

/// Pools `input` into `out`.
pub fn pool(
    tier: Tier,
    parallel: &dyn Parallel,
    pooling: Pooling,
    windows: [Window; 2],
    [from, to]: [Extent; 2],
    input: &[i8],
    out: &mut [i8],
) {
    let [down, across] = windows;
    for_each_chunk_mut(parallel, out, to.columns * to.channels, &|index, out: &mut [i8]| {
        let (batch, row) = (index / to.rows.max(1), index % to.rows.max(1));
        let tall = taps(&down, row, from.rows);
        vectorized(
            tier,
            #[inline(always)]
            || {
                for (column, out) in out.chunks_mut(to.channels.max(1)).enumerate() {
                    let wide = taps(&across, column, from.columns);
                    let pixels =
                        Pixels { input, from, batch, windows: &windows, taps: [tall, wide] };
                    match pooling {
                        Pooling::Average => pixels.average(out),
                        Pooling::Max(low, high) => pixels.max_into(low, high, out),
                    }
                }
            },
        );
    });
}

/// The rounded average, from a sum and a count.
#[inline(always)]
pub(super) fn rounded_average(sum: i32, count: i32) -> i8 {
    let half = if sum > 0 { count / 2 } else { -(count / 2) };
    (sum.wrapping_add(half) / count).clamp(-128, 127) as i8
}

/// The pixels of a pooling window that are inside the image.
struct Pixels<'a> {
    input: &'a [i8],
    from: Extent,
    batch: usize,
    windows: &'a [Window; 2],
    taps: [Taps; 2],
}

impl<'a> Pixels<'a> {
    /// Calls `tap` with `len` channels of each pixel, starting at channel `first`.
    #[inline(always)]
    fn each(&self, first: usize, len: usize, mut tap: impl FnMut(&'a [i8])) {
        let ([tall, wide], [down, across]) = (self.taps, self.windows);
        for y in 0..tall.count {
            let y = tall.start + y * down.dilation();
            let mut at = self.from.at(self.batch, y, wide.start) + first;
            for _ in 0..wide.count {
                tap(self.input.get(at..at + len).unwrap_or(&[]));
                at += across.dilation() * self.from.channels;
            }
        }
    }

    #[inline(always)]
    fn average(&self, out: &mut [i8]) {
        let count = self.taps.iter().map(|taps| taps.count).product::<usize>();
        // Image indices fit 32 bits.
        let count = i32::try_from(count).unwrap_or(i32::MAX).max(1);
        let mut first = 0;
        // The sums of fewer than 256 values fit 16 bits.
        #[cfg(arm_dsp)]
        let out = match u8::try_from(count) {
            Ok(few @ 2..) => {
                let (parts, rest) = out.as_chunks_mut::<{ inner::TOGETHER }>();
                for out in parts {
                    inner::average(self.input, self.covered(first), few, out);
                    first += inner::TOGETHER;
                }
                rest
            }
            _ => out,
        };
        for out in out.chunks_mut(CHANNELS) {
            let mut sums = [0i32; CHANNELS];
            self.each(first, out.len(), |quantized| {
                for (sum, &value) in sums.iter_mut().zip(quantized) {
                    *sum = sum.wrapping_add(value.into());
                }
            });
            for (out, &sum) in out.iter_mut().zip(&sums) {
                *out = rounded_average(sum, count);
            }
            first += CHANNELS;
        }
    }

    /// Returns the taps of the channels that start at `first`.
    #[cfg(arm_dsp)]
    fn covered(&self, first: usize) -> super::depthwise::Covered {
        let ([tall, wide], [down, across], from) = (self.taps, self.windows, self.from);
        let input = [
            from.at(self.batch, tall.start, wide.start) + first,
            down.dilation() * from.columns * from.channels,
            across.dilation() * from.channels,
        ];
        super::depthwise::Covered { rows: tall.count, columns: wide.count, input, weights: input }
    }

    #[inline(always)]
    fn max_into(&self, low: i32, high: i32, out: &mut [i8]) {
        #[cfg(not(arm_mve))]
        let first = 0;
        #[cfg(arm_mve)]
        let first = {
            let mut first = 0;
            for out in out.as_chunks_mut::<{ inner::WIDTH }>().0 {
                inner::largest(self.input, self.covered(first), out);
                first += inner::WIDTH;
            }
            first
        };
        let rest = out.get_mut(first..).unwrap_or_default();
        if !rest.is_empty() {
            rest.fill(i8::MIN);
            self.each(first, rest.len(), |quantized| {
                #[cfg(arm_dsp)]
                let done = inner::max_in_place(quantized, rest);
                #[cfg(not(arm_dsp))]
                let done = 0;
                let (out, quantized) = (rest.iter_mut().skip(done), quantized.iter().skip(done));
                for (out, &value) in out.zip(quantized) {
                    *out = value.max(*out);
                }
            });
        }
        if (low, high) != (-128, 127) {
            for out in out {
                *out = i32::from(*out).max(low).min(high) as i8;
            }
        }
    }
}
