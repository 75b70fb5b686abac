//! Programs: opened files.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::loader::torchlet_loader;
use crate::meta::torchlet_method_meta;
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use crate::values::torchlet_string;
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use torchlet_core::{Program, ProgramError};

/// An opened program, in memory of the caller. It is immutable, so many threads can use it at once.
/// It must stay open as long as methods of it are. Its members are private.
#[repr(C)]
pub struct torchlet_program {
    opaque: u64,
    words: [MaybeUninit<usize>; 12],
}

handle!(torchlet_program, Program<'static>, "the program", 1);

/// Opens a program in memory. Its constants are used in place if they are aligned for their types,
/// so the bytes should be aligned to 16 bytes; other constants are copied into the arena.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The bytes must stay valid and unchanged as long as the
/// program is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_open(
    program: *mut torchlet_program,
    data: *const c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let bytes = pointer::bytes(data, size, "data")?;
        let opened = Program::from_bytes(bytes)?;
        handle::open(program, opened)
    })
}

/// Size in bytes of the buffer for `torchlet_program_open_loader`; 0 if the loader lends memory.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_buffer_size(
    loader: *const torchlet_loader,
    size: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let loader = pointer::get(loader, "loader")?;
        loader.check()?;
        let needed = match Program::load(loader) {
            Ok(_) => 0,
            Err(ProgramError::BufferRequired { needed }) => needed,
            Err(error) => return Err(error.into()),
        };
        pointer::put(size, needed, "size")
    })
}

/// Opens a program in storage. The buffer receives everything but the data of tensors and
/// delegates; it is aligned to 16 bytes, and can be null if the loader lends memory.
///
/// # Safety
/// The rules at the head of `torchlet.h`. Loader and buffer must stay valid as long as the program
/// is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_open_loader(
    program: *mut torchlet_program,
    loader: *const torchlet_loader,
    buffer: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let loader: &'static torchlet_loader = pointer::get(loader, "loader")?;
        loader.check()?;
        let opened = match buffer.is_null() {
            true => Program::load(loader)?,
            false => Program::load_into(loader, pointer::zeroed(buffer, size, "buffer")?)?,
        };
        handle::open(program, opened)
    })
}

/// Closes a program. Nothing is freed; the program's memory belongs to the caller again. Does
/// nothing for null, and for a program that is not open.
///
/// # Safety
/// The rules at the head of `torchlet.h`. No method of the program is open, and no thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_close(program: *mut torchlet_program) {
    // SAFETY: guaranteed by the caller.
    unsafe { handle::close(program) }
}

/// Number of methods; 0 if the file is malformed.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_method_count(program: *const torchlet_program) -> usize {
    value(0, || {
        // SAFETY: guaranteed by the caller.
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
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let program = handle::get(program)?;
        let mut names = program.method_names()?;
        let found = names.nth(index);
        let count = program.method_names()?.count();
        let found = found.ok_or(Fault::Index { what: "method", index, count })?;
        pointer::put(name, torchlet_string::of(found?), "name")
    })
}

/// Metadata of a method: inputs, outputs, memory. It is valid as long as the program is open.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_program_method_meta(
    program: *const torchlet_program,
    method: *const c_char,
    meta: *mut torchlet_method_meta,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let program = handle::get(program)?;
        let found = program.method_meta(pointer::text(method, "method")?)?;
        handle::open(meta, found)
    })
}
