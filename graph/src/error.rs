//! Compilation errors.

use alloc::format;
use alloc::string::String;
use core::fmt;
use torchlet_core::ProgramError;
use torchlet_core::format::Malformed;

/// Error of parsing, compiling or writing a program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A file is malformed.
    Program(ProgramError),
    /// The program is inconsistent; with a description.
    Invalid(String),
    /// The program is valid, but uses an unsupported feature; with a description.
    Unsupported(String),
}

impl Error {
    /// Creates an [`Error::Invalid`].
    pub fn invalid(what: &str) -> Self {
        Error::Invalid(String::from(what))
    }

    /// Adds the call number and the operator to the description.
    pub(crate) fn at(self, call: u32, operator: &str) -> Self {
        match self {
            Error::Invalid(what) => Error::Invalid(format!("call {call}, {operator}: {what}")),
            Error::Unsupported(what) => {
                Error::Unsupported(format!("call {call}, {operator}: {what}"))
            }
            other => other,
        }
    }

    /// Creates an [`Error::Unsupported`].
    pub fn unsupported(what: &str) -> Self {
        Error::Unsupported(String::from(what))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Program(error) => write!(f, "{error}"),
            Error::Invalid(what) => write!(f, "the program is malformed: {what}"),
            Error::Unsupported(what) => write!(f, "not supported: {what}"),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Error::Program(error) => Some(error),
            Error::Invalid(_) | Error::Unsupported(_) => None,
        }
    }
}

impl From<ProgramError> for Error {
    fn from(error: ProgramError) -> Self {
        Error::Program(error)
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Error::Program(malformed.into())
    }
}
