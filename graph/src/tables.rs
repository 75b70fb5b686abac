//! Writing flatbuffers' tables, field by field.

use flatbuffers::{FlatBufferBuilder, Push, TableFinishedWIPOffset, WIPOffset};

/// Where a finished table is.
pub(crate) type Offset = WIPOffset<TableFinishedWIPOffset>;

/// The fields of a table, by number.
pub(crate) struct Fields<'b>(&'b mut FlatBufferBuilder<'static>);

impl Fields<'_> {
    fn slot(field: u16) -> u16 {
        4 + 2 * field
    }

    /// A number; what is zero is left out.
    pub(crate) fn scalar<S: Push + PartialEq + Default>(&mut self, field: u16, value: S) {
        self.0.push_slot(Self::slot(field), value, S::default());
    }

    /// A number whose zero has a sign.
    pub(crate) fn double(&mut self, field: u16, value: f64) {
        self.0.push_slot_always(Self::slot(field), value);
    }

    /// A reference to what is written already.
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
