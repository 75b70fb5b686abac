//! Image resizing, bit-exact with Pillow, which models were trained with. (Since version 13, Pillow
//! processes columns before rows if that is faster, which can change values by one. Models are
//! older.)
//!
//! Each output pixel is a weighted sum over the support of a filter kernel. For downscaling, the
//! kernel is widened by the scale factor. Rows are processed before columns, with fixed-point
//! weights in units of 2⁻²² and rounding to bytes in between.

use super::{MAX_BYTES, RgbImage};
use crate::error::{self, Error};
use std::f64::consts::PI;
use std::ops::Range;

/// Interpolation filter for resizing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filter {
    /// Bilinear: Pillow's `BILINEAR`, `torchvision`'s with `antialias`.
    Bilinear,
    /// Bicubic: Pillow's `BICUBIC`.
    Bicubic,
    /// Windowed sinc: Pillow's `LANCZOS`.
    Lanczos,
}

/// Fractional bits of a weight.
const BITS: u32 = 22;

impl Filter {
    /// Radius of the kernel.
    fn reach(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn curve(self, x: f64) -> f64 {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        let distance = x.abs();
        match self {
            Filter::Bilinear if distance < 1.0 => 1.0 - distance,
            Filter::Bicubic if distance < 1.0 => {
                ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0
            }
            Filter::Bicubic if distance < 2.0 => {
                (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A
            }
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }

    /// Range of input pixels, and their weights, for each output pixel along one axis.
    fn windows(self, from: usize, to: usize) -> Vec<(Range<usize>, Vec<i64>)> {
        let scale = from as f64 / to as f64;
        let width = scale.max(1.0);
        let reach = self.reach() * width;
        let window = |at: usize| {
            let middle = (at as f64 + 0.5) * scale;
            // The cast saturates negative values to 0.
            let first = (middle - reach + 0.5) as usize;
            let end = ((middle + reach + 0.5) as usize).min(from);
            let weights = (first..end)
                .map(|source| self.curve((source as f64 - middle + 0.5) * (1.0 / width)));
            let weights: Vec<f64> = weights.collect();
            let sum: f64 = weights.iter().sum();
            let whole = |weight: f64| {
                let weight = if sum == 0.0 { weight } else { weight / sum };
                let scaled = weight * f64::from(1u32 << BITS);
                (if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i64
            };
            (first..end, weights.into_iter().map(whole).collect())
        };
        (0..to).map(window).collect()
    }
}

/// Parameter of Pillow's bicubic kernel.
const A: f64 = -0.5;

/// Rounds a fixed-point sum to a byte.
fn rounded(sum: i64) -> u8 {
    ((sum + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8
}

impl RgbImage {
    /// Resizes the image.
    ///
    /// # Errors
    /// The new size is 0 or too large.
    pub fn resized(&self, width: usize, height: usize, filter: Filter) -> Result<RgbImage, Error> {
        let mut resized = RgbImage::black(width, height)?;
        // Size of the intermediate image: new width, old height.
        let between = 3 * width.saturating_mul(self.height);
        if between > MAX_BYTES {
            let RgbImage { width: from, height: rows, .. } = self;
            let message = format!(
                "cannot resize {from}×{rows} to {width}×{height} pixels: this needs {between} \
                 bytes, more than {MAX_BYTES}"
            );
            return Err(Error::Image { message });
        }
        let narrowed: Vec<u8> = match width == self.width {
            true => {
                let mut copy = error::reserve(self.pixels.len(), "a resized image")?;
                copy.extend_from_slice(&self.pixels);
                copy
            }
            false => {
                let windows = filter.windows(self.width, width);
                let mut narrowed = error::reserve(between, "a resized image")?;
                for row in self.pixels.chunks_exact(3 * self.width) {
                    let pixels = row.as_chunks::<3>().0;
                    for (range, weights) in &windows {
                        let pixels = pixels.get(range.clone()).unwrap_or_default();
                        let mut sums = [0i64; 3];
                        for (pixel, weight) in pixels.iter().zip(weights) {
                            for (sum, value) in sums.iter_mut().zip(pixel) {
                                *sum += i64::from(*value) * weight;
                            }
                        }
                        narrowed.extend(sums.map(rounded));
                    }
                }
                narrowed
            }
        };
        if height == self.height {
            resized.pixels = narrowed;
            return Ok(resized);
        }
        let windows = filter.windows(self.height, height);
        let mut sums = vec![0i64; 3 * width];
        for (target, (range, weights)) in resized.pixels.chunks_exact_mut(3 * width).zip(&windows) {
            sums.fill(0);
            let rows = narrowed.chunks_exact(3 * width).skip(range.start);
            for (row, weight) in rows.zip(weights) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += i64::from(*value) * weight;
                }
            }
            for (target, sum) in target.iter_mut().zip(&sums) {
                *target = rounded(*sum);
            }
        }
        Ok(resized)
    }
}
