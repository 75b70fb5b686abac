//! Memory of tensors: own memory, or memory that other libraries lend through DLPack or the buffer
//! protocol.
//!
//! All `unsafe` code of the package is in this module. It trusts lenders about address and lifetime
//! of their memory: only native code can create such objects.
//!
//! Other threads may write to a tensor at any time: NumPy and PyTorch do so without the GIL, and a
//! free-threaded interpreter has none. Rust references would require unchanging contents, so this
//! package creates none to a tensor's memory, and copies bytes through raw pointers. A copy that is
//! concurrent with a foreign write is still a data race in Rust's terms. No extension can prevent
//! it; like NumPy, we accept it, because bytes of any value are valid here: such a copy contains
//! old and new bytes.

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

/// Alignment of own memory: a cache line, for vector instructions.
const ALIGN: usize = 64;

/// Bytes at a fixed address, with their owner.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    owner: Owner,
    /// Held during a copy, so that threads of this package do not write and read concurrently.
    copying: Mutex<()>,
}

/// Keeps memory alive.
enum Owner {
    /// Allocated here.
    Heap(Layout),
    /// Imported through DLPack.
    Capsule { _keep: capsule::Imported },
    /// Imported through the buffer protocol.
    Buffer { _keep: buffer::Imported },
}

// SAFETY: the address is valid in every thread, and any thread can drop the owners: heap memory,
// DLPack's deleters by contract, and buffers, which attach to the interpreter for it. Bytes are
// copied with `copying` held.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory of another owner.
    fn lent(start: NonNull<u8>, len: usize, writable: bool, owner: Owner) -> Self {
        Memory { start, len, writable, owner, copying: Mutex::new(()) }
    }

    /// Allocates zeroed memory; `None` if that fails.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Memory::lent(start, len, true, Owner::Heap(layout)))
    }

    /// Copies bytes; `None` if the allocation fails.
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Arc<Self>> {
        let memory = Memory::zeroed(bytes.len())?;
        // SAFETY: the memory was just allocated with this length, and is not shared yet.
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

    /// The start address.
    fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Waits until no other thread copies.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the bytes to `target`; returns `false`, and copies nothing, if the length differs.
    pub(crate) fn read(&self, target: &mut [u8]) -> bool {
        if target.len() != self.len {
            return false;
        }
        let _copying = self.lock();
        // SAFETY: the owner keeps `len` bytes at `start` alive, and the target has the same length.
        // This package writes only to own memory, with the same `copying` held. `copy_from` permits
        // overlap.
        unsafe { NonNull::from(target).cast::<u8>().copy_from(self.start, self.len) };
        true
    }

    /// Duplicates the memory; `None` if the allocation fails.
    pub(crate) fn duplicate(&self) -> Option<Arc<Self>> {
        let memory = Memory::zeroed(self.len)?;
        let _copying = self.lock();
        // SAFETY: as in `read`; the target was just allocated, and is not shared yet.
        unsafe { memory.start.copy_from_nonoverlapping(self.start, self.len) };
        Some(Arc::new(memory))
    }

    /// Writes the bytes of own memory; returns `false`, and writes nothing, if another owner has it
    /// or the length differs.
    pub(crate) fn write(&self, bytes: &[u8]) -> bool {
        if !matches!(self.owner, Owner::Heap(_)) || bytes.len() != self.len {
            return false;
        }
        let _copying = self.lock();
        // SAFETY: `len` bytes at `start` are ours, and no reference to them exists. `copying` is
        // held, so no other thread of this package copies. `copy_from` permits overlap.
        unsafe { self.start.copy_from(NonNull::from(bytes).cast(), bytes.len()) };
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Heap(layout) = self.owner {
            // SAFETY: it was allocated with this layout in `zeroed`, and is freed once.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}
