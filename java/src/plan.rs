//! The compiler's report as text.

use std::fmt::Write;
use torchlet::graph::{Location, MethodReport};
use torchlet::{Module, Origin};

/// How the program was obtained, and where its calls run.
pub(crate) fn text(module: &Module) -> String {
    let mut text = origin(module) + "\n";
    for method in module.plan().map_or(&[][..], |report| &report.methods) {
        // Writing to a string does not fail.
        let _ = write_method(&mut text, method);
    }
    text
}

/// How the program was obtained.
pub(crate) fn origin(module: &Module) -> String {
    match module.origin() {
        Origin::NotCompiled(error) => {
            format!("runs as exported, because it cannot be compiled: {error}")
        }
        Origin::Compiled => "compiled".into(),
        Origin::Cached => "loaded from the cache of compiled programs".into(),
        _ => "runs as exported; nothing was compiled".into(),
    }
}

fn write_method(text: &mut String, method: &MethodReport) -> std::fmt::Result {
    if let Some(reason) = &method.unchanged_reason {
        return writeln!(text, "{}: as exported: {reason}", method.name);
    }
    let (on_device, all) = (method.on_device(), method.calls.len());
    writeln!(
        text,
        "{}: {on_device} of {all} calls in delegates, {} in CPU kernels",
        method.name,
        all - on_device
    )?;
    for (number, backend) in method.delegates.iter().enumerate() {
        writeln!(text, "  delegate {number}: {backend}")?;
    }
    for decision in &method.decisions {
        writeln!(text, "  {decision}")?;
    }
    for call in method.calls.iter().filter(|call| call.location == Location::Host) {
        writeln!(text, "  {} in CPU kernels: {}", call.operator, call.reason)?;
    }
    Ok(())
}
