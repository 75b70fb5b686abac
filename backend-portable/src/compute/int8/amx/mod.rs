//! AMX kernels: multiplication of tiles of rows with panels of weights.
//!
//! A *step* is a group of [`STEP`] consecutive k values of a row or column. A step of a panel is a
//! row of an AMX weight tile, so all instruction sets share one weight layout. If the steps of a
//! row are not a multiple of the steps of a tile, the last tile overlaps the previous one, and a
//! copy of its weights has zeros in the overlap.
//!
//! The rows of a tile have a constant stride, and so do the windows of one line (row of pixels) of
//! an image. If windows advance by one pixel, the stride also continues from one line to the next,
//! across invalid windows, whose sums are ignored.

#[cfg(test)]
mod tests;
mod tiles;

use super::matmul::{Finish, Part};
use super::rows::Floats;
use super::vnni::{Dequantizer, Requantizer};
use super::windows::Cursor;
use super::{LANES, Requantize, STEP};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::simd::Dots;
use crate::compute::split::Tile;
use core::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_load_epi32, _mm512_loadu_epi32, _mm512_setzero_si512,
    _mm512_slli_epi32,
};
use core::ops::Range;
pub(super) use tiles::Sums;
use tiles::{Sources, Tiles, Walk};

/// Number of rows of an AMX tile.
const HEIGHT: usize = 16;
/// Number of steps (groups of four values) in a row of an AMX tile.
const STEPS: usize = 16;
/// Rows of two tiles.
const ROWS: usize = 2 * HEIGHT;
/// Number of panels that are processed while the rows are in the cache.
const CACHED_PANELS: usize = 8;
/// Minimum work, as steps of all rows times panels. Below it, vector kernels finish before the
/// tiles would be configured.
const MIN_WORK: usize = 512;

/// Division of the k dim into AMX tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct KTiling {
    /// Number of lines (contiguous runs) of a row, and their length in steps.
    lines: usize,
    line: usize,
    /// Steps of a tile.
    steps: usize,
}

impl KTiling {
    /// Returns the tiling for `rows` rows of `steps` steps in `lines` lines, for `panels` panels.
    /// `None` if vector kernels are faster or AMX is not available. Vector kernels compute a single
    /// row, which is limited by the bandwidth of the weights.
    pub(super) fn of(
        dots: Dots,
        rows: usize,
        [steps, panels]: [usize; 2],
        lines: usize,
    ) -> Option<Self> {
        let line = steps.checked_div(lines).filter(|line| *line > 0)?;
        let work = rows.saturating_mul(steps).saturating_mul(panels);
        if dots.has_tiles() && rows > 1 && work >= MIN_WORK {
            KTiling::cut(line, lines)
        } else {
            None
        }
    }

    /// Returns the tiling of rows that consist of `lines` lines of `line` steps.
    fn cut(line: usize, lines: usize) -> Option<Self> {
        let fewest = line.div_ceil(STEPS);
        // Only a single line may end with a partial tile.
        let count = match lines {
            1 => fewest,
            _ => (fewest..=fewest + fewest / 2).find(|count| line.is_multiple_of(*count))?,
        };
        Some(KTiling { lines, line, steps: line.div_ceil(count) })
    }

    /// Returns the number of whole tiles of a line, and the steps by which an additional last tile
    /// overlaps the previous one.
    fn tiles(&self) -> (usize, Option<usize>) {
        let beside = self.line % self.steps;
        (self.line / self.steps, (beside > 0).then(|| self.steps - beside))
    }
}

/// Destination of the results for some rows and panels, and the location of their sums.
pub(super) struct Corner<'a, T> {
    /// Address of the first result, and row stride.
    to: *mut T,
    row_stride: usize,
    cols: usize,
    /// Offset of the sums of each row in [`Sums`].
    slots: &'a [u16],
}

