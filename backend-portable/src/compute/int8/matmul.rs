//! int8 GEMM of rows with packed weights, split into tiles for threads.
//!
//! A grouped convolution consists of one GEMM for each group of channels. They run as one parallel
//! loop over the tiles of all.

#[cfg(target_arch = "x86_64")]
use super::amx::{self, Corner, KTiling, Sums};
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::arm;
use super::left::{Grid, Left};
use super::pack::Packed;
#[cfg(target_arch = "x86_64")]
use super::windows::{Cursor, Padded, Windows};
use super::{LANES, Requantize, STEP, plain};
#[cfg(target_arch = "x86_64")]
use super::{avx2, vnni};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::Dots;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
use crate::compute::simd::Instructions;
use crate::compute::split::{Outcome, Tile, balanced_part, for_each_tile_of_parts};

/// Maximum number of rows of a tile.
#[cfg(target_arch = "x86_64")]
pub(super) const ROWS: usize = 12;
/// Maximum number of panels of a tile.
const PANELS: usize = 4;
/// Size in bytes of the left operand that stays in the cache while the panels are processed.
const CACHED_BYTES: usize = 1 << 16;
/// Like `CACHED_BYTES`, for AMX, which computes two tiles of 16 rows by two panels at a time.
const AMX_CACHED_BYTES: usize = 1 << 18;
/// Maximum number of rows of the left operand that are not split among threads.
const MAX_UNSPLIT_ROWS: usize = 24;

/// Maximum number of rows of a tile with this many panels: its accumulators, vectors of 16 sums,
/// must fit the registers.
const fn height(panels: usize) -> usize {
    match panels {
        4.. => 6,
        3 => 8,
        _ => 12,
    }
}

/// Addresses and size of a tile's results.
#[cfg(target_arch = "x86_64")]
pub(super) struct Destination<T> {
    pub(super) out: [*mut T; ROWS],
    pub(super) rows: usize,
    pub(super) cols: usize,
}

/// Layout of a row of the left operand and of the weights. A line is a contiguous run, such as a
/// kernel row of a window; a step is a group of [`STEP`] values.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// Length of a line in steps.
    pub(super) steps: usize,
    /// Number of lines of a row, and their stride.
    pub(super) lines: usize,
    pub(super) line_stride: usize,
    /// Size of a panel of weights in bytes.
    pub(super) panel: usize,
}

/// Epilogue: converts integer sums to results.
///
/// # Safety
/// [`Finish::fits`] must guarantee what [`Finish::vnni`] and [`Finish::amx`] rely on.
pub(super) unsafe trait Finish: Sync {
    /// Element type of results.
    type Out: Send;

    /// Whether the parameters cover this many rows and this many columns, padded to whole panels.
    fn fits(&self, rows: usize, padded: usize) -> bool;

    /// Converts the sums of a row to results, starting at column `at`.
    fn finish(&self, dots: Dots, row: usize, at: usize, sums: &[i32; LANES], out: &mut [Self::Out]);

    /// Computes a tile of `M` rows and `V` panels. With `FLIPPED`, left values have 128 added
    /// already.
    ///
    /// # Safety
    /// The processor has AVX-512 VNNI. Each row of `a` has the lines and steps of `walk`, and each
    /// of the `V` panels from `b` on has as many steps. `dst` is writable for its rows and
    /// columns, which do not exceed the tile's. `at` is the first row and column of the tile, which
    /// [fits](Finish::fits).
    #[cfg(target_arch = "x86_64")]
    unsafe fn vnni<const M: usize, const V: usize, const FLIPPED: bool>(
        &self,
        a: &[*const i8; ROWS],
        walk: Walk,
        b: *const i8,
        at: [usize; 2],
        dst: &Destination<Self::Out>,
    );

    /// Computes the results of the AMX sums of `V` panels. With `FLIPPED`, left values had 128
    /// added. `weights` are the column sums of the weights.
    ///
    /// # Safety
    /// The processor has AVX-512. The corner's slots are rows of `sums`, and the corner is writable
    /// for that many rows and its columns, which do not exceed the panels. `at` is the first row
    /// and column; these, and `weights`, cover the tile ([`Finish::fits`]).
    #[cfg(target_arch = "x86_64")]
    unsafe fn amx<const V: usize, const FLIPPED: bool>(
        &self,
        sums: &Sums,
        weights: &[i32],
        at: [usize; 2],
        corner: &Corner<'_, Self::Out>,
    );
}

