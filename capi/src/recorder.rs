//! What happened while modules loaded and ran, as ExecuTorch's tools read it.

use crate::fault::Fault;
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text, value};
use core::ffi::c_void;
use std::boxed::Box;
use std::sync::Arc;
use torchlet_devtools::Recorder;
use torchlet_devtools::etdump::{self, DelegateIds};

/// Records events of the modules that are opened with it (`torchlet_module_options`), on all their
/// threads. Modules keep what they record into: it can be freed before them.
pub struct torchlet_recorder(pub(crate) Arc<Recorder>);

/// Makes a recorder of events, and of up to `value_bytes` of what operators and delegates give. It
/// is freed with `torchlet_recorder_free`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_create(
    value_bytes: usize,
    recorder: *mut *mut torchlet_recorder,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        let made = match value_bytes {
            0 => Recorder::new(),
            bytes => Recorder::new().with_values(bytes),
        };
        // SAFETY: the caller's promise.
        unsafe { pointer::give(recorder, Box::new(torchlet_recorder(Arc::new(made)))) }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Frees a recorder. Null is left alone.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The recorder is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_free(recorder: *mut torchlet_recorder) {
    if !recorder.is_null() {
        // SAFETY: the caller's promise; it was made by `Box`.
        value((), || unsafe {
            drop(Box::from_raw(recorder));
            Some(())
        })
    }
}

/// Forgets what was recorded so far.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_clear(recorder: *const torchlet_recorder) {
    value((), || {
        // SAFETY: the caller's promise.
        drop(unsafe { recorder.as_ref()? }.0.take());
        Some(())
    })
}

/// Writes bytes into memory of the caller, and how many there are; only that, if the memory is
/// null.
///
/// # Safety
/// Pointers that are not null point to memory of the caller, as large as said.
unsafe fn copy(
    bytes: &[u8],
    into: *mut c_void,
    available: usize,
    size: *mut usize,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise, here and below.
    unsafe { pointer::put(size, bytes.len(), "size")? };
    if into.is_null() {
        return Ok(());
    }
    if available < bytes.len() {
        return Err(Fault::TooSmall { what: "into", needed: bytes.len(), available });
    }
    // SAFETY: as above.
    unsafe { pointer::zeroed(into, bytes.len(), "into")? }.copy_from_slice(bytes);
    Ok(())
}

/// What was recorded so far, as an ETDump, which ExecuTorch's Inspector reads: its size, and where
/// `into` is not null, its bytes. Between two calls, it grows if the modules run.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_etdump(
    recorder: *const torchlet_recorder,
    into: *mut c_void,
    available: usize,
    size: *mut usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let recorder = recorder.as_ref().ok_or(Fault::Null("the recorder"))?;
            let dump = etdump::write(&recorder.0.recording(), DelegateIds::Names);
            copy(&dump, into, available, size)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// The values that were recorded so far, as the debug buffer that belongs to the ETDump: its size,
/// and where `into` is not null, its bytes.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_values(
    recorder: *const torchlet_recorder,
    into: *mut c_void,
    available: usize,
    size: *mut usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let recorder = recorder.as_ref().ok_or(Fault::Null("the recorder"))?;
            copy(&recorder.0.recording().buffer, into, available, size)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}
