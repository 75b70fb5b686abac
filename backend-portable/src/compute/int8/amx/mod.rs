//! AMX: products of tiles of rows and panels of weights.
//!
//! A step of a panel is a row of a tile of weights already, so that weights lie as for all other
//! instructions. Where steps are no multiple of those of a tile, the last tile of a row begins
//! before the one before it ends; a copy of its weights is zero there.
//!
//! A tile of rows has what is as far apart in each case. Windows of a picture are, within a line of
//! them; and where they move by one pixel, so are those that lie partly in one line and partly in
//! the next, whose sums nobody looks at.

#[cfg(test)]
mod tests;
mod tiles;

use super::product::{Finish, Part};
use super::rows::Floats;
use super::vnni::{Codes, Numbers};
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

/// Rows of a tile.
const HEIGHT: usize = 16;
/// Steps of a tile.
const STEPS: usize = 16;
/// Rows of two tiles.
const ROWS: usize = 2 * HEIGHT;
/// Panels that rows pass by while they are near.
const NEAR_PANELS: usize = 8;
/// Steps of all rows by panels, of which fewer are left to vectors: they are done before tiles are
/// configured.
const FEW: usize = 512;

/// How rows are cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// Lines of a row, and steps of each.
    lines: usize,
    line: usize,
    /// Steps of a tile.
    steps: usize,
}

impl Depth {
    /// Of so many rows of so many steps, in lines, by so many panels. `None` where vectors do
    /// better, or there are no tiles. What a single row takes is weights that come from memory.
    pub(super) fn of(
        dots: Dots,
        rows: usize,
        [steps, panels]: [usize; 2],
        lines: usize,
    ) -> Option<Self> {
        let line = steps.checked_div(lines).filter(|line| *line > 0)?;
        let work = rows.saturating_mul(steps).saturating_mul(panels);
        if dots.has_tiles() && rows > 1 && work >= FEW { Depth::cut(line, lines) } else { None }
    }

    /// Of rows of so many lines of so many steps.
    fn cut(line: usize, lines: usize) -> Option<Self> {
        let fewest = line.div_ceil(STEPS);
        // Only the last line may have a tile that is not whole.
        let count = match lines {
            1 => fewest,
            _ => (fewest..=fewest + fewest / 2).find(|count| line.is_multiple_of(*count))?,
        };
        Some(Depth { lines, line, steps: line.div_ceil(count) })
    }

    /// Tiles of a line, and how many steps of one more are in the one before.
    fn tiles(&self) -> (usize, Option<usize>) {
        let beside = self.line % self.steps;
        (self.line / self.steps, (beside > 0).then(|| self.steps - beside))
    }
}

/// Where the results of some rows and panels go.
pub(super) struct Corner<'a, T> {
    /// The first one, and from a row to the next.
    to: *mut T,
    apart: usize,
    cols: usize,
    /// Where the sums of each row begin.
    slots: &'a [u16],
}

impl<T> Corner<'_, T> {
    /// The sums of each row, and where its results go.
    ///
    /// # Safety
    /// Slots are those of rows that there are sums of.
    unsafe fn rows(&self, sums: &Sums) -> impl Iterator<Item = (*const i32, *mut T)> {
        let all = sums.0.as_ptr().cast::<i32>();
        self.slots.iter().enumerate().map(move |(row, slot)| {
            (all.wrapping_add(usize::from(*slot)), self.to.wrapping_add(row * self.apart))
        })
    }
}

/// Two tiles of rows at most.
#[derive(Default)]
struct Block {
    /// Where their codes begin.
    starts: [usize; 2],
    tiles: usize,
    /// Where the sums of each row begin.
    slots: [u16; ROWS],
    rows: usize,
}

/// The weights of the last tiles of panels.
#[repr(align(64))]
struct Last([[i8; STEPS * STEP * LANES]; NEAR_PANELS]);

impl Last {
    /// Those of panels of so many codes: what they have from a step on, behind as many zeros as are
    /// shared.
    fn of(weights: &[i8], panel: usize, from: usize, shared: usize) -> Result<Self, ShapeMismatch> {
        let mut last = Last([[0; STEPS * STEP * LANES]; NEAR_PANELS]);
        for (last, weights) in last.0.iter_mut().zip(weights.chunks_exact(panel)) {
            let rest = weights.get(from * STEP * LANES..).ok_or(ShapeMismatch)?;
            let place = last.get_mut(shared * STEP * LANES..).ok_or(ShapeMismatch)?;
            place.get_mut(..rest.len()).ok_or(ShapeMismatch)?.copy_from_slice(rest);
        }
        Ok(last)
    }
}

