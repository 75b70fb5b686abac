//! Time lines for Perfetto and `chrome://tracing`, in the format of Chrome's trace events.

use crate::recording::{Event, Kind, Location, Recording, Run, RunKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// The recording as one JSON object. Threads of the host and the device lie on one base of time: where a device counts from its
/// first command, that begins when the host began to wait for it.
pub fn object(recording: &Recording, program: &str) -> Value {
    let mut events = Vec::new();
    let mut tracks = BTreeSet::new();
    for run in &recording.runs {
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
            HOST => format!("thread {thread}"),
            _ => "queue".to_owned(),
        };
        events.push(named("thread_name", process, thread, &name));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns" })
}

fn track(event: &Event) -> (u32, u32) {
    match event.location {
        Location::Host(thread) => (HOST, thread + 1),
        Location::Device => (DEVICE, 1),
    }
}

fn slice(run: &Run, event: &Event, process: u32, thread: u32) -> Value {
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let mut args = json!({});
    for (key, number) in [("instruction", event.instruction), ("part", event.part)] {
        if let Some(number) = number {
            args[key] = number.into();
        }
    }
    if !event.detail.is_empty() && event.detail != b"host" {
        args["detail"] = event.detail_text().into();
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
