//! Products of rows of codes and packed weights, cut into tiles that threads share.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::arm;
use super::pack::Packed;
#[cfg(target_arch = "x86_64")]
use super::windows::Cursor;
use super::windows::{Padded, Windows};
use super::{LANES, Requantize, STEP, plain};
#[cfg(target_arch = "x86_64")]
use super::{avx2, vnni};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::Dots;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
use crate::compute::simd::Instructions;
use crate::compute::split::{Tile, for_each_tile_of_part};

/// Most rows of a tile.
#[cfg(target_arch = "x86_64")]
pub(super) const ROWS: usize = 12;
/// Most panels of a tile.
const PANELS: usize = 4;
/// Codes of pictures that are copied with what windows see around them, at most.
const LARGE: usize = 1 << 22;
/// Codes of the left operand that stay near while panels pass by.
const NEAR: usize = 1 << 16;
/// Rows that are not worth cutting.
const EVEN: usize = 24;

/// Rows of a tile of so many panels, for which there are accumulators, where there are vectors of 16 sums.
const fn height(panels: usize) -> usize {
    match panels {
        4.. => 6,
        3 => 8,
        _ => 12,
    }
}

/// The left operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    /// Rows so far apart.
    Rows(&'a [i8], usize),
    /// Rows so far apart, behind which are zeros up to the next multiple of [`STEP`] at least.
    Filled(&'a [i8], usize),
    /// Windows over pictures that lie one after the other; around them are codes like this.
    Windows(&'a [i8], &'a Windows, i8),
}

/// Where the results of a product go: to columns of a matrix from one on.
#[derive(Debug)]
pub(crate) struct Target<'a, T> {
    /// The matrix.
    pub(crate) out: &'a mut [T],
    /// Its columns.
    pub(crate) width: usize,
    pub(crate) first: usize,
}

/// Where the results of a tile go.
#[cfg(target_arch = "x86_64")]
pub(super) struct Place<T> {
    pub(super) out: [*mut T; ROWS],
    pub(super) rows: usize,
    pub(super) cols: usize,
}

/// How the codes of a row lie, and those of weights.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// Steps of a line.
    pub(super) steps: usize,
    /// Lines of a row, and how far apart they are.
    pub(super) lines: usize,
    pub(super) apart: usize,
    /// Codes of a panel of weights.
    pub(super) panel: usize,
}

/// What becomes of sums.
///
/// # Safety
/// What [`Finish::fits`] says is what [`Finish::vnni`] relies on.
pub(super) unsafe trait Finish: Sync {
    /// What results are.
    type Out: Send;

    /// Whether there is what so many rows and columns need; there are whole panels of these.
    fn fits(&self, rows: usize, padded: usize) -> bool;

    /// Makes results of the sums of a row, from column `at` on.
    fn finish(&self, dots: Dots, row: usize, at: usize, sums: &[i32; LANES], out: &mut [Self::Out]);

    /// A tile of `M` rows and `V` panels. Codes of rows may be `FLIPPED`: have 128 added.
    ///
    /// # Safety
    /// There are the instructions. Each row of `a` has so many lines of steps, and each panel from `b` on as many steps. The place has so many rows of so
    /// many columns, which are not more than the tile's. `at` is the first row and the first column of the tile, all of which
    /// [fit](Finish::fits).
    #[cfg(target_arch = "x86_64")]
    unsafe fn vnni<const M: usize, const V: usize, const FLIPPED: bool>(
        &self,
        a: &[*const i8; ROWS],
        walk: Walk,
        b: *const i8,
        at: [usize; 2],
        place: &Place<Self::Out>,
    );
}

// SAFETY: there are whole panels of starts, scales and bias.
unsafe impl Finish for Requantize<'_> {
    type Out = i8;

    fn fits(&self, _: usize, padded: usize) -> bool {
        [self.start.len(), self.scales.len(), self.bias.len()].iter().all(|len| *len >= padded)
    }

    #[inline(always)]
    fn finish(&self, _: Dots, _: usize, at: usize, sums: &[i32; LANES], out: &mut [i8]) {
        let columns = [self.scales, self.bias].map(|all| all.get(at..).unwrap_or_default());
        let start = self.start.get(at..).unwrap_or_default();
        let columns = columns[0].iter().zip(columns[1]).zip(start);
        for ((out, sum), ((scale, bias), start)) in out.iter_mut().zip(sums).zip(columns) {
            *out = self.range.code(start.wrapping_add(*sum) as f32 * scale + bias);
        }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn vnni<const M: usize, const V: usize, const FLIPPED: bool>(
        &self,
        a: &[*const i8; ROWS],
        walk: Walk,
        b: *const i8,
        [_, at]: [usize; 2],
        place: &Place<i8>,
    ) {
        // SAFETY: the caller's promise.
        unsafe { vnni::codes::<M, V, FLIPPED>(a, walk, b, self, at, place) }
    }
}

