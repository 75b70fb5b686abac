//! A tracer for machines without anything: it writes times into memory of the caller, with the
//! caller's clock.

use crate::tracer::{Event, EventKind, EventTracer};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A clock, such as a processor's cycle counter.
pub trait Clock: Sync {
    /// Ticks since some moment. The counter may wrap; what takes less than its whole range is
    /// measured right.
    fn ticks(&self) -> u32;
}

/// Memory for one [`Record`], to be put into statics.
#[derive(Debug)]
pub struct RecordSlot([AtomicU32; 4]);

impl RecordSlot {
    /// A slot with nothing in it.
    #[allow(clippy::declare_interior_mutable_const, reason = "arrays of slots are made of it")]
    pub const EMPTY: Self = RecordSlot([const { AtomicU32::new(0) }; 4]);
}

/// How long something took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Record {
    /// What it was.
    pub kind: EventKind,
    /// The index of the instruction or, for [`EventKind::DelegateInit`], of the delegate.
    /// [`MethodMeta::instruction_names`](crate::MethodMeta::instruction_names) tells what it runs.
    pub instruction: u32,
    /// When it began, in ticks.
    pub start: u32,
    /// How many ticks it took, what it contains included.
    pub ticks: u32,
}

/// Records events in the order in which they begin, until its memory is full.
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
/// It is meant for one thread. If several trace with it at once, records may be lost, nothing
/// worse.
pub struct Recorder<'r> {
    clock: &'r dyn Clock,
    slots: &'r [RecordSlot],
    begun: AtomicU32,
}

/// The kinds of events, by their number in a slot.
const KINDS: [EventKind; 5] = [
    EventKind::Load,
    EventKind::DelegateInit,
    EventKind::Execute,
    EventKind::Operator,
    EventKind::Delegate,
];

impl<'r> Recorder<'r> {
    /// Records with this clock into these slots.
    pub const fn new(clock: &'r dyn Clock, slots: &'r [RecordSlot]) -> Self {
        Recorder { clock, slots, begun: AtomicU32::new(0) }
    }

    /// The records so far. What has not ended yet has taken no time.
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

    /// How many events found no slot any more.
    pub fn missed(&self) -> usize {
        (self.begun.load(Relaxed) as usize).saturating_sub(self.slots.len())
    }

    /// Forgets all records.
    pub fn clear(&self) {
        self.begun.store(0, Relaxed);
    }
}

impl EventTracer for Recorder<'_> {
    fn begin(&self, event: &Event<'_>) -> u64 {
        // Not one step, since the smallest processors have none that reads and writes.
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

    /// Each look at it takes a tick; it wraps soon.
    struct Counter(AtomicU32);

    impl Clock for Counter {
        fn ticks(&self) -> u32 {
            self.0.fetch_add(1, Relaxed)
        }
    }

    #[test]
    fn times_are_kept_until_the_slots_are_full() {
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
        // The third event looked at the clock at its end alone.
        assert_eq!(found, [(EventKind::Execute, 0, 4), (EventKind::Operator, 7, 1)]);
        assert_eq!(recorder.missed(), 1);
        recorder.clear();
        assert_eq!((recorder.records().count(), recorder.missed()), (0, 0));
    }
}
