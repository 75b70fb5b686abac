//! Event tracing of method loading and execution.
//!
//! A tracer is passed to [`Program::load_method`](crate::Program::load_method). Without one,
//! tracing costs one branch per event.

use crate::tensor::TensorRef;
use crate::value::Scalar;

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum EventKind {
    /// A method is being loaded.
    Load,
    /// A delegate is being initialised while its method is loaded.
    DelegateInit,
    /// A method is running.
    Execute,
    /// An operator's kernel is running.
    Operator,
    /// A delegate is running.
    Delegate,
}

/// A traced event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Event<'e> {
    /// Kind of the event.
    pub kind: EventKind,
    /// Name of the operator, backend or method.
    pub name: &'e str,
    /// Index of the instruction, or of the delegate for [`EventKind::DelegateInit`]; 0 for whole
    /// methods.
    pub instruction: usize,
}

/// Where a delegate's event ran, and the origin of its timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DelegateClock {
    /// On the host; timestamps count from the call of the delegate.
    Host,
    /// On a device whose clock is calibrated against the host's; timestamps count from the call of
    /// the delegate.
    Device,
    /// On a device; timestamps count from its first command, whose start on the host's clock is
    /// unknown.
    DeviceAlone,
}

/// A memory allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation<'e> {
    /// Purpose of the memory.
    pub allocator: &'e str,
    /// Size in bytes.
    pub bytes: u64,
}

/// An event inside a delegate, reported after the fact and timed by the delegate's own clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelegateEvent<'e> {
    /// The delegate's name for it: a shader, a layer.
    pub name: &'e str,
    /// The delegate's own id of the event, for a debug handle map.
    pub id: u32,
    /// Start, in ticks of the delegate's clock.
    pub start: u64,
    /// End, in ticks of the delegate's clock.
    pub end: u64,
    /// Nanoseconds per tick, as a fraction.
    pub nanoseconds_per_tick: (u64, u64),
    /// Where the event ran, and the origin of its timestamps.
    pub clock: DelegateClock,
    /// Additional data in the delegate's own format.
    pub metadata: &'e [u8],
}

/// A value that was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutputValue<'v> {
    /// A tensor.
    Tensor(&'v TensorRef<'v>),
    /// A tensor in a list, with its position.
    Item(usize, &'v TensorRef<'v>),
    /// A number or boolean.
    Scalar(Scalar),
}

/// Receiver of events. All methods borrow `&self`, and a method may move between threads, so a
/// tracer that records needs interior synchronisation.
pub trait EventTracer: Sync {
    /// An event begins. The returned token is passed to [`end`](EventTracer::end): a time, an
    /// index, or anything else.
    fn begin(&self, event: &Event<'_>) -> u64;

    /// An event ends, successfully or not.
    fn end(&self, event: &Event<'_>, token: u64);

    /// A delegate reports an event of its own.
    fn delegate_event(&self, event: &DelegateEvent<'_>) {
        let _ = event;
    }

    /// Memory was allocated. The owner of the allocation reports it; core allocates nothing.
    fn allocated(&self, allocation: &Allocation<'_>) {
        let _ = allocation;
    }

    /// Whether [`output`](EventTracer::output) should be called, which costs a view of every
    /// output.
    fn wants_outputs(&self) -> bool {
        false
    }

    /// A value was written.
    ///
    /// - For an operator, the value is argument `arg` of its call.
    /// - For a delegate, the value is any tensor among its arguments, inputs as well as outputs.
    /// - For a whole run, the value is output `arg` of the method; hosts report these.
    fn output(&self, event: &Event<'_>, arg: usize, value: &OutputValue<'_>) {
        let _ = (event, arg, value);
    }
}

/// Runs `body` between `begin` and `end`. All events share this one function, which keeps firmware
/// small.
pub(crate) fn traced<R>(
    tracer: Option<&dyn EventTracer>,
    event: &Event<'_>,
    body: impl FnOnce() -> R,
) -> R {
    let token = tracer.map_or(0, |tracer| tracer.begin(event));
    let result = body();
    if let Some(tracer) = tracer {
        tracer.end(event, token);
    }
    result
}
