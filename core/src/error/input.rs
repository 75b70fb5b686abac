//! Inputs and outputs that do not fit.

use super::{ShapeNote, code};
use crate::dtype::ScalarType;
use core::fmt;

/// An input cannot be set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InputError {
    /// There is no such input or output.
    Index {
        /// The index that was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The value is of another kind.
    Kind {
        /// What the method takes there.
        expected: &'static str,
        /// What was given.
        found: &'static str,
    },
    /// The tensor is of another element type.
    ScalarType {
        /// What the method takes there.
        expected: ScalarType,
        /// What was given.
        found: ScalarType,
    },
    /// The tensor's shape does not fit: it differs from a static shape or exceeds a bound.
    Shape {
        /// The shape, or the bound.
        expected: ShapeNote,
        /// What was given.
        found: ShapeNote,
        /// Whether `expected` is a bound.
        bound: bool,
    },
    /// The tensor's memory layout (dim order) differs.
    Layout,
    /// The tensor is not memory-planned and has no memory yet: bind it first.
    Unbound,
    /// The tensor has memory of its own already (it is memory-planned or constant).
    Planned,
    /// The memory is too small for the tensor.
    TooSmall {
        /// Bytes that it must hold.
        needed: usize,
        /// Bytes that it holds.
        available: usize,
    },
    /// The memory is not aligned to the tensor's elements.
    Misaligned,
    /// The method must be loaded again or reset: the last reset failed half-way.
    Unusable,
    /// The tensor lies in shared memory that another method used since this one ran.
    Stale,
}

impl InputError {
    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            InputError::Shape { .. } => code::NOT_SUPPORTED,
            InputError::Unbound
            | InputError::Planned
            | InputError::Unusable
            | InputError::Stale => code::INVALID_STATE,
            InputError::Kind { .. } => code::INVALID_TYPE,
            _ => code::INVALID_ARGUMENT,
        }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputError::Index { index, count } => {
                write!(f, "index {index} is out of range: there are {count}")
            }
            InputError::Kind { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            InputError::ScalarType { expected, found } => {
                write!(f, "expected elements of type {expected}, found {found}")
            }
            InputError::Shape { expected, found, bound: false } => {
                write!(
                    f,
                    "expected shape {expected}, found {found}; export with dynamic shapes to vary it"
                )
            }
            InputError::Shape { expected, found, bound: true } => {
                write!(
                    f,
                    "shape {found} exceeds the bound {expected} that the program was exported with"
                )
            }
            InputError::Layout => {
                f.write_str("the tensor's dim order differs from the exported one")
            }
            InputError::Unbound => f.write_str(
                "the tensor has no memory: the program leaves it to the caller to bind some",
            ),
            InputError::Planned => {
                f.write_str("the tensor has memory of its own; it cannot be bound")
            }
            InputError::TooSmall { needed, available } => {
                write!(f, "the memory holds {available} bytes and must hold {needed}")
            }
            InputError::Misaligned => {
                f.write_str("the memory is not aligned to the tensor's elements")
            }
            InputError::Unusable => f.write_str("the last reset failed; reset the method again"),
            InputError::Stale => f.write_str(
                "another method used the shared memory since this one ran; read outputs before another one runs",
            ),
        }
    }
}

impl core::error::Error for InputError {}
