//! Cache of compiled programs.
//!
//! The key of an entry is a BLAKE3 hash of all inputs of the compilation: the program and its
//! external data, the target, the registered kernels, and torchlet's version. The hash must be
//! cryptographic: with two programs of one key, the author of the first could decide what the
//! second computes.
//!
//! An entry contains new data, such as packed weights, and refers to data in the program's own
//! files by offset and length. Its header contains the key, so that a renamed entry is rejected; an
//! identifier of the application build that wrote it; and the length and checksum of the rest. The
//! checksum only detects damage. An entry with any error counts as missing. `torchlet-cache`
//! decides which files may be read, and replaces files atomically.

use crate::files::{FileAccess, FileBytes};
use crate::threads::{PART, map_parts};
use std::borrow::Cow;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;
use torchlet_core::{DataLoader, Parallel, Registry};
use torchlet_graph::{Package, Report};
use twox_hash::XxHash3_128;

const MAGIC: &[u8; 8] = b"TORCHLCC";
/// Header size: magic, key, build identifier, length of the contents, checksum of the contents.
const HEADER: usize = 8 + blake3::OUT_LEN + 16 + 8 + 16;
/// Alignment of data in the file.
const ALIGN: usize = 64;
/// Source index of pieces stored in the cache file itself.
const OWN: u64 = u64::MAX;

/// Cache entry of a compiled program.
pub(super) struct CacheFile {
    path: PathBuf,
    key: blake3::Hash,
}

/// Contents of a cache file to be written.
struct Layout<'p> {
    /// The report, and the location of each piece.
    index: Vec<u8>,
    /// Pieces that are not in the program's files.
    own: Vec<&'p [u8]>,
}

impl CacheFile {
    /// Entry of a program compiled from `files` for a target. `None` if a thread failed to hash its
    /// part.
    pub(super) fn new(
        folder: &Path,
        files: &[&[u8]],
        target: &str,
        registry: &Registry<'_>,
        parallel: &dyn Parallel,
    ) -> Option<Self> {
        let backends = registry.backends().map(|backend| backend.name());
        let names = registry.kernels().map(|kernel| kernel.name).chain(backends);
        let texts = [env!("CARGO_PKG_VERSION"), target].into_iter().chain(names);
        let key = key(&texts.collect::<Vec<_>>(), files, parallel)?;
        Some(CacheFile { path: folder.join(format!("{}.compiled", key.to_hex())), key })
    }

    /// Reads and validates the entry. `None` if it is missing or invalid.
    pub(super) fn read(
        &self,
        access: FileAccess,
        limit: u64,
        parallel: &dyn Parallel,
    ) -> Option<FileBytes> {
        let file = torchlet_cache::open(&self.path).ok()?;
        let file = FileBytes::of(file, &self.path, access, limit, parallel).ok()?;
        let (header, contents) = file.bytes().split_at_checked(HEADER)?;
        let expected = self.header(contents.len() as u64, Checksum::of(contents, parallel)?);
        (header == expected).then_some(file)
    }

    /// Replaces the entry.
    pub(super) fn write(
        &self,
        package: &Package<'_>,
        files: &[&[u8]],
        report: &Report,
    ) -> io::Result<()> {
        let layout = Layout::of(package, files, report);
        torchlet_cache::replace(&self.path, |file| {
            let mut file = BufWriter::new(file);
            let (mut len, mut checksum) = (0, Checksum::default());
            file.write_all(&[0; HEADER])?;
            layout.write(|bytes| {
                len += bytes.len() as u64;
                checksum.write(bytes);
                file.write_all(bytes)
            })?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&self.header(len, checksum.finish()))?;
            file.flush()
        })
    }

    fn header(&self, len: u64, checksum: u128) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let [build, checksum] = [build(), checksum].map(u128::to_le_bytes);
        let parts: [&[u8]; 5] = [MAGIC, self.key.as_bytes(), &build, &len.to_le_bytes(), &checksum];
        let bytes = parts.into_iter().flatten();
        header.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = *byte);
        header
    }
}

