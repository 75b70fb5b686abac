//! GEMM with dynamic quantization: each row has its own scale and zero point, computed as PyTorch's
//! `choose_qparams_per_token_asymmetric` does. Weights are int8 with a scale for each column, or
//! int4 with a scale for each group of consecutive values of a column.
//!
//! int4 weights are stored in panels of 16 columns. A panel contains its groups in order; a group
//! contains eight consecutive values of each column in turn. The lower nibble of a byte is one of
//! the first four values, the upper nibble one of the other four. Each nibble is the value plus 8.
//! Scales are ordered by panels and groups, too ([`scales`](super::scales)).

#[cfg(target_arch = "x86_64")]
use super::amx::{self, Corner, Sums};
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::arm;
use super::left::Left;
#[cfg(target_arch = "x86_64")]
use super::matmul::{Destination, ROWS, Walk};
use super::matmul::{Finish, run};
use super::pack::Packed;
use super::scales::GroupScales;
use super::{LANES, plain};
#[cfg(target_arch = "x86_64")]
use super::{token, vnni};
use crate::compute::gemm::{Context, GRAIN, ShapeMismatch};
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
use crate::compute::simd::Instructions;
use crate::compute::simd::{Dots, Simd, Vectorized};
use crate::compute::split::{Outcome, Tile, balanced_part, for_each_chunks_mut, for_each_tile_mut};

/// Consecutive int4 values of a column that are contiguous in packed weights.
pub(crate) const NIBBLES: usize = 8;

/// Dynamically quantized rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    /// Quantized values; each row is padded with zeros up to the next row.
    pub(crate) quantized: &'a [i8],
    /// Row stride.
    pub(crate) stride: usize,
    /// Scale of each row.
    pub(crate) scales: &'a [f32],
    /// Zero point of each row.
    pub(crate) zeros: &'a [i32],
    /// Sum of the quantized values of each group, row by row.
    pub(crate) sums: &'a [i32],
}

/// Size and layout of the workspace for quantized rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsLayout {
    rows: usize,
    /// Bytes of a row, including padding.
    stride: usize,
    groups: usize,
}

impl RowsLayout {
    /// Creates the layout for `rows` rows of `k` values in `groups` groups. There is at least one
    /// group, which covers the whole row.
    pub(crate) fn new(rows: usize, k: usize, groups: usize) -> Self {
        RowsLayout { rows, stride: k.next_multiple_of(NIBBLES).max(NIBBLES), groups: groups.max(1) }
    }

    /// Words of workspace.
    pub(crate) fn words(&self) -> usize {
        let row = (self.stride / 4).saturating_add(self.groups).saturating_add(2);
        self.rows.saturating_mul(row)
    }

    /// Quantizes rows of `k` values into a workspace of [`words`](Self::words) words.
    ///
    /// # Errors
    /// If `values` or the workspace is too short.
    pub(crate) fn quantize<'a>(
        &self,
        context: Context<'_>,
        values: &[f32],
        k: usize,
        workspace: &'a mut [f32],
    ) -> Result<Rows<'a>, ShapeMismatch> {
        let RowsLayout { rows, stride, groups } = *self;
        let needed = rows.checked_mul(k).ok_or(ShapeMismatch)?;
        let values = values.get(..needed).ok_or(ShapeMismatch)?;
        if k > stride || k == 0 {
            return Err(ShapeMismatch);
        }
        let workspace = workspace.get_mut(..self.words()).ok_or(ShapeMismatch)?;
        let (scales, rest) = workspace.split_at_mut_checked(rows).ok_or(ShapeMismatch)?;
        let (zeros, rest) = rest.split_at_mut_checked(rows).ok_or(ShapeMismatch)?;
        let (sums, quantized) = rest.split_at_mut_checked(rows * groups).ok_or(ShapeMismatch)?;
        let zeros: &mut [i32] = bytemuck::cast_slice_mut(zeros);
        let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
        let quantized: &mut [i8] = bytemuck::cast_slice_mut(quantized);
        let sums_words: &mut [f32] = bytemuck::cast_slice_mut(&mut *sums);
        let zeros_words: &mut [f32] = bytemuck::cast_slice_mut(&mut *zeros);
        let quantized_words: &mut [f32] = bytemuck::cast_slice_mut(&mut *quantized);
        for_each_chunks_mut(
            context.parallel,
            [&mut *scales, zeros_words, sums_words, quantized_words],
            [1, 1, groups, stride / 4],
            &|row, [scale, zero, sums, quantized]| {
                let values = values.get(row * k..(row + 1) * k).unwrap_or_default();
                let quantized: &mut [i8] = bytemuck::cast_slice_mut(quantized);
                let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
                let found = context.tier.dispatch(Quantize { values, quantized: &mut *quantized });
                let group = stride / groups;
                for (sum, quantized) in sums.iter_mut().zip(quantized.chunks(group.max(1))) {
                    *sum = quantized.iter().map(|weight| i32::from(*weight)).sum();
                }
                if let ([scale], [zero]) = (scale, zero) {
                    (*scale, *zero) = (found.0, f32::from_bits(found.1.cast_unsigned()));
                }
            },
        );
        Ok(Rows { quantized, stride, scales, zeros, sums })
    }
}

