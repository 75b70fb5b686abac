//! Error types. Messages say what failed, where, and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;
use torchlet_core::error::code;
use torchlet_core::{
    DelegateError, ExecuteError, InitError, InputError, ProgramError, RegistryError, ScalarType,
};

/// Error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened or read.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file or byte buffer is malformed or unsupported.
    Format {
        /// Path of the file, if the bytes came from one.
        path: Option<PathBuf>,
        /// Cause.
        source: ProgramError,
    },
    /// A file has a different format than expected.
    OtherFormat {
        /// Path of the file, if the bytes came from one.
        path: Option<PathBuf>,
        /// Expected format.
        expected: &'static str,
        /// Actual format.
        found: &'static str,
        /// What the user can do.
        remedy: &'static str,
    },
    /// A program in the format of another tool cannot be converted.
    Import {
        /// Path of the file, if the bytes came from one.
        path: Option<PathBuf>,
        /// Cause.
        source: torchlet_graph::Error,
    },
    /// The program cannot be compiled for the chosen device.
    Compile {
        /// Cause.
        source: torchlet_graph::Error,
    },
    /// The program has no such method.
    NoSuchMethod {
        /// The requested method.
        method: String,
        /// Methods of the program.
        available: Vec<String>,
    },
    /// The method uses operators or backends that are not registered.
    Missing {
        /// Name of the method.
        method: String,
        /// All missing operators, such as `aten::add.out`.
        operators: Vec<String>,
        /// All missing backends, such as `VulkanBackend`.
        backends: Vec<String>,
    },
    /// The method needs more memory than [allowed](crate::ModuleBuilder::memory_limit).
    MemoryLimit {
        /// Name of the method.
        method: String,
        /// Required bytes, without the weights in the file.
        needed: u64,
        /// Allowed bytes.
        limit: u64,
    },
    /// An allocation failed.
    OutOfMemory {
        /// Requested bytes.
        needed: u64,
    },
    /// A method cannot be loaded.
    Load {
        /// Name of the method.
        method: String,
        /// Cause.
        source: Box<InitError>,
    },
    /// A value does not fit an input.
    Input {
        /// Name of the method.
        method: String,
        /// Index of the input.
        index: usize,
        /// Description of the expected input.
        expected: String,
        /// Cause.
        source: InputError,
    },
    /// An input that was fixed at export was given a different value.
    FixedInput {
        /// Name of the method.
        method: String,
        /// Index of the input.
        index: usize,
        /// The value at export.
        expected: String,
    },
    /// An input has no value.
    InputNotSet {
        /// Name of the method.
        method: String,
        /// Index of the input.
        index: usize,
        /// Description of the expected input.
        expected: String,
    },
    /// More inputs were given than the method has.
    TooManyInputs {
        /// Name of the method.
        method: String,
        /// Number of inputs of the method.
        expected: usize,
        /// Number of given inputs.
        found: usize,
    },
    /// A method failed while running.
    Execute {
        /// Name of the method.
        method: String,
        /// Failed instruction and cause.
        source: Box<ExecuteError>,
        /// If an assertion of the program failed, what it asserts, such as `x.size()[0] >= 4`.
        assertion: Option<String>,
    },
    /// An output cannot be read.
    Output {
        /// Name of the method.
        method: String,
        /// Index of the output.
        index: usize,
        /// Cause.
        source: InputError,
    },
    /// A tensor of a method's state cannot be read or written.
    State {
        /// Name of the method.
        method: String,
        /// Name of the tensor, or `#` and its value index.
        tensor: String,
        /// Cause.
        source: InputError,
    },
    /// A state tensor held by a delegate of a method cannot be read or written.
    DelegateState {
        /// Name of the method.
        method: String,
        /// `#` and the value index of the tensor.
        tensor: String,
        /// Cause.
        source: DelegateError,
    },
    /// The given state tensors do not match those of the methods.
    StateNames {
        /// State tensors of the methods that were not given.
        missing: Vec<String>,
        /// Given or requested tensors that the methods do not have.
        unknown: Vec<String>,
    },
    /// The method cannot be trained, or not yet.
    NotTrainable {
        /// Name of the method.
        method: String,
        /// Cause, and what to do.
        reason: String,
    },
    /// Saved state cannot be written or read.
    StateFile {
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A value has a different kind than requested.
    Kind {
        /// Requested kind.
        expected: &'static str,
        /// Actual kind.
        found: &'static str,
    },
    /// A tensor cannot be created or viewed as requested.
    Tensor(TensorError),
    /// Kernels or backends conflict in the registry.
    Registry(RegistryError),
    /// A call of a [lazy tensor](crate::lazy) is refused.
    #[cfg(feature = "lazy")]
    Call {
        /// Name of the operator.
        operator: String,
        /// Why, with what was expected and found.
        reason: String,
    },
    /// A device for [lazy tensors](crate::lazy) is not usable.
    #[cfg(feature = "lazy")]
    NoDevice {
        /// Name of the device.
        name: String,
        /// Cause.
        reason: String,
    },
}

