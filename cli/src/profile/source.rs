//! Maps instructions to modules of the PyTorch source with an ETRecord, which contains the exported
//! graph's nodes and their modules.

use super::read_file;
use crate::failure::Failure;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::path::Path;
use torchlet::Module;
use torchlet::core::Registry;
use torchlet::graph::{self, CallOrigin};
use torchlet_page::SourceModules;
use zip::ZipArchive;

/// Maximum uncompressed size of an archive entry.
const MAX_BYTES: u64 = 1 << 30;

/// Source modules of instructions.
#[derive(Debug, Default)]
pub(crate) struct Source {
    modules: BTreeMap<u32, String>,
    /// Modules of calls within delegates, by instruction and the exporter's call index.
    parts: BTreeMap<(u32, u32), String>,
    /// Nodes that were lowered into each delegate without a usable index map, by instruction.
    delegates: BTreeMap<u32, Vec<Origin>>,
    /// Origins of the compiled program's calls.
    numbers: Vec<Option<CallOrigin>>,
}

/// A node of the graph before lowering.
#[derive(Debug, Clone)]
struct Origin {
    operator: String,
    module: String,
}

impl Source {
    /// Reads an ETRecord.
    pub(crate) fn read(path: &Path, method: Option<&str>) -> Result<Self, Failure> {
        let fail = |what: &dyn std::fmt::Display| {
            Failure::new(format!(
                "'{}': {what}; expected a file written by ExecuTorch's ETRecord.save",
                path.display()
            ))
        };
        let mut archive =
            ZipArchive::new(Cursor::new(read_file(path)?)).map_err(|error| fail(&error))?;
        let method = method.unwrap_or("forward");
        let handles = part(&mut archive, "debug_handle_map").map_err(|what| fail(&what))?;
        let graph = part(&mut archive, &format!("edge_dialect_exported_program/{method}"))
            .or_else(|why| part(&mut archive, "edge_dialect_exported_program").map_err(|_| why))
            .map_err(|what| fail(&what))?;
        let delegates = part(&mut archive, "delegate_map").unwrap_or_default();
        let source = Source::of(&graph, &handles[method], &delegates[method]);
        if source.modules.is_empty() {
            return Err(Failure::new(format!(
                "'{}' has no source of the instructions of method '{method}'; expected an ETRecord \
                 of the program before lowering: to_edge_transform_and_lower(..., \
                 generate_etrecord=True), then get_etrecord() of the result of to_executorch()",
                path.display()
            )));
        }
        Ok(source)
    }

    /// Maps instructions to modules with the graph of a method, the debug handles of its
    /// instructions and the delegates' index maps.
    fn of(graph: &Value, handles: &Value, delegates: &Value) -> Self {
        let mut origins: BTreeMap<u64, Origin> = BTreeMap::new();
        for node in graph["graph_module"]["graph"]["nodes"].as_array().into_iter().flatten() {
            let metadata = &node["metadata"];
            let handle = metadata["debug_handle"].as_str().and_then(|text| text.parse().ok());
            let stack = metadata["nn_module_stack"].as_str();
            if let (Some(handle), Some(stack)) = (handle, stack) {
                let target = node["target"].as_str().unwrap_or_default();
                let operator = target.rsplit("ops.").next().unwrap_or_default().to_owned();
                let origin = Origin { operator, module: innermost(stack) };
                origins.entry(handle).or_insert(origin);
            }
        }
        let mut source = Source::default();
        for (instruction, handles) in handles.as_object().into_iter().flatten() {
            let delegate = &delegates[instruction];
            let Ok(instruction) = instruction.parse() else { continue };
            let own: BTreeSet<u64> = match handles {
                Value::Array(handles) => handles.iter().filter_map(Value::as_u64).collect(),
                other => other.as_u64().into_iter().collect(),
            };
            let own: BTreeMap<u64, Origin> =
                own.iter().filter_map(|it| Some((*it, origins.get(it)?.clone()))).collect();
            let modules = own.values().map(|origin| origin.module.clone());
            let Some(module) = modules.reduce(|a, b| common(&a, &b)) else { continue };
            source.modules.insert(instruction, module);
            let Some(numbers) = delegate["delegate_map"].as_object() else { continue };
            source.delegate(instruction, own, numbers);
        }
        source
    }