/// Quantizes a row and pads it with zeros; returns the scale and the zero point.
pub(crate) fn quantize_row(
    context: Context<'_>,
    values: &[f32],
    quantized: &mut [i8],
) -> (f32, i32) {
    context.tier.dispatch(Quantize { values, quantized })
}

/// Quantizes a row; returns the scale and the zero point.
struct Quantize<'a> {
    values: &'a [f32],
    quantized: &'a mut [i8],
}

impl Vectorized for Quantize<'_> {
    type Output = (f32, i32);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, i32) {
        let Quantize { values, quantized } = self;
        let (mut lows, mut highs) = (s.splat(0.0), s.splat(0.0));
        // One in the lanes that saw NaN.
        let (mut nans, one) = (s.splat(0.0), s.splat(1.0));
        let whole = values.chunks_exact(S::LANES);
        let rest = whole.remainder();
        for chunk in whole {
            // SAFETY: the chunk has `LANES` values.
            let values = unsafe { s.load(chunk.as_ptr()) };
            // A NaN leaves the accumulated value unchanged.
            (lows, highs) = (s.min(values, lows), s.max(values, highs));
            nans = s.select(s.is_nan(values), one, nans);
        }
        let (lows, highs, nans) = (s.to_array(lows), s.to_array(highs), s.to_array(nans));
        let (mut low, mut high, mut is_nan) = (0f32, 0f32, false);
        for lane in 0..S::LANES {
            low = if lows[lane] < low { lows[lane] } else { low };
            high = if highs[lane] > high { highs[lane] } else { high };
            is_nan |= nans[lane] > 0.0;
        }
        for value in rest {
            low = if *value < low { *value } else { low };
            high = if *value > high { *value } else { high };
            is_nan |= value.is_nan();
        }
        let (low, high) = if is_nan { (f32::NAN, f32::NAN) } else { (low, high) };
        let scale = ((high - low) / 255.0).max(f32::EPSILON);
        let (below, above) = (low / scale, high / scale);
        // Chooses the bound whose zero point has the smaller rounding error.
        let from_below = (-128.0 + below) + (127.0 + above) > 0.0;
        let zero = if from_below { -128.0 - below } else { 127.0 - above };
        let zero = libm::rintf(zero.clamp(-128.0, 127.0)) as i32;
        let (inverse, range) = (1.0 / scale, super::Range { zero, low: i8::MIN, high: i8::MAX });
        let (inside, beyond) = quantized.split_at_mut(values.len().min(quantized.len()));
        let values = &values[..inside.len()];
        for at in 0..inside.len() {
            let found = range.quantize(values[at] * inverse);
            inside[at] = if values[at].is_nan() { 0 } else { found };
        }
        beyond.fill(0);
        (scale, zero)
    }
}

