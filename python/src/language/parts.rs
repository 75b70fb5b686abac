//! Parts of a prompt: text, tokens, images and audio.

use crate::error::{Failure, invalid};
use crate::tensor::Tensor;
use pyo3::prelude::*;
use torchlet::core::ScalarType;
use torchlet::llm::{self, Input, Piece, Tiling};

/// A part of a prompt; it borrows nothing from Python.
pub(super) enum Part {
    Text(String),
    Tokens(Vec<u32>),
    Image(torchlet::Tensor),
    Audio(torchlet::Tensor),
    RgbImage(RgbImage),
}

/// An image with its preprocessing options.
pub(super) struct RgbImage {
    points: llm::RgbImage,
    tiling: Option<Tiling>,
    mean: [f32; 3],
    std: [f32; 3],
}

/// Pixels, tiling, number of tiles, mean, standard deviation.
type PictureSource<'py> = (Bound<'py, PyAny>, Option<String>, usize, Vec<f32>, Vec<f32>);

impl RgbImage {
    fn of((points, tiling, tiles, mean, std): PictureSource<'_>) -> PyResult<Self> {
        let none = || {
            invalid(format!(
                "{} supports neither the buffer protocol nor DLPack",
                points.get_type()
            ))
        };
        let tensor = Tensor::from_object(&points)?.ok_or_else(none)?.facade()?;
        let (height, width) = match (tensor.scalar_type(), tensor.shape()) {
            (ScalarType::Byte, [height, width, 3]) => (*height, *width),
            (scalar_type, shape) => {
                let found = format!("{} {shape:?}", scalar_type.name());
                return Err(invalid(format!(
                    "image: expected uint8 [height, width, 3], found {found}"
                )));
            }
        };
        let points = tensor.to_vec::<u8>().map_err(Failure::from)?;
        let tiling = match tiling.as_deref() {
            None => None,
            Some("canvas") => Some(Tiling::Canvas(tiles)),
            Some("closest") => Some(Tiling::Closest(tiles)),
            Some("rows") => Some(Tiling::Rows(tiles)),
            Some(other) => {
                let known = "'canvas', 'closest' or 'rows'";
                return Err(invalid(format!("tiling: expected {known}, found {other:?}")));
            }
        };
        let each = |name: &str, values: Vec<f32>| match *values {
            [one] => Ok([one; 3]),
            [red, green, blue] => Ok([red, green, blue]),
            _ => Err(invalid(format!("{name}: expected 1 or 3 values, found {}", values.len()))),
        };
        let (mean, std) = (each("mean", mean)?, each("std", std)?);
        if !mean.iter().chain(&std).all(|value| value.is_finite()) || std.contains(&0.0) {
            return Err(invalid(
                "mean and std: expected finite values, and nonzero ones for std".into(),
            ));
        }
        let points = llm::RgbImage::from_rgb(width, height, points).map_err(Failure::from)?;
        Ok(RgbImage { points, tiling, mean, std })
    }

    /// Preprocesses the image for the encoder: tiles, and the text between them.
    fn parts(&self, runner: &llm::Runner) -> Result<Vec<Part>, Failure> {
        let none = || {
            Failure::invalid("the program does not accept images: it has no vision_encoder".into())
        };
        let info = runner.image_input().ok_or_else(none)?;
        let shape: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
        let (height, width) = match *shape {
            [1, 3, height, width] | [3, height, width] => (height, width),
            _ => {
                let message = format!(
                    "image input of the program: expected [1, 3, height, width], found {info}"
                );
                return Err(Failure::invalid(message));
            }
        };
        let pieces = match self.tiling {
            Some(tiling) => self.points.tiles([width, height], tiling)?,
            None => {
                vec![Piece::Tile(self.points.resized(width, height, llm::Filter::Bilinear)?)]
            }
        };
        let part = |piece: Piece| {
            let tile = match piece {
                Piece::Text(text) => return Ok(Part::Text(text)),
                Piece::Tile(tile) => tile,
            };
            let values = match info.scalar_type {
                ScalarType::Byte => {
                    let values = tile.planes([0.0; 3], [1.0; 3])?.into_iter();
                    values.map(|value| (value * 255.0).round()).collect()
                }
                _ => tile.planes(self.mean, self.std)?,
            };
            let tensor = torchlet::Tensor::from_vec(&shape, values)?.to_type(info.scalar_type)?;
            Ok(Part::Image(tensor))
        };
        pieces.into_iter().map(part).collect()
    }
}

impl Part {
    /// Converts a part by its kind.
    pub(super) fn of((kind, value): &(String, Bound<'_, PyAny>)) -> PyResult<Self> {
        let tensor = || {
            let none = || {
                invalid(format!(
                    "{} supports neither the buffer protocol nor DLPack",
                    value.get_type()
                ))
            };
            let tensor = Tensor::from_object(value)?.ok_or_else(none)?;
            Ok::<_, PyErr>(tensor.facade()?)
        };
        Ok(match kind.as_str() {
            "text" => Part::Text(value.extract()?),
            "tokens" => Part::Tokens(value.extract()?),
            "image" => Part::Image(tensor()?),
            "audio" => Part::Audio(tensor()?),
            "picture" => Part::RgbImage(RgbImage::of(value.extract()?)?),
            other => {
                return Err(invalid(format!(
                    "prompt part: expected text, tokens, image, audio or picture, found {other:?}"
                )));
            }
        })
    }

    /// Preprocesses an image, and converts images and audio to the dim order of the encoder's
    /// input.
    pub(super) fn laid_out(self, runner: &llm::Runner) -> Result<Vec<Part>, Failure> {
        let mut parts = match self {
            Part::RgbImage(picture) => picture.parts(runner)?,
            part => vec![part],
        };
        parts.iter_mut().try_for_each(|part| part.lay_out(runner))?;
        Ok(parts)
    }

    fn lay_out(&mut self, runner: &llm::Runner) -> Result<(), Failure> {
        let (tensor, info) = match self {
            Part::Image(tensor) => (tensor, runner.image_input()),
            Part::Audio(tensor) => (tensor, runner.audio_input()),
            Part::Text(_) | Part::Tokens(_) | Part::RgbImage(_) => return Ok(()),
        };
        if let Some(info) = info
            && info.rank() == tensor.dim_order().len()
        {
            *tensor = tensor.to_dim_order(&info.dim_order)?;
        }
        Ok(())
    }

    pub(super) fn input(&self) -> Input<'_> {
        match self {
            Part::Text(text) => Input::Text(text),
            Part::Tokens(tokens) => Input::Tokens(tokens),
            Part::Image(tensor) => Input::Image(tensor.as_tensor_ref()),
            Part::Audio(tensor) => Input::Audio(tensor.as_tensor_ref()),
            // Images are preprocessed by `laid_out` before.
            Part::RgbImage(_) => Input::Tokens(&[]),
        }
    }
}
