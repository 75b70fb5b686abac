//! Calls that kernels cannot take.

use super::code;
use crate::dtype::ScalarType;
use crate::kernel::Param;
use core::fmt;

/// How many sizes of a shape are noted.
#[cfg(feature = "messages")]
const NOTED: usize = 6;
#[cfg(not(feature = "messages"))]
const NOTED: usize = 0;

/// A shape in an error message: the rank and, with the feature `messages`, the first sizes. (Errors are returned from function to
/// function; each byte of them is moved each time.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ShapeNote {
    rank: u8,
    sizes: [i32; NOTED],
}

impl ShapeNote {
    /// Notes a shape.
    pub fn new(sizes: &[i32]) -> Self {
        let mut note = ShapeNote { rank: sizes.len().min(255) as u8, sizes: [0; NOTED] };
        for (noted, &size) in note.sizes.iter_mut().zip(sizes) {
            *noted = size;
        }
        note
    }
}

impl fmt::Display for ShapeNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (position, size) in self.sizes.iter().take(usize::from(self.rank)).enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{size}")?;
        }
        match usize::from(self.rank) {
            rank if NOTED == 0 => write!(f, "{rank} dimensions]"),
            rank if rank > NOTED => f.write_str(", ...]"),
            _ => f.write_str("]"),
        }
    }
}

/// A kernel cannot be prepared or run with the arguments it has. Arguments count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KernelError {
    /// The call has fewer arguments than the operator.
    ArgumentCount {
        /// How many the operator has.
        expected: usize,
        /// How many the call has.
        found: usize,
    },
    /// An argument is a value of another kind.
    ArgumentKind {
        /// Which argument.
        arg: usize,
        /// What the operator takes there.
        expected: Param,
        /// What the program has there.
        found: &'static str,
    },
    /// The kernel does not support this element type of an argument.
    ScalarType {
        /// Which argument.
        arg: usize,
        /// Its type.
        found: ScalarType,
    },
    /// Data was viewed as another element type than it has.
    ElementType {
        /// The type of the view.
        expected: ScalarType,
        /// The type of the data.
        found: ScalarType,
    },
    /// Data is not aligned for its element type.
    Alignment {
        /// The type of the data.
        scalar_type: ScalarType,
    },
    /// A tensor has the wrong number of dimensions.
    Rank {
        /// Which argument.
        arg: usize,
        /// Its number of dimensions.
        found: usize,
    },
    /// A tensor has another shape than it must have, and cannot be given that shape.
    Shape {
        /// Which argument.
        arg: usize,
        /// What it must be.
        expected: ShapeNote,
        /// What it is.
        found: ShapeNote,
    },
    /// A tensor's memory layout (dim order) is not supported.
    Layout {
        /// Which argument.
        arg: usize,
    },
    /// The value of an argument is out of range.
    Argument {
        /// Which argument.
        arg: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A combination of arguments is valid but not implemented.
    Unsupported {
        /// What is not implemented.
        what: &'static str,
    },
    /// A tensor has no memory: bind its input or output first.
    Unbound {
        /// Which argument.
        arg: usize,
    },
    /// A tensor that is written lies in read-only memory.
    ReadOnly {
        /// Which argument.
        arg: usize,
    },
    /// A tensor that is written shares memory with another argument.
    Overlap {
        /// The tensor that is written.
        arg: usize,
        /// The other one.
        other: usize,
    },
    /// An argument was asked for as something that it is not declared as, or twice for writing.
    /// The kernel or delegate breaks its contract; the file is not to blame.
    Access {
        /// Which argument.
        arg: usize,
    },
    /// The scratch memory is too small.
    Scratch {
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        available: usize,
    },
}

impl KernelError {
    /// Whether the error may go away with other shapes or scalars: what is prepared before the values are
    /// known cannot judge it.
    pub(crate) fn depends_on_values(&self) -> bool {
        matches!(
            self,
            KernelError::Shape { .. } | KernelError::Argument { .. } | KernelError::Rank { .. }
        )
    }

    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            KernelError::ArgumentKind { .. }
            | KernelError::ScalarType { .. }
            | KernelError::ElementType { .. } => code::INVALID_TYPE,
            KernelError::Layout { .. } | KernelError::Unsupported { .. } => code::NOT_SUPPORTED,
            KernelError::Unbound { .. } => code::INVALID_STATE,
            KernelError::ReadOnly { .. }
            | KernelError::Overlap { .. }
            | KernelError::Alignment { .. } => code::INVALID_PROGRAM,
            KernelError::Access { .. } => code::INTERNAL,
            KernelError::Scratch { .. } => code::MEMORY_ALLOCATION_FAILED,
            _ => code::INVALID_ARGUMENT,
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::ArgumentCount { expected, found } => {
                write!(f, "the call has {found} arguments, the operator {expected}")
            }
            KernelError::ArgumentKind { arg, expected, found } => {
                write!(f, "argument {arg} is a {found}, expected a {}", expected.name())
            }
            KernelError::ScalarType { arg, found } => {
                write!(f, "argument {arg} has type {found}, which this kernel does not support")
            }
            KernelError::ElementType { expected, found } => {
                write!(f, "data of type {found} was viewed as {expected}")
            }
            KernelError::Alignment { scalar_type } => {
                write!(f, "data of type {scalar_type} is not aligned to its elements")
            }
            KernelError::Rank { arg, found } => {
                write!(f, "argument {arg} has {found} dimensions, which the operator does not take")
            }
            KernelError::Shape { arg, expected, found } => {
                write!(f, "argument {arg} has shape {found}, expected {expected}")
            }
            KernelError::Layout { arg } => {
                write!(f, "argument {arg} has a memory layout that this kernel does not support")
            }
            KernelError::Argument { arg, what } => write!(f, "argument {arg}: {what}"),
            KernelError::Unsupported { what } => write!(f, "not supported: {what}"),
            KernelError::Unbound { arg } => {
                write!(
                    f,
                    "argument {arg} has no memory; bind that input or output before execution"
                )
            }
            KernelError::ReadOnly { arg } => {
                write!(f, "argument {arg} is written but lies in read-only memory")
            }
            KernelError::Overlap { arg, other } => {
                write!(f, "argument {arg} is written and shares memory with argument {other}")
            }
            KernelError::Access { arg } => {
                write!(
                    f,
                    "argument {arg} was accessed in a way that its declaration does not allow"
                )
            }
            KernelError::Scratch { needed, available } => {
                write!(f, "scratch memory holds {available} bytes and must hold {needed}")
            }
        }
    }
}

impl core::error::Error for KernelError {}