/// Scale and bias of each packed column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns<'a> {
    /// Scale of each column.
    pub(crate) scales: &'a [f32],
    /// Bias of each column.
    pub(crate) bias: &'a [f32],
}

/// Epilogue that dequantizes the sums to `f32`.
pub(super) struct Floats<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) sums: &'a [i32],
    pub(super) columns: Columns<'a>,
}

// SAFETY: `fits` guarantees whole panels of sums, scales and biases, and scales and zero points of
// all rows.
unsafe impl Finish for Floats<'_> {
    type Out = f32;

    fn fits(&self, rows: usize, padded: usize) -> bool {
        let columns = [self.sums.len(), self.columns.scales.len(), self.columns.bias.len()];
        let all = [self.rows.scales.len(), self.rows.zeros.len()];
        columns.iter().all(|len| *len >= padded) && all.iter().all(|len| *len >= rows)
    }

    #[inline(always)]
    fn finish(&self, dots: Dots, row: usize, at: usize, sums: &[i32; LANES], out: &mut [f32]) {
        let (Some(scale), Some(zero)) = (self.rows.scales.get(row), self.rows.zeros.get(row))
        else {
            return;
        };
        let zero = zero + dots.offset();
        let scales = self.columns.scales.get(at..).unwrap_or_default();
        let bias = self.columns.bias.get(at..).unwrap_or_default();
        let weights = self.sums.get(at..).unwrap_or_default();
        let count = out.len().min(LANES).min(scales.len()).min(bias.len()).min(weights.len());
        let (out, scales) = (&mut out[..count], &scales[..count]);
        let (bias, weights) = (&bias[..count], &weights[..count]);
        for at in 0..count {
            let sum = sums[at].wrapping_sub(zero.wrapping_mul(weights[at]));
            out[at] = sum as f32 * scale * scales[at] + bias[at];
        }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn vnni<const M: usize, const V: usize, const FLIPPED: bool>(
        &self,
        a: &[*const i8; ROWS],
        walk: Walk,
        b: *const i8,
        at: [usize; 2],
        dst: &Destination<f32>,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe { vnni::dequantized_tile::<M, V, FLIPPED>(a, walk, b, self, at, dst) }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn amx<const V: usize, const FLIPPED: bool>(
        &self,
        sums: &Sums,
        _: &[i32],
        at: [usize; 2],
        corner: &Corner<'_, f32>,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe { amx::dequantized_tile::<V, FLIPPED>(self, sums, at, corner) }
    }
}

/// GEMM of rows with int8 weights.
///
/// # Errors
/// If an operand or `out` is too short.
pub(crate) fn gemm(
    context: Context<'_>,
    rows: Rows<'_>,
    right: Packed<'_>,
    columns: Columns<'_>,
    out: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let left = Left::Filled(rows.quantized, rows.stride);
    let finish = Floats { rows, sums: right.sums, columns };
    run(context, rows.scales.len(), left, right, &finish, out, &mut [])
}

/// GEMM of image windows with int8 weights. `scales` and `zeros` have an element for each window,
/// that of its image.
///
/// # Errors
/// As for [`gemm`].
pub(crate) fn gemm_windows(
    context: Context<'_>,
    left: Left<'_>,
    [scales, zeros]: [&[f32]; 2],
    right: Packed<'_>,
    columns: Columns<'_>,
    out: &mut [f32],
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let zeros = bytemuck::cast_slice(zeros);
    let rows = Rows { quantized: &[], stride: 0, scales, zeros, sums: &[] };
    let finish = Floats { rows, sums: right.sums, columns };
    run(context, scales.len(), left, right, &finish, out, workspace)
}

/// int4 weights; their layout is described at the top of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nibbles<'a> {
    quantized: &'a [u8],
    scales: GroupScales<'a>,
    sums: &'a [f32],
    k: usize,
    n: usize,
    /// Groups of a column.
    groups: usize,
}

