//! int8 depthwise convolution. Weights have the layout `[row, column, output channel]`.

use super::convolve::Extent;
#[cfg(arm_mve)]
use super::requantize::ChannelParams;
use super::{CHANNELS, Results, is_fast_offset, taps, vectorized};
use crate::compute::simd::Tier;
use crate::compute::split::for_each_chunk_mut;
use crate::parallel::Parallel;
use torchlet_core::rules::window::{Taps, Window};

/// Parameters of a depthwise convolution with a channel multiplier.
#[derive(Debug, Clone, Copy)]
pub struct Depthwise<'a> {
    /// Shape of the input.
    pub from: Extent,
    /// Shape of the output.
    pub to: Extent,
    /// Windows of the row and column axes.
    pub windows: [Window; 2],
    /// Output channels for each input channel.
    pub multiplier: usize,
    /// Offset added to each input value (the negated zero point).
    pub offset: i32,
    /// Requantization of the sums.
    pub results: Results<'a>,
}

/// Taps of one output pixel that are inside the input, as offsets into input and weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct Covered {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Offset of the first tap, row stride and column stride.
    pub(super) input: [usize; 3],
    pub(super) weights: [usize; 3],
}

impl Depthwise<'_> {
    fn covered(&self, batch: usize, rows: Taps, columns: Taps) -> Covered {
        let [down, across] = &self.windows;
        let (from, to) = (self.from, self.to.channels);
        Covered {
            rows: if columns.count == 0 { 0 } else { rows.count },
            columns: columns.count,
            input: [
                from.at(batch, rows.start, columns.start),
                down.dilation() * from.columns * from.channels,
                across.dilation() * from.channels,
            ],
            weights: [
                (rows.first * across.kernel() + columns.first) * to,
                across.kernel() * to,
                to,
            ],
        }
    }

    /// Exclusive upper bound of the magnitude of sums over this many taps; `i32::MAX` if unknown.
    fn limit(&self, taps: usize) -> i32 {
        // An input value plus an offset that passes [`is_fast_offset`] has 9 bits, a weight has 8.
        let is_near = is_fast_offset(self.offset) && taps < 1 << 14;
        if is_near { (taps as i32) << 15 } else { i32::MAX }
    }

    /// Requantization parameters of the channels that are requantized in registers: a multiple of
    /// eight, starting with the first channel.
    #[cfg(arm_mve)]
    fn each(&self) -> Option<ChannelParams<'_>> {
        let taps = self.windows.iter().map(|window| window.kernel());
        let limit = self.limit(taps.fold(1, usize::saturating_mul));
        let count = self.to.channels / 8 * 8;
        // With any other offset, the limit is `i32::MAX`, which `each` rejects.
        self.results.each(0, count, limit).filter(|_| self.multiplier == 1 && count != 0)
    }
}

/// Computes a depthwise convolution.
pub fn convolve(
    tier: Tier,
    parallel: &dyn Parallel,
    depthwise: &Depthwise<'_>,
    input: &[i8],
    weights: &[i8],
    out: &mut [i8],
) {
    let depthwise = &Depthwise { results: depthwise.results.on(tier), ..*depthwise };
    let Depthwise { from, to, windows: [down, across], .. } = *depthwise;
    for_each_chunk_mut(parallel, out, to.columns * to.channels, &|index, out: &mut [i8]| {
        let (batch, row) = (index / to.rows.max(1), index % to.rows.max(1));
        let rows = taps(&down, row, from.rows);
        vectorized(
            tier,
            #[inline(always)]
            || {
                let mut buffer = [0i32; CHANNELS];
                #[cfg(arm_mve)]
                let each = depthwise.each();
                for (column, out) in out.chunks_mut(to.channels.max(1)).enumerate() {
                    let columns = taps(&across, column, from.columns);
                    let covered = depthwise.covered(batch, rows, columns);
                    #[cfg(arm_mve)]
                    if let Some(each) = each
                        && covered.rows != 0
                        && let Some((eights, rest)) = out.split_at_mut_checked(each.bias.len())
                    {
                        let offset = depthwise.offset as i16;
                        inner::eights([input, weights], &covered, offset, each, eights);
                        if !rest.is_empty() {
                            few(depthwise, covered, eights.len(), [input, weights], rest);
                        }
                        continue;
                    }
                    pixel(depthwise, covered, [input, weights], &mut buffer, out);
                }
            },
        );
    });
}

/// Computes the channels of one pixel.
#[inline(always)]
fn pixel(
    depthwise: &Depthwise<'_>,
    covered: Covered,
    [input, weights]: [&[i8]; 2],
    buffer: &mut [i32; CHANNELS],
    out: &mut [i8],
) {
    let limit = depthwise.limit(covered.rows * covered.columns);
    // With few channels, as in first layers and small images, a constant bound reduces the loop
    // overhead.
    if cfg!(arm_mve) && out.len() <= FEW_CHANNELS {
        if let Some(buffer) = buffer.first_chunk_mut() {
            block::<FEW_CHANNELS>(depthwise, covered, limit, 0, [input, weights], buffer, out);
        }
        return;
    }
    let mut first = 0;
    for out in out.chunks_mut(CHANNELS) {
        block::<CHANNELS>(depthwise, covered, limit, first, [input, weights], buffer, out);
        first += CHANNELS;
    }
}

/// Computes a few channels of one pixel, starting at `first`.
#[cfg(arm_mve)]
#[inline(never)]
fn few(
    depthwise: &Depthwise<'_>,
    covered: Covered,
    first: usize,
    [input, weights]: [&[i8]; 2],
    out: &mut [i8],
) {
    let limit = depthwise.limit(covered.rows * covered.columns);
    block::<FEW_CHANNELS>(
        depthwise,
        covered,
        limit,
        first,
        [input, weights],
        &mut [0; FEW_CHANNELS],
        out,
    );
}

