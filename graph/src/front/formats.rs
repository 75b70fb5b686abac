//! Summaries of delegates in any supported format.

use super::summary::Summary;
use super::{vgf, vulkan, xnnpack};
use crate::blob;
use crate::error::Error;

/// Summarizes the processed bytes of a delegate in any supported format.
///
/// # Errors
/// The bytes are malformed, or their format is unknown.
pub fn summarize(processed: &[u8]) -> Result<Summary, Error> {
    if blob::is_blob(processed) {
        blob::summarize(processed)
    } else if xnnpack::is_blob(processed) {
        xnnpack::summarize(processed)
    } else if vgf::is_blob(processed) {
        vgf::summarize(processed)
    } else if vgf::tosa::is_blob(processed) {
        vgf::tosa::summarize(processed)
    } else {
        vulkan::summarize(processed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_data_is_rejected() {
        for bytes in [&b""[..], b"VK00", b"\0\0\0\0XH00", &[0; 64]] {
            assert!(summarize(bytes).is_err(), "{bytes:?}");
        }
    }
}
