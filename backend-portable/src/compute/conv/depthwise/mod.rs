//! Depthwise convolution: each output channel depends on one input channel. Vectors hold pixels of
//! a row if channels are first (`channels_first.rs`), and channels if channels are last
//! (`channels_last.rs`).

mod channels_first;
mod channels_last;

use super::{Conv, Filter, Finish, Layout, WeightForm};
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use crate::compute::split::{Parts, for_each_job};
use channels_first::{Channel, Planes};
use channels_last::Band;

/// Maximum number of kernel taps that this module supports.
pub(super) const MAX_TAPS: usize = 64;
/// Size in floats of an input band that stays in the L2 cache while all its channel vectors are
/// computed.
const L2_FLOATS: usize = 1 << 15;
/// Minimum multiply-adds for each thread: less work does not pay for waking it.
const GRAIN: usize = 1 << 15;

/// Workspace per thread, in floats.
pub(super) fn slot_len(conv: &Conv, tier: Tier, form: WeightForm) -> Option<usize> {
    match (conv.params().layout, form) {
        (Layout::ChannelsFirst, _) => Planes::new(conv, tier.lanes()).map(|p| p.len + p.staging),
        (Layout::ChannelsLast, WeightForm::Packed) => Some(0),
        (Layout::ChannelsLast, WeightForm::Strided(_)) => packed_len(conv, tier),
    }
}

/// Packed length of the weights.
pub(super) fn packed_len(conv: &Conv, tier: Tier) -> Option<usize> {
    conv.taps().checked_mul(conv.params().out_channels.checked_next_multiple_of(tier.lanes())?)
}

/// Packs the weights as `[block of channels][tap][lane]`, padded with zeros.
pub(super) fn pack(conv: &Conv, tier: Tier, filter: Filter<'_>, packed: &mut [f32]) {
    let (taps, lanes) = (conv.taps(), tier.lanes());
    for (b, block) in packed.chunks_exact_mut(taps * lanes).enumerate() {
        for (i, w) in block.iter_mut().enumerate() {
            let (c, t) = (b * lanes + i % lanes, i / lanes);
            let inside = c < conv.params().out_channels;
            *w = if inside { filter.data[c * filter.group + t * filter.tap] } else { 0.0 };
        }
    }
}

/// Computes the convolution. `weights` are `Ok` if plain, `Err` if packed for channels last.
pub(super) fn run(
    conv: &Conv,
    context: Context<'_>,
    input: &[f32],
    weights: Result<Filter<'_>, &[f32]>,
    finish: &Finish<'_>,
    output: &mut [f32],
    workspace: &mut [f32],
) {
    let channels = conv.params().out_channels;
    let [_, y, x] = conv.axes;
    let pixels = y.output * x.output;
    if output.is_empty() {
        return;
    }
    match (conv.params().layout, weights) {
        (Layout::ChannelsFirst, Ok(filter)) => {
            let Some(planes) = Planes::new(conv, context.tier.lanes()) else {
                return;
            };
            let slot = planes.len + planes.staging;
            let multiplier = channels / conv.params().groups;
            let area = conv.params().input[1] * conv.params().input[2];
            // If channels are small, a job computes several.
            let together = (16_384 / pixels.saturating_mul(conv.taps()).max(1)).clamp(1, 64);
            let images = output.len() / pixels;
            let parts = Parts::new(output);
            for_each_job(
                context.parallel,
                images.div_ceil(together),
                workspace,
                slot,
                &|job, workspace| {
                    let first = job * together;
                    let count = together.min(images - first);
                    // SAFETY: each job index occurs once, and the images of different jobs do not
                    // overlap.
                    let output = unsafe { parts.part(first * pixels, count * pixels) };
                    for (i, output) in (first..).zip(output.chunks_exact_mut(pixels)) {
                        let (n, channel) = (i / channels, i % channels);
                        let from = (n * conv.params().in_channels + channel / multiplier) * area;
                        context.tier.dispatch(Channel {
                            conv,
                            planes,
                            image: &input[from..][..area],
                            weights: &filter.data[channel / multiplier * filter.group
                                + channel % multiplier * filter.out..],
                            tap: filter.tap,
                            bias: finish.bias.map_or(0.0, |b| b[channel]),
                            finish,
                            output,
                            workspace: &mut *workspace,
                        });
                    }
                },
            );
        }
        (_, weights) => {
            let packed = match weights {
                Ok(filter) => {
                    let len = packed_len(conv, context.tier).unwrap_or(0).min(workspace.len());
                    pack(conv, context.tier, filter, &mut workspace[..len]);
                    &*workspace
                }
                Err(packed) => packed,
            };
            run_channels_last(conv, context, input, packed, finish, output);
        }
    }
}

