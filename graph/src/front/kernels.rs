//! Graphs of front ends, prepared to become calls of kernels.

#[cfg(any(feature = "pt2", feature = "lazy"))]
use crate::budget::Computed;
use crate::error::Error;
use crate::graph::{Graph, Node, Value, ValueId};
#[cfg(any(feature = "pt2", feature = "lazy"))]
use crate::lower::portable::{self, VaryingDims};
use crate::operators::Operator;
use crate::passes::{dead, verify};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of times that rules apply to the results of rules.
#[cfg(any(feature = "pt2", feature = "lazy"))]
const ROUNDS: usize = 4;

/// Lowers composite operators until all calls have kernels, and checks the graph.
///
/// # Errors
/// Calls have no kernel; the message lists all of them. Or the graph is inconsistent.
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) fn lower(
    graph: &mut Graph<'_>,
    varying: &VaryingDims,
    computed: &Computed,
) -> Result<(), Error> {
    dead::run(graph);
    for _ in 0..ROUNDS {
        if !portable::run_composites(graph, varying, computed)? {
            break;
        }
    }
    check(graph)
}

/// Removes unused calls, and checks that all others have kernels.
///
/// # Errors
/// Calls have no kernel; the message lists all of them. Or the graph is inconsistent.
pub(crate) fn check(graph: &mut Graph<'_>) -> Result<(), Error> {
    dead::run(graph);
    let lacks = |node: &&Node| node.operator.instruction().is_none();
    let lacking: BTreeSet<&str> =
        graph.nodes.iter().filter(lacks).map(|node| node.operator.name()).collect();
    if !lacking.is_empty() {
        let lacking: Vec<&str> = lacking.into_iter().collect();
        return Err(Error::Unsupported(lacking.join("; ")));
    }
    verify::verify(graph)
}

/// Inserts a copy where an output or a new state is itself an input, a constant or a state: outputs
/// have memory of their own, and state may be overwritten before it is read.
pub(crate) fn copy_given_values(graph: &mut Graph<'_>, written: BTreeSet<ValueId>) {
    let mut made = written;
    let results = graph
        .nodes
        .iter()
        .filter_map(|node| node.args.last())
        .flat_map(|out| graph.items(out).iter().copied());
    made.extend(results);
    let mut outputs = core::mem::take(&mut graph.outputs);
    let mut updates = core::mem::take(&mut graph.updates);
    let mut seen = BTreeSet::new();
    let leaving = outputs.iter_mut().chain(updates.iter_mut().map(|(new, _)| new));
    for id in leaving {
        let is_first = seen.insert(*id);
        if made.contains(id) && is_first {
            continue;
        }
        let Some(Value::Tensor(tensor)) = graph.values.get(*id) else { continue };
        let mut copied = tensor.clone();
        (copied.data, copied.changes) = (None, None);
        graph.values.extend([Value::None, Value::Tensor(copied)]);
        let (none, copy) = (graph.values.len() - 2, graph.values.len() - 1);
        // After all calls and events.
        let copying = Node::new(Operator::CLONE, vec![*id, none, copy]);
        graph.nodes.push(Node { id: u32::MAX, ..copying });
        *id = copy;
    }
    (graph.outputs, graph.updates) = (outputs, updates);
}
