//! Trace events of a run: the time of every command on the device, and of every phase on the host.

use crate::device::Clock;
use std::time::Instant;
use torchlet_core::{DelegateCall, DelegateClock, DelegateEvent};
use torchlet_gpu::device::PipelineKey;

/// The label of a recorded command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    /// The operator and the shader, or the transfer.
    pub(crate) name: String,
    /// The id of the operator's call in the blob, or the position of the input or output.
    pub(crate) id: u32,
    /// The output shape, the shader variant, and the choices made by autotuning.
    pub(crate) detail: String,
    /// The index of the call that it belongs to.
    pub(crate) call: Option<usize>,
}

/// The specialisation constants that define how work is divided. Together with the module name and
/// the workgroup size, they distinguish variants.
const DIVISION: &[&str] = &[
    "rows",
    "quads",
    "shares",
    "tile",
    "tile_m",
    "tile_n",
    "tile_k",
    "tile_x",
    "tile_y",
    "lanes",
    "sums",
    "channels",
    "teams",
    "parts",
    "key_parts",
    "value_parts",
    "term_parts",
];

/// Describes the variant of a shader for users: the workgroup size and the division of work.
pub(crate) fn variant(key: &PipelineKey) -> String {
    let [x, y, z] = key.workgroup;
    let mut text = format!("{x}×{y}×{z} invocations");
    let mut values = key.constants.iter();
    for field in key.module.constants {
        let own = values.by_ref().take(field.count);
        if DIVISION.contains(&field.name) {
            own.for_each(|value| text.push_str(&format!(", {} {value}", field.name)));
        } else {
            own.for_each(drop);
        }
    }
    text
}

/// Reports the commands of a recording. `times` are the timestamps before the first command and
/// after each command. `first` is the first timestamp in ticks since the delegate was called, if
/// known.
pub(crate) fn report_commands(
    call: &DelegateCall<'_, '_>,
    labels: &[Label],
    device: &Clock,
    times: &[u64],
    first: Option<u64>,
) {
    let clock = if first.is_some() { DelegateClock::Device } else { DelegateClock::DeviceAlone };
    let base = first.unwrap_or(0);
    let times = device.since_first(times);
    for (label, pair) in labels.iter().zip(times.windows(2)) {
        let [start, end] = *pair else { continue };
        call.trace(&DelegateEvent {
            name: &label.name,
            id: label.id,
            start: base.saturating_add(start),
            end: base.saturating_add(end.max(start)),
            nanoseconds_per_tick: device.nanoseconds_per_tick,
            clock,
            metadata: label.detail.as_bytes(),
        });
    }
}

/// A phase of a run on the host.
struct Lap {
    name: &'static str,
    detail: String,
    start: u64,
    end: u64,
}

/// Measures the phases of a run on the host; does nothing without a listener.
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

    /// Continues an earlier stopwatch that began at `start` or later. For one that began before,
    /// its phases are only summarised, as the time that they lasted.
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

    /// Ends a phase and begins the next one.
    pub(crate) fn lap(&mut self, name: &'static str) {
        self.lap_of(name, String::from("host"));
    }

    /// Ends a phase that has a detail text.
    pub(crate) fn lap_of(&mut self, name: &'static str, detail: String) {
        let Some(begin) = self.begin else { return };
        let elapsed = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = self.before.saturating_add(elapsed);
        self.laps.push(Lap { name, detail, start: self.last, end: now });
        self.last = now;
    }

    /// Returns the nanoseconds from the start of the stopwatch to `time`; `None` if it is not
    /// running or started later.
    pub(crate) fn nanoseconds_until(&self, time: Instant) -> Option<u64> {
        let since = time.checked_duration_since(self.begin?)?;
        Some(self.before.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Reports all phases.
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
    use torchlet_shaders::{AttentionCooperative, Element, Pipeline};

    #[test]
    fn variant_lists_workgroup_and_division() {
        let pipeline = AttentionCooperative {
            mask: Element::F32,
            output: Element::F16,
            has_mask: false,
            causal: true,
            hidden_zeros: false,
            sides: 4,
            value_sides: 4,
            parts: 2,
            key_parts: 2,
            value_parts: 1,
        };
        let module = AttentionCooperative::MODULE;
        let key = PipelineKey { module, constants: pipeline.constants(), workgroup: [64, 1, 1] };
        assert_eq!(variant(&key), "64×1×1 invocations, parts 2, key_parts 2, value_parts 1");
        // After array constants, which have several values under one name.
        let fields = torchlet_shaders::Pointwise::MODULE.constants;
        let constants = (0..fields.iter().map(|field| field.count as u32).sum()).collect();
        let module = torchlet_shaders::Pointwise::MODULE;
        let key = PipelineKey { module, constants, workgroup: [64, 2, 1] };
        assert_eq!(variant(&key), "64×2×1 invocations");
    }

    #[test]
    fn division_constants_exist_in_shaders() {
        let of = |name: &str| {
            let mut modules = torchlet_shaders::MODULES.iter();
            modules.any(|module| module.constants.iter().any(|field| field.name == name))
        };
        assert!(DIVISION.iter().all(|name| of(name)), "{DIVISION:?}");
    }

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
