//! int8 convolution in groups of four or eight channels, with AVX-512 VNNI: 16 channels hold
//! several groups.
//!
//! A vector repeats the 16 bytes of a tap of a pixel four times. Each 32-bit word holds four values
//! of one group and is multiplied with the weights of one output of that group. The four
//! repetitions of the word are multiplied with the weights of four outputs. Groups of four thus
//! need one VNNI instruction for a tap of 16 channels, groups of eight need two, and no lane
//! multiplies zeros of other groups.

use super::matmul::ROWS;
use super::vnni;
use super::windows::Windows;
use super::{Requantize, STEP};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::{Dots, Instructions};
use crate::compute::split::{Outcome, Tile, balanced_part, for_each_tile_mut};

/// Number of channels of a block, which is computed at a time.
pub(crate) const BLOCK: usize = 16;
/// Maximum number of pixels of a tile.
const PIXELS: usize = 8;
/// Size in bytes of padded image rows that stay in the cache while the blocks of channels are
/// processed.
const CACHED_BYTES: usize = 1 << 16;
/// Number of bytes that vector loads may read beyond the last value.
const OVERREAD: usize = BLOCK;

/// Whether this module supports groups of this number and size (`[inputs, outputs]`).
pub(crate) fn serves(dots: Dots, groups: usize, [inputs, outputs]: [usize; 2]) -> bool {
    let is_narrow = groups > 1 && inputs == outputs && matches!(inputs, 4 | 8);
    is_narrow && dots.instructions() == Instructions::Vnni
}

/// Number of channels, padded to whole blocks.
pub(crate) fn padded(channels: usize) -> usize {
    channels.next_multiple_of(BLOCK)
}

/// The channel at an index of the packed order, for groups of this size. Sums and requantization
/// parameters have that order, too.
pub(crate) fn channel(group: usize, index: usize) -> usize {
    let (block, lane, word) = (index / BLOCK, index % BLOCK / STEP, index % STEP);
    let first = if group == STEP { word * STEP } else { [0, 8, 4, 12][word] };
    block * BLOCK + first + lane
}

/// Packed length of the weights in 32-bit words; `None` if it exceeds the address space.
pub(crate) fn packed_len(taps: usize, channels: usize, group: usize) -> Option<usize> {
    // A word holds the weights of one output for four inputs. The sum of each channel's weights
    // follows.
    let words = taps.checked_mul(group / STEP)?.checked_add(1)?;
    channels.checked_next_multiple_of(BLOCK)?.checked_mul(words)
}

/// Packs the weights returned by `weight(tap, input of the group, output)`. Returns `None` if
/// `words` has the wrong length.
pub(crate) fn pack(
    taps: usize,
    channels: usize,
    group: usize,
    weight: impl Fn(usize, usize, usize) -> Option<i8>,
    words: &mut [f32],
) -> Option<()> {
    if words.len() != packed_len(taps, channels, group)? {
        return None;
    }
    let (quantized, sums) = words.split_at_mut_checked(words.len() - padded(channels))?;
    let quantized: &mut [i8] = bytemuck::cast_slice_mut(quantized);
    let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
    let turns = group / STEP;
    for (at, slot) in quantized.iter_mut().enumerate() {
        let (byte, at) = (at % STEP, at / STEP);
        let (word, lane, at) = (at % STEP, at / STEP % STEP, at / BLOCK);
        let (turn, at) = (at % turns, at / turns);
        let (tap, block) = (at % taps, at / taps);
        // The index of the input in its block determines the group.
        let input = word * STEP + byte;
        let output = block * BLOCK + input / group * group + turn * STEP + lane;
        *slot = if output < channels { weight(tap, input % group, output)? } else { 0 };
    }
    for (index, sum) in sums.iter_mut().enumerate() {
        *sum = 0;
        let output = channel(group, index);
        if output < channels {
            for at in 0..taps * group {
                *sum += i32::from(weight(at / group, at % group, output)?);
            }
        }
    }
    Some(())
}

/// Packed weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    quantized: &'a [i8],
    /// Sum of the weights of each channel, in packed [order](channel).
    pub(crate) sums: &'a [i32],
    group: usize,
}

