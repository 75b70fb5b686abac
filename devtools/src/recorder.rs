//! The tracer that keeps everything.

use crate::recording::{
    AllocationRecord, Event, Kind, Location, Recording, Run, RunKind, ValueKind, ValueRecord,
};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;
use torchlet_core::{
    self as core, Allocation, DelegateClock, DelegateEvent, EventKind, EventTracer, OutputValue,
    Scalar, ScalarType, TensorRef,
};

/// Events that are kept; what comes behind them is counted, so that a program that runs for days
/// does not fill memory.
const MOST_EVENTS: usize = 1 << 20;
/// Allocations that are kept of one run.
const MOST_ALLOCATIONS: usize = 1 << 12;
/// Values that are kept without regard to their size.
const MOST_VALUES: usize = 1 << 20;

/// The part of a call during which the host waits for the device.
const WAIT: &str = "submit and wait";

/// An event tracer that records every event in order and, where asked to, the values that
/// instructions write.
///
/// ```
/// use std::sync::Arc;
/// use torchlet_devtools::{Recorder, etdump};
///
/// let recorder = Arc::new(Recorder::new().with_values(1 << 20));
/// // let mut module = torchlet::Module::builder().event_tracer(recorder.clone()).load("model.pte")?;
/// // ... run it ...
/// let recording = recorder.recording();
/// let dump = etdump::write(&recording, etdump::DelegateIds::Names);
/// # let _ = dump;
/// ```
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    /// How many bytes of values are kept; `None` for no values.
    room: Option<usize>,
    /// Whether only loads and runs as a whole are kept.
    only_methods: bool,
    /// Whether of values, only what programs return is kept.
    only_outputs: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    recording: Recording,
    events: usize,
    values: usize,
    threads: HashMap<ThreadId, Thread>,
}

/// What is known of a thread.
#[derive(Debug)]
struct Thread {
    number: u32,
    /// The delegate that it is in: whether it is initialised, the instruction, and since when.
    inside: Option<(bool, u32, u64)>,
    /// When it waited for a device last: until when.
    waited: Option<u64>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}

/// The number of an instruction, which fits as files have 32 bits for it.
fn number(instruction: usize) -> u32 {
    u32::try_from(instruction).unwrap_or(u32::MAX)
}

impl Recorder {
    /// A recorder of events alone.
    pub fn new() -> Self {
        Recorder {
            start: Instant::now(),
            room: None,
            only_methods: false,
            only_outputs: false,
            state: Mutex::default(),
        }
    }

    /// The same, that also keeps what instructions write, up to so many bytes.
    #[must_use]
    pub fn with_values(self, bytes: usize) -> Self {
        Recorder { room: Some(bytes), ..self }
    }

    /// The same, that keeps loads and runs as a whole, and nothing of what happens in them.
    #[must_use]
    pub fn of_methods(self) -> Self {
        Recorder { only_methods: true, ..self }
    }

