//! Checked access to flatbuffers, without a separate verification pass.
//!
//! Every accessor checks what it touches and returns [`Malformed`] where the bytes do not hold up,
//! so nothing has to be proved about a file before it is read and nothing is read that was not
//! checked. The code that does this is one small, non-generic set of functions; the tables of a
//! schema are thin names over field numbers (see the [`flatbuffer_table!`](crate::flatbuffer_table)
//! macro).
//!
//! Format facts: a table starts with a signed 32-bit distance back to its vtable; a vtable holds
//! its own length and the table's length as 16-bit numbers, then one 16-bit offset per field, 0 for
//! absent fields; strings, vectors and tables are reached through unsigned 32-bit forward offsets;
//! vectors and strings start with a 32-bit length. All numbers are little-endian.

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

/// Reads an unsigned 32-bit number.
pub(crate) fn u32_at(buf: &[u8], offset: usize) -> Result<u32, Malformed> {
    Ok(u32::from_le_bytes(bytes_at(buf, offset, Part::Number)?))
}

/// Follows the forward offset stored at `offset`.
fn follow(buf: &[u8], offset: usize) -> Result<usize, Malformed> {
    let distance = u32_at(buf, offset)?;
    usize::try_from(distance)
        .ok()
        .and_then(|distance| offset.checked_add(distance))
        .filter(|target| *target < buf.len())
        .ok_or(Part::Offset.at(offset))
}

/// A table, by where it starts. Its vtable is looked up for each field: that takes fewer bytes of
/// memory and code than to carry along where it is.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    buf: &'a [u8],
    start: usize,
}

impl<'a> Table<'a> {
    /// The table that the offset at the start of `buf` leads to.
    pub fn root(buf: &'a [u8]) -> Result<Self, Malformed> {
        Self::at(buf, follow(buf, 0)?)
    }

    fn at(buf: &'a [u8], start: usize) -> Result<Self, Malformed> {
        let table = Table { buf, start };
        // What has no proper vtable is no table.
        table.field(0)?;
        Ok(table)
    }

    /// Where field `slot` is stored; `None` when the table does not have it.
    fn field(&self, slot: usize) -> Result<Option<NonZeroUsize>, Malformed> {
        let Table { buf, start } = *self;
        let malformed = Part::Table.at(start);
        let back = i32::from_le_bytes(bytes_at(buf, start, Part::Table)?);
        let vtable = i64::try_from(start)
            .ok()
            .and_then(|start| usize::try_from(start - i64::from(back)).ok())
            .ok_or(malformed)?;
        let length = u16_at(buf, vtable)?;
        // `vtable` lies in the buffer, whose length is at most that of any object.
        let (first, end) = (vtable + 4, vtable + length);
        if first > end || end > buf.len() {
            return Err(malformed);
        }
        // Two bytes each: divided instead of multiplied, as a slot may be any number.
        let entry = if slot < (end - first) / 2 { u16_at(buf, first + 2 * slot)? } else { 0 };
        // What is read there is checked against the buffer, which `start` lies in.
        Ok(NonZeroUsize::new(entry).map(|entry| entry.saturating_add(start)))
    }

    /// The target of the offset stored in field `slot`.
    fn reference(&self, slot: usize) -> Result<Option<NonZeroUsize>, Malformed> {
        match self.field(slot)? {
            // An offset is stored in front of its target, so that is not at 0.
            Some(at) => follow(self.buf, at.get()).map(NonZeroUsize::new),
            None => Ok(None),
        }
    }

    /// The number of at most four bytes in field `slot`, without regard to its sign; 0 when the
    /// table does not have it.
    fn number(&self, slot: usize, size: usize) -> Result<u32, Malformed> {
        let Some(at) = self.field(slot)? else { return Ok(0) };
        let at = at.get();
        let bytes = self.buf.get(at..).and_then(|bytes| bytes.get(..size));
        let bytes = bytes.ok_or(Part::Number.at(at))?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// The number of eight bytes in field `slot`, whatever they mean; 0 when the table does not
    /// have it.
    fn large_number(&self, slot: usize) -> Result<u64, Malformed> {
        match self.field(slot)? {
            Some(at) => <u64 as Item>::read(self.buf, at.get()),
            None => Ok(0),
        }
    }

    /// The flatbuffer that the table is part of.
    pub fn buffer(&self) -> &'a [u8] {
        self.buf
    }

