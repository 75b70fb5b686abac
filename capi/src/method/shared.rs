//! Memory that several methods use in turn.

use super::{Inner, MAX_PLANNED, UNPREPARED, torchlet_buffer, torchlet_method};
use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text};
use core::mem::MaybeUninit;
use torchlet_core::{Attached, InitError, Method, SharedMemory, SharedMethod};

/// Planned and scratch memory that several methods use in turn, in memory of the caller: methods of
/// one program that keep state together, or of several programs, which need none of their
/// activations after a run. Methods are loaded into it by `torchlet_method_finish_shared`, and then
/// used as others, all by one thread at a time. A run needs all inputs that were set before another
/// method used the memory to be set again; outputs are read before another one runs.
///
/// It must stay where it is as long as methods that were loaded into it are open, and need not be
/// closed.
#[repr(C)]
pub struct torchlet_shared_memory {
    opaque: u64,
    words: [MaybeUninit<usize>; 44],
}

handle!(torchlet_shared_memory, SharedMemory<'static>, "the shared memory", 6);

/// A method, and the memory that it uses in turn with others.
pub(crate) struct Sharing {
    method: SharedMethod<'static>,
    memory: *mut torchlet_shared_memory,
}

impl Sharing {
    /// Uses the method with its memory: until `body` ends, all other methods there are refused.
    ///
    /// # Safety
    /// The memory is where it was when the method was loaded into it.
    pub(super) unsafe fn with_method<R>(
        &mut self,
        body: impl FnOnce(Attached<'_, 'static>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        // SAFETY: the caller's promise.
        let mut memory = unsafe { handle::enter(self.memory)? };
        body(self.method.attach(memory.inner())?)
    }

    /// The method, to be looked at.
    ///
    /// # Safety
    /// As [`with_method`](Self::with_method), and no other thread changes it or one of its methods.
    pub(super) unsafe fn view<'a>(&'a self) -> Result<&'a Method<'static>, Fault> {
        // SAFETY: the caller's promise; no reference into the memory outlasts a call of C's.
        let memory: &'a SharedMemory<'static> = unsafe { handle::get(self.memory.cast_const())? };
        Ok(self.method.view(memory)?)
    }
}

/// Makes memory for methods each of whose planned buffers (`torchlet_method_meta_planned_size`) and
/// scratch memory (`torchlet_needs`) are at most as large as these. There can be up to 8 buffers;
/// the list is not used after the call.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The buffers are the memory's as long as it is used, and
/// do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_shared_memory_init(
    memory: *mut torchlet_shared_memory,
    planned: *const torchlet_buffer,
    planned_count: usize,
    scratch: torchlet_buffer,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let list = pointer::items(planned, planned_count, "planned")?;
            let mut planned: heapless::Vec<&'static mut [u8], MAX_PLANNED> = heapless::Vec::new();
            for buffer in list {
                let found = planned_count;
                let many = |_| InitError::PlannedBuffers { expected: MAX_PLANNED, found };
                let bytes = pointer::zeroed(buffer.data, buffer.size, "a planned buffer")?;
                planned.push(bytes).map_err(many)?;
            }
            let scratch = pointer::zeroed(scratch.data, scratch.size, "scratch")?;
            handle::open(memory, SharedMemory::new(&mut planned, scratch)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Gives a prepared method an arena of its own, and planned and scratch memory that it uses in turn
/// with other methods: it can run then. If that fails, the method can only be closed, and the
/// others are as they were.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The arena is the method's until it is closed; the memory
/// stays where it is until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_finish_shared(
    method: *mut torchlet_method,
    memory: *mut torchlet_shared_memory,
    arena: torchlet_buffer,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let mut method = handle::enter(method)?;
            let inner = method.inner();
            let Inner::Prepared(_) = inner else { return Err(Fault::State(UNPREPARED)) };
            let mut shared = handle::enter(memory)?;
            let arena = pointer::memory(arena.data, arena.size, "arena")?;
            let Inner::Prepared(prepared) = core::mem::replace(inner, Inner::Failed) else {
                return Err(Fault::State(UNPREPARED));
            };
            let method = prepared.finish_shared(shared.inner(), arena)?;
            *inner = Inner::Shared(Sharing { method, memory });
            Ok(())
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}
