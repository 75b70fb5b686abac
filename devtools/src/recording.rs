//! [`Recording`]: runs with their events and values.

use std::ops::Range;
use torchlet_core::ScalarType;

/// Everything that was recorded, in order.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Recording {
    /// Loads and executions, in order.
    pub runs: Vec<Run>,
    /// Bytes of recorded values, which refer to ranges of this debug buffer.
    pub buffer: Vec<u8>,
    /// Number of events dropped for lack of space.
    pub dropped_events: u64,
    /// Number of values dropped for lack of space.
    pub dropped_values: u64,
}

/// Kind of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunKind {
    /// Loading a method.
    Load,
    /// Executing a method.
    Execute,
    /// Anything else, from another runtime.
    Other,
}

/// Events of loading a method, or of one execution.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// Kind of the run.
    pub kind: RunKind,
    /// Name: `Load`, `Execute`, or that from another runtime.
    pub name: String,
    /// Index of the test case, if known.
    pub test_case: Option<usize>,
    /// Events, in the order in which they ended.
    pub events: Vec<Event>,
    /// Recorded values, in order.
    pub values: Vec<ValueRecord>,
    /// Allocations during the run, in order.
    pub allocations: Vec<AllocationRecord>,
}

/// An allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRecord {
    /// Purpose of the memory.
    pub allocator: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time in nanoseconds of the recording's clock, if known.
    pub time: Option<u64>,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Loading a method.
    Load,
    /// Initialising a delegate.
    DelegateInit,
    /// Running a method.
    Execute,
    /// Kernel of an operator.
    Operator,
    /// Call of a delegate.
    Delegate,
    /// Part of a delegate's initialisation.
    DelegateInitPart,
    /// Part of a delegate's call.
    DelegatePart,
    /// Anything else, from another runtime.
    Other,
}

/// Location of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Location {
    /// A host thread, by its number in the recording.
    Host(u32),
    /// A device, measured with its clock.
    Device,
}

/// An event with a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Kind of the event.
    pub kind: Kind,
    /// Name of the operator, backend or method, or the delegate's name of a part.
    pub name: String,
    /// Instruction index. For the initialisation of a delegate, the delegate index; for a part,
    /// that of the delegate's call.
    pub instruction: Option<u32>,
    /// The delegate's identifier of a part.
    pub part: Option<u32>,
    /// Additional details as bytes; for parts of Vulkan delegates, a shape.
    pub detail: Vec<u8>,
    /// Where it ran.
    pub location: Location,
    /// Start in nanoseconds of the recording's clock.
    pub start: u64,
    /// End in nanoseconds of the recording's clock.
    pub end: u64,
}

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueKind {
    /// A tensor.
    Tensor,
    /// A tensor in a list, with its index.
    Item(usize),
    /// A scalar, stored as an element of dtype `int64`, `float64` or `bool`.
    Scalar,
}

/// A value that an instruction wrote or a program returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueRecord {
    /// Instruction index. `None` for outputs of the program.
    pub instruction: Option<u32>,
    /// The delegate's identifier of the part that computed it.
    pub part: Option<u32>,
    /// Name of the operator or backend, if known.
    pub name: String,
    /// Argument index of the instruction, or output index of the program. For values from a dump,
    /// the index among the values of the instruction.
    pub position: usize,
    /// Tensor, list item or scalar.
    pub kind: ValueKind,
    /// The element type.
    pub scalar_type: ScalarType,
    /// The shape.
    pub sizes: Vec<i64>,
    /// Range of its bytes in the recording's buffer, in row-major order.
    pub data: Range<usize>,
}

impl Event {
    /// Duration in nanoseconds.
    pub fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Details as text.
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
    pub fn span(&self) -> Option<&Event> {
        let kind = if self.kind == RunKind::Load { Kind::Load } else { Kind::Execute };
        self.events.iter().find(|event| event.kind == kind)
    }
}

impl Recording {
    /// Bytes of a value. `None` if they were not recorded.
    pub fn bytes(&self, value: &ValueRecord) -> Option<&[u8]> {
        self.buffer.get(value.data.clone())
    }

    /// Runs that are executions.
    pub fn executions(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.kind == RunKind::Execute)
    }
}
