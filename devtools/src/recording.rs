//! What was recorded: runs, their events, and the values that they made.

use std::ops::Range;
use torchlet_core::ScalarType;

/// What happened, in order.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Recording {
    /// Loads and executions, in order.
    pub runs: Vec<Run>,
    /// The bytes of recorded values, which refer to them: a debug buffer.
    pub buffer: Vec<u8>,
    /// Events that there was no room for.
    pub dropped_events: u64,
    /// Values that there was no room for.
    pub dropped_values: u64,
}

/// What a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunKind {
    /// A method is loaded.
    Load,
    /// A method is executed.
    Execute,
    /// Something else, that another runtime wrote.
    Other,
}

/// What happened while a method was loaded, or ran once.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// What it is.
    pub kind: RunKind,
    /// What it is called: `Load`, `Execute`, or what another runtime calls it.
    pub name: String,
    /// The test case that it ran, where that is known.
    pub test_case: Option<usize>,
    /// Its events, in the order in which they ended.
    pub events: Vec<Event>,
    /// The values that it made, in order.
    pub values: Vec<ValueRecord>,
    /// Memory that was set aside meanwhile, in order.
    pub allocations: Vec<AllocationRecord>,
}

/// Memory that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRecord {
    /// What it is for.
    pub allocator: String,
    /// How much.
    pub bytes: u64,
    /// When, in nanoseconds of the recording's clock, where that is known.
    pub time: Option<u64>,
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Loading a method.
    Load,
    /// Initialising a delegate.
    DelegateInit,
    /// Running a method.
    Execute,
    /// An operator's kernel.
    Operator,
    /// A call of a delegate.
    Delegate,
    /// A part of a delegate's initialisation.
    DelegateInitPart,
    /// A part of a delegate's call.
    DelegatePart,
    /// Something else, that another runtime wrote.
    Other,
}

/// Whose clock an event was measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Location {
    /// A thread of the host, by a number of its own.
    Host(u32),
    /// A device.
    Device,
}

/// Something that took time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What it is.
    pub kind: Kind,
    /// The operator, backend, method or, of a part, what the delegate calls it.
    pub name: String,
    /// The instruction; a delegate's, for its initialisation. Of a part, that of the delegate's
    /// call.
    pub instruction: Option<u32>,
    /// A delegate's own number of a part.
    pub part: Option<u32>,
    /// What there is to add, as bytes: for parts of delegates for Vulkan, a shape.
    pub detail: Vec<u8>,
    /// Where it happened.
    pub location: Location,
    /// When it began, in nanoseconds of the recording's clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

/// What a value is in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueKind {
    /// A tensor.
    Tensor,
    /// A tensor in a list, and its position there.
    Item(usize),
    /// A number or truth value, kept as an element of type `int64`, `float64` or `bool`.
    Scalar,
}

/// What an instruction wrote, or a program returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueRecord {
    /// The instruction; `None` for outputs of the program.
    pub instruction: Option<u32>,
    /// The delegate's own number of the part that made it, if one did.
    pub part: Option<u32>,
    /// The operator or backend, where that is known.
    pub name: String,
    /// The argument of the instruction, or the position among the program's outputs; of what was
    /// read from a dump, the position among the values of its instruction.
    pub position: usize,
    /// Whether it is a tensor by itself.
    pub kind: ValueKind,
    /// The element type.
    pub scalar_type: ScalarType,
    /// The shape.
    pub sizes: Vec<i64>,
    /// Where its bytes are in the recording's buffer, in the order of the dimensions.
    pub data: Range<usize>,
}

impl Event {
    /// How long it took, in nanoseconds.
    pub fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// What a person is told of it besides its name.
    pub fn detail_text(&self) -> String {
        String::from_utf8_lossy(&self.detail).into_owned()
    }
}

impl Run {
    pub(crate) fn new(kind: RunKind, name: &str) -> Self {
        Run {
            kind,
            name: name.into(),
            test_case: None,
            events: Vec::new(),
            values: Vec::new(),
            allocations: Vec::new(),
        }
    }

    /// The event that spans the run.
    pub fn whole(&self) -> Option<&Event> {
        let kind = if self.kind == RunKind::Load { Kind::Load } else { Kind::Execute };
        self.events.iter().find(|event| event.kind == kind)
    }
}

impl Recording {
    /// The bytes of a value; `None` if they are not there.
    pub fn bytes(&self, value: &ValueRecord) -> Option<&[u8]> {
        self.buffer.get(value.data.clone())
    }

    /// The runs that are executions.
    pub fn executions(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.kind == RunKind::Execute)
    }
}
