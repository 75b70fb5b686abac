//! What runs where, and why.

use crate::terminal::{FAINT, NAME, TITLE, WARN, count, paint};
use anstream::println;
use serde_json::{Value, json};
use torchlet::graph::{CallOrigin, Estimate, MethodReport, PartReport, Place, PlacedCall, Report};
use torchlet::{Module, Origin};

/// Shows what became of each call when the program was compiled.
pub(crate) fn show(module: &Module) {
    let origin = match module.origin() {
        Origin::NotCompiled(why) => {
            format!("runs as it was exported, as it cannot be compiled: {why}")
        }
        Origin::Compiled => "compiled".into(),
        Origin::Cached => "compiled before; from the cache".into(),
        _ => "runs as it was exported; nothing was compiled".into(),
    };
    println!("\n{}", paint(FAINT, origin));
    let Some(report) = module.plan() else { return };
    for method in &report.methods {
        show_method(method);
    }
}

fn show_method(method: &MethodReport) {
    if let Some(why) = &method.as_exported {
        println!(
            "\n{} {}",
            paint(TITLE, &method.name),
            paint(FAINT, format!("as exported: {why}"))
        );
        return;
    }
    let parts = [
        count(method.on_device(), "call") + " in delegates",
        format!("{} of CPU kernels", method.calls.len() - method.on_device()),
        count(method.delegates.len(), "delegate"),
    ];
    println!("\n{} {}", paint(TITLE, &method.name), paint(FAINT, parts.join(", ")));
    for (number, backend) in method.delegates.iter().enumerate() {
        println!("  delegate {number:<3} is for {}", paint(NAME, backend));
    }
    for why in &method.decisions {
        println!("  {}", paint(FAINT, why));
    }
    for part in &method.parts {
        println!("  {}", paint(FAINT, described(part)));
    }
    let mut calls = method.calls.as_slice();
    // Neighbours that are alike are one line.
    while let Some(first) = calls.first() {
        let alike = |call: &&PlacedCall| {
            call.operator == first.operator
                && call.place == first.place
                && call.reason == first.reason
        };
        let run = calls.iter().take_while(alike).count();
        let times = if run > 1 { format!(" x {run}") } else { String::new() };
        let operator = paint(NAME, &first.operator);
        let number = match method.origin(first.number) {
            Some(CallOrigin { instruction, part: Some(part), .. }) => {
                format!("{instruction}.{part}")
            }
            Some(CallOrigin { instruction, .. }) => instruction.to_string(),
            None => "view".to_owned(),
        };
        let number = paint(FAINT, format!("{number:>6}"));
        let place = match &first.place {
            Place::Device(delegate) => format!("delegate {delegate}"),
            _ => "kernel".to_owned(),
        };
        let reason = paint(WARN, &first.reason);
        println!("{number}  {place:<12} {operator}{times}  {reason}");
        calls = &calls[run..];
    }
}

/// Where a part runs, and how long it takes there and elsewhere.
fn described(part: &PartReport) -> String {
    let place = match &part.place {
        Place::Device(delegate) => format!("delegate {delegate}"),
        _ => "kernels".to_owned(),
    };
    let calls = count(part.calls, "call");
    let Some(own) = &part.own else { return format!("{place:<12} {calls}") };
    let time = |estimate: &Estimate| format!("{:.3} ms", estimate.nanoseconds as f64 / 1e6);
    let others = part.others.iter().map(|other| format!("; {} {}", other.processor, time(other)));
    format!("{place:<12} {calls}, estimated {}{}", time(own), others.collect::<String>())
}

/// The same as an object.
pub(crate) fn object(report: Option<&Report>) -> Value {
    let methods = report.iter().flat_map(|report| &report.methods);
    let methods = methods.map(|method| {
        let calls = method.calls.iter().map(|call| {
            let origin = method.origin(call.number);
            let mut object = json!({
                "instruction": origin.map(|origin| origin.instruction),
                "operator": call.operator,
            });
            if let Some(part) = origin.and_then(|origin| origin.part) {
                object["part"] = part.into();
            }
            if let Place::Device(delegate) = call.place {
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
            if let Place::Device(delegate) = part.place {
                object["delegate"] = delegate.into();
            }
            object
        });
        json!({
            "name": method.name,
            "delegates": method.delegates,
            "as_exported": method.as_exported,
            "calls": calls.collect::<Vec<_>>(),
            "decisions": method.decisions,
            "parts": parts.collect::<Vec<_>>(),
        })
    });
    match report {
        Some(_) => methods.collect(),
        None => Value::Null,
    }
}
