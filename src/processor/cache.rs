//! Compiled programs, kept from one run to the next.
//!
//! A file's name is a hash of all that its contents follow from: the program and its external data, what it was compiled for, the kernels
//! that there were, and torchlet's version. In it is what is new, such as weights that are packed for the machine; data that lies in the
//! program's own files is referred to. It says which build of the application wrote it, and ends where its header says, with the checksum
//! that the header has: a file of which anything is amiss counts as none. It is replaced as a whole, by renaming.
//!
//! The hash is fast and no obstacle to people: whoever can write to the folder, or makes files that collide on purpose, decides what is
//! computed. What they cannot do is break memory: what is in the cache is checked as any file is.

use crate::files::{FileAccess, FileBytes};
use crate::threads::{PART, map_parts};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use torchlet_core::{DataLoader, Parallel, Registry};
use torchlet_graph::{Package, Report};
use twox_hash::XxHash3_128;

const MAGIC: &[u8; 8] = b"TORCHLCC";
/// Magic, build, bytes behind the header, their checksum.
const HEADER: usize = 8 + 16 + 8 + 16;
/// At what multiples data starts in the file.
const ALIGN: usize = 64;
/// Says of a piece that it is in the file itself.
const OWN: u64 = u64::MAX;

/// The place of a compiled program in a folder.
pub(super) struct CacheFile {
    path: PathBuf,
}

/// The parts of a cached program, on their way to its file.
struct Layout<'p> {
    /// The report, and where each piece is.
    index: Vec<u8>,
    /// The pieces that are not in files of the program.
    own: Vec<&'p [u8]>,
}

impl CacheFile {
    /// The file of a program that is compiled from these files for a target. `None` if threads leave work undone.
    pub(super) fn new(
        folder: &Path,
        files: &[&[u8]],
        target: &str,
        registry: &Registry<'_>,
        parallel: &dyn Parallel,
    ) -> Option<Self> {
        let mut hash = XxHash3_128::new();
        let backends = registry.backends().map(|backend| backend.name());
        let names = registry.kernels().map(|kernel| kernel.name).chain(backends);
        for text in [env!("CARGO_PKG_VERSION"), target].into_iter().chain(names) {
            hash.write(text.as_bytes());
            hash.write(&[0]);
        }
        for file in files {
            hash.write(&(file.len() as u64).to_le_bytes());
            hash.write(&Checksum::of(file, parallel)?.to_le_bytes());
        }
        Some(CacheFile { path: folder.join(format!("{:032x}.compiled", hash.finish_128())) })
    }

    /// What is in the file, if it is there and all of it is right.
    pub(super) fn read(
        &self,
        access: FileAccess,
        limit: u64,
        parallel: &dyn Parallel,
    ) -> Option<FileBytes> {
        let file = FileBytes::open(&self.path, access, limit, parallel).ok()?;
        let (header, contents) = file.bytes().split_at_checked(HEADER)?;
        let expected = Self::header(contents.len() as u64, Checksum::of(contents, parallel)?);
        (header == expected).then_some(file)
    }

    /// Replaces the file.
    pub(super) fn write(
        &self,
        package: &Package<'_>,
        files: &[&[u8]],
        report: &Report,
    ) -> io::Result<()> {
        let layout = Layout::of(package, files, report);
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // Each writer of each process has a file of its own.
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
        let part = self.path.with_extension(format!("{}-{writer}.part", std::process::id()));
        let written = File::create(&part).and_then(|file| {
            let mut file = BufWriter::new(file);
            let (mut len, mut checksum) = (0, Checksum::default());
            file.write_all(&[0; HEADER])?;
            layout.write(|bytes| {
                len += bytes.len() as u64;
                checksum.write(bytes);
                file.write_all(bytes)
            })?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&Self::header(len, checksum.finish()))?;
            file.flush()?;
            std::fs::rename(&part, &self.path)
        });
        if written.is_err() {
            // What is left of it is of no use; that it cannot be removed changes nothing.
            let _ = std::fs::remove_file(&part);
        }
        written
    }

    fn header(len: u64, checksum: u128) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let parts: [&[u8]; 4] =
            [MAGIC, &build().to_le_bytes(), &len.to_le_bytes(), &checksum.to_le_bytes()];
        let bytes = parts.into_iter().flatten();
        header.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        header
    }
}

/// The checksum of a file: a hash of those of its parts, so that threads can share them.
#[derive(Default)]
struct Checksum {
    parts: XxHash3_128,
    /// The part that is not complete, and what it has so far.
    part: XxHash3_128,
    filled: usize,
}

