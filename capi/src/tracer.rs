//! Event tracing, with a clock of the caller.

use crate::values::torchlet_string;
use core::ffi::c_void;
use torchlet_core::{Event, EventKind, EventTracer};

/// The kind of an event.
pub type torchlet_event_kind = u32;

/// Another kind; kinds may be added.
pub const TORCHLET_EVENT_OTHER: torchlet_event_kind = 0;
/// A method was loaded.
pub const TORCHLET_EVENT_LOAD: torchlet_event_kind = 1;
/// A delegate was initialized while its method was loaded.
pub const TORCHLET_EVENT_DELEGATE_INIT: torchlet_event_kind = 2;
/// A method was executed.
pub const TORCHLET_EVENT_EXECUTE: torchlet_event_kind = 3;
/// A kernel was executed.
pub const TORCHLET_EVENT_OPERATOR: torchlet_event_kind = 4;
/// A delegate was executed.
pub const TORCHLET_EVENT_DELEGATE: torchlet_event_kind = 5;

/// An event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_event {
    /// Its kind.
    pub kind: torchlet_event_kind,
    /// The operator, backend or method. It is valid until the callback returns.
    pub name: torchlet_string,
    /// Index of the instruction or delegate; 0 for methods.
    pub instruction: usize,
    /// Start time.
    pub start: u64,
    /// End time.
    pub end: u64,
}

/// Returns the time in any unit; handling of wrap-around is up to the caller.
pub type torchlet_clock_fn = Option<unsafe extern "C" fn(context: *mut c_void) -> u64>;
/// Receives an event when it ends.
pub type torchlet_event_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, event: *const torchlet_event)>;

/// Receives events of methods. It must not be moved or changed as long as methods loaded with it
/// are open; its callbacks are called on the threads that load and run them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_tracer {
    /// First argument of all callbacks.
    pub context: *mut c_void,
    /// The clock; if null, all times are 0.
    pub clock: torchlet_clock_fn,
    /// Receives events; may be null.
    pub event: torchlet_event_fn,
}

// SAFETY: whoever loads a method with a tracer guarantees that its callbacks can be called on the
// threads that use the method.
unsafe impl Sync for torchlet_tracer {}

impl torchlet_tracer {
    fn now(&self) -> u64 {
        // SAFETY: whoever loaded a method with the tracer guaranteed that its callbacks can be
        // called.
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