/// How a product is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    rows: usize,
    cols: usize,
    /// Panels of a tile, but for the last one of a part.
    panels: usize,
    /// Words for the rows of a part, where they do not lie ready.
    copied: usize,
}

impl Cut {
    fn of(threads: usize, rows: usize, [k, n]: [usize; 2], in_place: bool) -> Self {
        let (steps, panels) = (k.div_ceil(STEP).max(1), n.div_ceil(LANES).max(1));
        let near = (NEAR / (steps * STEP)).max(EVEN);
        let width = panels.div_ceil(panels.div_ceil(PANELS));
        let part = match rows <= EVEN {
            true => rows.max(1),
            false => even_part(threads.max(1), rows.div_ceil(height(width)), near / height(width)),
        };
        let part = if rows <= EVEN { part } else { part * height(width) };
        let wanted = if threads > 1 { threads * 2 } else { 1 };
        let across = wanted.div_ceil(rows.div_ceil(part).max(1)).max(1);
        let cols = panels.div_ceil(width).div_ceil(across) * width * LANES;
        let copied = if in_place { 0 } else { part.saturating_mul(steps) };
        Cut { rows: part, cols, panels: width, copied }
    }
}

/// How many of some tiles a part has, at most `most` and at least two for each thread, so that threads have as many of them as they can.
fn even_part(threads: usize, tiles: usize, most: usize) -> usize {
    if threads == 1 {
        return most.clamp(1, tiles.max(1));
    }
    let fewest = tiles.div_ceil(most.max(1)).max(threads * 2).next_multiple_of(threads);
    // What the thread with most of it has.
    let load = |parts: &usize| tiles.div_ceil(*parts) * (parts / threads);
    let counts = (fewest..=fewest * 2).step_by(threads);
    tiles.div_ceil(counts.min_by_key(load).unwrap_or(fewest)).max(1)
}

impl Left<'_> {
    /// Whether rows can be read where they lie.
    fn lies_ready(&self, k: usize) -> bool {
        let are_rows = match self {
            Left::Rows(..) => true,
            Left::Filled(_, stride) => return k > 0 && k.next_multiple_of(STEP) <= *stride,
            Left::Windows(_, windows, _) => windows.are_pixels(),
        };
        are_rows && k.is_multiple_of(STEP) && k > 0
    }

    /// The codes, and the distance of rows, where they lie ready; checks that there are so many.
    fn ready(&self, rows: usize, k: usize) -> Option<(&[i8], usize)> {
        let (codes, stride) = match *self {
            Left::Rows(codes, stride) | Left::Filled(codes, stride) => (codes, stride),
            Left::Windows(codes, windows, _) => (codes, windows.pixel),
        };
        let needed = rows.checked_sub(1)?.checked_mul(stride)?.checked_add(k)?;
        (needed <= codes.len()).then_some((codes, stride))
    }

    /// How large pictures are with what windows see around them, and how many there are, where windows are read there.
    fn padded(&self, rows: usize) -> Option<(&Windows, Padded, usize)> {
        let Left::Windows(_, windows, _) = self else { return None };
        let padded = windows.padded()?;
        let count = rows.div_ceil(windows.count().max(1));
        let is_small = count.checked_mul(padded.len).is_some_and(|len| len <= LARGE);
        is_small.then_some((windows, padded, count))
    }

    /// Copies rows from one on to a place of `steps` words for each. `None` if there are not so many.
    fn copy(&self, first: usize, k: usize, steps: usize, place: &mut [i8]) -> Option<()> {
        let length = steps * STEP;
        match *self {
            Left::Rows(codes, stride) | Left::Filled(codes, stride) => {
                for (row, place) in place.chunks_exact_mut(length).enumerate() {
                    let start = (first + row).checked_mul(stride)?;
                    place.get_mut(..k)?.copy_from_slice(codes.get(start..)?.get(..k)?);
                    place.get_mut(k..)?.fill(0);
                }
            }
            Left::Windows(codes, windows, zero) => {
                // Windows of one picture after the other.
                let (mut row, mut rest) = (first, place);
                while !rest.is_empty() {
                    let (picture, at) = (row / windows.count(), row % windows.count());
                    let count = (windows.count() - at).min(rest.len() / length);
                    let (own, behind) = rest.split_at_mut_checked(count * length)?;
                    let picture = codes.get(picture.checked_mul(windows.picture())?..)?;
                    windows.write(picture, at, zero, own.chunks_exact_mut(length))?;
                    (row, rest) = (row + count, if count == 0 { &mut [] } else { behind });
                }
            }
        }
        Some(())
    }
}

