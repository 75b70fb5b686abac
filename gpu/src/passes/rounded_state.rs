//! Rounds new values of `bfloat16` state.
//!
//! Devices store `bfloat16` tensors as 32-bit floats, and operators do not round their results.
//! Within a run, that only makes results more accurate. State would keep the additional precision
//! from run to run and drift away from PyTorch's: 256 + 1 is 256 in `bfloat16`.

use std::collections::{BTreeSet, HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::{
    IndexPutArgs, Operator, ScatterArgs, SelectScatterArgs, SliceScatterArgs,
};

/// Rounds each computed value that becomes `bfloat16` state or replaces a part of it. All calls
/// then read the rounded value.
pub(super) fn round(graph: &mut Graph<'_>) {
    let computed = computed(graph);
    let mut rounded = HashMap::new();
    // The conversions behind each call.
    let mut conversions: HashMap<usize, Vec<Node>> = HashMap::new();
    for (index, id) in computed {
        let Some(Value::Tensor(tensor)) = graph.values.get(id).cloned() else { continue };
        let wide = graph.values.len();
        let narrow = wide + 1;
        let wide_tensor = Tensor { scalar_type: ScalarType::Float, ..tensor.clone() };
        graph.values.extend([Value::Tensor(wide_tensor), Value::Tensor(tensor)]);
        rounded.insert(id, narrow);
        // Only conversions from another dtype round. The first one is a view.
        let convert = |from, to| Node::new(Operator::TO_COPY, vec![from, to]);
        let own = conversions.entry(index).or_default();
        own.extend([convert(id, wide), convert(wide, narrow)]);
    }
    if rounded.is_empty() {
        return;
    }
    let rename = |id: &mut ValueId| *id = rounded.get(id).copied().unwrap_or(*id);
    let mut lists = HashSet::new();
    for (_, inputs) in graph.nodes.iter_mut().filter_map(|node| node.args.split_last_mut()) {
        inputs.iter_mut().for_each(rename);
        lists.extend(inputs.iter().copied());
    }
    // Lists of outputs name what calls compute.
    let made: HashSet<ValueId> =
        graph.nodes.iter().filter_map(|node| node.args.last().copied()).collect();
    for list in lists.difference(&made) {
        if let Some(Value::List(items)) = graph.values.get_mut(*list) {
            items.iter_mut().for_each(rename);
        }
    }
    graph.outputs.iter_mut().for_each(rename);
    graph.updates.iter_mut().for_each(|(new, _)| rename(new));
    let nodes = std::mem::take(&mut graph.nodes);
    for (index, node) in nodes.into_iter().enumerate() {
        graph.nodes.push(node);
        graph.nodes.extend(conversions.remove(&index).unwrap_or_default());
    }
}

/// Returns the values to round, each with the index of the call that computes it.
fn computed(graph: &Graph<'_>) -> BTreeSet<(usize, ValueId)> {
    let mut producers = HashMap::new();
    let mut written: HashSet<ValueId> = HashSet::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let outputs = node.args.last().map_or(&[][..], |out| graph.items(out));
        producers.extend(outputs.iter().map(|id| (*id, index)));
        let writes = node.operator.traits().writes;
        written.extend(writes.iter().filter_map(|argument| node.args.get(argument)));
    }
    let mut pending: Vec<ValueId> = graph.updates.iter().map(|(new, _)| *new).collect();
    let (mut seen, mut computed) = (HashSet::new(), BTreeSet::new());
    while let Some(id) = pending.pop() {
        let is_narrow = graph.tensor(id).is_some_and(|it| it.scalar_type == ScalarType::BFloat16);
        // Caches of attention are not rounded: their elements are written once, never added to.
        // Inputs and constants have no producer; they are exact.
        let index = producers.get(&id).filter(|_| is_narrow && !written.contains(&id));
        let Some(&index) = index.filter(|_| seen.insert(id)) else { continue };
        match graph.nodes.get(index).and_then(|node| written_parts(graph, node)) {
            Some(parts) => pending.extend(parts),
            None => {
                computed.insert((index, id));
            }
        }
    }
    computed
}

/// Returns the old tensor and the new values of a call that replaces some elements of a tensor;
/// `None` for other calls.
fn written_parts(graph: &Graph<'_>, node: &Node) -> Option<[ValueId; 2]> {
    if let Some(call) = SliceScatterArgs::matching(node) {
        return Some([call.input, call.src]);
    }
    if let Some(call) = SelectScatterArgs::matching(node) {
        return Some([call.input, call.src]);
    }
    if node.operator == Operator::SCATTER_SRC {
        let call = ScatterArgs::of(node).ok()?;
        return Some([call.input, call.src]);
    }
    let call = IndexPutArgs::matching(node)?;
    let accumulates = call.accumulate.and_then(|id| graph.values.get(id));
    (!matches!(accumulates, Some(Value::Bool(true)))).then_some([call.input, call.values])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(scalar_type: ScalarType) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes: vec![4],
            dynamic: false,
            data: None,
            changes: None,
        })
    }

    /// Returns the operators after the pass for state 0 with the new value 2; value 1 is an input,
    /// and value 3 is the integer 1.
    fn operators_after(
        scalar_type: ScalarType,
        nodes: Vec<Node>,
    ) -> (Vec<Operator>, Graph<'static>) {
        let mut values = vec![tensor(scalar_type); 3];
        values.extend([Value::Int(1), tensor(scalar_type)]);
        let mut graph =
            Graph { values, nodes, inputs: vec![0, 1], updates: vec![(2, 0)], ..Graph::default() };
        round(&mut graph);
        (graph.nodes.iter().map(|node| node.operator).collect(), graph)
    }

    const ROUNDED: [Operator; 3] = [Operator::ADD_TENSOR, Operator::TO_COPY, Operator::TO_COPY];

    #[test]
    fn computed_state_is_rounded() {
        let add = || vec![Node::new(Operator::ADD_TENSOR, vec![0, 1, 3, 2])];
        let (operators, graph) = operators_after(ScalarType::BFloat16, add());
        assert_eq!(operators, ROUNDED);
        assert_eq!(graph.updates, [(6, 0)]);
        assert_eq!(graph.nodes[1].args, [2, 5]);
        assert_eq!(graph.nodes[2].args, [5, 6]);
        assert_eq!(operators_after(ScalarType::Float, add()).0, [Operator::ADD_TENSOR]);
    }

    /// Only the new elements of a large cache are rounded.
    #[test]
    fn only_written_parts_are_rounded() {
        let add = Node::new(Operator::ADD_TENSOR, vec![1, 1, 3, 4]);
        let write = Node::new(Operator::SLICE_SCATTER, vec![0, 4, 2]);
        let (operators, graph) = operators_after(ScalarType::BFloat16, vec![add, write]);
        assert_eq!(operators, [&ROUNDED[..], &[Operator::SLICE_SCATTER]].concat());
        assert_eq!(graph.updates, [(2, 0)]);
        assert_eq!(graph.nodes[3].args, [0, 6, 2]);
    }

    #[test]
    fn exact_values_stay() {
        let write = vec![Node::new(Operator::SLICE_SCATTER, vec![0, 1, 2])];
        let (operators, _) = operators_after(ScalarType::BFloat16, write);
        assert_eq!(operators, [Operator::SLICE_SCATTER]);
    }
}
