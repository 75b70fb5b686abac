//! Errors of inputs and outputs.

use super::{ShapeNote, code};
use crate::dtype::ScalarType;
use core::fmt;

/// An input cannot be set, or an output cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InputError {
    /// The index of the input or output is out of range.
    Index {
        /// The requested index.
        index: usize,
        /// Number of inputs or outputs.
        count: usize,
    },
    /// The value is of another kind.
    Kind {
        /// Kind that the method expects.
        expected: &'static str,
        /// Kind that was passed.
        found: &'static str,
    },
    /// The tensor has another dtype.
    ScalarType {
        /// Dtype that the method expects.
        expected: ScalarType,
        /// Dtype that was passed.
        found: ScalarType,
    },
    /// The shape differs from a static shape or exceeds the bound of a dynamic one.
    Shape {
        /// The static shape, or the bound.
        expected: ShapeNote,
        /// Shape that was passed.
        found: ShapeNote,
        /// Whether `expected` is an upper bound.
        bound: bool,
    },
    /// The tensor's memory layout (dim order) differs.
    Layout,
    /// The tensor is not memory-planned and has no memory yet: bind memory first.
    Unbound,
    /// The tensor already has memory of its own (it is memory-planned or constant).
    Planned,
    /// The memory is too small for the tensor.
    TooSmall {
        /// Required size in bytes.
        needed: usize,
        /// Actual size in bytes.
        available: usize,
    },
    /// The memory is not aligned to the tensor's elements.
    Misaligned,
    /// The last reset failed: the method must be reset again or reloaded.
    Unusable,
    /// The tensor lies in shared memory that another method used after this one ran.
    Stale,
}

impl InputError {
    /// Corresponding ExecuTorch error code.
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
                write!(f, "index {index} is out of range (count: {count})")
            }
            InputError::Kind { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            InputError::ScalarType { expected, found } => {
                write!(f, "expected dtype {expected}, found {found}")
            }
            InputError::Shape { expected, found, bound: false } => {
                write!(
                    f,
                    "expected shape {expected}, found {found}; \
                     export with dynamic shapes to vary it"
                )
            }
            InputError::Shape { expected, found, bound: true } => {
                write!(
                    f,
                    "shape {found} exceeds the bound {expected} of the exported dynamic shape"
                )
            }
            InputError::Layout => {
                f.write_str("the tensor's dim order differs from the exported one")
            }
            InputError::Unbound => f.write_str(
                "the tensor has no memory: it is not memory-planned, so bind memory to it first",
            ),
            InputError::Planned => {
                f.write_str("cannot bind memory: the tensor is memory-planned, constant or a view")
            }
            InputError::TooSmall { needed, available } => {
                write!(
                    f,
                    "the memory is too small: expected at least {needed} bytes, found {available}"
                )
            }
            InputError::Misaligned => {
                f.write_str("the memory is not aligned to the tensor's dtype")
            }
            InputError::Unusable => f.write_str("the last reset failed; reset the method again"),
            InputError::Stale => f.write_str(
                "another method used the shared memory since this one ran; \
                 read outputs before another one runs",
            ),
        }
    }
}

impl core::error::Error for InputError {}