/// Words of workspace for a product on so many threads.
pub(crate) fn workspace_len(
    threads: usize,
    rows: usize,
    shape: [usize; 2],
    left: &Left<'_>,
) -> usize {
    let cut = Cut::of(threads, rows, shape, left.lies_ready(shape[0]));
    let padded = left.padded(rows).map_or(0, |(_, padded, count)| count * padded.len / STEP);
    cut.copied.saturating_mul(threads.max(1)).max(if cut.copied > 0 { padded } else { 0 })
}

/// Whether tiles read rows line by line.
fn reads_lines(dots: Dots) -> bool {
    #[cfg(target_arch = "x86_64")]
    return dots.instructions() == Instructions::Vnni;
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = dots;
        false
    }
}

/// Pictures with what windows see around them, one behind the other, in words of the workspace, and the rest of that. Their codes have 128
/// added.
fn pad<'w>(
    left: Left<'_>,
    (windows, padded, count): (&Windows, Padded, usize),
    workspace: &'w mut [f32],
) -> Option<(&'w [i8], &'w mut [f32])> {
    let Left::Windows(codes, _, outside) = left else { return None };
    let (own, rest) = workspace.split_at_mut_checked(count * padded.len / STEP)?;
    let own: &mut [i8] = bytemuck::cast_slice_mut(own);
    for (index, place) in own.chunks_exact_mut(padded.len).enumerate() {
        let picture = codes.get(index * windows.picture()..)?;
        windows.pad(picture, outside, padded, place)?;
    }
    Some((own, rest))
}

/// Codes by weights, as codes.
///
/// # Errors
/// An operand, the place or the workspace is shorter than the numbers say.
pub(crate) fn product(
    context: Context<'_>,
    rows: usize,
    left: Left<'_>,
    right: Packed<'_>,
    columns: &Requantize<'_>,
    into: Target<'_, i8>,
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    run(context, rows, left, right, columns, into, workspace)
}

pub(super) fn run<F: Finish>(
    context: Context<'_>,
    rows: usize,
    left: Left<'_>,
    right: Packed<'_>,
    finish: &F,
    into: Target<'_, F::Out>,
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let [k, n] = right.shape;
    let Target { out, width, first } = into;
    let len = rows.checked_mul(width).ok_or(ShapeMismatch)?;
    let out = out.get_mut(..len).ok_or(ShapeMismatch)?;
    if first.checked_add(n).is_none_or(|end| end > width) {
        return Err(ShapeMismatch);
    }
    if !finish.fits(rows, n.next_multiple_of(LANES)) {
        return Err(ShapeMismatch);
    }
    if rows == 0 || n == 0 {
        return Ok(());
    }
    if let Left::Windows(codes, windows, _) = left {
        let before = (rows.div_ceil(windows.count().max(1)) - 1).checked_mul(windows.picture());
        let needed = before.and_then(|before| before.checked_add(windows.reach()));
        if needed.is_none_or(|needed| needed > codes.len()) || windows.codes() != k {
            return Err(ShapeMismatch);
        }
    }
    let (dots, threads) = (Dots::of(context.tier), context.parallel.threads());
    let in_place = left.lies_ready(k);
    let size = if !in_place && reads_lines(dots) { left.padded(rows) } else { None };
    let (grid, workspace) = match size {
        None => (None, workspace),
        Some(size) => {
            let (codes, rest) = pad(left, size, workspace).ok_or(ShapeMismatch)?;
            (Some((codes, size.0, size.1)), rest)
        }
    };
    let cut = Cut::of(threads, rows, right.shape, in_place || grid.is_some());
    if workspace.len() < cut.copied {
        return Err(ShapeMismatch);
    }
    let outcome = crate::compute::split::Outcome::default();
    let steps = right.steps();
    let part = |first: usize, tile: &mut Tile<'_, F::Out>, workspace: &mut [f32]| {
        let own = tile.rows();
        let (codes, stride, base) = if let Some((codes, ..)) = grid {
            (codes, 0, 0)
        } else if in_place {
            let (codes, stride) = left.ready(rows, k).ok_or(ShapeMismatch)?;
            (codes, stride, 0)
        } else {
            let copied: &mut [i8] = bytemuck::cast_slice_mut(workspace);
            let copied = copied.get_mut(..own.len() * steps * STEP).ok_or(ShapeMismatch)?;
            left.copy(own.start, k, steps, copied).ok_or(ShapeMismatch)?;
            (&*copied, steps * STEP, own.start)
        };
        let part = Part {
            first,
            codes,
            stride,
            base,
            #[cfg(target_arch = "x86_64")]
            grid: grid.map(|(_, windows, padded)| (windows, padded)),
            right,
            finish,
            dots,
            steps,
        };
        let end = n.min(first + cut.cols);
        let mut col = first;
        while col < end {
            let cols = (end - col).min(cut.panels * LANES);
            part.run(tile, col, cols)?;
            col += cols;
        }
        Ok(())
    };
    for_each_tile_of_part(
        context.parallel,
        out,
        (width, (first, n)),
        (cut.rows, cut.cols),
        (workspace, cut.copied),
        &|first, tile, workspace| outcome.note(part(first, tile, workspace)),
    );
    outcome.result()
}

