//! int8 convolution as im2col and GEMM: the input window of an output pixel becomes a row of the
//! left operand.

#[cfg(arm_mve)]
use super::CHANNELS;
use super::gemm::{self, Rows, Target, Weights};
use super::{Results, is_fast_offset, taps};
use crate::compute::simd::Tier;
use crate::compute::split::for_each_chunk_with;
use crate::parallel::Parallel;
use torchlet_core::rules::window::{Taps, Window};

/// Rows, columns and channels of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Channels.
    pub channels: usize,
}

impl Extent {
    /// Offset of a pixel.
    pub(crate) fn at(&self, batch: usize, row: usize, column: usize) -> usize {
        ((batch * self.rows + row) * self.columns + column) * self.channels
    }
}

/// Parameters of a convolution, plain or transposed.
#[derive(Debug, Clone, Copy)]
pub struct Convolution<'a> {
    /// Shape of the input.
    pub from: Extent,
    /// Shape of the output.
    pub to: Extent,
    /// Windows of the row and column axes.
    pub windows: [Window; 2],
    /// Whether it is transposed; a transposed convolution has one group.
    pub transposed: bool,
    /// Input channels of a group.
    pub depth: usize,
    /// Offset added to each input value (the negated zero point).
    pub offset: i32,
    /// Requantization of the sums.
    pub results: Results<'a>,
}

#[cfg(arm_mve)]
impl Convolution<'_> {
    /// Converts the images of a pointwise convolution to images of one row, so that fewer pixels
    /// remain after the last group of four. (On hosts with threads, rows are the unit of
    /// parallelism.)
    fn flat(&self) -> Option<Self> {
        let is_point =
            |window: &Window| (window.kernel(), window.stride(), window.padding()) == (1, 1, 0);
        let (from, to) = (self.from, self.to);
        let is_flat = !self.transposed
            && self.windows.iter().all(is_point)
            && (from.rows, from.columns) == (to.rows, to.columns);
        let columns = from.rows.checked_mul(from.columns)?;
        let flat = |image: Extent| Extent { rows: 1, columns, channels: image.channels };
        is_flat.then_some(Convolution { from: flat(from), to: flat(to), ..*self })
    }
}

/// 16-bit elements of workspace for widened rows, and for the int8 patches that follow them. Zero
/// if the sizes are out of range.
fn workspace(tier: Tier, depth: usize, taps: usize) -> (usize, usize) {
    let patch = depth.checked_mul(taps).filter(|&len| len <= isize::MAX as usize / 32);
    let wide = patch.and_then(|patch| gemm::workspace_len(tier, patch));
    match (patch, wide) {
        (Some(patch), Some(wide)) => (wide, (patch * gemm::rows(tier)).div_ceil(2)),
        _ => (0, 0),
    }
}

/// 16-bit elements of workspace per thread that [`convolve`] needs for this depth and number of
/// taps. The length is even, so each thread's part is aligned to four bytes if the whole is.
pub fn workspace_len(tier: Tier, depth: usize, taps: usize) -> usize {
    let (wide, patch) = workspace(tier, depth, taps);
    (wide + patch).next_multiple_of(2)
}

/// Computes a convolution. `weights` has the layout
/// `[output channel, row, column, input channel of the group]`.
pub fn convolve(
    tier: Tier,
    parallel: &dyn Parallel,
    convolution: &Convolution<'_>,
    input: &[i8],
    weights: &[i8],
    out: &mut [i8],
    workspace: &mut [i16],
) {
    #[cfg(arm_mve)]
    let flat = convolution.flat();
    #[cfg(arm_mve)]
    let convolution = flat.as_ref().unwrap_or(convolution);
    let Convolution { to, windows: [down, across], depth, .. } = *convolution;
    let taps = down.kernel().saturating_mul(across.kernel());
    let slot = workspace_len(tier, depth, taps);
    let row_len = to.columns * to.channels;
    for_each_chunk_with(parallel, out, row_len, workspace, slot, &|index, out, workspace| {
        let (batch, row) = (index / to.rows.max(1), index % to.rows.max(1));
        Line { tier, convolution, input, weights, batch, row }.compute(out, workspace);
    });
}

