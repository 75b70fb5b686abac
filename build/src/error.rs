//! Why a program cannot be part of an image.

use crate::Missing;
use std::path::PathBuf;
use std::{fmt, io};
use torchlet_core::{InitError, ProgramError};

/// A program cannot be part of an image.
// A build script shows what `main` returns by `Debug`, which is the text, therefore.
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A variable that Cargo sets for build scripts is not there: this is no build script.
    Variable {
        /// Its name.
        name: &'static str,
    },
    /// The machine cannot be built for.
    Target {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The name of a program or method cannot be that of a module, or is that of another.
    Name {
        /// The name.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// A file is malformed.
    Format {
        /// Which one.
        path: PathBuf,
        /// How.
        source: ProgramError,
    },
    /// The program has no such method.
    NoSuchMethod {
        /// The file.
        path: PathBuf,
        /// The method.
        method: String,
        /// Those that there are.
        methods: Vec<String>,
    },
    /// Nobody has what a method calls.
    Missing {
        /// The file.
        path: PathBuf,
        /// The method.
        method: String,
        /// What is missing.
        missing: Missing,
    },
    /// A method cannot be loaded.
    Init {
        /// The file.
        path: PathBuf,
        /// The method.
        method: String,
        /// Why.
        source: InitError,
    },
    /// A method cannot share its activations with others, since it keeps state among them.
    State {
        /// The program's module.
        program: String,
        /// The method.
        method: String,
    },
    /// The program cannot be lowered.
    Lower {
        /// The file.
        path: PathBuf,
        /// Why.
        source: torchlet_graph::Error,
    },
    /// Kernels or backends do not go together.
    Registry(torchlet_core::RegistryError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Variable { name } => {
                write!(
                    f,
                    "{name} is not set: torchlet-build is for build scripts, which Cargo runs"
                )
            }
            Error::Target { name, reason } => write!(f, "target {name}: {reason}"),
            Error::Name { name, reason } => write!(f, "the name '{name}' {reason}"),
            Error::Format { path, source } => {
                write!(f, "{} is malformed: {source}", path.display())
            }
            Error::NoSuchMethod { path, method, methods } => {
                let methods = methods.join(", ");
                write!(f, "{} has no method '{method}', but {methods}", path.display())
            }
            Error::Missing { path, method, missing } => {
                write!(f, "{}, method '{method}': {missing}", path.display())
            }
            Error::Init { path, method, source } => {
                write!(f, "{}, method '{method}': {source}", path.display())
            }
            Error::State { program, method } => write!(
                f,
                "method '{method}' of {program} reads activations that it has not written, as state is kept \
                 (and as cortex_m operators ask for their scratch tensors): it needs them to itself. Leave \
                 Image::share_activations out; state alone moves to memory of its own when it is exported \
                 with share_mutable_buffers=True"
            ),
            Error::Lower { path, source } => {
                write!(f, "{} cannot be lowered: {source}", path.display())
            }
            Error::Registry(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { source, .. } => Some(source),
            Error::Format { source, .. } => Some(source),
            Error::Init { source, .. } => Some(source),
            Error::Lower { source, .. } => Some(source),
            Error::Registry(source) => Some(source),
            _ => None,
        }
    }
}