/// Returns the height of bands, at most `max_height`, that minimises the number of rows of the
/// busiest thread when `rows` rows are split into bands, and that number of rows.
fn balanced_height(rows: usize, max_height: usize, batch: usize, threads: usize) -> (usize, usize) {
    let busiest = |height: usize| {
        let bands = (rows.div_ceil(height) * batch).div_ceil(threads.max(1));
        bands.saturating_mul(height).min(rows * batch)
    };
    let heights = (1..=max_height.max(1)).rev().map(|height| (height, busiest(height)));
    heights.min_by_key(|&(_, busiest)| busiest).unwrap_or((1, rows))
}

/// Channels last, with packed weights. A job is a band of rows, or some channels of a band if bands
/// are few.
fn run_channels_last(
    conv: &Conv,
    context: Context<'_>,
    input: &[f32],
    packed: &[f32],
    finish: &Finish<'_>,
    output: &mut [f32],
) {
    let channels = conv.params().out_channels;
    let [_, y, x] = conv.axes;
    let (batch, lanes) = (conv.params().batch, context.tier.lanes());
    let (area, out_area) = (y.input * x.input * channels, y.output * x.output * channels);
    let work = out_area.saturating_mul(conv.taps()).saturating_mul(batch) / GRAIN;
    let threads = context.parallel.threads();
    let wanted = (threads * 4).min(work).max(1);
    // Enough bands for their input to stay in the cache, and for the wanted number of jobs.
    let bands = area.div_ceil(L2_FLOATS).max(wanted.div_ceil(batch)).min(y.output);
    let (height, rows) = balanced_height(y.output, y.output.div_ceil(bands), batch, threads);
    // Channels are split if the rows do not suffice for all threads, or if some threads would have
    // 25 % more rows than others.
    let uneven = rows * threads * 4 > y.output * batch * 5;
    let by_channels = work > 1 && uneven && channels >= 2 * lanes * threads;
    let whole = y.output.div_ceil(area.div_ceil(L2_FLOATS).max(1));
    let height = if by_channels { whole } else { height };
    let bands = y.output.div_ceil(height);
    let cuts = if by_channels { wanted.min(threads * 2) } else { 1 };
    let share = channels.div_ceil(cuts).next_multiple_of(lanes);
    let cuts = channels.div_ceil(share);
    let parts = Parts::new(output);
    for_each_job::<()>(context.parallel, batch * bands * cuts, &mut [], 0, &|job, _| {
        let (sample, first) = (job / cuts / bands, job / cuts % bands * height);
        let channel = job % cuts * share;
        context.tier.dispatch(Band {
            conv,
            image: &input[sample * area..][..area],
            packed,
            finish,
            rows: first..(first + height).min(y.output),
            channels: channel..(channel + share).min(channels),
            output: &parts,
            start: sample * out_area,
        });
    });
}

#[cfg(test)]
mod tests {
    use super::balanced_height;

    #[test]
    fn band_heights_balance_threads() {
        for (rows, max_height, batch, threads, want) in [
            (14, 2, 1, 2, (1, 7)),
            (112, 14, 1, 2, (14, 56)),
            (28, 4, 1, 2, (2, 14)),
            (7, 1, 1, 2, (1, 4)),
            (7, 7, 4, 2, (7, 14)),
            (9, 9, 1, 1, (9, 9)),
            (37, 10, 1, 1, (10, 37)),
            (7, 7, 1, 16, (1, 1)),
            (5, 0, 1, 0, (1, 5)),
        ] {
            assert_eq!(
                balanced_height(rows, max_height, batch, threads),
                want,
                "{rows} {max_height} {batch}"
            );
        }
    }
}
