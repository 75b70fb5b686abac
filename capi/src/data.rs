//! External data (`.ptd` files).

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::loader::torchlet_loader;
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use torchlet_core::DataMap;

/// Maximum number of files in external data.
pub const TORCHLET_MAX_DATA_FILES: usize = 4;

/// External data, in memory of the caller: opened `.ptd` files, searched in the order in which they
/// were added. It is immutable once methods use it, so many threads can use it at once; it must not
/// be moved as long as they do.
#[repr(C)]
pub struct torchlet_data {
    opaque: u64,
    words: [MaybeUninit<usize>; 44],
}

/// Grows only before methods use it, so that their borrows stay valid.
pub(crate) struct Inner(heapless::Vec<DataMap<'static>, TORCHLET_MAX_DATA_FILES>);

handle!(torchlet_data, Inner, "the external data", 3);

impl Inner {
    pub(crate) fn maps(&'static self) -> &'static [DataMap<'static>] {
        &self.0
    }

    fn push(&mut self, map: DataMap<'static>) -> Result<(), Fault> {
        let full = |_| Fault::Argument("external data can have at most 4 files");
        self.0.push(map).map_err(full)
    }
}

/// Initializes external data without files.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_data_init(
    data: *mut torchlet_data,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, { handle::open(data, Inner(heapless::Vec::new())) })
}

/// Adds a `.ptd` file in memory.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The bytes must stay valid and unchanged as long as the
/// data is used. No method may use the data yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_data_add(
    data: *mut torchlet_data,
    bytes: *const c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let inner = handle::get_mut(data)?;
        inner.push(DataMap::from_bytes(pointer::bytes(bytes, size, "bytes")?)?)
    })
}

/// Adds a `.ptd` file in storage. The buffer holds the file's directory, and can be null if the
/// loader lends memory; if it is too small, the error message contains the required size.
///
/// # Safety
/// The rules at the head of `torchlet.h`. Loader and buffer must stay valid as long as the data is
/// used. No method may use the data yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_data_add_loader(
    data: *mut torchlet_data,
    loader: *const torchlet_loader,
    buffer: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let inner = handle::get_mut(data)?;
        let loader: &'static torchlet_loader = pointer::get(loader, "loader")?;
        loader.check()?;
        let buffer = match buffer.is_null() {
            true => None,
            false => Some(pointer::zeroed(buffer, size, "buffer")?),
        };
        inner.push(DataMap::load(loader, buffer)?)
    })
}
