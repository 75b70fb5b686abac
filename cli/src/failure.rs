//! Errors as the command shows them: one sentence, with a hint how to proceed.

use crate::containers::{instead, needs};
use std::fmt;
use torchlet::core::InitError;
use torchlet::core::error::InstructionError;
use torchlet::graph::front::{is_exported_for_device, runs_only_compiled};
use torchlet::{DEVICE_APIS, Error};
use torchlet_page::PageError;

/// Message of a failed command.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure(message.into())
    }
}

/// Whether this build has the device API of a backend.
fn is_of_device(backend: &str) -> bool {
    DEVICE_APIS.iter().any(|api| api.backend_name() == backend)
}

/// Whether a front end reads delegates of a backend.
fn is_read(backend: &str) -> bool {
    runs_only_compiled(backend) || is_exported_for_device(backend)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::NoSuchMethod { .. } => "; choose one with --method",
            Error::Missing { backends, .. } if backends.iter().any(|b| is_of_device(b)) => {
                "; omit --backend cpu"
            }
            // Compiled, such programs run on any processor; as exported, they require that backend.
            Error::Missing { backends, .. } if backends.iter().any(|b| is_read(b)) => {
                "; --backend cpu runs these delegates"
            }
            Error::Missing { backends, .. } if backends.iter().any(|b| needs(b).is_some()) => {
                let known = backends.iter().find_map(|backend| Some((backend, needs(backend)?)));
                let (name, device) =
                    known.map_or(("", ""), |(name, device)| (name.as_str(), device));
                let instead = instead(name);
                return Failure(format!(
                    "{error}; it requires {device}. {instead}; `torchlet extract` extracts the \
                     data of the other delegates"
                ));
            }
            Error::Missing { operators, .. } if operators.is_empty() => {
                "; export the model for a backend that torchlet supports, or without delegates"
            }
            Error::Load { source, .. } if matches!(**source, InitError::ExternalData { .. }) => {
                "; pass files of external data with --data"
            }
            Error::MemoryLimit { .. } => " with --memory-limit",
            Error::Execute { source, .. } if source.source == InstructionError::JumpLimit => {
                "; raise it with --jump-limit"
            }
            _ => "",
        };
        Failure(format!("{error}{hint}"))
    }
}

impl From<PageError> for Failure {
    fn from(error: PageError) -> Self {
        Failure(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_required_hardware() {
        let missing = |backend: &str| Error::Missing {
            method: "forward".into(),
            operators: Vec::new(),
            backends: vec![backend.into()],
        };
        let text = Failure::from(missing("CoreMLBackend")).to_string();
        for part in ["CoreMLBackend", "iPhones", "XnnpackPartitioner", "torchlet extract"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = Failure::from(missing("XnnpackBackend")).to_string();
        assert!(text.contains("--backend cpu"), "{text}");
        let text = Failure::from(missing("NoBackend")).to_string();
        assert!(text.contains("export the model for a backend that torchlet supports"), "{text}");
    }
}
