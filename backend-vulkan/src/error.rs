//! Errors of the delegate.

use ash::vk;
use std::time::Duration;
use torchlet_core::{DelegateError, KernelError, Message, ProgramError};

/// An error of the Vulkan delegate.
#[derive(Debug, Clone)]
pub(crate) enum Error {
    /// No usable driver or device was found.
    Unavailable(String),
    /// The delegate's data is invalid.
    Invalid(String),
    /// The graph uses a feature that this delegate does not support.
    Unsupported(String),
    /// A Vulkan call failed.
    Vulkan(&'static str, vk::Result),
    /// Memory is exhausted.
    OutOfMemory(String),
    /// The device did not finish in time; its state is unknown.
    Hung(Duration),
    /// The run was cancelled; the device may still be busy.
    Cancelled,
    /// An argument of the delegate call is invalid.
    Argument(KernelError),
}

impl Error {
    pub(crate) fn invalid(what: &str) -> Self {
        Error::Invalid(what.to_owned())
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Error::Unsupported(what.into())
    }

    /// Returns a function that turns the result of the Vulkan call with this name into an error.
    pub(crate) fn of(call: &'static str) -> impl FnOnce(vk::Result) -> Error {
        move |result| Error::Vulkan(call, result)
    }

    /// Whether the error may disappear after memory is freed.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        type Code = vk::Result;
        matches!(
            self,
            Error::OutOfMemory(_)
                | Error::Vulkan(
                    _,
                    Code::ERROR_OUT_OF_DEVICE_MEMORY | Code::ERROR_OUT_OF_HOST_MEMORY
                )
        )
    }

    /// Whether the device is lost, so that a new context is needed.
    pub(crate) fn is_device_loss(&self) -> bool {
        matches!(self, Error::Hung(_) | Error::Vulkan(_, vk::Result::ERROR_DEVICE_LOST))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Unavailable(what) | Error::Invalid(what) | Error::Unsupported(what) => {
                f.write_str(what)
            }
            Error::Vulkan(call, result) => write!(f, "{call}: {result:?}"),
            Error::OutOfMemory(what) => write!(f, "out of device memory: {what}"),
            Error::Hung(time) => write!(f, "the device did not finish within {time:?}"),
            Error::Cancelled => f.write_str("the run was cancelled"),
            Error::Argument(error) => error.fmt(f),
        }
    }
}

impl From<torchlet_gpu::Error> for Error {
    fn from(error: torchlet_gpu::Error) -> Self {
        match error {
            torchlet_gpu::Error::Unsupported(what) => Error::Unsupported(what),
            torchlet_gpu::Error::OutOfMemory(what) => Error::OutOfMemory(what),
            torchlet_gpu::Error::Argument(error) => Error::Argument(error),
            other => Error::Invalid(other.to_string()),
        }
    }
}
impl From<torchlet_graph::Error> for Error {
    fn from(error: torchlet_graph::Error) -> Self {
        match error {
            torchlet_graph::Error::Unsupported(what) => Error::Unsupported(what),
            torchlet_graph::Error::Invalid(what) => Error::Invalid(what),
            other => Error::Invalid(other.to_string()),
        }
    }
}
impl From<ProgramError> for Error {
    fn from(error: ProgramError) -> Self {
        Error::Invalid(error.to_string())
    }
}
impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        Error::Argument(error)
    }
}

impl From<Error> for DelegateError {
    fn from(error: Error) -> Self {
        let message = Message::new(format_args!("{error}"));
        let out_of_memory = error.is_out_of_memory();
        match error {
            Error::Unavailable(_) => DelegateError::Unavailable(message),
            Error::Invalid(_) => DelegateError::InvalidData(message),
            Error::Unsupported(_) => DelegateError::Unsupported(message),
            Error::OutOfMemory(_) => DelegateError::OutOfMemory(message),
            Error::Vulkan(..) if out_of_memory => DelegateError::OutOfMemory(message),
            Error::Vulkan(..) | Error::Hung(_) | Error::Cancelled => DelegateError::Device(message),
            Error::Argument(error) => DelegateError::Argument(error),
        }
    }
}
