//! Status codes and error messages.

use crate::fault::{self, Fault};
use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};

/// The status of a call: `TORCHLET_OK`, or an error. Values are those of ExecuTorch's `Error`.
pub type torchlet_status = u32;

/// Success.
pub const TORCHLET_OK: torchlet_status = 0x00;
/// A bug in the library, or a failure of a kernel or device.
pub const TORCHLET_INTERNAL: torchlet_status = 0x01;
/// A handle is in the wrong state: never opened, closed, in use, or not loaded yet.
pub const TORCHLET_INVALID_STATE: torchlet_status = 0x02;
/// `torchlet_method_step` reached the end of the method.
pub const TORCHLET_END_OF_METHOD: torchlet_status = 0x03;
/// The program uses an unsupported feature.
pub const TORCHLET_NOT_SUPPORTED: torchlet_status = 0x10;
/// Not implemented.
pub const TORCHLET_NOT_IMPLEMENTED: torchlet_status = 0x11;
/// An argument is invalid: null, misaligned, out of range, or an unknown method.
pub const TORCHLET_INVALID_ARGUMENT: torchlet_status = 0x12;
/// A value has the wrong kind, or a tensor the wrong element type.
pub const TORCHLET_INVALID_TYPE: torchlet_status = 0x13;
/// The registry lacks kernels for operators.
pub const TORCHLET_OPERATOR_MISSING: torchlet_status = 0x14;
/// A registry is full.
pub const TORCHLET_TOO_MANY_KERNELS: torchlet_status = 0x15;
/// A kernel or backend is already registered.
pub const TORCHLET_ALREADY_REGISTERED: torchlet_status = 0x16;
/// A backend or state was not found.
pub const TORCHLET_NOT_FOUND: torchlet_status = 0x20;
/// A buffer is too small.
pub const TORCHLET_MEMORY_ALLOCATION_FAILED: torchlet_status = 0x21;
/// A file or storage cannot be read.
pub const TORCHLET_ACCESS_FAILED: torchlet_status = 0x22;
/// The program is malformed.
pub const TORCHLET_INVALID_PROGRAM: torchlet_status = 0x23;
/// External data is missing or malformed.
pub const TORCHLET_INVALID_EXTERNAL_DATA: torchlet_status = 0x24;
/// The program exceeds the limits.
pub const TORCHLET_OUT_OF_RESOURCES: torchlet_status = 0x25;
/// A backend does not support a delegate, or lacks a resource that it needs.
pub const TORCHLET_DELEGATE_INCOMPATIBLE: torchlet_status = 0x30;
/// A backend has no memory for a delegate.
pub const TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED: torchlet_status = 0x31;
/// A delegate is no longer valid.
pub const TORCHLET_DELEGATE_INVALID_HANDLE: torchlet_status = 0x32;

/// A buffer for an error message: one null-terminated sentence, truncated if it does not fit. It is
/// written only if a call fails.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_error_message {
    /// Address of the buffer.
    pub data: *mut c_char,
    /// Size in bytes, including the null byte. 160 suffice for nearly all messages.
    pub size: usize,
}

