//! Checked access to flatbuffers, without a separate verification pass.
//!
//! Every accessor checks the bytes that it reads and returns [`Malformed`] if they are invalid. The
//! checks are one small set of non-generic functions; the tables of a schema are thin wrappers with
//! field numbers (see the [`flatbuffer_table!`](crate::flatbuffer_table) macro).
//!
//! Format:
//!
//! - A table starts with a signed 32-bit offset back to its vtable.
//! - A vtable holds its own length and the table's length as 16-bit integers, followed by a 16-bit
//!   offset for each field, 0 for absent fields.
//! - Strings, vectors and tables are referenced by unsigned 32-bit forward offsets.
//! - Vectors and strings start with a 32-bit length.
//! - All integers are little-endian.

use super::malformed::{Malformed, Part};
use core::marker::PhantomData;
use core::num::NonZeroUsize;

fn bytes_at<const N: usize>(buf: &[u8], offset: usize, part: Part) -> Result<[u8; N], Malformed> {
    let end = offset.checked_add(N);
    match end.and_then(|end| buf.get(offset..end)).map(<[u8; N]>::try_from) {
        Some(Ok(bytes)) => Ok(bytes),
        _ => Err(part.at(offset)),
    }
}

fn u16_at(buf: &[u8], offset: usize) -> Result<usize, Malformed> {
    Ok(usize::from(u16::from_le_bytes(bytes_at(buf, offset, Part::Vtable)?)))
}

/// Reads an unsigned 32-bit integer.
pub(crate) fn u32_at(buf: &[u8], offset: usize) -> Result<u32, Malformed> {
    Ok(u32::from_le_bytes(bytes_at(buf, offset, Part::Number)?))
}

/// Resolves the forward offset stored at `offset`.
fn follow(buf: &[u8], offset: usize) -> Result<usize, Malformed> {
    let distance = u32_at(buf, offset)?;
    usize::try_from(distance)
        .ok()
        .and_then(|distance| offset.checked_add(distance))
        .filter(|target| *target < buf.len())
        .ok_or(Part::Offset.at(offset))
}

/// A table, by its start. The vtable is looked up for each access, which needs less memory and code
/// than storing its position.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    buf: &'a [u8],
    start: usize,
}

impl<'a> Table<'a> {
    /// Resolves the root table, which the offset at the start of `buf` refers to.
    pub fn root(buf: &'a [u8]) -> Result<Self, Malformed> {
        Self::at(buf, follow(buf, 0)?)
    }

    fn at(buf: &'a [u8], start: usize) -> Result<Self, Malformed> {
        let table = Table { buf, start };
        // Validates the vtable.
        table.field(0)?;
        Ok(table)
    }

    /// Position of field `slot`; `None` if the table lacks the field.
    fn field(&self, slot: usize) -> Result<Option<NonZeroUsize>, Malformed> {
        let Table { buf, start } = *self;
        let malformed = Part::Table.at(start);
        let back = i32::from_le_bytes(bytes_at(buf, start, Part::Table)?);
        let vtable = i64::try_from(start)
            .ok()
            .and_then(|start| usize::try_from(start - i64::from(back)).ok())
            .ok_or(malformed)?;
        let length = u16_at(buf, vtable)?;
        // Cannot overflow: `vtable` lies in the buffer, which has at most `isize::MAX` bytes.
        let (first, end) = (vtable + 4, vtable + length);
        if first > end || end > buf.len() {
            return Err(malformed);
        }
        // Divides the length instead of multiplying `slot`, which is arbitrary and could overflow.
        let entry = if slot < (end - first) / 2 { u16_at(buf, first + 2 * slot)? } else { 0 };
        // Reads of the field are checked against the buffer, which contains `start`.
        Ok(NonZeroUsize::new(entry).map(|entry| entry.saturating_add(start)))
    }

    /// Resolves the offset stored in field `slot`.
    fn reference(&self, slot: usize) -> Result<Option<NonZeroUsize>, Malformed> {
        match self.field(slot)? {
            // Non-zero: a forward offset is stored before its target.
            Some(at) => follow(self.buf, at.get()).map(NonZeroUsize::new),
            None => Ok(None),
        }
    }