impl<T> Corner<'_, T> {
    /// Iterates over the rows: addresses of their sums and of their results.
    ///
    /// # Safety
    /// Each slot is a valid offset into `sums`.
    unsafe fn rows(&self, sums: &Sums) -> impl Iterator<Item = (*const i32, *mut T)> {
        let all = sums.0.as_ptr().cast::<i32>();
        self.slots.iter().enumerate().map(move |(row, slot)| {
            (all.wrapping_add(usize::from(*slot)), self.to.wrapping_add(row * self.row_stride))
        })
    }
}

/// One or two tiles of rows.
#[derive(Default)]
struct Block {
    /// Offset of each tile's data.
    starts: [usize; 2],
    tiles: usize,
    /// Offset of the sums of each row in [`Sums`].
    slots: [u16; ROWS],
    rows: usize,
}

/// Weights of the last, overlapping tile of each panel.
#[repr(align(64))]
struct LastTiles([[i8; STEPS * STEP * LANES]; CACHED_PANELS]);

impl LastTiles {
    /// Copies the weights of panels of `panel` bytes from step `from` on. In each copy, `shared`
    /// steps of zeros precede them.
    fn of(weights: &[i8], panel: usize, from: usize, shared: usize) -> Result<Self, ShapeMismatch> {
        let mut last = LastTiles([[0; STEPS * STEP * LANES]; CACHED_PANELS]);
        for (last, weights) in last.0.iter_mut().zip(weights.chunks_exact(panel)) {
            let rest = weights.get(from * STEP * LANES..).ok_or(ShapeMismatch)?;
            let offset = last.get_mut(shared * STEP * LANES..).ok_or(ShapeMismatch)?;
            offset.get_mut(..rest.len()).ok_or(ShapeMismatch)?.copy_from_slice(rest);
        }
        Ok(last)
    }
}

/// Memory layout of the rows of the left operand.
struct RowLayout {
    /// Strides of rows, and of the lines of a row.
    row_stride: usize,
    line_stride: usize,
    /// Largest offset at which a tile may start.
    last: usize,
    /// Number of rows of a tile.
    height: usize,
}

impl RowLayout {
    /// Returns the layout of rows in `quantized` bytes. If `is_regular`, all rows start at
    /// multiples of `row_stride`.
    fn of(
        quantized: usize,
        depth: KTiling,
        [row_stride, line_stride]: [usize; 2],
        is_regular: bool,
    ) -> Option<Self> {
        let before = (depth.lines - 1).checked_mul(line_stride)?;
        let beyond = quantized.checked_sub(before.checked_add(depth.line * STEP)?)?;
        // Limited so that the data has all rows of a tile wherever the tile starts.
        let height = beyond.checked_div(row_stride)?.saturating_add(usize::from(is_regular));
        let height = height.clamp(1, HEIGHT);
        Some(RowLayout {
            row_stride,
            line_stride,
            last: beyond - (height - 1) * row_stride,
            height,
        })
    }

    /// Returns the next block, of at most `left` rows, and advances the cursor past it.
    fn block(&self, cursor: &mut Cursor, mut left: usize) -> Option<Block> {
        let mut block = Block::default();
        while left > 0 && block.tiles < 2 {
            let first = cursor.start();
            // Near the end of the data, the tile starts at earlier rows, so that it stays inside.
            let before = first.saturating_sub(self.last).div_ceil(self.row_stride);
            let start =
                first.checked_sub(before * self.row_stride).filter(|_| before < self.height)?;
            let mut slot = before;
            loop {
                // Offset of the sums of the first panel; those of the second follow.
                let offset = (block.tiles * 2 * HEIGHT + slot) * LANES;
                *block.slots.get_mut(block.rows)? = offset as u16;
                block.rows += 1;
                left -= 1;
                if left == 0 {
                    break;
                }
                cursor.advance();
                let ahead = cursor.start().checked_sub(start)?;
                slot = match ahead == (slot + 1) * self.row_stride {
                    true => slot + 1,
                    false if ahead.is_multiple_of(self.row_stride) => ahead / self.row_stride,
                    false => HEIGHT,
                };
                if slot >= self.height {
                    break;
                }
            }
            *block.starts.get_mut(block.tiles)? = start;
            block.tiles += 1;
        }
        Some(block)
    }
}

