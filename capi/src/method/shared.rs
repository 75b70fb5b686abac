//! Memory that several methods use in turn.

use super::{Inner, UNPREPARED, torchlet_buffer, torchlet_method};
use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status};
use core::mem::MaybeUninit;
use torchlet_core::{Attached, InitError, Method, SharedMemory, SharedMethod};

/// Planned and scratch memory that several methods use in turn, in memory of the caller. The
/// methods belong to one program and share state, or to several programs and need none of their
/// activations after a run. `torchlet_method_finish_shared` loads methods into it; they are then
/// used like others, all by one thread at a time. After another method used the memory, all inputs
/// must be set again; outputs must be read before another method runs.
///
/// It must not be moved as long as methods loaded into it are open. It need not be closed.
#[repr(C)]
pub struct torchlet_shared_memory {
    opaque: u64,
    words: [MaybeUninit<usize>; 44],
}

handle!(torchlet_shared_memory, SharedMemory<'static>, "the shared memory", 6);

/// A method with shared memory.
pub(crate) struct Sharing {
    method: SharedMethod<'static>,
    memory: *mut torchlet_shared_memory,
}

impl Sharing {
    /// Uses the method exclusively while `body` runs; the other methods in the memory are refused.
    ///
    /// # Safety
    /// The memory has not moved since the method was loaded into it.
    pub(super) unsafe fn with_method<R>(
        &mut self,
        body: impl FnOnce(Attached<'_, 'static>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        // SAFETY: guaranteed by the caller.
        let mut memory = unsafe { handle::enter(self.memory)? };
        body(self.method.attach(memory.inner())?)
    }

    /// The method, read-only.
    ///
    /// # Safety
    /// As [`with_method`](Self::with_method), and no other thread changes the memory or one of its
    /// methods.
    pub(super) unsafe fn view<'a>(&'a self) -> Result<&'a Method<'static>, Fault> {
        // SAFETY: guaranteed by the caller; no reference into the memory outlives the C call.
        let memory: &'a SharedMemory<'static> = unsafe { handle::get(self.memory.cast_const())? };
        Ok(self.method.view(memory)?)
    }
}

/// Initializes shared memory for methods whose planned buffers
/// (`torchlet_method_meta_planned_size`) and scratch memory (`torchlet_needs`) are no larger than
/// these. Up to 8 buffers are supported; the array is not used after the call.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The buffers belong to the shared memory as long as it is
/// used, and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_shared_memory_init(
    memory: *mut torchlet_shared_memory,
    planned: *const torchlet_buffer,
    planned_count: usize,
    scratch: torchlet_buffer,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let list = pointer::items(planned, planned_count, "planned")?;
        const MAX: usize = SharedMemory::MAX_BUFFERS;
        let mut planned: heapless::Vec<&'static mut [u8], MAX> = heapless::Vec::new();
        for buffer in list {
            let found = planned_count;
            let many = |_| InitError::PlannedBuffers { expected: MAX, found };
            let bytes = pointer::zeroed(buffer.data, buffer.size, "a planned buffer")?;
            planned.push(bytes).map_err(many)?;
        }
        let scratch = pointer::zeroed(scratch.data, scratch.size, "scratch")?;
        handle::open(memory, SharedMemory::new(&mut planned, scratch)?)
    })
}

/// Finishes loading a prepared method, which can then be executed. The method has its own arena,
/// and uses the planned and scratch memory of `memory` in turn with other methods. On failure, the
/// method can only be closed; the other methods are unaffected.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The arena belongs to the method until it is closed; the
/// shared memory must not be moved until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_finish_shared(
    method: *mut torchlet_method,
    memory: *mut torchlet_shared_memory,
    arena: torchlet_buffer,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
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
    })
}
