//! Fixed headers of `.pte` and `.ptd` files.

use super::flatbuffer::u32_at;
use super::malformed::{Malformed, Part};

/// Number of bytes from the start of a file that suffice to parse its header.
pub const HEAD_BYTES: usize = 64;

/// Header of a `.pte` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramHeader {
    /// Size of the flatbuffer in bytes from the start of the file; `None` without an extended
    /// header, in which case the flatbuffer is the whole file.
    pub program_size: Option<u64>,
    /// Offset of the segments; `None` if the file has none.
    pub segment_base: Option<u64>,
    /// Bytes from the segment base to the end of the last segment, if the header contains it.
    pub segment_data_size: Option<u64>,
}

/// Header of a `.ptd` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlatTensorHeader {
    /// Offset and size of the flatbuffer.
    pub flatbuffer: (u64, u64),
    /// Offset and total size of the segments.
    pub segments: (u64, u64),
}

fn u64_at(head: &[u8], offset: usize) -> Result<u64, Malformed> {
    let low = u32_at(head, offset)?;
    let high = u32_at(head, offset + 4)?;
    Ok(u64::from(low) | u64::from(high) << 32)
}

/// The four magic bytes at `offset`, if the file is long enough.
fn magic(head: &[u8], offset: usize) -> Option<&[u8]> {
    head.get(offset..offset + 4)
}

impl ProgramHeader {
    /// Parses the header from the first bytes of a file: the whole file or at least [`HEAD_BYTES`].
    ///
    /// The flatbuffer's identifier is `ET12`. An extended header starts at byte 8 if it contains
    /// the bytes `eh` and two digits. It contains its own length, at least 24; fields beyond that
    /// length are absent.
    ///
    /// # Errors
    /// The bytes are not a valid program, or have an unsupported version.
    pub fn parse(head: &[u8]) -> Result<Self, Malformed> {
        if magic(head, 4) != Some(b"ET12") {
            return Err(Part::ProgramIdentifier.at(4));
        }
        let none =
            ProgramHeader { program_size: None, segment_base: None, segment_data_size: None };
        match magic(head, 8) {
            Some([b'e', b'h', b'0', b'0']) => {}
            _ => return Ok(none),
        }
        let length = u32_at(head, 12)?;
        if length < 24 {
            return Err(Part::Header.at(12));
        }
        Ok(ProgramHeader {
            program_size: Some(u64_at(head, 16)?),
            segment_base: Some(u64_at(head, 24)?).filter(|base| *base != 0),
            segment_data_size: if length >= 32 { Some(u64_at(head, 32)?) } else { None },
        })
    }
}

impl FlatTensorHeader {
    /// Parses the header from the first bytes of a file: the whole file or at least [`HEAD_BYTES`].
    ///
    /// # Errors
    /// The bytes are not a valid `.ptd` file, or have an unsupported version.
    pub fn parse(head: &[u8]) -> Result<Self, Malformed> {
        if magic(head, 4) != Some(b"FT01") {
            return Err(Part::DataIdentifier.at(4));
        }
        if magic(head, 8) != Some(b"FH01") {
            return Err(Part::Header.at(8));
        }
        if u32_at(head, 12)? < 40 {
            return Err(Part::Header.at(12));
        }
        Ok(FlatTensorHeader {
            flatbuffer: (u64_at(head, 16)?, u64_at(head, 24)?),
            segments: (u64_at(head, 32)?, u64_at(head, 40)?),
        })
    }
}
