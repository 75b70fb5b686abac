//! Two functions of musl that Android's C library has by other names. The unwinder that Rust ships
//! for musl calls them. Only libraries that are linked without the NDK contain this file.

#![no_std]

unsafe extern "C" {
    fn __errno() -> *mut i32;
    fn abort() -> !;
}

/// Address of this thread's `errno`.
#[unsafe(no_mangle)]
extern "C" fn __errno_location() -> *mut i32 {
    // SAFETY: the function has no preconditions.
    unsafe { __errno() }
}

/// Ends the process: an assertion of the unwinder failed, so no panic can be caught.
#[unsafe(no_mangle)]
extern "C" fn __assert_fail() -> ! {
    // SAFETY: the function has no preconditions.
    unsafe { abort() }
}
