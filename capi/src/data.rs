//! External data: `.ptd` files.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::loader::torchlet_loader;
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use torchlet_core::DataMap;

/// The most files that external data consists of.
pub const TORCHLET_MAX_DATA_FILES: usize = 4;

/// External data, in memory of the caller: opened `.ptd` files, searched in the order in which they
/// were added. It never changes once methods use it, so that many threads can; it must stay where
/// it is as long as they do.
#[repr(C)]
pub struct torchlet_data {
    opaque: u64,
    words: [MaybeUninit<usize>; 44],
}

/// Only grows before methods use it, so that what they borrow stays.
pub(crate) struct Inner(heapless::Vec<DataMap<'static>, TORCHLET_MAX_DATA_FILES>);

handle!(torchlet_data, Inner, "the external data", 3);

impl Inner {
    pub(crate) fn maps(&'static self) -> &'static [DataMap<'static>] {
        &self.0
    }

    fn push(&mut self, map: DataMap<'static>) -> Result<(), Fault> {
        let full = |_| Fault::Argument("external data consists of at most four files");
        self.0.push(map).map_err(full)
    }
}

/// Makes external data without files.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_data_init(
    data: *mut torchlet_data,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe { handle::open(data, Inner(heapless::Vec::new())) }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Adds a `.ptd` file that is in memory.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The bytes must stay, and not change, as long as the data
/// is used. No method uses the data yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_data_add(
    data: *mut torchlet_data,
    bytes: *const c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let inner = handle::get_mut(data)?;
            inner.push(DataMap::from_bytes(pointer::bytes(bytes, size, "bytes")?)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Adds a `.ptd` file in storage. The buffer is for the file's directory, and can be null for
/// storage that lends; if it is too small, the text of the error tells how large it must be.
///
/// # Safety
/// The rules at the head of `torchlet.h`. Loader and buffer are the data's as long as that is used.
/// No method uses the data yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_data_add_loader(
    data: *mut torchlet_data,
    loader: *const torchlet_loader,
    buffer: *mut c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let inner = handle::get_mut(data)?;
            let loader: &'static torchlet_loader = pointer::get(loader, "loader")?;
            loader.check()?;
            let buffer = match buffer.is_null() {
                true => None,
                false => Some(pointer::zeroed(buffer, size, "buffer")?),
            };
            inner.push(DataMap::load(loader, buffer)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}