    /// Adds the calls within a delegate. XNNPACK has no map: its call indices are debug handles.
    /// Other maps lead from indices to debug handles, except Vulkan's, which lead to indices in a
    /// graph that is not stored.
    fn delegate(
        &mut self,
        instruction: u32,
        own: BTreeMap<u64, Origin>,
        numbers: &Map<String, Value>,
    ) {
        if numbers.is_empty() {
            for (handle, origin) in own {
                let number = u32::try_from(handle).unwrap_or(u32::MAX);
                self.parts.insert((instruction, number), origin.module);
            }
            return;
        }
        let mut parts: Vec<(u32, &Origin)> = Vec::new();
        for (number, handles) in numbers {
            let handles = handles.as_array().into_iter().flatten().filter_map(Value::as_u64);
            let origin = handles.filter_map(|handle| own.get(&handle)).next();
            if let (Ok(number), Some(origin)) = (number.parse(), origin) {
                parts.push((number, origin));
            }
        }
        if parts.len() < numbers.len() {
            self.delegates.insert(instruction, own.into_values().collect());
            return;
        }
        let parts = parts.into_iter();
        self.parts.extend(parts.map(|(number, it)| ((instruction, number), it.module.clone())));
    }

    /// Adds the exported program, to match calls of delegates without a usable index map by order,
    /// and the origins of compiled calls.
    pub(crate) fn with_program(
        mut self,
        exported: &Module,
        method: &str,
        origins: Vec<Option<CallOrigin>>,
    ) -> Self {
        self.numbers = origins;
        if self.delegates.is_empty() {
            return self;
        }
        let Ok(registry) = Registry::new().with_kernels(&torchlet::portable::KERNELS) else {
            return self;
        };
        let methods = graph::work(&exported.program(), exported.data(), &registry, &|_, _| {});
        let methods = methods.unwrap_or_default();
        let calls = methods.into_iter().find(|(name, _)| name == method);
        let calls = calls.map(|(_, calls)| calls).unwrap_or_default();
        for (instruction, origins) in std::mem::take(&mut self.delegates) {
            let calls = calls.iter().filter(|call| call.instruction == instruction as usize);
            let calls = calls.filter_map(|call| Some((call.operator.as_str(), call.part?)));
            for (part, module) in by_order(calls, &origins) {
                self.parts.insert((instruction, part), module.to_owned());
            }
        }
        self
    }
}

/// Matches the calls of a delegate with graph nodes by kind of operator and order, which lowering
/// preserves. Kinds with different counts are skipped.
fn by_order<'c, 'o>(
    calls: impl Iterator<Item = (&'c str, u32)>,
    origins: &'o [Origin],
) -> Vec<(u32, &'o str)> {
    let mut parts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (operator, part) in calls {
        parts.entry(kind(operator)).or_default().push(part);
    }
    let mut found = Vec::new();
    for (found_kind, parts) in parts {
        let alike = || origins.iter().filter(|origin| kind(&origin.operator) == found_kind);
        if alike().count() == parts.len() {
            let modules = alike().map(|origin| origin.module.as_str());
            found.extend(parts.into_iter().zip(modules));
        }
    }
    found
}

/// Normalizes an operator's name: exporters quantize convolutions and linear layers and fuse other
/// functions into them.
fn kind(operator: &str) -> &str {
    let name = operator.split('.').nth(1).unwrap_or(operator);
    match name {
        "addmm" | "mm" => "linear",
        _ if name.contains("conv") => "convolution",
        _ if name.contains("linear") => "linear",
        _ => name.strip_suffix("_copy").unwrap_or(name),
    }
}

impl SourceModules for Source {
    fn compiled(&self, number: u32) -> Option<&str> {
        let origin = self.numbers.get(usize::try_from(number).ok()?).copied().flatten()?;
        let instruction = u32::try_from(origin.instruction).ok()?;
        match origin.part {
            Some(part) => self.part(instruction, part),
            None => self.module(instruction),
        }
    }

    fn part(&self, instruction: u32, part: u32) -> Option<&str> {
        self.parts.get(&(instruction, part)).map(String::as_str)
    }

    fn module(&self, instruction: u32) -> Option<&str> {
        self.modules.get(&instruction).map(String::as_str)
    }
}

fn part(archive: &mut ZipArchive<Cursor<Vec<u8>>>, name: &str) -> Result<Value, String> {
    let fail = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let entry = archive.by_name(name).map_err(|error| fail(&error))?;
    let mut bytes = Vec::new();
    entry.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| fail(&error))?;
    without_nonfinite_numbers(&mut bytes);
    serde_json::from_slice(&bytes).map_err(|error| fail(&error))
}

