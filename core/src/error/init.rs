//! Errors of loading a method.

use super::{DelegateError, KernelError, Message, ProgramError, code};
use crate::limits::Limit;
use core::fmt;

/// Kind of caller-supplied memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory for a method's tables, or an arena that must also hold them.
    Tables,
    /// The method arena.
    Arena,
    /// A planned buffer, by index.
    Planned(usize),
    /// The scratch memory.
    Scratch,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryKind::Tables => f.write_str("the memory for tables"),
            MemoryKind::Arena => f.write_str("the method arena"),
            MemoryKind::Planned(index) => write!(f, "planned buffer {index}"),
            MemoryKind::Scratch => f.write_str("the scratch memory"),
        }
    }
}

/// A method cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InitError {
    /// The file is not well-formed, or cannot be read.
    Program(ProgramError),
    /// Operators or backends of the method are not registered.
    /// [`MethodMeta::missing`](crate::MethodMeta::missing) lists all of them, regardless of their
    /// number.
    Missing {
        /// Number of missing operators.
        operators: usize,
        /// Number of missing backends.
        backends: usize,
        /// Names of the missing operators and backends, truncated if necessary.
        names: Message,
    },
    /// The program exceeds a [limit](crate::Limits).
    Limit {
        /// The exceeded limit.
        limit: Limit,
        /// Requested amount, or a lower bound of it.
        found: u64,
        /// Allowed amount.
        allowed: u64,
    },
    /// Caller-supplied memory is too small.
    MemoryTooSmall {
        /// The memory in question.
        memory: MemoryKind,
        /// Required size in bytes.
        needed: usize,
        /// Actual size in bytes.
        available: usize,
    },
    /// Caller-supplied memory does not start at a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN)
    /// bytes.
    MemoryMisaligned {
        /// The memory in question.
        memory: MemoryKind,
    },
    /// The number of planned buffers is wrong.
    PlannedBuffers {
        /// Number of the method's planned buffers.
        expected: usize,
        /// Number of supplied buffers.
        found: usize,
    },
    /// The total memory needs of the method exceed the address space.
    TooLarge,
    /// The method was prepared for another [machine](crate::LoadOptions::machine).
    OtherMachine,
    /// The method cannot share this memory.
    Shared {
        /// The reason, and the remedy.
        what: &'static str,
    },
    /// A value of the method is inconsistent.
    Value {
        /// Index of the value.
        index: usize,
        /// Description of the inconsistency.
        what: &'static str,
    },
    /// External data is missing or does not match the program.
    ExternalData {
        /// Name of the data.
        name: Message,
        /// Description of the problem.
        what: &'static str,
    },
    /// An instruction is inconsistent.
    Instruction {
        /// Index of the instruction.
        index: usize,
        /// Description of the inconsistency.
        what: &'static str,
    },
    /// An operator does not support the arguments of its call.
    Kernel {
        /// Index of the instruction.
        instruction: usize,
        /// Name of the operator.
        operator: &'static str,
        /// Cause of the failure.
        source: KernelError,
    },
    /// A backend rejected a delegate.
    Delegate {
        /// Index of the delegate.
        index: usize,
        /// Name of the backend.
        backend: &'static str,
        /// Cause of the failure.
        source: DelegateError,
    },
}

impl InitError {
    /// Corresponding ExecuTorch error code.
    pub fn code(&self) -> u32 {
        match self {
            InitError::Program(error) => error.code(),
            InitError::Missing { operators: 0, .. } => code::NOT_FOUND,
            InitError::Missing { .. } => code::OPERATOR_MISSING,
            InitError::Limit { .. } => code::OUT_OF_RESOURCES,
            InitError::MemoryTooSmall { .. } | InitError::TooLarge => {
                code::MEMORY_ALLOCATION_FAILED
            }
            InitError::MemoryMisaligned { .. }
            | InitError::PlannedBuffers { .. }
            | InitError::OtherMachine
            | InitError::Shared { .. } => code::INVALID_ARGUMENT,
            InitError::Value { .. } | InitError::Instruction { .. } => code::INVALID_PROGRAM,
            InitError::ExternalData { .. } => code::INVALID_EXTERNAL_DATA,
            InitError::Kernel { source, .. } => source.code(),
            InitError::Delegate { source, .. } => source.code(),
        }
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitError::Program(error) => error.fmt(f),
            InitError::Missing { names, .. } => names.fmt(f),
            InitError::Limit { limit, found, allowed } => write!(
                f,
                "the program needs {found} {limit}, the limit is {allowed}; \
                 raise Limits::{limit} if you trust the file"
            ),
            InitError::MemoryTooSmall { memory, needed, available } => {
                write!(
                    f,
                    "{memory} is too small: expected at least {needed} bytes, found {available}"
                )
            }
            InitError::MemoryMisaligned { memory } => write!(
                f,
                "{memory} is not aligned to {} bytes; use AlignedBytes or ArenaBlock",
                crate::memory::ARENA_ALIGN
            ),
            InitError::PlannedBuffers { expected, found } => {
                write!(f, "expected {expected} planned buffers, found {found}")
            }
            InitError::OtherMachine => f.write_str(
                "the method was prepared for another machine, to compute memory needs; \
                 it cannot run",
            ),
            InitError::TooLarge => {
                f.write_str("the memory needs of the method exceed the address space")
            }
            InitError::Shared { what } => write!(f, "the method cannot share this memory: {what}"),
            InitError::Value { index, what } => write!(f, "value {index}: {what}"),
            InitError::ExternalData { name, what } => write!(f, "external data '{name}': {what}"),
            InitError::Instruction { index, what } => write!(f, "instruction {index}: {what}"),
            InitError::Kernel { instruction, operator, source } => {
                write!(f, "instruction {instruction}, {operator}: {source}")
            }
            InitError::Delegate { index, backend, source } => {
                write!(f, "delegate {index} ({backend}): {source}")
            }
        }
    }
}

impl core::error::Error for InitError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            InitError::Program(source) => Some(source),
            InitError::Kernel { source, .. } => Some(source),
            InitError::Delegate { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl<E: Into<ProgramError>> From<E> for InitError {
    fn from(error: E) -> Self {
        InitError::Program(error.into())
    }
}
