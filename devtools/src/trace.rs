//! Timelines in Chrome's Trace Event Format, for Perfetto and `chrome://tracing`.

use crate::recording::{Event, Kind, Location, Recording, Run, RunKind};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Converts a recording to a JSON object. Host threads and devices share a time base, if the device
/// clock can be related to the host clock. Otherwise, the first command of a device starts when the
/// host began to wait for it. Allocations become a counter.
pub fn object(recording: &Recording, program: &str) -> Value {
    let mut events = Vec::new();
    let mut tracks = BTreeSet::new();
    let mut memory: BTreeMap<&str, u64> = BTreeMap::new();
    for run in &recording.runs {
        for allocation in &run.allocations {
            let Some(time) = allocation.time else { continue };
            let sum = memory.entry(&allocation.allocator).or_default();
            *sum = sum.saturating_add(allocation.bytes);
            tracks.insert((HOST, 0));
            events.push(json!({
                "ph": "C",
                "pid": HOST,
                "tid": 0,
                "ts": micros(time),
                "name": "memory",
                "args": memory,
            }));
        }
        for event in &run.events {
            let (process, thread) = track(event);
            tracks.insert((process, thread));
            events.push(slice(run, event, process, thread));
        }
    }
    let names = [(HOST, format!("host: {program}")), (DEVICE, "device".to_owned())];
    for (process, name) in names {
        if tracks.iter().any(|(found, _)| *found == process) {
            events.push(named("process_name", process, 0, &name));
        }
    }
    for (process, thread) in tracks {
        let name = match process {
            HOST if thread == 0 => "memory".to_owned(),
            HOST => format!("thread {thread}"),
            _ => "queue".to_owned(),
        };
        events.push(named("thread_name", process, thread, &name));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns" })
}

/// Converts to microseconds, the unit of the format.
fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

fn track(event: &Event) -> (u32, u32) {
    match event.location {
        Location::Host(thread) => (HOST, thread + 1),
        Location::Device => (DEVICE, 1),
    }
}

fn slice(run: &Run, event: &Event, process: u32, thread: u32) -> Value {
    let mut args = Map::new();
    for (key, number) in [("instruction", event.instruction), ("part", event.part)] {
        if let Some(number) = number {
            args.insert(key.into(), number.into());
        }
    }
    if !event.detail.is_empty() && event.detail != b"host" {
        args.insert("detail".into(), event.detail_text().into());
    }
    let name = match (event.kind, run.kind) {
        (Kind::Load, _) => format!("load {}", event.name),
        (Kind::Execute, RunKind::Execute) => format!("run {}", event.name),
        (Kind::DelegateInit, _) => format!("initialise {}", event.name),
        _ => event.name.clone(),
    };
    json!({
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": micros(event.start),
        "dur": micros(event.nanoseconds()),
        "name": name,
        "cat": category(event.kind),
        "args": args,
    })
}

fn category(kind: Kind) -> &'static str {
    match kind {
        Kind::Load | Kind::DelegateInit | Kind::DelegateInitPart => "load",
        Kind::Execute => "run",
        Kind::Operator => "kernel",
        Kind::Delegate => "delegate",
        Kind::DelegatePart => "part",
        Kind::Other => "other",
    }
}

fn named(what: &str, process: u32, thread: u32, name: &str) -> Value {
    json!({ "ph": "M", "pid": process, "tid": thread, "name": what, "args": { "name": name } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorder;
    use torchlet_core::{
        self as core, Allocation, DelegateClock, DelegateEvent, EventKind, EventTracer,
    };

    /// A load and two runs with an operator and a delegate, with parts on the host and on a device
    /// with its own clock.
    fn recorded(clock: DelegateClock) -> Recording {
        let recorder = Recorder::new();
        let begin = |kind, name, instruction| {
            let event = core::Event { kind, name, instruction };
            (event, recorder.begin(&event))
        };
        let part = |name, start, clock, metadata: &[u8]| {
            let (end, nanoseconds_per_tick) = (start + 500, (1, 1));
            let event =
                DelegateEvent { name, id: 1, start, end, nanoseconds_per_tick, clock, metadata };
            recorder.delegate_event(&event);
        };
        let (load, token) = begin(EventKind::Load, "forward", 0);
        recorder.allocated(&Allocation { allocator: "arena", bytes: 512 });
        recorder.end(&load, token);
        for _ in 0..2 {
            let (run, whole) = begin(EventKind::Execute, "forward", 0);
            let (add, token) = begin(EventKind::Operator, "aten::add.out", 0);
            recorder.end(&add, token);
            let (gpu, token) = begin(EventKind::Delegate, "Gpu", 1);
            part("submit and wait", 1_000, DelegateClock::Host, b"host");
            part("matmul", 1_700, clock, b"[4]");
            std::thread::sleep(std::time::Duration::from_micros(10));
            recorder.end(&gpu, token);
            recorder.end(&run, whole);
        }
        recorder.recording()
    }

    /// Checks the requirements of the Trace Event Format and of Perfetto's importer.
    fn check(object: &Value) {
        assert_eq!(object["displayTimeUnit"], "ns");
        let events = object["traceEvents"].as_array().unwrap();
        let mut named = BTreeSet::new();
        for event in events {
            let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key}: {event}"));
            let number =
                |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key}: {event}"));
            assert!(!text("name").is_empty() && event["args"].is_object(), "{event}");
            assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
            match text("ph") {
                "X" => {
                    assert!(number("ts") >= 0.0 && number("dur") >= 0.0, "{event}");
                    assert!(!text("cat").is_empty());
                }
                "C" => {
                    assert!(number("ts") >= 0.0);
                    let series = event["args"].as_object().unwrap().values();
                    assert!(series.into_iter().all(Value::is_number), "{event}");
                }
                "M" => {
                    assert!(["process_name", "thread_name"].contains(&text("name")));
                    assert!(event["args"]["name"].is_string());
                    named.insert((event["pid"].as_u64(), event["tid"].as_u64()));
                }
                other => panic!("events of kind {other} are not written: {event}"),
            }
        }
        // Each track has a name; slices of a track are nested or disjoint.
        let mut slices: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let track = (event["pid"].as_u64(), event["tid"].as_u64());
            assert!(named.contains(&track), "{event}");
            let nanoseconds = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
            let start = nanoseconds("ts");
            slices.entry(track).or_default().push((start, start + nanoseconds("dur")));
        }
        for spans in slices.values_mut() {
            spans.sort_by_key(|(start, end)| (*start, std::cmp::Reverse(*end)));
            let mut open: Vec<u64> = Vec::new();
            for (start, end) in spans.iter() {
                open.retain(|outer| outer > start);
                assert!(open.iter().all(|outer| *end <= *outer), "slices cross each other");
                open.push(*end);
            }
        }
    }

    #[test]
    fn timelines_conform_to_the_format() {
        for clock in [DelegateClock::Device, DelegateClock::DeviceAlone] {
            let recording = recorded(clock);
            let object = object(&recording, "model.pte");
            check(&object);
            let events = object["traceEvents"].as_array().unwrap();
            let of = |name: &'static str| events.iter().filter(move |event| event["name"] == name);
            assert_eq!(of("memory").next().unwrap()["args"]["arena"], 512);
            // Related clocks are relative to the call, others to the wait of the host.
            let later = if clock == DelegateClock::Device { 1.7 } else { 2.7 };
            for (part, call) in of("matmul").zip(of("Gpu")) {
                let after = part["ts"].as_f64().unwrap() - call["ts"].as_f64().unwrap();
                assert!((after - later).abs() < 1e-3 * later, "{after}");
            }
        }
    }
}
