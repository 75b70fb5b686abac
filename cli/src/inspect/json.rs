//! Program descriptions as JSON.

use super::describe::{Description, Graph, Method, Named, OnTarget, Operator, Slot};
use serde_json::{Value, json};
use std::path::Path;
use torchlet::MemoryReport;

/// Returns the description as one object.
pub(crate) fn object(path: &Path, description: &Description) -> Value {
    json!({
        "file": path.display().to_string(),
        "bytes": description.file_size,
        "bundled": description.bundled,
        "schema_version": description.version,
        "flatbuffer_bytes": description.flatbuffer,
        "segments": description.segments,
        "named_data": named(&description.named_data),
        "external_data": description.external.iter().map(|file| named(file)).collect::<Vec<_>>(),
        "threads": description.threads,
        "target": description.target,
        "methods": description.methods.iter().map(method).collect::<Vec<_>>(),
    })
}

fn named(entries: &[Named]) -> Value {
    let entries = entries
        .iter()
        .map(|entry| json!({ "name": entry.name, "bytes": entry.bytes, "tensor": entry.tensor }));
    entries.collect()
}

fn slots(slots: &[Slot]) -> Value {
    let slots = slots.iter().map(
        |slot| json!({ "value": slot.what, "dynamic": slot.dynamic, "planned": !slot.unplanned }),
    );
    slots.collect()
}

fn operators(operators: &[Operator]) -> Vec<Value> {
    let operator = |operator: &Operator| {
        json!({
            "name": operator.name,
            "calls": operator.calls,
            "available": operator.available,
        })
    };
    operators.iter().map(operator).collect()
}

fn graph(graph: &Graph) -> Value {
    json!({
        "parts": graph.parts,
        "operators": operators(&graph.operators),
        "constants": graph.constants,
        "constant_bytes": graph.constant_bytes,
    })
}

fn method(method: &Method) -> Value {
    let delegates = method.delegates.iter().map(|delegate| {
        let specs = delegate.compile_specs.iter();
        json!({
            "backend": delegate.backend,
            "bytes": delegate.bytes,
            "format": delegate.format,
            "calls": delegate.calls,
            "available": !method.missing_backends.contains(&delegate.backend),
            "compile_specs": specs
                .map(|(key, value)| json!({ "key": key, "value": value }))
                .collect::<Vec<_>>(),
            "graph": delegate.graph.as_ref().map(graph),
        })
    });
    let weights = method.weights.iter().map(|weights| {
        json!({
            "type": weights.scalar_type,
            "tensors": weights.tensors,
            "elements": weights.elements,
            "bytes": weights.bytes,
        })
    });
    let state = method.state.iter();
    json!({
        "name": method.name,
        "test_cases": method.test_cases,
        "inputs": slots(&method.inputs),
        "outputs": slots(&method.outputs),
        "instructions": method.instructions,
        "jumps": method.control.jumps,
        "moves": method.control.moves,
        "frees": method.control.frees,
        "operators": operators(&method.operators),
        "delegates": delegates.collect::<Vec<_>>(),
        "weights": weights.collect::<Vec<_>>(),
        "state": state
            .map(|(name, info)| json!({ "name": name, "tensor": info }))
            .collect::<Vec<_>>(),
        "memory": memory(&method.planned, method.memory.as_ref()),
        "on_target": method.on_target.as_ref().map(|found| on_target(method, found)),
    })
}

fn on_target(method: &Method, found: &Result<OnTarget, String>) -> Value {
    match found {
        Ok(OnTarget::Exact(report)) => memory(&method.planned, Ok(report)),
        Ok(OnTarget::Tables(tables)) => json!({
            "planned": method.planned,
            "tables": tables.total(),
            "table_parts": {
                "values": tables.values,
                "tensors": tables.tensors,
                "instructions": tables.instructions,
                "delegates": tables.delegates,
            },
            "error": null,
        }),
        Err(error) => memory(&method.planned, Err(error)),
    }
}

fn memory(planned: &[u64], report: Result<&MemoryReport, &String>) -> Value {
    match report {
        Ok(report) => {
            let parts = &report.arena_use;
            json!({
                "planned": planned,
                "arena": report.arena,
                "arena_parts": {
                    "values": parts.values,
                    "tensors": parts.tensors,
                    "instructions": parts.instructions,
                    "delegates": parts.delegates,
                    "constants": parts.constants,
                    "packed": parts.packed,
                },
                "scratch": report.scratch,
                "unplanned": report.unplanned,
                "total": report.total(),
                "error": null,
            })
        }
        Err(error) => json!({ "planned": planned, "error": error }),
    }
}
