//! What functions return, and the texts of errors.

use crate::fault::{self, Fault};
use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};

/// How a call ended: `TORCHLET_OK`, or an error. The numbers are those of ExecuTorch's `Error`.
pub type torchlet_status = u32;

/// It succeeded.
pub const TORCHLET_OK: torchlet_status = 0x00;
/// A fault of the library, of a kernel, or of a device.
pub const TORCHLET_INTERNAL: torchlet_status = 0x01;
/// A handle is not in the state that the call needs: it was not opened, was closed, or has no
/// memory yet.
pub const TORCHLET_INVALID_STATE: torchlet_status = 0x02;
/// `torchlet_method_step` found the method at its end.
pub const TORCHLET_END_OF_METHOD: torchlet_status = 0x03;
/// The program asks for something that is not supported.
pub const TORCHLET_NOT_SUPPORTED: torchlet_status = 0x10;
/// It is not implemented.
pub const TORCHLET_NOT_IMPLEMENTED: torchlet_status = 0x11;
/// An argument of the call is wrong: null, misaligned, out of range, no such method.
pub const TORCHLET_INVALID_ARGUMENT: torchlet_status = 0x12;
/// A value is of another kind, or a tensor of another element type.
pub const TORCHLET_INVALID_TYPE: torchlet_status = 0x13;
/// Operators have no kernel in the registry.
pub const TORCHLET_OPERATOR_MISSING: torchlet_status = 0x14;
/// A registry is full.
pub const TORCHLET_TOO_MANY_KERNELS: torchlet_status = 0x15;
/// A kernel or backend is registered already.
pub const TORCHLET_ALREADY_REGISTERED: torchlet_status = 0x16;
/// A backend or state is not there.
pub const TORCHLET_NOT_FOUND: torchlet_status = 0x20;
/// A memory is too small.
pub const TORCHLET_MEMORY_ALLOCATION_FAILED: torchlet_status = 0x21;
/// A file, or storage, cannot be read.
pub const TORCHLET_ACCESS_FAILED: torchlet_status = 0x22;
/// The program is malformed.
pub const TORCHLET_INVALID_PROGRAM: torchlet_status = 0x23;
/// External data is missing or malformed.
pub const TORCHLET_INVALID_EXTERNAL_DATA: torchlet_status = 0x24;
/// The program asks for more than the limits allow.
pub const TORCHLET_OUT_OF_RESOURCES: torchlet_status = 0x25;
/// A backend does not understand a delegate, or lacks something that it needs.
pub const TORCHLET_DELEGATE_INCOMPATIBLE: torchlet_status = 0x30;
/// A backend has no memory for a delegate.
pub const TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED: torchlet_status = 0x31;
/// A delegate is not valid any more.
pub const TORCHLET_DELEGATE_INVALID_HANDLE: torchlet_status = 0x32;

/// Memory of the caller for the text of an error: one sentence, with a null byte behind it, cut
/// where it does not fit. It is written when a call fails, and left alone else.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_text {
    /// Where to write.
    pub data: *mut c_char,
    /// Bytes that fit there, the null byte included. 160 are enough for nearly all texts.
    pub size: usize,
}

/// The name of a code, without its prefix: never null.
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

/// Writes text into memory of C, up to what fits.
struct Cut {
    next: *mut c_char,
    /// Bytes that fit, without the null byte.
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
                // SAFETY: `room` bytes at `next` belong to the text that the caller lent, and there
                // is at least one.
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

impl torchlet_text {
    /// Writes the text of an error.
    ///
    /// # Safety
    /// `text` is null or points to a text whose memory can be written.
    pub(crate) unsafe fn set(text: *const torchlet_text, fault: &Fault) {
        // SAFETY: the caller's promise.
        let Some(text) = (unsafe { text.as_ref() }) else { return };
        if text.data.is_null() || text.size == 0 {
            return;
        }
        let mut cut = Cut { next: text.data, room: text.size - 1 };
        // An error only says that the text was cut.
        let _ = fault::describe(fault, &mut cut);
        // SAFETY: one byte was kept for this.
        unsafe { cut.next.write(0) };
    }
}

/// Runs the body of a function of the interface: its result as a code, and its text if there is
/// one.
///
/// # Safety
/// `error` is null or points to a text whose memory can be written.
pub(crate) unsafe fn run(
    error: *const torchlet_text,
    body: impl FnOnce() -> Result<(), Fault>,
) -> torchlet_status {
    match guarded(body) {
        Ok(()) => TORCHLET_OK,
        Err(fault) => {
            // SAFETY: the caller's promise.
            unsafe { torchlet_text::set(error, &fault) };
            fault.code()
        }
    }
}

/// Runs a body that cannot fail but by a panic; gives `otherwise` then.
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
    // What a panic leaves half-done are tensors, as an error does; core's structures are consistent
    // at every call of code of others.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    result.unwrap_or(Err(Fault::Panic))
}

#[cfg(not(feature = "std"))]
fn guarded(body: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    body()
}
