//! Depthwise int8 convolution, channels last.
//!
//! Weights are packed as 16-bit integers, for blocks of 32 channels and pairs of taps. In a block,
//! the first four of each eight channels come first, then the others: the order in which vector
//! instructions unpack bytes. Parameters of the requantization have the same order.

use super::Requantize;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::arm;
use super::windows::Windows;
#[cfg(target_arch = "x86_64")]
use super::{avx2, vnni};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::Dots;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
use crate::compute::simd::Instructions;
use crate::compute::split::{Outcome, for_each_chunk_mut};

/// Number of channels of a block, which is computed at a time.
pub(crate) const BLOCK: usize = 32;
/// Maximum number of taps of a window.
pub(crate) const TAPS: usize = 64;
/// Taps of a 3×3 kernel, rounded up to pairs.
const TAPS_3X3: usize = 10;

/// Number of channels, padded to whole blocks.
pub(crate) fn padded(channels: usize) -> usize {
    channels.next_multiple_of(BLOCK)
}

/// The channel at an index of the packed order, relative to its block.
pub(crate) fn channel(index: usize) -> usize {
    let (half, at) = (index / 16, index % 16);
    at / 4 * 8 + half * 4 + at % 4
}

/// Packed length of the weights in 32-bit words; `None` if it exceeds the address space.
pub(crate) fn packed_len(taps: usize, channels: usize) -> Option<usize> {
    // A word holds the weights of two taps. The sum of each channel's weights follows at the end.
    let pairs = taps.div_ceil(2).checked_add(1)?;
    padded(channels).checked_mul(pairs)
}

/// Packs the weights returned by `weight(tap, channel)`. Returns `None` if `words` has the wrong
/// length.
pub(crate) fn pack(
    taps: usize,
    channels: usize,
    weight: impl Fn(usize, usize) -> Option<i8>,
    words: &mut [f32],
) -> Option<()> {
    if words.len() != packed_len(taps, channels)? {
        return None;
    }
    let (weights, sums) = words.split_at_mut_checked(words.len() - padded(channels))?;
    let weights: &mut [i16] = bytemuck::cast_slice_mut(weights);
    let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
    let pairs = taps.div_ceil(2);
    for (index, sum) in sums.iter_mut().enumerate() {
        *sum = 0;
        let (block, within) = (index / BLOCK, index % BLOCK);
        let channel = block * BLOCK + channel(within);
        for tap in 0..pairs * 2 {
            let is_there = tap < taps && channel < channels;
            let weight = if is_there { i16::from(weight(tap, channel)?) } else { 0 };
            *weights.get_mut((block * pairs + tap / 2) * BLOCK * 2 + within * 2 + tap % 2)? =
                weight;
            *sum += i32::from(weight);
        }
    }
    Some(())
}

/// Packed weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    weights: &'a [[[i16; BLOCK]; 2]],
    /// Sum of the weights of each channel, in the packed order.
    pub(crate) sums: &'a [i32],
}

impl<'a> Packed<'a> {
    /// Wraps the output of [`pack`]. Returns `None` if `words` has the wrong length.
    pub(crate) fn of(taps: usize, channels: usize, words: &'a [f32]) -> Option<Self> {
        if words.len() != packed_len(taps, channels)? {
            return None;
        }
        let (weights, sums) = words.split_at_checked(words.len() - padded(channels))?;
        let weights: &[i16] = bytemuck::cast_slice(weights);
        let (halves, _) = weights.as_chunks::<BLOCK>();
        Some(Packed { weights: halves.as_chunks::<2>().0, sums: bytemuck::cast_slice(sums) })
    }
}

/// A batch of quantized images, contiguous in memory, and the padding value of each channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Images<'a> {
    pub(crate) batch: usize,
    pub(crate) windows: &'a Windows,
    pub(crate) quantized: &'a [i8],
    pub(crate) outside: &'a [i8],
}

