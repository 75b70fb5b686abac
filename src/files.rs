//! Opened program and data files: their bytes, with the views that `torchlet-core` borrows from
//! them.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::foreign::{self, Foreign};
#[cfg(unix)]
use crate::threads::each_part;
use memmap2::Mmap;
use self_cell::self_cell;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use torchlet_core::{
    BundledProgram, DataLoader, DataMap, Limits, Parallel, Program, ProgramError, ReadError, Serial,
};
use torchlet_graph::{Package, import};

/// How files are brought into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FileAccess {
    /// Reads the whole file. It may change or be deleted afterwards.
    #[default]
    Read,
    /// Memory-maps the file: pages are read on first use and shared between processes. This saves
    /// time and memory for large files.
    ///
    /// The caller promises that nobody writes to or truncates the file while modules use it. Its
    /// contents are validated only once; changing them under a running program is undefined
    /// behaviour, usually a crash. Replacing the file by renaming another one over it is safe.
    ///
    /// The same promise covers files in the [cache of compiled
    /// programs](crate::ModuleBuilder::compile_cache), which are also mapped. torchlet itself
    /// replaces those by renaming.
    Map,
    /// As [`Map`](FileAccess::Map), with the same promise, and asks the operating system to read
    /// the whole file ahead.
    MapPrefetched,
    /// As [`Map`](FileAccess::Map), with the same promise, and locks the pages in memory. Opening
    /// fails if the operating system does not allow it.
    MapLocked,
}

/// Storage that the caller provides for a file.
pub(crate) type SharedLoader = Arc<dyn DataLoader + Send + Sync>;

/// Source of a file's bytes.
pub(crate) enum Source {
    Path(PathBuf),
    Bytes(Vec<u8>),
    Static(&'static [u8]),
    Loader(SharedLoader),
}

impl Source {
    fn path(&self) -> Option<&Path> {
        match self {
            Source::Path(path) => Some(path),
            _ => None,
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Path(path) => path.fmt(f),
            Source::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Source::Static(bytes) => write!(f, "{} bytes", bytes.len()),
            Source::Loader(loader) => write!(f, "{} bytes in storage", loader.size()),
        }
    }
}

/// Caller-provided storage, with a copy of the start of its file if the storage cannot lend bytes.
/// The copy covers everything except tensor data.
struct Stored {
    loader: SharedLoader,
    front: Buffer,
}

impl DataLoader for Stored {
    fn size(&self) -> u64 {
        self.loader.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.loader.read(offset, into)
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok();
        let front = start.and_then(|start| self.front.bytes().get(start..start.checked_add(len)?));
        front.or_else(|| self.loader.lend(offset, len))
    }
}

/// Expected kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Program,
    Data,
}

/// Bytes of a file, memory-mapped or read.
pub(crate) enum FileBytes {
    Mapped(Mmap),
    Read(Buffer),
}

impl FileBytes {
    /// Opens the regular file at `path` and reads or maps it; at most `limit` bytes.
    pub(crate) fn open(
        path: &Path,
        access: FileAccess,
        limit: u64,
        parallel: &dyn Parallel,
    ) -> Result<Self, Error> {
        let file = torchlet_cache::open_regular(path);
        let file = file.map_err(|source| Error::File { path: path.into(), source })?;
        Self::of(file, path, access, limit, parallel)
    }

    /// Reads or maps an open file of at most `limit` bytes. `path` is for error messages.
    pub(crate) fn of(
        mut file: File,
        path: &Path,
        access: FileAccess,
        limit: u64,
        parallel: &dyn Parallel,
    ) -> Result<Self, Error> {
        let fail = |source: io::Error| Error::File { path: path.into(), source };
        let metadata = file.metadata().map_err(fail)?;
        check_size(metadata.len(), Some(path), limit)?;
        if access == FileAccess::Read {
            let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
            let mut buffer = Buffer::zeroed(len)?;
            read_all(&mut file, buffer.bytes_mut(), parallel).map_err(fail)?;
            return Ok(FileBytes::Read(buffer));
        }
        // SAFETY: the map is only read. The file must not change while it is mapped: callers
        // promise that by choosing `FileAccess::Map`, as every use of memory-mapped files requires.
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
        Ok(FileBytes::Mapped(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map,
            FileBytes::Read(buffer) => buffer.bytes(),
        }
    }
}

/// Fills `into` from the start of the file, on several threads if available.
#[cfg(unix)]
fn read_all(file: &mut File, into: &mut [u8], parallel: &dyn Parallel) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    if parallel.threads() == 1 {
        return file.read_exact(into);
    }
    let read = |part: &mut [u8], start: usize| file.read_exact_at(part, start as u64);
    each_part(parallel, into, &read).unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}

