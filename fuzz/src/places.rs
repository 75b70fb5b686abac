//! Finds the fields of a file. Flatbuffers are parsed without their schema: a table is recognized
//! by its vtable, and whatever looks like an offset to a table, vector or string is treated as one.
//! A wrong guess only makes a mutation less plausible.

/// The kind of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An integer of this many bytes, in a table or vector.
    Scalar(usize),
    /// Four bytes: relative offset to a table, vector or string.
    Offset,
    /// Four bytes: length of a vector or string.
    Length,
    /// Two bytes: offset of a field in its table; 0 if absent.
    Field,
    /// Four bytes: offset from a table back to its vtable.
    Vtable,
    /// A digit of a number in text.
    Digit,
}

impl Kind {
    pub(crate) fn size(self) -> usize {
        match self {
            Kind::Scalar(size) => size,
            Kind::Offset | Kind::Length | Kind::Vtable => 4,
            Kind::Field => 2,
            Kind::Digit => 1,
        }
    }
}

/// A field of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) kind: Kind,
}

/// More than any fixture has; fuzzing needs small files.
const MAX_PLACES: usize = 20_000;

/// Maximum number of inspected elements per vector.
const MAX_ELEMENTS: usize = 64;

/// Returns the fields of the flatbuffer at the start of a file, and of flatbuffers in its byte
/// vectors; or those of the JSON header of a safetensors file. Empty for other files.
pub(crate) fn places(bytes: &[u8]) -> Vec<Place> {
    if bytes.get(8) == Some(&b'{') {
        return in_text(bytes);
    }
    let mut finder = Finder { bytes, found: Vec::new(), seen: vec![false; bytes.len()] };
    // ETDumps start with their size.
    finder.file(if bytes.get(8..12) == Some(b"ED00") { 4 } else { 0 });
    finder.found
}

/// The length of a JSON header, and the digits in it.
fn in_text(bytes: &[u8]) -> Vec<Place> {
    let length = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    let end = usize::try_from(length).map_or(bytes.len(), |length| length.saturating_add(8));
    let text = bytes.iter().enumerate().take(end).skip(8).filter(|(_, byte)| byte.is_ascii_digit());
    let digits = text.map(|(at, _)| Place { at, kind: Kind::Digit });
    let length = Place { at: 0, kind: Kind::Scalar(8) };
    digits.take(MAX_PLACES).chain([length]).collect()
}

struct Finder<'b> {
    bytes: &'b [u8],
    found: Vec<Place>,
    /// Start offsets of visited tables, vectors and strings.
    seen: Vec<bool>,
}

impl Finder<'_> {
    fn u16(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..at.checked_add(2)?)?;
        Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn u32(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    }

    fn add(&mut self, at: usize, kind: Kind) {
        if self.found.len() < MAX_PLACES {
            self.found.push(Place { at, kind });
        }
    }

    /// Visits a flatbuffer.
    fn file(&mut self, start: usize) -> Option<()> {
        let root = start.checked_add(self.u32(start)?)?;
        let vtable = self.vtable(root)?;
        self.add(start, Kind::Offset);
        self.table(root, vtable);
        Some(())
    }

    /// Returns the offset of a table's vtable, if the table is plausible.
    fn vtable(&self, table: usize) -> Option<usize> {
        let back = u32::try_from(self.u32(table)?).ok()?.cast_signed();
        let vtable = usize::try_from(i64::try_from(table).ok()? - i64::from(back)).ok()?;
        let (len, inline) = (self.u16(vtable)?, self.u16(vtable + 2)?);
        let sound = table.is_multiple_of(4)
            && vtable.is_multiple_of(2)
            && len >= 4
            && len.is_multiple_of(2)
            && inline >= 4
            && vtable + len <= self.bytes.len()
            && table + inline <= self.bytes.len()
            && (4..len).step_by(2).all(|at| self.u16(vtable + at).is_some_and(|to| to < inline));
        sound.then_some(vtable)
    }

    /// Marks an offset as visited; returns whether it was new.
    fn first(&mut self, at: usize) -> bool {
        self.seen.get_mut(at).is_some_and(|seen| !std::mem::replace(seen, true))
    }

    fn table(&mut self, table: usize, vtable: usize) {
        if !self.first(table) || self.found.len() >= MAX_PLACES {
            return;
        }
        self.add(table, Kind::Vtable);
        let len = self.u16(vtable).unwrap_or(4);
        let inline = self.u16(vtable + 2).unwrap_or(4);
        let mut fields: Vec<usize> = Vec::new();
        for at in (vtable + 4..vtable + len).step_by(2) {
            self.add(at, Kind::Field);
            fields.extend(self.u16(at).filter(|to| *to >= 4));
        }
        fields.sort_unstable();
        fields.dedup();
        let ends = fields.iter().skip(1).copied().chain([inline]);
        for (field, end) in fields.iter().zip(ends) {
            let at = table + field;
            match end.saturating_sub(*field) {
                4.. if self.target(at) => {}
                8.. if at.is_multiple_of(8) => self.add(at, Kind::Scalar(8)),
                4.. => self.add(at, Kind::Scalar(4)),
                2.. => self.add(at, Kind::Scalar(2)),
                1.. => self.add(at, Kind::Scalar(1)),
                0 => {}
            }
        }
    }

    /// Follows an offset, if it is plausible.
    fn target(&mut self, at: usize) -> bool {
        let Some(offset) = self.u32(at).filter(|offset| *offset >= 4) else { return false };
        let Some(target) = at.checked_add(offset).filter(|to| to.is_multiple_of(4)) else {
            return false;
        };
        if let Some(vtable) = self.vtable(target) {
            self.add(at, Kind::Offset);
            self.table(target, vtable);
            return true;
        }
        let Some(len) = self.u32(target) else { return false };
        if len > self.bytes.len() - (target + 4) {
            return false;
        }
        self.add(at, Kind::Offset);
        if self.first(target) {
            self.add(target, Kind::Length);
            self.elements(target + 4, len);
        }
        true
    }

    /// Visits the elements of a vector, whose size only the schema defines.
    fn elements(&mut self, start: usize, len: usize) {
        // A bundle contains its program as bytes.
        if len > 8 && self.bytes.get(start + 4..start + 6) == Some(b"ET") {
            self.file(start);
            return;
        }
        let elements = (start..start.saturating_add(4 * len)).step_by(4);
        if len > 0 && elements.clone().all(|at| self.is_table(at)) {
            for at in elements {
                self.target(at);
            }
        } else if start + 4 * len <= self.bytes.len() {
            for at in elements.take(MAX_ELEMENTS) {
                self.add(at, Kind::Scalar(4));
            }
        }
    }

    fn is_table(&self, at: usize) -> bool {
        let target = self.u32(at).filter(|offset| *offset >= 4).and_then(|to| at.checked_add(to));
        target.is_some_and(|target| self.vtable(target).is_some())
    }
}
