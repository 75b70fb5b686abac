//! Python exceptions with the runtime's message and ExecuTorch's error code.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use torchlet::core::error::code;
use torchlet::llm;

/// Creates a `torchlet.Error` with a message and a code.
pub(crate) fn raise(sentence: String, code: u32) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Python::attach(|py| {
        let class = match CLASS.import(py, "torchlet._errors", "Error") {
            Ok(class) => class,
            Err(error) => return error,
        };
        class.call1((sentence, code)).map_or_else(|error| error, PyErr::from_value)
    })
}

/// An invalid argument.
pub(crate) fn invalid(sentence: String) -> PyErr {
    raise(sentence, code::INVALID_ARGUMENT)
}

/// An operation that is impossible in the current state.
pub(crate) fn invalid_state(sentence: &str) -> PyErr {
    raise(sentence.into(), code::INVALID_STATE)
}

/// An unsupported feature, which `what` names.
pub(crate) fn unsupported(what: String) -> PyErr {
    raise(format!("not supported: {what}"), code::NOT_SUPPORTED)
}

/// An error while a module is locked. Python objects are created after unlocking, because that may
/// run Python code.
pub(crate) enum Failure {
    /// An error of the runtime.
    Runtime(torchlet::Error),
    /// An error of this package: message and code.
    Here(String, u32),
}

impl Failure {
    /// An allocation failure.
    pub(crate) fn out_of_memory(needed: usize) -> Self {
        Failure::Runtime(torchlet::Error::OutOfMemory { needed: needed as u64 })
    }

    /// An invalid argument.
    pub(crate) fn invalid(sentence: String) -> Self {
        Failure::Here(sentence, code::INVALID_ARGUMENT)
    }
}

impl From<torchlet::Error> for Failure {
    fn from(error: torchlet::Error) -> Self {
        Failure::Runtime(error)
    }
}

impl From<torchlet::core::ProgramError> for Failure {
    fn from(error: torchlet::core::ProgramError) -> Self {
        Failure::Here(error.to_string(), error.code())
    }
}

impl From<llm::Error> for Failure {
    fn from(error: llm::Error) -> Self {
        use llm::Error as E;
        let source = std::error::Error::source(&error);
        let code = match &error {
            E::Read { .. } => code::ACCESS_FAILED,
            E::Model { source, .. } => {
                source.downcast_ref().map_or(code::INTERNAL, torchlet::Error::code)
            }
            E::Interface { .. } | E::Metadata { .. } => code::INVALID_PROGRAM,
            E::ContextFull { .. } => code::OUT_OF_RESOURCES,
            E::NoToken { .. } => code::INTERNAL,
            _ => code::INVALID_ARGUMENT,
        };
        let why = source.map(|source| format!(": {source}")).unwrap_or_default();
        Failure::Here(format!("{error}{why}"), code)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Runtime(error) => raise(error.to_string(), error.code()),
            Failure::Here(sentence, code) => raise(sentence, code),
        }
    }
}
