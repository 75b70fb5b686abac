//! HTML view of a program in a single self-contained file: graphs, memory plans, weights and file
//! segments.
//!
//! [`Page`] collects the content; [`memory_plan`] draws a single diagram. The layout is computed
//! here, so that the page only draws what is visible. Start reading at [`Page::html`]; the template
//! is `page.html`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod graphs;
mod layout;
mod memory;
mod weights;

use graphs::{Call, Constants, Known};
use serde_json::{Value, json};
use std::fmt;
use torchlet::graph::graph::Graph;
use torchlet::graph::{self, method::Instruction, method::Program};
use torchlet::{Error, Module, Origin};
use torchlet_devtools::Profile;

const TEMPLATE: &str = include_str!("page.html");
/// Placeholder for the data in the template.
const PLACEHOLDER: &str = "\"DATA\"";
/// Maximum depth of modules that are collapsed.
const MAX_DEPTH: usize = 4;

/// A program cannot be displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageError(String);

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PageError {}

impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        PageError(error.to_string())
    }
}

impl From<graph::Error> for PageError {
    fn from(error: graph::Error) -> Self {
        PageError(format!("the program's graph cannot be drawn: {error}"))
    }
}

/// Names of the `nn.Module`s, such as `layers.0.attention`, that calls were exported from.
pub trait SourceModules {
    /// Module of an instruction of the exported program.
    fn module(&self, instruction: u32) -> Option<&str>;
    /// Module of a call in a delegate of the exported program, by the exporter's number.
    fn part(&self, instruction: u32, part: u32) -> Option<&str>;
    /// Module of a call of the compiled program.
    fn compiled(&self, part: u32) -> Option<&str>;
}

/// Builder of a program's page.
#[derive(Clone)]
pub struct Page<'p> {
    file: &'p str,
    exported: &'p Module,
    compiled: Option<&'p Module>,
    modules: Option<&'p dyn SourceModules>,
    profile: Option<(&'p Profile, bool)>,
    containers: Vec<Value>,
}

impl fmt::Debug for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("file", &self.file).finish_non_exhaustive()
    }
}

impl<'p> Page<'p> {
    /// Creates a page of a program as exported. `file` is its file name.
    pub fn new(file: &'p str, exported: &'p Module) -> Self {
        let (compiled, modules, profile, containers) = (None, None, None, Vec::new());
        Page { file, exported, compiled, modules, profile, containers }
    }

    /// Adds the compiled program, if the compiler changed it.
    #[must_use]
    pub fn compiled(mut self, module: &'p Module) -> Self {
        let is_other = matches!(module.origin(), Origin::Compiled | Origin::Cached);
        self.compiled = is_other.then_some(module);
        self
    }

    /// Adds the source modules of calls.
    #[must_use]
    pub fn modules(mut self, modules: &'p dyn SourceModules) -> Self {
        self.modules = Some(modules);
        self
    }

    /// Adds a profile, either of the program as exported or of the compiled one.
    #[must_use]
    pub fn profile(mut self, profile: &'p Profile, is_as_exported: bool) -> Self {
        self.profile = Some((profile, is_as_exported));
        self
    }

    /// Adds descriptions of delegate data.
    #[must_use]
    pub fn containers(mut self, containers: Vec<Value>) -> Self {
        self.containers = containers;
        self
    }

    /// Renders the page.
    ///
    /// # Errors
    /// The program is malformed.
    pub fn html(&self) -> Result<String, PageError> {
        let mut constants = Constants::new();
        let mut methods = Vec::new();
        for name in self.exported.method_names()? {
            let mut drawn = Vec::new();
            let memory = self.draw(self.exported, &name, true, &mut constants, &mut drawn)?;
            let mut memories = vec![json!({ "title": "exported", "plan": memory })];
            if let Some(module) = self.compiled {
                let memory = self.draw(module, &name, false, &mut constants, &mut drawn)?;
                memories.push(json!({ "title": "compiled", "plan": memory }));
            }
            methods.push(json!({ "name": name, "graphs": drawn, "memory": memories }));
        }
        let data = json!({
            "file": self.file,
            "bytes": self.exported.file_size(),
            "segments": segments(self.exported)?,
            "containers": self.containers,
            "methods": methods,
            "constants": constants.list,
        });
        Ok(filled(self.file, &data))
    }

    /// Adds the graphs of a method and its delegates to `drawn`. Returns the memory plan.
    fn draw(
        &self,
        module: &Module,
        name: &str,
        is_as_exported: bool,
        constants: &mut Constants,
        drawn: &mut Vec<Value>,
    ) -> Result<Value, PageError> {
        let title = if is_as_exported { graphs::EXPORTED } else { graphs::COMPILED };
        constants.side = title;
        let profile = self.profile.filter(|(_, exported)| *exported == is_as_exported);
        let profile = profile.map(|(profile, _)| profile);
        let known = Known { source: self.modules, profile, is_as_exported };
        let source = module.program();
        let program = Program::read(&source)?;
        let Some(method) = program.methods.iter().find(|method| method.name == name) else {
            return Ok(Value::Null);
        };
        let delegates = graph::delegates(&source, module.data(), name)?;
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
}

/// Draws the memory plan of a program's first method as an SVG.
///
/// # Errors
/// The program is malformed, or has no method.
pub fn memory_plan(module: &Module) -> Result<String, PageError> {
    let program = module.program();
    let program = Program::read(&program)?;
    let method = program.methods.first();
    let method = method.ok_or_else(|| PageError("the program has no method".into()))?;
    Ok(memory::svg(method))
}

/// Fills in the template.
fn filled(file: &str, data: &Value) -> String {
    // Escaped so that no text can end the script element.
    let data = data.to_string().replace('<', "\\u003c");
    let (head, tail) = TEMPLATE.split_once(PLACEHOLDER).unwrap_or((TEMPLATE, ""));
    [&head.replace("TITLE", &escaped(file)), data.as_str(), tail].concat()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Adds a graph with different levels of detail.
fn views(title: &str, side: &str, calls: &[Call], drawn: &mut Vec<Value>) {
    let mut views = vec![json!({ "name": "all calls", "graph": graphs::object(title, calls) })];
    let chains = graphs::by_chain(calls);
    views.push(json!({ "name": "collapsed chains", "graph": graphs::object(title, &chains) }));
    for depth in 1..=graphs::depth(calls).min(MAX_DEPTH) {
        if let Some(calls) = graphs::by_module(calls, depth) {
            let name = format!("modules, depth {depth}");
            views.push(json!({ "name": name, "graph": graphs::object(title, &calls) }));
        }
    }
    drawn.push(json!({ "title": title, "side": side, "views": views }));
}

/// Segments of the file: names and sizes in bytes.
fn segments(module: &Module) -> Result<Vec<Value>, PageError> {
    let program = module.program();
    let malformed = |error| PageError(format!("the file is malformed: {error}"));
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
    fn file_texts_are_escaped() {
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
