//! Storage that program and data files are read from.

use crate::error::ReadError;

/// Storage that holds a file.
///
/// Memory and memory maps implement [`lend`](DataLoader::lend), which avoids copies. A driver for
/// storage that is not memory-mapped, such as SPI flash, implements only
/// [`read`](DataLoader::read); then the caller supplies a buffer for the program, and the method
/// arena holds the constants.
pub trait DataLoader: Sync {
    /// Size of the file in bytes.
    fn size(&self) -> u64;

    /// Copies bytes from the file, starting at `offset`.
    ///
    /// # Errors
    /// The range exceeds the file, or the storage failed.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError>;

    /// Lends bytes of the file if they are memory-mapped.
    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let _ = (offset, len);
        None
    }
}

/// A file, or a range of one.
#[derive(Clone, Copy)]
pub(crate) enum Source<'p> {
    Bytes(&'p [u8]),
    Loader(&'p dyn DataLoader),
}

impl<'p> Source<'p> {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Loader(loader) => loader.size(),
        }
    }

    pub(crate) fn lend(&self, offset: u64, len: usize) -> Option<&'p [u8]> {
        match *self {
            Source::Bytes(bytes) => {
                let start = usize::try_from(offset).ok()?;
                bytes.get(start..start.checked_add(len)?)
            }
            // Slices that are longer or shorter than requested are rejected: loaders are not
            // trusted.
            Source::Loader(loader) => loader.lend(offset, len).filter(|bytes| bytes.len() == len),
        }
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let error = ReadError { offset, len: into.len() };
        match self {
            Source::Bytes(_) => {
                into.copy_from_slice(self.lend(offset, into.len()).ok_or(error)?);
                Ok(())
            }
            Source::Loader(loader) => loader.read(offset, into),
        }
    }
}

impl core::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes", self.size())
    }
}

#[cfg(feature = "std")]
mod file {
    use super::{DataLoader, ReadError};

    /// A file that is read in pieces.
    #[derive(Debug)]
    pub struct FileLoader {
        file: std::sync::Mutex<std::fs::File>,
        size: u64,
    }

    impl FileLoader {
        /// Opens a file.
        ///
        /// # Errors
        /// The error of the operating system.
        pub fn open(path: impl AsRef<std::path::Path>) -> std::io::Result<Self> {
            let file = std::fs::File::open(path)?;
            let size = file.metadata()?.len();
            Ok(FileLoader { file: std::sync::Mutex::new(file), size })
        }
    }

    impl DataLoader for FileLoader {
        fn size(&self) -> u64 {
            self.size
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
            use std::io::{Read, Seek, SeekFrom};
            let error = ReadError { offset, len: into.len() };
            let mut file = self.file.lock().map_err(|_| error)?;
            file.seek(SeekFrom::Start(offset)).map_err(|_| error)?;
            file.read_exact(into).map_err(|_| error)
        }
    }
}
#[cfg(feature = "std")]
pub use file::FileLoader;
