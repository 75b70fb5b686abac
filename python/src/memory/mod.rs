//! The memory of tensors: this package's own, or that of others, lent through DLPack or the buffer
//! protocol.
//!
//! All `unsafe` code of the package is in this module. Whoever lends memory says truly where it is
//! and how long it lasts: only native code can make the objects that say so.
//!
//! Other threads may write to a tensor at any time: NumPy and PyTorch do so without the GIL, and a
//! free-threaded interpreter has none. So this package makes no references to the memory of a
//! tensor, whose contents must not change; it copies bytes in and out by raw pointers. A copy
//! during which foreign code writes is still a data race in Rust's terms. No extension can prevent
//! it; we accept it, as NumPy does, since bytes of every value are valid here: such a copy has old
//! and new bytes.

mod buffer;
mod capsule;
mod dlpack;
mod strided;

pub(crate) use buffer::{export as export_buffer, import as import_buffer, is_buffer, release};
pub(crate) use capsule::{export as export_capsule, import as import_capsule};
pub(crate) use strided::Foreign;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Own memory starts at multiples of this: of a cache line, as vector instructions like it.
const ALIGN: usize = 64;

/// Bytes at an address that does not change, with what keeps them there.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    owner: Owner,
    /// Held during a copy, so that no two threads of this package write and read at once.
    copying: Mutex<()>,
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

// SAFETY: the bytes are at the same place for every thread, and owners can be dropped by any: heap
// memory, DLPack's deleters by their contract, and buffers, which attach to the interpreter for it.
// Bytes are copied with `copying` held.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of others.
    fn lent(start: NonNull<u8>, len: usize, writable: bool, owner: Owner) -> Self {
        Memory { start, len, writable, owner, copying: Mutex::new(()) }
    }

    /// So many bytes of zeros; `None` if there is no memory.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Memory::lent(start, len, true, Owner::Heap(layout)))
    }

    /// A copy of bytes; `None` if there is no memory.
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Arc<Self>> {
        let memory = Memory::zeroed(bytes.len())?;
        // SAFETY: the memory was allocated a moment ago, with this length, and nobody else knows
        // it.
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

    /// Waits until no other thread copies.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the bytes; `false`, and nothing is copied, if the target has another length.
    pub(crate) fn read(&self, target: &mut [u8]) -> bool {
        if target.len() != self.len {
            return false;
        }
        let _copying = self.lock();
        // SAFETY: the owner keeps `len` bytes at `start` alive, and the target has as many. Only
        // own memory is written by this package, with the same `copying` held. `copy_from` allows
        // for a target that overlaps.
        unsafe { NonNull::from(target).cast::<u8>().copy_from(self.start, self.len) };
        true
    }

    /// A copy of all bytes; `None` if there is no memory.
    pub(crate) fn duplicate(&self) -> Option<Arc<Self>> {
        let memory = Memory::zeroed(self.len)?;
        let _copying = self.lock();
        // SAFETY: as in `read`; the target was allocated a moment ago, and nobody else knows it.
        unsafe { memory.start.copy_from_nonoverlapping(self.start, self.len) };
        Some(Arc::new(memory))
    }

    /// Writes the bytes of this package's own memory; `false`, and nothing is written, if it is
    /// another's, or of another length.
    pub(crate) fn write(&self, bytes: &[u8]) -> bool {
        if !matches!(self.owner, Owner::Heap(_)) || bytes.len() != self.len {
            return false;
        }
        let _copying = self.lock();
        // SAFETY: `len` bytes at `start` are ours, and no reference to them exists. No other thread
        // of this package copies, since `copying` is held. `copy_from` allows for an overlap.
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
