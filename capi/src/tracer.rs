//! Watching methods, with a clock of the caller's.

use crate::values::torchlet_string;
use core::ffi::c_void;
use torchlet_core::{Event, EventKind, EventTracer};

/// What an event is.
pub type torchlet_event_kind = u32;

/// Something else: kinds may be added.
pub const TORCHLET_EVENT_OTHER: torchlet_event_kind = 0;
/// A method was loaded.
pub const TORCHLET_EVENT_LOAD: torchlet_event_kind = 1;
/// A delegate was made while its method was loaded.
pub const TORCHLET_EVENT_DELEGATE_INIT: torchlet_event_kind = 2;
/// A method ran.
pub const TORCHLET_EVENT_EXECUTE: torchlet_event_kind = 3;
/// An operator's kernel ran.
pub const TORCHLET_EVENT_OPERATOR: torchlet_event_kind = 4;
/// A delegate ran.
pub const TORCHLET_EVENT_DELEGATE: torchlet_event_kind = 5;

/// Something that happened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_event {
    /// What it was.
    pub kind: torchlet_event_kind,
    /// The operator, backend or method. It is there as long as the call lasts.
    pub name: torchlet_string,
    /// The index of the instruction, or of the delegate; 0 for whole methods.
    pub instruction: usize,
    /// When it began, by the clock.
    pub start: u64,
    /// When it ended, by the clock.
    pub end: u64,
}

/// The time, in any unit; a counter that wraps is the caller's to subtract.
pub type torchlet_clock_fn = Option<unsafe extern "C" fn(context: *mut c_void) -> u64>;
/// Is told of an event when it ends.
pub type torchlet_event_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, event: *const torchlet_event)>;

/// Who is told of what methods do. It must stay where it is, and not change, as long as methods
/// that were loaded with it are open; its functions are called on the threads that load and run
/// them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_tracer {
    /// What the functions get.
    pub context: *mut c_void,
    /// The clock. Without it, all times are 0.
    pub clock: torchlet_clock_fn,
    /// The function that is told; may be null.
    pub event: torchlet_event_fn,
}

// SAFETY: whoever loads a method with a tracer promises that its functions can be called on the
// threads that use the method.
unsafe impl Sync for torchlet_tracer {}

impl torchlet_tracer {
    fn now(&self) -> u64 {
        // SAFETY: whoever filled the tracer promised that its functions can be called.
        self.clock.map_or(0, |clock| unsafe { clock(self.context) })
    }
}

impl EventTracer for torchlet_tracer {
    fn begin(&self, _: &Event<'_>) -> u64 {
        self.now()
    }

    fn end(&self, event: &Event<'_>, token: u64) {
        let end = self.now();
        let Some(tell) = self.event else { return };
        let kind = match event.kind {
            EventKind::Load => TORCHLET_EVENT_LOAD,
            EventKind::DelegateInit => TORCHLET_EVENT_DELEGATE_INIT,
            EventKind::Execute => TORCHLET_EVENT_EXECUTE,
            EventKind::Operator => TORCHLET_EVENT_OPERATOR,
            EventKind::Delegate => TORCHLET_EVENT_DELEGATE,
            _ => TORCHLET_EVENT_OTHER,
        };
        let name = torchlet_string::of(event.name);
        let event =
            torchlet_event { kind, name, instruction: event.instruction, start: token, end };
        // SAFETY: as for the clock; the event outlives the call.
        unsafe { tell(self.context, &event) }
    }
}
