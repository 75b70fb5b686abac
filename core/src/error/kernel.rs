//! Errors of kernel calls.

use super::code;
use crate::dtype::ScalarType;
use crate::param::Param;
use core::fmt;
use core::num::NonZeroU32;

/// Number of sizes that a [`ShapeNote`] stores.
#[cfg(feature = "messages")]
const MAX_NOTED_SIZES: usize = 6;
#[cfg(not(feature = "messages"))]
const MAX_NOTED_SIZES: usize = 0;

/// A shape in an error message: the rank and, with the feature `messages`, the first sizes. Kept
/// short because errors are moved from function to function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ShapeNote {
    rank: u8,
    sizes: [i32; MAX_NOTED_SIZES],
}

impl ShapeNote {
    /// Creates a note from a shape.
    pub fn new(sizes: &[i32]) -> Self {
        let mut note = ShapeNote { rank: sizes.len().min(255) as u8, sizes: [0; MAX_NOTED_SIZES] };
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
            rank if MAX_NOTED_SIZES == 0 => write!(f, "{rank} dims]"),
            rank if rank > MAX_NOTED_SIZES => f.write_str(", ...]"),
            _ => f.write_str("]"),
        }
    }
}

/// Declares the error kinds of kernel calls, each with a constructor of [`KernelError`].
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $make:ident($($field:ident: $type:ty),*) at $arg:expr;)*) => {
        /// Kind of a [`KernelError`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum KernelErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl KernelErrorKind {
            const ALL: &[Self] = &[$(Self::$kind,)*];
        }

        /// The kind with all its details.
        #[cfg(any(feature = "messages", feature = "defmt"))]
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        enum Detail {
            $($kind { $($field: $type),* },)*
        }

        impl KernelError {
            $(
                $(#[$doc])*
                #[inline]
                pub const fn $make($($field: $type),*) -> Self {
                    #[cfg(not(any(feature = "messages", feature = "defmt")))]
                    $(let _ = &$field;)*
                    KernelError {
                        word: Word::new(KernelErrorKind::$kind, $arg),
                        #[cfg(any(feature = "messages", feature = "defmt"))]
                        detail: Detail::$kind { $($field),* },
                    }
                }
            )*
        }
    };
}

kinds! {
    /// The call has fewer arguments than the operator.
    ArgumentCount = argument_count(expected: usize, found: usize) at None;
    /// An argument is of another kind.
    ArgumentKind = argument_kind(arg: usize, expected: Param, found: &'static str) at Some(arg);
    /// The kernel does not support this dtype of an argument.
    ScalarType = scalar_type(arg: usize, found: ScalarType) at Some(arg);
    /// Data was viewed as another dtype than its own.
    ElementType = element_type(expected: ScalarType, found: ScalarType) at None;
    /// Data is not aligned for its dtype.
    Alignment = alignment(scalar_type: ScalarType) at None;
    /// The operator does not support this rank of a tensor.
    Rank = rank(arg: usize, found: usize) at Some(arg);
    /// The shape of a tensor is wrong, and cannot be changed.
    Shape = shape(arg: usize, expected: ShapeNote, found: ShapeNote) at Some(arg);
    /// A tensor's memory layout (dim order) is not supported.
    Layout = layout(arg: usize) at Some(arg);
    /// The value of an argument is out of range.
    Argument = argument(arg: usize, what: &'static str) at Some(arg);
    /// A valid combination of arguments is not implemented.
    Unsupported = unsupported(what: &'static str) at None;
    /// A tensor has no memory: its input or output must be bound first.
    Unbound = unbound(arg: usize) at Some(arg);
    /// A written tensor lies in read-only memory.
    ReadOnly = read_only(arg: usize) at Some(arg);
    /// A written tensor shares memory with another argument.
    Overlap = overlap(arg: usize, other: usize) at Some(arg);
    /// An argument was accessed in violation of its declaration, or requested twice for writing.
    /// This is a bug in the kernel or delegate, not in the file.
    Access = access(arg: usize) at Some(arg);
    /// The scratch memory is too small.
    Scratch = scratch(needed: usize, available: usize) at None;
}

/// A kernel cannot be prepared or run with its arguments, which count from 0.
///
/// Without the features `messages` and `defmt`, it is one machine word with the [kind](Self::kind)
/// and the [argument](Self::argument_index). Every kernel call returns one, and returning more than
/// a register costs significant code size.
#[derive(Clone, PartialEq, Eq)]
pub struct KernelError {
    word: Word,
    #[cfg(any(feature = "messages", feature = "defmt"))]
    detail: Detail,
}

/// Error kind and argument index, packed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(NonZeroU32);

impl Word {
    /// Marks errors that concern no argument. Operators have fewer arguments.
    const NO_ARGUMENT: u8 = u8::MAX;

    const fn new(kind: KernelErrorKind, arg: Option<usize>) -> Self {
        let arg = match arg {
            Some(arg) if arg < Self::NO_ARGUMENT as usize => arg as u8,
            _ => Self::NO_ARGUMENT,
        };
        // Stored plus one, to be non-zero.
        Word(NonZeroU32::MIN.saturating_add((kind as u32) | (arg as u32) << 8))
    }

    fn kind(self) -> KernelErrorKind {
        let index = (self.0.get() - 1) as u8;
        KernelErrorKind::ALL.get(usize::from(index)).copied().unwrap_or(KernelErrorKind::Access)
    }

    fn arg(self) -> Option<usize> {
        let arg = ((self.0.get() - 1) >> 8) as u8;
        (arg != Self::NO_ARGUMENT).then_some(usize::from(arg))
    }
}

impl KernelError {
    /// Kind of the error.
    pub fn kind(&self) -> KernelErrorKind {
        self.word.kind()
    }

    /// Index of the offending argument, if any.
    pub fn argument_index(&self) -> Option<usize> {
        self.word.arg()
    }

    /// Whether the error may disappear with other shapes or scalars. If it occurs before the values
    /// are known, it is inconclusive.
    pub(crate) fn depends_on_values(&self) -> bool {
        use KernelErrorKind as K;
        matches!(self.kind(), K::Shape | K::Argument | K::Rank)
    }

    /// Corresponding ExecuTorch error code.
    pub fn code(&self) -> u32 {
        use KernelErrorKind as K;
        match self.kind() {
            K::ArgumentKind | K::ScalarType | K::ElementType => code::INVALID_TYPE,
            K::Layout | K::Unsupported => code::NOT_SUPPORTED,
            K::Unbound => code::INVALID_STATE,
            K::ReadOnly | K::Overlap | K::Alignment => code::INVALID_PROGRAM,
            K::Access => code::INTERNAL,
            K::Scratch => code::MEMORY_ALLOCATION_FAILED,
            _ => code::INVALID_ARGUMENT,
        }
    }
}

#[cfg(any(feature = "messages", feature = "defmt"))]
impl fmt::Debug for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.detail.fmt(f)
    }
}

#[cfg(not(any(feature = "messages", feature = "defmt")))]
impl fmt::Debug for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word.fmt(f)
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for KernelError {
    fn format(&self, f: defmt::Formatter<'_>) {
        // Calling its `format` would start another frame inside this one, which panics.
        defmt::write!(f, "{}", self.detail);
    }
}

#[cfg(any(feature = "messages", feature = "defmt"))]
impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.detail.fmt(f)
    }
}

