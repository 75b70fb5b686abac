//! Errors of planning, and of the arguments of calls.

use torchlet_core::format::Malformed;
use torchlet_core::{DelegateError, KernelError, Message};
use torchlet_graph::operators::ArgumentCount;

/// Why a graph cannot be planned, or a call cannot run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The graph is malformed.
    Invalid(String),
    /// The graph uses a feature that the plan does not support.
    Unsupported(String),
    /// The graph needs more memory than can be addressed.
    OutOfMemory(String),
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
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Invalid(what) | Error::Unsupported(what) => f.write_str(what),
            Error::OutOfMemory(what) => write!(f, "out of device memory: {what}"),
            Error::Argument(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Error::Invalid(malformed.to_string())
    }
}

impl From<ArgumentCount> for Error {
    fn from(count: ArgumentCount) -> Self {
        Error::Invalid(count.to_string())
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

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        Error::Invalid(error.to_string())
    }
}

impl From<Error> for DelegateError {
    fn from(error: Error) -> Self {
        let message = Message::new(format_args!("{error}"));
        match error {
            Error::Invalid(_) => DelegateError::InvalidData(message),
            Error::Unsupported(_) => DelegateError::Unsupported(message),
            Error::OutOfMemory(_) => DelegateError::OutOfMemory(message),
            Error::Argument(error) => DelegateError::Argument(error),
        }
    }
}
