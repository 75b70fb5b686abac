//! im2col for int8: the windows of a convolution as rows of a matrix, channels last.

use super::STEP;
use torchlet_core::rules::window::{Taps, Window};

/// Window geometry over a batch of images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    /// Height, width and channels of an image, or of one group of its channels.
    pub(crate) input: [usize; 3],
    /// Stride of pixels: the channels of all groups.
    pub(crate) pixel: usize,
    /// Height and width of the result.
    pub(crate) output: [usize; 2],
    /// Window parameters of the height and width axes.
    pub(crate) axes: [Window; 2],
    /// Row and column index of the first window; nonzero for a [part](Self::part) of the window
    /// grid.
    pub(crate) first: [usize; 2],
}

impl Windows {
    /// Returns `None` if windows do not fit the image, or a size exceeds the address space.
    pub(crate) fn new(input: [usize; 3], axes: [Window; 2]) -> Option<Self> {
        let [height, width, channels] = input;
        let output = [axes[0].convolved(height)?, axes[1].convolved(width)?];
        let [tall, wide] = axes.map(|axis| axis.kernel());
        height.checked_mul(width)?.checked_mul(channels)?;
        tall.checked_mul(wide)?.checked_mul(channels)?;
        output[0].checked_mul(output[1])?;
        Some(Windows { input, pixel: channels, output, axes, first: [0; 2] })
    }

    /// Restricts the geometry to a rectangle of `output` windows starting at `first`. Returns
    /// `None` if the rectangle exceeds the grid of all windows.
    pub(crate) fn part(
        input: [usize; 3],
        axes: [Window; 2],
        first: [usize; 2],
        output: [usize; 2],
    ) -> Option<Self> {
        let whole = Windows::new(input, axes)?;
        let fits = |dim: usize| {
            first[dim].checked_add(output[dim]).is_some_and(|end| end <= whole.output[dim])
        };
        (fits(0) && fits(1)).then_some(Windows { output, first, ..whole })
    }

    /// Restricts the windows to one group of the image's channels, out of `all` channels. Returns
    /// `None` if the channels do not divide evenly, or a size exceeds the address space.
    pub(crate) fn of_groups(self, all: usize) -> Option<Self> {
        let [height, width, channels] = self.input;
        height.checked_mul(width)?.checked_mul(all)?;
        let are_whole = all >= channels && (channels == all || all.is_multiple_of(channels));
        are_whole.then_some(Windows { pixel: all, ..self })
    }

    /// Number of channel groups.
    pub(crate) fn groups(&self) -> usize {
        self.pixel.checked_div(self.input[2]).unwrap_or(1)
    }

    /// Treats images of one column as images of one row. The memory layout is the same, and loops
    /// over a row become long.
    pub(crate) fn along_rows(mut self) -> Self {
        let [tall, wide, _] = self.input;
        let is_one = [wide, self.output[1], self.axes[1].kernel()] == [1; 3];
        if tall > 1 && is_one && self.axes[1].padding() == 0 {
            self.input.swap(0, 1);
            self.output.swap(0, 1);
            self.axes.swap(0, 1);
            self.first.swap(0, 1);
        }
        self
    }

    /// Number of values of a window.
    pub(crate) fn window_len(&self) -> usize {
        // Called for each window, so it avoids `map` on arrays: see `vnni.rs`.
        let [tall, wide] = &self.axes;
        tall.kernel() * wide.kernel() * self.input[2]
    }

    /// Whether windows and pixels are the same: 1×1 kernel, stride 1, no padding.
    pub(crate) fn is_pointwise(&self) -> bool {
        let [height, width, _] = self.input;
        self.axes.iter().all(|axis| *axis == Window::ONE) && self.output == [height, width]
    }

    /// Stride between images.
    pub(crate) fn image(&self) -> usize {
        self.input[0] * self.input[1] * self.pixel
    }

    /// Number of windows of an image.
    pub(crate) fn count(&self) -> usize {
        self.output.iter().product()
    }

