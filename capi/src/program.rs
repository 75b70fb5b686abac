//! Programs: files that are opened.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::loader::torchlet_loader;
use crate::meta::torchlet_method_meta;
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text, value};
use crate::values::torchlet_string;
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use torchlet_core::{Program, ProgramError};

/// An opened program, in memory of the caller. It never changes, so that many threads can use it.
/// It must be open as long as methods of it are. What is in it is not for callers.
#[repr(C)]
pub struct torchlet_program {
    opaque: u64,
    words: [MaybeUninit<usize>; 12],
}

handle!(torchlet_program, Program<'static>, "the program", 1);

/// Opens a program that is in memory. Its constants are used where they lie, so that the bytes
/// should start at a multiple of 16; where they are not aligned for their types, they are copied
/// into the arena.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The bytes must stay, and not change, as long as the
/// program is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_open(
    program: *mut torchlet_program,
    data: *const c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = pointer::bytes(data, size, "data")?;
            let opened = Program::from_bytes(bytes)?;
            handle::open(program, opened)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Bytes of the buffer that `torchlet_program_open_loader` takes: 0 for storage that lends.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_buffer_size(
    loader: *const torchlet_loader,
    size: *mut usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { pointer::get(loader, "loader")? };
        loader.check()?;
        let needed = match Program::load(loader) {
            Ok(_) => 0,
            Err(ProgramError::BufferRequired { needed }) => needed,
            Err(error) => return Err(error.into()),
        };
        // SAFETY: the caller's promise.
        unsafe { pointer::put(size, needed, "size") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Opens a program in storage. The buffer takes all of it but the data of tensors and delegates; it
/// starts at a multiple of 16, and can be null for storage that lends.
///
/// # Safety
/// The rules at the head of `torchlet.h`. Loader and buffer are the program's as long as it is
/// open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_open_loader(
    program: *mut torchlet_program,
    loader: *const torchlet_loader,
    buffer: *mut c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let loader: &'static torchlet_loader = pointer::get(loader, "loader")?;
            loader.check()?;
            let opened = match buffer.is_null() {
                true => Program::load(loader)?,
                false => Program::load_into(loader, pointer::zeroed(buffer, size, "buffer")?)?,
            };
            handle::open(program, opened)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Closes a program. It frees nothing; the program's memory is the caller's again. Null, and a
/// program that is not open, are left alone.
///
/// # Safety
/// The rules at the head of `torchlet.h`. No method of the program is open, and no thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_close(program: *mut torchlet_program) {
    // SAFETY: the caller's promise.
    unsafe { handle::close(program) }
}

/// Number of methods; 0 if the file is malformed.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_method_count(program: *const torchlet_program) -> usize {
    value(0, || {
        // SAFETY: the caller's promise.
        let program = unsafe { handle::get(program).ok()? };
        Some(program.method_names().ok()?.count())
    })
}

/// The name of a method, counted from 0. It belongs to the program.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_method_name(
    program: *const torchlet_program,
    index: usize,
    name: *mut torchlet_string,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let program = unsafe { handle::get(program)? };
        let mut names = program.method_names()?;
        let found = names.nth(index);
        let count = program.method_names()?.count();
        let found = found.ok_or(Fault::Index { what: "method", index, count })?;
        // SAFETY: the caller's promise.
        unsafe { pointer::put(name, torchlet_string::of(found?), "name") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// What a method takes, gives and needs. The description is valid as long as the program is open.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_method_meta(
    program: *const torchlet_program,
    method: *const c_char,
    meta: *mut torchlet_method_meta,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let program = handle::get(program)?;
            let found = program.method_meta(pointer::text(method, "method")?)?;
            handle::open(meta, found)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}