impl<'a> Packed<'a> {
    /// Wraps the output of [`pack`]. Returns `None` if `words` has the wrong length.
    pub(crate) fn of(taps: usize, channels: usize, group: usize, words: &'a [f32]) -> Option<Self> {
        if words.len() != packed_len(taps, channels, group)? {
            return None;
        }
        let (quantized, sums) = words.split_at_checked(words.len() - padded(channels))?;
        Some(Packed {
            quantized: bytemuck::cast_slice(quantized),
            sums: bytemuck::cast_slice(sums),
            group,
        })
    }
}

/// Size of the tiles that an output image is divided into, and of the input that a tile reads.
struct Tiling {
    /// Number of output rows of a tile.
    rows: usize,
    /// Width of a padded input row in pixels, and in bytes.
    width: usize,
    row: usize,
    /// Words of the padded input rows of a tile.
    words: usize,
}

impl Tiling {
    fn of(windows: &Windows, threads: usize) -> Option<Self> {
        let [_, width] = windows.extent()?;
        let row = width.checked_mul(windows.input[2])?;
        let [down, _] = windows.axes;
        let tall = (down.kernel() - 1).checked_mul(down.dilation())?.checked_add(1)?;
        let near = (CACHED_BYTES / row.max(1)).saturating_sub(tall) / down.stride() + 1;
        let rows = balanced_part(threads, windows.output[0], near.max(2));
        let all = (rows.max(1) - 1).checked_mul(down.stride())?.checked_add(tall)?;
        let words = all.checked_mul(row)?.checked_add(OVERREAD)?.div_ceil(STEP);
        Some(Tiling { rows, width, row, words })
    }
}

/// Maximum size in bytes of the input rows that a thread copies. With dilation, they include the
/// rows between the taps.
const MAX_BYTES: usize = 8 << 20;

/// Whether the input rows of a tile are few enough to be copied.
pub(crate) fn are_near(windows: &Windows) -> bool {
    Tiling::of(windows, 1).is_some_and(|tiling| tiling.words.saturating_mul(STEP) <= MAX_BYTES)
}

/// Words of workspace for a convolution on `threads` threads; `None` if it exceeds the address
/// space.
pub(crate) fn workspace_len(threads: usize, windows: &Windows) -> Option<usize> {
    Tiling::of(windows, threads)?.words.checked_mul(threads.max(1))
}

/// Convolves a batch of images with padding value `outside`. `columns` has the packed
/// [order](channel).
///
/// # Errors
/// If an operand, `out` or the workspace is too short, or the tier lacks VNNI.
pub(crate) fn convolve(
    context: Context<'_>,
    (quantized, windows, outside): (&[i8], &Windows, i8),
    weights: Packed<'_>,
    columns: &Requantize<'_>,
    out: &mut [i8],
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let [_, _, channels] = windows.input;
    let [tall, wide] = windows.axes.map(|axis| axis.kernel());
    let threads = context.parallel.threads();
    let tiling = Tiling::of(windows, threads).ok_or(ShapeMismatch)?;
    let all = padded(channels);
    let fits = [columns.start.len(), columns.scales.len(), columns.bias.len()];
    if !matches!(Dots::of(context.tier).instructions(), Instructions::Vnni)
        || fits.iter().any(|len| *len < all)
        || tall.checked_mul(wide).and_then(|taps| taps.checked_mul(all * weights.group))
            != Some(weights.quantized.len())
        || workspace.len() < tiling.words
        || windows.pixel != channels
    {
        return Err(ShapeMismatch);
    }
    let line = windows.output[1] * channels;
    let made = windows.output[0] * line;
    if made == 0 {
        return Ok(());
    }
    let needed = (out.len() / made).checked_mul(windows.image()).ok_or(ShapeMismatch)?;
    let quantized = quantized.get(..needed).ok_or(ShapeMismatch)?;
    for (image, out) in out.chunks_exact_mut(made).enumerate() {
        let image = image.checked_mul(windows.image()).ok_or(ShapeMismatch)?;
        let quantized = quantized.get(image..).ok_or(ShapeMismatch)?;
        let outcome = Outcome::default();
        for_each_tile_mut(
            context.parallel,
            out,
            line,
            (tiling.rows, line),
            (&mut *workspace, tiling.words),
            &|_, tile, workspace| {
                let band = Band { windows, tiling: &tiling, weights, columns };
                let padded_rows = bytemuck::cast_slice_mut(workspace);
                let done = band.run(quantized, outside, padded_rows, tile);
                outcome.note(done.ok_or(ShapeMismatch));
            },
        );
        outcome.result()?;
    }
    Ok(())
}