impl Checksum {
    fn of(bytes: &[u8], parallel: &dyn Parallel) -> Option<u128> {
        let mut parts = XxHash3_128::new();
        for part in map_parts(parallel, bytes, &XxHash3_128::oneshot)? {
            parts.write(&part.to_le_bytes());
        }
        Some(parts.finish_128())
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while let Some((part, rest)) = bytes.split_at_checked(PART - self.filled) {
            self.part.write(part);
            self.next();
            bytes = rest;
        }
        self.part.write(bytes);
        self.filled += bytes.len();
    }

    fn next(&mut self) {
        let part = core::mem::take(&mut self.part).finish_128();
        self.parts.write(&part.to_le_bytes());
        self.filled = 0;
    }

    fn finish(mut self) -> u128 {
        if self.filled > 0 {
            self.next();
        }
        self.parts.finish_128()
    }
}

/// What tells builds of one version apart: when this program was linked, and how large it is. Developers change the compiler without a new
/// version.
fn build() -> u128 {
    static BUILD: OnceLock<u128> = OnceLock::new();
    *BUILD.get_or_init(|| {
        let metadata = std::env::current_exe().and_then(std::fs::metadata);
        let time = |metadata: std::fs::Metadata| -> Option<u128> {
            let time = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(time.as_nanos() << 40 ^ u128::from(metadata.len()))
        };
        metadata.ok().and_then(time).unwrap_or(0)
    })
}

impl<'p> Layout<'p> {
    fn of(package: &'p Package<'_>, files: &[&[u8]], report: &Report) -> Self {
        let mut layout = Layout { index: Vec::new(), own: Vec::new() };
        let report = report.to_bytes();
        let pieces: Vec<&Cow<'_, [u8]>> = package.pieces().collect();
        layout.put(&[report.len() as u64]);
        layout.index.extend(report);
        layout.put(&[package.size(), pieces.len() as u64]);
        for piece in pieces {
            let (source, offset) = find(piece, files).unwrap_or((OWN, 0));
            layout.put(&[source, offset, piece.len() as u64]);
            if source == OWN {
                layout.own.push(piece);
            }
        }
        layout
    }

    fn put(&mut self, numbers: &[u64]) {
        self.index.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }

    /// Hands all of it over in order.
    fn write(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut end = HEADER + self.index.len();
        write(&self.index)?;
        for bytes in &self.own {
            let start = end.next_multiple_of(ALIGN);
            write([0; ALIGN].get(..start - end).unwrap_or_default())?;
            write(bytes)?;
            end = start + bytes.len();
        }
        Ok(())
    }
}

/// The file that lent these bytes, and where they are in it.
fn find(bytes: &[u8], files: &[&[u8]]) -> Option<(u64, u64)> {
    let range = bytes.as_ptr_range();
    let holds = |file: &&[u8]| {
        let file = file.as_ptr_range();
        !bytes.is_empty() && file.start <= range.start && range.end <= file.end
    };
    let source = files.iter().position(holds)?;
    let offset = range.start.addr() - files.get(source)?.as_ptr().addr();
    Some((source as u64, offset as u64))
}

/// The program and the report that are in the contents of a cache file. `None` if they are not as this crate writes them.
pub(super) fn parse<'p>(cached: &'p [u8], files: &[&'p [u8]]) -> Option<(Package<'p>, Report)> {
    let mut index = Index { bytes: cached, at: HEADER };
    let len = index.number()?;
    let report = Report::from_bytes(index.take(len)?)?;
    let (size, count) = (index.number()?, index.number()?);
    let mut places = Vec::new();
    for _ in 0..count {
        places.push([index.number()?, index.number()?, index.number()?]);
    }
    let mut pieces = Vec::with_capacity(places.len());
    for [source, offset, len] in places {
        let bytes = if source == OWN {
            index.at = index.at.checked_next_multiple_of(ALIGN)?;
            index.take(len)?
        } else {
            let file = files.get(usize::try_from(source).ok()?)?;
            Index { bytes: file, at: usize::try_from(offset).ok()? }.take(len)?
        };
        pieces.push(Cow::Borrowed(bytes));
    }
    Some((Package::of_pieces(pieces, size)?, report))
}

/// Bytes, read from the front to the end.
struct Index<'p> {
    bytes: &'p [u8],
    at: usize,
}

impl<'p> Index<'p> {
    fn take(&mut self, len: u64) -> Option<&'p [u8]> {
        let end = self.at.checked_add(usize::try_from(len).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::Serial;

    #[test]
    fn checksums_of_streams_are_those_of_files() {
        let file: Vec<u8> = (0..2 * PART + 77).map(|at| (at % 251) as u8).collect();
        for len in [0, 1, PART - 1, PART, PART + 1, file.len()] {
            let file = &file[..len];
            for step in [1 << 12, 999_983, len.max(1)] {
                let mut checksum = Checksum::default();
                file.chunks(step).for_each(|bytes| checksum.write(bytes));
                assert_eq!(Some(checksum.finish()), Checksum::of(file, &Serial), "{len} {step}");
            }
        }
    }
}