/// Returns `[bytes of a group of a panel, panels]` for weights of shape `[k, n]` with `groups`
/// groups in each column.
fn nibble_counts([k, n]: [usize; 2], groups: usize) -> Option<[usize; 2]> {
    let each =
        k.checked_div(groups).filter(|each| each.checked_mul(groups) == Some(k) && *each > 0)?;
    // Padding is only possible if the single group covers the column.
    if groups > 1 && !each.is_multiple_of(NIBBLES) {
        return None;
    }
    let panels = n.div_ceil(LANES);
    let bytes = each.next_multiple_of(NIBBLES).checked_mul(LANES / 2)?;
    bytes.checked_mul(groups)?.checked_mul(panels)?.checked_mul(8)?;
    Some([bytes, panels])
}

/// Packed length in words; `None` if the group size is unsupported or the length exceeds the
/// address space.
pub(crate) fn nibbles_len(shape: [usize; 2], groups: usize) -> Option<usize> {
    let [bytes, panels] = nibble_counts(shape, groups)?;
    (bytes / 4).checked_mul(groups)?.checked_mul(panels)
}

/// Packs int4 weights `weight(row, col)`, -8 to 7. Returns `None` if `words` has the wrong length
/// or a weight is out of range.
pub(crate) fn pack_nibbles(
    [k, n]: [usize; 2],
    groups: usize,
    weight: impl Fn(usize, usize) -> Option<i8>,
    words: &mut [f32],
) -> Option<()> {
    let [bytes, _] = nibble_counts([k, n], groups)?;
    if words.len() != nibbles_len([k, n], groups)? {
        return None;
    }
    let quantized: &mut [u8] = bytemuck::cast_slice_mut(words);
    // Zero, with 8 added.
    quantized.fill(0x88);
    let each = k / groups;
    for col in 0..n {
        for group in 0..groups {
            let block = (col / LANES * groups + group) * bytes;
            let block = quantized.get_mut(block..block + bytes)?;
            for row in 0..each {
                let weight = weight(group * each + row, col)?;
                if !(-8..8).contains(&weight) {
                    return None;
                }
                let at = row / NIBBLES * (NIBBLES / 2) * LANES + col % LANES * 4 + row % 4;
                let byte = block.get_mut(at)?;
                let half = (weight + 8).cast_unsigned();
                let is_upper = row % NIBBLES >= 4;
                *byte = if is_upper { *byte & 15 | half << 4 } else { *byte & 0xf0 | half };
            }
        }
    }
    Some(())
}

impl<'a> Nibbles<'a> {
    /// Combines the output of [`pack_nibbles`], group scales, and the sum of each column. Returns
    /// `None` if a length is wrong.
    pub(crate) fn of(
        [k, n]: [usize; 2],
        groups: usize,
        [quantized, sums]: [&'a [f32]; 2],
        scales: GroupScales<'a>,
    ) -> Option<Self> {
        let fits = quantized.len() == nibbles_len([k, n], groups)?
            && scales.part(0..n.checked_next_multiple_of(LANES)?.checked_mul(groups)?).is_some()
            && sums.len() >= n.checked_next_multiple_of(LANES)?;
        let quantized = bytemuck::cast_slice(quantized);
        fits.then_some(Nibbles { quantized, scales, sums, k, n, groups })
    }

    /// Size in bytes of a group of a panel.
    fn bytes(&self) -> usize {
        (self.k / self.groups).next_multiple_of(NIBBLES) * LANES / 2
    }
}

/// GEMM of rows with int4 weights that have the same groups. The bias has an element for each
/// packed column.
///
/// # Errors
/// If an operand or `out` is too short.
pub(crate) fn gemm_nibbles(
    context: Context<'_>,
    rows: Rows<'_>,
    right: Nibbles<'_>,
    bias: Option<&[f32]>,
    out: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let (count, n) = (rows.scales.len(), right.n);
    let out = out.get_mut(..count.checked_mul(n).ok_or(ShapeMismatch)?).ok_or(ShapeMismatch)?;
    let length = right.bytes() * 2 / LANES * right.groups;
    let fits = rows.stride == length
        && rows.quantized.len() >= count * length
        && rows.zeros.len() >= count
        && rows.sums.len() >= count * right.groups
        && bias.is_none_or(|bias| bias.len() >= n.next_multiple_of(LANES));
    if !fits {
        return Err(ShapeMismatch);
    }
    if out.is_empty() {
        return Ok(());
    }
    let dots = Dots::of(context.tier);
    let work = count.saturating_mul(n).saturating_mul(length) / GRAIN;
    let threads = context.parallel.threads().min(work.max(1));
    let panels = n.div_ceil(LANES);
    let rows_of_part = count.div_ceil(threads).clamp(1, 48);
    // Few rows: threads share the columns.
    let parts = (threads * 4).div_ceil(count.div_ceil(rows_of_part));
    let cols = balanced_part(threads, panels, panels.div_ceil(parts)) * LANES;
    let outcome = Outcome::default();
    let gemm = NibbleGemm { rows, right, bias, dots };
    for_each_tile_mut::<_, ()>(
        context.parallel,
        out,
        n,
        (rows_of_part, if threads > 1 { cols } else { n }),
        (&mut [], 0),
        &|_, tile, _| outcome.note(gemm.tile(tile).ok_or(ShapeMismatch)),
    );
    outcome.result()
}

/// Panels of int4 weights, with the parameters of their columns.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    pub(super) quantized: &'a [u8],
    pub(super) scales: GroupScales<'a>,
    /// Sum of each column.
    pub(super) sums: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
    pub(super) groups: usize,
    /// Size in bytes of a group of a panel.
    pub(super) bytes: usize,
}

