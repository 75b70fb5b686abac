//! Direct convolution in plain loops: any number of dims, layout and strides, without
//! workspace.
//!
//! Microcontrollers without spare memory run this. Taps outside the image are clipped, so the
//! innermost loop, over the channels of a group, has no branches.

use super::{Conv, Finish, Layout};
use crate::compute::gemm::patches::Axis;
use crate::compute::gemm::{Context, limit};
use crate::compute::split::for_each_chunk_mut;

/// Number of output channels that are computed together, so that they share the reads of the input.
const CHANNEL_TILE: usize = 4;

/// Strides of an image, in elements.
#[derive(Clone, Copy)]
struct Strides {
    batch: usize,
    channel: usize,
    space: [usize; 3],
}

fn strides(layout: Layout, channels: usize, size: [usize; 3]) -> Strides {
    let pixels: usize = size.iter().product();
    let space = [size[1] * size[2], size[2], 1];
    match layout {
        Layout::ChannelsFirst => Strides { batch: channels * pixels, channel: pixels, space },
        Layout::ChannelsLast => {
            Strides { batch: channels * pixels, channel: 1, space: space.map(|s| s * channels) }
        }
    }
}

/// Computes the convolution. `weights` has the strides of `[first, second, depth, height, width]`,
/// as in [`super::WeightForm::Strided`].
pub(super) fn run(
    conv: &Conv,
    context: Context<'_>,
    input: &[f32],
    (data, weight): (&[f32], [usize; 5]),
    finish: &Finish<'_>,
    output: &mut [f32],
) {
    let p = conv.params();
    let (in_group, out_group) = conv.group();
    let from = strides(p.layout, p.in_channels, p.input);
    let (out_stride, in_stride) =
        if p.transposed { (weight[1], weight[0]) } else { (weight[0], weight[1]) };
    let group_stride = if p.transposed {
        in_group.saturating_mul(weight[0])
    } else {
        out_group.saturating_mul(weight[0])
    };
    let size = conv.output();
    let pixels: usize = size.iter().product();

    // Sums of one output pixel, for `count` channels of one group starting at `first`.
    let sums = |n: usize, g: usize, first: usize, count: usize, at: [usize; 3]| {
        let mut acc = [0.0f32; CHANNEL_TILE];
        let weights = &data[g * group_stride + first * out_stride..];
        let image = n * from.batch + g * in_group * from.channel;
        let mut tap = |w: usize, x: usize| {
            for c in 0..in_group {
                let value = input[x + c * from.channel];
                for (o, acc) in acc.iter_mut().enumerate().take(count) {
                    *acc += value * weights[w + c * in_stride + o * out_stride];
                }
            }
        };
        each_tap(&conv.axes[0], at[0], |kd, d| {
            each_tap(&conv.axes[1], at[1], |ky, y| {
                each_tap(&conv.axes[2], at[2], |kx, x| {
                    tap(
                        kd * weight[2] + ky * weight[3] + kx * weight[4],
                        image + d * from.space[0] + y * from.space[1] + x * from.space[2],
                    );
                });
            });
        });
        acc
    };
    let store = |out: &mut f32, channel: usize, mut sum: f32| {
        sum += finish.bias.map_or(0.0, |b| b[channel]);
        if finish.beta != 0.0 {
            sum += finish.beta * *out;
        }
        *out = limit(sum, finish.min, finish.max);
    };
    if output.is_empty() {
        return;
    }
    match p.layout {
        Layout::ChannelsFirst => {
            // A job computes one plane of one output channel, a contiguous part of the output.
            for_each_chunk_mut(context.parallel, output, pixels, &|index, plane| {
                let (n, channel) = (index / p.out_channels, index % p.out_channels);
                let (g, first) = (channel / out_group, channel % out_group);
                for (i, out) in plane.iter_mut().enumerate() {
                    let at = [i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]];
                    store(out, channel, sums(n, g, first, 1, at)[0]);
                }
            });
        }
        Layout::ChannelsLast => {
            for_each_chunk_mut(context.parallel, output, p.out_channels, &|index, channels| {
                let (n, i) = (index / pixels, index % pixels);
                let at = [i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]];
                for (g, group) in channels.chunks_mut(out_group).enumerate() {
                    for (b, part) in group.chunks_mut(CHANNEL_TILE).enumerate() {
                        let acc = sums(n, g, b * CHANNEL_TILE, part.len(), at);
                        for (o, out) in part.iter_mut().enumerate() {
                            store(out, g * out_group + b * CHANNEL_TILE + o, acc[o]);
                        }
                    }
                }
            });
        }
    }
}

/// Calls `f(tap, input position)` for the taps of output `o` that are inside the input.
#[inline(always)]
fn each_tap(axis: &Axis, o: usize, mut f: impl FnMut(usize, usize)) {
    for t in 0..axis.kernel {
        if let Some(i) = axis.at(o, t) {
            f(t, i);
        }
    }
}