/// Convolves a batch of images. `columns` has the packed order.
///
/// # Errors
/// If an operand or `out` is too short.
pub(crate) fn convolve(
    context: Context<'_>,
    images: &Images<'_>,
    weights: Packed<'_>,
    columns: &Requantize<'_>,
    out: &mut [i8],
) -> Result<(), ShapeMismatch> {
    let Images { batch, windows, quantized: images, outside } = *images;
    let channels = windows.input[2];
    let taps = windows.axes[0].kernel().checked_mul(windows.axes[1].kernel());
    let taps = taps.filter(|taps| *taps <= TAPS).ok_or(ShapeMismatch)?;
    let blocks = padded(channels) / BLOCK;
    let line = windows.output[1].checked_mul(channels).ok_or(ShapeMismatch)?;
    let rows = windows.output[0].checked_mul(batch).ok_or(ShapeMismatch)?;
    let needed = windows.image().checked_mul(batch).ok_or(ShapeMismatch)?;
    let columns_fit = [columns.start.len(), columns.scales.len(), columns.bias.len()];
    if images.len() < needed
        || weights.weights.len() != blocks * taps.div_ceil(2)
        || columns_fit.iter().any(|len| *len < padded(channels))
        || outside.len() < channels
    {
        return Err(ShapeMismatch);
    }
    let out = out.get_mut(..rows.checked_mul(line).ok_or(ShapeMismatch)?).ok_or(ShapeMismatch)?;
    let dots = Dots::of(context.tier);
    let outcome = Outcome::default();
    for_each_chunk_mut(context.parallel, out, line, &|row, out| {
        let (image, y) = (row / windows.output[0], row % windows.output[0]);
        let image = images.get(image * windows.image()..).unwrap_or_default();
        let line = Line { windows, image, y, weights, columns, outside, taps, dots };
        let done = if taps <= TAPS_3X3 { line.run::<TAPS_3X3>(out) } else { line.run::<TAPS>(out) };
        outcome.note(done.ok_or(ShapeMismatch));
    });
    outcome.result()
}

/// One row of the result.
struct Line<'a> {
    windows: &'a Windows,
    image: &'a [i8],
    y: usize,
    weights: Packed<'a>,
    columns: &'a Requantize<'a>,
    outside: &'a [i8],
    taps: usize,
    dots: Dots,
}

/// Input of a tap: the data from the first pixel on, and the stride of pixels.
#[derive(Clone, Copy)]
struct Tap<'a> {
    quantized: &'a [i8],
    step: usize,
}