    /// The same, that keeps what programs return, and not what instructions write on the way.
    #[must_use]
    pub fn of_outputs(self) -> Self {
        Recorder { only_outputs: true, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A copy of what was recorded so far.
    pub fn recording(&self) -> Recording {
        self.state().recording.clone()
    }

    /// What was recorded so far; the recorder begins anew.
    pub fn take(&self) -> Recording {
        let mut state = self.state();
        (state.events, state.values) = (0, 0);
        std::mem::take(&mut state.recording)
    }

    /// Begins a block of values that no run of the program made by itself, under a name of its own.
    pub fn begin_block(&self, name: &str) {
        self.state().begin_run(RunKind::Other, name);
    }

    /// Says which test case the last run was.
    pub fn set_test_case(&self, index: usize) {
        if let Some(run) = self.state().recording.runs.last_mut() {
            run.test_case = Some(index);
        }
    }
}

impl State {
    fn thread(&mut self) -> &mut Thread {
        let next = number(self.threads.len());
        self.threads.entry(thread::current().id()).or_insert(Thread {
            number: next,
            inside: None,
            waited: None,
        })
    }

    fn begin_run(&mut self, kind: RunKind, name: &str) {
        if self.events < MOST_EVENTS {
            self.recording.runs.push(Run::new(kind, name));
        }
    }

    fn add(&mut self, event: Event) {
        if self.events == MOST_EVENTS {
            self.recording.dropped_events += 1;
            return;
        }
        self.events += 1;
        if self.recording.runs.is_empty() {
            self.begin_run(RunKind::Load, LOAD);
        }
        if let Some(run) = self.recording.runs.last_mut() {
            run.events.push(event);
        }
    }

    fn keep(
        &mut self,
        instruction: Option<u32>,
        name: &str,
        position: usize,
        value: &OutputValue<'_>,
        room: usize,
    ) {
        let Some((kind, scalar_type, sizes, bytes)) = contents(value) else { return };
        let Recording { runs, buffer, dropped_values, .. } = &mut self.recording;
        let Some(run) = runs.last_mut() else { return };
        // Readers want tensors at multiples of 64.
        let start = buffer.len().next_multiple_of(64);
        let end = start.saturating_add(bytes);
        if end > room || self.values == MOST_VALUES {
            *dropped_values += 1;
            return;
        }
        self.values += 1;
        buffer.resize(start, 0);
        match value {
            OutputValue::Tensor(tensor) | OutputValue::Item(_, tensor) => row_major(tensor, buffer),
            OutputValue::Scalar(scalar) => element(*scalar, buffer),
            _ => {}
        }
        // What is missing, which nothing should be, is zero.
        buffer.resize(end, 0);
        run.values.push(ValueRecord {
            instruction,
            part: None,
            name: name.into(),
            position,
            kind,
            scalar_type,
            sizes,
            data: start..end,
        });
    }
}

/// The type that values are kept in: readers of ETDumps do not know `bfloat16`, all of whose
/// numbers are `float32`.
fn kept_type(scalar_type: ScalarType) -> ScalarType {
    if scalar_type == ScalarType::BFloat16 { ScalarType::Float } else { scalar_type }
}

/// How a value is kept: what it is, its type, its shape, and how many bytes it takes.
fn contents(value: &OutputValue<'_>) -> Option<(ValueKind, ScalarType, Vec<i64>, usize)> {
    let (kind, tensor) = match value {
        OutputValue::Tensor(tensor) => (ValueKind::Tensor, tensor),
        OutputValue::Item(position, tensor) => (ValueKind::Item(*position), tensor),
        OutputValue::Scalar(scalar) => {
            let scalar_type = match scalar {
                Scalar::Int(_) => ScalarType::Long,
                Scalar::Bool(_) => ScalarType::Bool,
                Scalar::Double(_) => ScalarType::Double,
            };
            return Some((ValueKind::Scalar, scalar_type, Vec::new(), scalar_type.size()));
        }
        _ => return None,
    };
    let info = tensor.info();
    let scalar_type = kept_type(info.scalar_type);
    let sizes = info.sizes.iter().map(|size| i64::from(*size)).collect();
    Some((kind, scalar_type, sizes, info.numel().saturating_mul(scalar_type.size())))
}

/// Appends a number as an element.
fn element(scalar: Scalar, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Int(value) => out.extend(value.to_le_bytes()),
        Scalar::Bool(value) => out.push(value.into()),
        Scalar::Double(value) => out.extend(value.to_le_bytes()),
    }
}

/// Appends the elements in the order of the dimensions: readers of ETDumps do not look at strides.
fn row_major(tensor: &TensorRef<'_>, out: &mut Vec<u8>) {
    let (info, bytes) = (tensor.info(), tensor.bytes());
    let size = info.scalar_type.size();
    let mut append = |element: &[u8]| match (info.scalar_type, element) {
        // The upper half of a float32.
        (ScalarType::BFloat16, element) => {
            out.extend([0, 0]);
            out.extend_from_slice(element);
        }
        _ => out.extend_from_slice(element),
    };
    if info.is_contiguous() {
        bytes.chunks_exact(size.max(1)).for_each(append);
        return;
    }
    let strides = info.strides();
    for index in 0..info.numel() {
        let (mut rest, mut at) = (index, 0);
        for dim in (0..info.rank()).rev() {
            let length = info.size(dim).max(1);
            let stride = strides.get(dim).copied().unwrap_or(0);
            at += rest % length * stride;
            rest /= length;
        }
        if let Some(element) = at.checked_mul(size).and_then(|at| bytes.get(at..at + size)) {
            append(element);
        }
    }
}

pub(crate) const LOAD: &str = "Load";
pub(crate) const EXECUTE: &str = "Execute";

impl EventTracer for Recorder {
    fn begin(&self, event: &core::Event<'_>) -> u64 {
        let mut state = self.state();
        match event.kind {
            EventKind::Load => state.begin_run(RunKind::Load, LOAD),
            EventKind::Execute => state.begin_run(RunKind::Execute, EXECUTE),
            EventKind::Delegate | EventKind::DelegateInit => {
                let is_init = event.kind == EventKind::DelegateInit;
                let now = self.now();
                state.thread().inside = Some((is_init, number(event.instruction), now));
                return now;
            }
            _ => {}
        }
        drop(state);
        self.now()
    }

