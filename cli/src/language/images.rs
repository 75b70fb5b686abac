//! Preprocessing of images for vision encoders.

use super::inputs::Part;
use crate::failure::Failure;
use crate::image_input;
use clap::{Args, ValueEnum};
use torchlet::core::TensorInfo;
use torchlet::llm::{Piece, RgbImage, Tiling};

/// Tiling of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cut {
    /// Fit the undistorted image onto a canvas of tiles, as Llama 3.2 Vision does
    Canvas,
    /// Resize to the closest aspect ratio of tiles, followed by the whole image, as InternVL does
    Closest,
    /// Use `--tiles` tiles along the longer side, separated by text, followed by the whole image,
    /// as Idefics 3 and SmolVLM do
    Rows,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TilingOptions {
    /// Split images into tiles of the encoder's input size
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) tiling: Option<Cut>,
    /// Maximum tiles per image [default: 4]
    #[arg(long, value_name = "N", requires = "tiling")]
    pub(crate) tiles: Option<usize>,
}

impl TilingOptions {
    pub(crate) fn tiling(&self) -> Option<Tiling> {
        let count = self.tiles.unwrap_or(4);
        self.tiling.map(|cut| match cut {
            Cut::Canvas => Tiling::Canvas(count),
            Cut::Closest => Tiling::Closest(count),
            Cut::Rows => Tiling::Rows(count),
        })
    }
}

/// Image preprocessing options; see [`image_input::decode`].
#[derive(Debug, Clone, Default)]
pub(super) struct ImageOptions {
    pub(super) mean: Vec<f32>,
    pub(super) std: Vec<f32>,
    pub(super) tiling: Option<Tiling>,
}

impl ImageOptions {
    /// Checks the options against the encoder's input.
    ///
    /// # Errors
    ///
    /// If normalization or tiling do not fit it.
    pub(super) fn check(&self, info: &TensorInfo) -> Result<(), Failure> {
        let (channels, height, width) = image_input::check(info, &self.mean, &self.std)?;
        let Some(tiling) = self.tiling else { return Ok(()) };
        if channels != 3 {
            return Err(Failure::new(format!(
                "--tiling requires an encoder of RGB images, but the program's has {channels} \
                 channels"
            )));
        }
        // Tiling errors do not depend on the image.
        let point = RgbImage::from_rgb(1, 1, vec![0; 3])?;
        point.tiles([width, height], tiling).map(drop).map_err(Failure::from)
    }

    /// Maximum number of tensors per image.
    #[cfg(feature = "serve")]
    pub(super) fn max_tensors(&self) -> usize {
        self.tiling.map_or(1, Tiling::max_tiles)
    }

    /// Decodes an image file to parts of a prompt: one tensor, or tiles and the text between them.
    pub(super) fn parts(&self, bytes: &[u8], info: &TensorInfo) -> Result<Vec<Part>, Failure> {
        let Some(tiling) = self.tiling else {
            return Ok(vec![Part::Image(image_input::decode(bytes, info, &self.mean, &self.std)?)]);
        };
        let (_, height, width) = image_input::check(info, &self.mean, &self.std)?;
        let image = image_input::open(bytes)?.into_rgb8();
        let (wide, high) = (image.width() as usize, image.height() as usize);
        let picture = RgbImage::from_rgb(wide, high, image.into_raw())?;
        let part = |piece: Piece| {
            let picture = match piece {
                Piece::Text(text) => return Ok(Part::Text(text)),
                Piece::Tile(picture) => picture,
            };
            let (wide, high) = (picture.width() as u32, picture.height() as u32);
            let image = image::RgbImage::from_raw(wide, high, picture.as_rgb().to_vec())
                .ok_or_else(|| {
                    Failure::new("internal error: the data of a tile does not match its size")
                })?;
            let (mean, std) = (&self.mean, &self.std);
            image_input::tensor(image.into(), info, mean, std).map(Part::Image)
        };
        picture.tiles([width, height], tiling)?.into_iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use torchlet::ScalarType;

    fn options(tiling: Tiling) -> ImageOptions {
        ImageOptions { mean: vec![0.5], std: vec![0.5], tiling: Some(tiling) }
    }

    #[test]
    fn tiles_are_parts_of_a_prompt() {
        let info = TensorInfo::contiguous(ScalarType::Float, &[1, 3, 8, 8]).unwrap();
        let mut image = image::RgbImage::new(16, 8);
        image.put_pixel(0, 0, image::Rgb([255, 0, 51]));
        image.put_pixel(15, 7, image::Rgb([0, 0, 255]));
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        let parts = options(Tiling::Canvas(4)).parts(bytes.get_ref(), &info).unwrap();
        let tensor = |part: &Part| match part {
            Part::Image(tensor) => {
                assert_eq!(tensor.shape(), [1, 3, 8, 8]);
                tensor.as_slice::<f32>().unwrap().to_vec()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(parts.len(), 2);
        let (left, right) = (tensor(&parts[0]), tensor(&parts[1]));
        assert_eq!((left[0], left[64], left[1]), (1.0, -1.0, -1.0));
        assert_eq!((right[63], right[191]), (-1.0, 1.0));
        let parts = options(Tiling::Rows(2)).parts(bytes.get_ref(), &info).unwrap();
        let texts = parts.iter().filter(|part| matches!(part, Part::Text(_))).count();
        assert_eq!((texts, parts.len() - texts), (4, 3));
        assert!(options(Tiling::Rows(2)).parts(b"no picture", &info).is_err());
    }

    #[test]
    fn invalid_options_are_rejected_without_images() {
        let info = |sizes: &[i32]| TensorInfo::contiguous(ScalarType::Float, sizes).unwrap();
        assert!(options(Tiling::Canvas(4)).check(&info(&[1, 3, 8, 8])).is_ok());
        for (tiling, sizes) in [
            (Tiling::Canvas(0), [1, 3, 8, 8]),
            (Tiling::Rows(40), [1, 3, 8, 8]),
            (Tiling::Canvas(4), [1, 3, 8, 16]),
            (Tiling::Canvas(4), [1, 1, 8, 8]),
        ] {
            assert!(options(tiling).check(&info(&sizes)).is_err(), "{tiling:?} {sizes:?}");
        }
    }
}
