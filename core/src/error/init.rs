//! Methods that cannot be loaded.

use super::{DelegateError, KernelError, Message, ProgramError, code};
use crate::limits::Limit;
use core::fmt;

/// Which of the memories that a caller supplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum MemoryKind {
    /// The tables of a method, or an arena that is to hold them, too.
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
            MemoryKind::Tables => f.write_str("the memory for the method's tables"),
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
    /// [`MethodMeta::missing`](crate::MethodMeta::missing) lists all of them however long the list
    /// is.
    Missing {
        /// How many operators.
        operators: usize,
        /// How many backends.
        backends: usize,
        /// Their names, as many as fit.
        names: Message,
    },
    /// The program asks for more than it [may](crate::Limits).
    Limit {
        /// What it asks too much of.
        limit: Limit,
        /// How much it asks for, or more than that.
        found: u64,
        /// How much it may ask for.
        allowed: u64,
    },
    /// A memory that the caller supplied is too small.
    MemoryTooSmall {
        /// Which one.
        memory: MemoryKind,
        /// Bytes that it must hold.
        needed: usize,
        /// Bytes that it holds.
        available: usize,
    },
    /// A memory that the caller supplied does not start at a multiple of
    /// [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes.
    MemoryMisaligned {
        /// Which one.
        memory: MemoryKind,
    },
    /// The number of planned buffers differs.
    PlannedBuffers {
        /// How many the method has.
        expected: usize,
        /// How many were supplied.
        found: usize,
    },
    /// The method's sizes add up to more than this machine can address.
    TooLarge,
    /// The method was prepared for another [machine](crate::LoadOptions::machine).
    OtherMachine,
    /// The method cannot be one of those that share this memory.
    Shared {
        /// Why not, and what to do.
        what: &'static str,
    },
    /// A value of the method is inconsistent.
    Value {
        /// Its index.
        index: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Data that the program expects from outside is missing or differs.
    ExternalData {
        /// The name of the data.
        name: Message,
        /// What is wrong.
        what: &'static str,
    },
    /// An instruction is inconsistent.
    Instruction {
        /// Its index.
        index: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// An operator cannot run with the arguments that the method gives it.
    Kernel {
        /// The instruction's index.
        instruction: usize,
        /// The operator.
        operator: &'static str,
        /// Why.
        source: KernelError,
    },
    /// A backend refused a delegate.
    Delegate {
        /// The delegate's index.
        index: usize,
        /// The backend's name.
        backend: &'static str,
        /// Why.
        source: DelegateError,
    },
}

impl InitError {
    /// ExecuTorch's code for the condition.
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
                "the program asks for {found} {limit} and may ask for {allowed}; raise Limits::{limit} if you trust the file"
            ),
            InitError::MemoryTooSmall { memory, needed, available } => {
                write!(f, "{memory} holds {available} bytes and must hold {needed}")
            }
            InitError::MemoryMisaligned { memory } => write!(
                f,
                "{memory} must start at a multiple of {} bytes; AlignedBytes does",
                crate::memory::ARENA_ALIGN
            ),
            InitError::PlannedBuffers { expected, found } => {
                write!(f, "{found} planned buffers were supplied, the method has {expected}")
            }
            InitError::OtherMachine => f.write_str(
                "the method was prepared for another machine: it can tell its needs, and not run",
            ),
            InitError::TooLarge => {
                f.write_str("the method needs more memory than can be addressed")
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
