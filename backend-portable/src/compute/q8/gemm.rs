//! int8 GEMM of rows with rows of weights.
//!
//! A few rows are widened to 16 bits in workspace, with their offset added, and multiplied with all
//! weights. So weights stay in place, 8 bits wide, and padding is zero. (Helium multiplies 8-bit
//! values directly and widens nothing.)

use super::requantize::Finish;
use super::{CHANNELS, Results, is_fast_offset};
use crate::compute::simd::Tier;
use crate::compute::split::for_each_chunk_with;
use crate::parallel::Parallel;

/// Maximum number of rows that are computed together, limited by the registers for their sums.
pub const fn rows(tier: Tier) -> usize {
    if tier.lanes() == 1 { 2 } else { 4 }
}

/// Granularity of widened rows: the depth is rounded up to a multiple.
pub(super) const UNIT: usize = 4;

/// Depth from which the fast loops, whose counters have fewer bits, are not used.
const MAX_FAST_DEPTH: usize = 1 << 18;

/// Weight rows, one for each output channel.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// Contiguous rows.
    pub data: &'a [i8],
    /// Length of a row.
    pub depth: usize,
    /// Number of rows to use.
    pub channels: usize,
    /// Offset added to each weight.
    pub offset: i32,
}

impl<'a> Weights<'a> {
    fn row(&self, channel: usize) -> &'a [i8] {
        let at = channel.saturating_mul(self.depth);
        self.data.get(at..at.saturating_add(self.depth)).unwrap_or(&[])
    }
}

/// 16-bit elements of workspace for [`multiply`] over rows of this depth. `None` on overflow.
pub const fn workspace_len(tier: Tier, depth: usize) -> Option<usize> {
    let Some(depth) = depth.checked_next_multiple_of(UNIT) else { return None };
    depth.checked_mul(rows(tier))
}

/// Rows of the left operand.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Values of the rows.
    pub data: &'a [i8],
    /// Row stride.
    pub stride: usize,
    /// Number of rows.
    pub count: usize,
    /// Offset added to each value (the negated zero point).
    pub offset: i32,
}

/// Destination of the results: row `i` is at `out[i * out_stride..]`.
pub struct Target<'a> {
    /// Requantization of the sums.
    pub results: &'a Results<'a>,
    /// The first channel, an index into the parameters of `results`.
    pub first: usize,
    /// Output values.
    pub out: &'a mut [i8],
    /// Row stride of `out`.
    pub out_stride: usize,
}

/// Batched matrix multiplication: `rows` rows of the left operand share weights.
#[derive(Debug, Clone, Copy)]
pub struct Product<'a> {
    /// Left operand: rows of the weights' depth.
    pub lhs: &'a [i8],
    /// Offset added to each of its values (the negated zero point).
    pub offset: i32,
    /// Weights of the first batch.
    pub weights: Weights<'a>,
    /// Requantization of the sums.
    pub results: Results<'a>,
    /// Number of rows that share weights.
    pub rows: usize,
    /// Offset of the weights of a batch from those of the previous one.
    pub step: usize,
}

impl Product<'_> {
    /// 16-bit elements of workspace for `len` results.
    pub fn workspace_len(&self, tier: Tier, parallel: &dyn Parallel, len: usize) -> usize {
        let rows = len / self.weights.channels.max(1);
        let slots = rows.div_ceil(self::rows(tier)).min(parallel.threads());
        workspace_len(tier, self.weights.depth).unwrap_or(0).saturating_mul(slots)
    }
}