// SAFETY: `fits` guarantees whole panels of start values, scales and biases.
unsafe impl Finish for Requantize<'_> {
    type Out = i8;

    fn fits(&self, _: usize, padded: usize) -> bool {
        [self.start.len(), self.scales.len(), self.bias.len()].iter().all(|len| *len >= padded)
    }

    #[inline(always)]
    fn finish(&self, _: Dots, _: usize, at: usize, sums: &[i32; LANES], out: &mut [i8]) {
        let scales = self.scales.get(at..).unwrap_or_default();
        let bias = self.bias.get(at..).unwrap_or_default();
        let start = self.start.get(at..).unwrap_or_default();
        let count = out.len().min(LANES).min(scales.len()).min(bias.len()).min(start.len());
        let (out, start) = (&mut out[..count], &start[..count]);
        let (scales, bias) = (&scales[..count], &bias[..count]);
        if self.exact.is_some() {
            for index in 0..count {
                let sum = start[index].wrapping_add(sums[index]);
                out[index] = self.quantize(sum, at + index, sum as f32 * scales[index]);
            }
            return;
        }
        for at in 0..count {
            let sum = start[at].wrapping_add(sums[at]);
            out[at] = self.range.quantize(sum as f32 * scales[at] + bias[at]);
        }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn vnni<const M: usize, const V: usize, const FLIPPED: bool>(
        &self,
        a: &[*const i8; ROWS],
        walk: Walk,
        b: *const i8,
        [_, at]: [usize; 2],
        dst: &Destination<i8>,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe { vnni::requantized_tile::<M, V, FLIPPED>(a, walk, b, self, at, dst) }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn amx<const V: usize, const FLIPPED: bool>(
        &self,
        sums: &Sums,
        weights: &[i32],
        [_, at]: [usize; 2],
        corner: &Corner<'_, i8>,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe { amx::requantized_tile::<V, FLIPPED>(self, sums, weights, at, corner) }
    }
}

/// Tiling of a GEMM.
#[derive(Clone, Copy, Debug)]
struct Tiling {
    rows: usize,
    cols: usize,
    /// Number of panels of a tile; the last tile of a part may have fewer.
    panels: usize,
    /// Size in words of the copied rows of a part; 0 if rows are read in place.
    copied: usize,
}

impl Tiling {
    fn of(threads: usize, rows: usize, [k, n]: [usize; 2], in_place: bool, by_tiles: bool) -> Self {
        let (steps, panels) = (k.div_ceil(STEP).max(1), n.div_ceil(LANES).max(1));
        let width = panels.div_ceil(panels.div_ceil(PANELS));
        let (near, width, height) =
            if by_tiles { (AMX_CACHED_BYTES, 2, 32) } else { (CACHED_BYTES, width, height(width)) };
        let (is_flat, near) =
            (rows <= MAX_UNSPLIT_ROWS, (near / (steps * STEP)).max(MAX_UNSPLIT_ROWS));
        let part = match is_flat {
            true => rows.max(1),
            false => balanced_part(threads, rows.div_ceil(height), near / height) * height,
        };
        let wanted = if threads > 1 { threads * 2 } else { 1 };
        let across = wanted.div_ceil(rows.div_ceil(part).max(1)).max(1);
        let cols = match is_flat && across > 1 {
            true => balanced_part(threads, panels, panels.div_ceil(across)),
            false => panels.div_ceil(width).div_ceil(across) * width,
        };
        let cols = cols * LANES;
        let copied = if in_place { 0 } else { part.saturating_mul(steps) };
        Tiling { rows: part, cols, panels: width, copied }
    }
}

/// Workspace in words for a GEMM on `threads` threads.
pub(crate) fn workspace_len(
    threads: usize,
    rows: usize,
    shape: [usize; 2],
    left: &Left<'_>,
    dots: Dots,
) -> usize {
    let in_place = left.reads_in_place(shape[0]);
    if let Some(grid) = grid(dots, left, rows, in_place) {
        return grid.words().saturating_mul(grid.blocks_at_once);
    }
    let by_tiles = depth(dots, rows, shape, None).is_some();
    Tiling::of(threads, rows, shape, in_place, by_tiles).copied.saturating_mul(threads.max(1))
}

/// Returns the padded images if the kernel reads windows from them line by line.
fn grid<'a>(dots: Dots, left: &Left<'a>, rows: usize, in_place: bool) -> Option<Grid<'a>> {
    #[cfg(target_arch = "x86_64")]
    let reads_lines = dots.instructions() == Instructions::Vnni;
    #[cfg(not(target_arch = "x86_64"))]
    let reads_lines = false;
    let _ = dots;
    if in_place || !reads_lines { None } else { left.padded(rows) }
}

