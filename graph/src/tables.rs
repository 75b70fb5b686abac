//! Flatbuffer writer: tables field by field, and ExecuTorch's extended headers.

use alloc::vec::Vec;
use flatbuffers::{FlatBufferBuilder, Push, TableFinishedWIPOffset, WIPOffset};

/// Offset of a finished table.
pub(crate) type Offset = WIPOffset<TableFinishedWIPOffset>;

/// Fields of a table under construction, by number.
pub(crate) struct Fields<'b>(&'b mut FlatBufferBuilder<'static>);

impl Fields<'_> {
    fn slot(field: u16) -> u16 {
        4 + 2 * field
    }

    /// Writes a scalar, unless it is zero, the default.
    pub(crate) fn scalar<S: Push + PartialEq + Default>(&mut self, field: u16, value: S) {
        self.0.push_slot(Self::slot(field), value, S::default());
    }

    /// Writes a double, even if it is zero, since zeros have a sign.
    pub(crate) fn double(&mut self, field: u16, value: f64) {
        self.0.push_slot_always(Self::slot(field), value);
    }

    /// Writes a reference to an object that was written before.
    pub(crate) fn offset<T>(&mut self, field: u16, offset: WIPOffset<T>) {
        self.0.push_slot_always(Self::slot(field), offset);
    }
}

/// Writes a table.
pub(crate) fn table(
    b: &mut FlatBufferBuilder<'static>,
    fill: impl FnOnce(&mut Fields<'_>),
) -> Offset {
    let start = b.start_table();
    fill(&mut Fields(b));
    b.end_table(start)
}

/// Inserts a header after the file identifier of a flatbuffer: the magic, the header length and
/// `numbers`. Of the flatbuffer's offsets, only the root offset changes; the others are relative.
pub(crate) fn with_header(flatbuffer: &[u8], magic: [u8; 4], numbers: &[u64]) -> Vec<u8> {
    let header = 8 + 8 * numbers.len();
    let mut file = Vec::with_capacity(flatbuffer.len() + header);
    let (front, rest) = flatbuffer.split_at(8);
    let (root, identifier) = front.split_at(4);
    let root = root.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
    file.extend_from_slice(&(root + header as u32).to_le_bytes());
    file.extend_from_slice(identifier);
    file.extend_from_slice(&magic);
    file.extend_from_slice(&(header as u32).to_le_bytes());
    for number in numbers {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(rest);
    file
}
