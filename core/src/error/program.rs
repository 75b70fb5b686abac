//! Errors of program and data files.

use super::code;
use crate::format::Malformed;
use core::fmt;

/// The storage failed to read a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReadError {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Requested number of bytes.
    pub len: usize,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {} bytes at byte {}; is the file complete?", self.len, self.offset)
    }
}

/// A program or data file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ProgramError {
    /// The bytes are not a valid file of that kind.
    Malformed(Malformed),
    /// The storage failed.
    Read(ReadError),
    /// The buffer for the flatbuffer part of the file is too small.
    BufferTooSmall {
        /// Required size in bytes.
        needed: usize,
        /// Actual size in bytes.
        available: usize,
    },
    /// The storage cannot lend its bytes: a buffer to read into is required.
    BufferRequired {
        /// Required size in bytes.
        needed: usize,
    },
    /// The program has no method of that name.
    NoSuchMethod,
    /// The file is larger than [`Limits::file_bytes`](crate::Limits::file_bytes).
    TooLarge {
        /// Size of the file in bytes.
        size: u64,
        /// Allowed size in bytes.
        limit: u64,
    },
}

impl ProgramError {
    /// Corresponding ExecuTorch error code.
    pub fn code(&self) -> u32 {
        match self {
            ProgramError::Malformed(_) => code::INVALID_PROGRAM,
            ProgramError::Read(_) => code::ACCESS_FAILED,
            ProgramError::BufferTooSmall { .. } => code::MEMORY_ALLOCATION_FAILED,
            ProgramError::BufferRequired { .. } => code::INVALID_STATE,
            ProgramError::NoSuchMethod => code::INVALID_ARGUMENT,
            ProgramError::TooLarge { .. } => code::OUT_OF_RESOURCES,
        }
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Malformed(malformed) => malformed.fmt(f),
            ProgramError::Read(read) => read.fmt(f),
            ProgramError::BufferTooSmall { needed, available } => {
                write!(
                    f,
                    "the program buffer is too small: expected at least {needed} bytes, \
                     found {available}"
                )
            }
            ProgramError::BufferRequired { needed } => write!(
                f,
                "the storage cannot lend its bytes: supply a buffer of {needed} bytes to read into"
            ),
            ProgramError::NoSuchMethod => f.write_str("the program has no method of that name"),
            ProgramError::TooLarge { size, limit } => {
                write!(
                    f,
                    "the file has {size} bytes, the limit is {limit}; \
                     raise Limits::file_bytes if you trust the file"
                )
            }
        }
    }
}

impl core::error::Error for ReadError {}

impl core::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            ProgramError::Malformed(malformed) => Some(malformed),
            ProgramError::Read(read) => Some(read),
            _ => None,
        }
    }
}

impl From<Malformed> for ProgramError {
    fn from(malformed: Malformed) -> Self {
        ProgramError::Malformed(malformed)
    }
}

impl From<ReadError> for ProgramError {
    fn from(error: ReadError) -> Self {
        ProgramError::Read(error)
    }
}