impl<F: Finish> Part<'_, F> {
    /// Computes `cols` columns of all rows of a part with AMX.
    pub(super) fn by_tiles(
        &self,
        tile: &mut Tile<'_, F::Out>,
        depth: KTiling,
        cols: Range<usize>,
    ) -> Result<(), ShapeMismatch> {
        let own = tile.rows();
        let first = own.start.checked_sub(self.base).ok_or(ShapeMismatch)?;
        let (row_stride, line_stride, cursor) = match self.grid {
            None => {
                let start = first.checked_mul(self.stride).ok_or(ShapeMismatch)?;
                (self.stride, 0, Cursor::of_rows(start, self.stride))
            }
            Some((windows, padded)) => {
                let row_stride = windows.axes[1].stride() * windows.input[2];
                (row_stride, padded.line_stride(windows), Cursor::new(windows, padded, own.start))
            }
        };
        let layout = RowLayout::of(
            self.quantized.len(),
            depth,
            [row_stride, line_stride],
            self.grid.is_none(),
        );
        let layout = layout.ok_or(ShapeMismatch)?;
        // SAFETY: `KTiling::of` checked that AMX is available, and a thread runs one GEMM at a
        // time.
        let tiles = unsafe { Tiles::new(layout.height, depth.steps) };
        let mut sums = Sums([[[0; LANES]; HEIGHT]; 4]);
        for at in cols.clone().step_by(CACHED_PANELS * LANES) {
            let cols = at..cols.end.min(at + CACHED_PANELS * LANES);
            self.panels(tile, &layout, depth, (&tiles, &mut sums), cursor, cols)?;
        }
        Ok(())
    }

    /// Computes the columns of some panels.
    fn panels(
        &self,
        tile: &mut Tile<'_, F::Out>,
        layout: &RowLayout,
        depth: KTiling,
        (tiles, sums): (&Tiles, &mut Sums),
        mut cursor: Cursor,
        cols: Range<usize>,
    ) -> Result<(), ShapeMismatch> {
        let (panel, step) = (self.right.panel(), STEP * LANES);
        let weights =
            self.right.quantized.get(cols.start / LANES * panel..).ok_or(ShapeMismatch)?;
        let weights = weights.get(..cols.len().div_ceil(LANES) * panel).ok_or(ShapeMismatch)?;
        let (count, shared) = depth.tiles();
        let last = match shared {
            Some(shared) => Some(LastTiles::of(weights, panel, count * depth.steps, shared)?),
            None => None,
        };
        let along = depth.steps * STEP;
        let skip = if depth.lines == 1 {
            0
        } else {
            layout.line_stride as isize - (count * along) as isize
        };
        let back = -((shared.unwrap_or(0) * STEP) as isize);
        let own = tile.rows();
        let mut row = own.start;
        while row < own.end {
            let block = layout.block(&mut cursor, own.end - row).ok_or(ShapeMismatch)?;
            let a = block.starts.map(|start| self.quantized.as_ptr().wrapping_add(start));
            for (pair, weights) in weights.chunks(2 * panel).enumerate() {
                let at = cols.start + pair * 2 * LANES;
                let width = (cols.end - at).min(2 * LANES);
                let b = [weights.as_ptr(), weights.as_ptr().wrapping_add(panel)];
                let last = [2 * pair, 2 * pair + 1].map(|at| {
                    let last = last.as_ref().and_then(|last| last.0.get(at));
                    last.map_or(core::ptr::null(), |last| last.as_ptr())
                });
                let walk = Walk {
                    lines: depth.lines,
                    tiles: count,
                    along,
                    skip,
                    down: depth.steps * step,
                    back,
                    last,
                };
                let from = at - self.first;
                let corner = tile.corner(row..row + block.rows, from..from + width);
                let (to, row_stride) = corner.ok_or(ShapeMismatch)?;
                let slots = block.slots.get(..block.rows).ok_or(ShapeMismatch)?;
                let corner = Corner { to, row_stride, cols: width, slots };
                let sources = Sources { a, row_stride: layout.row_stride, b, walk };
                // SAFETY: each tile starts where the data has all its rows. The weights are those
                // of one or two panels, whose last tiles were copied above. `sums` has the block's
                // slots, the tile covers the corner, and `fits` was checked.
                unsafe {
                    let both = match (block.tiles, width <= LANES, self.grid.is_some()) {
                        (1, true, false) => Self::pair::<1, 1, false>,
                        (1, false, false) => Self::pair::<1, 2, false>,
                        (_, true, false) => Self::pair::<2, 1, false>,
                        (_, false, false) => Self::pair::<2, 2, false>,
                        // [`pad`](super::left::Grid::pad) added 128 to the values.
                        (1, true, true) => Self::pair::<1, 1, true>,
                        (1, false, true) => Self::pair::<1, 2, true>,
                        (_, true, true) => Self::pair::<2, 1, true>,
                        (_, false, true) => Self::pair::<2, 2, true>,
                    };
                    both(self, tiles, &sources, sums, [row, at], &corner);
                }
            }
            row += block.rows;
        }
        Ok(())
    }

    /// Computes the results of `M` tiles of rows and `V` panels.
    ///
    /// # Safety
    /// As for [`tiles::multiply`] and [`Finish::amx`].
    unsafe fn pair<const M: usize, const V: usize, const FLIPPED: bool>(
        &self,
        tiles: &Tiles,
        sources: &Sources,
        sums: &mut Sums,
        at: [usize; 2],
        corner: &Corner<'_, F::Out>,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            tiles::multiply::<M, V, FLIPPED>(tiles, sources, sums);
            self.finish.amx::<V, FLIPPED>(sums, self.right.sums, at, corner);
        }
    }
}

