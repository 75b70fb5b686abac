//! Measuring where the time of a method goes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use torchlet_core::{DelegateEvent, Event, EventKind, EventTracer};

/// An event tracer that adds up the time of every instruction.
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
    entries: Mutex<BTreeMap<Key, Sum>>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Order of kinds: load, delegate initialisation, execution, then what is inside it.
    kind: u8,
    instruction: usize,
    name: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    kind: Option<ProfileKind>,
    count: u64,
    total: Duration,
    longest: Duration,
}

/// What was measured.
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
    /// A part of a delegate's run, measured by the delegate.
    DelegatePart,
}

/// The time that one instruction took, over all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileEntry {
    /// What was measured.
    pub kind: ProfileKind,
    /// The operator, backend or method.
    pub name: String,
    /// The instruction's index; a delegate's, for its initialisation.
    pub instruction: usize,
    /// How often it ran.
    pub count: u64,
    /// The time of all runs.
    pub total: Duration,
    /// The time of the longest run.
    pub longest: Duration,
}

impl Default for Profiler {
    fn default() -> Self {
        Profiler::new()
    }
}

impl Profiler {
    /// A profiler that has recorded nothing.
    pub fn new() -> Self {
        Profiler { start: Instant::now(), entries: Mutex::default() }
    }

    /// What was recorded: methods first, then instructions in their order.
    pub fn entries(&self) -> Vec<ProfileEntry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = entries.iter().filter_map(|(key, sum)| {
            Some(ProfileEntry {
                kind: sum.kind?,
                name: key.name.clone(),
                instruction: key.instruction,
                count: sum.count,
                total: sum.total,
                longest: sum.longest,
            })
        });
        entries.collect()
    }

    /// Forgets what was recorded, for instance after warming up.
    pub fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn add(&self, kind: ProfileKind, name: &str, instruction: usize, time: Duration) {
        let key = Key { kind: kind as u8, instruction, name: name.into() };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = entries.entry(key).or_default();
        sum.kind = Some(kind);
        sum.count += 1;
        sum.total = sum.total.saturating_add(time);
        sum.longest = sum.longest.max(time);
    }
}

impl EventTracer for Profiler {
    fn begin(&self, _: &Event<'_>) -> u64 {
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
        self.add(kind, event.name, event.instruction, time);
    }

    fn delegate_event(&self, event: &DelegateEvent<'_>) {
        let (numerator, denominator) = event.nanoseconds_per_tick;
        let ticks = u128::from(event.end.saturating_sub(event.start));
        let nanoseconds = ticks * u128::from(numerator) / u128::from(denominator.max(1));
        let time = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.add(ProfileKind::DelegatePart, event.name, event.id as usize, time);
    }
}
