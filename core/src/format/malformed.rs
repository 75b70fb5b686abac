//! What is wrong with a file, in one machine word, so that it travels in a register with every
//! result.

use core::num::NonZeroUsize;

/// Declares the parts of files with their names.
macro_rules! parts {
    ($($(#[$doc:meta])* $part:ident = $name:literal,)*) => {
        /// The part of a file that does not hold up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Part {
            $($(#[$doc])* $part,)*
        }

        impl Part {
            const ALL: &[Part] = &[$(Part::$part,)*];

            /// The part's name, for messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Part::$part => $name,)*
                }
            }
        }
    };
}

parts! {
    /// The list of a table's fields.
    Vtable = "vtable at byte",
    /// A number.
    Number = "number at byte",
    /// A distance to another part.
    Offset = "offset at byte",
    /// A table.
    Table = "table at byte",
    /// A field of a table.
    Field = "field at byte",
    /// A vector, which does not fit the file.
    Vector = "vector at byte",
    /// A string that is not UTF-8.
    String = "string (not UTF-8) at byte",
    /// The identifier of a program file.
    ProgramIdentifier = "program file: the identifier ET12 is missing at byte",
    /// The identifier of a tensor data file.
    DataIdentifier = "tensor data file: the identifier FT01 is missing at byte",
    /// The identifier of a bundled program.
    BundleIdentifier = "bundled program: the identifier BP08 is missing at byte",
    /// The fixed header of a file, at the byte that does not fit.
    Header = "file header (or the file is cut short) at byte",
    /// A segment, by index.
    Segment = "segment",
    /// The last segments, which end past the end of the file.
    SegmentsEnd = "segments (past the end of the file): see the header at byte",
    /// Data of a tensor, by index.
    TensorData = "data of a tensor, entry",
    /// Initial data of a mutable tensor, by index.
    InitialData = "initial data of a tensor, entry",
    /// Data of a delegate, by index.
    DelegateData = "data of delegate",
    /// Named data that is read past its end.
    NamedData = "named data (read past its end) at byte",
    /// A tensor that is to be found outside has no name.
    ExternalName = "external tensor without a name, value",
    /// A value, by index.
    Value = "value",
    /// A type of value that the schema does not have, or the [programs of the image](crate::Uses).
    ValueKind = "value of a type that is unknown, or that this image was built without,",
    /// A tensor's type, shape or layout, by index of the value.
    Tensor = "tensor (type, shape or layout), value",
    /// The layout of a tensor in a data file.
    TensorLayout = "tensor layout, entry",
    /// A value of a test case.
    BundledValue = "bundled value of type",
    /// A planned buffer's size, by index.
    PlannedBuffer = "size of planned buffer",
    /// An operator, by index.
    Operator = "operator",
    /// A delegate, by index.
    Delegate = "delegate",
    /// An instruction, by index.
    Instruction = "instruction",
    /// A type of instruction that the schema does not have, or the [programs of the
    /// image](crate::Uses).
    InstructionKind = "instruction of a type that is unknown, or that this image was built without,",
    /// An input, by position.
    Input = "input",
    /// An output, by position.
    Output = "output",
    /// Tables that many offsets share, so that a small file would describe a large program.
    Shared = "list: its parts are shared more often than a file of this size has room for; position",
}

/// The bytes are not a well-formed file of the expected schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Malformed(NonZeroUsize);

const PART_BITS: u32 = 6;
const _: () = assert!(Part::ALL.len() < 1 << PART_BITS);

impl Part {
    /// The error that this part, at this byte or of this index, does not hold up.
    pub const fn at(self, place: usize) -> Malformed {
        let most = usize::MAX >> PART_BITS;
        let place = if place > most { most } else { place };
        // Codes count from 1, so the word is never zero.
        let word = place << PART_BITS | (self as usize + 1);
        match NonZeroUsize::new(word) {
            Some(word) => Malformed(word),
            None => Malformed(NonZeroUsize::MIN),
        }
    }
}

impl Malformed {
    /// What does not hold up.
    pub fn part(self) -> Part {
        let code = self.0.get() & ((1 << PART_BITS) - 1);
        Part::ALL.get(code.wrapping_sub(1)).copied().unwrap_or(Part::Table)
    }

    /// Where it is: bytes from the start of the flatbuffer, or an index, as the part's name says.
    /// At most 2^26 - 1 on 32-bit machines: what is further behind is told as that.
    pub fn place(self) -> usize {
        self.0.get() >> PART_BITS
    }
}

impl core::fmt::Debug for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Malformed({:?}, {})", self.part(), self.place())
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "malformed {} {}", self.part().name(), self.place())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Malformed {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "malformed {} {}", self.part().name(), self.place());
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_and_place_fit_one_word() {
        assert_eq!(size_of::<Result<(), Malformed>>(), size_of::<usize>());
        for part in Part::ALL {
            let malformed = part.at(1234);
            assert_eq!((malformed.part(), malformed.place()), (*part, 1234));
        }
        assert_eq!(Part::Vector.at(usize::MAX).place(), usize::MAX >> PART_BITS);
    }
}