/// Returns the AMX tiling of k, or `None` if AMX does not compute this GEMM.
#[cfg(target_arch = "x86_64")]
fn depth(dots: Dots, rows: usize, [k, n]: [usize; 2], grid: Option<&Grid<'_>>) -> Option<KTiling> {
    let lines = grid.map_or(1, |grid| grid.windows.axes[0].kernel());
    KTiling::of(dots, rows, [k.div_ceil(STEP).max(1), n.div_ceil(LANES)], lines)
}

/// AMX is specific to x86-64.
#[cfg(not(target_arch = "x86_64"))]
fn depth(
    _: Dots,
    _: usize,
    _: [usize; 2],
    _: Option<&Grid<'_>>,
) -> Option<core::convert::Infallible> {
    None
}

/// int8 GEMM with requantized results.
///
/// # Errors
/// If an operand, `out` or the workspace is too short, or the operands differ in their number of
/// blocks.
pub(crate) fn gemm(
    context: Context<'_>,
    rows: usize,
    left: Left<'_>,
    right: Packed<'_>,
    columns: &Requantize<'_>,
    out: &mut [i8],
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    run(context, rows, left, right, columns, out, workspace)
}

pub(super) fn run<F: Finish>(
    context: Context<'_>,
    rows: usize,
    left: Left<'_>,
    right: Packed<'_>,
    finish: &F,
    out: &mut [F::Out],
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let Packed { shape: [k, n], blocks, .. } = right;
    let width = n.checked_mul(blocks).ok_or(ShapeMismatch)?;
    let len = rows.checked_mul(width).ok_or(ShapeMismatch)?;
    let out = out.get_mut(..len).ok_or(ShapeMismatch)?;
    if blocks != left.blocks() || !finish.fits(rows, right.sums.len()) {
        return Err(ShapeMismatch);
    }
    if rows == 0 || width == 0 {
        return Ok(());
    }
    if let Left::Windows(quantized, windows, _) = left {
        let images = rows.div_ceil(windows.count().max(1));
        let needed = images.checked_mul(windows.image());
        if needed.is_none_or(|needed| needed > quantized.len()) || windows.window_len() != k {
            return Err(ShapeMismatch);
        }
    }
    let (dots, threads) = (Dots::of(context.tier), context.parallel.threads());
    let in_place = left.reads_in_place(k);
    let grid = grid(dots, &left, rows, in_place);
    let depth = depth(dots, rows, right.shape, grid.as_ref());
    let in_place_or_padded = in_place || grid.is_some();
    let cut = Tiling::of(threads, rows, right.shape, in_place_or_padded, depth.is_some());
    let (steps, columns_padded) = (right.steps(), n.next_multiple_of(LANES));
    let blocks_at_once = grid.map_or(blocks, |grid| grid.blocks_at_once);
    for from in (0..blocks).step_by(blocks_at_once) {
        let some = from..blocks.min(from + blocks_at_once);
        let (images, workspace) = match grid {
            None => (&[][..], &mut *workspace),
            Some(grid) => {
                let padded = grid.pad(context, left, some.clone(), &mut *workspace);
                padded.ok_or(ShapeMismatch)?
            }
        };
        if workspace.len() < cut.copied {
            return Err(ShapeMismatch);
        }
        let part =
            |[block, first]: [usize; 2], tile: &mut Tile<'_, F::Out>, workspace: &mut [f32]| {
                let own = tile.rows();
                let left = left.block(block).ok_or(ShapeMismatch)?;
                let (quantized, stride, base) = if let Some(grid) = grid {
                    let start = (block - from) * grid.words() * STEP;
                    (images.get(start..).ok_or(ShapeMismatch)?, 0, 0)
                } else if in_place {
                    let (quantized, stride) = left.in_place_data(rows, k).ok_or(ShapeMismatch)?;
                    (quantized, stride, 0)
                } else {
                    let copied: &mut [i8] = bytemuck::cast_slice_mut(workspace);
                    let copied = copied.get_mut(..own.len() * steps * STEP).ok_or(ShapeMismatch)?;
                    left.copy(own.start, k, steps, copied).ok_or(ShapeMismatch)?;
                    (&*copied, steps * STEP, own.start)
                };
                // Column index in the packed weights, where each block starts a panel.
                let before = block * columns_padded;
                let part = Part {
                    first: before + first,
                    quantized,
                    stride,
                    base,
                    #[cfg(target_arch = "x86_64")]
                    grid: grid.map(|grid| (grid.windows, grid.padded)),
                    right,
                    finish,
                    dots,
                    steps,
                };
                let end = before + n.min(first + cut.cols);
                let mut col = before + first;
                #[cfg(target_arch = "x86_64")]
                if let Some(depth) = depth {
                    return part.by_tiles(tile, depth, col..end);
                }
                while col < end {
                    let cols = (end - col).min(cut.panels * LANES);
                    part.run(tile, col, cols)?;
                    col += cols;
                }
                Ok(())
            };
        let outcome = Outcome::default();
        for_each_tile_of_parts(
            context.parallel,
            &mut *out,
            (width, n, some),
            (cut.rows, cut.cols),
            (workspace, cut.copied),
            &|at, tile, workspace| outcome.note(part(at, tile, workspace)),
        );
        outcome.result()?;
    }
    Ok(())
}

