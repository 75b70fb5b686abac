//! Folded stacks, which flame graphs are drawn from: a line for each stack, its frames apart by `;`, and its nanoseconds.

use crate::recording::{Event, Kind, Recording, Run, RunKind};
use std::collections::BTreeMap;

/// The time of all runs as folded stacks, in order of their names.
pub fn folded(recording: &Recording) -> Vec<String> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for run in &recording.runs {
        let root = match run.kind {
            RunKind::Load => "load",
            _ => "run",
        };
        let whole = run.whole().map_or(0, Event::nanoseconds);
        let mut inside = 0;
        for event in &run.events {
            let is_call =
                matches!(event.kind, Kind::Operator | Kind::Delegate | Kind::DelegateInit);
            if !is_call {
                continue;
            }
            inside += event.nanoseconds();
            let parts: u64 = parts(run, event)
                .map(|part| {
                    let stack = format!("{root};{};{}", frame(&event.name), frame(&part.name));
                    *stacks.entry(stack).or_default() += part.nanoseconds();
                    part.nanoseconds()
                })
                .sum();
            let own = event.nanoseconds().saturating_sub(parts);
            *stacks.entry(format!("{root};{}", frame(&event.name))).or_default() += own;
        }
        *stacks.entry(root.to_owned()).or_default() += whole.saturating_sub(inside);
    }
    let lines = stacks.into_iter().filter(|(_, time)| *time > 0);
    lines.map(|(stack, time)| format!("{stack} {time}")).collect()
}

/// What a call consists of, on the host: a device works while the host waits, and would count twice.
fn parts<'r>(run: &'r Run, call: &'r Event) -> impl Iterator<Item = &'r Event> {
    let kind = match call.kind {
        Kind::DelegateInit => Kind::DelegateInitPart,
        _ => Kind::DelegatePart,
    };
    run.events.iter().filter(move |event| {
        event.kind == kind
            && event.instruction == call.instruction
            && event.location == call.location
            && event.start >= call.start
            && event.end <= call.end
    })
}

/// A name without what has a meaning in stacks.
fn frame(name: &str) -> String {
    name.replace([';', '\n'], ",")
}