#[cfg(not(any(feature = "messages", feature = "defmt")))]
impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word.fmt(f)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("KernelError");
        text.field("kind", &self.kind()).field("argument", &self.arg()).finish()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.arg() {
            Some(arg) => write!(f, "argument {arg}: {:?}", self.kind())?,
            None => write!(f, "{:?}", self.kind())?,
        }
        f.write_str(" (details: feature `messages`)")
    }
}

#[cfg(any(feature = "messages", feature = "defmt"))]
impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Detail::ArgumentCount { expected, found } => {
                write!(f, "expected {expected} arguments, found {found}")
            }
            Detail::ArgumentKind { arg, expected, found } => {
                write!(f, "argument {arg}: expected {}, found {found}", expected.name())
            }
            Detail::ScalarType { arg, found } => {
                write!(f, "argument {arg}: the operator does not support dtype {found}")
            }
            Detail::ElementType { expected, found } => {
                write!(f, "expected data of dtype {expected}, found {found}")
            }
            Detail::Alignment { scalar_type } => {
                write!(f, "data of dtype {scalar_type} is not aligned to its elements")
            }
            Detail::Rank { arg, found } => {
                write!(f, "argument {arg}: the operator does not support rank {found}")
            }
            Detail::Shape { arg, expected, found } => {
                write!(f, "argument {arg}: expected shape {expected}, found {found}")
            }
            Detail::Layout { arg } => {
                write!(f, "argument {arg}: the operator does not support this dim order")
            }
            Detail::Argument { arg, what } => write!(f, "argument {arg}: {what}"),
            Detail::Unsupported { what } => write!(f, "not supported: {what}"),
            Detail::Unbound { arg } => {
                write!(
                    f,
                    "argument {arg}: no memory; bind memory to that input or output before the run"
                )
            }
            Detail::ReadOnly { arg } => {
                write!(f, "argument {arg}: the output is in read-only memory")
            }
            Detail::Overlap { arg, other } => {
                write!(f, "argument {arg}: the output shares memory with argument {other}")
            }
            Detail::Access { arg } => {
                write!(
                    f,
                    "argument {arg}: the access violates its declaration \
                     (bug in kernel or delegate)"
                )
            }
            Detail::Scratch { needed, available } => {
                write!(
                    f,
                    "scratch memory is too small: expected at least {needed} bytes, \
                     found {available}"
                )
            }
        }
    }
}

impl core::error::Error for KernelError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn word_packs_kind_and_argument() {
        for &kind in KernelErrorKind::ALL {
            for arg in [None, Some(0), Some(7), Some(254)] {
                let word = Word::new(kind, arg);
                assert_eq!((word.kind(), word.arg()), (kind, arg));
            }
            assert_eq!(Word::new(kind, Some(255)).arg(), None);
            assert_eq!(Word::new(kind, Some(usize::MAX)).kind(), kind);
        }
        let text = Word::new(KernelErrorKind::Layout, Some(3)).to_string();
        assert_eq!(text, "argument 3: Layout (details: feature `messages`)");
        assert_eq!(size_of::<Option<Word>>(), 4);
    }

    #[test]
    fn error_reports_its_details() {
        let error = KernelError::overlap(1, 2);
        assert_eq!((error.kind(), error.argument_index()), (KernelErrorKind::Overlap, Some(1)));
        assert_eq!(error.code(), code::INVALID_PROGRAM);
        let text = "argument 1: the output shares memory with argument 2";
        assert_eq!(error.to_string(), text);
        assert!(KernelError::rank(0, 3).depends_on_values());
        assert!(!KernelError::layout(0).depends_on_values());
        assert_ne!(KernelError::rank(0, 3), KernelError::rank(0, 4));
    }
}