/// One row of the output.
struct Line<'a> {
    tier: Tier,
    convolution: &'a Convolution<'a>,
    input: &'a [i8],
    weights: &'a [i8],
    batch: usize,
    row: usize,
}

impl Line<'_> {
    fn compute(&self, out: &mut [i8], workspace: &mut [i16]) {
        let Convolution { from, to, windows: [down, across], depth, offset, .. } =
            *self.convolution;
        let len = down.kernel() * across.kernel() * depth;
        let (wide_len, patch_len) =
            self::workspace(self.tier, depth, down.kernel() * across.kernel());
        let wanted = workspace.get_mut(..wide_len + patch_len);
        let (wide, patches) = match wanted.and_then(|all| all.split_at_mut_checked(wide_len)) {
            Some(parts) if is_fast_offset(offset) && wide_len != 0 => parts,
            _ => return self.plain(out),
        };
        // With Helium (MVE), rows are not widened, so patches use that part of the workspace: four
        // int8 patches are as large as two 16-bit rows.
        #[cfg(arm_mve)]
        let (patches, together, mut sums) = {
            let _ = patches;
            (wide, 4, [[0; CHANNELS]; 4])
        };
        #[cfg(not(arm_mve))]
        let together = gemm::rows(self.tier);
        let patches: &mut [i8] = bytemuck::cast_slice_mut(patches);
        // For a pointwise kernel, patches are input pixels, read in place.
        let points = (down.kernel(), across.kernel(), depth) == (1, 1, from.channels)
            && across.padding() == 0
            && !self.convolution.transposed;
        let y = taps(&down, self.row, from.rows);
        let groups = (from.channels / depth.max(1)).max(1);
        let channels = to.channels / groups;
        for group in 0..groups {
            let at = group * channels;
            let weights = self.weights.get(at * len..).unwrap_or(&[]);
            let weights = Weights { data: weights, depth: len, channels, offset: 0 };
            let mut column = 0;
            while column < to.columns {
                let count = together.min(to.columns - column);
                let rows = if points && y.count == 1 {
                    let at = from.at(self.batch, y.start, column * across.stride());
                    let data = self.input.get(at..).unwrap_or(&[]);
                    Rows { data, stride: across.stride() * from.channels, count, offset }
                } else {
                    for (index, patch) in patches.chunks_exact_mut(len).take(count).enumerate() {
                        self.gather(y, column + index, group, patch);
                    }
                    Rows { data: patches, stride: len, count, offset }
                };
                let out = out.get_mut(column * to.channels + at..).unwrap_or_default();
                let results = &self.convolution.results;
                let target = Target { results, first: at, out, out_stride: to.channels };
                #[cfg(arm_mve)]
                gemm::multiply_four(rows, weights, target, &mut sums);
                #[cfg(not(arm_mve))]
                gemm::multiply(self.tier, rows, weights, target, wide);
                column += count;
            }
        }
    }

    /// im2col of one output column: copies the input window to `patch`, with the zero point as
    /// padding. `y` are the taps of its row.
    fn gather(&self, y: Taps, column: usize, group: usize, patch: &mut [i8]) {
        let Convolution { from, windows: [down, across], depth, offset, transposed, .. } =
            *self.convolution;
        // The offset passes [`is_fast_offset`], so its negation fits int8.
        let zero = offset.wrapping_neg() as i8;
        let row_len = (across.kernel() * depth).max(1);
        if depth == from.channels && down.dilation() == 1 && across.dilation() == 1 && !transposed {
            // The taps of a kernel row are contiguous in memory.
            let x = taps(&across, column, from.columns);
            let (before, inside, len) = (y.first * row_len, y.count * row_len, x.count * depth);
            let (above, rest) = patch.split_at_mut(before);
            let (inside, below) = rest.split_at_mut(inside);
            fill(above, zero);
            fill(below, zero);
            let mut at = from.at(self.batch, y.start, x.start);
            let step = from.columns * from.channels;
            if len == row_len {
                return copy_rows(self.input, [at, step], row_len, inside);
            }
            for row in inside.chunks_exact_mut(row_len) {
                let (before, rest) = row.split_at_mut(x.first * depth);
                let (inside, behind) = rest.split_at_mut(len);
                fill(before, zero);
                copy(self.input, at, inside);
                fill(behind, zero);
                at += step;
            }
            return;
        }
        for (tap_row, patch) in patch.chunks_exact_mut(row_len).enumerate() {
            let Some(y) = self.source(&down, self.row, tap_row, from.rows) else {
                patch.fill(zero);
                continue;
            };
            for (tap, patch) in patch.chunks_exact_mut(depth.max(1)).enumerate() {
                match self.source(&across, column, tap, from.columns) {
                    Some(x) => copy(self.input, from.at(self.batch, y, x) + group * depth, patch),
                    None => patch.fill(zero),
                }
            }
        }
    }

    /// The input position that an output position reads through a tap; `None` for padding.
    fn source(&self, window: &Window, at: usize, tap: usize, size: usize) -> Option<usize> {
        let reach = tap.checked_mul(window.dilation())?;
        let position = if self.convolution.transposed {
            let reached = at.checked_add(window.padding())?.checked_sub(reach)?;
            if reached % window.stride() != 0 {
                return None;
            }
            reached / window.stride()
        } else {
            let reached = at.checked_mul(window.stride())?.checked_add(reach)?;
            reached.checked_sub(window.padding())?
        };
        (position < size).then_some(position)
    }

    /// Computes the row with one dot product at a time, without workspace.
    fn plain(&self, out: &mut [i8]) {
        let Convolution { from, to, windows: [down, across], depth, offset, .. } =
            *self.convolution;
        let groups = (from.channels / depth.max(1)).max(1);
        let by_group = (to.channels / groups).max(1);
        for (column, out) in out.chunks_mut(to.channels.max(1)).enumerate() {
            for (channel, out) in out.iter_mut().enumerate() {
                let group = channel / by_group;
                let mut sum = [0i32];
                for tap_row in 0..down.kernel() {
                    let y = self.source(&down, self.row, tap_row, from.rows);
                    let Some(y) = y else { continue };
                    for tap in 0..across.kernel() {
                        let x = self.source(&across, column, tap, from.columns);
                        let Some(x) = x else { continue };
                        let quantized = from.at(self.batch, y, x) + group * depth;
                        let quantized = self.input.get(quantized..quantized + depth).unwrap_or(&[]);
                        let kernel = (channel * down.kernel() + tap_row) * across.kernel() + tap;
                        let weights = self.weights.get(kernel * depth..(kernel + 1) * depth);
                        for (&input_value, &weight) in quantized.iter().zip(weights.unwrap_or(&[]))
                        {
                            let input_value = i32::from(input_value).wrapping_add(offset);
                            sum[0] = sum[0].wrapping_add(input_value.wrapping_mul(weight.into()));
                        }
                    }
                }
                let out = core::slice::from_mut(out);
                self.convolution.results.finish(channel, 0, i32::MAX, &sum, out);
            }
        }
    }
}

/// Fills a slice with a value. The slice is usually empty.
#[inline(always)]
fn fill(quantized: &mut [i8], value: i8) {
    if !quantized.is_empty() {
        quantized.fill(value);
    }
}

/// Copies rows of `len` values, starting at offset `at` with stride `step`, to `to`.
#[inline(always)]
fn copy_rows(input: &[i8], [at, step]: [usize; 2], len: usize, to: &mut [i8]) {
    #[cfg(arm_mve)]
    super::mve::copy_rows(input, [at, step], len, to);
    #[cfg(not(arm_mve))]
    for (row, to) in to.chunks_exact_mut(len).enumerate() {
        copy(input, at + row * step, to);
    }
}

/// Copies values from offset `at` on until `to` is full.
fn copy(input: &[i8], at: usize, to: &mut [i8]) {
    if let Some(quantized) = at.checked_add(to.len()).and_then(|end| input.get(at..end)) {
        #[cfg(arm_mve)]
        super::mve::copy(quantized, to);
        #[cfg(not(arm_mve))]
        to.copy_from_slice(quantized);
    }
}
