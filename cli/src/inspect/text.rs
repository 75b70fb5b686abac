//! Program descriptions as text.

use super::describe::{Description, Graph, Method, Named, OnTarget, Operator, Slot};
use crate::terminal::{BAD, FAINT, NAME, TITLE, WARN, bytes, count, grouped, paint};
use anstream::println;
use std::path::Path;
use torchlet::MemoryReport;
use torchlet::core::TableUse;
use torchlet::graph::front::runs_only_compiled;

/// Maximum number of names shown per list.
const MAX_NAMES: usize = 8;

/// Shows the description.
pub(crate) fn show(path: &Path, description: &Description) {
    let kind = if description.bundled { ", bundled with test cases" } else { "" };
    let size = bytes(description.file_size);
    println!("{}  {size}{kind}", paint(TITLE, path.display()));
    let mut parts = vec![format!("program {}", bytes(description.flatbuffer))];
    if !description.segments.is_empty() {
        let total: u64 = description.segments.iter().sum();
        let segments = count(description.segments.len(), "segment");
        parts.push(format!("{segments} of {} in all", bytes(total)));
    }
    parts.push(format!("schema version {}", description.version));
    println!("{}", paint(FAINT, parts.join(", ")));
    show_names("named data", &description.named_data);
    for (index, entries) in description.external.iter().enumerate() {
        show_names(&format!("data file {index}"), entries);
    }
    for method in &description.methods {
        show_method(method, description);
    }
}

fn show_names(title: &str, entries: &[Named]) {
    if entries.is_empty() {
        return;
    }
    println!("\n{} {}", paint(TITLE, title), paint(FAINT, count(entries.len(), "blob")));
    let mut largest: Vec<&Named> = entries.iter().collect();
    largest.sort_by_key(|entry| std::cmp::Reverse(entry.bytes));
    for entry in largest.into_iter().take(MAX_NAMES) {
        let tensor = entry.tensor.as_deref().map_or(String::new(), |info| format!("  {info}"));
        println!("  {:>10}  {}{tensor}", bytes(entry.bytes), paint(NAME, &entry.name));
    }
    if entries.len() > MAX_NAMES {
        let more = format!("and {} smaller ones", entries.len() - MAX_NAMES);
        println!("  {}", paint(FAINT, more));
    }
}

fn show_slots(label: &str, slots: &[Slot]) {
    for (index, slot) in slots.iter().enumerate() {
        let mut notes = Vec::new();
        if slot.dynamic {
            notes.push("dynamic");
        }
        if slot.unplanned {
            notes.push("memory owned by the caller");
        }
        let notes = match notes.as_slice() {
            [] => String::new(),
            notes => paint(FAINT, format!("  {}", notes.join(", "))),
        };
        println!("  {label:<7}{index:>3}  {}{notes}", paint(NAME, &slot.what));
    }
}

fn show_method(method: &Method, description: &Description) {
    let cases = match method.test_cases {
        0 => String::new(),
        cases => paint(FAINT, format!("  {}", count(cases, "test case"))),
    };
    println!("\n{}{cases}", paint(TITLE, format!("method {}", method.name)));
    show_slots("input", &method.inputs);
    show_slots("output", &method.outputs);
    show_operators(method);
    for (index, delegate) in method.delegates.iter().enumerate() {
        let title = format!("delegate {index}");
        let format = delegate.format.as_deref().map_or(String::new(), |f| format!(", format {f}"));
        let calls = count(delegate.calls, "call");
        let size = bytes(delegate.bytes);
        let missing = if method.missing_backends.contains(&delegate.backend) {
            paint(BAD, "  not available")
        } else if runs_only_compiled(&delegate.backend) {
            paint(FAINT, ", compiled when the program is loaded")
        } else {
            String::new()
        };
        let backend = paint(NAME, &delegate.backend);
        println!("\n  {} {backend}  {size}{format}, {calls}{missing}", paint(TITLE, title));
        for (key, value) in &delegate.compile_specs {
            println!("    {key} = {value}");
        }
        if let Some(graph) = &delegate.graph {
            show_graph(graph);
        }
    }
    show_tensors(method);
    match (&description.target, &method.on_target) {
        (Some(target), Some(Ok(OnTarget::Tables(tables)))) => {
            show_tables(method, target, tables);
        }
        (Some(target), Some(Ok(OnTarget::Exact(report)))) => {
            show_memory(method, Ok(report), &format!("exact, on {target}, with 1 thread"));
        }
        (Some(target), Some(Err(why))) => show_memory(method, Err(why), &format!("on {target}")),
        _ => {
            let with = format!("exact, with {}", count(description.threads, "thread"));
            show_memory(method, method.memory.as_ref(), &with);
        }
    }
}

