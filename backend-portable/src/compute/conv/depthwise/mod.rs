//! Depthwise convolution: each output channel sees one input channel. Channels first, neighbours in memory are neighbours in
//! a row of the image (`first.rs`); channels last, they are channels (`last.rs`).

mod first;
mod last;

use super::{Conv, Filter, Finish, Layout, WeightForm};
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use crate::compute::split::{Parts, for_each_job};
use first::{Channel, Planes};

/// Most taps of a kernel that is computed here.
pub(super) const TAPS: usize = 64;
/// Multiply-adds below which another thread is not worth waking.
const GRAIN: usize = 1 << 15;

/// Floats of workspace for each thread.
pub(super) fn slot_len(conv: &Conv, tier: Tier, form: WeightForm) -> Option<usize> {
    match (conv.params().layout, form) {
        (Layout::ChannelsFirst, _) => Planes::new(conv, tier.lanes()).map(|p| p.len + p.staging),
        (Layout::ChannelsLast, WeightForm::Packed) => Some(0),
        (Layout::ChannelsLast, WeightForm::Strided(_)) => {
            conv.taps().checked_mul(conv.params().out_channels)
        }
    }
}

/// Writes the weights as `[tap, channel]`.
pub(super) fn pack(conv: &Conv, filter: Filter<'_>, packed: &mut [f32]) {
    let channels = conv.params().out_channels;
    for (t, row) in packed.chunks_exact_mut(channels.max(1)).take(conv.taps()).enumerate() {
        for (c, w) in row.iter_mut().enumerate() {
            *w = filter.data[c * filter.group + t * filter.tap];
        }
    }
}

/// `weights` are plain, or packed for channels last.
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
            // Small channels are dealt out several at a time.
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
                    // SAFETY: each job index comes once, and the images of different jobs do not
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
                    pack(conv, filter, workspace);
                    &*workspace
                }
                Err(packed) => packed,
            };
            last_rows(conv, context, input, packed, finish, output);
        }
    }
}

/// Channels last, with packed weights: a job is some rows, or some channels of one where rows are few.
fn last_rows(
    conv: &Conv,
    context: Context<'_>,
    input: &[f32],
    packed: &[f32],
    finish: &Finish<'_>,
    output: &mut [f32],
) {
    let channels = conv.params().out_channels;
    let [_, y, x] = conv.axes;
    let rows = conv.params().batch * y.output;
    let row_len = x.output * channels;
    let work = row_len.saturating_mul(conv.taps());
    let wanted = (rows.saturating_mul(work) / GRAIN).min(context.parallel.threads() * 4).max(1);
    let together = rows.div_ceil(wanted);
    let cuts = wanted.div_ceil(rows).min(channels.div_ceil(context.tier.lanes()));
    let share = channels.div_ceil(cuts).next_multiple_of(context.tier.lanes());
    let cuts = channels.div_ceil(share);
    let area = y.input * x.input * channels;
    let parts = Parts::new(output);
    for_each_job::<()>(context.parallel, rows.div_ceil(together) * cuts, &mut [], 0, &|job, _| {
        let first = job / cuts * together;
        let channel = job % cuts * share;
        for row in first..(first + together).min(rows) {
            context.tier.dispatch(last::Row {
                conv,
                image: &input[row / y.output * area..][..area],
                packed,
                finish,
                row: row % y.output,
                channels: channel..(channel + share).min(channels),
                output: &parts,
                start: row * row_len,
            });
        }
    });
}