/// Fills `into` from the start of the file.
#[cfg(not(unix))]
fn read_all(file: &mut File, into: &mut [u8], _: &dyn Parallel) -> io::Result<()> {
    file.read_exact(into)
}

/// A whole file.
enum WholeFile {
    File(FileBytes),
    Heap(Buffer),
    Static(&'static [u8]),
}

impl WholeFile {
    fn bytes(&self) -> &[u8] {
        match self {
            WholeFile::File(file) => file.bytes(),
            WholeFile::Heap(buffer) => buffer.bytes(),
            WholeFile::Static(bytes) => bytes,
        }
    }
}

self_cell!(
    /// A file in another format, with the program that it was converted to.
    struct Imported {
        owner: WholeFile,
        #[covariant]
        dependent: Package,
    }
);

/// Contents of a file from any source.
enum Contents {
    Whole(WholeFile),
    Imported(Imported),
    Stored(Stored),
}

impl Contents {
    fn size(&self) -> u64 {
        match self.bytes() {
            Ok(bytes) => bytes.len() as u64,
            Err(stored) => stored.size(),
        }
    }

    /// Returns the whole file, or the storage to read it from.
    fn bytes(&self) -> Result<&[u8], &Stored> {
        match self {
            Contents::Whole(file) => Ok(file.bytes()),
            Contents::Imported(file) => Ok(file.borrow_owner().bytes()),
            Contents::Stored(stored) => Err(stored),
        }
    }

    fn program(&self) -> Result<(Program<'_>, Option<BundledProgram<'_>>), ProgramError> {
        if let Contents::Imported(file) = self {
            return Ok((Program::load(file.borrow_dependent())?, None));
        }
        match self.bytes() {
            Ok(bytes) if BundledProgram::is_bundled(bytes) => {
                let bundled = BundledProgram::from_bytes(bytes)?;
                Ok((Program::from_bytes(bundled.program()?)?, Some(bundled)))
            }
            Ok(bytes) => Ok((Program::from_bytes(bytes)?, None)),
            Err(stored) => Ok((Program::load(stored)?, None)),
        }
    }

    fn data(&self) -> Result<DataMap<'_>, ProgramError> {
        match self.bytes() {
            Ok(bytes) => DataMap::from_bytes(bytes),
            Err(stored) => DataMap::load(stored, None),
        }
    }

    /// Converts a parse error, and names the file's actual format if it is recognized.
    fn explain(&self, role: Role, source: &Source, error: ProgramError) -> Error {
        let path = source.path().map(Path::to_path_buf);
        let bytes = self.bytes().unwrap_or_else(|stored| stored.front.bytes());
        let is_malformed = matches!(error, ProgramError::Malformed(_));
        let found = is_malformed.then(|| foreign::recognize(bytes, role)).flatten();
        let expected = match role {
            Role::Program if cfg!(feature = "pt2") => {
                "a program of ExecuTorch (.pte, .bpte), torch.export (.pt2) or Arm (.vgf, .tosa)"
            }
            Role::Program => "a program of ExecuTorch (.pte, .bpte) or Arm (.vgf, .tosa)",
            Role::Data => "ExecuTorch external weights (.ptd)",
        };
        match found {
            Some(Foreign { found, remedy }) => Error::OtherFormat { path, expected, found, remedy },
            None => Error::Format { path, source: error },
        }
    }

    fn open(
        source: &Source,
        role: Role,
        access: FileAccess,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let file = match source {
            Source::Path(path) => {
                WholeFile::File(FileBytes::open(path, access, limits.file_bytes, &Serial)?)
            }
            Source::Bytes(bytes) => {
                check_size(bytes.len() as u64, None, limits.file_bytes)?;
                WholeFile::Heap(Buffer::copy_of(bytes)?)
            }
            Source::Static(bytes) => WholeFile::Static(bytes),
            Source::Loader(loader) => return Contents::from_loader(loader, role, limits),
        };
        Contents::whole(file, role, source.path())
    }

