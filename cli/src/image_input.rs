//! Images as inputs.

use crate::budget;
use crate::failure::Failure;
use image::ImageDecoder;
use image::imageops::FilterType;
use image::metadata::Orientation;
use std::io::Cursor;
use std::path::Path;
use torchlet::core::TensorInfo;
use torchlet::{ScalarType, Tensor};

/// Returns whether an input has the shape of an image, `[N, C, H, W]` or `[C, H, W]` with one or
/// three channels, and a floating-point or byte type.
pub(crate) fn is_image_input(info: &TensorInfo) -> bool {
    let element = info.scalar_type;
    plane(info).is_some() && (element.is_floating() || element == ScalarType::Byte)
}

/// Channels, height and width.
fn plane(info: &TensorInfo) -> Option<(usize, usize, usize)> {
    let sizes: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
    match *sizes {
        [_, channels @ (1 | 3), height, width] | [channels @ (1 | 3), height, width] => {
            Some((channels, height, width)).filter(|_| height > 0 && width > 0)
        }
        _ => None,
    }
}

/// Selects the value for a channel from one value or one per channel.
fn of_channel(values: &[f32], channel: usize, default: f32) -> f32 {
    match values {
        [] => default,
        [one] => *one,
        many => many.get(channel).copied().unwrap_or(default),
    }
}

/// Limits of images, per side in pixels and in bytes: a small file can claim any size.
const MAX_SIDE: u32 = 16_384;
const MAX_BYTES: u64 = 256 << 20;

/// Reads an image file as a tensor for an input; see [`decode`].
pub(crate) fn read(
    path: &Path,
    info: &TensorInfo,
    mean: &[f32],
    std: &[f32],
) -> Result<Tensor, Failure> {
    let in_file =
        |what: &dyn std::fmt::Display| Failure::new(format!("'{}': {what}", path.display()));
    let bytes = budget::read_file(path, budget::MAX_IMAGE)?;
    decode(&bytes, info, mean, std).map_err(|error| in_file(&error))
}

/// Peak number of bytes while an image for this input is prepared: scaled with 16-bit channels,
/// then as `f32`, interleaved and planar, then in the type of the input.
pub(crate) fn needed(info: &TensorInfo) -> usize {
    const SCALED: usize = 4 * size_of::<u16>();
    let (floats, numel) = (2 * size_of::<f32>(), info.numel());
    numel.saturating_mul(SCALED + floats).saturating_add(info.nbytes())
}

/// Returns channels, height and width of an input.
///
/// # Errors
///
/// If the input is not an image, or if `mean` or `std` do not fit it.
pub(crate) fn check(
    info: &TensorInfo,
    mean: &[f32],
    std: &[f32],
) -> Result<(usize, usize, usize), Failure> {
    let (channels, height, width) = plane(info).ok_or_else(|| {
        Failure::new(format!(
            "expected an image input [batch, 1 or 3 channels, height, width], found {info}"
        ))
    })?;
    for (name, values) in [("--mean", mean), ("--std", std)] {
        if values.len() > 1 && values.len() != channels {
            let found = values.len();
            return Err(Failure::new(format!(
                "{name} has {found} values, but the input has {channels} channels; pass 1 or \
                 {channels} values"
            )));
        }
        let is_wrong = |value: &&f32| !value.is_finite() || name == "--std" && **value == 0.0;
        if let Some(value) = values.iter().find(is_wrong) {
            let wanted = if name == "--std" { "finite nonzero" } else { "finite" };
            return Err(Failure::new(format!(
                "{name} has the value {value}; expected {wanted} numbers"
            )));
        }
    }
    Ok((channels, height, width))
}

/// Decodes an image file to a tensor for an input. The image is cropped in the middle to the
/// input's aspect ratio, scaled to its size, converted to values from 0 to 1, and normalized as
/// `(value - mean) / std`. Byte inputs get values from 0 to 255 instead.
pub(crate) fn decode(
    bytes: &[u8],
    info: &TensorInfo,
    mean: &[f32],
    std: &[f32],
) -> Result<Tensor, Failure> {
    let (_, height, width) = check(info, mean, std)?;
    let image = open(bytes)?;
    let (wide, high) =
        (u32::try_from(width).unwrap_or(u32::MAX), u32::try_from(height).unwrap_or(u32::MAX));
    let image = if (image.width(), image.height()) == (wide, high) {
        image
    } else {
        fill(&image, wide, high)
    };
    tensor(image, info, mean, std)
}

/// Decodes an image file and applies its EXIF orientation.
pub(crate) fn open(bytes: &[u8]) -> Result<image::DynamicImage, Failure> {
    let mut reader = image::ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .map_err(|error| Failure::new(error.to_string()))?;
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_BYTES);
    reader.limits(limits.clone());
    let fail = |error: image::ImageError| Failure::new(error.to_string());
    let in_kind = |error: image::ImageError| match error {
        image::ImageError::Unsupported(_) => {
            Failure::new(format!("{error}; supported formats are PNG and JPEG"))
        }
        error => fail(error),
    };
    let mut decoder = reader.into_decoder().map_err(in_kind)?;
    // The decoded image counts towards the limit.
    limits.reserve(decoder.total_bytes()).map_err(fail)?;
    decoder.set_limits(limits).map_err(fail)?;
    // Invalid orientation metadata does not make the image unusable.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = image::DynamicImage::from_decoder(decoder).map_err(fail)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Converts an image that already has the input's size to a tensor.