/// How rows lie among codes.
struct Lie {
    /// From one row to the next, and from a line of a row to the next.
    apart: usize,
    lines_apart: usize,
    /// The last place where a tile may begin.
    last: usize,
    /// Rows of a tile.
    height: usize,
}

impl Lie {
    /// Of rows among so many codes. Where they are regular, all begin at multiples of how far they
    /// are apart.
    fn of(
        codes: usize,
        depth: Depth,
        [apart, lines_apart]: [usize; 2],
        is_regular: bool,
    ) -> Option<Self> {
        let before = (depth.lines - 1).checked_mul(lines_apart)?;
        let beyond = codes.checked_sub(before.checked_add(depth.line * STEP)?)?;
        // As many as there are codes for, wherever a row begins.
        let height = beyond.checked_div(apart)?.saturating_add(usize::from(is_regular));
        let height = height.clamp(1, HEIGHT);
        Some(Lie { apart, lines_apart, last: beyond - (height - 1) * apart, height })
    }

    /// The next rows, of so many; moves on behind them.
    fn block(&self, cursor: &mut Cursor, mut left: usize) -> Option<Block> {
        let mut block = Block::default();
        while left > 0 && block.tiles < 2 {
            let first = cursor.start();
            // Where there are no codes behind, there are some before.
            let before = first.saturating_sub(self.last).div_ceil(self.apart);
            let start = first.checked_sub(before * self.apart).filter(|_| before < self.height)?;
            let mut slot = before;
            loop {
                // Of both panels, those of the first.
                let place = (block.tiles * 2 * HEIGHT + slot) * LANES;
                *block.slots.get_mut(block.rows)? = place as u16;
                block.rows += 1;
                left -= 1;
                if left == 0 {
                    break;
                }
                cursor.advance();
                let ahead = cursor.start().checked_sub(start)?;
                slot = match ahead == (slot + 1) * self.apart {
                    true => slot + 1,
                    false if ahead.is_multiple_of(self.apart) => ahead / self.apart,
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
    /// Computes some columns, for all rows of a part.
    pub(super) fn by_tiles(
        &self,
        tile: &mut Tile<'_, F::Out>,
        depth: Depth,
        cols: Range<usize>,
    ) -> Result<(), ShapeMismatch> {
        let own = tile.rows();
        let first = own.start.checked_sub(self.base).ok_or(ShapeMismatch)?;
        let (apart, lines_apart, cursor) = match self.grid {
            None => {
                let start = first.checked_mul(self.stride).ok_or(ShapeMismatch)?;
                (self.stride, 0, Cursor::of_rows(start, self.stride))
            }
            Some((windows, padded)) => {
                let apart = windows.axes[1].stride() * windows.input[2];
                (apart, padded.apart(windows), Cursor::new(windows, padded, own.start))
            }
        };
        let lie = Lie::of(self.codes.len(), depth, [apart, lines_apart], self.grid.is_none());
        let lie = lie.ok_or(ShapeMismatch)?;
        // SAFETY: tiles were asked for when the depth was, and one product after the other runs on
        // a thread.
        let tiles = unsafe { Tiles::new(lie.height, depth.steps) };
        let mut sums = Sums([[[0; LANES]; HEIGHT]; 4]);
        for at in cols.clone().step_by(NEAR_PANELS * LANES) {
            let cols = at..cols.end.min(at + NEAR_PANELS * LANES);
            self.panels(tile, &lie, depth, (&tiles, &mut sums), cursor, cols)?;
        }
        Ok(())
    }

    /// Computes the columns of some panels.
    fn panels(
        &self,
        tile: &mut Tile<'_, F::Out>,
        lie: &Lie,
        depth: Depth,
        (tiles, sums): (&Tiles, &mut Sums),
        mut cursor: Cursor,
        cols: Range<usize>,
    ) -> Result<(), ShapeMismatch> {
        let (panel, step) = (self.right.panel(), STEP * LANES);
        let weights = self.right.codes.get(cols.start / LANES * panel..).ok_or(ShapeMismatch)?;
        let weights = weights.get(..cols.len().div_ceil(LANES) * panel).ok_or(ShapeMismatch)?;
        let (count, shared) = depth.tiles();
        let last = match shared {
            Some(shared) => Some(Last::of(weights, panel, count * depth.steps, shared)?),
            None => None,
        };
        let along = depth.steps * STEP;
        let skip =
            if depth.lines == 1 { 0 } else { lie.lines_apart as isize - (count * along) as isize };
        let back = -((shared.unwrap_or(0) * STEP) as isize);
        let own = tile.rows();
        let mut row = own.start;
        while row < own.end {
            let block = lie.block(&mut cursor, own.end - row).ok_or(ShapeMismatch)?;
            let a = block.starts.map(|start| self.codes.as_ptr().wrapping_add(start));
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
                let (to, apart) = corner.ok_or(ShapeMismatch)?;
                let slots = block.slots.get(..block.rows).ok_or(ShapeMismatch)?;
                let corner = Corner { to, apart, cols: width, slots };
                let sources = Sources { a, apart: lie.apart, b, walk };
                // SAFETY: each tile begins where there are codes of all its rows behind; weights
                // are those of one panel or two, whose last tiles were copied just now. Tiles have
                // sums for the slots that the block names, the tile has the places of the corner,
                // and `fits` was asked.
                unsafe {
                    let both = match (block.tiles, width <= LANES, self.grid.is_some()) {
                        (1, true, false) => Self::pair::<1, 1, false>,
                        (1, false, false) => Self::pair::<1, 2, false>,
                        (_, true, false) => Self::pair::<2, 1, false>,
                        (_, false, false) => Self::pair::<2, 2, false>,
                        // As [`pad`](super::left::Grid::pad) wrote them.
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
    /// As [`tiles::product`], and as [`Finish::amx`].
    unsafe fn pair<const M: usize, const V: usize, const FLIPPED: bool>(
        &self,
        tiles: &Tiles,
        sources: &Sources,
        sums: &mut Sums,
        at: [usize; 2],
        corner: &Corner<'_, F::Out>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            tiles::product::<M, V, FLIPPED>(tiles, sources, sums);
            self.finish.amx::<V, FLIPPED>(sums, self.right.sums, at, corner);
        }
    }
}

/// Codes of the sums of `V` panels from column `first` on.
///
/// # Safety
/// As [`Finish::amx`]; there are as many sums of `weights` as columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn codes<const V: usize, const FLIPPED: bool>(
    columns: &Requantize<'_>,
    sums: &Sums,
    weights: &[i32],
    first: usize,
    corner: &Corner<'_, i8>,
) {
    let mut start = [_mm512_setzero_si512(); V];
    for (v, start) in start.iter_mut().enumerate() {
        let at = first + v * LANES;
        // SAFETY: the caller's promise.
        unsafe {
            *start = _mm512_loadu_epi32(columns.start.as_ptr().add(at));
            if !FLIPPED {
                // What sums start with is for codes that have 128 added.
                let weights = _mm512_loadu_epi32(weights.as_ptr().add(at));
                *start = _mm512_add_epi32(*start, _mm512_slli_epi32::<7>(weights));
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let codes = Codes::<V>::of(columns, first, corner.cols);
        for (sums, to) in corner.rows(sums) {
            codes.write(&added(sums, start), to);
        }
    }
}

/// Numbers of the sums of `V` panels from a row and a column on.
///
/// # Safety
/// As [`Finish::amx`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn floats<const V: usize, const FLIPPED: bool>(
    finish: &Floats<'_>,
    sums: &Sums,
    [row, first]: [usize; 2],
    corner: &Corner<'_, f32>,
) {
    let added_to_codes = if FLIPPED { 128 } else { 0 };
    // SAFETY: the caller's promise.
    unsafe {
        let numbers = Numbers::<V>::of(finish, first, corner.cols);
        for (at, (sums, to)) in corner.rows(sums).enumerate() {
            let start = numbers.start(finish.rows.zeros[row + at] + added_to_codes);
            numbers.write(&added(sums, start), finish.rows.scales[row + at], to);
        }
    }
}

/// The sums of a row and `V` panels, with what they start with.
///
/// # Safety
/// There are such sums.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn added<const V: usize>(sums: *const i32, start: [__m512i; V]) -> [__m512i; V] {
    let mut all = start;
    for (v, all) in all.iter_mut().enumerate() {
        // SAFETY: the caller's promise; those of a panel are aligned, as all are.
        *all = _mm512_add_epi32(*all, unsafe { _mm512_load_epi32(sums.add(v * HEIGHT * LANES)) });
    }
    all
}