/// A tile of as many panels as the place has columns, and of one row or more.
///
/// # Safety
/// As [`Finish::vnni`], where tiles of more than one row are as high as there are accumulators for.
#[cfg(target_arch = "x86_64")]
unsafe fn vnni_tile<F: Finish, const FLIPPED: bool>(
    finish: &F,
    a: &[*const i8; ROWS],
    walk: Walk,
    b: *const i8,
    at: [usize; 2],
    place: &Place<F::Out>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (place.cols.div_ceil(LANES), place.rows) {
            (1, 1) => finish.vnni::<1, 1, FLIPPED>(a, walk, b, at, place),
            (2, 1) => finish.vnni::<1, 2, FLIPPED>(a, walk, b, at, place),
            (3, 1) => finish.vnni::<1, 3, FLIPPED>(a, walk, b, at, place),
            (4, 1) => finish.vnni::<1, 4, FLIPPED>(a, walk, b, at, place),
            (1, _) => finish.vnni::<12, 1, FLIPPED>(a, walk, b, at, place),
            (2, _) => finish.vnni::<12, 2, FLIPPED>(a, walk, b, at, place),
            (3, _) => finish.vnni::<8, 3, FLIPPED>(a, walk, b, at, place),
            _ => finish.vnni::<6, 4, FLIPPED>(a, walk, b, at, place),
        }
    }
}

/// A part of a product.
struct Part<'a, F> {
    /// The first column of the tile, as weights count.
    first: usize,
    /// Rows of the left operand, from number `base` on.
    codes: &'a [i8],
    stride: usize,
    base: usize,
    /// The windows that rows are, where they are read in pictures with what lies around them.
    #[cfg(target_arch = "x86_64")]
    grid: Option<(&'a Windows, Padded)>,
    right: Packed<'a>,
    finish: &'a F,
    dots: Dots,
    steps: usize,
}

