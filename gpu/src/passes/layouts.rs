//! Graphs whose images exist in two layouts while they are rewritten: the default one, and channels
//! last.

use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};

/// The rewritten calls of a graph.
#[derive(Default)]
pub(super) struct Layouts {
    pub(super) nodes: Vec<Node>,
    /// Results of calls that may be removed if they are unused.
    added: HashSet<ValueId>,
    /// For each tensor, its copy in channels-last layout.
    pub(super) last: HashMap<ValueId, ValueId>,
}

impl Layouts {
    /// Adds a call that is removed if its result is unused.
    pub(super) fn add(&mut self, node: Node) {
        self.added.extend(node.args.last());
        self.nodes.push(node);
    }

    /// Stores the calls in the graph, without those that are unused.
    pub(super) fn finish(self, graph: &mut Graph<'_>) {
        graph.nodes = self.nodes;
        drop_unused(graph, &self.added);
    }
}

/// Adds a tensor of the same type as an image tensor; `shape` returns its sizes from those of the
/// image.
pub(super) fn image_copy(
    graph: &mut Graph<'_>,
    id: ValueId,
    shape: impl FnOnce(&Tensor<'_>, [usize; 4]) -> Option<Vec<usize>>,
) -> Option<ValueId> {
    let tensor = graph.tensor(id).filter(|tensor| !tensor.dynamic)?;
    let sizes = shape(tensor, *tensor.sizes.first_chunk().filter(|_| tensor.sizes.len() == 4)?)?;
    let (scalar_type, host_type) = (tensor.scalar_type, tensor.host_type);
    let (dynamic, data, changes) = (false, None, None);
    let tensor = Tensor { scalar_type, host_type, sizes, dynamic, data, changes };
    graph.values.push(Value::Tensor(tensor));
    Some(graph.values.len() - 1)
}

/// Removes calls whose result is in `added` and unused.
fn drop_unused(graph: &mut Graph<'_>, added: &HashSet<ValueId>) {
    let mut taken: HashSet<ValueId> =
        graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)).copied().collect();
    let mut kept = Vec::with_capacity(graph.nodes.len());
    while let Some(node) = graph.nodes.pop() {
        let out = node.args.last();
        if out.is_some_and(|out| added.contains(out) && !taken.contains(out)) {
            continue;
        }
        let inputs = node.args.split_last().map(|(_, inputs)| inputs).unwrap_or_default();
        let inputs = inputs.iter().flat_map(|id| graph.items(id).iter().chain([id]));
        taken.extend(inputs);
        kept.push(node);
    }
    kept.reverse();
    graph.nodes = kept;
}
