//! Methods: loaded into memory of the caller, executed on inputs.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::meta::torchlet_method_meta;
use crate::options::{self, torchlet_options};
use crate::pointer;
use crate::program::torchlet_program;
use crate::registry::torchlet_registry;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use torchlet_core::{Attached, InitError, Method, MethodMemory, MethodMeta, Prepared, Progress};

mod io;
mod shared;
mod state;
pub use io::*;
pub use shared::*;
pub use state::*;

/// A method, in memory of the caller: either prepared, with known memory requirements, or loaded
/// and executable. One thread uses it at a time; while a function that changes it runs, other calls
/// with it fail (`TORCHLET_INVALID_STATE`). Several methods of a program can run at once. It must
/// be closed before its memory or its program is reused.
#[repr(C)]
pub struct torchlet_method {
    opaque: u64,
    words: [MaybeUninit<usize>; 136],
}

#[allow(
    clippy::large_enum_variant,
    reason = "boxing needs a heap, and the handle has room for the largest variant"
)]
pub(crate) enum Inner {
    Prepared(Prepared<'static>),
    Loaded(Method<'static>),
    Shared(Sharing),
    /// `finish` failed and consumed the prepared method.
    Failed,
}

handle!(torchlet_method, Inner, "the method", 5);

const UNFINISHED: &str = "the method is only prepared: call torchlet_method_finish first";
const UNPREPARED: &str = "the method is not prepared, or it is already finished";

/// Uses the loaded method in a handle exclusively while `body` runs.
///
/// # Safety
/// As `handle::enter`; shared memory must not have moved since the methods were loaded.
unsafe fn with_method<R>(
    method: *mut torchlet_method,
    body: impl FnOnce(Attached<'_, 'static>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    // SAFETY: guaranteed by the caller.
    match unsafe { handle::enter(method)? }.inner() {
        Inner::Loaded(method) => body(method.attached()),
        // SAFETY: guaranteed by the caller.
        Inner::Shared(sharing) => unsafe { sharing.with_method(body) },
        Inner::Prepared(_) | Inner::Failed => Err(Fault::State(UNFINISHED)),
    }
}

/// The loaded method in a handle, read-only.
///
/// # Safety
/// As `handle::get`; no other thread uses the shared memory, if any, or its methods.
unsafe fn view<'a>(method: *const torchlet_method) -> Result<&'a Method<'static>, Fault> {
    // SAFETY: guaranteed by the caller.
    match unsafe { handle::get(method)? } {
        Inner::Loaded(method) => Ok(method),
        // SAFETY: guaranteed by the caller.
        Inner::Shared(sharing) => unsafe { sharing.view() },
        Inner::Prepared(_) | Inner::Failed => Err(Fault::State(UNFINISHED)),
    }
}

/// Exact memory requirements of a method, in addition to its planned buffers
/// (`torchlet_method_meta_planned_size`). All buffers must be aligned to `TORCHLET_ALIGN`.
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

/// Required alignment of all memory that is lent to methods.
pub const TORCHLET_ALIGN: usize = 16;

const _: () = assert!(TORCHLET_ALIGN == torchlet_core::ARENA_ALIGN);

/// A buffer of the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_buffer {
    /// Its address.
    pub data: *mut c_void,
    /// Its size in bytes.
    pub size: usize,
}

/// The memory of a method, which owns it until it is closed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_memory {
    /// For `torchlet_method_finish`: `arena` bytes of `torchlet_needs`. For `torchlet_method_load`:
    /// `tables` plus `arena`.
    pub arena: torchlet_buffer,
    /// Scratch memory of kernels.
    pub scratch: torchlet_buffer,
    /// Memory of tensors: one buffer for each planned buffer, at least as large. The array itself
    /// is not used after loading.
    pub planned: *const torchlet_buffer,
    /// Number of planned buffers.
    pub planned_count: usize,
}

/// Maximum number of planned buffers per method; exporters write one, or a few.
const MAX_PLANNED: usize = 16;

