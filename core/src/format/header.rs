//! The fixed bytes in front of the flatbuffers of `.pte` and `.ptd` files.

use super::flatbuffer::u32_at;
use super::malformed::{Malformed, Part};

/// How many bytes from the start of a file are enough to read its header.
pub const HEAD_BYTES: usize = 64;

/// What the first bytes of a `.pte` say about the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramHeader {
    /// Bytes of the flatbuffer, counted from the start of the file; `None` without extended header:
    /// the flatbuffer is then the whole file.
    pub program_size: Option<u64>,
    /// Where segments start; `None` if the file has none.
    pub segment_base: Option<u64>,
    /// Bytes from the segment base to the end of the last segment, where the header tells.
    pub segment_data_size: Option<u64>,
}

/// What the first bytes of a `.ptd` say about the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlatTensorHeader {
    /// Where the flatbuffer starts, and how long it is.
    pub flatbuffer: (u64, u64),
    /// Where segments start, and how many bytes they take together.
    pub segments: (u64, u64),
}

fn u64_at(head: &[u8], offset: usize) -> Result<u64, Malformed> {
    let low = u32_at(head, offset)?;
    let high = u32_at(head, offset + 4)?;
    Ok(u64::from(low) | u64::from(high) << 32)
}

/// The four identifying bytes at `offset`, if the file is that long.
fn magic(head: &[u8], offset: usize) -> Option<&[u8]> {
    head.get(offset..offset + 4)
}

impl ProgramHeader {
    /// Reads the header from the first bytes of a file: all of it or at least [`HEAD_BYTES`].
    ///
    /// The flatbuffer's identifier is `ET12`. An extended header follows at byte 8 where the bytes
    /// `eh` and two digits stand there; it tells its own length, at least 24, and fields beyond
    /// that length are absent.
    ///
    /// # Errors
    /// The bytes are not those of a program, or of a version that is not understood.
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
    /// Reads the header from the first bytes of a file: all of it or at least [`HEAD_BYTES`].
    ///
    /// # Errors
    /// The bytes are not those of a `.ptd` file, or of a version that is not understood.
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