fn show_operators(method: &Method) {
    let calls: usize = method.operators.iter().map(|operator| operator.calls).sum();
    let mut summary = vec![
        count(method.instructions, "instruction"),
        count(method.operators.len(), "operator"),
        count(calls, "operator call"),
    ];
    let control = &method.control;
    for (number, noun) in
        [(control.jumps, "jump"), (control.moves, "move"), (control.frees, "free")]
    {
        if number > 0 {
            summary.push(count(number, noun));
        }
    }
    println!("\n  {}  {}", paint(TITLE, "instructions"), paint(FAINT, summary.join(", ")));
    show_calls(&method.operators);
}

fn show_calls(operators: &[Operator]) {
    for operator in operators {
        let missing = if operator.available { String::new() } else { paint(BAD, "  missing") };
        println!("  {:>6}  {}{missing}", operator.calls, paint(NAME, &operator.name));
    }
}

/// Shows the contents of a delegate.
fn show_graph(graph: &Graph) {
    let calls: usize = graph.operators.iter().map(|operator| operator.calls).sum();
    let summary = [
        count(graph.operators.len(), "operator"),
        count(calls, "operator call"),
        format!("{} with {}", count(graph.constants, "constant"), bytes(graph.constant_bytes)),
    ];
    for part in &graph.parts {
        println!("    {part}");
    }
    println!("    {}", paint(FAINT, summary.join(", ")));
    show_calls(&graph.operators);
}

fn show_tensors(method: &Method) {
    if !method.weights.is_empty() {
        println!("\n  {}", paint(TITLE, "weights"));
    }
    for weights in &method.weights {
        println!(
            "  {:>10}  {} in {}, {}",
            bytes(weights.bytes),
            paint(NAME, format!("{:<8}", weights.scalar_type)),
            count(weights.tensors, "tensor"),
            count(weights.elements as usize, "element"),
        );
    }
    if !method.state.is_empty() {
        println!("\n  {}", paint(TITLE, "state that persists between runs"));
    }
    for (name, info) in method.state.iter().take(MAX_NAMES) {
        println!("    {}  {info}", paint(NAME, name));
    }
    if method.state.len() > MAX_NAMES {
        println!("    {}", paint(FAINT, format!("and {} more", method.state.len() - MAX_NAMES)));
    }
}

fn show_memory(method: &Method, report: Result<&MemoryReport, &String>, with: &str) {
    println!("\n  {}  {}", paint(TITLE, "memory"), paint(FAINT, with));
    for (index, size) in method.planned.iter().enumerate() {
        line(*size, "planned", &format!("tensors, buffer {index}"));
    }
    match report {
        Ok(report) => {
            line(report.arena as u64, "arena", &arena_parts(report));
            line(report.scratch as u64, "scratch", "while kernels run");
            if report.unplanned > 0 {
                let what = "inputs, outputs and state, owned by the caller";
                line(report.unplanned as u64, "unplanned", what);
            }
            line(report.total(), "total", &bytes(report.total()));
        }
        Err(why) => println!("  {} {why}", paint(WARN, "the rest is unknown:")),
    }
}

/// Shows the memory use of tables, if that of kernels or delegates is unknown.
fn show_tables(method: &Method, target: &str, tables: &TableUse) {
    println!("\n  {}  {}", paint(TITLE, "memory"), paint(FAINT, format!("on {target}")));
    for (index, size) in method.planned.iter().enumerate() {
        line(*size, "planned", &format!("tensors, buffer {index}"));
    }
    let parts = [
        (tables.values, "values"),
        (tables.tensors, "tensors"),
        (tables.instructions, "instructions"),
        (tables.delegates, "delegate slots and padding"),
    ];
    line(tables.total() as u64, "tables", &sizes(&parts));
    let rest = "packed weights, delegates and scratch memory depend on the processor; \
                Prepared::needs returns their sizes there";
    println!("  {:>13}  {}", "?", paint(FAINT, rest));
}

fn line(size: u64, what: &str, note: &str) {
    println!("  {:>13}  {what:<12}{}", grouped(size), paint(FAINT, note));
}

/// Describes the uses of the arena.
fn arena_parts(report: &MemoryReport) -> String {
    let parts = &report.arena_use;
    let parts = [
        (parts.values, "values"),
        (parts.tensors, "tensors"),
        (parts.instructions, "instructions"),
        (parts.delegates, "delegates and padding"),
        (parts.constants, "copied constants"),
        (parts.packed, "packed weights"),
    ];
    sizes(&parts)
}

fn sizes(parts: &[(usize, &str)]) -> String {
    let parts = parts.iter().filter(|(size, _)| *size > 0);
    let parts: Vec<_> =
        parts.map(|(size, what)| format!("{what} {}", grouped(*size as u64))).collect();
    parts.join(", ")
}