/// Computes a tile with the rows and columns of `dst`.
///
/// # Safety
/// As for [`Finish::vnni`]. Tiles of more than one row provide as many rows in `a` as the
/// accumulators hold.
#[cfg(target_arch = "x86_64")]
unsafe fn vnni_tile<F: Finish, const FLIPPED: bool>(
    finish: &F,
    a: &[*const i8; ROWS],
    walk: Walk,
    b: *const i8,
    at: [usize; 2],
    dst: &Destination<F::Out>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (dst.cols.div_ceil(LANES), dst.rows) {
            (1, 1) => finish.vnni::<1, 1, FLIPPED>(a, walk, b, at, dst),
            (2, 1) => finish.vnni::<1, 2, FLIPPED>(a, walk, b, at, dst),
            (3, 1) => finish.vnni::<1, 3, FLIPPED>(a, walk, b, at, dst),
            (4, 1) => finish.vnni::<1, 4, FLIPPED>(a, walk, b, at, dst),
            (1, _) => finish.vnni::<12, 1, FLIPPED>(a, walk, b, at, dst),
            (2, _) => finish.vnni::<12, 2, FLIPPED>(a, walk, b, at, dst),
            (3, _) => finish.vnni::<8, 3, FLIPPED>(a, walk, b, at, dst),
            _ => finish.vnni::<6, 4, FLIPPED>(a, walk, b, at, dst),
        }
    }
}

/// The part of a GEMM that one job computes: a tile of the output.
pub(super) struct Part<'a, F> {
    /// First column of the tile in the packed weights.
    pub(super) first: usize,
    /// Data of the left operand, starting at row `base`.
    pub(super) quantized: &'a [i8],
    pub(super) stride: usize,
    pub(super) base: usize,
    /// Window geometry, if rows are windows of padded images.
    #[cfg(target_arch = "x86_64")]
    pub(super) grid: Option<(&'a Windows, Padded)>,
    pub(super) right: Packed<'a>,
    pub(super) finish: &'a F,
    dots: Dots,
    steps: usize,
}

