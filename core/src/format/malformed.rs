//! Description of a malformed file in one machine word, so that it fits a register in every result.

use core::num::NonZeroUsize;

/// Declares the parts of files and their names.
macro_rules! parts {
    ($($(#[$doc:meta])* $part:ident = $name:literal,)*) => {
        /// The malformed part of a file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Part {
            $($(#[$doc])* $part,)*
        }

        impl Part {
            const ALL: &[Part] = &[$(Part::$part,)*];

            /// Name of the part, for messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Part::$part => $name,)*
                }
            }
        }
    };
}

parts! {
    /// A vtable.
    Vtable = "vtable at byte",
    /// A number.
    Number = "number at byte",
    /// A forward offset.
    Offset = "offset at byte",
    /// A table.
    Table = "table at byte",
    /// A field of a table.
    Field = "field at byte",
    /// A vector that exceeds the file.
    Vector = "vector at byte",
    /// A string that is not UTF-8.
    String = "string (not UTF-8) at byte",
    /// Identifier of a program file.
    ProgramIdentifier = "program file: the identifier ET12 is missing at byte",
    /// Identifier of a tensor data file.
    DataIdentifier = "tensor data file: the identifier FT01 is missing at byte",
    /// Identifier of a bundled program.
    BundleIdentifier = "bundled program: the identifier BP08 is missing at byte",
    /// Fixed header of a file, with the offset of the invalid byte.
    Header = "file header (or the file is cut short) at byte",
    /// A segment, by index.
    Segment = "segment",
    /// Segments that end past the end of the file.
    SegmentsEnd = "segments (past the end of the file), header at byte",
    /// Tensor data, by entry.
    TensorData = "data of a tensor, entry",
    /// Initial data of a mutable tensor, by entry.
    InitialData = "initial data of a tensor, entry",
    /// Delegate data, by index.
    DelegateData = "data of delegate",
    /// Named data, read past its end.
    NamedData = "named data (read past its end) at byte",
    /// External tensor without a name.
    ExternalName = "external tensor without a name, value",
    /// A value, by index.
    Value = "value",
    /// Value type that the schema does not define, or that the [image](crate::RuntimeFeatures) does
    /// not support.
    ValueKind = "value of a type that is unknown or not supported by this image,",
    /// Dtype, shape or layout of a tensor, by value index.
    Tensor = "tensor (dtype, shape or dim order), value",
    /// Layout of a tensor in a data file.
    TensorLayout = "tensor layout, entry",
    /// Value of a test case.
    BundledValue = "bundled value of type",
    /// Size of a planned buffer, by index.
    PlannedBuffer = "size of planned buffer",
    /// An operator, by index.
    Operator = "operator",
    /// A delegate, by index.
    Delegate = "delegate",
    /// An instruction, by index.
    Instruction = "instruction",
    /// Instruction type that the schema does not define, or that the
    /// [image](crate::RuntimeFeatures) does not support.
    InstructionKind = "instruction of a type that is unknown or not supported by this image,",
    /// An input, by position.
    Input = "input",
    /// An output, by position.
    Output = "output",
    /// Tables shared by too many offsets, with which a small file could describe a large program.
    Shared = "list: its items are shared more often than the file size permits; position",
}

/// Error: the file is malformed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Malformed(NonZeroUsize);

const PART_BITS: u32 = 6;
const _: () = assert!(Part::ALL.len() < 1 << PART_BITS);

impl Part {
    /// Creates the error for this part, at a byte offset or index.
    pub const fn at(self, position: usize) -> Malformed {
        let max = usize::MAX >> PART_BITS;
        let position = if position > max { max } else { position };
        // Parts count from 1, so the word is never zero.
        let word = position << PART_BITS | (self as usize + 1);
        match NonZeroUsize::new(word) {
            Some(word) => Malformed(word),
            None => Malformed(NonZeroUsize::MIN),
        }
    }
}

impl Malformed {
    /// The malformed part.
    pub fn part(self) -> Part {
        let code = self.0.get() & ((1 << PART_BITS) - 1);
        Part::ALL.get(code.wrapping_sub(1)).copied().unwrap_or(Part::Table)
    }

    /// Position: offset from the start of the flatbuffer or index, according to the part's name.
    /// Saturates at 2^26 - 1 on 32-bit machines.
    pub fn position(self) -> usize {
        self.0.get() >> PART_BITS
    }
}

impl core::fmt::Debug for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Malformed({:?}, {})", self.part(), self.position())
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "malformed {} {}", self.part().name(), self.position())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Malformed {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "malformed {} {}", self.part().name(), self.position());
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_and_position_fit_one_word() {
        assert_eq!(size_of::<Result<(), Malformed>>(), size_of::<usize>());
        for part in Part::ALL {
            let malformed = part.at(1234);
            assert_eq!((malformed.part(), malformed.position()), (*part, 1234));
        }
        assert_eq!(Part::Vector.at(usize::MAX).position(), usize::MAX >> PART_BITS);
    }
}
