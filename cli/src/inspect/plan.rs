//! Where each call runs, and why; and which calls are fused there.

use crate::terminal::{FAINT, NAME, TITLE, WARN, count, paint};
use anstream::println;
use serde_json::{Value, json};
use torchlet::graph::{
    CallOrigin, CallReport, Estimate, Location, MethodReport, PartReport, Report,
};
use torchlet::{Module, Origin};

/// Shows the compiler's decision for each call.
pub(crate) fn show(module: &Module) {
    let origin = match module.origin() {
        Origin::NotCompiled(why) => {
            format!("runs as exported, because it cannot be compiled: {why}")
        }
        Origin::Compiled => "compiled".into(),
        Origin::Cached => "loaded from the cache of compiled programs".into(),
        _ => "runs as exported; nothing was compiled".into(),
    };
    println!("\n{}", paint(FAINT, origin));
    let Some(report) = module.plan() else { return };
    for method in &report.methods {
        show_method(method);
    }
}

fn show_method(method: &MethodReport) {
    if let Some(why) = &method.unchanged_reason {
        println!(
            "\n{} {}",
            paint(TITLE, &method.name),
            paint(FAINT, format!("as exported: {why}"))
        );
        return;
    }
    let parts = [
        count(method.on_device(), "call") + " in delegates",
        format!("{} in CPU kernels", method.calls.len() - method.on_device()),
        count(method.delegates.len(), "delegate"),
    ];
    println!("\n{} {}", paint(TITLE, &method.name), paint(FAINT, parts.join(", ")));
    for (number, backend) in method.delegates.iter().enumerate() {
        println!("  delegate {number:<3} {}", paint(NAME, backend));
        let fused = method.fused.iter().filter(|(delegate, _)| *delegate == number);
        let fused = counted(fused.map(|(_, operators)| operators.as_str()));
        for (index, line) in wrapped(&fused).iter().enumerate() {
            let label = if index == 0 { "fused" } else { "" };
            println!("  {label:<12} {}", paint(FAINT, line));
        }
    }
    for why in &method.decisions {
        println!("  {}", paint(FAINT, why));
    }
    for part in &method.parts {
        println!("  {}", paint(FAINT, described(part)));
    }
    let mut calls = method.calls.as_slice();
    while let Some(first) = calls.first() {
        let is_beside =
            |call: &&CallReport| call.location == first.location && call.reason == first.reason;
        // Calls on the preferred processor are summarized; for others, only neighbours with equal
        // operator and reason are joined.
        let by_preference = first.reason.is_empty() && first.location != Location::Host;
        let is_joined = |call: &&CallReport| {
            is_beside(call) && (by_preference || call.operator == first.operator)
        };
        let (joined, rest) = calls.split_at(calls.iter().take_while(is_joined).count().max(1));
        let place = format!("{:<12}", place(&first.location));
        let numbers = paint(FAINT, format!("{:>6}", numbers(method, joined)));
        let line = match by_preference {
            true => format!("{numbers}  {place} {}", count(joined.len(), "call")),
            false => {
                let times = times(joined.len());
                let operator = paint(NAME, &first.operator);
                format!("{numbers}  {place} {operator}{times}  {}", paint(WARN, &first.reason))
            }
        };
        // An empty reason leaves trailing blanks.
        println!("{}", if first.reason.is_empty() { line.trim_end() } else { &line });
        if by_preference {
            for line in wrapped(&counted(joined.iter().map(|call| call.operator.as_str()))) {
                println!("{:8}{}", "", paint(FAINT, line));
            }
        }
        calls = rest;
    }
}

/// Width of a line of operators.
const WIDTH: usize = 92;

/// Operators with their counts, in order of first appearance.
fn counted<'a>(operators: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    for name in operators {
        match found.iter_mut().find(|(operator, _)| *operator == name) {
            Some((_, count)) => *count += 1,
            None => found.push((name, 1)),
        }
    }
    found.iter().map(|(operator, count)| format!("{operator}{}", times(*count))).collect()
}

fn times(count: usize) -> String {
    if count > 1 { format!(" x {count}") } else { String::new() }
}

