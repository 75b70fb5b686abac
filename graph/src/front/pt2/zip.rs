//! Reader of ZIP archives whose entries are stored, as PyTorch writes them.

use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::format;

/// Minimum sizes of the records, in bytes.
const END: usize = 22;
const LOCATOR: usize = 20;
const END64: usize = 56;
const LISTED: usize = 46;
const LOCAL: usize = 30;
/// Marks a value that is in the ZIP64 record instead.
const IN_ZIP64: u32 = u32::MAX;

/// Entries of an archive, by name.
pub(super) struct Archive<'p> {
    entries: BTreeMap<&'p str, Entry<'p>>,
}

/// Entry of an archive.
#[derive(Clone, Copy)]
enum Entry<'p> {
    Stored(&'p [u8]),
    /// Compressed, with this method.
    Compressed(u16),
}

impl<'p> Archive<'p> {
    /// Reads the list of entries.
    ///
    /// # Errors
    /// A record or an entry is outside the file, or a name occurs twice.
    pub(super) fn read(file: &'p [u8]) -> Result<Self, Error> {
        let (count, at) = end(file).ok_or_else(|| invalid("has no valid list of entries"))?;
        let mut list = Bytes { rest: file.get(at..).ok_or_else(|| invalid("is truncated"))? };
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (name, entry) =
                entry(file, &mut list).ok_or_else(|| invalid("has an invalid entry"))?;
            if entries.insert(name, entry).is_some() {
                return Err(Error::Invalid(format!("the archive has two entries '{name}'")));
            }
        }
        Ok(Archive { entries })
    }

    /// Returns the names of the entries, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &'p str> + '_ {
        self.entries.keys().copied()
    }

    /// Returns the contents of an entry; `None` if it does not exist.
    ///
    /// # Errors
    /// The entry is compressed.
    pub(super) fn get(&self, name: &str) -> Result<Option<&'p [u8]>, Error> {
        match self.entries.get(name) {
            None => Ok(None),
            Some(Entry::Stored(bytes)) => Ok(Some(bytes)),
            Some(Entry::Compressed(method)) => Err(Error::Unsupported(format!(
                "archive entry '{name}' is compressed (method {method}); torch.export.save stores \
                 entries without compression"
            ))),
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::Invalid(format!("the archive {what}"))
}

/// Bytes that are read from the front.
struct Bytes<'p> {
    rest: &'p [u8],
}

impl<'p> Bytes<'p> {
    fn take(&mut self, count: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Returns the number of entries and the offset of their list.
fn end(file: &[u8]) -> Option<(usize, usize)> {
    // The record ends with a comment of at most 64 KiB.
    let last = file.len().checked_sub(END)?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    let is_end = |at: &usize| file.get(*at..).is_some_and(|rest| rest.starts_with(b"PK\x05\x06"));
    let at = (first..=last).rev().find(is_end)?;
    let mut record = Bytes { rest: file.get(at..)? };
    record.take(10)?;
    let (count, _, offset) = (record.u16()?, record.u32()?, record.u32()?);
    let own = (u64::from(count), u64::from(offset));
    let (count, offset) = end64(file, at).unwrap_or(own);
    let (count, offset) = (usize::try_from(count).ok()?, usize::try_from(offset).ok()?);
    // Each entry is listed in at least this many bytes.
    let room = file.len().checked_sub(offset)? / LISTED;
    (count <= room).then_some((count, offset))
}

/// Like [`end`], from the ZIP64 record in front of the record at `end`.
fn end64(file: &[u8], end: usize) -> Option<(u64, u64)> {
    let mut locator = Bytes { rest: file.get(end.checked_sub(LOCATOR)?..end)? };
    if locator.take(4)? != b"PK\x06\x07" {
        return None;
    }
    locator.take(4)?;
    let at = usize::try_from(locator.u64()?).ok()?;
    let mut record = Bytes { rest: file.get(at..at.checked_add(END64)?)? };
    if record.take(4)? != b"PK\x06\x06" {
        return None;
    }
    record.take(28)?;
    let count = record.u64()?;
    record.take(8)?;
    Some((count, record.u64()?))
}

/// Reads the next listed entry.
fn entry<'p>(file: &'p [u8], list: &mut Bytes<'p>) -> Option<(&'p str, Entry<'p>)> {
    if list.take(4)? != b"PK\x01\x02" {
        return None;
    }
    list.take(4)?;
    let (flags, method) = (list.u16()?, list.u16()?);
    list.take(8)?;
    let (stored, size) = (list.u32()?, list.u32()?);
    let (name, extra, comment) = (list.u16()?, list.u16()?, list.u16()?);
    list.take(8)?;
    let offset = list.u32()?;
    let name = core::str::from_utf8(list.take(name.into())?).ok()?;
    let extra = list.take(extra.into())?;
    list.take(comment.into())?;
    let mut wide = zip64(extra);
    // The ZIP64 values are those that are marked, in this order.
    let mut real = |value: u32| match value {
        IN_ZIP64 => wide.as_mut()?.u64(),
        value => Some(u64::from(value)),
    };
    let (size, stored, offset) = (real(size)?, real(stored)?, real(offset)?);
    let is_encrypted = flags & 1 != 0;
    if method != 0 || is_encrypted {
        return Some((name, Entry::Compressed(method)));
    }
    let mut local = Bytes { rest: file.get(usize::try_from(offset).ok()?..)? };
    let mut header = Bytes { rest: local.take(LOCAL)? };
    if header.take(4)? != b"PK\x03\x04" || size != stored {
        return None;
    }
    header.take(22)?;
    let (own_name, extra) = (header.u16()?, header.u16()?);
    if local.take(own_name.into())? != name.as_bytes() {
        return None;
    }
    local.take(extra.into())?;
    Some((name, Entry::Stored(local.take(usize::try_from(size).ok()?)?)))
}

/// Returns the ZIP64 values among the extra fields of an entry.
fn zip64(extra: &[u8]) -> Option<Bytes<'_>> {
    let mut extra = Bytes { rest: extra };
    loop {
        let (id, len) = (extra.u16()?, extra.u16()?);
        let field = extra.take(len.into())?;
        if id == 1 {
            return Some(Bytes { rest: field });
        }
    }
}

