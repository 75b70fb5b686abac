//! Programs: the immutable contents of `.pte` files.

use crate::data_map::{Blob, read_or_lend};
use crate::error::ProgramError;
use crate::format::flatbuffer::{Table, Vector};
use crate::format::header::{HEAD_BYTES, ProgramHeader};
use crate::format::program_schema::{
    DelegateDataReference, ExecutionPlan, ProgramTable, SubsegmentOffsets,
};
use crate::format::{Malformed, Part};
use crate::loader::{DataLoader, Source};

/// An opened program. It borrows the file's bytes, is immutable, and can be shared between threads.
#[derive(Debug, Clone, Copy)]
pub struct Program<'p> {
    root: ProgramTable<'p>,
    source: Source<'p>,
    segment_base: Option<u64>,
}

impl<'p> Program<'p> {
    /// Opens a program in memory.
    ///
    /// Constants are used in place, so the bytes must be aligned for them: 16 bytes suffice for
    /// every element type ([`AlignedBytes`](crate::AlignedBytes) aligns a static).
    ///
    /// # Errors
    /// The bytes are not a valid program.
    pub fn from_bytes(bytes: &'p [u8]) -> Result<Self, ProgramError> {
        Self::open(Source::Bytes(bytes), None)
    }

    /// Opens a program from storage that lends its bytes (zero-copy).
    ///
    /// # Errors
    /// The file is not a valid program or cannot be read; [`ProgramError::BufferRequired`] if the
    /// storage cannot lend.
    pub fn load(loader: &'p dyn DataLoader) -> Result<Self, ProgramError> {
        Self::open(Source::Loader(loader), None)
    }

    /// Opens a program from read-only storage that cannot lend, with a buffer for everything but
    /// the segments.
    ///
    /// # Errors
    /// The file is not a valid program or cannot be read, or the buffer is too small: the error
    /// states the required size.
    pub fn load_into(
        loader: &'p dyn DataLoader,
        buffer: &'p mut [u8],
    ) -> Result<Self, ProgramError> {
        Self::open(Source::Loader(loader), Some(buffer))
    }

    fn open(source: Source<'p>, buffer: Option<&'p mut [u8]>) -> Result<Self, ProgramError> {
        let mut head = [0; HEAD_BYTES];
        let present = usize::try_from(source.size()).unwrap_or(HEAD_BYTES).min(HEAD_BYTES);
        let head = head.get_mut(..present).unwrap_or_default();
        source.read(0, head)?;
        let header = ProgramHeader::parse(head)?;
        let size = header.program_size.unwrap_or(source.size());
        let past_end = Part::Header.at(16);
        if size > source.size() {
            return Err(past_end.into());
        }
        let flatbuffer =
            read_or_lend(source, usize::try_from(size).map_err(|_| past_end)?, buffer)?;
        let root = ProgramTable(Table::root(flatbuffer)?);
        let program = Program { root, source, segment_base: header.segment_base };
        // All segments must lie inside the file, so that a truncated file is rejected here.
        if let (Some(base), Some(size)) = (header.segment_base, header.segment_data_size)
            && base.checked_add(size).is_none_or(|end| end > source.size())
        {
            return Err(Part::SegmentsEnd.at(24).into());
        }
        for index in 0..program.segment_count() {
            program.segment(index)?;
        }
        Ok(program)
    }

    /// Identifies this program among open ones: address and length of its flatbuffer.
    pub(crate) fn identity(&self) -> (usize, usize) {
        let buffer = self.root.0.buffer();
        (buffer.as_ptr().addr(), buffer.len())
    }

