//! Windows that slide over space: the shapes of convolutions and poolings, and which places a
//! window sees.
//!
//! All arithmetic is checked, and what a caller loops over is cut to the input: however large a
//! kernel, stride or padding is, no loop is longer than the tensors are.

use crate::bounded::Bounded;
use crate::layout::Sizes;

/// The most spatial dimensions.
pub const MAX_SPATIAL: usize = 3;

/// A window along one dimension: tap `t` of the window at output `o` is at input
/// `o * stride - padding + t * dilation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

/// Windows for up to [`MAX_SPATIAL`] dimensions.
pub type Windows = Bounded<Window, MAX_SPATIAL>;

/// The taps of one window that are inside the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taps {
    /// The first of them.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    /// The input position of the first.
    pub start: usize,
}

fn positive(value: i64) -> Option<usize> {
    usize::try_from(i32::try_from(value).ok()?).ok().filter(|&value| value > 0)
}

fn not_negative(value: i64) -> Option<usize> {
    usize::try_from(i32::try_from(value).ok()?).ok()
}

fn size(value: i64) -> Option<usize> {
    not_negative(value)
}

/// As `i64`; sizes and window parameters fit `i32`, so that sums of products of two stay in range.
fn wide(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX >> 32)
}

impl Window {
    /// One tap at each place, as along a dimension that a tensor does not have.
    pub const ONE: Self = Window { kernel: 1, stride: 1, padding: 0, dilation: 1 };

    /// `None` unless kernel, stride and dilation are positive, padding is not negative, and all fit
    /// `i32`.
    pub fn new(kernel: i64, stride: i64, padding: i64, dilation: i64) -> Option<Self> {
        Some(Window {
            kernel: positive(kernel)?,
            stride: positive(stride)?,
            padding: not_negative(padding)?,
            dilation: positive(dilation)?,
        })
    }

    /// Taps: at least one.
    pub fn kernel(&self) -> usize {
        self.kernel
    }

    /// Distance of neighbouring windows: at least one.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Places before the first element, and behind the last.
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// Distance of neighbouring taps: at least one.
    pub fn dilation(&self) -> usize {
        self.dilation
    }

    /// Distance from the first tap to the last.
    fn reach(&self) -> Option<i64> {
        wide(self.dilation).checked_mul(wide(self.kernel) - 1)
    }

    fn padded(&self, input: usize) -> Option<i64> {
        wide(input).checked_add(wide(self.padding).checked_mul(2)?)
    }

    /// Size of a convolution's output; `None` where the kernel is larger than the padded input.
    pub fn convolved(&self, input: usize) -> Option<usize> {
        let room = self.padded(input)?.checked_sub(self.reach()?)?.checked_sub(1)?;
        // In words of the machine, as below: small ones divide no others.
        let count = usize::try_from(room).ok()? / self.stride;
        i32::try_from(count.checked_add(1)?).ok()?.try_into().ok()
    }

    /// Size of a transposed convolution's output; `None` where it would be negative, or where
    /// `output_padding` is not smaller than both stride and dilation.
    pub fn transposed(&self, input: usize, output_padding: usize) -> Option<usize> {
        if output_padding >= self.stride && output_padding >= self.dilation {
            return None;
        }
        let full = (wide(input) - 1).checked_mul(wide(self.stride))?;
        let full = full.checked_add(self.reach()?)?.checked_add(wide(output_padding) + 1)?;
        size(full.checked_sub(wide(self.padding).checked_mul(2)?)?)
    }

    /// Size of a pooling's output. With `ceil`, a last window that begins inside the input or the
    /// padding before it counts though it ends outside. `None` where there is no window at all, or
    /// the padding is more than half of one.
    pub fn pooled(&self, input: usize, ceil: bool) -> Option<usize> {
        let (reach, stride) = (self.reach()?, wide(self.stride));
        if wide(self.padding) * 2 > reach + 1 {
            return None;
        }
        let extra = if ceil { stride - 1 } else { 0 };
        let room = self.padded(input)?.checked_sub(reach)?.checked_sub(1)?.checked_add(extra)?;
        let mut count = wide(usize::try_from(room).ok()? / self.stride) + 1;
        if ceil && (count - 1).checked_mul(stride)? >= wide(input) + wide(self.padding) {
            count -= 1;
        }
        size(count).filter(|&count| count > 0)
    }

