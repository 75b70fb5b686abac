//! Storage implemented by the caller.

use crate::fault::Fault;
use core::ffi::c_void;
use torchlet_core::DataLoader;
use torchlet_core::error::ReadError;

/// Copies `size` bytes at `offset` of the file to `into`. Returns `TORCHLET_OK`, or any other
/// status on failure.
pub type torchlet_read_fn = Option<
    unsafe extern "C" fn(context: *mut c_void, offset: u64, into: *mut c_void, size: usize) -> u32,
>;

/// Returns a pointer to `size` bytes at `offset` of the file if they are in addressable memory,
/// else null.
pub type torchlet_lend_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, offset: u64, size: usize) -> *const c_void>;

/// Storage that holds a file. It must not be moved as long as the file is open. Its callbacks can
/// be called from every thread that uses the program; lent memory must stay valid as long.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_loader {
    /// First argument of all callbacks.
    pub context: *mut c_void,
    /// Size of the file in bytes.
    pub size: u64,
    /// Required.
    pub read: torchlet_read_fn,
    /// May be null. Then a buffer for the program is required, and constants are copied into the
    /// arena.
    pub lend: torchlet_lend_fn,
}

// SAFETY: whoever opens a file with a loader guarantees that its callbacks can be called from every
// thread.
unsafe impl Sync for torchlet_loader {}

impl torchlet_loader {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.read.ok_or(Fault::Null("loader->read")).map(|_| ())
    }
}

impl DataLoader for torchlet_loader {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let len = into.len();
        let error = ReadError { offset, len };
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(error);
        }
        let Some(read) = self.read else { return Err(error) };
        // SAFETY: whoever opened the file guaranteed that the callback works as documented; pointer
        // and size are those of `into`.
        let status = unsafe { read(self.context, offset, into.as_mut_ptr().cast(), len) };
        if status == 0 { Ok(()) } else { Err(error) }
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let end = offset.checked_add(len as u64)?;
        if end > self.size || len > isize::MAX as usize {
            return None;
        }
        let lend = self.lend?;
        // SAFETY: whoever opened the file guaranteed that the callback works as documented.
        let data = unsafe { lend(self.context, offset, len) };
        if data.is_null() {
            return None;
        }
        // SAFETY: by the same guarantee, `len` bytes are valid as long as the file is open, which
        // is at least as long as this loader is borrowed.
        Some(unsafe { core::slice::from_raw_parts(data.cast(), len) })
    }
}