    /// Schema version that the file was written with.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn version(&self) -> Result<u32, ProgramError> {
        Ok(self.root.version()?)
    }

    /// Size of the whole file in bytes.
    pub fn file_size(&self) -> u64 {
        self.source.size()
    }

    /// Size of the file's flatbuffer in bytes. It stays in use for the program's lifetime.
    pub fn flatbuffer_size(&self) -> usize {
        self.root.0.buffer().len()
    }

    /// Number of segments.
    pub fn segment_count(&self) -> usize {
        self.root.segments().map_or(0, |segments| segments.len())
    }

    /// Size of a segment in bytes.
    ///
    /// # Errors
    /// The file is malformed, or the segment does not exist.
    pub fn segment_size(&self, index: usize) -> Result<usize, ProgramError> {
        Ok(self.segment(index)?.size())
    }

    fn segment(&self, index: usize) -> Result<Blob<'p>, Malformed> {
        let malformed = Part::Segment.at(index);
        let segment = self.root.segments()?.item(index, Part::Segment)?;
        let (offset, size) = (segment.offset()?, segment.size()?);
        if size == 0 {
            return Ok(Blob::inline(&[]));
        }
        let start = self.segment_base.and_then(|base| base.checked_add(offset));
        start.and_then(|start| Blob::new(self.source, start, size)).ok_or(malformed)
    }

    /// Returns the first `len` bytes of an entry in a table of segment offsets.
    fn subsegment(
        &self,
        table: &SubsegmentOffsets<'p>,
        entry: usize,
        len: usize,
    ) -> Result<Blob<'p>, Malformed> {
        let malformed = Part::TensorData.at(entry);
        let offset = table.offsets()?.item(entry, Part::TensorData)?;
        let index = usize::try_from(table.segment_index()?).map_err(|_| malformed)?;
        if len == 0 {
            return Ok(Blob::inline(&[]));
        }
        self.segment(index)?.part(offset, len).ok_or(malformed)
    }

    /// Returns the first `len` bytes of constant `index`.
    pub(crate) fn constant(&self, index: usize, len: usize) -> Result<Blob<'p>, Malformed> {
        let segment = self.root.constant_segment()?;
        if let Some(segment) =
            segment.filter(|segment| segment.offsets().is_ok_and(|o| !o.is_empty()))
        {
            return self.subsegment(&segment, index, len);
        }
        let malformed = Part::TensorData.at(index);
        let buffer = self.root.constant_buffer()?.item(index, Part::TensorData)?;
        let bytes = buffer.storage()?.bytes().get(..len).ok_or(malformed)?;
        Ok(Blob::inline(bytes))
    }

    /// Returns the first `len` bytes of a mutable tensor's initial data: entry `index` of table
    /// `table`.
    pub(crate) fn initial_data(
        &self,
        table: u64,
        index: usize,
        len: usize,
    ) -> Result<Blob<'p>, Malformed> {
        let tables = self.root.mutable_data_segments()?;
        if tables.is_empty() {
            return self.constant(index, len);
        }
        let malformed = Part::InitialData.at(index);
        let table = usize::try_from(table).map_err(|_| malformed)?;
        let table = tables.get(table)?.ok_or(malformed)?;
        self.subsegment(&table, index, len)
    }

    /// Returns the processed bytes of a delegate.
    pub(crate) fn delegate_data(
        &self,
        reference: &DelegateDataReference<'p>,
    ) -> Result<Blob<'p>, Malformed> {
        let index = reference.index()?;
        let malformed = Part::DelegateData.at(index as usize);
        let index = usize::try_from(index).map_err(|_| malformed)?;
        match reference.location()? {
            0 => {
                let data = self.root.backend_delegate_data()?.item(index, Part::DelegateData)?;
                Ok(Blob::inline(data.storage()?.bytes()))
            }
            1 => self.segment(index),
            _ => Err(malformed),
        }
    }

    /// Looks up named data in the file.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn named_data(&self, key: &str) -> Result<Option<Blob<'p>>, ProgramError> {
        let Some(entry) = self.root.named_data()?.named(key)? else { return Ok(None) };
        let index = usize::try_from(entry.segment_index()?).unwrap_or(usize::MAX);
        Ok(Some(self.segment(index)?))
    }

    /// Names of all named data in the file.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn data_names(
        &self,
    ) -> Result<impl Iterator<Item = Result<&'p str, ProgramError>> + use<'p>, ProgramError> {
        let entries = self.root.named_data()?;
        Ok(entries.iter().map(|entry| Ok(entry?.key()?.unwrap_or(""))))
    }

    pub(crate) fn plans(&self) -> Result<Vector<'p, ExecutionPlan<'p>>, ProgramError> {
        Ok(self.root.execution_plan()?)
    }

    /// Names of the methods.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn method_names(
        &self,
    ) -> Result<impl Iterator<Item = Result<&'p str, ProgramError>> + use<'p>, ProgramError> {
        Ok(self.plans()?.iter().map(|plan| Ok(plan?.name()?.unwrap_or(""))))
    }
}