    /// Reads an integer of up to four bytes in field `slot`, ignoring its sign; 0 if the field is
    /// absent.
    fn number(&self, slot: usize, size: usize) -> Result<u32, Malformed> {
        let Some(at) = self.field(slot)? else { return Ok(0) };
        let at = at.get();
        let bytes = self.buf.get(at..).and_then(|bytes| bytes.get(..size));
        let bytes = bytes.ok_or(Part::Number.at(at))?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Reads the bits of an eight-byte number in field `slot`; 0 if the field is absent.
    fn large_number(&self, slot: usize) -> Result<u64, Malformed> {
        match self.field(slot)? {
            Some(at) => <u64 as Item>::read(self.buf, at.get()),
            None => Ok(0),
        }
    }

    /// The flatbuffer that contains the table.
    pub fn buffer(&self) -> &'a [u8] {
        self.buf
    }

    /// Reads the table of the union in field `slot`, regardless of its type.
    pub fn union_value(&self, slot: usize) -> Result<Option<Table<'a>>, Malformed> {
        match self.reference(slot)? {
            Some(at) => Table::at(self.buf, at.get()).map(Some),
            None => Ok(None),
        }
    }

    /// Compares the string in field `slot`; only looks at the bytes if the lengths match.
    fn is_text(&self, slot: usize, text: &str) -> Result<bool, Malformed> {
        Ok(self.get::<Vector<'a, u8>>(slot)?.bytes() == text.as_bytes())
    }

    /// Reads field `slot` as type `F`. Inlined, like the accessors of tables: calling the reading
    /// function directly is less code than calling a wrapper.
    #[inline(always)]
    pub fn get<F: Field<'a>>(&self, slot: usize) -> Result<F::Output, Malformed> {
        F::read(self, slot)
    }
}

/// A table field type.
pub trait Field<'a> {
    /// Result of reading the field. Absent fields yield 0 for numbers, an empty vector, or `None`
    /// for references.
    type Output;
    /// Reads the field.
    ///
    /// # Errors
    /// The bytes are invalid for this type.
    fn read(table: &Table<'a>, slot: usize) -> Result<Self::Output, Malformed>;
}

/// A vector element type.
pub trait Item<'a>: Sized {
    /// Size of an element in bytes.
    const SIZE: usize;
    /// Reads the element at `offset`.
    ///
    /// # Errors
    /// The bytes are invalid for this type.
    fn read(buf: &'a [u8], offset: usize) -> Result<Self, Malformed>;
}

macro_rules! items {
    ($($number:ty),*) => {$(
        impl<'a> Item<'a> for $number {
            const SIZE: usize = size_of::<$number>();
            fn read(buf: &'a [u8], offset: usize) -> Result<$number, Malformed> {
                Ok(<$number>::from_le_bytes(bytes_at(buf, offset, Part::Number)?))
            }
        }
    )*};
}
items!(u8, i8, u32, i32, u64, i64, f64);

macro_rules! small_numbers {
    ($($number:ty),*) => {$(
        impl<'a> Field<'a> for $number {
            type Output = $number;
            #[inline(always)]
            fn read(table: &Table<'a>, slot: usize) -> Result<$number, Malformed> {
                Ok(table.number(slot, size_of::<$number>())? as $number)
            }
        }
    )*};
}
small_numbers!(u8, i8, u32, i32);

macro_rules! large_numbers {
    ($($number:ty),*) => {$(
        impl<'a> Field<'a> for $number {
            type Output = $number;
            #[inline(always)]
            fn read(table: &Table<'a>, slot: usize) -> Result<$number, Malformed> {
                Ok(<$number>::from_ne_bytes(table.large_number(slot)?.to_ne_bytes()))
            }
        }
    )*};
}
large_numbers!(u64, i64, f64);

/// Numbers with a non-zero default: `None` if absent.
macro_rules! optional_numbers {
    ($($number:ty),*) => {$(
        impl<'a> Field<'a> for Option<$number> {
            type Output = Option<$number>;
            fn read(table: &Table<'a>, slot: usize) -> Result<Option<$number>, Malformed> {
                match table.field(slot)? {
                    Some(_) => table.get::<$number>(slot).map(Some),
                    None => Ok(None),
                }
            }
        }
    )*};
}
optional_numbers!(i8, i32);

