//! Sliding windows: output shapes of convolutions and poolings, and the input positions of each
//! window.
//!
//! All arithmetic is checked, and ranges are clamped to the input: even with a huge kernel, stride
//! or padding, no loop of a caller is longer than the tensors.

use crate::bounded::Bounded;
use crate::layout::Sizes;

/// Maximum number of spatial dims.
pub const MAX_SPATIAL: usize = 3;

/// A window over one dim: tap `t` of the window for output `o` reads input
/// `o * stride - padding + t * dilation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

/// Windows over up to [`MAX_SPATIAL`] dims.
pub type Windows = Bounded<Window, MAX_SPATIAL>;

/// The taps of one window that are inside the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taps {
    /// Index of the first tap.
    pub first: usize,
    /// Number of taps.
    pub count: usize,
    /// Input position of the first tap.
    pub start: usize,
}

const fn positive(value: i64) -> Option<usize> {
    if value == 0 { None } else { non_negative(value) }
}

const fn non_negative(value: i64) -> Option<usize> {
    if value < 0 || value > i32::MAX as i64 || value as u64 > usize::MAX as u64 {
        return None;
    }
    Some(value as usize)
}

fn size(value: i64) -> Option<usize> {
    non_negative(value)
}

/// Converts to `i64`. Sizes and window parameters fit `i32`, so a sum of their pairwise products
/// does not overflow.
fn to_i64(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX >> 32)
}

impl Window {
    /// One tap per position, for a dim that a tensor lacks.
    pub const ONE: Self = Window { kernel: 1, stride: 1, padding: 0, dilation: 1 };

    /// Creates a window; `None` unless kernel, stride and dilation are positive, padding is not
    /// negative, and all fit `i32`.
    pub const fn new(kernel: i64, stride: i64, padding: i64, dilation: i64) -> Option<Self> {
        let (Some(kernel), Some(stride), Some(padding), Some(dilation)) =
            (positive(kernel), positive(stride), non_negative(padding), positive(dilation))
        else {
            return None;
        };
        Some(Window { kernel, stride, padding, dilation })
    }

    /// Number of taps, at least 1.
    pub fn kernel(&self) -> usize {
        self.kernel
    }

    /// Stride, at least 1.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Padding on each side.
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// Dilation, at least 1.
    pub fn dilation(&self) -> usize {
        self.dilation
    }

    /// Distance from the first tap to the last.
    fn span(&self) -> Option<i64> {
        to_i64(self.dilation).checked_mul(to_i64(self.kernel) - 1)
    }

    fn padded(&self, input: usize) -> Option<i64> {
        to_i64(input).checked_add(to_i64(self.padding).checked_mul(2)?)
    }

    /// Output size of a convolution; `None` if the kernel is larger than the padded input.
    pub fn convolved(&self, input: usize) -> Option<usize> {
        let room = self.padded(input)?.checked_sub(self.span()?)?.checked_sub(1)?;
        // Divides native words, as below: 32-bit processors have no 64-bit division.
        let count = usize::try_from(room).ok()? / self.stride;
        i32::try_from(count.checked_add(1)?).ok()?.try_into().ok()
    }

    /// Output size of a transposed convolution; `None` if it would be negative, or if
    /// `output_padding` is not smaller than stride or dilation.
    pub fn transposed(&self, input: usize, output_padding: usize) -> Option<usize> {
        if output_padding >= self.stride && output_padding >= self.dilation {
            return None;
        }
        let full = (to_i64(input) - 1).checked_mul(to_i64(self.stride))?;
        let full = full.checked_add(self.span()?)?.checked_add(to_i64(output_padding) + 1)?;
        size(full.checked_sub(to_i64(self.padding).checked_mul(2)?)?)
    }

