//! A tracer for bare-metal targets: records durations in caller-provided memory, with the caller's
//! clock.

use crate::tracer::{Event, EventKind, EventTracer};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A clock, such as a processor's cycle counter.
pub trait Clock: Sync {
    /// Returns a tick count with arbitrary origin. The counter may wrap: durations shorter than its
    /// range are measured correctly.
    fn ticks(&self) -> u32;
}

/// Storage for one [`Record`], suitable for statics.
#[derive(Debug)]
pub struct RecordSlot([AtomicU32; 4]);

impl RecordSlot {
    /// An empty slot.
    #[allow(clippy::declare_interior_mutable_const, reason = "initialises arrays of slots")]
    pub const EMPTY: Self = RecordSlot([const { AtomicU32::new(0) }; 4]);
}

/// Duration of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Record {
    /// Kind of the event.
    pub kind: EventKind,
    /// Index of the instruction or, for [`EventKind::DelegateInit`], of the delegate.
    /// [`MethodMeta::instruction_names`](crate::MethodMeta::instruction_names) returns the names of
    /// instructions.
    pub instruction: u32,
    /// Start of the event, in ticks.
    pub start: u32,
    /// Duration in ticks, including nested events.
    pub ticks: u32,
}

/// Records events in the order in which they begin, until its slots are full.
///
/// ```
/// use torchlet_core::{Clock, LoadOptions, RecordSlot, Recorder};
///
/// struct Cycles;
/// impl Clock for Cycles {
///     fn ticks(&self) -> u32 {
///         0 // On a Cortex-M: `DWT::cycle_count()`.
///     }
/// }
/// static SLOTS: [RecordSlot; 64] = [RecordSlot::EMPTY; 64];
/// static RECORDER: Recorder<'static> = Recorder::new(&Cycles, &SLOTS);
/// let options = LoadOptions::default().with_tracer(&RECORDER);
/// # let _ = options;
/// assert_eq!(RECORDER.records().count(), 0);
/// ```
///
/// Intended for one thread: concurrent use may lose records, but is otherwise safe.
pub struct Recorder<'r> {
    clock: &'r dyn Clock,
    slots: &'r [RecordSlot],
    begun: AtomicU32,
}

/// Event kinds, indexed by their number in a slot.
const KINDS: [EventKind; 5] = [
    EventKind::Load,
    EventKind::DelegateInit,
    EventKind::Execute,
    EventKind::Operator,
    EventKind::Delegate,
];

impl<'r> Recorder<'r> {
    /// Creates a recorder from a clock and slots.
    pub const fn new(clock: &'r dyn Clock, slots: &'r [RecordSlot]) -> Self {
        Recorder { clock, slots, begun: AtomicU32::new(0) }
    }

    /// The records so far. Unfinished events have a duration of 0.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let begun = self.begun.load(Relaxed) as usize;
        self.slots.iter().take(begun).filter_map(|RecordSlot([kind, instruction, start, ticks])| {
            Some(Record {
                kind: *KINDS.get(kind.load(Relaxed) as usize)?,
                instruction: instruction.load(Relaxed),
                start: start.load(Relaxed),
                ticks: ticks.load(Relaxed),
            })
        })
    }

    /// Number of events that were dropped because all slots were full.
    pub fn missed(&self) -> usize {
        (self.begun.load(Relaxed) as usize).saturating_sub(self.slots.len())
    }

    /// Removes all records.
    pub fn clear(&self) {
        self.begun.store(0, Relaxed);
    }
}

impl EventTracer for Recorder<'_> {
    fn begin(&self, event: &Event<'_>) -> u64 {
        // Not an atomic read-modify-write: the smallest processors have no such instruction.
        let number = self.begun.load(Relaxed);
        self.begun.store(number.saturating_add(1), Relaxed);
        if let Some(RecordSlot([kind, instruction, start, ticks])) = self.slots.get(number as usize)
        {
            let number = KINDS.iter().position(|other| *other == event.kind);
            kind.store(number.unwrap_or(usize::MAX) as u32, Relaxed);
            instruction.store(event.instruction as u32, Relaxed);
            ticks.store(0, Relaxed);
            start.store(self.clock.ticks(), Relaxed);
        }
        number.into()
    }

    fn end(&self, _: &Event<'_>, token: u64) {
        let now = self.clock.ticks();
        let slot = usize::try_from(token).ok().and_then(|number| self.slots.get(number));
        if let Some(RecordSlot([_, _, start, ticks])) = slot {
            ticks.store(now.wrapping_sub(start.load(Relaxed)), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// A counter that advances by one tick per read and wraps early.
    struct Counter(AtomicU32);

    impl Clock for Counter {
        fn ticks(&self) -> u32 {
            self.0.fetch_add(1, Relaxed)
        }
    }

    #[test]
    fn events_are_recorded_until_slots_are_full() {
        let clock = Counter(AtomicU32::new(u32::MAX - 1));
        let slots = [const { RecordSlot::EMPTY }; 2];
        let recorder = Recorder::new(&clock, &slots);
        let event = |kind, instruction| Event { kind, name: "", instruction };
        let outer = event(EventKind::Execute, 0);
        let outer_token = recorder.begin(&outer);
        for instruction in [7, 8] {
            let inner = event(EventKind::Operator, instruction);
            let token = recorder.begin(&inner);
            recorder.end(&inner, token);
        }
        recorder.end(&outer, outer_token);
        let found: Vec<_> = recorder.records().map(|r| (r.kind, r.instruction, r.ticks)).collect();
        // The third event, which was dropped, reads the clock only at its end.
        assert_eq!(found, [(EventKind::Execute, 0, 4), (EventKind::Operator, 7, 1)]);
        assert_eq!(recorder.missed(), 1);
        recorder.clear();
        assert_eq!((recorder.records().count(), recorder.missed()), (0, 0));
    }
}