/// GEMM with int4 weights.
pub(super) struct NibbleGemm<'a> {
    rows: Rows<'a>,
    right: Nibbles<'a>,
    bias: Option<&'a [f32]>,
    dots: Dots,
}

impl NibbleGemm<'_> {
    fn tile(&self, tile: &mut Tile<'_, f32>) -> Option<()> {
        let own = tile.rows();
        let first = tile.first();
        let width = tile.row(own.start).len();
        let all = width.div_ceil(LANES);
        #[cfg(target_arch = "x86_64")]
        if matches!(self.dots.instructions(), Instructions::Vnni)
            && own.len() == 1
            && self.right.bytes() <= token::MAX_GROUP_BYTES
        {
            return self.row(own.start, tile);
        }
        let max_panels = match self.dots.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => 2,
            _ => 1,
        };
        let mut panel = 0;
        while panel < all {
            let panels = max_panels.min(all - panel);
            let at = first + panel * LANES;
            let cols = (panels * LANES).min(first + width - at);
            let mut row = own.start;
            while row < own.end {
                let left = own.end - row;
                let rows = left.min(match self.dots.instructions() {
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Vnni => 6,
                    _ => 1,
                });
                self.small([row, at], [rows, cols], tile)?;
                row += rows;
            }
            panel += panels;
        }
        Some(())
    }

    /// Returns `count` panels, starting at column `at`.
    fn panels(&self, at: usize, count: usize) -> Option<Panels<'_>> {
        let (groups, bytes, panel) = (self.right.groups, self.right.bytes(), at / LANES);
        let of_groups = |each: usize| panel * groups * each..(panel + count) * groups * each;
        let columns = at..at + count * LANES;
        let bias = match self.bias {
            Some(bias) => Some(bias.get(columns.clone())?),
            None => None,
        };
        Some(Panels {
            quantized: self.right.quantized.get(of_groups(bytes))?,
            scales: self.right.scales.part(of_groups(LANES))?,
            sums: self.right.sums.get(columns)?,
            bias,
            groups,
            bytes,
        })
    }

    /// Returns the quantized values of a row, and the sums of its groups.
    fn line(&self, row: usize) -> Option<(&[i8], &[i32])> {
        let (groups, stride) = (self.right.groups, self.rows.stride);
        let quantized = self.rows.quantized.get(row * stride..(row + 1) * stride)?;
        Some((quantized, self.rows.sums.get(row * groups..(row + 1) * groups)?))
    }

    /// Returns the scale and zero point of a row.
    fn range(&self, row: usize) -> Option<(f32, f32)> {
        Some((*self.rows.scales.get(row)?, *self.rows.zeros.get(row)? as f32))
    }

    /// Computes a tile of one row.
    #[cfg(target_arch = "x86_64")]
    fn row(&self, row: usize, tile: &mut Tile<'_, f32>) -> Option<()> {
        let panels = self.panels(tile.first(), tile.row(row).len().div_ceil(LANES))?;
        let ((quantized, sums), (scale, zero)) = (self.line(row)?, self.range(row)?);
        let own = token::Row { quantized, sums, scale, zero };
        // SAFETY: `Dots` proves that the processor has the instructions.
        unsafe { token::row_by_nibbles(&own, &panels, tile.row(row)) }
    }

    /// Computes a tile that fits the accumulators.
    fn small(
        &self,
        [row, at]: [usize; 2],
        [rows, cols]: [usize; 2],
        tile: &mut Tile<'_, f32>,
    ) -> Option<()> {
        let count = cols.div_ceil(LANES);
        let panels = self.panels(at, count)?;
        let from = at - tile.first();
        match self.dots.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => {
                let mut a = [(core::ptr::null(), core::ptr::null()); ROWS];
                for (index, slot) in a.iter_mut().enumerate() {
                    let row = row + index.min(rows - 1);
                    let (quantized, sums) = self.line(row)?;
                    *slot = (quantized.as_ptr(), sums.as_ptr());
                }
                let mut dst = Destination { out: [core::ptr::null_mut(); ROWS], rows, cols };
                let mut own = [(0.0, 0.0); ROWS];
                for (at, (slot, own)) in dst.out.iter_mut().zip(&mut own).enumerate().take(rows) {
                    *slot = tile.row(row + at).get_mut(from..from + cols)?.as_mut_ptr();
                    *own = self.range(row + at)?;
                }
                // SAFETY: the processor has the instructions. Rows, their sums, panels and
                // destinations were sliced to these lengths above.
                unsafe {
                    match (count, rows) {
                        (1, 1) => vnni::nibbles::<1, 1>(&a, &own, &panels, &dst),
                        (2, 1) => vnni::nibbles::<1, 2>(&a, &own, &panels, &dst),
                        (1, _) => vnni::nibbles::<6, 1>(&a, &own, &panels, &dst),
                        _ => vnni::nibbles::<6, 2>(&a, &own, &panels, &dst),
                    }
                }
            }
            _ => {
                debug_assert_eq!(rows, 1, "plain loops compute one row at a time");
                let ((quantized, own_sums), (scale, zero)) = (self.line(row)?, self.range(row)?);
                let mut values = [0f32; LANES];
                let length = self.rows.stride / panels.groups;
                let all =
                    quantized.chunks_exact(length).zip(panels.quantized.chunks_exact(panels.bytes));
                for (((quantized, weights), sum), scales) in
                    all.zip(own_sums).zip(panels.scales.groups_of_16())
                {
                    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                    let found = match self.dots.instructions() {
                        Instructions::Plain => plain::nibbles(quantized, weights),
                        // SAFETY: `Dots` proves that the processor has the instructions.
                        _ => unsafe { arm::nibbles(quantized, weights) },
                    };
                    #[cfg(not(all(target_arch = "aarch64", target_endian = "little")))]
                    let found = plain::nibbles(quantized, weights);
                    for ((value, found), scale) in values.iter_mut().zip(found).zip(scales) {
                        *value += (found - 8 * sum) as f32 * scale;
                    }
                }
                let out = tile.row(row).get_mut(from..from + cols)?;
                for (at, ((out, value), sum)) in
                    out.iter_mut().zip(values).zip(panels.sums).enumerate()
                {
                    let bias = panels.bias.and_then(|bias| bias.get(at)).copied().unwrap_or(0.0);
                    *out = (value - zero * sum) * scale + bias;
                }
            }
        }
        Some(())
    }
}
