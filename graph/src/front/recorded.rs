//! Front end for graphs that are recorded call by call, such as lazy tensors.

use super::kernels;
use crate::budget::Computed;
use crate::emit::Emitter;
use crate::error::Error;
use crate::graph::Graph;
use crate::lower::portable::VaryingDims;
use crate::method::{Method, Program};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Returns a program whose only method, `forward`, computes a graph with kernels. Composite
/// operators are lowered. Constants are borrowed as far as the graph borrows them.
///
/// # Errors
/// An operator has no kernel, or the graph is inconsistent.
pub fn program(mut graph: Graph<'_>) -> Result<Program<'_>, Error> {
    kernels::lower(&mut graph, VaryingDims::UNKNOWN, &Computed::new())?;
    kernels::copy_given_values(&mut graph, BTreeSet::new());
    let mut method = Method { name: String::from("forward"), ..Method::default() };
    let mut emitter = Emitter::new(&mut method);
    let inputs = emitter.all(&graph, &graph.inputs)?;
    for node in &graph.nodes {
        emitter.emit(&graph, node)?;
    }
    let outputs = emitter.all(&graph, &graph.outputs)?;
    let instructions = emitter.finish();
    (method.instructions, method.inputs, method.outputs) = (instructions, inputs, outputs);
    method.plan()?;
    Ok(Program { methods: vec![method], named: Vec::new() })
}