impl<'a> Field<'a> for bool {
    type Output = bool;
    #[inline(always)]
    fn read(table: &Table<'a>, slot: usize) -> Result<bool, Malformed> {
        Ok(table.number(slot, 1)? != 0)
    }
}

impl<'a> Field<'a> for &'a str {
    type Output = Option<&'a str>;
    fn read(table: &Table<'a>, slot: usize) -> Result<Option<&'a str>, Malformed> {
        let Some(at) = table.reference(slot)? else { return Ok(None) };
        Extent::at(table.buf, at.get(), 1)?.text().map(Some)
    }
}

/// A vector with elements of any size, whose bounds were checked at creation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent<'a> {
    buf: &'a [u8],
    first: usize,
    len: usize,
}

impl<'a> Extent<'a> {
    fn at(buf: &'a [u8], start: usize, item: usize) -> Result<Self, Malformed> {
        let malformed = Part::Vector.at(start);
        let len = usize::try_from(u32_at(buf, start)?).map_err(|_| malformed)?;
        let first = start.checked_add(4).ok_or(malformed)?;
        let end = len.checked_mul(item).and_then(|bytes| first.checked_add(bytes));
        match end {
            Some(end) if end <= buf.len() => Ok(Extent { buf, first, len }),
            _ => Err(malformed),
        }
    }

    /// Bytes of all elements.
    #[inline(never)]
    pub(crate) fn bytes(&self, item: usize) -> &'a [u8] {
        let Extent { buf, first, len } = *self;
        buf.get(first..first + len * item).unwrap_or(&[])
    }

    /// Decodes a UTF-8 string. Validates all bytes each time.
    #[inline(never)]
    pub(crate) fn text(&self) -> Result<&'a str, Malformed> {
        match core::str::from_utf8(self.bytes(1)) {
            Ok(text) => Ok(text),
            Err(_) => Err(Part::String.at(self.first.saturating_sub(4))),
        }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Position in the flatbuffer, for [`vector_bytes`]; `None` if the field is absent.
    pub(crate) fn start(&self) -> Option<usize> {
        self.first.checked_sub(4)
    }

    /// Finds the first table whose field 0 is this string.
    fn named(&self, name: &str) -> Result<Option<Table<'a>>, Malformed> {
        let Extent { buf, first, len } = *self;
        for index in 0..len {
            let table = Table::read(buf, first + index * <Table<'a> as Item<'a>>::SIZE)?;
            if table.is_text(0, name)? {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    /// Reads the vector in field `slot`; empty if the field is absent. Not inlined, for code size.
    #[inline(never)]
    pub(crate) fn of_field(table: &Table<'a>, slot: usize, item: usize) -> Result<Self, Malformed> {
        match table.reference(slot)? {
            Some(at) => Extent::at(table.buf, at.get(), item),
            None => Ok(Extent { buf: table.buf, first: 0, len: 0 }),
        }
    }
}

/// Bytes of all elements of the vector at `start`, for elements of `item` bytes; `None` if out of
/// bounds.
#[inline]
pub(crate) fn vector_bytes(buf: &[u8], start: usize, item: usize) -> Option<&[u8]> {
    let (len, rest) = buf.get(start..)?.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?.checked_mul(item)?)
}

/// A vector whose bounds were checked at creation. Elements are decoded on access.
#[derive(Debug)]
pub struct Vector<'a, T> {
    extent: Extent<'a>,
    items: PhantomData<T>,
}

impl<T> Clone for Vector<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Vector<'_, T> {}