    /// The table stored in field `slot` of a union, whatever its type.
    pub fn union_value(&self, slot: usize) -> Result<Option<Table<'a>>, Malformed> {
        match self.reference(slot)? {
            Some(at) => Table::at(self.buf, at.get()).map(Some),
            None => Ok(None),
        }
    }

    /// Whether field `slot` is this string, without a look at one of another length.
    fn is_text(&self, slot: usize, text: &str) -> Result<bool, Malformed> {
        Ok(self.get::<Vector<'a, u8>>(slot)?.bytes() == text.as_bytes())
    }

    /// Reads field `slot` as `F` says. Inlined, as are the accessors of tables: the call of the
    /// function that reads is less code than that of one in between.
    #[inline(always)]
    pub fn get<F: Field<'a>>(&self, slot: usize) -> Result<F::Output, Malformed> {
        F::read(self, slot)
    }
}

/// A type of table field.
pub trait Field<'a> {
    /// What reading the field gives: numbers default to 0, vectors to empty, references to `None`.
    type Output;
    /// Reads the field.
    ///
    /// # Errors
    /// The bytes are not those of such a field.
    fn read(table: &Table<'a>, slot: usize) -> Result<Self::Output, Malformed>;
}

/// A type of vector element.
pub trait Item<'a>: Sized {
    /// Bytes from one element to the next.
    const SIZE: usize;
    /// Reads the element at `offset`.
    ///
    /// # Errors
    /// The bytes are not those of such an element.
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

/// Numbers whose default is not zero: `None` where they are absent.
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

/// A vector of elements of any size, whose extent was checked when it was reached.
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

    /// The bytes of all elements.
    #[inline(never)]
    pub(crate) fn bytes(&self, item: usize) -> &'a [u8] {
        let Extent { buf, first, len } = *self;
        buf.get(first..first + len * item).unwrap_or(&[])
    }

    /// The text that its bytes are. All of it is looked at, for each value that shares it.
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

    /// Where it is in the flatbuffer, to be [found](vector_bytes) again; `None` if its table does
    /// not have it.
    pub(crate) fn start(&self) -> Option<usize> {
        self.first.checked_sub(4)
    }

    /// The first of the elements, which are tables, whose field 0 is this text.
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

    /// That of field `slot`; an empty one where the table does not have it. Not inlined, so that it
    /// is there once.
    #[inline(never)]
    pub(crate) fn of_field(table: &Table<'a>, slot: usize, item: usize) -> Result<Self, Malformed> {
        match table.reference(slot)? {
            Some(at) => Extent::at(table.buf, at.get(), item),
            None => Ok(Extent { buf: table.buf, first: 0, len: 0 }),
        }
    }
}

/// The bytes of all elements, of this size, of the vector that starts there; `None` if it does not
/// lie in the buffer.
#[inline]
pub(crate) fn vector_bytes(buf: &[u8], start: usize, item: usize) -> Option<&[u8]> {
    let (len, rest) = buf.get(start..)?.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?.checked_mul(item)?)
}

/// A vector whose extent was checked when it was reached; elements are decoded as they are read.
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

    /// Where it is in the flatbuffer, as [`Extent::start`].
    pub(crate) fn start(&self) -> Option<usize> {
        self.extent.start()
    }

    /// The flatbuffer that it is part of.
    pub(crate) fn buffer(&self) -> &'a [u8] {
        self.extent.buf
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element of this index; `None` beyond the last.
    ///
    /// # Errors
    /// The element is not well-formed.
    pub fn get(&self, index: usize) -> Result<Option<T>, Malformed> {
        if index >= self.len() {
            return Ok(None);
        }
        // `Extent::at` checked that `first + len * SIZE` lies in the buffer, so this cannot
        // overflow.
        T::read(self.extent.buf, self.extent.first + index * T::SIZE).map(Some)
    }

    /// The element of this index, which `part` must have.
    ///
    /// # Errors
    /// There is none, or it is not well-formed.
    pub(crate) fn item(&self, index: usize, part: Part) -> Result<T, Malformed> {
        self.get(index)?.ok_or(part.at(index))
    }

    /// All elements, each checked as it is read.
    pub fn iter(&self) -> impl Iterator<Item = Result<T, Malformed>> + use<'a, T> {
        let Extent { buf, first, len } = self.extent;
        (0..len).map(move |index| T::read(buf, first + index * T::SIZE))
    }

    /// The raw elements, undecoded.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.extent.bytes(T::SIZE)
    }
}

impl<'a, T: Item<'a> + From<Table<'a>>> Vector<'a, T> {
    /// The first table whose field 0 is this text.
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

/// Names the fields of a schema's table: `slot name: type`, in the order of the schema.
///
/// For each table it makes a type whose methods read the fields, for use within the crate: numbers
/// default to 0 (or to `None` as `Option<i8>`), vectors to empty, strings and tables to `None`.
#[macro_export]
macro_rules! flatbuffer_table {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $slot:literal $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name<'a>(pub(crate) $crate::format::flatbuffer::Table<'a>);

        #[allow(dead_code, reason = "the schema is written out whole")]
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