    fn end(&self, event: &core::Event<'_>, start: u64) {
        let end = self.now();
        let (kind, has_instruction) = match event.kind {
            EventKind::Load => (Kind::Load, false),
            EventKind::DelegateInit => (Kind::DelegateInit, true),
            EventKind::Execute => (Kind::Execute, false),
            EventKind::Operator => (Kind::Operator, true),
            EventKind::Delegate => (Kind::Delegate, true),
            _ => (Kind::Other, false),
        };
        let mut state = self.state();
        let thread = state.thread();
        if matches!(kind, Kind::Delegate | Kind::DelegateInit) {
            (thread.inside, thread.waited) = (None, None);
        }
        let location = Location::Host(thread.number);
        if self.only_methods && !matches!(kind, Kind::Load | Kind::Execute) {
            return;
        }
        state.add(Event {
            kind,
            name: event.name.into(),
            instruction: has_instruction.then(|| number(event.instruction)),
            part: None,
            detail: Vec::new(),
            location,
            start,
            end,
        });
    }

    fn delegate_event(&self, event: &DelegateEvent<'_>) {
        if self.only_methods {
            return;
        }
        let now = self.now();
        let mut state = self.state();
        let thread = state.thread();
        let number = thread.number;
        let (is_init, instruction, since) = thread.inside.unwrap_or((false, 0, now));
        let (numerator, denominator) = event.nanoseconds_per_tick;
        let nanoseconds = |ticks: u64| {
            let time = u128::from(ticks) * u128::from(numerator) / u128::from(denominator.max(1));
            u64::try_from(time).unwrap_or(u64::MAX)
        };
        let is_host = is_init || event.clock == DelegateClock::Host;
        // A device whose clock nobody compared begins when the host begins to wait for it.
        let base = match (event.clock, thread.waited) {
            (DelegateClock::DeviceAlone, Some(waited)) => waited,
            _ => since,
        };
        let (start, end) = (nanoseconds(event.start), nanoseconds(event.end));
        let (start, end) = (base.saturating_add(start), base.saturating_add(end));
        if is_host && event.name == WAIT {
            thread.waited = Some(start);
        }
        state.add(Event {
            kind: if is_init { Kind::DelegateInitPart } else { Kind::DelegatePart },
            name: event.name.into(),
            instruction: Some(instruction),
            part: Some(event.id),
            detail: event.metadata.to_vec(),
            location: if is_host { Location::Host(number) } else { Location::Device },
            start,
            end,
        });
    }

    fn allocated(&self, allocation: &Allocation<'_>) {
        let time = Some(self.now());
        let mut state = self.state();
        let Some(run) = state.recording.runs.last_mut() else { return };
        // As many as events: a program that loads methods for days does not fill memory.
        if run.allocations.len() < MOST_ALLOCATIONS {
            let (allocator, bytes) = (allocation.allocator.to_owned(), allocation.bytes);
            run.allocations.push(AllocationRecord { allocator, bytes, time });
        }
    }

    fn wants_outputs(&self) -> bool {
        self.room.is_some()
    }

    fn output(&self, event: &core::Event<'_>, arg: usize, value: &OutputValue<'_>) {
        if let Some(room) = self.room {
            let is_output = event.kind == EventKind::Execute;
            if self.only_outputs && !is_output {
                return;
            }
            let instruction = (!is_output).then(|| number(event.instruction));
            self.state().keep(instruction, event.name, arg, value, room);
        }
    }
}