/// Overwrites the non-finite numbers of Python's JSON with zeros.
fn without_nonfinite_numbers(bytes: &mut [u8]) {
    const ODD: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let (mut at, mut in_text) = (0, false);
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            // An escaped character never ends a string.
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'-' | b'I' | b'N' if !in_text => {
                let rest = bytes.get_mut(at..).unwrap_or_default();
                if let Some(odd) = ODD.iter().find(|odd| rest.starts_with(odd)) {
                    rest.iter_mut().take(odd.len()).for_each(|byte| *byte = b' ');
                    rest.iter_mut().take(1).for_each(|byte| *byte = b'0');
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Shown for the root module.
const WHOLE: &str = "(the model itself)";

/// The innermost module that contains both.
fn common(a: &str, b: &str) -> String {
    let alike = a.split('.').zip(b.split('.')).take_while(|(a, b)| a == b);
    let alike: Vec<&str> = alike.map(|(name, _)| name).collect();
    if alike.is_empty() { WHOLE.to_owned() } else { alike.join(".") }
}

/// Returns the path of the innermost module of a stack; entries are `key,path,,type`, separated by
/// `;`.
fn innermost(stack: &str) -> String {
    let last = stack.rsplit(';').next().unwrap_or(stack);
    let path = last.split(',').nth(1).unwrap_or("");
    if path.is_empty() { WHOLE.to_owned() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn non_json_numbers_are_replaced() {
        let mut text = br#"{"a NaN \" -Infinity": [NaN, -Infinity, Infinity, -1, "NaN"]}"#.to_vec();
        without_nonfinite_numbers(&mut text);
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["a NaN \" -Infinity"], serde_json::json!([0, 0, 0, -1, "NaN"]));
    }

    /// A node of the graph before lowering.
    fn node(target: &str, handle: u64, module: &str) -> Value {
        let stack = format!("L__self__,,M;L__self__{module},{module},torch.nn.Module");
        let metadata = json!({ "debug_handle": handle.to_string(), "nn_module_stack": stack });
        json!({
            "target": format!("executorch.exir.dialects.edge.ops.{target}"), "metadata": metadata
        })
    }

    fn source(delegate_map: Value) -> Source {
        let nodes = json!([
            node("aten.convolution.default", 1, "body.first"),
            node("aten.relu.default", 2, "body.act"),
            node("aten.convolution.default", 3, "body.second"),
            node("aten.mean.dim", 4, "head"),
        ]);
        let graph = json!({ "graph_module": { "graph": { "nodes": nodes } } });
        let delegates = json!({ "0": { "name": "Some", "delegate_map": delegate_map } });
        Source::of(&graph, &json!({ "0": [1, 2, 2, 3], "1": 4 }), &delegates)
    }

    #[test]
    fn delegates_belong_to_the_module_around_their_calls() {
        let source = source(json!({}));
        assert_eq!(source.module(0), Some("body"));
        assert_eq!(source.module(1), Some("head"));
        assert_eq!(source.part(1, 4), None, "only delegates have parts");
    }

    #[test]
    fn delegate_parts_have_handles_or_maps() {
        let own = source(json!({}));
        assert_eq!([own.part(0, 1), own.part(0, 3)], [Some("body.first"), Some("body.second")]);
        assert_eq!(own.part(0, 4), None, "the call after the delegate is not part of it");
        let mapped = source(json!({ "0": [1, 2], "7": [3] }));
        assert_eq!(
            [mapped.part(0, 0), mapped.part(0, 7)],
            [Some("body.first"), Some("body.second")]
        );
        assert!(mapped.delegates.is_empty());
    }

    #[test]
    fn broken_maps_fall_back_to_order() {
        let source = source(json!({ "0": [2], "1": [9] }));
        assert_eq!(source.part(0, 0), None);
        let calls = [("et_vk.conv_with_clamp.default", 0), ("aten.relu.default", 1)];
        let calls = calls.into_iter().chain([("et_vk.conv_with_clamp.default", 2)]);
        let found = by_order(calls, &source.delegates[&0]);
        assert_eq!(found, [(0, "body.first"), (2, "body.second"), (1, "body.act")]);
        let one = [("aten.convolution.default", 5)].into_iter();
        assert_eq!(by_order(one, &source.delegates[&0]), [], "one of two says nothing");
    }

    #[test]
    fn stacks_end_in_the_innermost_module() {
        let stack = "L__self__,,__main__.M;L__self__first,first,__main__.Block;\
                     L__self__first.lin,first.lin,torch.nn.modules.linear.Linear";
        assert_eq!(innermost(stack), "first.lin");
        assert_eq!(innermost("L__self__,,__main__.M"), "(the model itself)");
        assert_eq!(innermost(""), "(the model itself)");
    }
}