/// Computes a [`Product`], in groups of rows that run in parallel. All slots of the workspace have
/// [`workspace_len`] elements, or those of a single row if there is only one.
pub fn multiply_all(
    tier: Tier,
    parallel: &dyn Parallel,
    product: Product<'_>,
    out: &mut [i8],
    workspace: &mut [i16],
) {
    let Product { lhs, offset, weights, results, rows, step } = product;
    let (depth, channels, group) = (weights.depth, weights.channels.max(1), self::rows(tier));
    let slot = workspace_len(tier, depth).unwrap_or(0);
    // A group has only rows that share weights.
    let len = rows.saturating_mul(channels);
    for (batch, out) in out.chunks_mut(len.max(1)).enumerate() {
        let data = weights.data.get(batch * step..).unwrap_or(&[]);
        let weights = Weights { data, ..weights };
        for_each_chunk_with(
            parallel,
            out,
            group * channels,
            workspace,
            slot,
            &|index, out, workspace| {
                let first = batch * rows + index * group;
                let data = lhs.get(first * depth..).unwrap_or(&[]);
                let rows = Rows { data, stride: depth, count: out.len() / channels, offset };
                let target = Target { results: &results, first: 0, out, out_stride: channels };
                multiply(tier, rows, weights, target, workspace);
            },
        );
    }
}

/// Multiplies up to [`rows`] rows with all weights, in a workspace of [`workspace_len`] elements,
/// or of fewer for fewer rows. With less workspace or more rows, computes one dot product at a
/// time.
pub fn multiply(
    tier: Tier,
    rows: Rows<'_>,
    weights: Weights<'_>,
    target: Target<'_>,
    workspace: &mut [i16],
) {
    let row_len = weights.depth.checked_next_multiple_of(UNIT);
    let len = row_len.and_then(|len| len.checked_mul(rows.count));
    match len.and_then(|len| workspace.get_mut(..len)) {
        Some(workspace)
            if is_fast_offset(rows.offset)
                && rows.count <= self::rows(tier)
                && weights.depth < MAX_FAST_DEPTH =>
        {
            #[cfg(arm_mve)]
            return {
                let _ = (tier, workspace);
                match rows.count {
                    1 => fast(rows, weights, target, &mut [[0; CHANNELS]; 1]),
                    _ => fast(rows, weights, target, &mut [[0; CHANNELS]; 2]),
                }
            };
            #[cfg(all(arm_dsp, not(arm_mve)))]
            return {
                let _ = tier;
                fast(rows, weights, target, workspace)
            };
            #[cfg(not(arm_dsp))]
            {
                let results = target.results.on(tier);
                let target = Target { results: &results, ..target };
                super::vectorized(
                    tier,
                    #[inline(always)]
                    || fast(rows, weights, target, workspace),
                );
            }
        }
        _ => plain(rows, weights, target),
    }
}

/// Like [`multiply`], for up to four rows and without workspace. `sums` is scratch memory with any
/// contents.
#[cfg(arm_mve)]
pub(super) fn multiply_four(
    rows: Rows<'_>,
    weights: Weights<'_>,
    target: Target<'_>,
    sums: &mut [[i32; CHANNELS]; 4],
) {
    if is_fast_offset(rows.offset) && weights.depth < MAX_FAST_DEPTH {
        fast(rows, weights, target, sums);
    } else {
        plain(rows, weights, target);
    }
}

/// Computes one dot product at a time, for every offset.
pub(super) fn plain(rows: Rows<'_>, weights: Weights<'_>, target: Target<'_>) {
    for row in 0..rows.count {
        let at = row.saturating_mul(rows.stride);
        let quantized = rows.data.get(at..at.saturating_add(weights.depth)).unwrap_or(&[]);
        for channel in 0..weights.channels {
            let mut sum = [0i32];
            for (&value, &weight) in quantized.iter().zip(weights.row(channel)) {
                let value = i32::from(value).wrapping_add(rows.offset);
                let weight = i32::from(weight).wrapping_add(weights.offset);
                sum[0] = sum[0].wrapping_add(value.wrapping_mul(weight));
            }
            let at = row.saturating_mul(target.out_stride).saturating_add(channel);
            let out = target.out.get_mut(at..).unwrap_or_default();
            let out = out.get_mut(..1).unwrap_or_default();
            target.results.finish(target.first + channel, 0, i32::MAX, &sum, out);
        }
    }
}