    /// Height and width of the union of all windows. `None` if it is empty or exceeds the address
    /// space.
    pub(super) fn extent(&self) -> Option<[usize; 2]> {
        let extent = |dim: usize| {
            let (axis, count) = (self.axes[dim], self.output[dim]);
            let last = count.checked_sub(1)?.checked_mul(axis.stride())?;
            last.checked_add((axis.kernel() - 1).checked_mul(axis.dilation())?)?.checked_add(1)
        };
        Some([extent(0)?, extent(1)?])
    }

    /// Size of padded images. `None` unless the padded image is smaller than all windows stored
    /// separately, and the kernel rows of a window are contiguous runs of whole steps.
    pub(super) fn padded(&self) -> Option<Padded> {
        let (channels, [_, cols]) = (self.input[2], self.axes);
        let line = cols.kernel() * channels;
        if cols.dilation() != 1 || !line.is_multiple_of(STEP) || line == 0 {
            return None;
        }
        let size = self.extent()?;
        let len = size[0].checked_mul(size[1])?.checked_mul(channels)?;
        let separate = self.count().checked_mul(self.window_len())?;
        (len < separate).then_some(Padded { width: size[1], len: len.next_multiple_of(STEP) })
    }

    /// Writes an image with its padding, and with 128 added to each value, for instructions with an
    /// unsigned operand. `outside` is the padding value. Returns `None` if `image` or `dst` is
    /// too short.
    pub(super) fn pad(
        &self,
        image: &[i8],
        outside: i8,
        padded: Padded,
        dst: &mut [i8],
    ) -> Option<()> {
        self.pad_rows(image, outside, (0, padded.width), dst)
    }

    /// Writes rows of the padded image, of `wide` pixels each, starting with row `first`, until
    /// `dst` is full.
    pub(super) fn pad_rows(
        &self,
        image: &[i8],
        outside: i8,
        (first, wide): (usize, usize),
        dst: &mut [i8],
    ) -> Option<()> {
        let [height, width, channels] = self.input;
        let skipped = [0, 1].map(|dim| self.first[dim] * self.axes[dim].stride());
        let [above, left] = [0, 1].map(|dim| self.axes[dim].padding());
        let outside = flipped([outside])[0];
        let before = left.saturating_sub(skipped[1]).min(wide);
        let from = skipped[1].saturating_sub(left).min(width);
        let inside = (width - from).min(wide - before);
        for (row, dst) in dst.chunks_exact_mut(wide * channels).enumerate() {
            let source = (row + first + skipped[0]).checked_sub(above).filter(|row| *row < height);
            let Some(source) = source else {
                dst.fill(outside);
                continue;
            };
            let (front, rest) = dst.split_at_mut_checked(before * channels)?;
            let (middle, behind) = rest.split_at_mut_checked(inside * channels)?;
            front.fill(outside);
            behind.fill(outside);
            self.copy_pixels(image, source * width + from, middle)?;
        }
        Some(())
    }

    /// Copies pixels starting at `from` until `dst` is full, and adds 128 to each value.
    fn copy_pixels(&self, image: &[i8], from: usize, dst: &mut [i8]) -> Option<()> {
        // Windows completely in the padding may start after the last pixel.
        if dst.is_empty() {
            return Some(());
        }
        let (channels, source) = (self.input[2], image.get(from * self.pixel..)?);
        if self.pixel == channels {
            return copy_flipped::<CHUNK>(source.get(..dst.len())?, dst);
        }
        // These channel counts are whole vectors, which need no inner loop.
        match channels {
            16 => self.gather::<16>(source, dst),
            32 => self.gather::<32>(source, dst),
            64 => self.gather::<64>(source, dst),
            _ => {
                let pixels = source.chunks(self.pixel);
                for (dst, source) in dst.chunks_exact_mut(channels).zip(pixels) {
                    copy_flipped::<{ CHUNK / 2 }>(source.get(..channels)?, dst)?;
                }
                Some(())
            }
        }
    }