impl<F: Finish> Part<'_, F> {
    /// Computes so many columns from one on, for all rows of a part.
    fn run(
        &self,
        tile: &mut Tile<'_, F::Out>,
        col: usize,
        cols: usize,
    ) -> Result<(), ShapeMismatch> {
        let panels = cols.div_ceil(LANES);
        let panel = self.right.panel();
        let codes = self.right.codes.get(col / LANES * panel..).ok_or(ShapeMismatch)?;
        let weights = codes.get(..panels * panel).ok_or(ShapeMismatch)?;
        let own = tile.rows();
        let mut row = own.start;
        while row < own.end {
            let left = own.end - row;
            let height = match self.dots.instructions() {
                #[cfg(target_arch = "x86_64")]
                Instructions::Vnni if left == 1 => 1,
                #[cfg(target_arch = "x86_64")]
                Instructions::Vnni => height(panels),
                _ => plain::ROWS,
            };
            let count = left.min(height);
            self.tile(tile, [row, col], [count, cols], weights)?;
            row += count;
        }
        Ok(())
    }

    /// A tile of at most so many rows as there are accumulators for.
    fn tile(
        &self,
        tile: &mut Tile<'_, F::Out>,
        [row, col]: [usize; 2],
        [rows, cols]: [usize; 2],
        weights: &[i8],
    ) -> Result<(), ShapeMismatch> {
        let length = self.steps * STEP;
        let first = row.checked_sub(self.base).ok_or(ShapeMismatch)?;
        let line = |row: usize| {
            let start = (first + row).checked_mul(self.stride)?;
            self.codes.get(start..)?.get(..length)
        };
        let panel = self.right.panel();
        if rows == 0 {
            return Ok(());
        }
        match self.dots.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => {
                // Rows that are not there are the last one again, and are not written.
                let mut a = [core::ptr::null(); ROWS];
                let walk = match self.grid {
                    None => {
                        for (place, a) in a.iter_mut().enumerate() {
                            *a = line(place.min(rows - 1)).ok_or(ShapeMismatch)?.as_ptr();
                        }
                        Walk { steps: self.steps, lines: 1, apart: 0, panel }
                    }
                    Some((windows, padded)) => {
                        let (lines, apart) = (windows.axes[0].kernel(), padded.apart(windows));
                        let walk = Walk { steps: self.steps / lines, lines, apart, panel };
                        let length = (lines - 1) * apart + walk.steps * STEP;
                        let mut cursor = Cursor::new(windows, padded, row);
                        for (place, a) in a.iter_mut().enumerate() {
                            let codes = self.codes.get(cursor.start()..).ok_or(ShapeMismatch)?;
                            *a = codes.get(..length).ok_or(ShapeMismatch)?.as_ptr();
                            if place + 1 < rows {
                                cursor.advance();
                            }
                        }
                        walk
                    }
                };
                let mut place = Place { out: [core::ptr::null_mut(); ROWS], rows, cols };
                let from = col - self.first;
                let corner = tile.corner(row..row + rows, from..from + cols);
                let (corner, apart) = corner.ok_or(ShapeMismatch)?;
                for (at, slot) in place.out.iter_mut().enumerate().take(rows) {
                    *slot = corner.wrapping_add(at * apart);
                }
                let (b, at) = (weights.as_ptr(), [row, col]);
                let finish = self.finish;
                // SAFETY: the instructions are there; rows and panels were cut from slices of these lengths just now, the tile has all
                // places of the corner, and `fits` was asked.
                unsafe {
                    match self.grid {
                        None => vnni_tile::<F, false>(finish, &a, walk, b, at, &place),
                        // As [`pad`] wrote them.
                        Some(_) => vnni_tile::<F, true>(finish, &a, walk, b, at, &place),
                    }
                }
            }
            other => {
                let mut lines = [&[][..]; plain::ROWS];
                for (place, slot) in lines.iter_mut().enumerate() {
                    *slot = line(place.min(rows - 1)).ok_or(ShapeMismatch)?;
                }
                for (index, weights) in weights.chunks_exact(panel).enumerate() {
                    let sums = match other {
                        #[cfg(target_arch = "x86_64")]
                        // SAFETY: the instructions are there, since `other` came of a value that proves it.
                        Instructions::Avx2 => unsafe { avx2::sums(&lines, weights) },
                        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                        // SAFETY: as above.
                        Instructions::Dot => unsafe { arm::dot_sums(&lines, weights) },
                        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                        // SAFETY: as above.
                        Instructions::Squares => unsafe { arm::square_sums(&lines, weights) },
                        _ => plain::sums(&lines, weights),
                    };
                    let at = col + index * LANES;
                    let width = LANES.min(col + cols - at);
                    for (place, sums) in sums.iter().enumerate().take(rows) {
                        let from = at - self.first;
                        let out = tile.row(row + place).get_mut(from..from + width);
                        let out = out.ok_or(ShapeMismatch)?;
                        self.finish.finish(self.dots, row + place, at, sums, out);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::even_part;

    #[test]
    fn threads_have_nearly_as_many_tiles() {
        for (threads, tiles, most) in
            [(2, 66, 18), (2, 131, 9), (3, 100, 40), (2, 2, 10), (4, 3, 1)]
        {
            let part = even_part(threads, tiles, most);
            assert!((1..=most).contains(&part), "{threads} {tiles} {most}");
            // Whole parts are dealt out by turns.
            let load = tiles.div_ceil(part).div_ceil(threads) * part;
            assert!(load <= tiles.div_ceil(threads) + 1, "{threads} {tiles} {most}: {part}");
        }
        assert_eq!(even_part(1, 66, 18), 18);
        assert_eq!(even_part(1, 5, 18), 5);
    }
}
