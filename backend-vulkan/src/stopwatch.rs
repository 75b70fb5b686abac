//! Measures the phases of a load or run on the host.

use std::time::Instant;
use torchlet_core::{DelegateClock, DelegateEvent};

/// A phase of a load or run on the host.
struct Lap {
    name: &'static str,
    detail: String,
    start: u64,
    end: u64,
}

/// Measures the phases of a load or run on the host. Does nothing without a tracer.
pub(crate) struct Stopwatch {
    begin: Option<Instant>,
    /// Time measured before `begin`, in nanoseconds.
    before: u64,
    laps: Vec<Lap>,
    last: u64,
}

impl Stopwatch {
    pub(crate) fn new(runs: bool) -> Self {
        Stopwatch { begin: runs.then(Instant::now), before: 0, laps: Vec::new(), last: 0 }
    }

    /// Continues an earlier stopwatch that began at `start` or later. If it began before `start`,
    /// only the total time of its phases is kept.
    pub(crate) fn after(earlier: Stopwatch, start: Instant) -> Self {
        if earlier.begin.is_some_and(|begin| begin >= start) {
            return Stopwatch { begin: Some(Instant::now()), before: earlier.last, ..earlier };
        }
        let mut watch = Stopwatch::new(true);
        let parts = earlier.laps.iter().map(|lap| {
            format!(", {} {:.3} ms", lap.name, lap.end.saturating_sub(lap.start) as f64 / 1e6)
        });
        let all = format!("{:.3} ms", earlier.last as f64 / 1e6);
        watch.lap_of("opened earlier", all + &parts.collect::<String>());
        watch
    }

    /// Ends the current phase, which gets this name, and begins the next one.
    pub(crate) fn lap(&mut self, name: &'static str) {
        self.lap_of(name, String::from("host"));
    }

    /// Ends the current phase, which gets this name and detail text, and begins the next one.
    pub(crate) fn lap_of(&mut self, name: &'static str, detail: String) {
        let Some(begin) = self.begin else { return };
        let elapsed = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = self.before.saturating_add(elapsed);
        self.laps.push(Lap { name, detail, start: self.last, end: now });
        self.last = now;
    }

    /// Returns the nanoseconds from the start of the stopwatch to `time`. Returns `None` if the
    /// stopwatch is not running or started later.
    pub(crate) fn nanoseconds_until(&self, time: Instant) -> Option<u64> {
        let since = time.checked_duration_since(self.begin?)?;
        Some(self.before.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Reports all phases to the tracer.
    pub(crate) fn report(&self, tell: impl Fn(&DelegateEvent<'_>)) {
        for (order, lap) in self.laps.iter().enumerate() {
            tell(&DelegateEvent {
                name: lap.name,
                id: order as u32,
                start: lap.start,
                end: lap.end,
                nanoseconds_per_tick: (1, 1),
                clock: DelegateClock::Host,
                metadata: lap.detail.as_bytes(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn earlier_phases_are_summarised() {
        let start = Instant::now();
        let mut opening = Stopwatch::new(true);
        opening.lap("one");
        let mut watch = Stopwatch::after(opening, start);
        watch.lap("two");
        let names = RefCell::new(Vec::new());
        watch.report(|event| names.borrow_mut().push(event.name.to_owned()));
        assert_eq!(*names.borrow(), ["one", "two"]);

        let mut opening = Stopwatch { laps: Vec::new(), last: 5_000_000, ..Stopwatch::new(true) };
        opening.laps.push(Lap { name: "one", detail: String::new(), start: 0, end: 5_000_000 });
        let start = Instant::now() + std::time::Duration::from_secs(1);
        Stopwatch::after(opening, start).report(|event| {
            assert_eq!(event.name, "opened earlier");
            assert_eq!(event.metadata, b"5.000 ms, one 5.000 ms");
            assert!(event.end < 5_000_000, "the earlier phases were counted");
        });
    }

    #[test]
    fn laps_are_consecutive() {
        let mut watch = Stopwatch::new(true);
        watch.lap("one");
        watch.lap("two");
        let told = RefCell::new(Vec::new());
        watch.report(|event| {
            told.borrow_mut().push((event.name.to_owned(), event.start, event.end))
        });
        let told = told.into_inner();
        assert_eq!(told.len(), 2);
        assert_eq!((told[0].0.as_str(), told[0].1, told[1].0.as_str()), ("one", 0, "two"));
        assert_eq!(told[0].2, told[1].1);
        assert!(told[1].2 >= told[1].1);
    }

    #[test]
    fn stopwatch_continues_earlier_one() {
        let start = Instant::now();
        let mut first = Stopwatch::new(true);
        first.lap("one");
        let mut second = Stopwatch::after(first, start);
        second.lap("two");
        let told = RefCell::new(Vec::new());
        second.report(|event| told.borrow_mut().push((event.start, event.end)));
        let told = told.into_inner();
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].1, told[1].0);
    }

    #[test]
    fn stopwatch_without_listener_is_silent() {
        let mut watch = Stopwatch::new(false);
        watch.lap("one");
        watch.report(|_| panic!("reported without a listener"));
    }
}
