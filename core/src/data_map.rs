//! External data: `.ptd` files of named tensors and blobs.

use crate::error::ProgramError;
use crate::format::flat_tensor_schema::{FlatTensorTable, NamedTensor};
use crate::format::flatbuffer::Table;
use crate::format::header::{FlatTensorHeader, HEAD_BYTES};
use crate::format::{Malformed, Part};
use crate::layout::TensorInfo;
use crate::loader::{DataLoader, Source};

/// An opened `.ptd` file.
#[derive(Debug, Clone, Copy)]
pub struct DataMap<'p> {
    root: FlatTensorTable<'p>,
    source: Source<'p>,
    segments: (u64, u64),
}

/// A range of bytes in a program or `.ptd` file.
#[derive(Debug, Clone, Copy)]
pub struct Blob<'p> {
    source: Source<'p>,
    offset: u64,
    size: usize,
}

impl<'p> Blob<'p> {
    /// Creates a blob of `size` bytes at `offset`; `None` if the range exceeds the file.
    pub(crate) fn new(source: Source<'p>, offset: u64, size: u64) -> Option<Self> {
        if offset.checked_add(size)? > source.size() {
            return None;
        }
        Some(Blob { source, offset, size: usize::try_from(size).ok()? })
    }

    /// Creates a blob from the flatbuffer part of a file, which is always in memory.
    pub(crate) fn inline(bytes: &'p [u8]) -> Self {
        Blob { source: Source::Bytes(bytes), offset: 0, size: bytes.len() }
    }

    /// Size of the data in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the bytes if the storage can lend them.
    pub fn lend(&self) -> Option<&'p [u8]> {
        if self.size == 0 {
            return Some(&[]);
        }
        self.source.lend(self.offset, self.size)
    }

    /// Returns the sub-range of `len` bytes at `offset`; `None` if it is out of range.
    pub(crate) fn part(&self, offset: u64, len: usize) -> Option<Self> {
        let end = offset.checked_add(len as u64)?;
        if end > self.size as u64 {
            return None;
        }
        Some(Blob { source: self.source, offset: self.offset.checked_add(offset)?, size: len })
    }

    /// Copies bytes from `offset` within the data.
    ///
    /// # Errors
    /// The range exceeds the data, or the storage failed.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), ProgramError> {
        let part = self.part(offset as u64, into.len());
        let past = Part::NamedData.at(offset);
        let part = part.ok_or(past)?;
        Ok(part.source.read(part.offset, into)?)
    }
}

impl<'p> DataMap<'p> {
    /// Opens a `.ptd` file in memory.
    ///
    /// # Errors
    /// The bytes are not a valid `.ptd` file.
    pub fn from_bytes(bytes: &'p [u8]) -> Result<Self, ProgramError> {
        Self::open(Source::Bytes(bytes), None)
    }

    /// Opens a `.ptd` file. Borrows its flatbuffer if the storage can lend bytes (zero-copy);
    /// otherwise copies it into `buffer`.
    ///
    /// # Errors
    /// The file is not a valid `.ptd` file or cannot be read, or the storage cannot lend and the
    /// buffer is missing or too small.
    pub fn load(
        loader: &'p dyn DataLoader,
        buffer: Option<&'p mut [u8]>,
    ) -> Result<Self, ProgramError> {
        Self::open(Source::Loader(loader), buffer)
    }

    fn open(source: Source<'p>, buffer: Option<&'p mut [u8]>) -> Result<Self, ProgramError> {
        let mut head = [0; HEAD_BYTES];
        let present = usize::try_from(source.size()).unwrap_or(HEAD_BYTES).min(HEAD_BYTES);
        let head = head.get_mut(..present).unwrap_or_default();
        source.read(0, head)?;
        let header = FlatTensorHeader::parse(head)?;
        let (offset, size) = header.flatbuffer;
        // Offsets inside the flatbuffer are relative to the start of the file: the header lies
        // between the root offset and the tables.
        let end = offset
            .checked_add(size)
            .filter(|end| *end <= source.size())
            .and_then(|end| usize::try_from(end).ok())
            .ok_or(Part::Header.at(16))?;
        let flatbuffer = read_or_lend(source, end, buffer)?;
        let root = FlatTensorTable(Table::root(flatbuffer)?);
        Ok(DataMap { root, source, segments: header.segments })
    }

    /// Returns the data of an entry.
    pub(crate) fn segment(&self, entry: &NamedTensor<'p>) -> Result<Blob<'p>, Malformed> {
        let index = usize::try_from(entry.segment_index()?).unwrap_or(usize::MAX);
        let malformed = Part::Segment.at(index);
        let segment = self.root.segments()?.item(index, Part::Segment)?;
        let (offset, size) = (segment.offset()?, segment.size()?);
        if offset.checked_add(size).is_none_or(|end| end > self.segments.1) {
            return Err(malformed);
        }
        self.segments
            .0
            .checked_add(offset)
            .and_then(|offset| Blob::new(self.source, offset, size))
            .ok_or(malformed)
    }

    /// Looks up an entry by name.
    pub(crate) fn entry(&self, key: &str) -> Result<Option<NamedTensor<'p>>, Malformed> {
        self.root.named_data()?.named(key)
    }

    /// Looks up data by name.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn get(&self, key: &str) -> Result<Option<Blob<'p>>, ProgramError> {
        let Some(entry) = self.entry(key)? else { return Ok(None) };
        Ok(Some(self.segment(&entry)?))
    }

    /// Returns the dtype and shape of a named tensor without reading its data; `None` if the name
    /// is absent or not a tensor.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn layout(&self, key: &str) -> Result<Option<TensorInfo>, ProgramError> {
        let Some(entry) = self.entry(key)? else { return Ok(None) };
        let Some(layout) = entry.tensor_layout()? else { return Ok(None) };
        let sizes = layout.sizes()?;
        let info = TensorInfo::checked(
            layout.scalar_type()?.into(),
            sizes.iter().map(|size| size.ok()),
            layout.dim_order()?.bytes(),
        );
        Ok(Some(info.ok_or(Part::TensorLayout.at(0))?))
    }

    /// Number of named entries in the file.
    pub(crate) fn name_count(&self) -> usize {
        self.root.named_data().map_or(0, |names| names.len())
    }

    /// Names of all entries in the file.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn names(
        &self,
    ) -> Result<impl Iterator<Item = Result<&'p str, ProgramError>> + use<'p>, ProgramError> {
        Ok(self.root.named_data()?.iter().map(|entry| Ok(entry?.key()?.unwrap_or(""))))
    }
}

/// Returns the first `len` bytes of a file, lent or read into the buffer.
pub(crate) fn read_or_lend<'p>(
    source: Source<'p>,
    len: usize,
    buffer: Option<&'p mut [u8]>,
) -> Result<&'p [u8], ProgramError> {
    if let Some(bytes) = source.lend(0, len) {
        return Ok(bytes);
    }
    let buffer = buffer.ok_or(ProgramError::BufferRequired { needed: len })?;
    let available = buffer.len();
    let bytes =
        buffer.get_mut(..len).ok_or(ProgramError::BufferTooSmall { needed: len, available })?;
    source.read(0, bytes)?;
    Ok(bytes)
}
