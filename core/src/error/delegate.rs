//! Errors of backends and delegates.

use super::{KernelError, Message, code};
use core::fmt;

/// A backend cannot load or run a delegate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DelegateError {
    /// The backend does not work on this machine: no device, no driver.
    Unavailable(Message),
    /// The processed bytes are not valid for the backend.
    InvalidData(Message),
    /// The delegate needs an operator, dtype or feature that the backend lacks.
    Unsupported(Message),
    /// Out of memory: method arena, host or device.
    OutOfMemory(Message),
    /// The device failed while running.
    Device(Message),
    /// An argument does not fit.
    Argument(KernelError),
}

impl DelegateError {
    /// Corresponding ExecuTorch error code.
    pub fn code(&self) -> u32 {
        match self {
            DelegateError::Unavailable(_) => code::NOT_FOUND,
            DelegateError::InvalidData(_) | DelegateError::Unsupported(_) => {
                code::DELEGATE_INVALID_COMPATIBILITY
            }
            DelegateError::OutOfMemory(_) => code::DELEGATE_MEMORY_ALLOCATION_FAILED,
            DelegateError::Device(_) => code::INTERNAL,
            DelegateError::Argument(error) => error.code(),
        }
    }
}

impl fmt::Display for DelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DelegateError::Unavailable(message) => {
                write!(f, "the backend is not available: {message}")
            }
            DelegateError::InvalidData(message) => write!(f, "invalid delegate data: {message}"),
            DelegateError::Unsupported(message) => write!(f, "not supported: {message}"),
            DelegateError::OutOfMemory(message) => write!(f, "out of memory: {message}"),
            DelegateError::Device(message) => write!(f, "device failure: {message}"),
            DelegateError::Argument(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DelegateError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            DelegateError::Argument(error) => Some(error),
            _ => None,
        }
    }
}

impl From<KernelError> for DelegateError {
    fn from(error: KernelError) -> Self {
        DelegateError::Argument(error)
    }
}