impl<F: Finish> Part<'_, F> {
    /// Computes `cols` columns starting at `col`, for all rows of the part.
    fn run(
        &self,
        tile: &mut Tile<'_, F::Out>,
        col: usize,
        cols: usize,
    ) -> Result<(), ShapeMismatch> {
        let panels = cols.div_ceil(LANES);
        let panel = self.right.panel();
        let quantized = self.right.quantized.get(col / LANES * panel..).ok_or(ShapeMismatch)?;
        let weights = quantized.get(..panels * panel).ok_or(ShapeMismatch)?;
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

    /// Computes a tile that fits the accumulators.
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
            self.quantized.get(start..)?.get(..length)
        };
        let panel = self.right.panel();
        if rows == 0 {
            return Ok(());
        }
        match self.dots.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => {
                // Missing rows repeat the last one and are not written.
                let mut a = [core::ptr::null(); ROWS];
                let walk = match self.grid {
                    None => {
                        for (index, a) in a.iter_mut().enumerate() {
                            *a = line(index.min(rows - 1)).ok_or(ShapeMismatch)?.as_ptr();
                        }
                        Walk { steps: self.steps, lines: 1, line_stride: 0, panel }
                    }
                    Some((windows, padded)) => {
                        let (lines, line_stride) =
                            (windows.axes[0].kernel(), padded.line_stride(windows));
                        let walk = Walk { steps: self.steps / lines, lines, line_stride, panel };
                        let length = (lines - 1) * line_stride + walk.steps * STEP;
                        let mut cursor = Cursor::new(windows, padded, row);
                        for (index, a) in a.iter_mut().enumerate() {
                            let quantized =
                                self.quantized.get(cursor.start()..).ok_or(ShapeMismatch)?;
                            *a = quantized.get(..length).ok_or(ShapeMismatch)?.as_ptr();
                            if index + 1 < rows {
                                cursor.advance();
                            }
                        }
                        walk
                    }
                };
                let mut dst = Destination { out: [core::ptr::null_mut(); ROWS], rows, cols };
                let from = col - self.first;
                let corner = tile.corner(row..row + rows, from..from + cols);
                let (corner, row_stride) = corner.ok_or(ShapeMismatch)?;
                for (at, slot) in dst.out.iter_mut().enumerate().take(rows) {
                    *slot = corner.wrapping_add(at * row_stride);
                }
                let (b, at) = (weights.as_ptr(), [row, col]);
                let finish = self.finish;
                // SAFETY: the processor has the instructions. Rows and panels were sliced to these
                // lengths above, the tile covers the corner, and `fits` was checked.
                unsafe {
                    match self.grid {
                        None => vnni_tile::<F, false>(finish, &a, walk, b, at, &dst),
                        // [`pad`](super::left::Grid::pad) added 128 to the values.
                        Some(_) => vnni_tile::<F, true>(finish, &a, walk, b, at, &dst),
                    }
                }
            }
            other => {
                let mut lines = [&[][..]; plain::ROWS];
                for (index, slot) in lines.iter_mut().enumerate() {
                    *slot = line(index.min(rows - 1)).ok_or(ShapeMismatch)?;
                }
                for (index, weights) in weights.chunks_exact(panel).enumerate() {
                    let sums = match other {
                        #[cfg(target_arch = "x86_64")]
                        // SAFETY: `Dots` proves that the processor has the instructions.
                        Instructions::Avx2 => unsafe { avx2::sums(&lines, weights) },
                        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                        // SAFETY: as above.
                        Instructions::Dot => unsafe { arm::dot_sums(&lines, weights) },
                        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                        // SAFETY: as above.
                        Instructions::I8mm => unsafe { arm::i8mm_sums(&lines, weights) },
                        _ => plain::sums(&lines, weights),
                    };
                    let at = col + index * LANES;
                    let width = LANES.min(col + cols - at);
                    for (index, sums) in sums.iter().enumerate().take(rows) {
                        let from = at - self.first;
                        let out = tile.row(row + index).get_mut(from..from + width);
                        let out = out.ok_or(ShapeMismatch)?;
                        self.finish.finish(self.dots, row + index, at, sums, out);
                    }
                }
            }
        }
        Ok(())
    }
}
