//! Merges and rewrites steps: padding into convolutions, changes of the memory order into the
//! weights of linear layers, depthwise convolutions of a single channel into plain ones. Results
//! stay the same, bit by bit.

use super::{Call, Step, Window};
use std::borrow::Cow;
use torchlet_graph::method::Method;
use torchlet_portable::compiled::Convolve;

/// Merges the steps of a method.
pub(super) fn run(method: &Method<'_>, steps: &mut Vec<Step<'_>>) {
    for at in 0..steps.len() {
        let (done, rest) = steps.split_at_mut(at);
        let Some(step) = rest.first_mut() else { return };
        // The producer of the first input, through views.
        let mut value = match step.inputs[..] {
            [value] => value,
            _ => continue,
        };
        while let Some(view) = done.iter().find(|done| done.out == value && is_view(done)) {
            value = view.inputs[0];
        }
        let Some(producer) = done.iter().find(|done| done.out == value) else { continue };
        match (&producer.call, &mut step.call) {
            (
                Call::Pad { from, to, before, value },
                Call::Convolve { from: image, windows, offset, transposed: false, .. }
                | Call::Depthwise { from: image, windows, offset, .. },
            ) if i32::from(*value).checked_neg() == Some(*offset)
                // Only rows and columns are padded, and no view between changes them.
                && (from[0], from[3]) == (to[0], to[3])
                && to[1..] == image[..] =>
            {
                if let Some(padded) = padded(windows, [before[1], before[2]]) {
                    (*windows, *image) = (padded, [from[1], from[2], from[3]]);
                    step.inputs.clone_from(&producer.inputs);
                }
            }
            (Call::Permute { sizes, strides, size: 1 }, Call::Linear { depth, weights, .. })
                if sizes[1..].iter().product::<usize>() == *depth
                    && (sizes[0] == 1 || strides[0] == *depth) =>
            {
                if let Some(permuted) = permuted(weights, *depth, sizes, strides) {
                    *weights = Cow::Owned(permuted);
                    step.inputs.clone_from(&producer.inputs);
                }
            }
            _ => {}
        }
    }
    remove_unused(method, steps);
    steps.iter_mut().for_each(widen);
}

/// Replaces a depthwise convolution of a single channel, as in the first layers of audio and
/// greyscale networks, by the plain convolution that it is. The plain one multiplies two pixels
/// with two channels at a time, and is faster from [`MIN_TAPS`] taps on.
fn widen(step: &mut Step<'_>) {
    let Call::Depthwise { from, to, windows, offset, results, weights, .. } = &step.call else {
        return;
    };
    let ([_, _, 1], [_, _, channels]) = (from, to) else { return };
    let taps = weights.len().checked_div(*channels).unwrap_or(0);
    if taps < MIN_TAPS {
        return;
    }
    let mut transposed = vec![0; weights.len()];
    for (tap, weights) in weights.chunks_exact((*channels).max(1)).enumerate() {
        for (channel, &weight) in weights.iter().enumerate() {
            let Some(to) = transposed.get_mut(channel * taps + tap) else { return };
            *to = weight;
        }
    }
    step.workspace.0 = Convolve::workspace_bytes(1, taps);
    step.call = Call::Convolve {
        from: *from,
        to: *to,
        windows: *windows,
        transposed: false,
        depth: 1,
        offset: *offset,
        results: results.clone(),
        weights: Cow::Owned(transposed),
    };
}

/// Taps from which [`widen`] lowers the number of instructions. (3 by 3 taps need 4 percent more,
/// 10 by 4 a third of them.)
const MIN_TAPS: usize = 16;

fn is_view(step: &Step<'_>) -> bool {
    step.call == Call::View
}

/// Windows with more padding.
fn padded(windows: &[Window; 2], before: [usize; 2]) -> Option<[Window; 2]> {
    let mut padded = *windows;
    for (window, before) in padded.iter_mut().zip(before) {
        let [kernel, stride, padding, dilation] = *window;
        let padding = padding.checked_add(i64::try_from(before).ok()?)?;
        *window = [kernel, stride, padding, dilation];
        torchlet_portable::compiled::Window::new(kernel, stride, padding, dilation)?;
    }
    Some(padded)
}

/// Weights for an input whose last three axes are not permuted.
fn permuted(
    weights: &[u8],
    depth: usize,
    sizes: &[usize; 4],
    strides: &[usize; 4],
) -> Option<Vec<u8>> {
    let mut permuted = vec![0; weights.len()];
    let rows = weights.chunks_exact(depth.max(1)).zip(permuted.chunks_exact_mut(depth.max(1)));
    for (row, permuted) in rows {
        let mut row = row.iter();
        for a in 0..sizes[1] {
            for b in 0..sizes[2] {
                for c in 0..sizes[3] {
                    let at = a * strides[1] + b * strides[2] + c * strides[3];
                    *permuted.get_mut(at)? = *row.next()?;
                }
            }
        }
    }
    Some(permuted)
}

/// Removes steps whose result nothing reads.
fn remove_unused(method: &Method<'_>, steps: &mut Vec<Step<'_>>) {
    let mut is_read = vec![false; method.values.len()];
    for &output in &method.outputs {
        is_read[output] = true;
    }
    for step in steps.iter().rev() {
        if is_read[step.out] {
            step.inputs.iter().for_each(|&input| is_read[input] = true);
        }
    }
    steps.retain(|step| is_read[step.out]);
}
