//! Programs in the formats of other tools, converted to programs in memory.
//!
//! A format has a line in [`FORMATS`]. Its reader returns a program whose data is borrowed from the
//! file; everything after that is the same as for a program file.

use crate::error::Error;
use crate::method::Program;
use crate::package::Package;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Importable file format.
#[cfg_attr(not(feature = "pt2"), allow(dead_code, reason = "this build has no formats"))]
struct Format {
    /// Name, for error messages.
    name: &'static str,
    /// The first bytes of a file.
    magic: &'static [u8],
    /// Recognizes a file that begins with `magic`.
    is: fn(&[u8]) -> bool,
    /// Converts a file.
    read: for<'p> fn(&'p [u8]) -> Result<Program<'p>, Error>,
}

/// The importable formats.
const FORMATS: &[Format] = &[
    #[cfg(feature = "pt2")]
    Format {
        name: "torch.export archive (.pt2)",
        magic: crate::front::pt2::MAGIC,
        is: crate::front::pt2::is_archive,
        read: crate::front::pt2::read,
    },
];

/// Whether a file with these first eight bytes may be importable.
pub fn may_be_importable(head: &[u8]) -> bool {
    FORMATS.iter().any(|format| head.starts_with(format.magic))
}

/// Returns the name of the format if [`program`] supports it.
pub fn detect(bytes: &[u8]) -> Option<&'static str> {
    format_of(bytes).map(|format| format.name)
}

/// Converts a file in an importable format to a program. Data is borrowed where possible.
///
/// # Errors
/// The format is unknown, or the file is malformed or uses unsupported features. The message names
/// all of them.
pub fn program(bytes: &[u8]) -> Result<Package<'_>, Error> {
    let unknown = || Error::Unsupported(format!("import of this file: expected {}", names()));
    let format = format_of(bytes).ok_or_else(unknown)?;
    (format.read)(bytes)?.write()
}

fn format_of(bytes: &[u8]) -> Option<&'static Format> {
    FORMATS.iter().find(|it| bytes.starts_with(it.magic) && (it.is)(bytes))
}

/// The names of all formats.
fn names() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    names.join(", ")
}
