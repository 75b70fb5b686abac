//! Persistent cache files of torchlet, such as compiled programs and GPU pipelines.
//!
//! The contents of a cached file determine what a program computes, or are passed to a driver that
//! trusts them. On Unix, a file is therefore read only if it belongs to the current user or the
//! superuser, and is not writable by its group or others. The folder may be world-writable: a user
//! who can only create, rename or link files there cannot supply contents of their own, since their
//! files fail these checks. On other systems, only the permissions of the folder protect the files.
//!
//! Opening never blocks: if the path is a FIFO, device, socket or directory, opening fails
//! immediately.
//!
//! This crate neither names files nor validates their contents. Start reading at [`open`] and
//! [`replace`]. [`user_cache_folder`] returns the usual folder.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens a cached file for reading.
///
/// # Errors
/// The file cannot be opened, is a symbolic link, or is not a regular file. On Unix: it belongs to
/// another user, or its group or others may write to it.
pub fn open(path: &Path) -> io::Result<File> {
    let file = open_nonblocking(path, FollowLinks::No)?;
    #[cfg(unix)]
    check_owner(&file.metadata()?, rustix::process::geteuid().as_raw())?;
    Ok(file)
}

/// Opens a regular file for reading, regardless of its owner. Follows symbolic links.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_nonblocking(path, FollowLinks::Yes)
}

/// Reads a whole file of at most `most` bytes. Of larger files, and of endless ones such as
/// `/dev/zero`, no more is read.
///
/// # Errors
/// The file cannot be read, or is larger.
pub fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let too_large = || {
        let message = format!("expected at most {most} bytes");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
    };
    if file.metadata()?.len() > most {
        return too_large();
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { too_large() } else { Ok(bytes) }
}

/// Replaces a cached file atomically: readers see either the old file or the new one. Creates
/// missing folders. On Unix, only this user can access the folders and the file.
///
/// # Errors
/// The file cannot be written, or `write` failed. The old file remains.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        create_folders(folder)?;
    }
    let (part, mut file) = create_part(path)?;
    let written = write(&mut file).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        // Best effort: the partial file is useless.
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// Number of names to try: a collision is unlikely.
const ATTEMPTS: usize = 16;

