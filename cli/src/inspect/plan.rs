//! What runs where, and why.

use crate::terminal::{FAINT, NAME, TITLE, WARN, count, paint};
use anstream::println;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use torchlet::core::Registry;
use torchlet::graph::{self, Estimate, MethodReport, PartReport, Place, PlacedCall, Report};
use torchlet::{Module, Origin};

/// The instructions of the file that calls are of: the compiler counts views, too, which exporters leave out.
pub(crate) struct Numbers(BTreeMap<String, Vec<Option<usize>>>);

impl Numbers {
    /// Those of a program as it was exported. Calls in delegates have the delegate's numbers, and stay as they are.
    pub(crate) fn of(exported: &Module) -> Self {
        let Ok(registry) = Registry::new().with_kernels(&torchlet::portable::KERNELS) else {
            return Numbers(BTreeMap::new());
        };
        let program = exported.program();
        let numbers = exported.method_names().unwrap_or_default().into_iter().filter_map(|name| {
            let meta = exported.method_meta(&name).ok()?;
            (meta.delegate_count() == 0).then_some(())?;
            Some((name.clone(), graph::numbers(&program, &registry, &name).ok()?))
        });
        Numbers(numbers.collect())
    }

    /// The instruction that a call is of; `None` for a view that no instruction says.
    fn instruction(&self, method: &str, number: u32) -> Option<usize> {
        let number = usize::try_from(number).ok()?;
        match self.0.get(method) {
            Some(numbers) => numbers.get(number).copied().flatten(),
            None => Some(number),
        }
    }
}

/// Shows what became of each call when the program was compiled.
pub(crate) fn show(module: &Module, numbers: &Numbers) {
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
        show_method(method, numbers);
    }
}

fn show_method(method: &MethodReport, numbers: &Numbers) {
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
        let number = numbers.instruction(&method.name, first.instruction);
        let number = number.map_or_else(|| "view".to_owned(), |number| number.to_string());
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
pub(crate) fn object(report: Option<&Report>, numbers: &Numbers) -> Value {
    let methods = report.iter().flat_map(|report| &report.methods);
    let methods = methods.map(|method| {
        let calls = method.calls.iter().map(|call| {
            let mut object = json!({
                "instruction": numbers.instruction(&method.name, call.instruction),
                "operator": call.operator,
            });
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