pub(crate) fn tensor(
    image: image::DynamicImage,
    info: &TensorInfo,
    mean: &[f32],
    std: &[f32],
) -> Result<Tensor, Failure> {
    let (channels, height, width) = check(info, mean, std)?;
    let interleaved =
        if channels == 1 { image.to_luma32f().into_raw() } else { image.into_rgb32f().into_raw() };
    let mut planar = Vec::with_capacity(interleaved.len());
    for channel in 0..channels {
        let (mean, std) = (of_channel(mean, channel, 0.0), of_channel(std, channel, 1.0));
        let values = interleaved.iter().skip(channel).step_by(channels);
        if info.scalar_type == ScalarType::Byte {
            planar.extend(values.map(|value| (value * 255.0).round()));
        } else {
            planar.extend(values.map(|value| (value - mean) / std));
        }
    }
    let mut shape = vec![channels, height, width];
    if info.rank() == 4 {
        shape.insert(0, 1);
    }
    Ok(Tensor::from_vec(&shape, planar)?.to_type(info.scalar_type)?)
}

/// Crops an image in the middle to an aspect ratio and scales it. Scaling first would make thin
/// images very long.
fn fill(image: &image::DynamicImage, wide: u32, high: u32) -> image::DynamicImage {
    let (from_wide, from_high) = (u64::from(image.width()), u64::from(image.height()));
    let (to_wide, to_high) = (u64::from(wide.max(1)), u64::from(high.max(1)));
    let keep_wide = ((from_high * to_wide + to_high / 2) / to_high).clamp(1, from_wide.max(1));
    let keep_high = ((from_wide * to_high + to_wide / 2) / to_wide).clamp(1, from_high.max(1));
    let x = from_wide.saturating_sub(keep_wide) / 2;
    let y = from_high.saturating_sub(keep_high) / 2;
    image.crop_imm(x as u32, y as u32, keep_wide as u32, keep_high as u32).resize_exact(
        wide,
        high,
        FilterType::Triangle,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(sizes: &[i32]) -> TensorInfo {
        TensorInfo::contiguous(ScalarType::Float, sizes).unwrap()
    }

    #[test]
    fn image_inputs_are_recognized() {
        for (sizes, takes) in [
            (&[1, 3, 224, 224][..], true),
            (&[1, 28, 28], true),
            (&[4, 1, 8, 8], true),
            (&[1, 10], false),
            (&[1, 16, 8, 8], false),
            (&[1, 3, 0, 8], false),
        ] {
            assert_eq!(is_image_input(&info(sizes)), takes, "{sizes:?}");
        }
    }

    #[test]
    fn unsupported_image_formats_list_supported_ones() {
        let header = |begin: &[u8]| [begin, &[0; 40]].concat();
        for begin in [&b"BM"[..], b"GIF89a", b"RIFF\x1a\0\0\0WEBPVP8L", b"II*\0", b"no picture"] {
            let refused = open(&header(begin)).unwrap_err().to_string();
            assert!(refused.ends_with("supported formats are PNG and JPEG"), "{refused}");
        }
    }

    /// A JPEG whose EXIF data says how the camera was held.
    #[test]
    fn exif_orientation_is_applied() {
        let mut image = image::RgbImage::new(32, 16);
        for (x, _, point) in image.enumerate_pixels_mut() {
            *point = if x < 16 { image::Rgb([255, 255, 255]) } else { image::Rgb([0, 0, 0]) };
        }
        let mut jpeg = Cursor::new(Vec::new());
        image.write_to(&mut jpeg, image::ImageFormat::Jpeg).unwrap();
        let jpeg = jpeg.into_inner();
        let turned = |orientation: u8| {
            let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
            exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
            let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
            let bytes = [&jpeg[..2], &[0xff, 0xe1], &length, &exif, &jpeg[2..]].concat();
            open(&bytes).unwrap().into_luma8()
        };
        for (orientation, size, white) in [
            (1, (32, 16), (2, 8)),
            (3, (32, 16), (30, 8)),
            (6, (16, 32), (8, 2)),
            (8, (16, 32), (8, 30)),
            (0, (32, 16), (2, 8)),
        ] {
            let found = turned(orientation);
            assert_eq!(found.dimensions(), size, "{orientation}");
            assert!(found.get_pixel(white.0, white.1)[0] > 200, "{orientation}");
        }
    }

    #[test]
    fn pixels_become_planes() {
        let mut image = image::RgbImage::new(2, 1);
        image.put_pixel(0, 0, image::Rgb([255, 0, 51]));
        image.put_pixel(1, 0, image::Rgb([0, 255, 102]));
        let path = std::env::temp_dir().join(format!("torchlet-{}.png", std::process::id()));
        image.save(&path).unwrap();
        let plain = read(&path, &info(&[1, 3, 1, 2]), &[], &[]).unwrap();
        assert_eq!(plain.as_slice::<f32>().unwrap(), [1.0, 0.0, 0.0, 1.0, 0.2, 0.4]);
        let scaled = read(&path, &info(&[3, 1, 2]), &[0.5], &[0.5, 1.0, 2.0]).unwrap();
        let expected = Tensor::from_slice(&[3, 1, 2], &[1.0f32, -1.0, -0.5, 0.5, -0.15, -0.05]);
        assert!(scaled.allclose(&expected.unwrap(), 0.0, 1e-6));
        let bytes = TensorInfo::contiguous(ScalarType::Byte, &[1, 3, 2, 2]).unwrap();
        assert_eq!(read(&path, &bytes, &[], &[]).unwrap().shape(), [1, 3, 2, 2]);
        assert!(read(&path, &info(&[1, 3, 1, 2]), &[0.5, 0.5], &[]).is_err());
        assert!(read(&path, &info(&[1, 3, 1, 2]), &[], &[1.0, 0.0, 1.0]).is_err());
        assert!(read(&path, &info(&[1, 3, 1, 2]), &[f32::NAN], &[]).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path, &info(&[1, 3, 1, 2]), &[], &[]).is_err());
    }
}
