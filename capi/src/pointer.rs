//! Conversion of C pointers to references, with all checks that are possible.
//!
//! The rest is guaranteed by the caller, as the header's first comment requires: memory is valid,
//! as large as stated, and not accessed concurrently in conflicting ways.

use crate::fault::Fault;
use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;

fn check<T>(data: *const T, what: &'static str) -> Result<(), Fault> {
    if data.is_null() {
        return Err(Fault::Null(what));
    }
    if !data.is_aligned() {
        return Err(Fault::Misaligned(what));
    }
    Ok(())
}

/// A value to read.
///
/// # Safety
/// `value` is null, or points to a value that outlives the result and is not written meanwhile.
pub(crate) unsafe fn get<'a, T>(value: *const T, what: &'static str) -> Result<&'a T, Fault> {
    check(value, what)?;
    // SAFETY: guaranteed by the caller; null and misaligned pointers were refused.
    Ok(unsafe { &*value })
}

/// A value to read; `None` for a null pointer.
///
/// # Safety
/// As [`get`].
pub(crate) unsafe fn optional<'a, T>(
    value: *const T,
    what: &'static str,
) -> Result<Option<&'a T>, Fault> {
    if value.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { get(value, what) }.map(Some)
}

/// Writes a result.
///
/// # Safety
/// `target` is null, or points to memory for a `T`.
pub(crate) unsafe fn put<T>(target: *mut T, value: T, what: &'static str) -> Result<(), Fault> {
    check(target, what)?;
    // SAFETY: guaranteed by the caller; null and misaligned pointers were refused.
    unsafe { target.write(value) };
    Ok(())
}

/// Transfers an object to C, which returns it to be freed.
///
/// # Safety
/// `target` is null, or points to memory for a pointer.
#[cfg(feature = "std")]
pub(crate) unsafe fn give<T>(target: *mut *mut T, object: std::boxed::Box<T>) -> Result<(), Fault> {
    // SAFETY: guaranteed by the caller; the object came from `Box`, and is freed as such.
    unsafe {
        put(target, core::ptr::null_mut(), "the result pointer")?;
        target.write(std::boxed::Box::into_raw(object));
    }
    Ok(())
}

/// Items to read; a count of zero permits any pointer.
///
/// # Safety
/// `data` points to `count` items, which outlive the result and are not written meanwhile.
pub(crate) unsafe fn items<'a, T>(
    data: *const T,
    count: usize,
    what: &'static str,
) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    check(data, what)?;
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Fault::Huge(what));
    }
    // SAFETY: guaranteed by the caller; null, misaligned and oversized ranges were refused.
    Ok(unsafe { core::slice::from_raw_parts(data, count) })
}

/// Items to write; a count of zero permits any pointer.
///
/// # Safety
/// `data` points to memory for `count` items, which outlives the result and is not accessed
/// otherwise meanwhile.
pub(crate) unsafe fn items_mut<'a, T>(
    data: *mut T,
    count: usize,
    what: &'static str,
) -> Result<&'a mut [T], Fault> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(data, what)?;
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Fault::Huge(what));
    }
    // SAFETY: guaranteed by the caller; null, misaligned and oversized ranges were refused.
    Ok(unsafe { core::slice::from_raw_parts_mut(data, count) })
}

/// Bytes to read.
///
/// # Safety
/// As [`items`].
pub(crate) unsafe fn bytes<'a>(
    data: *const c_void,
    size: usize,
    what: &'static str,
) -> Result<&'a [u8], Fault> {
    // SAFETY: guaranteed by the caller.
    unsafe { items(data.cast(), size, what) }
}

/// Bytes to write, which may be uninitialized.
///
/// # Safety
/// As [`items_mut`].
pub(crate) unsafe fn memory<'a>(
    data: *mut c_void,
    size: usize,
    what: &'static str,
) -> Result<&'a mut [MaybeUninit<u8>], Fault> {
    // SAFETY: guaranteed by the caller.
    unsafe { items_mut(data.cast(), size, what) }
}

/// Bytes to write, zeroed first because memory of C may be uninitialized.
///
/// # Safety
/// As [`items_mut`].
pub(crate) unsafe fn zeroed<'a>(
    data: *mut c_void,
    size: usize,
    what: &'static str,
) -> Result<&'a mut [u8], Fault> {
    // SAFETY: guaranteed by the caller.
    let memory = unsafe { memory(data, size, what)? };
    memory.fill(MaybeUninit::new(0));
    // SAFETY: every byte was initialized above, and `memory` is the only reference.
    Ok(unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len()) })
}

/// A null-terminated string.
///
/// # Safety
/// `text` is null, or points to such a string, which outlives the result and is not written
/// meanwhile.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &'static str) -> Result<&'a str, Fault> {
    check(text, what)?;
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Fault::Utf8(what))
}
