//! Events as ExecuTorch's tools read them: an ETDump.
//!
//! The fields are those of the public schema `etdump_schema_flatcc.fbs`.

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use torchlet::core::{DelegateEvent, Event, EventKind, EventTracer};

/// Events that are kept; what comes behind them is dropped, so that a program that runs for days does not fill memory.
const MOST: usize = 1 << 20;

/// Records every event, in order.
pub(crate) struct Trace {
    start: Instant,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    runs: Vec<Run>,
    count: usize,
}

/// What happened while a method was loaded or ran.
struct Run {
    name: &'static str,
    events: Vec<Recorded>,
}

struct Recorded {
    name: String,
    /// Where it is one.
    instruction: Option<usize>,
    /// The delegate's own number of it.
    part: Option<u32>,
    metadata: Vec<u8>,
    start: u64,
    end: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { start: Instant::now(), record: Mutex::default() }
    }
}

/// The names of runs, as ExecuTorch has them.
const LOAD: &str = "Load";
const EXECUTE: &str = "Execute";

impl Trace {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// All that was recorded, with its size in front, as ExecuTorch writes it.
    pub(crate) fn etdump(&self) -> Vec<u8> {
        write(&self.record().runs)
    }
}

impl Record {
    fn begin_run(&mut self, name: &'static str) {
        if self.count < MOST {
            self.runs.push(Run { name, events: Vec::new() });
        }
    }

    fn add(&mut self, event: Recorded) {
        if self.count == MOST {
            return;
        }
        self.count += 1;
        if self.runs.is_empty() {
            self.begin_run(LOAD);
        }
        if let Some(run) = self.runs.last_mut() {
            run.events.push(event);
        }
    }
}

impl EventTracer for Trace {
    fn begin(&self, event: &Event<'_>) -> u64 {
        match event.kind {
            EventKind::Load => self.record().begin_run(LOAD),
            EventKind::Execute => self.record().begin_run(EXECUTE),
            _ => {}
        }
        self.now()
    }

    fn end(&self, event: &Event<'_>, start: u64) {
        let end = self.now();
        let recorded = |name: String, instruction| Recorded {
            name,
            instruction,
            part: None,
            metadata: Vec::new(),
            start,
            end,
        };
        let mut record = self.record();
        match event.kind {
            EventKind::Operator => {
                // ExecuTorch tells of the call, and of the kernel in it, without its namespace.
                let kernel = event.name.rsplit("::").next().unwrap_or(event.name);
                record.add(recorded(format!("native_call_{kernel}"), Some(event.instruction)));
                record.add(recorded("OPERATOR_CALL".into(), Some(event.instruction)));
            }
            EventKind::Delegate => {
                record.add(recorded("DELEGATE_CALL".into(), Some(event.instruction)));
            }
            EventKind::DelegateInit => record.add(recorded(format!("{}::init", event.name), None)),
            EventKind::Load => record.add(recorded("Method::init".into(), None)),
            _ => record.add(recorded("Method::execute".into(), None)),
        }
    }

    fn delegate_event(&self, event: &DelegateEvent<'_>) {
        let (numerator, denominator) = event.nanoseconds_per_tick;
        let nanoseconds = |ticks: u64| {
            let time = u128::from(ticks) * u128::from(numerator) / u128::from(denominator.max(1));
            u64::try_from(time).unwrap_or(u64::MAX)
        };
        self.record().add(Recorded {
            name: event.name.into(),
            instruction: None,
            part: Some(event.id),
            metadata: event.metadata.to_vec(),
            start: nanoseconds(event.start),
            end: nanoseconds(event.end),
        });
    }
}

type Table = WIPOffset<TableFinishedWIPOffset>;

/// The place of field `number` in a table's list of them.
const fn field(number: u16) -> u16 {
    4 + 2 * number
}

fn write(runs: &[Run]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let runs: Vec<Table> = runs.iter().map(|run| write_run(&mut builder, run)).collect();
    let runs = builder.create_vector(&runs);
    let table = builder.start_table();
    // Version 0 of the schema.
    builder.push_slot_always(field(0), 0u32);
    builder.push_slot_always(field(1), runs);
    let table = builder.end_table(table);
    builder.finish_size_prefixed(table, Some("ED00"));
    builder.finished_data().to_vec()
}

fn write_run(builder: &mut FlatBufferBuilder<'_>, run: &Run) -> Table {
    let events: Vec<Table> = run.events.iter().map(|event| write_event(builder, event)).collect();
    let events = builder.create_vector(&events);
    let allocators = builder.create_vector::<Table>(&[]);
    let name = builder.create_shared_string(run.name);
    let table = builder.start_table();
    builder.push_slot_always(field(0), name);
    builder.push_slot(field(1), -1i32, -1);
    builder.push_slot_always(field(2), allocators);
    builder.push_slot_always(field(3), events);
    builder.end_table(table)
}

fn write_event(builder: &mut FlatBufferBuilder<'_>, event: &Recorded) -> Table {
    let name = builder.create_shared_string(&event.name);
    let metadata = (!event.metadata.is_empty()).then(|| builder.create_vector(&event.metadata));
    let number = |number: Option<usize>| number.and_then(|number| i32::try_from(number).ok());
    let profile = builder.start_table();
    builder.push_slot_always(field(0), name);
    builder.push_slot(field(1), 0i32, 0);
    builder.push_slot(field(2), number(event.instruction).unwrap_or(-1), -1);
    let part = number(event.part.map(|part| part as usize));
    builder.push_slot(field(3), part.unwrap_or(-1), -1);
    if let Some(metadata) = metadata {
        builder.push_slot_always(field(5), metadata);
    }
    builder.push_slot_always(field(6), event.start);
    builder.push_slot_always(field(7), event.end);
    let profile = builder.end_table(profile);
    let table = builder.start_table();
    builder.push_slot_always(field(0), profile);
    builder.end_table(table)
}
