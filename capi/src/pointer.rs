//! Pointers of C as references, with the checks that can be made.
//!
//! What cannot be checked is the promise that the header's first comment asks for: memory is there,
//! is as large as said, and is not touched by anybody else in the wrong moment.

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

/// A value to be read.
///
/// # Safety
/// A pointer that is not null points to a value that outlives the result and is not written
/// meanwhile.
pub(crate) unsafe fn get<'a, T>(value: *const T, what: &'static str) -> Result<&'a T, Fault> {
    check(value, what)?;
    // SAFETY: the caller's promise; null and misaligned pointers were refused.
    Ok(unsafe { &*value })
}

/// A value to be read, if the pointer is not null.
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
    // SAFETY: the caller's promise.
    unsafe { get(value, what) }.map(Some)
}

/// Writes a result.
///
/// # Safety
/// A pointer that is not null points to memory for a `T`.
pub(crate) unsafe fn put<T>(target: *mut T, value: T, what: &'static str) -> Result<(), Fault> {
    check(target, what)?;
    // SAFETY: the caller's promise; null and misaligned pointers were refused.
    unsafe { target.write(value) };
    Ok(())
}

/// Hands an object to C, which gives it back to be freed.
///
/// # Safety
/// A pointer that is not null points to memory for a pointer.
#[cfg(feature = "std")]
pub(crate) unsafe fn give<T>(target: *mut *mut T, object: std::boxed::Box<T>) -> Result<(), Fault> {
    // SAFETY: the caller's promise; the object is made by `Box`, and freed as such.
    unsafe {
        put(target, core::ptr::null_mut(), "the place for the result")?;
        target.write(std::boxed::Box::into_raw(object));
    }
    Ok(())
}

/// Items to be read; none if there are none, whatever the pointer.
///
/// # Safety
/// The pointer points to as many items, which outlive the result and are not written meanwhile.
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
    // SAFETY: the caller's promise; null, misaligned and oversized ranges were refused.
    Ok(unsafe { core::slice::from_raw_parts(data, count) })
}

/// Items to be written; none if there are none, whatever the pointer.
///
/// # Safety
/// The pointer points to as many items, which outlive the result and which nobody else touches
/// meanwhile.
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
    // SAFETY: the caller's promise; null, misaligned and oversized ranges were refused.
    Ok(unsafe { core::slice::from_raw_parts_mut(data, count) })
}

/// Bytes to be read.
///
/// # Safety
/// As [`items`].
pub(crate) unsafe fn bytes<'a>(
    data: *const c_void,
    size: usize,
    what: &'static str,
) -> Result<&'a [u8], Fault> {
    // SAFETY: the caller's promise.
    unsafe { items(data.cast(), size, what) }
}

/// Bytes to be written, with values or without.
///
/// # Safety
/// As [`items_mut`].
pub(crate) unsafe fn memory<'a>(
    data: *mut c_void,
    size: usize,
    what: &'static str,
) -> Result<&'a mut [MaybeUninit<u8>], Fault> {
    // SAFETY: the caller's promise.
    unsafe { items_mut(data.cast(), size, what) }
}

/// Bytes to be written, zeroed: memory of C need not have had values.
///
/// # Safety
/// As [`items_mut`].
pub(crate) unsafe fn zeroed<'a>(
    data: *mut c_void,
    size: usize,
    what: &'static str,
) -> Result<&'a mut [u8], Fault> {
    // SAFETY: the caller's promise.
    let memory = unsafe { memory(data, size, what)? };
    memory.fill(MaybeUninit::new(0));
    // SAFETY: every byte was given a value just now, and `memory` is the only reference.
    Ok(unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len()) })
}

/// Text with a null byte behind it.
///
/// # Safety
/// A pointer that is not null points to such text, which outlives the result and is not written
/// meanwhile.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &'static str) -> Result<&'a str, Fault> {
    check(text, what)?;
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Fault::Utf8(what))
}