    /// Copies pixels of `N` channels.
    fn gather<const N: usize>(&self, source: &[i8], dst: &mut [i8]) -> Option<()> {
        for (index, dst) in dst.as_chunks_mut::<N>().0.iter_mut().enumerate() {
            *dst = flipped(*source.get(index * self.pixel..)?.first_chunk()?);
        }
        Some(())
    }

    /// Writes consecutive windows of an image, starting with window `at`, one to each slice of
    /// `dsts`, padded with zeros. `outside` is the padding value. Returns `None` if `image` or a
    /// slice is too short.
    pub(super) fn write<'a>(
        &self,
        image: &[i8],
        mut at: usize,
        outside: i8,
        dsts: impl Iterator<Item = &'a mut [i8]>,
    ) -> Option<()> {
        let mut known = None;
        for dst in dsts {
            let y = self.first[0] + at / self.output[1];
            let x = self.first[1] + at % self.output[1];
            at += 1;
            let (_, tall) = match known {
                Some((row, taps)) if row == y => (row, taps),
                _ => (y, self.axes[0].taps(y, self.input[0])),
            };
            known = Some((y, tall));
            self.write_one(image, tall, self.wide(x), outside, dst)?;
        }
        Some(())
    }

    /// Taps of the window in column `x` over the width, with a fast path for windows inside the
    /// image.
    fn wide(&self, x: usize) -> Taps {
        let axis = self.axes[1];
        let last = (axis.kernel() - 1).saturating_mul(axis.dilation());
        match x.saturating_mul(axis.stride()).checked_sub(axis.padding()) {
            Some(start) if start.saturating_add(last) < self.input[1] => {
                Taps { first: 0, count: axis.kernel(), start }
            }
            _ => axis.taps(x, self.input[1]),
        }
    }

    fn write_one(
        &self,
        image: &[i8],
        tall: Taps,
        wide: Taps,
        outside: i8,
        dst: &mut [i8],
    ) -> Option<()> {
        let [_, width, channels] = self.input;
        let [rows, cols] = self.axes;
        let line = cols.kernel() * channels;
        let inside = dst.get_mut(..self.window_len())?;
        if tall.count < rows.kernel() || wide.count < cols.kernel() {
            inside.fill(outside);
        }
        for row in 0..tall.count {
            let from = (tall.start + row * rows.dilation()) * width + wide.start;
            let to = (tall.first + row) * line + wide.first * channels;
            if cols.dilation() == 1 && self.pixel == channels {
                let (source, quantized) = (image.get(from * channels..)?, wide.count * channels);
                let dst = dst.get_mut(to..)?;
                if wide.count == cols.kernel() {
                    copy(source, dst, quantized)?;
                } else {
                    dst.get_mut(..quantized)?.copy_from_slice(source.get(..quantized)?);
                }
                continue;
            }
            for col in 0..wide.count {
                let from = (from + col * cols.dilation()) * self.pixel;
                let source = image.get(from..)?.get(..channels)?;
                let to = to + col * channels;
                dst.get_mut(to..)?.get_mut(..channels)?.copy_from_slice(source);
            }
        }
        if tall.first + tall.count < rows.kernel() && tall.count > 0 {
            let end = (tall.first + tall.count) * line;
            dst.get_mut(end..self.window_len())?.fill(outside);
        }
        let behind = dst.get_mut(self.window_len()..)?;
        if !behind.is_empty() {
            behind.fill(0);
        }
        Some(())
    }
}

/// Size of an image with its padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padded {
    width: usize,
    /// Bytes, padded to whole steps.
    pub(super) len: usize,
}

#[cfg(target_arch = "x86_64")]
impl Padded {
    /// Stride of the kernel rows of a window.
    pub(super) fn line_stride(&self, windows: &Windows) -> usize {
        windows.axes[0].dilation() * self.width * windows.input[2]
    }
}