/// A tensor cannot be created or viewed as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorError {
    /// The shape does not match the number of elements.
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// Number of elements of the shape.
        expected: usize,
        /// Number of given elements.
        found: usize,
    },
    /// The number of bytes does not match the shape and element type.
    ByteLength {
        /// The element type.
        scalar_type: ScalarType,
        /// The shape.
        shape: Vec<usize>,
        /// Number of bytes of the shape and type.
        expected: usize,
        /// Number of given bytes.
        found: usize,
    },
    /// The shape has too many dims, or more elements than memory can hold.
    Shape {
        /// The shape.
        shape: Vec<usize>,
    },
    /// The tensor has a different shape than required.
    OtherShape {
        /// The required shape.
        expected: Vec<usize>,
        /// The actual shape.
        found: Vec<usize>,
    },
    /// The tensor has a different element type than requested.
    ScalarType {
        /// The requested element type.
        expected: ScalarType,
        /// The actual element type.
        found: ScalarType,
    },
    /// The operation is not defined for this element type.
    Unsupported {
        /// The element type.
        scalar_type: ScalarType,
        /// The operation.
        operation: &'static str,
    },
    /// The elements are not in row-major order.
    NotContiguous,
    /// The dim order is not a permutation of the dims.
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
            Error::Compile { source } | Error::Import { source, .. } => match source {
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
            Error::NotTrainable { .. } => code::NOT_SUPPORTED,
            Error::StateFile { .. } => code::INVALID_EXTERNAL_DATA,
            Error::Execute { source, .. } => source.code(),
            Error::Kind { .. } => code::INVALID_TYPE,
            Error::Tensor(error) => error.code(),
            Error::Registry(error) => error.code(),
            #[cfg(feature = "lazy")]
            Error::Call { .. } => code::INVALID_ARGUMENT,
            #[cfg(feature = "lazy")]
            Error::NoDevice { .. } => code::NOT_FOUND,
        }
    }

    /// Error of loading `method`.
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

/// Formats a number of bytes with a binary unit.
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
            Error::Import { path: Some(path), source } => {
                write!(f, "cannot import '{}': {source}", path.display())
            }
            Error::Import { path: None, source } => write!(f, "cannot import: {source}"),
            Error::Format { path: Some(path), source } => {
                write!(f, "'{}': {source}", path.display())
            }
            Error::Format { path: None, source } => source.fmt(f),
            Error::OtherFormat { path, expected, found, remedy } => {
                match path {
                    Some(path) => write!(f, "'{}' is {found}", path.display())?,
                    None => write!(f, "the bytes are {found}")?,
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
                    #[cfg(feature = "portable")]
                    if let Some(feature) = torchlet_portable::OMITTED_FEATURE {
                        write!(f, " (this build lacks the feature `{feature}`)")?;
                    }
                }
                if !backends.is_empty() {
                    let and = if operators.is_empty() { "" } else { ", and" };
                    write!(f, "{and} backends that are not registered: {}", backends.join(", "))?;
                }
                Ok(())
            }
            Error::MemoryLimit { method, needed, limit } => write!(
                f,
                "method '{method}' needs {} of memory, but the limit is {}; if you trust the file, \
                 raise the memory limit",
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
                write!(f, "input {index} of '{method}' has no value; expected {expected}")
            }
            Error::TooManyInputs { method, expected, found } => {
                let plural = if *expected == 1 { "" } else { "s" };
                write!(f, "'{method}' expects {expected} input{plural}, found {found}")
            }
            Error::Execute { method, source, assertion } => {
                write!(f, "method '{method}' failed: {source}")?;
                match assertion {
                    Some(assertion) => write!(f, ": {assertion}"),
                    None => Ok(()),
                }
            }
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
                    write!(f, "unknown state: {}", unknown.join(", "))?;
                }
                if !missing.is_empty() {
                    let and = if unknown.is_empty() { "" } else { "; " };
                    write!(f, "{and}missing state: {}", missing.join(", "))?;
                }
                Ok(())
            }
            Error::NotTrainable { method, reason } => write!(f, "training '{method}': {reason}"),
            Error::StateFile { source } => write!(f, "saved state: {source}"),
            Error::Kind { expected, found } => {
                write!(f, "value: expected {expected}, found {found}")
            }
            Error::Tensor(error) => error.fmt(f),
            Error::Registry(error) => error.fmt(f),
            #[cfg(feature = "lazy")]
            Error::Call { operator, reason } => write!(f, "{operator}: {reason}"),
            #[cfg(feature = "lazy")]
            Error::NoDevice { name, reason } => {
                write!(f, "the device '{name}' cannot be used: {reason}")
            }
        }
    }
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorError::Length { shape, expected, found } => {
                write!(f, "shape {shape:?}: expected {expected} elements, found {found}")
            }
            TensorError::ByteLength { scalar_type, shape, expected, found } => write!(
                f,
                "shape {shape:?} of {scalar_type}: expected {expected} bytes, found {found}"
            ),
            TensorError::Shape { shape } => write!(
                f,
                "shape {shape:?} has more than {} dims or exceeds the address space",
                torchlet_core::layout::MAX_RANK
            ),
            TensorError::OtherShape { expected, found } => {
                write!(f, "expected shape {expected:?}, found {found:?}")
            }
            TensorError::ScalarType { expected, found } => {
                write!(f, "expected dtype {expected}, found {found}")
            }
            TensorError::Unsupported { scalar_type, operation } => {
                write!(f, "{operation} is not supported for dtype {scalar_type}")
            }
            TensorError::NotContiguous => {
                f.write_str("the tensor is not contiguous (row-major); call to_contiguous first")
            }
            TensorError::DimOrder { dim_order } => {
                write!(f, "dim order {dim_order:?} is not a permutation of the tensor's dims")
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