impl<'a, T: Item<'a>> Vector<'a, T> {
    pub(crate) fn new(extent: Extent<'a>) -> Self {
        Vector { extent, items: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.extent.len
    }

    /// Position in the flatbuffer, as [`Extent::start`].
    pub(crate) fn start(&self) -> Option<usize> {
        self.extent.start()
    }

    /// The flatbuffer that contains the vector.
    pub(crate) fn buffer(&self) -> &'a [u8] {
        self.extent.buf
    }

    /// Whether the vector is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element at an index; `None` if out of range.
    ///
    /// # Errors
    /// The element is malformed.
    pub fn get(&self, index: usize) -> Result<Option<T>, Malformed> {
        if index >= self.len() {
            return Ok(None);
        }
        // Cannot overflow: `Extent::at` checked that `first + len * SIZE` lies in the buffer.
        T::read(self.extent.buf, self.extent.first + index * T::SIZE).map(Some)
    }

    /// Element at an index that must exist; `part` names it in errors.
    ///
    /// # Errors
    /// The index is out of range, or the element is malformed.
    pub(crate) fn item(&self, index: usize, part: Part) -> Result<T, Malformed> {
        self.get(index)?.ok_or(part.at(index))
    }

    /// Iterates over all elements, checking each as it is read.
    pub fn iter(&self) -> impl Iterator<Item = Result<T, Malformed>> + use<'a, T> {
        let Extent { buf, first, len } = self.extent;
        (0..len).map(move |index| T::read(buf, first + index * T::SIZE))
    }

    /// Encoded bytes of the elements.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.extent.bytes(T::SIZE)
    }
}

impl<'a, T: Item<'a> + From<Table<'a>>> Vector<'a, T> {
    /// Finds the first table whose field 0 is this string.
    #[inline(always)]
    pub(crate) fn named(&self, name: &str) -> Result<Option<T>, Malformed> {
        Ok(self.extent.named(name)?.map(T::from))
    }
}

impl<'a, T: Item<'a>> Field<'a> for Vector<'a, T> {
    type Output = Vector<'a, T>;
    #[inline(always)]
    fn read(table: &Table<'a>, slot: usize) -> Result<Self, Malformed> {
        Extent::of_field(table, slot, T::SIZE).map(Vector::new)
    }
}

impl<'a> Item<'a> for Table<'a> {
    const SIZE: usize = 4;
    fn read(buf: &'a [u8], offset: usize) -> Result<Self, Malformed> {
        Table::at(buf, follow(buf, offset)?)
    }
}

impl<'a> Item<'a> for &'a str {
    const SIZE: usize = 4;
    fn read(buf: &'a [u8], offset: usize) -> Result<Self, Malformed> {
        Extent::at(buf, follow(buf, offset)?, 1)?.text()
    }
}

/// Declares a table of a schema, with fields as `slot name: type` in schema order.
///
/// Generates a type with an accessor per field, for use within the crate. Absent fields yield 0 for
/// numbers (`None` for types such as `Option<i8>`), an empty vector, or `None` for strings and
/// tables.
#[macro_export]
macro_rules! flatbuffer_table {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $slot:literal $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name<'a>(pub(crate) $crate::format::flatbuffer::Table<'a>);

        #[allow(dead_code, reason = "the complete schema is declared")]
        impl<'a> $name<'a> {
            $($(#[$field_doc])* #[inline(always)] pub(crate) fn $field(
                &self,
            ) -> Result<
                <$kind as $crate::format::flatbuffer::Field<'a>>::Output,
                $crate::format::Malformed,
            > {
                self.0.get::<$kind>($slot)
            })*
        }

        impl<'a> From<$crate::format::flatbuffer::Table<'a>> for $name<'a> {
            fn from(table: $crate::format::flatbuffer::Table<'a>) -> Self {
                $name(table)
            }
        }

        impl<'a> $crate::format::flatbuffer::Field<'a> for $name<'a> {
            type Output = Option<$name<'a>>;
            fn read(
                table: &$crate::format::flatbuffer::Table<'a>,
                slot: usize,
            ) -> Result<Option<$name<'a>>, $crate::format::Malformed> {
                Ok(table.union_value(slot)?.map($name))
            }
        }

        impl<'a> $crate::format::flatbuffer::Item<'a> for $name<'a> {
            const SIZE: usize = 4;
            fn read(
                buf: &'a [u8],
                offset: usize,
            ) -> Result<Self, $crate::format::Malformed> {
                <$crate::format::flatbuffer::Table<'a> as $crate::format::flatbuffer::Item<'a>>::read(buf, offset)
                    .map($name)
            }
        }
    };
}