/// Workspace: the widened rows.
#[cfg(not(arm_mve))]
type Workspace = [i16];
/// Workspace: the sums of the rows, with any contents. Clearing them would cost as much as a short
/// dot product.
#[cfg(arm_mve)]
type Workspace = [[i32; CHANNELS]];

/// Computes all rows together with the fast loops.
#[inline(always)]
fn fast(rows: Rows<'_>, weights: Weights<'_>, target: Target<'_>, workspace: &mut Workspace) {
    #[cfg(arm_mve)]
    let target = match fused(rows, weights, target) {
        Some(target) => target,
        None => return,
    };
    match rows.count {
        1 => fast_rows::<1>(rows, weights, target, workspace),
        2 => fast_rows::<2>(rows, weights, target, workspace),
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", arm_mve))]
        3 => fast_rows::<3>(rows, weights, target, workspace),
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", arm_mve))]
        4 => fast_rows::<4>(rows, weights, target, workspace),
        _ => {}
    }
}

/// Exclusive upper bound of the magnitude of sums over these weights; `i32::MAX` if unknown.
fn limit(weights: &Weights<'_>) -> i32 {
    // An input value plus an offset that passes `is_fast_offset` has 9 bits, a weight has 8.
    let is_near = weights.offset == 0 && weights.depth < MAX_FAST_DEPTH / 16;
    if is_near { (weights.depth as i32) << 15 } else { i32::MAX }
}

/// Computes three or four rows with the fused loop, which requantizes sums in registers. If the
/// parameters do not allow it, does nothing and returns the target.
#[cfg(arm_mve)]
fn fused<'a>(rows: Rows<'_>, weights: Weights<'_>, target: Target<'a>) -> Option<Target<'a>> {
    if !(3..=4).contains(&rows.count) {
        return Some(target);
    }
    let each = target.results.each(target.first, weights.channels, limit(&weights));
    let of = |row: usize| {
        let at = row.min(rows.count - 1) * rows.stride;
        rows.data.get(at..at.checked_add(weights.depth)?)
    };
    let (Some(each), Some(a), Some(b), Some(c), Some(d)) = (each, of(0), of(1), of(2), of(3))
    else {
        return Some(target);
    };
    let row_offsets = core::array::from_fn(|row| row.min(rows.count - 1) * target.out_stride);
    let is_there = weights.data.len() >= weights.depth.saturating_mul(weights.channels)
        && target.out.len() >= row_offsets[3].saturating_add(weights.channels);
    if !is_there {
        return Some(target);
    }
    inner::four_rows([a, b, c, d], rows.offset, weights.data, each, target.out, row_offsets);
    None
}

