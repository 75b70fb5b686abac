//! [`Profiler`]: an event tracer that measures operators and delegates.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use torchlet_core::{DelegateEvent, Event, EventKind, EventTracer};

/// Event tracer that sums up the time of each instruction, and of the events that delegates report.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use torchlet::{Module, Profiler};
/// let profiler = Arc::new(Profiler::new());
/// let mut module = Module::builder().event_tracer(profiler.clone()).load("model.pte")?;
/// // ... run it ...
/// for entry in profiler.entries() {
///     println!("{:40} {:6} {:?}", entry.name, entry.count, entry.total);
/// }
/// # Ok::<(), torchlet::Error>(())
/// ```
#[derive(Debug)]
pub struct Profiler {
    start: Instant,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    entries: BTreeMap<Key, Sum>,
    /// Current delegate event of each thread: its kind and instruction index.
    inside: HashMap<ThreadId, (EventKind, usize)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Sort order of kinds: load, delegate initialisation, execution, then its operators and
    /// delegates.
    kind: u8,
    instruction: usize,
    part: u32,
    name: String,
}

#[derive(Debug, Clone, Default)]
struct Sum {
    kind: Option<ProfileKind>,
    count: u64,
    total: Duration,
    longest: Duration,
    first_start: Duration,
    detail: String,
}

/// Kind of a measured event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileKind {
    /// Loading a method.
    Load,
    /// Initialising a delegate.
    DelegateInit,
    /// Running a method.
    Execute,
    /// Running an operator.
    Operator,
    /// Running a delegate.
    Delegate,
    /// Part of a delegate's run, measured by the delegate.
    DelegatePart,
    /// Part of a delegate's initialisation, measured by the delegate.
    DelegateInitPart,
}

/// Total time of one instruction, or of one part of a delegate, over all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileEntry {
    /// Kind of the event.
    pub kind: ProfileKind,
    /// Name of the operator, backend or method.
    pub name: String,
    /// Instruction index. For the initialisation of a delegate, the delegate index; for a part of a
    /// delegate, the index of the instruction that calls the delegate.
    pub instruction: usize,
    /// The delegate's identifier of a part (on GPUs: the index of the operator call). 0 for other
    /// events.
    pub part: u32,
    /// Details of a part from its delegate (on GPUs: the output shape and the shader variant).
    pub detail: String,
    /// Number of runs.
    pub count: u64,
    /// Total time of all runs.
    pub total: Duration,
    /// Time of the longest run.
    pub longest: Duration,
}

impl Default for Profiler {
    fn default() -> Self {
        Profiler::new()
    }
}