/// Runs `body` with the memory in the types of the core library.
///
/// # Safety
/// The memory is valid, as documented at `torchlet_memory`.
unsafe fn with_memory<R>(
    memory: &torchlet_memory,
    body: impl FnOnce(MethodMemory<'static, '_>) -> Result<R, InitError>,
) -> Result<R, Fault> {
    // SAFETY: guaranteed by the caller, here and below. The core library checks alignment and
    // sizes, and zeroes planned memory. Scratch memory is passed as bytes, which C may not have
    // initialized.
    unsafe {
        let arena = pointer::memory(memory.arena.data, memory.arena.size, "memory->arena")?;
        let scratch = pointer::zeroed(memory.scratch.data, memory.scratch.size, "memory->scratch")?;
        let list = pointer::items(memory.planned, memory.planned_count, "memory->planned")?;
        let mut planned: heapless::Vec<&'static mut [u8], MAX_PLANNED> = heapless::Vec::new();
        for buffer in list {
            let bytes = pointer::zeroed(buffer.data, buffer.size, "a planned buffer")?;
            let many = |_| Fault::Argument("a method can have at most 16 planned buffers");
            planned.push(bytes).map_err(many)?;
        }
        Ok(body(MethodMemory { arena, planned: &mut planned, scratch })?)
    }
}

/// Size in bytes of the tables for `torchlet_method_prepare`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_table_size(
    meta: *const torchlet_method_meta,
    options: *const torchlet_options,
    size: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let limits = options::to_core(options)?.limits;
        let bytes = handle::get(meta)?.table_bytes(&limits)?;
        pointer::put(size, bytes, "size")
    })
}

/// Prepares a method: decodes it into tables, resolves and checks everything, and determines its
/// memory requirements (`torchlet_method_needs`). No other memory is used yet. It can then be
/// finished or closed.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The tables, and everything that options and registry
/// refer to, belong to the method until it is closed. The handle is not open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_prepare(
    method: *mut torchlet_method,
    meta: *const torchlet_method_meta,
    registry: *const torchlet_registry,
    options: *const torchlet_options,
    tables: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let meta: &MethodMeta<'static> = handle::get(meta)?;
        let registry = &handle::get(registry)?.registry;
        let options = options::to_core(options)?;
        let tables = pointer::memory(tables, size, "tables")?;
        let prepared = meta.prepare(tables, registry, options)?;
        handle::open(method, Inner::Prepared(prepared))
    })
}

/// Exact memory requirements of a prepared method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_needs(
    method: *const torchlet_method,
    needs: *mut torchlet_needs,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let Inner::Prepared(prepared) = handle::get(method)? else {
            return Err(Fault::State(
                "the memory needs are known only after prepare and before finish",
            ));
        };
        let found = prepared.needs();
        let found =
            torchlet_needs { tables: found.tables, arena: found.arena, scratch: found.scratch };
        pointer::put(needs, found, "needs")
    })
}

/// Loads a prepared method into its memory, so that it can be executed. On failure, the method can
/// only be closed.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory belongs to the method until it is closed, and
/// its buffers do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_finish(
    method: *mut torchlet_method,
    memory: *const torchlet_memory,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
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
    })
}

/// Loads a method in one step: prepares it at the start of the arena, and finishes it with the
/// rest.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory, and everything that options and registry
/// refer to, belong to the method until it is closed. The handle is not open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_load(
    method: *mut torchlet_method,
    program: *const torchlet_program,
    name: *const c_char,
    registry: *const torchlet_registry,
    options: *const torchlet_options,
    memory: *const torchlet_memory,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let program = handle::get(program)?;
        let name = pointer::text(name, "name")?;
        let registry = &handle::get(registry)?.registry;
        let options = options::to_core(options)?;
        let memory = pointer::get(memory, "memory")?;
        // Reports a missing method or malformed file before errors of loading.
        program.method_meta(name)?;
        let loaded =
            with_memory(memory, |memory| program.load_method(name, registry, memory, options))?;
        handle::open(method, Inner::Loaded(loaded))
    })
}

/// Closes a method: delegates free their resources, and the memory belongs to the caller again.
/// Does nothing for null, and for a method that is not open, or in use.
///
/// # Safety
/// The rules at the head of `torchlet.h`. No thread uses the method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_close(method: *mut torchlet_method) {
    // SAFETY: guaranteed by the caller.
    value((), || unsafe {
        handle::close(method);
        Some(())
    })
}

/// Executes a method from its first instruction to its end. All inputs must be set before each run:
/// their memory is reused for other tensors.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_execute(
    method: *mut torchlet_method,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, with_method(method, |mut method| Ok(method.execute()?)))
}

/// Executes one instruction, for cooperative tasks: `TORCHLET_OK` if one was executed,
/// `TORCHLET_END_OF_METHOD` if none was left. The next step starts over.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_step(
    method: *mut torchlet_method,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        with_method(method, |mut method| match method.step()? {
            Progress::Stepped => Ok(()),
            Progress::Ended => Err(Fault::End),
        })
    })
}

/// Resets the state of a method and of its delegates to the initial values.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_reset(
    method: *mut torchlet_method,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, with_method(method, |mut method| Ok(method.reset()?)))
}
