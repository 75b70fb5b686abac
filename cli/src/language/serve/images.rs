//! Images in requests. They must be embedded; the server does not fetch URLs.

use crate::failure::Failure;
use crate::language::images::ImageOptions;
use crate::language::inputs::Part;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use torchlet::llm::Runner;

/// Decodes a `data:` URI.
pub(super) fn data_uri(uri: &str) -> Result<Vec<u8>, String> {
    let data = uri.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (_, data) = data.ok_or(
        "the 'url' of an image should be 'data:image/...;base64,...': this server does not fetch \
         URLs",
    )?;
    STANDARD.decode(data).map_err(|error| format!("an image is not valid base64: {error}"))
}

/// Maximum total size of a request's images as tensors.
const MAX_TENSORS: usize = 256 << 20;

/// Preprocesses the images of a request.
pub(super) fn parts(
    runner: &Runner,
    images: &[Vec<u8>],
    options: &ImageOptions,
) -> Result<Vec<Vec<Part>>, Failure> {
    let none = || Failure::new("the program does not accept images: it has no vision_encoder");
    let info = runner.image_input().ok_or_else(none)?;
    // Intermediate elements have four bytes.
    let each = info.nbytes().max(info.numel().saturating_mul(4)).max(1);
    let each = each.saturating_mul(options.max_tensors());
    let max = (MAX_TENSORS / each).min(runner.metadata().max_context_len).max(1);
    if images.len() > max {
        let found = images.len();
        return Err(Failure::new(format!(
            "the request has {found} images, at most {max} are supported"
        )));
    }
    let read = |(number, image): (usize, &Vec<u8>)| {
        options.parts(image, info).map_err(|error| Failure::new(format!("image {number}: {error}")))
    };
    images.iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_uris_are_decoded() {
        assert_eq!(data_uri("data:image/png;base64,aGk=").unwrap(), b"hi");
        for wrong in ["", "hi", "data:image/png,hi", "data:;base64,a", "file:///etc/passwd"] {
            assert!(data_uri(wrong).is_err(), "{wrong}");
        }
    }
}