/// Maximum number of channels for which [`pixel`] uses [`few`].
const FEW_CHANNELS: usize = 8;

/// Computes at most `N` channels of one pixel, starting at `first`.
#[inline(always)]
fn block<const N: usize>(
    depthwise: &Depthwise<'_>,
    mut covered: Covered,
    limit: i32,
    first: usize,
    [input, weights]: [&[i8]; 2],
    buffer: &mut [i32; N],
    out: &mut [i8],
) {
    // Vector kernels overwrite the sums. Clearing the buffer for all channels would cost as much as
    // summing a few.
    #[cfg(arm_mve)]
    let sums = buffer;
    #[cfg(not(arm_mve))]
    let (_, sums) = (buffer, &mut [0i32; N]);
    let sums = &mut sums[..out.len().min(N)];
    covered.weights[0] += first;
    let (multiplier, offset) = (depthwise.multiplier, depthwise.offset);
    match multiplier {
        1 if is_fast_offset(offset) => {
            covered.input[0] += first;
            inner::add(input, weights, covered, offset as i16, sums);
        }
        // Each block of channels contains whole input channels, or belongs to a single one.
        _ if is_fast_offset(offset)
            && (CHANNELS.is_multiple_of(multiplier) && multiplier % 4 == 0
                || multiplier.is_multiple_of(CHANNELS)) =>
        {
            covered.input[0] += first / multiplier;
            clear(sums);
            for (input_channel, sums) in sums.chunks_mut(multiplier).enumerate() {
                let mut covered = covered;
                covered.input[0] += input_channel;
                covered.weights[0] += input_channel * multiplier;
                inner::spread(input, weights, covered, offset as i16, sums);
            }
        }
        _ => {
            clear(sums);
            plain(input, weights, covered, depthwise, first, sums);
        }
    }
    depthwise.results.finish(first, 0, limit, sums, out);
}

/// Zeroes sums if they may be uninitialised.
#[inline(always)]
fn clear(sums: &mut [i32]) {
    if cfg!(arm_mve) {
        sums.fill(0);
    }
}

/// One multiply-add at a time, for every offset and multiplier.
#[inline(never)]
pub(super) fn plain(
    input: &[i8],
    weights: &[i8],
    covered: Covered,
    depthwise: &Depthwise<'_>,
    first: usize,
    sums: &mut [i32],
) {
    let [input_at, input_down, input_across] = covered.input;
    let [weights_at, weights_down, weights_across] = covered.weights;
    for row in 0..covered.rows {
        for column in 0..covered.columns {
            let quantized = input_at + row * input_down + column * input_across;
            let weights_at = weights_at + row * weights_down + column * weights_across;
            for (lane, sum) in sums.iter_mut().enumerate() {
                let value = input.get(quantized + (first + lane) / depthwise.multiplier.max(1));
                let weight = weights.get(weights_at + lane);
                let (Some(&value), Some(&weight)) = (value, weight) else { continue };
                let value = i32::from(value).wrapping_add(depthwise.offset);
                *sum = sum.wrapping_add(value.wrapping_mul(weight.into()));
            }
        }
    }
}

#[cfg(all(arm_dsp, not(arm_mve)))]
use super::dsp as inner;
#[cfg(arm_mve)]
use super::mve as inner;

/// Loops for auto-vectorisation.
#[cfg(not(arm_dsp))]
mod inner {
    use super::Covered;

    /// Calls `tap(quantized, weights)` with the offsets of each tap.
    #[inline(always)]
    fn for_each_tap(covered: Covered, mut tap: impl FnMut(usize, usize)) {
        for row in 0..covered.rows {
            let mut quantized = covered.input[0] + row * covered.input[1];
            let mut weights = covered.weights[0] + row * covered.weights[1];
            for _ in 0..covered.columns {
                tap(quantized, weights);
                quantized += covered.input[2];
                weights += covered.weights[2];
            }
        }
    }

    /// Adds the products of channels with their weights.
    #[inline(always)]
    pub(super) fn add(
        input: &[i8],
        weights: &[i8],
        covered: Covered,
        offset: i16,
        sums: &mut [i32],
    ) {
        for_each_tap(covered, |quantized, at| {
            let count = sums.len();
            let quantized = input.get(quantized..quantized + count).unwrap_or(&[]);
            let weights = weights.get(at..at + count).unwrap_or(&[]);
            if quantized.len() < count || weights.len() < count {
                return;
            }
            // Indexed for the reason given in `product.rs`.
            for i in 0..count {
                // The product of 9 and 8 bits fits 16 bits.
                let product = (i16::from(quantized[i]) + offset) * i16::from(weights[i]);
                sums[i] = sums[i].wrapping_add(product.into());
            }
        });
    }

    /// Adds the products of one input channel with the weights of several output channels.
    #[inline(always)]
    pub(super) fn spread(
        input: &[i8],
        weights: &[i8],
        covered: Covered,
        offset: i16,
        sums: &mut [i32],
    ) {
        for_each_tap(covered, |value, at| {
            let Some(&value) = input.get(value) else { return };
            let value = i16::from(value) + offset;
            let weights = weights.get(at..at + sums.len()).unwrap_or(&[]);
            for (sum, &weight) in sums.iter_mut().zip(weights) {
                *sum = sum.wrapping_add((value * i16::from(weight)).into());
            }
        });
    }
}
