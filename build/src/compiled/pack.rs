//! Packs weights and parameters of int8 layers for processors with the DSP extension
//! (`torchlet_portable::compiled`). Other layers keep the calls that serve every shape.

use super::{Call, Extent, Results, Scales, Step, Window};
use std::borrow::Cow;
use torchlet_graph::method::Method;
use torchlet_portable::compiled::{
    Channel, ConvolvePacked, DepthwisePacked, HEADROOM, KERNEL, LinearPacked, weight_position,
    weights_len,
};

/// Packs the steps of a method.
pub(super) fn run(method: &Method<'_>, steps: &mut [Step<'_>]) {
    for step in steps {
        if let Some((call, is_swapped)) = add(&step.call) {
            step.call = call;
            if is_swapped {
                step.inputs.reverse();
            }
            continue;
        }
        let packed = match &step.call {
            Call::Convolve { .. } => convolve(&step.call),
            Call::Depthwise { .. } => depthwise(&step.call),
            // A single row.
            Call::Linear { channels, .. }
                if method.tensor(step.out).is_some_and(|out| out.info.numel() == *channels) =>
            {
                linear(&step.call)
            }
            _ => None,
        };
        if let Some((call, workspace)) = packed {
            (step.call, step.workspace.0) = (call, workspace);
        }
    }
}

/// Whether sums of 16-bit values with this offset are computed, and results are all int8 values.
fn is_fast(offset: i32, results: &Results) -> bool {
    (-127..=128).contains(&offset)
        && results.bounds == (-128, 127)
        && (-128..=127).contains(&results.offset)
}

/// Parameters of channels for sums below `limit`, with numbers added to the biases.
fn channels(
    results: &Results,
    count: usize,
    limit: usize,
    added: impl Fn(usize) -> Option<i64>,
) -> Option<Vec<Channel>> {
    let channel = |channel: usize| {
        let (multiplier, shift) = match &results.scales {
            Scales::One(multiplier, shift) => (*multiplier, *shift),
            Scales::PerChannel(multipliers, shifts) => {
                (*multipliers.get(channel)?, *shifts.get(channel)?)
            }
        };
        let bias = match results.bias.is_empty() {
            true => 0,
            false => *results.bias.get(channel)?,
        };
        let bias = added(channel)?.checked_add(bias.into())?;
        Channel::new(bias, multiplier, shift, i64::try_from(limit).ok()?)
    };
    (0..count).map(channel).collect()
}

fn words(channels: &[Channel]) -> Vec<i32> {
    channels.iter().flat_map(|channel| channel.words()).collect()
}

/// Magnitude that sums of this many products do not reach: 9 bits of a value with its offset, and 8
/// bits of a weight.
fn limit(depth: usize) -> Option<usize> {
    depth.checked_mul(1 << 15)
}

/// Weights `[channel, row, value]` in the order of the kernels, with zeros for missing channels.
/// Rows of `len` values are padded to `padded` values.
fn packed(weights: &[u8], [rows, len, padded]: [usize; 3], channels: usize) -> Option<Vec<u8>> {
    let depth = rows.checked_mul(padded)?;
    let mut packed = vec![0; weights_len(depth, channels)?];
    for (at, &weight) in weights.iter().enumerate() {
        let (row, value) = (at / len, at % len);
        let value = row % rows * padded + value;
        *packed.get_mut(weight_position(depth, row / rows, value))? = weight;
    }
    Some(packed)
}

/// Weights `[tap, channel]` as `[channel, tap]`.
fn by_channel(weights: &[u8], channels: usize) -> Vec<u8> {
    let channel = |channel| weights.iter().skip(channel).step_by(channels).copied();
    (0..channels).flat_map(channel).collect()
}

fn convolve<'p>(call: &Call<'p>) -> Option<(Call<'p>, usize)> {
    let Call::Convolve { from, to, windows, transposed, depth, offset, results, weights } = call
    else {
        return None;
    };
    let [rows, columns] = windows.map(|[kernel, ..]| usize::try_from(kernel).ok());
    let taps = [rows?, columns?];
    let (len, padded) = (depth.checked_mul(taps[1])?, ConvolvePacked::row_len(*depth, taps[1]));
    let row = padded.checked_mul(taps[0])?;
    let has_dilation = windows.iter().any(|[.., dilation]| *dilation != 1);
    let is_plain = !transposed && !has_dilation && *depth == from[2] && to[2].is_multiple_of(2);
    if !is_plain || !is_fast(*offset, results) || row == 0 {
        return None;
    }
    let channels = channels(results, to[2], limit(row)?, |_| Some(0))?;
    let call = Call::ConvolvePacked {
        from: *from,
        to: *to,
        windows: *windows,
        offset: *offset,
        zero: results.offset,
        channels: words(&channels),
        weights: Cow::Owned(packed(weights, [taps[0], len, padded], to[2])?),
    };
    Some((call, ConvolvePacked::workspace_bytes(*depth, taps)))
}

