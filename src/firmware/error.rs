//! Errors of programs in firmware.

use core::fmt;
use torchlet_core::{
    ExecuteError, InitError, InputError, KernelError, ProgramError, RegistryError,
};

/// A program of a firmware image cannot be loaded or run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Error {
    /// The static memory was taken before. A program can be loaded once.
    Taken,
    /// The arena is too small for the method's tables.
    TooSmall {
        /// Required bytes.
        needed: usize,
        /// Available bytes.
        available: usize,
    },
    /// The file is malformed.
    Program(ProgramError),
    /// Kernels conflict in the registry.
    Registry(RegistryError),
    /// A method cannot be loaded.
    Init(InitError),
    /// A value does not fit the method's input or output.
    Input(InputError),
    /// An input or output has another element type.
    Element(KernelError),
    /// An input or output has a different number of elements.
    Length {
        /// Expected number of elements.
        expected: usize,
        /// Actual number of elements.
        found: usize,
    },
    /// The method failed while running.
    Execute(ExecuteError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Taken => f.write_str("the program's memory is already taken; load it only once"),
            Error::TooSmall { needed, available } => {
                write!(f, "the arena needs at least {needed} bytes, but has {available}")
            }
            Error::Program(error) => error.fmt(f),
            Error::Registry(error) => error.fmt(f),
            Error::Init(error) => error.fmt(f),
            Error::Input(error) => error.fmt(f),
            Error::Element(error) => error.fmt(f),
            Error::Length { expected, found } => {
                write!(f, "expected {expected} elements, found {found}")
            }
            Error::Execute(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Error::Program(error) => Some(error),
            Error::Registry(error) => Some(error),
            Error::Init(error) => Some(error),
            Error::Input(error) => Some(error),
            Error::Element(error) => Some(error),
            Error::Execute(error) => Some(error),
            Error::Taken | Error::TooSmall { .. } | Error::Length { .. } => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident $error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error::$variant(error)
            }
        }
    )*};
}
from!(
    Program ProgramError, Registry RegistryError, Init InitError, Input InputError,
    Element KernelError, Execute ExecuteError
);