    /// Input position of the first tap of window `at`, padding included.
    pub fn origin(&self, at: usize) -> i64 {
        wide(at).saturating_mul(wide(self.stride)).saturating_sub(wide(self.padding))
    }

    /// The taps of window `at` that are inside an input of this size.
    pub fn taps(&self, at: usize, input: usize) -> Taps {
        // What saturates is behind every input.
        let origin = at.saturating_mul(self.stride);
        let first = self.padding.saturating_sub(origin).div_ceil(self.dilation);
        let start = origin.saturating_add(first.saturating_mul(self.dilation)) - self.padding;
        if start >= input || first >= self.kernel {
            return Taps::default();
        }
        let count = ((input - 1 - start) / self.dilation + 1).min(self.kernel - first);
        Taps { first, count, start }
    }

    /// How many places of window `at` are inside the input or its padding. For undilated windows.
    pub fn covered(&self, at: usize, input: usize) -> usize {
        let origin = self.origin(at);
        let end = wide(input) + wide(self.padding);
        let covered = origin.saturating_add(wide(self.kernel)).min(end).saturating_sub(origin);
        usize::try_from(covered).unwrap_or(0)
    }
}

/// Windows of `rank` dimensions from lists of parameters. A list of one counts for all dimensions;
/// an empty list of strides means the kernel's size.
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

/// What a convolution does to shapes, besides its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvolutionKind<'a> {
    /// Whether it is a transposed convolution.
    pub transposed: bool,
    /// Added to the output of a transposed convolution, for each dimension.
    pub output_padding: &'a [i64],
    /// Groups.
    pub groups: i64,
}

/// The windows of a convolution from its parameters; the kernel's sizes are those of `weight`.
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

/// The shape of a convolution's output. `input` may lack the batch dimension. `None` where PyTorch
/// refuses.
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
            window.transposed(size, not_negative(extra)?)?
        } else {
            window.convolved(size)?
        };
        sizes.push(i32::try_from(size).ok()?).ok()?;
    }
    Some(sizes)
}

/// Replaces the last dimensions of `input`, as many as there are results of `pooled`, which
/// computes each from its number and its size.
fn resized(
    input: &[i32],
    rank: usize,
    mut pooled: impl FnMut(usize, usize) -> Option<usize>,
) -> Option<Sizes> {
    if input.len() != rank + 1 && input.len() != rank + 2 {
        return None;
    }
    let (leading, space) = input.split_at_checked(input.len() - rank)?;
    // An empty batch is an empty result; other dimensions must have elements.
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

/// The shape of a pooling's output: `[channels, space…]` or `[batch, channels, space…]`. `None`
/// where PyTorch refuses.
pub fn pooling(input: &[i32], windows: &[Window], ceil: bool) -> Option<Sizes> {
    resized(input, windows.len(), |dim, size| windows.get(dim)?.pooled(size, ceil))
}

/// The shape of an adaptive pooling's output. `None` where PyTorch refuses.
pub fn adaptive_pooling(input: &[i32], output: &[i64], rank: usize) -> Option<Sizes> {
    resized(input, rank, |dim, _| match output {
        [one] => not_negative(*one),
        list if list.len() == rank => not_negative(*list.get(dim)?),
        _ => None,
    })
}

/// The part `start..end` of an input that place `at` of an adaptive pooling's output sees.
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
    fn senseless_windows_are_refused() {
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
        // The window that would begin in the padding behind the input does not count.
        assert_eq!(window(2, 2, 1, 1).pooled(5, true), Some(3));
        assert_eq!(window(2, 3, 1, 1).pooled(3, true), Some(2));
        assert_eq!(window(3, 2, 2, 1).pooled(9, false), None);
        assert_eq!(window(6, 1, 0, 1).pooled(5, false), None);
    }

    #[test]
    fn taps_are_cut_to_the_input() {
        // Miri looks for other faults than wrong numbers: a sample serves it.
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