/// Returns the name of the folder that contains the entry `marker`, with a slash at the end.
pub(super) fn folder<'p>(archive: &Archive<'p>, marker: &str) -> Option<&'p str> {
    archive.names().find_map(|name| name.strip_suffix(marker))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    /// An archive with one entry.
    pub(crate) fn archive(name: &str, data: &[u8], method: u16) -> Vec<u8> {
        let (name_len, len) = (name.len() as u16, data.len() as u32);
        let mut file = b"PK\x03\x04\0\0\0\0".to_vec();
        file.extend(method.to_le_bytes());
        file.extend([0; 8]);
        file.extend([len.to_le_bytes(), len.to_le_bytes()].concat());
        file.extend([name_len.to_le_bytes(), [0, 0]].concat());
        file.extend(name.as_bytes());
        file.extend(data);
        let start = file.len() as u32;
        file.extend(b"PK\x01\x02\0\0\0\0\0\0");
        file.extend(method.to_le_bytes());
        file.extend([0; 8]);
        file.extend([len.to_le_bytes(), len.to_le_bytes()].concat());
        file.extend([name_len.to_le_bytes(), [0; 2], [0; 2]].concat());
        file.extend([0; 12]);
        file.extend(name.as_bytes());
        let size = file.len() as u32 - start;
        file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        file.extend([size.to_le_bytes(), start.to_le_bytes()].concat());
        file.extend([0, 0]);
        file
    }

    #[test]
    fn stored_entries_are_borrowed() {
        let file = archive("a/archive_format", b"pt2", 0);
        let read = Archive::read(&file).unwrap();
        assert_eq!(read.get("a/archive_format").unwrap(), Some(&b"pt2"[..]));
        assert_eq!(folder(&read, "archive_format"), Some("a/"));
        assert_eq!(read.get("b").unwrap(), None);
        let file = archive("a", b"pt2", 8);
        let read = Archive::read(&file).unwrap();
        assert!(read.get("a").unwrap_err().to_string().contains("'a' is compressed"));
    }

    #[test]
    fn damaged_archives_are_rejected() {
        let file = archive("a", b"pt2", 0);
        for at in 0..file.len() {
            assert!(Archive::read(&file[..at]).is_err(), "{at}");
            for flip in [1, 0x80, 0xff] {
                let mut damaged = file.clone();
                damaged[at] ^= flip;
                let _ = Archive::read(&damaged).map(|it| it.get("a").is_ok());
            }
        }
    }
}
