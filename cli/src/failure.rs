//! Errors as the command shows them: one sentence, with a hint how to proceed.

use crate::containers::{instead, needs};
use std::fmt;
use torchlet::Error;
use torchlet::core::InitError;
use torchlet::core::error::InstructionError;
use torchlet_page::PageError;

/// Message of a failed command.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure(message.into())
    }
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
            Error::Missing { backends, .. } if backends.iter().any(|b| b == "VulkanBackend") => {
                if cfg!(feature = "vulkan") {
                    "; omit --backend cpu"
                } else {
                    "; this torchlet was built without Vulkan"
                }
            }
            // Compiled, such programs run on any processor; as exported, they require that backend.
            Error::Missing { backends, .. } if backends.iter().any(|b| b == "XnnpackBackend") => {
                "; --backend cpu runs XNNPACK delegates"
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
    fn what_other_backends_need_is_said() {
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
