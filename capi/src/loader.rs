//! Storage of the caller's.

use crate::fault::Fault;
use core::ffi::c_void;
use torchlet_core::DataLoader;
use torchlet_core::error::ReadError;

/// Copies `size` bytes from `offset` within the file; returns `TORCHLET_OK`, or anything else if it
/// cannot.
pub type torchlet_read_fn = Option<
    unsafe extern "C" fn(context: *mut c_void, offset: u64, into: *mut c_void, size: usize) -> u32,
>;

/// Lends `size` bytes from `offset` within the file where they are in memory anyway, else returns
/// null.
pub type torchlet_lend_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, offset: u64, size: usize) -> *const c_void>;

/// Storage that holds a file. It must stay where it is as long as the file is open; its functions
/// can be called from every thread that uses the program, and what is lent stays as long.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_loader {
    /// What the functions get.
    pub context: *mut c_void,
    /// Bytes of the file.
    pub size: u64,
    /// Reads.
    pub read: torchlet_read_fn,
    /// Lends; may be null. Without it, a buffer for the program is needed, and constants are copied
    /// into the arena.
    pub lend: torchlet_lend_fn,
}

// SAFETY: whoever opens a file with a loader promises that its functions can be called from every
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
        // SAFETY: the function does what it should, by the promise of whoever opened the file; the
        // memory is `into`.
        let status = unsafe { read(self.context, offset, into.as_mut_ptr().cast(), len) };
        if status == 0 { Ok(()) } else { Err(error) }
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let end = offset.checked_add(len as u64)?;
        if end > self.size || len > isize::MAX as usize {
            return None;
        }
        let lend = self.lend?;
        // SAFETY: the function does what it should, by the promise of whoever opened the file.
        let data = unsafe { lend(self.context, offset, len) };
        if data.is_null() {
            return None;
        }
        // SAFETY: by the same promise, `len` bytes are there as long as the file is open, which is
        // for as long as this loader is borrowed.
        Some(unsafe { core::slice::from_raw_parts(data.cast(), len) })
    }
}
