//! Options for loading methods.

use crate::data::torchlet_data;
use crate::fault::Fault;
use crate::handle;
use crate::pointer;
use crate::status::value;
use crate::tracer::torchlet_tracer;
use core::sync::atomic::{AtomicBool, Ordering};
use torchlet_core::{Limits, LoadOptions};

/// Cancels runs from another thread, or from an interrupt. It must not be moved as long as methods
/// that were loaded with it are open.
#[repr(C)]
pub struct torchlet_canceller {
    cancelled: bool,
}

/// Limits for untrusted programs: a malicious file can require any amount of work and memory.
/// `torchlet_limits_init` sets the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_limits {
    /// Maximum values of a method.
    pub values: u64,
    /// Maximum items in its lists.
    pub list_items: u64,
    /// Maximum instructions.
    pub instructions: u64,
    /// Maximum operators.
    pub operators: u64,
    /// Maximum delegates.
    pub delegates: u64,
    /// Maximum tensors among the arguments of one call.
    pub call_tensors: u64,
    /// Maximum bytes of planned buffers.
    pub planned_bytes: u64,
    /// Maximum bytes of constants.
    pub constant_bytes: u64,
    /// Maximum name comparisons in searches for external data.
    pub name_lookups: u64,
    /// Maximum backward jumps per run.
    pub backward_jumps: u64,
}

/// Options for loading a method. Each member can be null; a null pointer in place of the options
/// selects all defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_options {
    /// External data.
    pub data: *const torchlet_data,
    /// Receives events.
    pub tracer: *const torchlet_tracer,
    /// Cancels runs.
    pub canceller: *const torchlet_canceller,
    /// Limits of the program.
    pub limits: *const torchlet_limits,
}

impl torchlet_limits {
    fn of(limits: &Limits) -> Self {
        torchlet_limits {
            values: limits.values,
            list_items: limits.list_items,
            instructions: limits.instructions,
            operators: limits.operators,
            delegates: limits.delegates,
            call_tensors: limits.call_tensors,
            planned_bytes: limits.planned_bytes,
            constant_bytes: limits.constant_bytes,
            name_lookups: limits.name_lookups,
            backward_jumps: limits.backward_jumps,
        }
    }

    fn to_core(self) -> Limits {
        let mut limits = Limits::default();
        limits.values = self.values;
        limits.list_items = self.list_items;
        limits.instructions = self.instructions;
        limits.operators = self.operators;
        limits.delegates = self.delegates;
        limits.call_tensors = self.call_tensors;
        limits.planned_bytes = self.planned_bytes;
        limits.constant_bytes = self.constant_bytes;
        limits.name_lookups = self.name_lookups;
        limits.backward_jumps = self.backward_jumps;
        limits
    }
}

/// Converts the options to those of the core library.
///
/// # Safety
/// `options` is null, or points to options; their members are valid, as documented at
/// `torchlet_options`, and outlive the method.
pub(crate) unsafe fn to_core(
    options: *const torchlet_options,
) -> Result<LoadOptions<'static>, Fault> {
    let mut result = LoadOptions::default();
    // SAFETY: guaranteed by the caller, here and below.
    let Some(options) = (unsafe { pointer::optional(options, "options")? }) else {
        return Ok(result);
    };
    // SAFETY: as above.
    unsafe {
        if let Some(data) = handle::optional::<torchlet_data>(options.data)? {
            result.data = data.maps();
        }
        if let Some(tracer) = pointer::optional(options.tracer, "options->tracer")? {
            result.tracer = Some(tracer);
        }
        if let Some(canceller) = pointer::optional(options.canceller, "options->canceller")? {
            result.cancel = Some(canceller.flag());
        }
        if let Some(limits) = pointer::optional(options.limits, "options->limits")? {
            result.limits = limits.to_core();
        }
    }
    Ok(result)
}

impl torchlet_canceller {
    fn flag(&self) -> &AtomicBool {
        // SAFETY: all threads access the field only through this function; it has the size and
        // alignment of an `AtomicBool`, and `torchlet_canceller_init` initialized it.
        unsafe { AtomicBool::from_ptr((&raw const self.cancelled).cast_mut()) }
    }
}

/// Sets the default limits: those of hosts or of microcontrollers, depending on how the library was
/// built.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_limits_init(limits: *mut torchlet_limits) {
    let filled = torchlet_limits::of(&Limits::default());
    // SAFETY: guaranteed by the caller.
    value((), || unsafe { pointer::put(limits, filled, "limits").ok() })
}

/// Initializes a canceller in the state "not cancelled".
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_canceller_init(canceller: *mut torchlet_canceller) {
    let fresh = torchlet_canceller { cancelled: false };
    // SAFETY: guaranteed by the caller.
    value((), || unsafe { pointer::put(canceller, fresh, "canceller").ok() })
}

/// Cancels the current run before its next instruction, and all later runs, until called with
/// false. Can be called from every thread, and from interrupts.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_canceller_set(
    canceller: *const torchlet_canceller,
    cancelled: bool,
) {
    value((), || {
        // SAFETY: guaranteed by the caller.
        let canceller = unsafe { pointer::get(canceller, "canceller").ok()? };
        canceller.flag().store(cancelled, Ordering::Relaxed);
        Some(())
    })
}
