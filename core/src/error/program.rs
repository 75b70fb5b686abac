//! Files that cannot be used.

use super::code;
use crate::format::Malformed;
use core::fmt;

/// The storage could not deliver bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReadError {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// How many bytes were asked for.
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
    /// The bytes are not those of such a file.
    Malformed(Malformed),
    /// The storage could not deliver.
    Read(ReadError),
    /// The buffer for the flatbuffer part of the file is too small.
    BufferTooSmall {
        /// Bytes that it must hold.
        needed: usize,
        /// Bytes that it holds.
        available: usize,
    },
    /// The storage cannot be borrowed from: a buffer must be supplied to read into.
    BufferRequired {
        /// Bytes that it must hold.
        needed: usize,
    },
    /// There is no method of that name.
    NoSuchMethod,
    /// The file is larger than [`Limits::file_bytes`](crate::Limits::file_bytes).
    TooLarge {
        /// Bytes of the file.
        size: u64,
        /// Bytes that it may have.
        limit: u64,
    },
}

impl ProgramError {
    /// ExecuTorch's code for the condition.
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
                write!(f, "the program buffer holds {available} bytes and must hold {needed}")
            }
            ProgramError::BufferRequired { needed } => write!(
                f,
                "this storage cannot be borrowed from: supply a buffer of {needed} bytes to read into"
            ),
            ProgramError::NoSuchMethod => f.write_str("the program has no method of that name"),
            ProgramError::TooLarge { size, limit } => {
                write!(
                    f,
                    "the file has {size} bytes and may have {limit}; raise Limits::file_bytes if you trust it"
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