    /// Output size of a pooling. With `ceil`, a last window that starts inside the input or the
    /// padding before it counts even if it ends outside. `None` if no window fits, or the padding
    /// exceeds half a window.
    pub fn pooled(&self, input: usize, ceil: bool) -> Option<usize> {
        let (span, stride) = (self.span()?, to_i64(self.stride));
        if to_i64(self.padding) * 2 > span + 1 {
            return None;
        }
        let extra = if ceil { stride - 1 } else { 0 };
        let room = self.padded(input)?.checked_sub(span)?.checked_sub(1)?.checked_add(extra)?;
        let mut count = to_i64(usize::try_from(room).ok()? / self.stride) + 1;
        if ceil && (count - 1).checked_mul(stride)? >= to_i64(input) + to_i64(self.padding) {
            count -= 1;
        }
        size(count).filter(|&count| count > 0)
    }

    /// Input position of the first tap of window `at`, including padding.
    pub fn origin(&self, at: usize) -> i64 {
        to_i64(at).saturating_mul(to_i64(self.stride)).saturating_sub(to_i64(self.padding))
    }

    /// The taps of window `at` that are inside an input of this size.
    pub fn taps(&self, at: usize, input: usize) -> Taps {
        // Saturated positions are behind every input.
        let origin = at.saturating_mul(self.stride);
        let first = self.padding.saturating_sub(origin).div_ceil(self.dilation);
        let start = origin.saturating_add(first.saturating_mul(self.dilation)) - self.padding;
        if start >= input || first >= self.kernel {
            return Taps::default();
        }
        let count = ((input - 1 - start) / self.dilation + 1).min(self.kernel - first);
        Taps { first, count, start }
    }

    /// Number of positions of window `at` inside the input or its padding. For undilated windows.
    pub fn covered(&self, at: usize, input: usize) -> usize {
        let origin = self.origin(at);
        let end = to_i64(input) + to_i64(self.padding);
        let covered = origin.saturating_add(to_i64(self.kernel)).min(end).saturating_sub(origin);
        usize::try_from(covered).unwrap_or(0)
    }
}

/// Creates windows for `rank` dims from parameter lists. A list with one item applies to all dims;
/// an empty stride list means the kernel's size.
pub fn windows(
    rank: usize,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
) -> Option<Windows> {
    let at = |list: &[i64], dim: usize| match list {
        [one] => Some(*one),
        list if list.len() == rank => list.get(dim).copied(),
        _ => None,
    };
    let stride = if stride.is_empty() { kernel } else { stride };
    let mut windows = Windows::new();
    for dim in 0..rank {
        let window =
            Window::new(at(kernel, dim)?, at(stride, dim)?, at(padding, dim)?, at(dilation, dim)?)?;
        windows.push(window).ok()?;
    }
    Some(windows)
}

/// Parameters of a convolution that affect shapes, besides its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvolutionKind<'a> {
    /// Whether the convolution is transposed.
    pub transposed: bool,
    /// Size added to the output of a transposed convolution, for each dim.
    pub output_padding: &'a [i64],
    /// Number of groups.
    pub groups: i64,
}

/// Windows of a convolution from its parameters; the kernel size is taken from `weight`.
pub fn convolution_windows(
    weight: &[i32],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
) -> Option<Windows> {
    let kernel: Bounded<i64, MAX_SPATIAL> =
        weight.get(2..).filter(|k| k.len() <= MAX_SPATIAL)?.iter().map(|&k| k.into()).collect();
    if stride.is_empty() {
        return None;
    }
    windows(kernel.len(), &kernel, stride, padding, dilation)
}

