//! What runs where, and why.

use crate::terminal::{FAINT, NAME, TITLE, WARN, count, paint};
use anstream::println;
use serde_json::{Value, json};
use torchlet::graph::{MethodReport, Place, PlacedCall, Report};
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
    let mut calls = method.calls.as_slice();
    // Neighbours that are alike are one line.
    while let Some(first) = calls.first() {
        let alike =
            |call: &&PlacedCall| call.operator == first.operator && call.place == first.place;
        let run = calls.iter().take_while(alike).count();
        let times = if run > 1 { format!(" x {run}") } else { String::new() };
        let operator = paint(NAME, &first.operator);
        let number = paint(FAINT, format!("{:>6}", first.instruction));
        match &first.place {
            Place::Device(delegate) => {
                println!("{number}  delegate {delegate:<3} {operator}{times}")
            }
            Place::Host(reason) => {
                let reason = paint(WARN, reason);
                println!("{number}  kernel       {operator}{times}  {reason}");
            }
            other => println!("{number}  {other:?} {operator}{times}"),
        }
        calls = &calls[run..];
    }
}

/// The same as an object.
pub(crate) fn object(report: Option<&Report>) -> Value {
    let methods = report.iter().flat_map(|report| &report.methods);
    let methods = methods.map(|method| {
        let calls = method.calls.iter().map(|call| match &call.place {
            Place::Device(delegate) => json!({
                "instruction": call.instruction,
                "operator": call.operator,
                "delegate": delegate,
            }),
            Place::Host(reason) => json!({
                "instruction": call.instruction,
                "operator": call.operator,
                "reason": reason,
            }),
            _ => json!({ "instruction": call.instruction, "operator": call.operator }),
        });
        json!({
            "name": method.name,
            "delegates": method.delegates,
            "as_exported": method.as_exported,
            "calls": calls.collect::<Vec<_>>(),
        })
    });
    match report {
        Some(_) => methods.collect(),
        None => Value::Null,
    }
}