/// Iterator over the offsets of windows of padded images.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// Offsets of the current window, of its line of windows and of its image.
    start: usize,
    line: usize,
    image: usize,
    /// Remaining windows of the line, and remaining lines of the image, including the current ones.
    left: [usize; 2],
    /// Number of windows of a line, and number of lines of an image.
    counts: [usize; 2],
    /// Strides of windows, lines and images.
    steps: [usize; 3],
}

#[cfg(target_arch = "x86_64")]
impl Cursor {
    /// Creates a cursor at window `at`.
    pub(super) fn new(windows: &Windows, padded: Padded, at: usize) -> Self {
        let counts = [windows.output[1].max(1), windows.output[0].max(1)];
        let [rows, cols] = windows.axes;
        let (pixel, line) = (windows.input[2], padded.width * windows.input[2]);
        let steps = [cols.stride() * pixel, rows.stride() * line, padded.len];
        let (line, col) = (at / counts[0], at % counts[0]);
        let (image, row) = (line / counts[1], line % counts[1]);
        let image = image * steps[2];
        let line = image + row * steps[1];
        let left = [counts[0] - col, counts[1] - row];
        Cursor { start: line + col * steps[0], line, image, left, counts, steps }
    }

    /// Creates a cursor over rows with a constant stride, starting at `start`.
    pub(super) fn of_rows(start: usize, stride: usize) -> Self {
        let (left, counts) = ([usize::MAX; 2], [usize::MAX; 2]);
        Cursor { start, line: start, image: start, left, counts, steps: [stride, 0, 0] }
    }

    /// Offset of the window.
    #[inline(always)]
    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// Moves to the next window.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.left[0] -= 1;
        if self.left[0] > 0 {
            self.start += self.steps[0];
            return;
        }
        self.left = [self.counts[0], self.left[1] - 1];
        self.line += self.steps[1];
        if self.left[1] == 0 {
            self.left[1] = self.counts[1];
            self.image += self.steps[2];
            self.line = self.image;
        }
        self.start = self.line;
    }
}

/// Number of bytes that are copied at once.
const CHUNK: usize = 32;
/// Minimum number of bytes for which a call of `memcpy` pays off.
const MEMCPY_BYTES: usize = 512;

/// Adds 128 by flipping the sign bit.
#[inline(always)]
fn flipped<const N: usize>(quantized: [i8; N]) -> [i8; N] {
    let mut all = quantized;
    let mut at = 0;
    // Counted: `map` on arrays is a call without link-time optimization.
    while at < N {
        all[at] ^= i8::MIN;
        at += 1;
    }
    all
}

/// Copies values in blocks of `N`, with 128 added.
fn copy_flipped<const N: usize>(source: &[i8], dst: &mut [i8]) -> Option<()> {
    let ((chunks, rest), (dsts, left)) = (source.as_chunks::<N>(), dst.as_chunks_mut::<N>());
    for at in 0..dsts.len().min(chunks.len()) {
        dsts[at] = flipped(chunks[at]);
    }
    for at in 0..left.len().min(rest.len()) {
        left[at] = rest[at] ^ i8::MIN;
    }
    Some(())
}

/// Copies `count` values, and possibly some of the following ones, which the caller overwrites
/// later.
#[inline(always)]
fn copy(source: &[i8], dst: &mut [i8], count: usize) -> Option<()> {
    const SMALL_CHUNK: usize = CHUNK / 2;
    if count <= SMALL_CHUNK
        && let (Some(source), Some(dst)) =
            (source.first_chunk::<SMALL_CHUNK>(), dst.first_chunk_mut::<SMALL_CHUNK>())
    {
        *dst = *source;
        return Some(());
    }
    let whole = count.next_multiple_of(CHUNK);
    if count <= MEMCPY_BYTES
        && let (Some(source), Some(dst)) = (source.get(..whole), dst.get_mut(..whole))
    {
        let source = source.as_chunks::<CHUNK>().0;
        for (dst, source) in dst.as_chunks_mut::<CHUNK>().0.iter_mut().zip(source) {
            *dst = *source;
        }
        return Some(());
    }
    dst.get_mut(..count)?.copy_from_slice(source.get(..count)?);
    Some(())
}