/// Output shape of a convolution. The batch dim of `input` is optional. `None` if PyTorch rejects
/// the call.
pub fn convolution(
    input: &[i32],
    weight: &[i32],
    windows: &[Window],
    kind: ConvolutionKind<'_>,
) -> Option<Sizes> {
    let spatial = weight.len().checked_sub(2).filter(|&rank| rank == windows.len() && rank > 0)?;
    let batched = input.len() == spatial + 2;
    if !batched && input.len() != spatial + 1 {
        return None;
    }
    let (leading, space) = input.split_at_checked(input.len() - spatial)?;
    let channels = *leading.last()?;
    let (&first, &second) = (weight.first()?, weight.get(1)?);
    let groups = i32::try_from(kind.groups).ok().filter(|&groups| groups > 0)?;
    if channels < 0 || first < 0 || second < 0 || first % groups != 0 {
        return None;
    }
    let (expected, out_channels) = if kind.transposed {
        (first, second.checked_mul(groups)?)
    } else {
        (second.checked_mul(groups)?, first)
    };
    if channels != expected {
        return None;
    }
    let mut sizes = Sizes::new();
    if batched {
        sizes.push(*leading.first()?).ok()?;
    }
    sizes.push(out_channels).ok()?;
    for (dim, (&size, window)) in space.iter().zip(windows).enumerate() {
        let size = usize::try_from(size).ok()?;
        let size = if kind.transposed {
            let extra = match kind.output_padding {
                [] => 0,
                [one] => *one,
                list => *list.get(dim)?,
            };
            window.transposed(size, non_negative(extra)?)?
        } else {
            window.convolved(size)?
        };
        sizes.push(i32::try_from(size).ok()?).ok()?;
    }
    Some(sizes)
}

/// Replaces the last `rank` dims of `input` by the results of `pooled`, which maps dim index and
/// size to the new size.
fn resized(
    input: &[i32],
    rank: usize,
    mut pooled: impl FnMut(usize, usize) -> Option<usize>,
) -> Option<Sizes> {
    if input.len() != rank + 1 && input.len() != rank + 2 {
        return None;
    }
    let (leading, space) = input.split_at_checked(input.len() - rank)?;
    // An empty batch yields an empty result; other dims must not be empty.
    if input.iter().skip(input.len() - rank - 1).any(|&size| size < 1) {
        return None;
    }
    let mut sizes = Sizes::from_slice(leading).ok()?;
    for (dim, &size) in space.iter().enumerate() {
        let size = pooled(dim, usize::try_from(size).ok()?)?;
        sizes.push(i32::try_from(size).ok()?).ok()?;
    }
    Some(sizes)
}

/// Output shape of a pooling: `[channels, space…]` or `[batch, channels, space…]`. `None` if
/// PyTorch rejects the call.
pub fn pooling(input: &[i32], windows: &[Window], ceil: bool) -> Option<Sizes> {
    resized(input, windows.len(), |dim, size| windows.get(dim)?.pooled(size, ceil))
}

/// Output shape of an adaptive pooling. `None` if PyTorch rejects the call.
pub fn adaptive_pooling(input: &[i32], output: &[i64], rank: usize) -> Option<Sizes> {
    resized(input, rank, |dim, _| match output {
        [one] => non_negative(*one),
        list if list.len() == rank => non_negative(*list.get(dim)?),
        _ => None,
    })
}

