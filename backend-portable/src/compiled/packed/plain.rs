//! The loops in plain Rust.

use super::depthwise::KERNEL;
use super::linear::FEATURES;
use super::{AddPacked, ConvolvePacked, HEADROOM, LinearPacked};
use super::{Block, CHANNEL_WORDS, Channel, ROWS, UNIT, rounding, weight_position, wide_position};
use crate::compiled::Extent;

impl Channel {
    /// Requantizes a sum that includes the bias.
    fn apply(&self, sum: i32, zero: i32) -> i8 {
        // The rounding term of ties away from zero depends on the sign of the sum.
        let added = (rounding(zero) << self.shift) + (sum >> 31);
        let product = i64::from(2 * sum) * i64::from(self.multiplier);
        let high = added + ((product + (1 << 31)) >> 32) as i32;
        (high >> self.shift >> 1).clamp(-128, 127) as i8
    }

    fn of(words: &[i32; CHANNEL_WORDS]) -> Self {
        let [bias, multiplier, shift] = *words;
        Channel { bias, multiplier, shift }
    }
}

/// Widens a block of values, adding an offset, to rows of which `R` are interleaved.
pub(super) fn widen<const R: usize>(values: &[i8], block: Block, offset: i16, wide: &mut [i16]) {
    let len = block.units * UNIT;
    let rows = values.chunks(block.step.max(1)).take(block.rows).enumerate();
    for (at, values) in rows {
        let (row, first) =
            if block.goes_down { (block.row + at, 0) } else { (block.row, at * len) };
        for (at, &value) in values.iter().take(len).enumerate() {
            if let Some(wide) = wide.get_mut(wide_position(R, row, first + at)) {
                *wide = i16::from(value) + offset;
            }
        }
    }
}

/// Sum of the products of a widened row with the weights of a channel.
fn sum([rows, row]: [usize; 2], wide: &[i16], units: usize, channel: usize, weights: &[u8]) -> i32 {
    let depth = units * UNIT;
    let product = |value: usize| {
        let weight = weights.get(weight_position(depth, channel, value));
        let wide = wide.get(wide_position(rows, row, value));
        i32::from(wide.copied().unwrap_or(0)) * i32::from(weight.copied().unwrap_or(0) as i8)
    };
    (0..depth).map(product).sum()
}

/// Computes all channels of `count` pixels from their widened windows.
pub(super) fn three_rows(
    call: &ConvolvePacked,
    units: usize,
    wide: &[i16],
    count: usize,
    out: &mut [i8],
) {
    let (channels, _) = call.channels.as_chunks::<CHANNEL_WORDS>();
    for (row, out) in out.chunks_exact_mut(call.to.channels.max(1)).take(count).enumerate() {
        for (channel, (out, words)) in out.iter_mut().zip(channels).enumerate() {
            let parameters = Channel::of(words);
            let sum = sum([ROWS, row], wide, units, channel, call.weights);
            *out = parameters.apply(sum + parameters.bias, call.zero);
        }
    }
}

/// Computes the output features from `first` on.
pub(super) fn one_row(
    call: &LinearPacked,
    units: usize,
    wide: &[i16],
    first: usize,
    bias: &[[i32; FEATURES]],
    out: &mut [[i8; FEATURES]],
) {
    let bias = bias.as_flattened();
    for (at, (out, bias)) in out.as_flattened_mut().iter_mut().zip(bias).enumerate() {
        let sum = sum([1, 0], wide, units, first + at, call.weights);
        *out = call.channel.apply(sum + bias, call.zero);
    }
}

/// Weights and parameters of a channel of a depthwise convolution.
pub(super) struct Kernel {
    weights: [i8; KERNEL * KERNEL],
    channel: Channel,
    zero: i32,
}

impl Kernel {
    pub(super) fn new(
        weights: &[i8; KERNEL * KERNEL],
        words: [i32; CHANNEL_WORDS],
        zero: i32,
    ) -> Self {
        Kernel { weights: *weights, channel: Channel::of(&words), zero }
    }
}

/// Copies a channel of an image to the inside of a plane whose rows have `columns` values.
pub(super) fn copy_channel(
    input: &[i8],
    from: Extent,
    inside: &mut [i16],
    [_, columns]: [usize; 2],
) {
    let mut values = input.iter().step_by(from.channels.max(1));
    for row in inside.chunks_mut(columns.max(1)).take(from.rows) {
        for (wide, &value) in row.iter_mut().take(from.columns).zip(&mut values) {
            *wide = value.into();
        }
    }
}

/// Computes a channel of an image from its padded plane.
pub(super) fn depthwise(
    kernel: &Kernel,
    stride: usize,
    plane: &[i16],
    columns: usize,
    to: Extent,
    out: &mut [i8],
) {
    let mut out = out.iter_mut().step_by(to.channels.max(1));
    for row in 0..to.rows {
        for (column, out) in (0..to.columns).zip(&mut out) {
            let mut sum = kernel.channel.bias;
            for (tap, &weight) in kernel.weights.iter().enumerate() {
                let (y, x) = (row * stride + tap / KERNEL, column * stride + tap % KERNEL);
                let value = plane.get(y * columns + x).copied().unwrap_or(0);
                sum += i32::from(value) * i32::from(weight);
            }
            *out = kernel.channel.apply(sum, kernel.zero);
        }
    }
}

/// Adds operands.
pub(super) fn add(call: &AddPacked, [a, b]: [&[i8]; 2], out: &mut [i8]) {
    let AddPacked { zeros, scale, result, zero, .. } = call;
    for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
        let [a, b] = [(a, zeros[0]), (b, zeros[1])]
            .map(|(value, zero)| (i32::from(value) + zero) << HEADROOM);
        let product = i64::from(2 * b) * i64::from(scale.multiplier);
        let high = ((product + (1 << 31)) >> 32) as i32 + (b >> 31);
        let b = (high + (1 << scale.shift)) >> scale.shift >> 1;
        *out = result.apply((a >> 1) + b, *zero);
    }
}
