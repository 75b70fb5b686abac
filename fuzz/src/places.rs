//! Where the numbers of a file are. Those of a flatbuffer are found without its schema: a table
//! shows itself by its vtable, and what looks like an offset to a table, a vector or a text is
//! taken for one. A wrong guess only makes a mutation a wilder one.

/// What a mutation can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number of this many bytes, of a table or in a vector.
    Scalar(usize),
    /// Four bytes that count from where they are to a table, a vector or a text.
    Offset,
    /// Four bytes: the number of elements of a vector, or of bytes of a text.
    Length,
    /// Two bytes: where a field is in its table, 0 if the table has none.
    Field,
    /// Four bytes: from a table back to its vtable.
    Vtable,
    /// A digit of a number in a text.
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

/// A number in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) kind: Kind,
}

/// More than any fixture has: files are small where fuzzing is to be fast.
const MAX_PLACES: usize = 20_000;

/// How many elements of a vector of numbers are looked at.
const MAX_ELEMENTS: usize = 64;

/// The numbers of the flatbuffer that a file starts with, and of those that lie in its vectors of
/// bytes, or those of the JSON in front of a file's tensors (safetensors). None where the file
/// starts with neither.
pub(crate) fn places(bytes: &[u8]) -> Vec<Place> {
    if bytes.get(8) == Some(&b'{') {
        return in_text(bytes);
    }
    let mut finder = Finder { bytes, found: Vec::new(), seen: vec![false; bytes.len()] };
    // ETDumps have their size in front.
    finder.file(if bytes.get(8..12) == Some(b"ED00") { 4 } else { 0 });
    finder.found
}

/// The length in front of a text, and the digits in it.
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
    /// Where a table, a vector or a text begins that was looked at.
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

    /// A flatbuffer from its first byte on.
    fn file(&mut self, start: usize) -> Option<()> {
        let root = start.checked_add(self.u32(start)?)?;
        let vtable = self.vtable(root)?;
        self.add(start, Kind::Offset);
        self.table(root, vtable);
        Some(())
    }

    /// Where the vtable of a table is, if that is a table.
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

    /// Whether this is the first look at what begins here.
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

    /// Follows an offset, if the bytes here are one.
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

    /// The elements of a vector, of a size that only the schema tells.
    fn elements(&mut self, start: usize, len: usize) {
        // A bundle holds its program so.
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
