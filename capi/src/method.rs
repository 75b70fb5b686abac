//! Methods: loaded into memory of the caller, run on inputs.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::meta::torchlet_method_meta;
use crate::options::{self, torchlet_options};
use crate::pointer;
use crate::program::torchlet_program;
use crate::registry::torchlet_registry;
use crate::status::{run, torchlet_status, torchlet_text, value};
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use torchlet_core::{Attached, InitError, Method, MethodMemory, MethodMeta, Prepared, Progress};

mod io;
mod shared;
mod state;
pub use io::*;
pub use shared::*;
pub use state::*;

/// A method, in memory of the caller: prepared, so that it tells what it needs, or loaded, so that
/// it runs. One thread uses it at a time, and while a function runs that changes it, other calls
/// with it fail (`TORCHLET_INVALID_STATE`); several methods of a program can run at once. It must
/// be closed before its memory and its program are used otherwise.
#[repr(C)]
pub struct torchlet_method {
    opaque: u64,
    words: [MaybeUninit<usize>; 136],
}

#[allow(
    clippy::large_enum_variant,
    reason = "there is no heap, and a handle has room for the larger"
)]
pub(crate) enum Inner {
    Prepared(Prepared<'static>),
    Loaded(Method<'static>),
    Shared(Sharing),
    /// Finishing failed: what was prepared is gone.
    Failed,
}

handle!(torchlet_method, Inner, "the method", 5);

const UNFINISHED: &str = "the method is not loaded: finish it first";
const UNPREPARED: &str = "only a prepared method can be finished, and once";

/// Uses the loaded method in a handle: until `body` ends, everybody else is refused.
///
/// # Safety
/// As `handle::enter`; where methods share memory, that is where it was when they were loaded.
unsafe fn with_method<R>(
    method: *mut torchlet_method,
    body: impl FnOnce(Attached<'_, 'static>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    // SAFETY: the caller's promise.
    match unsafe { handle::enter(method)? }.inner() {
        Inner::Loaded(method) => body(method.attached()),
        // SAFETY: the caller's promise.
        Inner::Shared(sharing) => unsafe { sharing.with_method(body) },
        Inner::Prepared(_) | Inner::Failed => Err(Fault::State(UNFINISHED)),
    }
}

/// The loaded method in a handle, to be looked at.
///
/// # Safety
/// As `handle::get`; where methods share memory, no other thread uses that, or one of them.
unsafe fn view<'a>(method: *const torchlet_method) -> Result<&'a Method<'static>, Fault> {
    // SAFETY: the caller's promise.
    match unsafe { handle::get(method)? } {
        Inner::Loaded(method) => Ok(method),
        // SAFETY: the caller's promise.
        Inner::Shared(sharing) => unsafe { sharing.view() },
        Inner::Prepared(_) | Inner::Failed => Err(Fault::State(UNFINISHED)),
    }
}

/// The exact memory that a method takes, beside its planned buffers
/// (`torchlet_method_meta_planned_size`). All start at multiples of `TORCHLET_ALIGN`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_needs {
    /// Bytes of its tables.
    pub tables: usize,
    /// Bytes of the arena, for delegates, copied constants and packed weights.
    pub arena: usize,
    /// Bytes of scratch memory.
    pub scratch: usize,
}

/// Where memory that is lent to methods has to start: at a multiple of this.
pub const TORCHLET_ALIGN: usize = 16;

const _: () = assert!(TORCHLET_ALIGN == torchlet_core::ARENA_ALIGN);

/// Memory of the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_buffer {
    /// Where it starts.
    pub data: *mut c_void,
    /// Its bytes.
    pub size: usize,
}

/// The memory of a method, the method's until it is closed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_memory {
    /// For `torchlet_method_finish`, `arena` bytes of `torchlet_needs`; for `torchlet_method_load`,
    /// `tables` and `arena` together.
    pub arena: torchlet_buffer,
    /// For kernels while they run.
    pub scratch: torchlet_buffer,
    /// For tensors: a buffer for each planned buffer, at least as large. The list itself is not
    /// used after loading.
    pub planned: *const torchlet_buffer,
    /// How many there are.
    pub planned_count: usize,
}

/// The most planned buffers that a method can have here; exporters write one, or a few.
const MAX_PLANNED: usize = 16;

/// Runs `body` with the memory as core takes it.
///
/// # Safety
/// The memory is as `torchlet_memory` says.
unsafe fn with_memory<R>(
    memory: &torchlet_memory,
    body: impl FnOnce(MethodMemory<'static, '_>) -> Result<R, InitError>,
) -> Result<R, Fault> {
    // SAFETY: the caller's promise, here and below. Core checks alignment and sizes, and zeroes
    // planned memory; scratch memory is bytes, which C may not have written.
    unsafe {
        let arena = pointer::memory(memory.arena.data, memory.arena.size, "memory->arena")?;
        let scratch = pointer::zeroed(memory.scratch.data, memory.scratch.size, "memory->scratch")?;
        let list = pointer::items(memory.planned, memory.planned_count, "memory->planned")?;
        let mut planned: heapless::Vec<&'static mut [u8], MAX_PLANNED> = heapless::Vec::new();
        for buffer in list {
            let bytes = pointer::zeroed(buffer.data, buffer.size, "a planned buffer")?;
            let many = |_| Fault::Argument("a method can have at most 16 planned buffers here");
            planned.push(bytes).map_err(many)?;
        }
        Ok(body(MethodMemory { arena, planned: &mut planned, scratch })?)
    }
}

