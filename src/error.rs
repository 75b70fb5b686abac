//! What can go wrong, in sentences that say where and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use torchlet_core::error::code;
use torchlet_core::{
    DelegateError, ExecuteError, InitError, InputError, ProgramError, RegistryError, ScalarType,
};

/// Any failure of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened or read.
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or its bytes are not what they should be.
    Format {
        /// Its path, if it came from one.
        path: Option<PathBuf>,
        /// What is wrong.
        source: ProgramError,
    },
    /// A file is of another format than it should be.
    OtherFormat {
        /// Its path, if it came from one.
        path: Option<PathBuf>,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The program cannot be compiled for what it is to run on.
    Compile {
        /// Why not.
        source: torchlet_graph::Error,
    },
    /// The program has no such method.
    NoSuchMethod {
        /// The method that was asked for.
        method: String,
        /// Those that there are.
        available: Vec<String>,
    },
    /// The method uses operators or backends that are not registered. All of them are listed.
    Missing {
        /// The method.
        method: String,
        /// Missing operators, such as `aten::add.out`.
        operators: Vec<String>,
        /// Missing backends, such as `VulkanBackend`.
        backends: Vec<String>,
    },
    /// The method needs more memory than [allowed](crate::ModuleBuilder::memory_limit).
    MemoryLimit {
        /// The method.
        method: String,
        /// Bytes that it needs, weights in the file not counted.
        needed: u64,
        /// Bytes that are allowed.
        limit: u64,
    },
    /// The system has no memory of this size.
    OutOfMemory {
        /// Bytes that were asked for.
        needed: u64,
    },
    /// A method cannot be loaded.
    Load {
        /// The method.
        method: String,
        /// Why.
        source: Box<InitError>,
    },
    /// A value does not fit an input.
    Input {
        /// The method.
        method: String,
        /// The input.
        index: usize,
        /// What the method takes there.
        expected: String,
        /// Why the value does not fit.
        source: InputError,
    },
    /// The value of an input was fixed when the program was exported, and another was given.
    FixedInput {
        /// The method.
        method: String,
        /// The input.
        index: usize,
        /// The value that it was exported with.
        expected: String,
    },
    /// An input was given no value.
    InputNotSet {
        /// The method.
        method: String,
        /// The input.
        index: usize,
        /// What the method takes there.
        expected: String,
    },
    /// More inputs were given than the method has.
    TooManyInputs {
        /// The method.
        method: String,
        /// How many it has.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A method failed while running.
    Execute {
        /// The method.
        method: String,
        /// Where and why.
        source: Box<ExecuteError>,
    },
    /// An output cannot be read.
    Output {
        /// The method.
        method: String,
        /// The output.
        index: usize,
        /// Why.
        source: InputError,
    },
    /// A tensor of a method's state cannot be read or written.
    State {
        /// The method.
        method: String,
        /// The tensor's name, or the index of its value behind a `#`.
        tensor: String,
        /// Why.
        source: InputError,
    },
    /// A tensor that a delegate of a method keeps cannot be read or written.
    DelegateState {
        /// The method.
        method: String,
        /// The index of its value, behind a `#`.
        tensor: String,
        /// Why.
        source: DelegateError,
    },
    /// The tensors of the state are others.
    StateNames {
        /// Tensors of the methods that were not given.
        missing: Vec<String>,
        /// Tensors that were given or asked for and that the methods do not have.
        unknown: Vec<String>,
    },
    /// A method cannot be trained, or not yet.
    Untrainable {
        /// The method.
        method: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// Saved state cannot be written or read.
    StateFile {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A value is of another kind than it was taken for.
    Kind {
        /// What it was taken for.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A tensor cannot be made or viewed as asked.
    Tensor(TensorError),
    /// Kernels or backends cannot be registered together.
    Registry(RegistryError),
}

/// A tensor cannot be made or viewed as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorError {
    /// The shape has another number of elements than there are.
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// The number of elements that it has.
        expected: usize,
        /// The number that there are.
        found: usize,
    },
    /// The bytes are no whole number of elements.
    ByteLength {
        /// The type of the elements.
        scalar_type: ScalarType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes that such a tensor has.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// The shape has too many dimensions, or more elements than memory can hold.
    Shape {
        /// The shape.
        shape: Vec<usize>,
    },
    /// The shape is another one.
    OtherShape {
        /// The shape that is wanted.
        expected: Vec<usize>,
        /// The shape that is there.
        found: Vec<usize>,
    },
    /// The elements are of another type.
    ScalarType {
        /// The type that was asked for.
        expected: ScalarType,
        /// The type that they are of.
        found: ScalarType,
    },
    /// The operation is not defined for elements of this type.
    Unsupported {
        /// The type.
        scalar_type: ScalarType,
        /// The operation.
        operation: &'static str,
    },
    /// The elements do not lie in row-major order.
    NotContiguous,
    /// The dim order is not a permutation of the tensor's dimensions.
    DimOrder {
        /// The dim order.
        dim_order: Vec<u8>,
    },
}

impl Error {
    /// ExecuTorch's numeric code for the condition (`runtime/core/error.h`).
    pub fn code(&self) -> u32 {
        match self {
            Error::File { .. } => code::ACCESS_FAILED,
            Error::Format { source, .. } => source.code(),
            Error::OtherFormat { .. } => code::INVALID_PROGRAM,
            Error::Compile { source } => match source {
                torchlet_graph::Error::Program(source) => source.code(),
                torchlet_graph::Error::Unsupported(_) => code::NOT_SUPPORTED,
                _ => code::INVALID_PROGRAM,
            },
            Error::NoSuchMethod { .. } | Error::TooManyInputs { .. } | Error::FixedInput { .. } => {
                code::INVALID_ARGUMENT
            }
            Error::Missing { operators, .. } if operators.is_empty() => code::NOT_FOUND,
            Error::Missing { .. } => code::OPERATOR_MISSING,
            Error::MemoryLimit { .. } | Error::OutOfMemory { .. } => code::MEMORY_ALLOCATION_FAILED,
            Error::Load { source, .. } => source.code(),
            Error::Input { source, .. } | Error::Output { source, .. } => source.code(),
            Error::InputNotSet { .. } => code::INVALID_ARGUMENT,
            Error::State { source, .. } => source.code(),
            Error::DelegateState { source, .. } => source.code(),
            Error::StateNames { .. } => code::NOT_FOUND,
            Error::Untrainable { .. } => code::NOT_SUPPORTED,
            Error::StateFile { .. } => code::INVALID_EXTERNAL_DATA,
            Error::Execute { source, .. } => source.code(),
            Error::Kind { .. } => code::INVALID_TYPE,
            Error::Tensor(error) => error.code(),
            Error::Registry(error) => error.code(),
        }
    }

    /// The error of loading method `method`.
    pub(crate) fn of_load(method: &str, error: impl Into<InitError>) -> Self {
        Error::Load { method: method.into(), source: Box::new(error.into()) }
    }
}

impl TensorError {
    /// ExecuTorch's numeric code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            TensorError::ScalarType { .. } => code::INVALID_TYPE,
            TensorError::Unsupported { .. } => code::NOT_SUPPORTED,
            _ => code::INVALID_ARGUMENT,
        }
    }
}

/// A number of bytes as people read it.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut unit = "bytes";
        for next in UNITS {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, next);
        }
        if unit == "bytes" { write!(f, "{} bytes", self.0) } else { write!(f, "{value:.1} {unit}") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { path, source } => {
                write!(f, "cannot read '{}': {source}", path.display())
            }
            Error::Compile { source } => write!(f, "cannot compile: {source}"),
            Error::Format { path: Some(path), source } => {
                write!(f, "'{}': {source}", path.display())
            }
            Error::Format { path: None, source } => source.fmt(f),
            Error::OtherFormat { path, expected, found, remedy } => {
                match path {
                    Some(path) => write!(f, "'{}' is {found}", path.display())?,
                    None => write!(f, "the bytes are those of {found}")?,
                }
                write!(f, "; expected {expected}: {remedy}")
            }
            Error::NoSuchMethod { method, available } => {
                write!(f, "the program has no method '{method}'; it has {}", available.join(", "))
            }
            Error::Missing { method, operators, backends } => {
                write!(f, "method '{method}' needs")?;
                if !operators.is_empty() {
                    write!(f, " operators that are not registered: {}", operators.join(", "))?;
                }
                if !backends.is_empty() {
                    let and = if operators.is_empty() { "" } else { ", and" };
                    write!(f, "{and} backends that are not registered: {}", backends.join(", "))?;
                }
                Ok(())
            }
            Error::MemoryLimit { method, needed, limit } => write!(
                f,
                "method '{method}' needs {} of memory and may take {}; if you trust the file, raise the memory limit",
                Bytes(*needed),
                Bytes(*limit)
            ),
            Error::OutOfMemory { needed } => {
                write!(f, "out of memory: {} could not be allocated", Bytes(*needed))
            }
            Error::Load { method, source } => {
                write!(f, "method '{method}' cannot be loaded: {source}")
            }
            Error::Input { method, index, expected, source } => {
                write!(f, "input {index} of '{method}' ({expected}): {source}")
            }
            Error::FixedInput { method, index, expected } => {
                write!(f, "input {index} of '{method}' was fixed to {expected} at export")
            }
            Error::InputNotSet { method, index, expected } => {
                write!(f, "input {index} of '{method}' has no value; it takes {expected}")
            }
            Error::TooManyInputs { method, expected, found } => {
                let plural = if *expected == 1 { "" } else { "s" };
                write!(f, "'{method}' takes {expected} input{plural}, {found} were given")
            }
            Error::Execute { method, source } => write!(f, "method '{method}' failed: {source}"),
            Error::Output { method, index, source } => {
                write!(f, "output {index} of '{method}': {source}")
            }
            Error::State { method, tensor, source } => {
                write!(f, "state '{tensor}' of '{method}': {source}")
            }
            Error::DelegateState { method, tensor, source } => {
                write!(f, "state '{tensor}' of '{method}': {source}")
            }
            Error::StateNames { missing, unknown } => {
                if !unknown.is_empty() {
                    write!(f, "there is no state {}", unknown.join(", "))?;
                }
                if !missing.is_empty() {
                    let and = if unknown.is_empty() { "" } else { "; " };
                    write!(f, "{and}state is missing: {}", missing.join(", "))?;
                }
                Ok(())
            }
            Error::Untrainable { method, reason } => write!(f, "training '{method}': {reason}"),
            Error::StateFile { source } => write!(f, "saved state: {source}"),
            Error::Kind { expected, found } => {
                write!(f, "the value is a {found}, not a {expected}")
            }
            Error::Tensor(error) => error.fmt(f),
            Error::Registry(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorError::Length { shape, expected, found } => {
                write!(f, "shape {shape:?} has {expected} elements, {found} were given")
            }
            TensorError::ByteLength { scalar_type, shape, expected, found } => write!(
                f,
                "shape {shape:?} of {scalar_type} has {expected} bytes, {found} were given"
            ),
            TensorError::Shape { shape } => write!(
                f,
                "shape {shape:?} has more than {} dimensions or more elements than memory can hold",
                torchlet_core::layout::MAX_RANK
            ),
            TensorError::OtherShape { expected, found } => {
                write!(f, "the tensor has shape {found:?}, not {expected:?}")
            }
            TensorError::ScalarType { expected, found } => {
                write!(f, "the tensor's elements are {found}, not {expected}")
            }
            TensorError::Unsupported { scalar_type, operation } => {
                write!(f, "{operation} is not defined for elements of type {scalar_type}")
            }
            TensorError::NotContiguous => f.write_str(
                "the tensor's elements do not lie in row-major order; convert it with to_contiguous first",
            ),
            TensorError::DimOrder { dim_order } => {
                write!(f, "{dim_order:?} is not a permutation of the tensor's dimensions")
            }
        }
    }
}

impl std::error::Error for TensorError {}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { source, .. } => Some(source),
            Error::Format { source, .. } => Some(source),
            Error::Input { source, .. } | Error::Output { source, .. } => Some(source),
            Error::Load { source, .. } => Some(source.as_ref()),
            Error::State { source, .. } => Some(source),
            Error::DelegateState { source, .. } => Some(source),
            Error::StateFile { source } => Some(source.as_ref()),
            Error::Execute { source, .. } => Some(source.as_ref()),
            Error::Tensor(error) => Some(error),
            Error::Registry(error) => Some(error),
            _ => None,
        }
    }
}

impl From<TensorError> for Error {
    fn from(error: TensorError) -> Self {
        Error::Tensor(error)
    }
}
impl From<RegistryError> for Error {
    fn from(error: RegistryError) -> Self {
        Error::Registry(error)
    }
}
