//! Front end for graphs that are recorded call by call, such as lazy tensors.

use crate::emit::Emitter;
use crate::error::Error;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::lower::portable;
use crate::method::{Method, Program};
use crate::operators::Operator;
use crate::passes::dead;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of times that rules apply to the results of rules.
const ROUNDS: usize = 4;

/// Returns a program whose only method, `forward`, computes a graph with kernels. Composite
/// operators are lowered. Constants are borrowed as far as the graph borrows them.
///
/// # Errors
/// An operator has no kernel, or the graph is inconsistent.
pub fn program(mut graph: Graph<'_>) -> Result<Program<'_>, Error> {
    dead::run(&mut graph);
    for _ in 0..ROUNDS {
        let all = vec![true; graph.nodes.len()];
        if !portable::run_some(&mut graph, &all)? {
            break;
        }
    }
    dead::run(&mut graph);
    let lacks = |node: &&Node| node.operator.instruction().is_none();
    let lacking: BTreeSet<&str> =
        graph.nodes.iter().filter(lacks).map(|node| node.operator.name()).collect();
    if !lacking.is_empty() {
        let lacking: Vec<&str> = lacking.into_iter().collect();
        return Err(Error::Unsupported(lacking.join("; ")));
    }
    crate::passes::verify::verify(&graph)?;
    copy_given_outputs(&mut graph);
    let mut method = Method { name: String::from("forward"), ..Method::default() };
    let mut emitter = Emitter::new(&mut method);
    let mut inputs = Vec::with_capacity(graph.inputs.len());
    for id in &graph.inputs {
        inputs.push(emitter.value(&graph, *id)?);
    }
    for node in &graph.nodes {
        emitter.emit(&graph, node)?;
    }
    let mut outputs = Vec::with_capacity(graph.outputs.len());
    for id in &graph.outputs {
        outputs.push(emitter.value(&graph, *id)?);
    }
    let instructions = emitter.finish();
    (method.instructions, method.inputs, method.outputs) = (instructions, inputs, outputs);
    method.plan()?;
    Ok(Program { methods: vec![method], named: Vec::new() })
}

/// Inserts a copy where an output is itself an input or a constant, or is returned twice: outputs
/// have memory of their own.
fn copy_given_outputs(graph: &mut Graph<'_>) {
    let results = graph.nodes.iter().filter_map(|node| node.args.last());
    let made: BTreeSet<ValueId> =
        results.flat_map(|out| graph.items(out).iter().copied()).collect();
    let mut seen = BTreeSet::new();
    let mut outputs = core::mem::take(&mut graph.outputs);
    for id in &mut outputs {
        if seen.insert(*id) && made.contains(id) {
            continue;
        }
        let Some(Value::Tensor(tensor)) = graph.values.get(*id) else { continue };
        let mut copied = tensor.clone();
        (copied.data, copied.changes) = (None, None);
        graph.values.extend([Value::None, Value::Tensor(copied)]);
        let (none, copy) = (graph.values.len() - 2, graph.values.len() - 1);
        graph.nodes.push(Node::new(Operator::CLONE, vec![*id, none, copy]));
        *id = copy;
    }
    graph.outputs = outputs;
}