impl Line<'_> {
    /// Computes a row, for windows of at most `MAX_TAPS` taps.
    fn run<const MAX_TAPS: usize>(&self, out: &mut [i8]) -> Option<()> {
        let width = self.windows.output[1];
        let cols = self.windows.axes[1];
        // Windows inside the image are computed as one run; those at the borders, one by one.
        let is_inside = |x: usize| cols.taps(x, self.windows.input[1]).count == cols.kernel();
        let first = (0..width).find(|x| is_inside(*x)).unwrap_or(width);
        let last = (first..width).rfind(|x| is_inside(*x)).map_or(first, |last| last + 1);
        for x in 0..first {
            self.pixels::<MAX_TAPS>(x, 1, out)?;
        }
        if last > first {
            self.pixels::<MAX_TAPS>(first, last - first, out)?;
        }
        for x in last..width {
            self.pixels::<MAX_TAPS>(x, 1, out)?;
        }
        Some(())
    }

    /// Computes `count` pixels starting at `x`.
    fn pixels<const MAX_TAPS: usize>(&self, x: usize, count: usize, out: &mut [i8]) -> Option<()> {
        let [_, width, channels] = self.windows.input;
        let [rows, cols] = self.windows.axes;
        let tall = rows.taps(self.y, self.windows.input[0]);
        let wide = cols.taps(x, width);
        let step = cols.stride() * channels;
        let beside = Tap { quantized: self.outside, step: 0 };
        let mut taps = [beside; MAX_TAPS];
        for row in tall.first..tall.first + tall.count {
            for col in wide.first..wide.first + wide.count {
                let y = tall.start + (row - tall.first) * rows.dilation();
                let from = wide.start + (col - wide.first) * cols.dilation();
                let quantized = self.image.get((y * width + from) * channels..)?;
                // Bounds check for the last pixel.
                quantized.get(..(count - 1) * step + channels)?;
                *taps.get_mut(row * cols.kernel() + col)? = Tap { quantized, step };
            }
        }
        let pairs = self.taps.div_ceil(2);
        let taps = taps.get(..pairs * 2)?;
        let out = out.get_mut(x * channels..(x + count) * channels)?;
        for (block, weights) in self.weights.weights.chunks_exact(pairs).enumerate() {
            let at = block * BLOCK;
            let columns = Requantize {
                start: self.columns.start.get(at..at + BLOCK)?,
                scales: self.columns.scales.get(at..at + BLOCK)?,
                bias: self.columns.bias.get(at..at + BLOCK)?,
                range: self.columns.range,
                exact: match self.columns.exact {
                    Some(exact) => Some(exact.part(at, BLOCK)?),
                    None => None,
                },
            };
            let own = BLOCK.min(channels - at);
            match self.dots.instructions() {
                #[cfg(target_arch = "x86_64")]
                Instructions::Vnni => {
                    let lanes = vnni::Lanes { weights, columns, channels: own };
                    let mut pointers = [(core::ptr::null(), 0); MAX_TAPS];
                    for (slot, tap) in pointers.iter_mut().zip(taps) {
                        *slot = (tap.quantized.get(at..)?.as_ptr(), tap.step);
                    }
                    let pointers = pointers.get(..taps.len())?;
                    let to = out.get_mut(at..)?.as_mut_ptr();
                    // SAFETY: the processor has the instructions. Each tap has the channels of all
                    // pixels, as checked above, and so has the output. Columns and weights are
                    // those of one block.
                    unsafe {
                        match pairs {
                            5 => vnni::pixels::<5>(&lanes, pointers, count, to, channels),
                            _ => vnni::pixels::<0>(&lanes, pointers, count, to, channels),
                        }
                    }
                }
                other => {
                    for pixel in 0..count {
                        let mut sums = [[0i32; BLOCK / 2]; 2];
                        for (pair, weights) in taps.chunks_exact(2).zip(weights) {
                            let mut quantized = [[0i8; BLOCK]; 2];
                            for (quantized, tap) in quantized.iter_mut().zip(pair) {
                                let from =
                                    tap.quantized.get(pixel * tap.step + at..)?.get(..own)?;
                                quantized.get_mut(..own)?.copy_from_slice(from);
                            }
                            match other {
                                #[cfg(target_arch = "x86_64")]
                                // SAFETY: `Dots` proves that the processor has the instructions.
                                Instructions::Avx2 => unsafe {
                                    avx2::add_pair(&quantized, weights, &mut sums);
                                },
                                #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                                // SAFETY: as above.
                                Instructions::Dot | Instructions::I8mm => unsafe {
                                    arm::add_pair(&quantized, weights, &mut sums);
                                },
                                _ => add_pair(&quantized, weights, &mut sums),
                            }
                        }
                        let to = out.get_mut(pixel * channels + at..)?.get_mut(..own)?;
                        finish(&sums, &columns, to);
                    }
                }
            }
        }
        Some(())
    }
}

/// Adds the products of a pair of taps.
fn add_pair(quantized: &[[i8; BLOCK]; 2], weights: &[[i16; BLOCK]; 2], sums: &mut [[i32; 16]; 2]) {
    for (index, sum) in sums.iter_mut().flatten().enumerate() {
        let channel = channel(index);
        let weights = [0, 1].map(|tap| i32::from(weights[index / 16][index % 16 * 2 + tap]));
        *sum += i32::from(quantized[0][channel]) * weights[0];
        *sum += i32::from(quantized[1][channel]) * weights[1];
    }
}

/// Requantizes the sums of a block.
#[inline(always)]
fn finish(sums: &[[i32; 16]; 2], columns: &Requantize<'_>, out: &mut [i8]) {
    let mut quantized = [0i8; BLOCK];
    let all = sums.iter().flatten().zip(columns.start).zip(columns.scales).zip(columns.bias);
    for (index, (((sum, start), scale), bias)) in all.enumerate() {
        let sum = start.wrapping_add(*sum);
        quantized[channel(index)] = columns.quantize(sum, index, sum as f32 * scale + bias);
    }
    out.copy_from_slice(&quantized[..out.len()]);
}
