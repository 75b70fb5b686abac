//! Convolutions.

use super::{Block, CHANNEL_WORDS, Images, ROWS, UNIT, kernels, weights_len};
use crate::compiled::{Extent, Span, Window};
use crate::compute::q8::taps;
use torchlet_core::rules::window::Taps;

/// A plain convolution without groups and dilation.
#[derive(Debug)]
pub struct ConvolvePacked {
    /// Shape of the input.
    pub from: Extent,
    /// Shape of the output; the number of channels is even.
    pub to: Extent,
    /// Windows of the row and column axes, without dilation.
    pub windows: [Window; 2],
    /// Offset added to each input value (the negated zero point), between -127 and 128.
    pub offset: i32,
    /// Offset of the results.
    pub zero: i32,
    /// [`Channel`](super::Channel) of each output channel.
    pub channels: &'static [i32],
    /// Weights as in [`weight_position`](super::weight_position). Their rows are windows, of which
    /// each row is padded to [`row_len`](Self::row_len).
    pub weights: &'static [u8],
    /// Channels-last input.
    pub input: Span,
    /// Channels-last output; the same as the input for a kernel of one value, if the numbers of
    /// channels are equal.
    pub out: Span,
    /// Workspace, aligned to 4 bytes, of [`workspace_bytes`](Self::workspace_bytes).
    pub workspace: Span,
}

impl ConvolvePacked {
    /// Number of values of a row of a window: whole units.
    pub fn row_len(channels: usize, columns: usize) -> usize {
        channels.saturating_mul(columns).saturating_add(UNIT - 1) / UNIT * UNIT
    }

    /// Bytes of workspace for windows of `taps` rows and columns with `channels` channels: widened
    /// rows, and a window of int8 values unless pixels are whole units.
    pub fn workspace_bytes(channels: usize, [rows, columns]: [usize; 2]) -> usize {
        let depth = Self::row_len(channels, columns).saturating_mul(rows);
        let window = if channels.is_multiple_of(UNIT) { 0 } else { depth };
        depth.saturating_mul(ROWS * size_of::<i16>()).saturating_add(window)
    }

    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out, self.workspace];
        let Some((mut images, workspace)) = Images::new(memory, spans) else { return };
        let (from, to, [down, across]) = (self.from, self.to, &self.windows);
        let depth = down.kernel() * Self::row_len(from.channels, across.kernel());
        let units = depth / UNIT;
        let Some((wide, window)) = workspace.split_at_mut_checked(depth * ROWS) else {
            return;
        };
        let window = bytemuck::cast_slice_mut(window);
        let is_whole = weights_len(depth, to.channels) == Some(self.weights.len())
            && self.channels.len() == to.channels * CHANNEL_WORDS
            && to.channels.is_multiple_of(2);
        let pixels = images.out().len() / to.channels.max(1);
        if !is_whole || units == 0 {
            return;
        }
        let is_point = self.is_point();
        let (mut image, mut row, mut column, mut first) = (0, 0, 0, 0);
        while first < pixels {
            let count = ROWS.min(pixels - first);
            if is_point {
                let values = images.input().get(first * depth..).unwrap_or(&[]);
                let block = Block { rows: count, units, step: depth, row: 0, goes_down: true };
                kernels::widen::<ROWS>(values, block, self.offset as i16, wide);
            }
            for index in (0..count).filter(|_| !is_point) {
                let mut to_wide = Widen { wide, index, offset: self.offset as i16 };
                self.gather([image, row, column], images.input(), window, &mut to_wide);
                column += 1;
                if column == to.columns {
                    (row, column) = (row + 1, 0);
                    if row == to.rows {
                        (image, row) = (image + 1, 0);
                    }
                }
            }
            let Some(out) = images.out().get_mut(first * to.channels..) else { return };
            kernels::three_rows(self, units, wide, count, out);
            first += count;
        }
    }

    /// Whether windows are single pixels of whole units, in the order of the output.
    fn is_point(&self) -> bool {
        let is_point =
            |window: &Window| (window.kernel(), window.stride(), window.padding()) == (1, 1, 0);
        self.windows.iter().all(is_point)
            && self.from == Extent { channels: self.from.channels, ..self.to }
            && self.from.channels.is_multiple_of(UNIT)
    }

    /// Widens the window of an output pixel: zeros outside the image.
    fn gather(
        &self,
        [image, row, column]: [usize; 3],
        input: &[i8],
        window: &mut [i8],
        wide: &mut Widen<'_>,
    ) {
        let (from, [down, across]) = (self.from, &self.windows);
        let (y, x) = (taps(down, row, from.rows), taps(across, column, from.columns));
        let is_inside = x.count != 0 && y.count != 0;
        let Taps { first: above, count: rows, start: top } =
            if is_inside { y } else { Taps::default() };
        let step = from.columns * from.channels;
        let input = input.get(from.at(image, top, x.start)..).unwrap_or(&[]);
        let len = Self::row_len(from.channels, across.kernel());
        let [before, width] = [x.first, x.count].map(|taps| taps * from.channels);
        let is_wide = x.count == across.kernel();
        // Words are read across the end of a row of the window, where weights are zero, but not of
        // the input.
        if is_wide && input.len() >= rows.saturating_sub(1) * step + len && step >= len {
            wide.clear(0, above * len);
            wide.widen(input, [rows, step], above * len, len);
            wide.clear((above + rows) * len, (down.kernel() - above - rows) * len);
            return;
        }
        if from.channels.is_multiple_of(UNIT) {
            wide.clear(0, down.kernel() * len);
            for row in 0..rows {
                let input = input.get(row * step..).unwrap_or(&[]);
                wide.widen(input, [1, step.max(width)], (above + row) * len + before, width);
            }
            return;
        }
        // The offset is added to all values, so padding is its negation.
        window.fill(self.offset.wrapping_neg() as i8);
        for row in 0..rows {
            let to = (above + row) * len + before;
            let source = input.get(row * step..).and_then(|input| input.get(..width));
            if let (Some(to), Some(source)) = (window.get_mut(to..to + width), source) {
                to.iter_mut().zip(source).for_each(|(to, source)| *to = *source);
            }
        }
        wide.widen(window, [1, window.len()], 0, window.len());
    }
}

/// A widened row.
pub(super) struct Widen<'a> {
    wide: &'a mut [i16],
    index: usize,
    offset: i16,
}

impl Widen<'_> {
    /// Widens `len` values of each of `rows` rows, whole units, and writes them from value `at` on.
    #[inline(always)]
    fn widen(&mut self, values: &[i8], [rows, step]: [usize; 2], at: usize, len: usize) {
        let wide = self.wide.get_mut(at * ROWS..).unwrap_or_default();
        let block = Block { rows, units: len / UNIT, step, row: self.index, goes_down: false };
        kernels::widen::<ROWS>(values, block, self.offset, wide);
    }

    /// Zeroes `len` values, whole units, from value `at` on.
    fn clear(&mut self, at: usize, len: usize) {
        for unit in self.wide.chunks_exact_mut(UNIT * ROWS).skip(at / UNIT).take(len / UNIT) {
            for half in unit.chunks_exact_mut(2 * ROWS) {
                if let Some(pair) = half.get_mut(2 * self.index..2 * self.index + 2) {
                    pair.fill(0);
                }
            }
        }
    }
}