/// Input range `start..end` that output position `at` of an adaptive pooling covers.
pub fn adaptive_range(at: usize, input: usize, output: usize) -> (usize, usize) {
    let (at, input, output) = (at as u64, input as u64, (output as u64).max(1));
    let start = at.saturating_mul(input) / output;
    let end = (at + 1).saturating_mul(input).div_ceil(output);
    (start as usize, end as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn window(kernel: i64, stride: i64, padding: i64, dilation: i64) -> Window {
        Window::new(kernel, stride, padding, dilation).unwrap()
    }

    #[test]
    fn invalid_windows_are_rejected() {
        assert_eq!(Window::new(3, 0, 0, 1), None);
        assert_eq!(Window::new(0, 1, 0, 1), None);
        assert_eq!(Window::new(3, 1, -1, 1), None);
        assert_eq!(Window::new(3, 1, 0, i64::MAX), None);
    }

    /// Sizes of `torch.nn.functional.conv1d` and `conv_transpose1d`.
    #[test]
    fn convolution_sizes() {
        assert_eq!(window(3, 2, 1, 1).convolved(224), Some(112));
        assert_eq!(window(3, 1, 0, 2).convolved(5), Some(1));
        assert_eq!(window(3, 1, 0, 2).convolved(4), None);
        assert_eq!(window(3, 2, 1, 1).transposed(5, 1), Some(10));
        assert_eq!(window(3, 2, 1, 1).transposed(5, 2), None);
        assert_eq!(window(1, 1, 9, 1).transposed(5, 0), None);
        let giant = window(i32::MAX.into(), 1, i32::MAX.into(), i32::MAX.into());
        assert_eq!(giant.convolved(5), None);
        assert_eq!(giant.transposed(5, 0), None);
    }

    #[test]
    fn convolution_shapes() {
        let kind = ConvolutionKind { transposed: false, output_padding: &[], groups: 2 };
        let windows = convolution_windows(&[6, 2, 3, 3], &[1], &[1, 1], &[1]).unwrap();
        assert_eq!(
            convolution(&[1, 4, 8, 9], &[6, 2, 3, 3], &windows, kind).unwrap(),
            [1, 6, 8, 9]
        );
        assert_eq!(convolution(&[4, 8, 9], &[6, 2, 3, 3], &windows, kind).unwrap(), [6, 8, 9]);
        assert_eq!(convolution(&[1, 5, 8, 9], &[6, 2, 3, 3], &windows, kind), None);
        assert_eq!(convolution(&[8, 9], &[6, 2, 3, 3], &windows, kind), None);
        let kind = ConvolutionKind { transposed: true, ..kind };
        assert_eq!(
            convolution(&[1, 6, 8, 9], &[6, 2, 3, 3], &windows, kind).unwrap(),
            [1, 4, 8, 9]
        );
    }

    /// Sizes of `torch.nn.functional.max_pool1d`.
    #[test]
    fn pooling_sizes() {
        assert_eq!(window(3, 2, 1, 1).pooled(112, false), Some(56));
        assert_eq!(window(2, 2, 0, 1).pooled(5, false), Some(2));
        assert_eq!(window(2, 2, 0, 1).pooled(5, true), Some(3));
        // A window that would start in the padding behind the input does not count.
        assert_eq!(window(2, 2, 1, 1).pooled(5, true), Some(3));
        assert_eq!(window(2, 3, 1, 1).pooled(3, true), Some(2));
        assert_eq!(window(3, 2, 2, 1).pooled(9, false), None);
        assert_eq!(window(6, 1, 0, 1).pooled(5, false), None);
    }

    #[test]
    fn taps_are_clamped_to_the_input() {
        // A sample suffices under Miri, which looks for undefined behaviour, not wrong results.
        const STEP: usize = if cfg!(miri) { 3 } else { 1 };
        for kernel in (1..5).step_by(STEP) {
            for stride in (1..4).step_by(STEP) {
                for padding in (0..4).step_by(STEP) {
                    for dilation in (1..4).step_by(STEP) {
                        let window = window(kernel, stride, padding, dilation);
                        for input in (0..7usize).step_by(STEP) {
                            for at in (0..8usize).step_by(STEP) {
                                let inside: Vec<(usize, usize)> = (0..kernel)
                                    .map(|t| (t, at as i64 * stride - padding + t * dilation))
                                    .filter(|&(_, x)| (0..input as i64).contains(&x))
                                    .map(|(t, x)| (t as usize, x as usize))
                                    .collect();
                                let taps = window.taps(at, input);
                                assert_eq!(taps.count, inside.len());
                                if let Some(&(first, start)) = inside.first() {
                                    assert_eq!((taps.first, taps.start), (first, start));
                                }
                            }
                        }
                    }
                }
            }
        }
        let giant = window(i32::MAX.into(), i32::MAX.into(), 3, i32::MAX.into());
        assert_eq!(giant.taps(usize::MAX >> 1, 5), Taps::default());
    }

    #[test]
    fn adaptive_ranges_cover_the_input() {
        assert_eq!([0, 1, 2].map(|at| adaptive_range(at, 7, 3)), [(0, 3), (2, 5), (4, 7)]);
        assert_eq!(adaptive_range(4, 2, 5), (1, 2));
        assert_eq!(adaptive_pooling(&[2, 3, 7, 7], &[1, 5], 2).unwrap(), [2, 3, 1, 5]);
        assert_eq!(adaptive_pooling(&[2, 0, 7, 7], &[1, 5], 2), None);
        assert_eq!(adaptive_pooling(&[0, 3, 7, 7], &[2], 2).unwrap(), [0, 3, 2, 2]);
    }
}
