//! A serialized program: its flatbuffer and the data segments, which are borrowed where possible.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use torchlet_core::DataLoader;
use torchlet_core::error::ReadError;

/// Alignment of data in the file, in bytes: suits SIMD loads and cache lines.
pub(crate) const DATA_ALIGN: u64 = 64;

/// A program file in pieces.
///
/// The flatbuffer is new; most of the data is borrowed from the file that the program was read
/// from. Programs can be loaded from a package without a copy, and [`to_bytes`](Self::to_bytes)
/// turns it into a file.
#[derive(Debug, Clone, Default)]
pub struct Package<'p> {
    /// Start offset in the file and bytes of each piece, in order.
    pieces: Vec<(u64, Cow<'p, [u8]>)>,
    size: u64,
}

impl<'p> Package<'p> {
    /// Appends a piece and returns its offset.
    pub(crate) fn push(&mut self, bytes: Cow<'p, [u8]>) -> u64 {
        let start = self.size.next_multiple_of(DATA_ALIGN);
        self.size = start + bytes.len() as u64;
        self.pieces.push((start, bytes));
        start
    }

    /// Appends the pieces of another package.
    pub(crate) fn append(&mut self, other: Self) {
        let base = self.size.next_multiple_of(DATA_ALIGN);
        self.pieces.extend(other.pieces.into_iter().map(|(start, bytes)| (base + start, bytes)));
        self.size = base + other.size;
    }

    /// Recreates a package from its [pieces](Self::pieces) and size. Returns `None` if they do not
    /// match.
    pub fn of_pieces(pieces: impl IntoIterator<Item = Cow<'p, [u8]>>, size: u64) -> Option<Self> {
        let mut package = Package::default();
        for bytes in pieces {
            package.push(bytes);
        }
        // The last piece may be followed by zero padding.
        let fits = (package.size..=package.size.next_multiple_of(DATA_ALIGN)).contains(&size);
        fits.then_some(Package { size, ..package })
    }

    /// Returns the pieces in order. Each starts at the next multiple of 64 bytes after the previous
    /// one.
    pub fn pieces(&self) -> impl Iterator<Item = &Cow<'p, [u8]>> {
        self.pieces.iter().map(|(_, bytes)| bytes)
    }

    /// Writes the file from start to end.
    ///
    /// # Errors
    /// Returns the first error of `write`.
    pub fn write_to<E>(&self, mut write: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut end = 0;
        let ends = self.pieces.iter().map(|(start, bytes)| (*start, bytes.as_ref()));
        for (start, bytes) in ends.chain([(self.size, &[][..])]) {
            // Padding is always shorter than the alignment.
            let zeroes = [0; DATA_ALIGN as usize];
            let gap = usize::try_from(start.saturating_sub(end)).unwrap_or(0);
            write(zeroes.get(..gap).unwrap_or(&zeroes))?;
            write(bytes)?;
            end = start + bytes.len() as u64;
        }
        Ok(())
    }

    /// Returns the contents of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let append = |bytes: &[u8]| -> Result<(), core::convert::Infallible> {
            file.extend_from_slice(bytes);
            Ok(())
        };
        match self.write_to(append) {
            Ok(()) => file,
        }
    }

    /// Returns the number of bytes that are not borrowed.
    pub fn owned_bytes(&self) -> usize {
        let owned = self.pieces.iter().filter(|(_, bytes)| matches!(bytes, Cow::Owned(_)));
        owned.map(|(_, bytes)| bytes.len()).sum()
    }

    /// Returns the last piece that starts at or before `offset`.
    fn piece(&self, offset: u64) -> Option<usize> {
        self.pieces.partition_point(|(start, _)| *start <= offset).checked_sub(1)
    }
}

impl DataLoader for Package<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let error = ReadError { offset, len: into.len() };
        let end = offset.checked_add(into.len() as u64).ok_or(error)?;
        if end > self.size {
            return Err(error);
        }
        // The gaps between pieces read as zeros.
        into.fill(0);
        let first = self.piece(offset).unwrap_or(0);
        for (start, bytes) in self.pieces.iter().skip(first).take_while(|(start, _)| *start < end) {
            let from = offset.saturating_sub(*start).min(bytes.len() as u64) as usize;
            let at = start.saturating_sub(offset) as usize;
            let source = bytes.get(from..).unwrap_or_default();
            let target = into.get_mut(at..).unwrap_or_default();
            let len = source.len().min(target.len());
            target[..len].copy_from_slice(&source[..len]);
        }
        Ok(())
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let (start, bytes) = self.pieces.get(self.piece(offset)?)?;
        let from = usize::try_from(offset - start).ok()?;
        bytes.get(from..from.checked_add(len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn pieces_are_read_as_one_file() {
        let mut package = Package::default();
        package.push(Cow::Owned(vec![1; 70]));
        let second = package.push(Cow::Borrowed(&[2, 3]));
        assert_eq!((second, package.size()), (128, 130));
        let file = package.to_bytes();
        for offset in [0, 60, 69, 70, 100, 127, 128, 129] {
            let mut read = vec![9; file.len() - offset];
            package.read(offset as u64, &mut read).unwrap();
            assert_eq!(read, file[offset..], "{offset}");
        }
        assert!(package.read(1, &mut [0; 130]).is_err());
        assert_eq!(package.lend(128, 2), Some(&[2, 3][..]));
        assert_eq!(package.lend(0, 71), None);
        assert_eq!(package.lend(128, 3), None);
        assert_eq!(package.owned_bytes(), 70);
        let pieces: Vec<_> = package.pieces().cloned().collect();
        let again = Package::of_pieces(pieces.clone(), package.size()).unwrap();
        assert_eq!(again.to_bytes(), file);
        assert!(Package::of_pieces(pieces.clone(), 129).is_none());
        assert!(Package::of_pieces(pieces, 193).is_none());
    }
}
