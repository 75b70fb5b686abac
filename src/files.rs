//! Program and data files, opened: the bytes, together with the core's views of them.

use crate::buffer::Buffer;
use crate::error::Error;
use memmap2::Mmap;
use self_cell::self_cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use torchlet_core::{BundledProgram, DataMap, Limits, Program, ProgramError};

/// How the bytes of files get into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FileAccess {
    /// The operating system maps the file: pages are read when they are used, and shared between processes. The
    /// file must not change or shrink while it is in use: that is undefined behaviour, usually a crash. Where other
    /// programs may write to it, use [`Read`](FileAccess::Read).
    #[default]
    Map,
    /// As [`Map`](FileAccess::Map), and the system is asked to read everything ahead.
    MapPrefetched,
    /// As [`Map`](FileAccess::Map), and the pages stay in memory. An error where the system does not allow it.
    MapLocked,
    /// The file is read as a whole.
    Read,
}

/// Where a file's bytes come from.
#[derive(Debug)]
pub(crate) enum Source {
    Path(PathBuf),
    Bytes(Vec<u8>),
    Static(&'static [u8]),
}

impl Source {
    fn path(&self) -> Option<&Path> {
        match self {
            Source::Path(path) => Some(path),
            _ => None,
        }
    }
}

/// The bytes of a file.
enum Contents {
    Mapped(Mmap),
    Heap(Buffer),
    Static(&'static [u8]),
}

impl Contents {
    fn bytes(&self) -> &[u8] {
        match self {
            Contents::Mapped(map) => map,
            Contents::Heap(buffer) => buffer.bytes(),
            Contents::Static(bytes) => bytes,
        }
    }

    fn open(source: &Source, access: FileAccess, limits: &Limits) -> Result<Self, Error> {
        match source {
            Source::Path(path) => Contents::from_path(path, access, limits),
            Source::Bytes(bytes) => {
                check_size(bytes.len() as u64, None, limits)?;
                Ok(Contents::Heap(Buffer::copy_of(bytes)?))
            }
            Source::Static(bytes) => Ok(Contents::Static(bytes)),
        }
    }

    fn from_path(path: &Path, access: FileAccess, limits: &Limits) -> Result<Self, Error> {
        let fail = |source: io::Error| Error::File { path: path.into(), source };
        let mut file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        check_size(metadata.len(), Some(path), limits)?;
        if access == FileAccess::Read {
            let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
            let mut buffer = Buffer::zeroed(len)?;
            file.read_exact(buffer.bytes_mut()).map_err(fail)?;
            return Ok(Contents::Heap(buffer));
        }
        // SAFETY: the map is only read. That the file does not change under it is asked of the user in the
        // documentation of `FileAccess::Map`, as every use of memory-mapped files must.
        let map = unsafe { Mmap::map(&file) }.map_err(fail)?;
        #[cfg(unix)]
        match access {
            FileAccess::MapPrefetched => map.advise(memmap2::Advice::WillNeed).map_err(fail)?,
            FileAccess::MapLocked => map.lock().map_err(fail)?,
            _ => {}
        }
        #[cfg(not(unix))]
        if access == FileAccess::MapLocked {
            return Err(fail(io::ErrorKind::Unsupported.into()));
        }
        Ok(Contents::Mapped(map))
    }
}

/// Refuses files that are too large, before they are read.
fn check_size(size: u64, path: Option<&Path>, limits: &Limits) -> Result<(), Error> {
    let limit = limits.file_bytes;
    if size <= limit {
        return Ok(());
    }
    let source = ProgramError::TooLarge { size, limit };
    Err(Error::Format { path: path.map(Path::to_path_buf), source })
}

/// The files of one program.
struct Files {
    program: Contents,
    data: Vec<Contents>,
}

/// What core sees of them.
struct Views<'f> {
    program: Program<'f>,
    bundled: Option<BundledProgram<'f>>,
    data: Box<[DataMap<'f>]>,
}

self_cell!(
    struct OpenFiles {
        owner: Files,
        #[covariant]
        dependent: Views,
    }
);

/// A program with its external data, opened. It never changes, and is shared between modules and methods.
pub(crate) struct OpenProgram(OpenFiles);

impl OpenProgram {
    pub(crate) fn open(
        program: &Source,
        data: &[Source],
        access: FileAccess,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let files = Files {
            program: Contents::open(program, access, limits)?,
            data: data
                .iter()
                .map(|source| Contents::open(source, access, limits))
                .collect::<Result<_, _>>()?,
        };
        let wrap = |source: &Source, error: ProgramError| Error::Format {
            path: source.path().map(Path::to_path_buf),
            source: error,
        };
        let cell = OpenFiles::try_new(files, |files| {
            let bytes = files.program.bytes();
            let (inner, bundled) = if BundledProgram::is_bundled(bytes) {
                let bundled =
                    BundledProgram::from_bytes(bytes).map_err(|error| wrap(program, error))?;
                let inner = bundled.program().map_err(|error| wrap(program, error))?;
                (inner, Some(bundled))
            } else {
                (bytes, None)
            };
            let maps = files.data.iter().zip(data).map(|(contents, source)| {
                DataMap::from_bytes(contents.bytes()).map_err(|error| wrap(source, error))
            });
            Ok::<_, Error>(Views {
                program: Program::from_bytes(inner).map_err(|error| wrap(program, error))?,
                bundled,
                data: maps.collect::<Result<_, _>>()?,
            })
        })?;
        Ok(OpenProgram(cell))
    }

    pub(crate) fn program(&self) -> Program<'_> {
        self.0.borrow_dependent().program
    }

    pub(crate) fn bundled(&self) -> Option<BundledProgram<'_>> {
        self.0.borrow_dependent().bundled
    }

    pub(crate) fn data(&self) -> &[DataMap<'_>] {
        &self.0.borrow_dependent().data
    }

    /// Bytes of the program file as it is on disk.
    pub(crate) fn file_size(&self) -> usize {
        self.0.borrow_owner().program.bytes().len()
    }
}
