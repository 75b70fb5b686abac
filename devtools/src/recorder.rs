//! [`Recorder`]: an event tracer that stores everything.

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

/// Maximum number of stored events. Later ones are only counted, so that a long-running program
/// does not exhaust memory.
const MAX_EVENTS: usize = 1 << 20;
/// Maximum number of stored allocations per run.
const MAX_ALLOCATIONS: usize = 1 << 12;
/// Maximum number of stored values.
const MAX_VALUES: usize = 1 << 20;

/// Part of a call during which the host waits for the device.
const WAIT: &str = "submit and wait";

/// Event tracer that records every event in order and, optionally, the values that instructions
/// write.
///
/// ```
/// use std::sync::Arc;
/// use torchlet_devtools::{Recorder, etdump};
///
/// let recorder = Arc::new(Recorder::new().with_values(1 << 20));
/// // let builder = torchlet::Module::builder().event_tracer(recorder.clone());
/// // let mut module = builder.load("model.pte")?;
/// // ... run it ...
/// let recording = recorder.recording();
/// let dump = etdump::write(&recording, etdump::DelegateIds::Names);
/// # let _ = dump;
/// ```
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    /// Maximum total size of recorded values in bytes. `None` disables values.
    max_value_bytes: Option<usize>,
    /// Whether only events that span a load or run are recorded.
    only_methods: bool,
    /// Whether only outputs of programs are recorded as values.
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

/// State of a thread.
#[derive(Debug)]
struct Thread {
    number: u32,
    /// Current delegate: whether it is being initialised, its instruction, and the start time.
    delegate: Option<(bool, u32, u64)>,
    /// Start of the last wait for a device.
    wait_start: Option<u64>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}

/// Saturates an instruction index to the 32 bits of the file format.
fn to_u32(instruction: usize) -> u32 {
    u32::try_from(instruction).unwrap_or(u32::MAX)
}

impl Recorder {
    /// Creates a recorder of events without values.
    pub fn new() -> Self {
        Recorder {
            start: Instant::now(),
            max_value_bytes: None,
            only_methods: false,
            only_outputs: false,
            state: Mutex::default(),
        }
    }

    /// Also records values that instructions write, up to this total size in bytes.
    #[must_use]
    pub fn with_values(self, bytes: usize) -> Self {
        Recorder { max_value_bytes: Some(bytes), ..self }
    }

    /// Only records loads and runs as a whole, without their details.
    #[must_use]
    pub fn of_methods(self) -> Self {
        Recorder { only_methods: true, ..self }
    }

    /// Only records outputs of programs as values, without intermediate ones.
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

    /// Returns a copy of the recording so far.
    pub fn recording(&self) -> Recording {
        self.state().recording.clone()
    }

    /// Returns the recording so far, and starts a new one.
    pub fn take(&self) -> Recording {
        let mut state = self.state();
        (state.events, state.values) = (0, 0);
        std::mem::take(&mut state.recording)
    }

    /// Starts a named block for values that do not come from a run.
    pub fn begin_block(&self, name: &str) {
        self.state().begin_run(RunKind::Other, name);
    }

    /// Assigns a test case to the last run.
    pub fn set_test_case(&self, index: usize) {
        if let Some(run) = self.state().recording.runs.last_mut() {
            run.test_case = Some(index);
        }
    }
}

impl State {
    fn thread(&mut self) -> &mut Thread {
        let next = to_u32(self.threads.len());
        self.threads.entry(thread::current().id()).or_insert(Thread {
            number: next,
            delegate: None,
            wait_start: None,
        })
    }

    fn begin_run(&mut self, kind: RunKind, name: &str) {
        if self.events < MAX_EVENTS {
            self.recording.runs.push(Run::new(kind, name));
        }
    }

    fn add(&mut self, event: Event) {
        if self.events == MAX_EVENTS {
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
        max_value_bytes: usize,
    ) {
        let Some((kind, scalar_type, sizes, bytes)) = contents(value) else { return };
        let Recording { runs, buffer, dropped_values, .. } = &mut self.recording;
        let Some(run) = runs.last_mut() else { return };
        // Tensor data is aligned to 64 bytes for readers.
        let start = buffer.len().next_multiple_of(64);
        let end = start.saturating_add(bytes);
        if end > max_value_bytes || self.values == MAX_VALUES {
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
        // Missing bytes, which should not occur, are zero.
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

/// Dtype in which values are stored. Readers of ETDumps do not support `bfloat16`, which `float32`
/// represents exactly.
fn kept_type(scalar_type: ScalarType) -> ScalarType {
    if scalar_type == ScalarType::BFloat16 { ScalarType::Float } else { scalar_type }
}

/// Kind, dtype, shape and size of a stored value.
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

/// Appends a scalar as an element.
fn element(scalar: Scalar, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Int(value) => out.extend(value.to_le_bytes()),
        Scalar::Bool(value) => out.push(value.into()),
        Scalar::Double(value) => out.extend(value.to_le_bytes()),
    }
}

/// Appends the elements in row-major order: readers of ETDumps ignore strides.
fn row_major(tensor: &TensorRef<'_>, out: &mut Vec<u8>) {
    let (info, bytes) = (tensor.info(), tensor.bytes());
    let size = info.scalar_type.size();
    let mut append = |element: &[u8]| match (info.scalar_type, element) {
        // bfloat16 is the upper half of a float32.
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
                state.thread().delegate = Some((is_init, to_u32(event.instruction), now));
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
            (thread.delegate, thread.wait_start) = (None, None);
        }
        let location = Location::Host(thread.number);
        if self.only_methods && !matches!(kind, Kind::Load | Kind::Execute) {
            return;
        }
        state.add(Event {
            kind,
            name: event.name.into(),
            instruction: has_instruction.then(|| to_u32(event.instruction)),
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
        let (is_init, instruction, since) = thread.delegate.unwrap_or((false, 0, now));
        let (numerator, denominator) = event.nanoseconds_per_tick;
        let nanoseconds = |ticks: u64| {
            let time = u128::from(ticks) * u128::from(numerator) / u128::from(denominator.max(1));
            u64::try_from(time).unwrap_or(u64::MAX)
        };
        let is_host = is_init || event.clock == DelegateClock::Host;
        // If the clocks are unrelated, the device starts when the host begins to wait for it.
        let base = match (event.clock, thread.wait_start) {
            (DelegateClock::DeviceAlone, Some(wait_start)) => wait_start,
            _ => since,
        };
        let (start, end) = (nanoseconds(event.start), nanoseconds(event.end));
        let (start, end) = (base.saturating_add(start), base.saturating_add(end));
        if is_host && event.name == WAIT {
            thread.wait_start = Some(start);
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
        // Bounded like events, so that repeated loading does not exhaust memory.
        if run.allocations.len() < MAX_ALLOCATIONS {
            let (allocator, bytes) = (allocation.allocator.to_owned(), allocation.bytes);
            run.allocations.push(AllocationRecord { allocator, bytes, time });
        }
    }

    fn wants_outputs(&self) -> bool {
        self.max_value_bytes.is_some()
    }

    fn output(&self, event: &core::Event<'_>, arg: usize, value: &OutputValue<'_>) {
        if let Some(max_value_bytes) = self.max_value_bytes {
            let is_output = event.kind == EventKind::Execute;
            if self.only_outputs && !is_output {
                return;
            }
            let instruction = (!is_output).then(|| to_u32(event.instruction));
            self.state().keep(instruction, event.name, arg, value, max_value_bytes);
        }
    }
}
