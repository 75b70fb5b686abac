//! Images for vision encoders, split into tiles of the encoder's input size.

mod resize;
mod tiles;

pub use resize::Filter;
pub use tiles::{Piece, Tiling};

use crate::error::{self, Error};

/// Limits on the side length in pixels and on the bytes of an image: sizes in files are untrusted.
const MAX_SIDE: usize = 1 << 15;
const MAX_BYTES: usize = 1 << 28;

/// An RGB image with 8 bits per channel, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl RgbImage {
    /// Creates an image from interleaved RGB bytes in row-major order.
    ///
    /// # Errors
    /// The size is 0 or too large, or does not match the number of bytes.
    pub fn from_rgb(width: usize, height: usize, pixels: Vec<u8>) -> Result<Self, Error> {
        let bytes = bytes_of(width, height)?;
        if pixels.len() != bytes {
            let found = pixels.len();
            let message = format!("{width}×{height} pixels: expected {bytes} bytes, found {found}");
            return Err(Error::Image { message });
        }
        Ok(RgbImage { width, height, pixels })
    }

    /// A black image.
    fn black(width: usize, height: usize) -> Result<Self, Error> {
        let bytes = bytes_of(width, height)?;
        Ok(RgbImage { width, height, pixels: error::filled(0, bytes, "an image")? })
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Interleaved RGB bytes in row-major order.
    pub fn as_rgb(&self) -> &[u8] {
        &self.pixels
    }

    /// Converts to planar floats (CHW), as most encoders expect: values are scaled to 0..1 and
    /// normalized as `(value - mean) / std`.
    ///
    /// # Errors
    /// Too little memory is left.
    pub fn planes(&self, mean: [f32; 3], std: [f32; 3]) -> Result<Vec<f32>, Error> {
        let pixels = self.pixels.as_chunks::<3>().0;
        let mut planes = error::reserve(self.pixels.len(), "an image as floats")?;
        for (channel, (mean, std)) in mean.into_iter().zip(std).enumerate() {
            let values = pixels.iter().filter_map(|pixel| pixel.get(channel));
            planes.extend(values.map(|value| (f32::from(*value) / 255.0 - mean) / std));
        }
        Ok(planes)
    }

    /// Crops a rectangle, which must be inside the image.
    fn crop(&self, [left, top]: [usize; 2], [width, height]: [usize; 2]) -> Result<Self, Error> {
        let mut crop = RgbImage::black(width, height)?;
        let rows = self.pixels.chunks_exact(3 * self.width).skip(top);
        for (target, row) in crop.pixels.chunks_exact_mut(3 * width).zip(rows) {
            if let Some(source) = row.get(3 * left..3 * (left + width)) {
                target.copy_from_slice(source);
            }
        }
        Ok(crop)
    }

    /// Pads with black on the right and at the bottom.
    fn pad_black(&self, [width, height]: [usize; 2]) -> Result<Self, Error> {
        let mut canvas = RgbImage::black(width, height)?;
        let rows = self.pixels.chunks_exact(3 * self.width);
        for (target, row) in canvas.pixels.chunks_exact_mut(3 * width).zip(rows) {
            if let Some(target) = target.get_mut(..row.len()) {
                target.copy_from_slice(row);
            }
        }
        Ok(canvas)
    }
}

fn bytes_of(width: usize, height: usize) -> Result<usize, Error> {
    let is_side = |side: usize| (1..=MAX_SIDE).contains(&side);
    let bytes = width.saturating_mul(height).saturating_mul(3);
    match is_side(width) && is_side(height) && bytes <= MAX_BYTES {
        true => Ok(bytes),
        false => Err(Error::Image {
            message: format!(
                "{width}×{height} pixels: expected 1 to {MAX_SIDE} pixels per side, and at most \
                 {MAX_BYTES} bytes"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_per_channel() {
        let picture = RgbImage::from_rgb(2, 1, vec![255, 0, 51, 0, 255, 102]).unwrap();
        let plain = [1.0, 0.0, 0.0, 1.0, 0.2, 0.4];
        assert_eq!(picture.planes([0.0; 3], [1.0; 3]).unwrap(), plain);
        let scaled = picture.planes([0.5, 0.0, 0.2], [0.5, 2.0, 0.2]).unwrap();
        assert_eq!(scaled, [1.0, -1.0, 0.0, 0.5, 0.0, 1.0]);
        assert!(RgbImage::from_rgb(2, 1, vec![0; 5]).is_err());
        assert!(RgbImage::from_rgb(0, 1, Vec::new()).is_err());
    }
}
