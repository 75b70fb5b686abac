//! Errors of the delegate.

use std::time::Duration;
use torchlet_core::{DelegateError, Message};

/// An error of the WebGPU delegate.
#[derive(Debug, Clone)]
pub(crate) enum Error {
    /// No usable adapter was found.
    Unavailable(String),
    /// The graph cannot be planned, or a call has invalid arguments.
    Plan(torchlet_gpu::Error),
    /// WebGPU refused an operation.
    Device(&'static str, String),
    /// The device was lost, so that a new context is needed.
    Lost(String),
    /// Memory is exhausted.
    OutOfMemory(&'static str, String),
    /// The device did not finish in time; its state is unknown.
    Hung(Duration),
    /// The run was cancelled; the device may still be busy.
    Cancelled,
}

impl Error {
    /// An error that no input can cause.
    pub(crate) fn internal(what: impl std::fmt::Display) -> Self {
        Error::Plan(torchlet_gpu::Error::Invalid(format!("internal error: {what}")))
    }

    /// Whether the device is lost, so that a new context is needed.
    pub(crate) fn is_device_loss(&self) -> bool {
        matches!(self, Error::Lost(_) | Error::Hung(_))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Unavailable(what) => f.write_str(what),
            Error::Plan(error) => error.fmt(f),
            Error::Device(call, what) => write!(f, "{call}: {what}"),
            Error::Lost(what) => write!(f, "the device was lost: {what}"),
            Error::OutOfMemory(call, what) => write!(f, "out of device memory: {call}: {what}"),
            Error::Hung(time) => write!(f, "the device did not finish within {time:?}"),
            Error::Cancelled => f.write_str("the run was cancelled"),
        }
    }
}

impl<E: Into<torchlet_gpu::Error>> From<E> for Error {
    fn from(error: E) -> Self {
        Error::Plan(error.into())
    }
}

impl From<Error> for DelegateError {
    fn from(error: Error) -> Self {
        let message = Message::new(format_args!("{error}"));
        match error {
            Error::Unavailable(_) => DelegateError::Unavailable(message),
            Error::Plan(error) => error.into(),
            Error::OutOfMemory(..) => DelegateError::OutOfMemory(message),
            Error::Device(..) | Error::Lost(_) | Error::Hung(_) | Error::Cancelled => {
                DelegateError::Device(message)
            }
        }
    }
}
