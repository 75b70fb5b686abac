//! Depthwise convolution, channels last: a vector is a run of channels. The weights have layout
//! `[block of channels][tap][LANES]`, padded with zeros.
//!
//! A tile is a few neighbouring pixels, computed over all their channels before the next tile. That
//! accesses memory sequentially, and loads the weights and the overlap of the windows once. Taps
//! outside the image are clipped ahead of the loops, whole rows first, and columns for pixels at
//! the borders, so the loops have no branches.

use super::super::{Conv, Finish};
use crate::compute::simd::{Simd, Vectorized};
use crate::compute::split::Parts;
use core::ops::Range;

/// Number of pixels of a tile.
const TILE_PIXELS: usize = 4;

/// A job: some blocks of channels, for a range of output rows of one sample.
pub(super) struct Band<'a> {
    pub(super) conv: &'a Conv,
    /// Image of the sample.
    pub(super) image: &'a [f32],
    pub(super) packed: &'a [f32],
    pub(super) finish: &'a Finish<'a>,
    /// Rows of the sample's output.
    pub(super) rows: Range<usize>,
    pub(super) channels: Range<usize>,
    /// The whole output, and the offset of the sample in it.
    pub(super) output: &'a Parts<'a, f32>,
    pub(super) start: usize,
}

impl Vectorized for Band<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for oy in self.rows.clone() {
            self.row(s, oy);
        }
    }
}

impl Band<'_> {
    #[inline(always)]
    fn row<S: Simd>(&self, s: S, oy: usize) {
        let [_, y, x] = self.conv.axes;
        let all = self.conv.params().out_channels;
        let (c, channels) = (self.channels.start, self.channels.len());
        let rows = if x.input == 0 { 0..0 } else { y.taps(oy) };
        let first_row = y.at(oy, rows.start).unwrap_or(0);
        let step = y.step as usize;
        // Bounds check: the taps are clipped to the image, and the weights are padded to whole
        // blocks.
        let image = self.image.get(first_row * x.input * all + c..).unwrap_or(&[]);
        if let Some(more) = rows.len().checked_sub(1) {
            assert!(image.len() >= ((more * step + 1) * x.input - 1) * all + channels);
        }
        let block = self.conv.taps() * S::LANES;
        let blocks = c / S::LANES..(c + channels).div_ceil(S::LANES);
        let weights = &self.packed[blocks.start * block..blocks.end * block];
        let line = Line {
            image: image.as_ptr(),
            weights: weights[(rows.start * x.kernel * S::LANES).min(block)..].as_ptr(),
            bias: self.finish.bias.map_or(core::ptr::null(), |bias| bias[c..][..channels].as_ptr()),
            finish: self.finish,
            out: self
                .output
                .address(self.start + oy * x.output * all + c, (x.output - 1) * all + channels),
            channels,
            rows: rows.len(),
            image_row: step * x.input * all,
            weights_row: x.kernel * S::LANES,
            weights_block: block,
            tap: x.step as usize * all,
            stride: x.stride as usize * all,
            pixel: all,
        };
        let whole = x.whole();
        let (from, to) = (whole.start, whole.end);
        // SAFETY: all windows are inside the image for these taps, as checked, and no other job has
        // these channels of this row.
        unsafe {
            for ox in (0..from).chain(to..x.output) {
                let taps = x.taps(ox);
                let at = (x.at(ox, taps.start).unwrap_or(0), ox, taps.start);
                match (line.rows, taps.len()) {
                    (3, 2) if S::UNROLLED => line.pixels::<S, 1, 3, 2, 1>(s, at, 2),
                    (_, count) => line.pixels::<S, 1, 0, 0, 1>(s, at, count),
                }
            }
            let inside = |ox| (x.at(ox, 0).unwrap_or(0), ox, 0);
            let tiles = from..from + (to - from) / TILE_PIXELS * TILE_PIXELS;
            let ends = tiles.end..to;
            macro_rules! tiles {
                ($rows:literal, $taps:literal, $stride:literal) => {{
                    for ox in tiles.step_by(TILE_PIXELS) {
                        let at = inside(ox);
                        line.pixels::<S, TILE_PIXELS, $rows, $taps, $stride>(s, at, x.kernel);
                    }
                    for ox in ends {
                        line.pixels::<S, 1, $rows, $taps, 1>(s, inside(ox), x.kernel);
                    }
                }};
            }
            match (line.rows, x.kernel, x.stride, x.step) {
                (3, 3, 1, 1) if S::UNROLLED => tiles!(3, 3, 1),
                (3, 3, 2, 1) if S::UNROLLED => tiles!(3, 3, 2),
                (_, 3, 1, 1) => tiles!(0, 3, 1),
                (_, 3, 2, 1) => tiles!(0, 3, 2),
                (_, 5, 1, 1) => tiles!(0, 5, 1),
                (_, 5, 2, 1) => tiles!(0, 5, 2),
                _ => tiles!(0, 0, 0),
            }
        }
    }
}

/// An output row and its input windows. Addresses are those of the first column; strides are in
/// elements.
struct Line<'a> {
    /// The first kernel row inside the image, and its weights.
    image: *const f32,
    weights: *const f32,
    /// May be null.
    bias: *const f32,
    finish: &'a Finish<'a>,
    out: *mut f32,
    channels: usize,
    /// Number of kernel rows inside the image.
    rows: usize,
    image_row: usize,
    weights_row: usize,
    weights_block: usize,
    /// Strides between the taps of a kernel row, the windows of neighbouring pixels, and output
    /// pixels.
    tap: usize,
    stride: usize,
    pixel: usize,
}

