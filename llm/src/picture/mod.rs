//! Pictures for encoders that take more of one than its points: cut into tiles of the size that an
//! encoder takes.

mod resize;
mod tiles;

pub use resize::Filter;
pub use tiles::{Piece, Tiling};

use crate::error::Error;

/// The most points a side, and bytes, of a picture here: files say what they like.
const MAX_SIDE: usize = 1 << 15;
const MAX_BYTES: usize = 1 << 28;

/// Points in rows, each of red, green and blue from 0 to 255.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    points: Vec<u8>,
}

impl Picture {
    /// A picture of these points, row by row.
    ///
    /// # Errors
    /// There are none, too many, or others than three bytes for each point.
    pub fn from_rgb(width: usize, height: usize, points: Vec<u8>) -> Result<Self, Error> {
        let bytes = bytes_of(width, height)?;
        if points.len() != bytes {
            let found = points.len();
            let message = format!("{width}×{height} points take {bytes} bytes, not {found}");
            return Err(Error::Picture { message });
        }
        Ok(Picture { width, height, points })
    }

    /// Black.
    fn black(width: usize, height: usize) -> Result<Self, Error> {
        let bytes = bytes_of(width, height)?;
        Ok(Picture { width, height, points: vec![0; bytes] })
    }

    /// Points from left to right.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Points from top to bottom.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The points, row by row.
    pub fn as_rgb(&self) -> &[u8] {
        &self.points
    }

    /// The points as most encoders take them: all reds, all greens, all blues, each from 0 to 1,
    /// then `(value - mean) / std`.
    pub fn planes(&self, mean: [f32; 3], std: [f32; 3]) -> Vec<f32> {
        let points = self.points.as_chunks::<3>().0;
        let mut planes = Vec::with_capacity(self.points.len());
        for (channel, (mean, std)) in mean.into_iter().zip(std).enumerate() {
            let values = points.iter().filter_map(|point| point.get(channel));
            planes.extend(values.map(|value| (f32::from(*value) / 255.0 - mean) / std));
        }
        planes
    }

    /// A part that lies within the picture.
    fn part(&self, [left, top]: [usize; 2], [width, height]: [usize; 2]) -> Result<Self, Error> {
        let mut part = Picture::black(width, height)?;
        let rows = self.points.chunks_exact(3 * self.width).skip(top);
        for (target, row) in part.points.chunks_exact_mut(3 * width).zip(rows) {
            if let Some(source) = row.get(3 * left..3 * (left + width)) {
                target.copy_from_slice(source);
            }
        }
        Ok(part)
    }

    /// The picture in the top left corner of a black one that is at least as large.
    fn on_black(&self, [width, height]: [usize; 2]) -> Result<Self, Error> {
        let mut canvas = Picture::black(width, height)?;
        let rows = self.points.chunks_exact(3 * self.width);
        for (target, row) in canvas.points.chunks_exact_mut(3 * width).zip(rows) {
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
        false => Err(Error::Picture {
            message: format!(
                "{width}×{height} points; a picture has 1 to {MAX_SIDE} a side, and at most {MAX_BYTES} bytes"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_of_a_colour_each() {
        let picture = Picture::from_rgb(2, 1, vec![255, 0, 51, 0, 255, 102]).unwrap();
        let plain = [1.0, 0.0, 0.0, 1.0, 0.2, 0.4];
        assert_eq!(picture.planes([0.0; 3], [1.0; 3]), plain);
        let scaled = picture.planes([0.5, 0.0, 0.2], [0.5, 2.0, 0.2]);
        assert_eq!(scaled, [1.0, -1.0, 0.0, 0.5, 0.0, 1.0]);
        assert!(Picture::from_rgb(2, 1, vec![0; 5]).is_err());
        assert!(Picture::from_rgb(0, 1, Vec::new()).is_err());
    }
}