/// Cache key of a program compiled from `files` in an environment described by `texts`.
///
/// Every text and file is prefixed with its length, so that different inputs have equal keys only
/// under a BLAKE3 collision. Files are hashed in parts; the file length implies the number of
/// parts. `None` if a thread failed to hash its part.
fn key(texts: &[&str], files: &[&[u8]], parallel: &dyn Parallel) -> Option<blake3::Hash> {
    let mut hash = blake3::Hasher::new();
    let number = |hash: &mut blake3::Hasher, number: usize| {
        hash.update(&(number as u64).to_le_bytes());
    };
    number(&mut hash, texts.len());
    for text in texts {
        number(&mut hash, text.len());
        hash.update(text.as_bytes());
    }
    for file in files {
        number(&mut hash, file.len());
        for part in map_parts(parallel, file, &blake3::hash)? {
            hash.update(part.as_bytes());
        }
    }
    Some(hash.finalize())
}

/// Checksum of a file: a hash of the hashes of its parts, so that threads can share the work.
#[derive(Default)]
struct Checksum {
    parts: XxHash3_128,
    /// Hash of the incomplete part, and the number of its bytes so far.
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

/// Identifies the build: modification time and size of the executable. During development the
/// compiler changes without a new version.
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

    /// Writes all contents in order.
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

/// The file that `bytes` borrow from, and their offset in it.
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

/// Parses the contents of a cache file. `None` if they are malformed.
pub(super) fn parse<'p>(cached: &'p [u8], files: &[&'p [u8]]) -> Option<(Package<'p>, Report)> {
    let mut index = Index { bytes: cached, at: HEADER };
    let len = index.number()?;
    let report = Report::from_bytes(index.take(len)?)?;
    let (size, count) = (index.number()?, index.number()?);
    let mut locations = Vec::new();
    for _ in 0..count {
        locations.push([index.number()?, index.number()?, index.number()?]);
    }
    let mut pieces = Vec::with_capacity(locations.len());
    for [source, offset, len] in locations {
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

/// Reader over bytes.
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

    /// Two files with equal XXH3 hashes. If the high half of a word equals that of the secret, the
    /// word contributes only itself to the sum; two such words can then exchange a value.
    fn colliding_files() -> [Vec<u8>; 2] {
        [[1, 0], [0, 1]].map(|[first, second]| {
            let mut file = vec![0; 1024];
            file[..8].copy_from_slice(&[first, 0, 0, 0, 0x23, 0xa4, 0x4b, 0xbe]);
            file[64..72].copy_from_slice(&[second, 0, 0, 0, 0xf7, 0x21, 0xad, 0x1c]);
            file
        })
    }

    #[test]
    fn xxh3_collisions_have_different_keys() {
        let [a, b] = colliding_files();
        assert_ne!(a, b);
        assert_eq!(Checksum::of(&a, &Serial), Checksum::of(&b, &Serial));
        assert_ne!(key(&[], &[&a], &Serial), key(&[], &[&b], &Serial));
    }

    #[test]
    fn keys_are_unique() {
        let long = vec![0; PART + 1];
        let keys = [
            key(&[], &[], &Serial),
            key(&[""], &[], &Serial),
            key(&["", ""], &[], &Serial),
            key(&["ab", "c"], &[], &Serial),
            key(&["a", "bc"], &[], &Serial),
            key(&["a"], &[b"bc"], &Serial),
            key(&[], &[b"ab", b"c"], &Serial),
            key(&[], &[b"a", b"bc"], &Serial),
            key(&[], &[b"abc"], &Serial),
            key(&[], &[&long], &Serial),
            key(&[], &[&long[..PART], &long[PART..]], &Serial),
            key(&[], &[&long[PART..], &long[..PART]], &Serial),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(
                one.is_some() && keys.iter().skip(index + 1).all(|other| other != one),
                "{index}"
            );
        }
    }

    #[test]
    fn streamed_checksum_equals_file_checksum() {
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