impl Profiler {
    /// Creates a profiler without records.
    pub fn new() -> Self {
        Profiler { start: Instant::now(), record: Mutex::default() }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Recorded entries: methods first, then instructions in program order, then parts of delegates
    /// in their order.
    pub fn entries(&self) -> Vec<ProfileEntry> {
        let record = self.record();
        let mut sums: Vec<(&Key, &Sum)> = record.entries.iter().collect();
        sums.sort_by_key(|(key, sum)| (key.kind, key.instruction, sum.first_start));
        let entries = sums.into_iter().filter_map(|(key, sum)| {
            Some(ProfileEntry {
                kind: sum.kind?,
                name: key.name.clone(),
                instruction: key.instruction,
                part: key.part,
                detail: sum.detail.clone(),
                count: sum.count,
                total: sum.total,
                longest: sum.longest,
            })
        });
        entries.collect()
    }

    /// Discards all records, for instance after a warm-up.
    pub fn clear(&self) {
        self.record().entries.clear();
    }
}

impl Record {
    fn add(
        &mut self,
        kind: ProfileKind,
        (name, instruction, part): (&str, usize, u32),
        time: Duration,
    ) -> &mut Sum {
        let key = Key { kind: kind as u8, instruction, part, name: name.into() };
        let sum = self.entries.entry(key).or_default();
        sum.kind = Some(kind);
        sum.count += 1;
        sum.total = sum.total.saturating_add(time);
        sum.longest = sum.longest.max(time);
        sum
    }
}

impl EventTracer for Profiler {
    fn begin(&self, event: &Event<'_>) -> u64 {
        if matches!(event.kind, EventKind::Delegate | EventKind::DelegateInit) {
            let inside = (event.kind, event.instruction);
            self.record().inside.insert(thread::current().id(), inside);
        }
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn end(&self, event: &Event<'_>, begin: u64) {
        let time = self.start.elapsed().saturating_sub(Duration::from_nanos(begin));
        let kind = match event.kind {
            EventKind::Load => ProfileKind::Load,
            EventKind::DelegateInit => ProfileKind::DelegateInit,
            EventKind::Execute => ProfileKind::Execute,
            EventKind::Operator => ProfileKind::Operator,
            _ => ProfileKind::Delegate,
        };
        let mut record = self.record();
        if matches!(kind, ProfileKind::Delegate | ProfileKind::DelegateInit) {
            record.inside.remove(&thread::current().id());
        }
        record.add(kind, (event.name, event.instruction, 0), time);
    }

    fn delegate_event(&self, event: &DelegateEvent<'_>) {
        let (numerator, denominator) = event.nanoseconds_per_tick;
        let duration = |ticks: u64| {
            let nanoseconds =
                u128::from(ticks) * u128::from(numerator) / u128::from(denominator.max(1));
            Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
        };
        let mut record = self.record();
        let (kind, instruction) = match record.inside.get(&thread::current().id()) {
            Some((EventKind::DelegateInit, index)) => (ProfileKind::DelegateInitPart, *index),
            Some((_, instruction)) => (ProfileKind::DelegatePart, *instruction),
            None => (ProfileKind::DelegatePart, 0),
        };
        let time = duration(event.end.saturating_sub(event.start));
        let sum = record.add(kind, (event.name, instruction, event.id), time);
        if sum.count == 1 {
            sum.first_start = duration(event.start);
            sum.detail = String::from_utf8_lossy(event.metadata).into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::DelegateClock;

    fn part<'e>(name: &'e str, id: u32, start: u64, end: u64) -> DelegateEvent<'e> {
        let (nanoseconds_per_tick, metadata) = ((2, 1), b"[4]");
        let clock = DelegateClock::Host;
        DelegateEvent { name, id, start, end, nanoseconds_per_tick, clock, metadata }
    }

    fn within(profiler: &Profiler, kind: EventKind, instruction: usize, body: impl Fn()) {
        let event = Event { kind, name: "gpu", instruction };
        let token = profiler.begin(&event);
        body();
        profiler.end(&event, token);
    }

    #[test]
    fn parts_are_grouped_by_delegate_and_ordered() {
        let profiler = Profiler::new();
        within(&profiler, EventKind::DelegateInit, 0, || {
            profiler.delegate_event(&part("compile", 0, 0, 5));
        });
        for instruction in [3, 3, 7] {
            within(&profiler, EventKind::Delegate, instruction, || {
                profiler.delegate_event(&part("second", 9, 10, 40));
                profiler.delegate_event(&part("first", 8, 0, 10));
            });
        }
        let entries = profiler.entries();
        let parts: Vec<_> = entries
            .iter()
            .filter(|entry| entry.kind == ProfileKind::DelegatePart)
            .map(|entry| (entry.instruction, entry.name.as_str(), entry.part, entry.count))
            .collect();
        let expected =
            [(3, "first", 8, 2), (3, "second", 9, 2), (7, "first", 8, 1), (7, "second", 9, 1)];
        assert_eq!(parts, expected);
        let second = entries.iter().find(|entry| entry.part == 9 && entry.count == 2).unwrap();
        assert_eq!(second.total, Duration::from_nanos(120));
        assert_eq!((second.longest, second.detail.as_str()), (Duration::from_nanos(60), "[4]"));
        let compile =
            entries.iter().find(|entry| entry.kind == ProfileKind::DelegateInitPart).unwrap();
        assert_eq!((compile.name.as_str(), compile.total), ("compile", Duration::from_nanos(10)));
    }
}