/// Creates a temporary file next to `path` that no other writer uses. Existing files may belong to
/// running processes, so they are left alone: process ids are not unique across containers.
fn create_part(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut taken = io::ErrorKind::AlreadyExists.into();
    for _ in 0..ATTEMPTS {
        let part = path.with_extension(format!("{}.part", random_name()));
        match create_new(&part) {
            Ok(file) => return Ok((part, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

/// Generates a name that differs from those of other writers and processes. `RandomState` has
/// random keys.
fn random_name() -> String {
    static WRITERS: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(WRITERS.fetch_add(1, Ordering::Relaxed));
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}

/// Creates a file that did not exist, without following a symbolic link.
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_folders(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Whether a symbolic link in the last component of a path is followed.
#[derive(Clone, Copy, PartialEq)]
enum FollowLinks {
    Yes,
    No,
}

fn open_nonblocking(path: &Path, links: FollowLinks) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    // Miri does not support these flags.
    #[cfg(all(unix, not(miri)))]
    {
        use rustix::fs::OFlags;
        // Without these flags, opening a FIFO waits for a writer, and opening a terminal can make
        // it the controlling terminal.
        let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        if links == FollowLinks::No {
            flags |= OFlags::NOFOLLOW;
        }
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    }
    #[cfg(any(not(unix), miri))]
    if links == FollowLinks::No && std::fs::symlink_metadata(path)?.is_symlink() {
        return Err(io::Error::other("it is a symbolic link"));
    }
    let file = options.open(path)?;
    // Check the opened file instead of the path, which may refer to another file by now.
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        let message = format!("expected a regular file, found {}", describe(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(file)
}

#[cfg(unix)]
fn describe(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn describe(_: std::fs::FileType) -> &'static str {
    "a special file"
}

/// Write permissions of group and others.
#[cfg(unix)]
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[cfg(unix)]
fn check_owner(metadata: &std::fs::Metadata, user: u32) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let owner = metadata.uid();
    let refuse = |message| Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    // The superuser can change any file anyway.
    if owner != user && owner != 0 {
        return refuse(format!("it belongs to user {owner}, the current user is {user}"));
    }
    let mode = metadata.mode() & 0o777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return refuse(format!("it is writable by its group or others (mode {mode:03o})"));
    }
    Ok(())
}

/// Returns the folder for regenerable data of this user: `torchlet` in `$XDG_CACHE_HOME` or
/// `~/.cache`, `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on Windows. Returns `None` if the
/// environment does not define it.
pub fn user_cache_folder() -> Option<PathBuf> {
    cache_folder(|name| std::env::var_os(name).map(PathBuf::from))
}

fn cache_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let folder = if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        absolute("HOME").map(|home| home.join("Library/Caches"))
    } else {
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    };
    folder.map(|folder| folder.join("torchlet"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A temporary folder, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("torchlet-cache-files-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn contents(path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        open(path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn large_files_are_not_read() {
        let folder = Folder::new("bounded");
        let path = folder.0.join("file");
        std::fs::write(&path, [7; 5]).unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), [7; 5]);
        assert_eq!(read_at_most(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        #[cfg(unix)]
        assert!(read_at_most(Path::new("/dev/zero"), 1 << 10).is_err());
    }

    #[test]
    fn replaced_files_are_read() {
        let folder = Folder::new("replaced");
        let path = folder.0.join("deep/er/file.compiled");
        for text in ["first", "second"] {
            replace(&path, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(contents(&path).unwrap(), text.as_bytes());
        }
        let fail = |_: &mut File| Err(io::Error::other("no room"));
        assert!(replace(&path, fail).is_err());
        assert_eq!(contents(&path).unwrap(), b"second");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn folders_are_rejected() {
        let folder = Folder::new("folders");
        assert!(open(&folder.0).is_err() && open_regular(&folder.0).is_err());
    }

    #[cfg(unix)]
    mod unix {
        use super::*;
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

        #[test]
        fn pipes_sockets_and_devices_are_rejected() {
            let folder = Folder::new("pipes");
            let pipe = folder.0.join("pipe");
            mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            let socket = folder.0.join("socket");
            let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            for path in [&*pipe, &*socket, Path::new("/dev/zero")] {
                assert!(open(path).is_err(), "{}", path.display());
                assert!(open_regular(path).is_err(), "{}", path.display());
            }
            assert!(open_regular(&pipe).unwrap_err().to_string().contains("a pipe"));
        }

        #[test]
        fn links_are_rejected_and_never_written_through() {
            let folder = Folder::new("links");
            let [target, link, around] = ["target", "link", "loop"].map(|it| folder.0.join(it));
            std::fs::write(&target, "precious").unwrap();
            symlink(&target, &link).unwrap();
            symlink(&around, &around).unwrap();
            assert!(open(&link).is_err() && open(&around).is_err());
            assert!(open_regular(&link).is_ok() && open_regular(&around).is_err());
            assert!(create_new(&link).is_err());
            replace(&link, |file| file.write_all(b"new")).unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), b"precious");
            assert_eq!(contents(&link).unwrap(), b"new");
        }

        #[test]
        fn files_writable_by_others_are_rejected() {
            let folder = Folder::new("writable");
            let path = folder.0.join("file");
            replace(&path, |file| file.write_all(b"x")).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            for (mode, is_read) in [(0o644, true), (0o664, false), (0o646, false)] {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
                assert_eq!(open(&path).is_ok(), is_read, "{mode:o}");
            }
        }

        #[test]
        fn files_of_other_users_are_rejected() {
            let folder = Folder::new("owner");
            let path = folder.0.join("file");
            replace(&path, |file| file.write_all(b"x")).unwrap();
            let metadata = std::fs::metadata(&path).unwrap();
            let owner = metadata.uid();
            assert!(check_owner(&metadata, owner).is_ok());
            // Files of the superuser are readable by any user.
            assert_eq!(check_owner(&metadata, owner.wrapping_add(1)).is_ok(), owner == 0);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn cache_folder_follows_platform_conventions() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/a"));
        assert_eq!(cache_folder(home), Some(PathBuf::from("/home/a/.cache/torchlet")));
        let both = |name: &str| match name {
            "XDG_CACHE_HOME" => Some(PathBuf::from("/cache")),
            name => home(name),
        };
        assert_eq!(cache_folder(both), Some(PathBuf::from("/cache/torchlet")));
        assert_eq!(cache_folder(|_| Some(PathBuf::from("relative"))), None);
    }
}
