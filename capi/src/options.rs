//! What methods are loaded with besides their memory.

use crate::data::torchlet_data;
use crate::fault::Fault;
use crate::handle;
use crate::pointer;
use crate::status::value;
use crate::tracer::torchlet_tracer;
use core::sync::atomic::{AtomicBool, Ordering};
use torchlet_core::{Limits, LoadOptions};

/// Ends runs from another thread, or from an interrupt. It must stay where it is as long as methods
/// that were loaded with it are open.
#[repr(C)]
pub struct torchlet_canceller {
    cancelled: bool,
}

/// What a program may ask for: a malicious file can ask for any amount of work and memory.
/// `torchlet_limits_init` fills it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_limits {
    /// Values of a method.
    pub values: u64,
    /// Items of its lists.
    pub list_items: u64,
    /// Its instructions.
    pub instructions: u64,
    /// Its operators.
    pub operators: u64,
    /// Its delegates.
    pub delegates: u64,
    /// Tensors among the arguments of one call.
    pub call_tensors: u64,
    /// Bytes of its planned buffers.
    pub planned_bytes: u64,
    /// Bytes of its constants.
    pub constant_bytes: u64,
    /// Comparisons of names while looking for external data.
    pub name_lookups: u64,
    /// Backward jumps in one run.
    pub backward_jumps: u64,
}

/// What a method is loaded with. Each can be null; so can be the whole, for methods that need
/// nothing of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_options {
    /// External data.
    pub data: *const torchlet_data,
    /// Who is told of events.
    pub tracer: *const torchlet_tracer,
    /// What ends runs.
    pub canceller: *const torchlet_canceller,
    /// What the program may ask for.
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

/// As core has them.
///
/// # Safety
/// `options` is null or points to options; what they point to is as `torchlet_options` says, and
/// outlives the method.
pub(crate) unsafe fn to_core(
    options: *const torchlet_options,
) -> Result<LoadOptions<'static>, Fault> {
    let mut result = LoadOptions::default();
    // SAFETY: the caller's promise, here and below.
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
        // SAFETY: the field is reached through this function alone, by all threads; it is of the
        // same size and alignment, and is written before (`torchlet_canceller_init`).
        unsafe { AtomicBool::from_ptr((&raw const self.cancelled).cast_mut()) }
    }
}

/// The limits that hold where none are given: those of hosts, or of microcontrollers, as the
/// library was built.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_limits_init(limits: *mut torchlet_limits) {
    let filled = torchlet_limits::of(&Limits::default());
    // SAFETY: the caller's promise.
    value((), || unsafe { pointer::put(limits, filled, "limits").ok() })
}

/// Makes a canceller that cancels nothing yet.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_canceller_init(canceller: *mut torchlet_canceller) {
    let fresh = torchlet_canceller { cancelled: false };
    // SAFETY: the caller's promise.
    value((), || unsafe { pointer::put(canceller, fresh, "canceller").ok() })
}

/// Ends the run in progress before its next instruction, and all that follow, until
/// `torchlet_canceller_set` is called with false. Can be called from every thread, and from
/// interrupts.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_canceller_set(
    canceller: *const torchlet_canceller,
    cancelled: bool,
) {
    value((), || {
        // SAFETY: the caller's promise.
        let canceller = unsafe { pointer::get(canceller, "canceller").ok()? };
        canceller.flag().store(cancelled, Ordering::Relaxed);
        Some(())
    })
}