/// Requantizes the sums of `V` panels starting at column `first`.
///
/// # Safety
/// As for [`Finish::amx`]. `weights` has an element for each column.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn requantized_tile<const V: usize, const FLIPPED: bool>(
    columns: &Requantize<'_>,
    sums: &Sums,
    weights: &[i32],
    first: usize,
    corner: &Corner<'_, i8>,
) {
    let mut start = [_mm512_setzero_si512(); V];
    for (v, start) in start.iter_mut().enumerate() {
        let at = first + v * LANES;
        // SAFETY: guaranteed by the caller.
        unsafe {
            *start = _mm512_loadu_epi32(columns.start.as_ptr().add(at));
            if !FLIPPED {
                // `start` assumes left values with 128 added.
                let weights = _mm512_loadu_epi32(weights.as_ptr().add(at));
                *start = _mm512_add_epi32(*start, _mm512_slli_epi32::<7>(weights));
            }
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        let quantized = Requantizer::<V>::of(columns, first, corner.cols);
        for (sums, to) in corner.rows(sums) {
            quantized.write(&added(sums, start), to);
        }
    }
}

/// Dequantizes the sums of `V` panels starting at a row and column.
///
/// # Safety
/// As for [`Finish::amx`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn dequantized_tile<const V: usize, const FLIPPED: bool>(
    finish: &Floats<'_>,
    sums: &Sums,
    [row, first]: [usize; 2],
    corner: &Corner<'_, f32>,
) {
    let input_offset = if FLIPPED { 128 } else { 0 };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let dequantizer = Dequantizer::<V>::of(finish, first, corner.cols);
        for (at, (sums, to)) in corner.rows(sums).enumerate() {
            let start = dequantizer.start(finish.rows.zeros[row + at] + input_offset);
            dequantizer.write(&added(sums, start), finish.rows.scales[row + at], to);
        }
    }
}

/// Returns the sums of a row for `V` panels, added to `start`.
///
/// # Safety
/// `sums` points to the sums of a row in a [`Sums`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn added<const V: usize>(sums: *const i32, start: [__m512i; V]) -> [__m512i; V] {
    let mut all = start;
    for (v, all) in all.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller; the sums of each panel are aligned, since `Sums` is.
        *all = _mm512_add_epi32(*all, unsafe { _mm512_load_epi32(sums.add(v * HEIGHT * LANES)) });
    }
    all
}
