//! Records events of modules for ExecuTorch's developer tools.

use crate::fault::Fault;
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use core::ffi::c_void;
use std::boxed::Box;
use std::sync::Arc;
use torchlet_devtools::Recorder;
use torchlet_devtools::etdump::{self, DelegateIds};

/// Records events of the modules that are opened with it (`torchlet_module_options`), on all their
/// threads. Modules keep a reference to the recording, so the recorder can be freed before them.
pub struct torchlet_recorder(pub(crate) Arc<Recorder>);

/// Creates a recorder of events, and of up to `value_bytes` bytes of results of operators and
/// delegates. Free it with `torchlet_recorder_free`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_create(
    value_bytes: usize,
    recorder: *mut *mut torchlet_recorder,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let made = match value_bytes {
            0 => Recorder::new(),
            bytes => Recorder::new().with_values(bytes),
        };
        pointer::give(recorder, Box::new(torchlet_recorder(Arc::new(made))))
    })
}

/// Frees a recorder. Null is ignored.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The recorder is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_free(recorder: *mut torchlet_recorder) {
    if !recorder.is_null() {
        // SAFETY: guaranteed by the caller; the pointer came from `Box`.
        value((), || unsafe {
            drop(Box::from_raw(recorder));
            Some(())
        })
    }
}

/// Discards the recording so far.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_clear(recorder: *const torchlet_recorder) {
    value((), || {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { recorder.as_ref()? }.0.take());
        Some(())
    })
}

/// Copies bytes to a buffer of the caller, and stores their number; only the number if `into` is
/// null.
///
/// # Safety
/// Pointers are null, or valid; `into` has `available` bytes.
unsafe fn copy(
    bytes: &[u8],
    into: *mut c_void,
    available: usize,
    size: *mut usize,
) -> Result<(), Fault> {
    // SAFETY: guaranteed by the caller, here and below.
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

/// The recording so far as an ETDump, for ExecuTorch's Inspector: its size, and its bytes if `into`
/// is not null. It may grow between two calls while modules run.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_etdump(
    recorder: *const torchlet_recorder,
    into: *mut c_void,
    available: usize,
    size: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let recorder = recorder.as_ref().ok_or(Fault::Null("the recorder"))?;
        let dump = etdump::write(&recorder.0.recording(), DelegateIds::Names);
        copy(&dump, into, available, size)
    })
}

/// The recorded values so far, as the debug buffer of the ETDump: its size, and its bytes if `into`
/// is not null.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_recorder_values(
    recorder: *const torchlet_recorder,
    into: *mut c_void,
    available: usize,
    size: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let recorder = recorder.as_ref().ok_or(Fault::Null("the recorder"))?;
        copy(&recorder.0.recording().buffer, into, available, size)
    })
}