    /// Converts a program in another format.
    fn whole(file: WholeFile, role: Role, path: Option<&Path>) -> Result<Self, Error> {
        if role != Role::Program || import::detect(file.bytes()).is_none() {
            return Ok(Contents::Whole(file));
        }
        let imported = Imported::try_new(file, |file| import::program(file.bytes()));
        let path = || path.map(Path::to_path_buf);
        imported.map(Contents::Imported).map_err(|source| Error::Import { path: path(), source })
    }

    fn from_loader(loader: &SharedLoader, role: Role, limits: &Limits) -> Result<Self, Error> {
        let size = loader.size();
        check_size(size, None, limits.file_bytes)?;
        let read = |len: usize| -> Result<Buffer, Error> {
            let mut buffer = Buffer::zeroed(len)?;
            let read = loader.read(0, buffer.bytes_mut());
            read.map_err(|error| Error::Format { path: None, source: error.into() })?;
            Ok(buffer)
        };
        let head = read(usize::try_from(size).map_or(HEAD, |size| size.min(HEAD)))?;
        // The test cases of a bundled program are spread over the whole file, and other formats are
        // converted as a whole.
        let is_whole = |head| BundledProgram::is_bundled(head) || import::may_be_importable(head);
        if role == Role::Program && is_whole(head.bytes()) {
            let file = WholeFile::Heap(read(usize::try_from(size).unwrap_or(usize::MAX))?);
            return Contents::whole(file, role, None);
        }
        let mut stored = Stored { loader: loader.clone(), front: Buffer::zeroed(0)? };
        let opened = match role {
            Role::Program => Program::load(&stored).map(drop),
            Role::Data => DataMap::load(&stored, None).map(drop),
        };
        // Other errors recur when the file is opened for use.
        if let Err(ProgramError::BufferRequired { needed }) = opened {
            stored.front = read(needed)?;
        }
        Ok(Contents::Stored(stored))
    }
}

/// Number of leading bytes that identify the format.
const HEAD: usize = 8;

/// Rejects files larger than `limit` before they are read.
fn check_size(size: u64, path: Option<&Path>, limit: u64) -> Result<(), Error> {
    if size <= limit {
        return Ok(());
    }
    let source = ProgramError::TooLarge { size, limit };
    Err(Error::Format { path: path.map(Path::to_path_buf), source })
}

/// Files of one program.
struct Files {
    program: Contents,
    data: Vec<Contents>,
}

/// Views into the files, from `torchlet-core`.
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

/// An opened program with its external data. Immutable; modules and methods share it.
pub(crate) struct OpenProgram(OpenFiles);

impl OpenProgram {
    pub(crate) fn open(
        program: &Source,
        data: &[Source],
        access: FileAccess,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let open = |source, role| Contents::open(source, role, access, limits);
        let files = Files {
            program: open(program, Role::Program)?,
            data: data.iter().map(|source| open(source, Role::Data)).collect::<Result<_, _>>()?,
        };
        let cell = OpenFiles::try_new(files, |files| {
            let (inner, bundled) = files
                .program
                .program()
                .map_err(|error| files.program.explain(Role::Program, program, error))?;
            let maps = files.data.iter().zip(data);
            let maps = maps.map(|(file, source)| {
                file.data().map_err(|error| file.explain(Role::Data, source, error))
            });
            let data = maps.collect::<Result<_, Error>>()?;
            Ok::<_, Error>(Views { program: inner, bundled, data })
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

    /// Bytes of the program file, then of the external data files. `None` if any is in
    /// caller-provided storage.
    pub(crate) fn bytes(&self) -> Option<Vec<&[u8]>> {
        let Files { program, data } = self.0.borrow_owner();
        std::iter::once(program).chain(data).map(|file| file.bytes().ok()).collect()
    }

    /// Size of the program file in bytes.
    pub(crate) fn file_size(&self) -> u64 {
        self.0.borrow_owner().program.size()
    }
}
