//! Modules of the PyTorch source, as an ETRecord tells of them: which node of the exported graph an instruction is, and which module a
//! node comes from.

use super::read_file;
use crate::failure::Failure;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::Path;
use torchlet::Module;
use torchlet::core::Registry;
use torchlet::graph;
use torchlet_page::Modules;
use zip::ZipArchive;

/// The most bytes that a part of a record may have, unpacked.
const MOST: u64 = 1 << 30;

/// The modules that instructions come from.
#[derive(Debug, Default)]
pub(crate) struct Source {
    modules: BTreeMap<u32, String>,
    /// Those of calls in delegates, by the instruction and the exporter's number.
    parts: BTreeMap<(u32, u32), String>,
    /// The instruction that each call is in what the compiler makes of the program.
    numbers: Vec<Option<usize>>,
}

impl Source {
    /// Reads an ETRecord.
    pub(crate) fn read(path: &Path, method: Option<&str>) -> Result<Self, Failure> {
        let fail = |what: &dyn std::fmt::Display| {
            Failure::new(format!(
                "'{}': {what}; expected what ExecuTorch's ETRecord.save wrote",
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
        let mut of_handles: BTreeMap<u64, String> = BTreeMap::new();
        let nodes = graph["graph_module"]["graph"]["nodes"].as_array();
        for node in nodes.into_iter().flatten() {
            let metadata = &node["metadata"];
            let handle = metadata["debug_handle"].as_str().and_then(|text| text.parse().ok());
            let stack = metadata["nn_module_stack"].as_str();
            if let (Some(handle), Some(stack)) = (handle, stack) {
                of_handles.entry(handle).or_insert_with(|| innermost(stack));
            }
        }
        let mut modules = BTreeMap::new();
        for (instruction, handles) in handles[method].as_object().into_iter().flatten() {
            let first = match handles {
                Value::Array(handles) => handles.first().and_then(Value::as_u64),
                other => other.as_u64(),
            };
            let module = first.and_then(|handle| of_handles.get(&handle));
            if let (Ok(instruction), Some(module)) = (instruction.parse(), module) {
                modules.insert(instruction, module.clone());
            }
        }
        let delegates = part(&mut archive, "delegate_map").unwrap_or_default();
        let mut parts = BTreeMap::new();
        for (instruction, delegate) in delegates[method].as_object().into_iter().flatten() {
            let Ok(instruction) = instruction.parse() else { continue };
            for (number, handles) in delegate["delegate_map"].as_object().into_iter().flatten() {
                let mut handles =
                    handles.as_array().into_iter().flatten().filter_map(Value::as_u64);
                let module = handles.find_map(|handle| of_handles.get(&handle));
                if let (Ok(number), Some(module)) = (number.parse(), module) {
                    parts.insert((instruction, number), module.clone());
                }
            }
        }
        if modules.is_empty() {
            let what = format!("no instruction of method '{method}' is known in it");
            return Err(fail(&what));
        }
        Ok(Source { modules, parts, numbers: Vec::new() })
    }

    /// The same, that knows calls that were compiled, too, of a program as it was exported.
    pub(crate) fn with_compiled(mut self, exported: &Module, method: &str) -> Self {
        let registry = Registry::new().with_kernels(&torchlet::portable::KERNELS);
        let numbers = registry
            .ok()
            .and_then(|registry| graph::numbers(&exported.program(), &registry, method).ok());
        self.numbers = numbers.unwrap_or_default();
        self
    }
}

impl Modules for Source {
    fn compiled(&self, number: u32) -> Option<&str> {
        let instruction = self.numbers.get(usize::try_from(number).ok()?).copied().flatten()?;
        self.module(u32::try_from(instruction).ok()?)
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
    entry.take(MOST).read_to_end(&mut bytes).map_err(|error| fail(&error))?;
    without_odd_numbers(&mut bytes);
    serde_json::from_slice(&bytes).map_err(|error| fail(&error))
}

/// Overwrites what Python writes for numbers that JSON does not have.
fn without_odd_numbers(bytes: &mut [u8]) {
    const ODD: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let (mut at, mut in_text) = (0, false);
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            // What comes behind it is part of a text, whatever it is.
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

/// The path of the innermost module of a stack, whose entries are `key,path,,type`, apart by `;`.
fn innermost(stack: &str) -> String {
    let last = stack.rsplit(';').next().unwrap_or(stack);
    let path = last.split(',').nth(1).unwrap_or("");
    if path.is_empty() { "(the model itself)".to_owned() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_lacks_is_overwritten() {
        let mut text = br#"{"a NaN \" -Infinity": [NaN, -Infinity, Infinity, -1, "NaN"]}"#.to_vec();
        without_odd_numbers(&mut text);
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["a NaN \" -Infinity"], serde_json::json!([0, 0, 0, -1, "NaN"]));
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
