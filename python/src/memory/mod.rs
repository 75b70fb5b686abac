//! The memory of tensors: this package's own, or that of others, lent through DLPack or the buffer protocol.
//!
//! All `unsafe` code of the package is in this module. What it relies on: whoever lends memory says truly where it is and how
//! long it lasts (only native code can make the objects that say so), and nobody writes to it while this package reads. Python
//! code could do that from another thread, so that memory is read with the interpreter's lock held, and for one copy at a time.

mod buffer;
mod capsule;
mod dlpack;
mod strided;

pub(crate) use buffer::{export as export_buffer, import as import_buffer, is_buffer, release};
pub(crate) use capsule::{export as export_capsule, import as import_capsule};
pub(crate) use strided::Foreign;

use pyo3::prelude::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Own memory starts at multiples of this: of a cache line, as vector instructions like it.
const ALIGN: usize = 64;

/// Bytes at an address that does not change, with what keeps them there.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    owner: Owner,
}

/// What keeps memory alive.
enum Owner {
    /// It was allocated here.
    Heap(Layout),
    /// It came through DLPack.
    Capsule { _keep: capsule::Imported },
    /// It came through the buffer protocol.
    Buffer { _keep: buffer::Imported },
}

// SAFETY: the bytes are at the same place for every thread, and owners can be dropped by any: heap memory, DLPack's deleters by
// their contract, and buffers, which take the interpreter's lock for it. Access is as `with` and `write` say.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// So many bytes of zeros; `None` if there is no memory.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Memory { start, len, writable: true, owner: Owner::Heap(layout) })
    }

    /// A copy of bytes; `None` if there is no memory.
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Arc<Self>> {
        let memory = Memory::zeroed(bytes.len())?;
        // SAFETY: the memory was allocated a moment ago, with this length, and nobody else knows it.
        unsafe { memory.start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Some(Arc::new(memory))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether Python code may write to it.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Where it starts.
    fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Reads the bytes. `read` must not run Python code, and has none to run: it is not given the interpreter.
    pub(crate) fn with<R>(&self, _: Python<'_>, read: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: the owner keeps `len` bytes at `start` alive. The token says that the interpreter's lock is held, so that no Python
        // code writes to them meanwhile.
        read(unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) })
    }

    /// Writes the bytes of this package's own memory; `false`, and nothing is written, if it is another's, or of another length.
    pub(crate) fn write(&self, _: Python<'_>, bytes: &[u8]) -> bool {
        if !matches!(self.owner, Owner::Heap(_)) || bytes.len() != self.len {
            return false;
        }
        // SAFETY: `len` bytes at `start` are ours. References to them exist in `with` alone, with the lock held that is held here,
        // too; `copy` allows for bytes of this very memory.
        unsafe { self.start.copy_from(NonNull::from(bytes).cast(), bytes.len()) };
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Heap(layout) = self.owner {
            // SAFETY: it was allocated with this layout, in `zeroed`, and is given back once.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}
