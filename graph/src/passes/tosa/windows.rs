//! Windows with different padding before and after.

use torchlet_core::rules::window::Window;

/// Number of windows over a dim that `pad` extends before and after.
pub(crate) fn window_count(
    size: usize,
    kernel: usize,
    pad: [i64; 2],
    [stride, dilation]: [i64; 2],
) -> Option<usize> {
    let window = Window::new(i64::try_from(kernel).ok()?, stride, 0, dilation)?;
    window.convolved(padded(size, pad)?)
}

/// The size of a dim that `pad` extends before and after, or crops.
pub(crate) fn padded(size: usize, [before, after]: [i64; 2]) -> Option<usize> {
    let size = i64::try_from(size).ok()?.checked_add(before)?.checked_add(after)?;
    usize::try_from(size).ok()
}

/// Symmetric padding with the same windows: PyTorch ignores elements that no window reaches.
pub(crate) fn symmetric_padding(
    size: usize,
    kernel: usize,
    [before, after]: [i64; 2],
    steps: [i64; 2],
) -> Option<i64> {
    let same = before >= 0
        && window_count(size, kernel, [before; 2], steps)?
            == window_count(size, kernel, [before, after], steps)?;
    same.then_some(before)
}