/// Joins words with commas into lines of at most `WIDTH` columns.
fn wrapped(words: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= WIDTH => {
                line.push_str(", ");
                line.push_str(word);
            }
            Some(line) => {
                line.push(',');
                lines.push(word.clone());
            }
            None => lines.push(word.clone()),
        }
    }
    lines
}

fn place(place: &Location) -> String {
    match place {
        Location::Device(delegate) => format!("delegate {delegate}"),
        _ => "kernel".to_owned(),
    }
}

/// Written by ExecuTorch's Vulkan exporter for calls without an index.
const UNNUMBERED: u32 = 65535;

/// The exporter's index of a call within a delegate.
fn part(origin: CallOrigin) -> Option<u32> {
    origin.part.filter(|part| *part != UNNUMBERED)
}

/// Formats the instruction indices of the first and the last call in the exported program. Elided
/// views have no instruction and are skipped.
fn numbers(method: &MethodReport, calls: &[CallReport]) -> String {
    let number = |call: &CallReport| {
        let origin = method.origin(call.number)?;
        Some(match part(origin) {
            Some(part) => format!("{}.{part}", origin.instruction),
            None => origin.instruction.to_string(),
        })
    };
    let mut known = calls.iter().filter_map(number);
    match (known.next(), known.next_back()) {
        (Some(first), Some(last)) if first != last => format!("{first}..{last}"),
        (Some(first), _) => first,
        _ => "view".to_owned(),
    }
}

/// Describes where a part runs, and its estimated time there and on other processors.
fn described(part: &PartReport) -> String {
    let place = match &part.location {
        Location::Device(delegate) => format!("delegate {delegate}"),
        _ => "kernels".to_owned(),
    };
    let calls = count(part.calls, "call");
    let Some(own) = &part.own else { return format!("{place:<12} {calls}") };
    let time = |estimate: &Estimate| format!("{:.3} ms", estimate.nanoseconds as f64 / 1e6);
    let others = part.others.iter().map(|other| format!("; {} {}", other.processor, time(other)));
    format!("{place:<12} {calls}, estimated {}{}", time(own), others.collect::<String>())
}

/// Returns the plan as JSON.
pub(crate) fn object(report: Option<&Report>) -> Value {
    let methods = report.iter().flat_map(|report| &report.methods);
    let methods = methods.map(|method| {
        let calls = method.calls.iter().map(|call| {
            let origin = method.origin(call.number);
            let mut object = json!({
                "instruction": origin.map(|origin| origin.instruction),
                "operator": call.operator,
            });
            if let Some(part) = origin.and_then(part) {
                object["part"] = part.into();
            }
            if let Location::Device(delegate) = call.location {
                object["delegate"] = delegate.into();
            }
            if !call.reason.is_empty() {
                object["reason"] = call.reason.clone().into();
            }
            object
        });
        let parts = method.parts.iter().map(|part| {
            let estimates = part.own.iter().chain(&part.others);
            let estimates = estimates.map(|it| (it.processor.clone(), it.nanoseconds.into()));
            let mut object = json!({ "calls": part.calls });
            object["nanoseconds"] = Value::Object(estimates.collect());
            if let Location::Device(delegate) = part.location {
                object["delegate"] = delegate.into();
            }
            object
        });
        let fused = method.fused.iter();
        let fused = fused
            .map(|(delegate, operators)| json!({ "delegate": delegate, "operators": operators }));
        json!({
            "name": method.name,
            "delegates": method.delegates,
            "as_exported": method.unchanged_reason,
            "calls": calls.collect::<Vec<_>>(),
            "decisions": method.decisions,
            "fused": fused.collect::<Vec<_>>(),
            "parts": parts.collect::<Vec<_>>(),
        })
    });
    match report {
        Some(_) => methods.collect(),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_counted_and_wrapped() {
        let words: Vec<String> =
            (0..9).map(|number| format!("aten.operator_{number}.out")).collect();
        let lines = wrapped(&words);
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= WIDTH + 1), "{lines:?}");
        assert_eq!(lines.join(" "), words.join(", "));
        assert_eq!((wrapped(&[]).len(), times(1).as_str(), times(3).as_str()), (0, "", " x 3"));
    }
}
