//! Errors of embedding a program.

use crate::Missing;
use std::path::PathBuf;
use std::{fmt, io};
use torchlet_core::{InitError, ProgramError};

/// The error of embedding a program in an image.
// Cargo shows the error that `main` of a build script returns with `Debug`, so `Debug` prints the
// same text as `Display`.
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A variable that Cargo sets for build scripts is missing, so this is not a build script.
    Variable {
        /// Name of the variable.
        name: &'static str,
    },
    /// The target is not supported.
    Target {
        /// Name of the target.
        name: String,
        /// Reason.
        reason: String,
    },
    /// The name of a program or method is not a valid module name, or is already used.
    Name {
        /// The name.
        name: String,
        /// Reason.
        reason: &'static str,
    },
    /// A file is malformed.
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: ProgramError,
    },
    /// The program has no such method.
    NoSuchMethod {
        /// Path of the program.
        path: PathBuf,
        /// Name of the method.
        method: String,
        /// The available methods.
        methods: Vec<String>,
    },
    /// A method calls operators or backends that are not registered.
    Missing {
        /// Path of the program.
        path: PathBuf,
        /// Name of the method.
        method: String,
        /// The missing operators and backends.
        missing: Missing,
    },
    /// A method cannot be loaded.
    Init {
        /// Path of the program.
        path: PathBuf,
        /// Name of the method.
        method: String,
        /// Cause.
        source: InitError,
    },
    /// A method cannot share its activation memory because it keeps state there.
    State {
        /// Module of the program.
        program: String,
        /// Name of the method.
        method: String,
    },
    /// The program cannot be lowered.
    Lower {
        /// Path of the program.
        path: PathBuf,
        /// Cause.
        source: torchlet_graph::Error,
    },
    /// The program cannot be compiled.
    NotCompiled {
        /// Path of the program.
        path: PathBuf,
        /// Reasons.
        reasons: Vec<String>,
    },
    /// Kernels or backends conflict.
    Registry(torchlet_core::RegistryError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Variable { name } => {
                write!(f, "{name} is not set: torchlet-build must run in a build script")
            }
            Error::Target { name, reason } => write!(f, "target {name}: {reason}"),
            Error::Name { name, reason } => write!(f, "the name '{name}' {reason}"),
            Error::Format { path, source } => {
                write!(f, "{} is malformed: {source}", path.display())
            }
            Error::NoSuchMethod { path, method, methods } => {
                let methods = methods.join(", ");
                write!(f, "{} has no method '{method}'; available: {methods}", path.display())
            }
            Error::Missing { path, method, missing } => {
                write!(f, "{}, method '{method}': {missing}", path.display())
            }
            Error::Init { path, method, source } => {
                write!(f, "{}: cannot load method '{method}': {source}", path.display())
            }
            Error::State { program, method } => write!(
                f,
                "method '{method}' of {program} reads activation memory before writing it, so it \
                 may keep state there (or be a cortex_m operator's scratch tensor) and cannot \
                 share it. Omit Image::share_activations, or export with \
                 share_mutable_buffers=True, which moves state to its own memory"
            ),
            Error::Lower { path, source } => {
                write!(f, "{} cannot be lowered: {source}", path.display())
            }
            Error::NotCompiled { path, reasons } => {
                let reasons = reasons.join("; ");
                write!(
                    f,
                    "{} cannot be compiled: {reasons}. Program::compiled falls back to the \
                     interpreter",
                    path.display()
                )
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
