//! Watching a method load and run.
//!
//! A tracer is passed to [`Program::load_method`](crate::Program::load_method); without one,
//! tracing costs a branch.

use crate::tensor::TensorRef;
use crate::value::Scalar;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum EventKind {
    /// A method is loaded.
    Load,
    /// A delegate is initialised while its method is loaded.
    DelegateInit,
    /// A method runs.
    Execute,
    /// An operator's kernel runs.
    Operator,
    /// A delegate runs.
    Delegate,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Event<'e> {
    /// What happens.
    pub kind: EventKind,
    /// The operator, backend or method.
    pub name: &'e str,
    /// The instruction's index, or the delegate's for [`EventKind::DelegateInit`]; 0 for whole
    /// methods.
    pub instruction: usize,
}

/// Where an event inside a delegate happened, and what its ticks are counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DelegateClock {
    /// On the host; counted from when the delegate was called.
    Host,
    /// On a device whose clock was compared with the host's; counted from when the delegate was
    /// called.
    Device,
    /// On a device; counted from its first command. When that began is not known.
    DeviceAlone,
}

/// Memory that was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation<'e> {
    /// What it is for.
    pub allocator: &'e str,
    /// How much.
    pub bytes: u64,
}

/// An event inside a delegate, told after the fact and measured by the delegate's own clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelegateEvent<'e> {
    /// What the delegate calls it: a shader, a layer.
    pub name: &'e str,
    /// The delegate's own number of the event, for a debug handle map.
    pub id: u32,
    /// Start, in ticks of the delegate's clock.
    pub start: u64,
    /// End, in ticks of the delegate's clock.
    pub end: u64,
    /// Nanoseconds per tick, as a fraction.
    pub nanoseconds_per_tick: (u64, u64),
    /// Where it happened, and what ticks are counted from.
    pub clock: DelegateClock,
    /// What the delegate has to add, in its own format.
    pub metadata: &'e [u8],
}

/// A value that was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutputValue<'v> {
    /// A tensor.
    Tensor(&'v TensorRef<'v>),
    /// A tensor in a list, and its position there.
    Item(usize, &'v TensorRef<'v>),
    /// A number or truth value.
    Scalar(Scalar),
}

/// Receives events. Methods take `&self`: a method may move between threads, so a tracer that
/// records synchronises itself.
pub trait EventTracer: Sync {
    /// Something begins. The result comes back with the end: a time, an index, whatever serves.
    fn begin(&self, event: &Event<'_>) -> u64;

    /// What began ends, with success or not.
    fn end(&self, event: &Event<'_>, token: u64);

    /// A delegate tells of an event of its own.
    fn delegate_event(&self, event: &DelegateEvent<'_>) {
        let _ = event;
    }

    /// Memory was set aside. Whoever sets it aside tells of it: core allocates nothing.
    fn allocated(&self, allocation: &Allocation<'_>) {
        let _ = allocation;
    }

    /// Whether [`output`](EventTracer::output) should be called: it costs a view of every output.
    fn wants_outputs(&self) -> bool {
        false
    }

    /// An operator wrote a value, which is argument `arg` of its call; or a delegate ran, and this
    /// is a tensor among its arguments, inputs as well as outputs. With the event of a whole run,
    /// one of its outputs, whose position `arg` is: hosts tell of these.
    fn output(&self, event: &Event<'_>, arg: usize, value: &OutputValue<'_>) {
        let _ = (event, arg, value);
    }
}

/// Runs `body` between begin and end. There is one place that calls it, so that firmware has it
/// once.
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