impl Line<'_> {
    /// Computes `T` neighbouring pixels whose windows have the same taps inside the image. The
    /// window of the first pixel starts in column `ix`, with tap `first` of `taps`.
    ///
    /// `ROWS` and `TAPS` are the numbers of kernel rows and of taps in each row if constant,
    /// otherwise 0. More than one pixel with constant `TAPS` requires `STRIDE`, and windows without
    /// dilation.
    ///
    /// # Safety
    /// The given taps of these windows lie inside the image, weights exist for them, and nothing
    /// else accesses these output pixels.
    #[inline(always)]
    unsafe fn pixels<
        S: Simd,
        const T: usize,
        const ROWS: usize,
        const TAPS: usize,
        const STRIDE: usize,
    >(
        &self,
        s: S,
        (ix, ox, first): (usize, usize, usize),
        taps: usize,
    ) {
        let mut at = Position {
            image: self.image.wrapping_add(ix * self.pixel),
            weights: self.weights.wrapping_add(first * S::LANES),
            bias: self.bias,
            out: self.out.wrapping_add(ox * self.pixel),
            taps,
            lanes: S::LANES,
        };
        let mut left = self.channels;
        // SAFETY: guaranteed by the caller; a tail accesses only the remaining channels.
        unsafe {
            while left >= S::LANES {
                self.vector::<S, T, ROWS, TAPS, STRIDE, false>(s, &at);
                at.image = at.image.wrapping_add(S::LANES);
                at.weights = at.weights.wrapping_add(self.weights_block);
                if !at.bias.is_null() {
                    at.bias = at.bias.wrapping_add(S::LANES);
                }
                at.out = at.out.wrapping_add(S::LANES);
                left -= S::LANES;
            }
            if left > 0 {
                at.lanes = left;
                self.vector::<S, T, ROWS, TAPS, STRIDE, true>(s, &at);
            }
        }
    }

    /// Computes one vector of channels; with `TAIL` it has `at.lanes` channels.
    ///
    /// # Safety
    /// As for [`Line::pixels`].
    #[inline(always)]
    unsafe fn vector<
        S: Simd,
        const T: usize,
        const ROWS: usize,
        const TAPS: usize,
        const STRIDE: usize,
        const TAIL: bool,
    >(
        &self,
        s: S,
        at: &Position,
    ) {
        let load = |p: *const f32| {
            // SAFETY: only called with addresses that the caller guarantees for this number of
            // channels.
            unsafe { if TAIL { s.load_first(p, at.lanes) } else { s.load(p) } }
        };
        let weight = |row: usize, tap: usize| {
            // SAFETY: blocks of weights are whole vectors, one for each tap.
            unsafe { s.load(at.weights.wrapping_add(row * self.weights_row + tap * S::LANES)) }
        };
        if T > 1 {
            // Stores that miss the cache delay loads whose addresses alias modulo 4 KiB.
            for t in 0..T {
                s.prefetch_write(at.out.wrapping_add((T + t) * self.pixel));
            }
        }
        let mut acc = [s.splat(0.0); T];
        if !at.bias.is_null() {
            acc = [load(at.bias); T];
        }
        let rows = if ROWS > 0 { ROWS } else { self.rows };
        for row in 0..rows {
            let image = at.image.wrapping_add(row * self.image_row);
            if TAPS > 0 {
                for i in 0..(T - 1) * STRIDE + TAPS {
                    if T > 1 && ROWS > 0 && row + STRIDE >= ROWS && i < T * STRIDE {
                        // The other rows were loaded for the previous output row.
                        let next = (T * STRIDE + TAPS - STRIDE + i) * self.tap;
                        s.prefetch(image.wrapping_add(next));
                    }
                    let value = load(image.wrapping_add(i * self.tap));
                    for t in 0..T {
                        if i >= t * STRIDE && i - t * STRIDE < TAPS {
                            acc[t] = s.mul_add(value, weight(row, i - t * STRIDE), acc[t]);
                        }
                    }
                }
            } else {
                for k in 0..at.taps {
                    let weight = weight(row, k);
                    let tap = image.wrapping_add(k * self.tap);
                    for t in 0..T {
                        acc[t] = s.mul_add(load(tap.wrapping_add(t * self.stride)), weight, acc[t]);
                    }
                }
            }
        }
        let (lo, hi) = (s.splat(self.finish.min), s.splat(self.finish.max));
        for t in 0..T {
            let p = at.out.wrapping_add(t * self.pixel);
            if self.finish.beta != 0.0 {
                acc[t] = s.mul_add(s.splat(self.finish.beta), load(p), acc[t]);
            }
            let value = s.clamp(acc[t], lo, hi);
            // SAFETY: the caller guarantees these channels of the output.
            unsafe { if TAIL { s.store_first(p, at.lanes, value) } else { s.store(p, value) } };
        }
    }
}

/// Position of the loop over channels: a vector, or the remaining channels.
struct Position {
    image: *const f32,
    weights: *const f32,
    bias: *const f32,
    out: *mut f32,
    taps: usize,
    lanes: usize,
}