fn linear<'p>(call: &Call<'p>) -> Option<(Call<'p>, usize)> {
    let Call::Linear { depth, channels: count, weight_offset: 0, offset, results, weights } = call
    else {
        return None;
    };
    if !is_fast(*offset, results) || !matches!(results.scales, Scales::One(..)) || *depth == 0 {
        return None;
    }
    let channels = channels(results, *count, limit(*depth)?, |_| Some(0))?;
    let call = Call::LinearPacked {
        depth: *depth,
        offset: *offset,
        zero: results.offset,
        channel: Channel { bias: 0, ..*channels.first()? },
        bias: channels.iter().map(|channel| channel.bias).collect(),
        weights: Cow::Owned(packed(
            weights,
            [1, *depth, *depth],
            count.checked_next_multiple_of(2)?,
        )?),
    };
    Some((call, LinearPacked::workspace_bytes(*depth)))
}

/// An addition, and whether its operands change places.
fn add<'p>(call: &Call<'p>) -> Option<(Call<'p>, bool)> {
    const HALF: (i32, i32) = (1 << 30, 0);
    let Call::Add { zeros, scales: [a, b, all], offset, bounds: (-128, 127) } = call else {
        return None;
    };
    let (is_swapped, zeros, other) = match (*a == HALF, *b == HALF) {
        (true, _) => (false, *zeros, *b),
        (_, true) => (true, [zeros[1], zeros[0]], *a),
        _ => return None,
    };
    let is_small = zeros.iter().all(|zero| (-128..=127).contains(zero));
    if !is_small || !(-128..=127).contains(offset) {
        return None;
    }
    // Sums of a value and its offset have 9 bits, and those of two operands one more.
    let limit = 1 << (9 + HEADROOM);
    let channel = |(multiplier, shift)| Channel::new(0, multiplier, shift, limit);
    let call = Call::AddPacked {
        zeros: zeros.map(|zero| -zero),
        scale: channel(other)?,
        result: channel(*all)?,
        zero: *offset,
    };
    Some((call, is_swapped))
}

fn depthwise<'p>(call: &Call<'p>) -> Option<(Call<'p>, usize)> {
    let Call::Depthwise { from, to, windows, multiplier: 1, offset, results, weights } = call
    else {
        return None;
    };
    let kernel = KERNEL as i64;
    let [[_, stride, above, _], [_, _, before, _]] = *windows;
    let is_three = |&[size, by, _, dilation]: &Window| (size, by, dilation) == (kernel, stride, 1);
    let is_small = windows.iter().all(is_three) && matches!(stride, 1 | 2) && from[2] == to[2];
    if !is_small || !is_fast(*offset, results) {
        return None;
    }
    let (stride, padding) = (stride as usize, [above.try_into().ok()?, before.try_into().ok()?]);
    let extent = |[rows, columns, channels]: Extent| torchlet_portable::compiled::Extent {
        rows,
        columns,
        channels,
    };
    let workspace = DepthwisePacked::workspace_bytes(extent(*from), extent(*to), stride, padding)?;
    // The padded image of a channel must not need more memory than all of them.
    if workspace > from.iter().product() {
        return None;
    }
    // The offset is added to all values, and padding is its negation, so its contribution is
    // constant.
    let added = |channel: usize| {
        let weights = weights.get(channel..)?.iter().step_by(to[2]);
        let sum: i64 = weights.map(|&weight| i64::from(weight as i8)).sum();
        sum.checked_mul(i64::from(*offset))
    };
    let channels = channels(results, to[2], limit(KERNEL * KERNEL)?, added)?;
    let call = Call::DepthwisePacked {
        from: *from,
        to: *to,
        stride,
        padding,
        value: i8::try_from(-offset).ok()?,
        zero: results.offset,
        channels: words(&channels),
        weights: Cow::Owned(by_channel(weights, to[2])),
    };
    Some((call, workspace))
}