/// Bytes of the tables that `torchlet_method_prepare` takes.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_table_size(
    meta: *const torchlet_method_meta,
    options: *const torchlet_options,
    size: *mut usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let limits = options::to_core(options)?.limits;
            let bytes = handle::get(meta)?.table_bytes(&limits)?;
            pointer::put(size, bytes, "size")
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Prepares a method: decodes it into tables, and resolves and checks all of it, so that it tells
/// what memory it needs (`torchlet_method_needs`). Nothing else is reserved so far. It can be
/// finished, or closed.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The tables, and what options and registry name, are the
/// method's until it is closed. The handle is not open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_prepare(
    method: *mut torchlet_method,
    meta: *const torchlet_method_meta,
    registry: *const torchlet_registry,
    options: *const torchlet_options,
    tables: *mut c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let meta: &MethodMeta<'static> = handle::get(meta)?;
            let registry = &handle::get(registry)?.registry;
            let options = options::to_core(options)?;
            let tables = pointer::memory(tables, size, "tables")?;
            let prepared = meta.prepare(tables, registry, options)?;
            handle::open(method, Inner::Prepared(prepared))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// What memory a prepared method needs, to the byte.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_needs(
    method: *const torchlet_method,
    needs: *mut torchlet_needs,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let Inner::Prepared(prepared) = (unsafe { handle::get(method)? }) else {
            return Err(Fault::State(
                "only a method that is prepared, and not finished, tells its needs",
            ));
        };
        let found = prepared.needs();
        let found =
            torchlet_needs { tables: found.tables, arena: found.arena, scratch: found.scratch };
        // SAFETY: the caller's promise.
        unsafe { pointer::put(needs, found, "needs") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Gives a prepared method its memory: it can run then. If that fails, the method can only be
/// closed.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory is the method's until it is closed, and its
/// parts do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_finish(
    method: *mut torchlet_method,
    memory: *const torchlet_memory,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let memory = pointer::get(memory, "memory")?;
            let mut method = handle::enter(method)?;
            let inner = method.inner();
            if !matches!(inner, Inner::Prepared(_)) {
                return Err(Fault::State(UNPREPARED));
            }
            let Inner::Prepared(prepared) = core::mem::replace(inner, Inner::Failed) else {
                return Err(Fault::State(UNPREPARED));
            };
            *inner = Inner::Loaded(with_memory(memory, |memory| prepared.finish(memory))?);
            Ok(())
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Loads a method in one step: prepares it at the front of the arena, and finishes it with the
/// rest.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory, and what options and registry name, are the
/// method's until it is closed. The handle is not open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_load(
    method: *mut torchlet_method,
    program: *const torchlet_program,
    name: *const c_char,
    registry: *const torchlet_registry,
    options: *const torchlet_options,
    memory: *const torchlet_memory,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let program = handle::get(program)?;
            let name = pointer::text(name, "name")?;
            let registry = &handle::get(registry)?.registry;
            let options = options::to_core(options)?;
            let memory = pointer::get(memory, "memory")?;
            // Its errors are of files, and those of loading of methods.
            program.method_meta(name)?;
            let loaded =
                with_memory(memory, |memory| program.load_method(name, registry, memory, options))?;
            handle::open(method, Inner::Loaded(loaded))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Closes a method: delegates free what they hold, and the memory is the caller's again. Null, and
/// a method that is not open, or in use, are left alone.
///
/// # Safety
/// The rules at the head of `torchlet.h`. No thread uses the method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_close(method: *mut torchlet_method) {
    // SAFETY: the caller's promise.
    value((), || unsafe {
        handle::close(method);
        Some(())
    })
}

/// Runs a method from its first instruction to its end. All inputs must be set before each run:
/// their memory is used for other tensors, too.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_execute(
    method: *mut torchlet_method,
    error: *const torchlet_text,
) -> torchlet_status {
    // SAFETY: the caller's promise.
    unsafe { run(error, || with_method(method, |mut method| Ok(method.execute()?))) }
}

/// Runs one instruction, for tasks that share a processor: `TORCHLET_OK` if there was one,
/// `TORCHLET_END_OF_METHOD` if none was left; the step after that starts over.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_step(
    method: *mut torchlet_method,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            with_method(method, |mut method| match method.step()? {
                Progress::Stepped => Ok(()),
                Progress::Ended => Err(Fault::End),
            })
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Gives the method's state its first values again, that of delegates included.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_reset(
    method: *mut torchlet_method,
    error: *const torchlet_text,
) -> torchlet_status {
    // SAFETY: the caller's promise.
    unsafe { run(error, || with_method(method, |mut method| Ok(method.reset()?))) }
}