/// The name of a status without its prefix; never null.
#[unsafe(no_mangle)]
pub extern "C" fn torchlet_status_name(status: torchlet_status) -> *const c_char {
    name(status).as_ptr()
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn torchlet_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

pub(crate) fn name(status: torchlet_status) -> &'static CStr {
    match status {
        TORCHLET_OK => c"OK",
        TORCHLET_INTERNAL => c"INTERNAL",
        TORCHLET_INVALID_STATE => c"INVALID_STATE",
        TORCHLET_END_OF_METHOD => c"END_OF_METHOD",
        TORCHLET_NOT_SUPPORTED => c"NOT_SUPPORTED",
        TORCHLET_NOT_IMPLEMENTED => c"NOT_IMPLEMENTED",
        TORCHLET_INVALID_ARGUMENT => c"INVALID_ARGUMENT",
        TORCHLET_INVALID_TYPE => c"INVALID_TYPE",
        TORCHLET_OPERATOR_MISSING => c"OPERATOR_MISSING",
        TORCHLET_TOO_MANY_KERNELS => c"TOO_MANY_KERNELS",
        TORCHLET_ALREADY_REGISTERED => c"ALREADY_REGISTERED",
        TORCHLET_NOT_FOUND => c"NOT_FOUND",
        TORCHLET_MEMORY_ALLOCATION_FAILED => c"MEMORY_ALLOCATION_FAILED",
        TORCHLET_ACCESS_FAILED => c"ACCESS_FAILED",
        TORCHLET_INVALID_PROGRAM => c"INVALID_PROGRAM",
        TORCHLET_INVALID_EXTERNAL_DATA => c"INVALID_EXTERNAL_DATA",
        TORCHLET_OUT_OF_RESOURCES => c"OUT_OF_RESOURCES",
        TORCHLET_DELEGATE_INCOMPATIBLE => c"DELEGATE_INCOMPATIBLE",
        TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED => c"DELEGATE_MEMORY_ALLOCATION_FAILED",
        TORCHLET_DELEGATE_INVALID_HANDLE => c"DELEGATE_INVALID_HANDLE",
        _ => c"UNKNOWN",
    }
}

/// Writes text to a buffer of C, truncating it.
struct Cut {
    next: *mut c_char,
    /// Bytes left, excluding the null byte.
    room: usize,
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            if bytes.len() > self.room {
                self.room = 0;
                return Err(fmt::Error);
            }
            for byte in bytes {
                // SAFETY: `room` bytes at `next` belong to the caller's buffer, and at least one is
                // left.
                unsafe {
                    self.next.cast::<u8>().write(*byte);
                    self.next = self.next.add(1);
                }
                self.room -= 1;
            }
        }
        Ok(())
    }
}

impl torchlet_error_message {
    /// Writes an error message.
    ///
    /// # Safety
    /// `text` is null, or points to a text whose buffer is writable.
    pub(crate) unsafe fn set(text: *const torchlet_error_message, fault: &Fault) {
        // SAFETY: guaranteed by the caller.
        let Some(text) = (unsafe { text.as_ref() }) else { return };
        if text.data.is_null() || text.size == 0 {
            return;
        }
        let mut cut = Cut { next: text.data, room: text.size - 1 };
        // An error only means that the message was truncated.
        let _ = fault::describe(fault, &mut cut);
        // SAFETY: one byte was reserved for this.
        unsafe { cut.next.write(0) };
    }
}

/// Runs the body of an interface function; returns its status, and writes the error message.
///
/// # Safety
/// `error` is null, or points to a text whose buffer is writable.
pub(crate) unsafe fn run(
    error: *const torchlet_error_message,
    body: impl FnOnce() -> Result<(), Fault>,
) -> torchlet_status {
    match guarded(body) {
        Ok(()) => TORCHLET_OK,
        Err(fault) => {
            // SAFETY: guaranteed by the caller.
            unsafe { torchlet_error_message::set(error, &fault) };
            fault.code()
        }
    }
}

/// Body of an interface function that reports errors: `body!(error, { … })`. The block contains the
/// unsafe operations of the function; each of these functions is unsafe, and its caller guarantees
/// the rules at the head of `torchlet.h`, on which they rely.
macro_rules! body {
    ($error:ident, $body:expr) => {
        // SAFETY: guaranteed by the caller of the interface function.
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the interface functions are unsafe")]
        unsafe {
            $crate::status::run($error, || $body)
        }
    };
}
pub(crate) use body;

/// Runs a body that can only fail by a panic, or returns `otherwise`.
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Option<T>) -> T {
    let mut result = None;
    let _ = guarded(|| {
        result = body();
        Ok(())
    });
    result.unwrap_or(otherwise)
}

#[cfg(feature = "std")]
fn guarded(body: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    // A panic can leave partially written tensors behind, as errors do; structures of the core
    // library are consistent whenever foreign code runs.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    result.unwrap_or(Err(Fault::Panic))
}

#[cfg(not(feature = "std"))]
fn guarded(body: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    body()
}