#[cfg_attr(not(arm_dsp), inline(always))]
fn fast_rows<const R: usize>(
    rows: Rows<'_>,
    weights: Weights<'_>,
    target: Target<'_>,
    workspace: &mut Workspace,
) {
    let depth = weights.depth;
    #[cfg(not(arm_mve))]
    let Some(wide) = workspace.get_mut(..depth.next_multiple_of(UNIT) * R) else { return };
    #[cfg(arm_mve)]
    let Some(sums) = workspace.first_chunk_mut::<R>() else { return };
    // The contribution of the weights' offset is the same for all channels.
    let mut shared = [0i32; R];
    #[cfg(arm_mve)]
    let mut narrow: [&[i8]; R] = [&[]; R];
    for (row, shared) in shared.iter_mut().enumerate() {
        let quantized =
            rows.data.get(row * rows.stride..).and_then(|quantized| quantized.get(..depth));
        let Some(quantized) = quantized else { return };
        #[cfg(arm_mve)]
        {
            narrow[row] = quantized;
        }
        // Offsets that pass `is_fast_offset` fit 16 bits.
        #[cfg(not(arm_mve))]
        inner::widen::<R>(quantized, rows.offset as i16, row, wide);
        if weights.offset != 0 {
            let sum = quantized.iter().fold(0i32, |sum, &value| sum.wrapping_add(value.into()));
            let sum = sum.wrapping_add((depth as i32).wrapping_mul(rows.offset));
            *shared = sum.wrapping_mul(weights.offset);
        }
    }
    let limit = limit(&weights);
    let mut first = 0;
    while first < weights.channels {
        let count = CHANNELS.min(weights.channels - first);
        let at = first * depth;
        let Some(part) = weights.data.get(at..at + count * depth) else { return };
        #[cfg(not(arm_mve))]
        let sums = &mut [[0i32; CHANNELS]; R];
        #[cfg(target_arch = "x86_64")]
        let is_done = super::x86::sums(target.results.tier(), wide, part, [depth, count], sums);
        #[cfg(not(any(target_arch = "x86_64", arm_mve)))]
        let is_done = false;
        #[cfg(not(arm_mve))]
        if !is_done {
            inner::sums(wide, part, depth, count, sums);
        }
        #[cfg(arm_mve)]
        inner::sums(narrow, rows.offset, part, depth, count, sums);
        let Some(out) = target.out.get_mut(first..) else { return };
        let finish =
            Finish { first: target.first + first, count, limit, stride: target.out_stride };
        target.results.finish_rows(finish, shared, sums, out);
        first += count;
    }
}

#[cfg(all(arm_dsp, not(arm_mve)))]
use super::dsp as inner;
#[cfg(arm_mve)]
use super::mve as inner;

/// Loops for auto-vectorisation.
#[cfg(not(arm_dsp))]
mod inner {
    use super::{CHANNELS, UNIT};

    /// Widens row `row` of `R` to 16 bits, with its offset added, padded with zeros.
    #[inline(always)]
    pub(super) fn widen<const R: usize>(
        quantized: &[i8],
        offset: i16,
        row: usize,
        wide: &mut [i16],
    ) {
        let stride = quantized.len().next_multiple_of(UNIT);
        let Some(wide) = wide.get_mut(row * stride..(row + 1) * stride) else { return };
        let (wide, rest) = wide.split_at_mut(quantized.len());
        for (wide, &value) in wide.iter_mut().zip(quantized) {
            *wide = i16::from(value) + offset;
        }
        rest.fill(0);
    }

    /// Dot products of `R` rows with `count` rows of weights.
    #[inline(always)]
    pub(super) fn sums<const R: usize>(
        wide: &[i16],
        weights: &[i8],
        depth: usize,
        count: usize,
        sums: &mut [[i32; CHANNELS]; R],
    ) {
        let stride = depth.next_multiple_of(UNIT);
        let rows: [&[i16]; R] = core::array::from_fn(|row| &wide[row * stride..][..depth]);
        let mut channel = 0;
        while channel + 2 <= count {
            let weights = &weights[channel * depth..];
            let (a, b) = (&weights[..depth], &weights[depth..][..depth]);
            let mut both = [[0i32; 2]; R];
            for k in 0..depth {
                let weights = [i32::from(a[k]), i32::from(b[k])];
                // Indexed: an iterator over pairs is constructed for each term, and its call is not
                // inlined.
                for r in 0..R {
                    let x = i32::from(rows[r][k]);
                    both[r][0] = both[r][0].wrapping_add(x * weights[0]);
                    both[r][1] = both[r][1].wrapping_add(x * weights[1]);
                }
            }
            for (sums, both) in sums.iter_mut().zip(&both) {
                sums[channel..channel + 2].copy_from_slice(both);
            }
            channel += 2;
        }
        if channel < count {
            let weights = &weights[channel * depth..][..depth];
            for (sums, row) in sums.iter_mut().zip(&rows) {
                let mut sum = 0i32;
                for k in 0..depth {
                    sum = sum.wrapping_add(i32::from(row[k]) * i32::from(weights[k]));
                }
                sums[channel] = sum;
            }
        }
    }
}