/// Output rows of one tile.
struct Band<'a> {
    windows: &'a Windows,
    tiling: &'a Tiling,
    weights: Packed<'a>,
    columns: &'a Requantize<'a>,
}

impl Band<'_> {
    fn run(
        &self,
        image: &[i8],
        outside: i8,
        padded_rows: &mut [i8],
        tile: &mut Tile<'_, i8>,
    ) -> Option<()> {
        let Self { windows, tiling, weights, columns } = *self;
        let [_, _, channels] = windows.input;
        let [down, along] = windows.axes;
        let rows = tile.rows();
        let tall = (down.kernel() - 1) * down.dilation() + 1;
        let read = (rows.len().checked_sub(1)? * down.stride() + tall) * tiling.row;
        let (own, behind) = padded_rows.split_at_mut_checked(read)?;
        behind.get_mut(..OVERREAD)?.fill(0);
        windows.pad_rows(image, outside, (rows.start * down.stride(), tiling.width), own)?;
        let padded_rows = &*padded_rows;
        let taps = [down.kernel(), along.kernel()];
        let strides = [down.dilation() * tiling.row, along.dilation() * channels];
        let pitch = along.stride() * channels;
        let width = windows.output[1];
        let (corner, line) = tile.corner(rows.clone(), 0..width * channels)?;
        let panel = taps[0] * taps[1] * BLOCK * weights.group;
        let together = width.div_ceil(width.div_ceil(PIXELS));
        for block in 0..padded(channels) / BLOCK {
            let first = block * BLOCK;
            let weights = weights.quantized.get(block * panel..)?.get(..panel)?;
            let lanes = BLOCK.min(channels - first);
            for row in 0..rows.len() {
                for x in (0..width).step_by(together) {
                    let count = together.min(width - x);
                    let from = row * down.stride() * tiling.row + x * pitch + first;
                    let far = (taps[0] - 1) * strides[0] + (taps[1] - 1) * strides[1];
                    let quantized =
                        padded_rows.get(from..)?.get(..far + (count - 1) * pitch + BLOCK)?;
                    let to = corner.wrapping_add(row * line + x * channels + first);
                    let mut at = [quantized.as_ptr(); ROWS];
                    let mut out = [to; ROWS];
                    for pixel in 1..ROWS {
                        // Vectors of pixels are always full: missing pixels repeat the last one,
                        // with the same result.
                        let pixel_of = pixel.min(count - 1);
                        at[pixel] = quantized.as_ptr().wrapping_add(pixel_of * pitch);
                        out[pixel] = to.wrapping_add(pixel_of * channels);
                    }
                    let pixels =
                        vnni::Narrow { at, out, taps, strides, weights, columns, first, lanes };
                    // SAFETY: `convolve` checked that the processor has the instructions. All taps
                    // of the pixels are inside the slice taken above, with 16 bytes from each on.
                    // The tile has room for `lanes` values of each pixel, and `columns` covers all
                    // blocks.
                    unsafe {
                        match (self.weights.group, together) {
                            (STEP, ..=4) => vnni::narrow::<1, 4>(&pixels),
                            (STEP, 5) => vnni::narrow::<1, 5>(&pixels),
                            (STEP, 6) => vnni::narrow::<1, 6>(&pixels),
                            (STEP, 7) => vnni::narrow::<1, 7>(&pixels),
                            (STEP, _) => vnni::narrow::<1, 8>(&pixels),
                            (_, ..=4) => vnni::narrow::<2, 4>(&pixels),
                            (_, 5) => vnni::narrow::<2, 5>(&pixels),
                            (_, 6) => vnni::narrow::<2, 6>(&pixels),
                            (_, 7) => vnni::narrow::<2, 7>(&pixels),
                            (_, _) => vnni::narrow::<2, 8>(&pixels),
                        }
                    }
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
