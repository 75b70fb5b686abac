//! Programs in the formats of other tools, converted to programs in memory.
//!
//! A format has a line in [`FORMATS`]. Its reader returns a program whose data is borrowed from the
//! file; everything after that is the same as for a program file.

use crate::error::Error;
use crate::front::vgf;
use crate::method::Program;
use crate::package::Package;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Importable file format.
struct Format {
    /// Name, for error messages.
    name: &'static str,
    /// Possible first bytes of a file. Empty if the identifier is not at the start; `is` then needs
    /// eight bytes.
    magic: &'static [&'static [u8]],
    /// Recognizes a file that begins with them.
    is: fn(&[u8]) -> bool,
    /// Converts a file.
    read: for<'p> fn(&'p [u8]) -> Result<Program<'p>, Error>,
}

impl Format {
    fn may_be(&self, bytes: &[u8]) -> bool {
        match self.magic {
            // Flatbuffers have their identifier behind an offset.
            [] => (self.is)(bytes),
            magic => magic.iter().any(|magic| bytes.starts_with(magic)),
        }
    }
}

/// The importable formats.
const FORMATS: &[Format] = &[
    Format {
        name: "Arm VGF (.vgf)",
        magic: &[&vgf::MAGIC[0], &vgf::MAGIC[1]],
        is: vgf::is_blob,
        read: vgf::program,
    },
    Format {
        name: "TOSA flatbuffer (.tosa)",
        magic: &[],
        is: vgf::tosa::is_blob,
        read: vgf::tosa_program,
    },
    #[cfg(feature = "pt2")]
    Format {
        name: "torch.export archive (.pt2)",
        magic: &[crate::front::pt2::MAGIC],
        is: crate::front::pt2::is_archive,
        read: crate::front::pt2::read,
    },
];

/// Whether a file with these first eight bytes may be importable.
pub fn may_be_importable(head: &[u8]) -> bool {
    FORMATS.iter().any(|format| format.may_be(head))
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
    FORMATS.iter().find(|it| it.may_be(bytes) && (it.is)(bytes))
}

/// The names of all formats.
fn names() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    names.join(", ")
}
