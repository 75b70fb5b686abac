//! Rewrites graphs whose images exist in two layouts at first: the default layout and channels
//! last.

use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};

/// The rewritten calls of a graph.
#[derive(Default)]
pub(super) struct Layouts {
    pub(super) nodes: Vec<Node>,
    /// Results of added calls, which are removed if nothing uses their result.
    added: HashSet<ValueId>,
    /// The copy of each tensor in channels-last layout.
    pub(super) last: HashMap<ValueId, ValueId>,
}

impl Layouts {
    /// Adds a call that is removed if nothing uses its result.
    pub(super) fn add(&mut self, node: Node) {
        self.added.extend(node.args.last());
        self.nodes.push(node);
    }

    /// Stores the rewritten calls in the graph, without unused added calls.
    pub(super) fn finish(self, graph: &mut Graph<'_>) {
        graph.nodes = self.nodes;
        drop_unused(graph, &self.added);
    }
}

/// Adds a tensor with the type of an image tensor. `shape` computes the sizes of the new tensor
/// from those of the image tensor.
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

/// Removes calls whose result is in `added` and that nothing uses.
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
