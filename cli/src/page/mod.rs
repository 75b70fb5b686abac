//! A program as a page: one file that needs nothing else, with graphs, memory plans, weights and what the file consists of.

mod graphs;
mod layout;
mod memory;
mod weights;

use crate::arguments::{Backend, InspectArguments, ModelOptions};
use crate::failure::Failure;
use crate::profile::Source;
use crate::{containers, model};
use graphs::{Call, Constants, Known};
pub(crate) use memory::svg;
use serde_json::{Value, json};
use torchlet::graph::graph::Graph;
use torchlet::graph::{self, method::Instruction, method::Program};
use torchlet::{Module, Origin};
use torchlet_devtools::Profile;

const TEMPLATE: &str = include_str!("page.html");
/// Where the data goes.
const PLACE: &str = "\"DATA\"";
/// How deep modules are shown as one, at most.
const DEEPEST: usize = 4;

/// What else there is to show.
pub(crate) struct Extras {
    pub(crate) source: Option<Source>,
    /// A profile, and whether it is of the program as it was exported.
    pub(crate) profile: Option<(Profile, bool)>,
}

/// The page of a program.
pub(crate) fn page(
    arguments: &InspectArguments,
    exported: &Module,
    extras: &Extras,
) -> Result<String, Failure> {
    let options: &ModelOptions = &arguments.model_options;
    let file = arguments.model.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut constants = Constants::new();
    let compiled = match options.backend {
        Backend::AsExported => None,
        // What cannot be compiled here is shown as it is.
        _ => model::open(&arguments.model, options).ok(),
    };
    let compiled = compiled.filter(|it| matches!(it.origin(), Origin::Compiled | Origin::Cached));
    let mut methods = Vec::new();
    for name in exported.method_names()? {
        let mut drawn = Vec::new();
        let memory = draw(exported, &name, "exported", extras, &mut constants, &mut drawn)?;
        let mut memories = vec![json!({ "title": "exported", "plan": memory })];
        if let Some(module) = &compiled {
            let memory = draw(module, &name, "compiled", extras, &mut constants, &mut drawn)?;
            memories.push(json!({ "title": "compiled", "plan": memory }));
        }
        methods.push(json!({ "name": name, "graphs": drawn, "memory": memories }));
    }
    let data = json!({
        "file": file,
        "bytes": exported.file_size(),
        "segments": segments(exported)?,
        "containers": containers::of(exported)?.iter().map(containers::Container::object).collect::<Vec<_>>(),
        "methods": methods,
        "constants": constants.list,
    });
    Ok(filled(&file, &data))
}

/// The template with the name of the file and the data.
fn filled(file: &str, data: &Value) -> String {
    // Nothing in a text may end the script.
    let data = data.to_string().replace('<', "\\u003c");
    let (head, tail) = TEMPLATE.split_once(PLACE).unwrap_or((TEMPLATE, ""));
    [&head.replace("TITLE", &escaped(file)), data.as_str(), tail].concat()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn failure(error: graph::Error) -> Failure {
    Failure::new(format!("the graph of the program cannot be drawn: {error}"))
}

/// Adds the graphs of a method, with those of its delegates, and gives the plan of its memory.
fn draw(
    module: &Module,
    name: &str,
    title: &str,
    extras: &Extras,
    constants: &mut Constants,
    drawn: &mut Vec<Value>,
) -> Result<Value, Failure> {
    let is_as_exported = title == "exported";
    let profile = extras.profile.as_ref().filter(|(_, exported)| *exported == is_as_exported);
    let known = Known {
        source: extras.source.as_ref(),
        profile: profile.map(|(profile, _)| profile),
        is_as_exported,
    };
    let source = module.program();
    let program = Program::read(&source).map_err(failure)?;
    let Some(method) = program.methods.iter().find(|method| method.name == name) else {
        return Ok(Value::Null);
    };
    let delegates = graph::delegates(&source, module.data(), name).map_err(failure)?;
    let inputs = |found: &Option<Result<Graph<'_>, graph::Error>>| match found {
        Some(Ok(graph)) => Some(graph.inputs.len()),
        _ => None,
    };
    let inputs: Vec<Option<usize>> = delegates.iter().map(inputs).collect();
    let calls = graphs::of_method(method, &inputs, &known, constants);
    views(title, title, &calls, drawn);
    for (index, found) in delegates.iter().enumerate() {
        let Some(Ok(found)) = found else { continue };
        let caller = method.instructions.iter().position(|instruction| {
            matches!(instruction, Instruction::Delegate { delegate, .. } if *delegate == index)
        });
        let caller = caller.and_then(|at| u32::try_from(at).ok());
        let calls = graphs::of_delegate(found, caller, &known, constants);
        let backend = method.delegates.get(index).map_or("", |delegate| &delegate.backend);
        views(&format!("{title}: {backend} #{index}"), title, &calls, drawn);
    }
    Ok(memory::object(&memory::plan(method)))
}

/// A graph with all its calls, and with several as one.
fn views(title: &str, side: &str, calls: &[Call], drawn: &mut Vec<Value>) {
    let mut views = vec![json!({ "name": "all calls", "graph": graphs::object(title, calls) })];
    views.push(json!({ "name": "chains as one", "graph": graphs::object(title, &graphs::by_chain(calls)) }));
    for depth in 1..=graphs::depth(calls).min(DEEPEST) {
        if let Some(calls) = graphs::by_module(calls, depth) {
            let name = format!("modules, depth {depth}");
            views.push(json!({ "name": name, "graph": graphs::object(title, &calls) }));
        }
    }
    drawn.push(json!({ "title": title, "side": side, "views": views }));
}

/// What the file consists of: names and bytes.
fn segments(module: &Module) -> Result<Vec<Value>, Failure> {
    let program = module.program();
    let malformed = |error| Failure::new(format!("the file is malformed: {error}"));
    let mut parts = vec![json!(["program (flatbuffer)", program.flatbuffer_size()])];
    for index in 0..program.segment_count() {
        let size = program.segment_size(index).map_err(malformed)?;
        parts.push(json!([format!("segment {index}"), size]));
    }
    let known: u64 = parts.iter().filter_map(|part| part[1].as_u64()).sum();
    let rest = module.file_size().saturating_sub(known);
    if rest > 0 {
        let what = if module.bundled().is_some() { "test cases and padding" } else { "padding" };
        parts.push(json!([what, rest]));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_files_stay_texts() {
        let data = json!({ "name": "</script><b>TITLE \"DATA\"" });
        for file in ["a\"b.pte", "\"DATA\" <i>"] {
            let page = filled(file, &data);
            let (_, rest) = page.split_once("id=\"data\">").unwrap();
            let (text, _) = rest.split_once("</script>").unwrap();
            assert_eq!(serde_json::from_str::<Value>(text).unwrap(), data);
            assert!(page.contains(&format!("<title>{} ·", escaped(file))));
        }
    }
}
