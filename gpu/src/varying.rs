//! Finds the calls that read integers which change from run to run. Their parameters change too.

use std::collections::HashSet;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

/// Returns the indices of the calls that read integers which are inputs of the graph, are computed
/// from inputs, or are read from the contents of inputs.
pub(crate) fn varying_calls(graph: &Graph<'_>) -> Vec<usize> {
    let is_integer = |id: &ValueId| matches!(graph.values.get(*id), Some(Value::SymInt(_)));
    let mut integers: HashSet<ValueId> = graph.inputs.iter().copied().filter(is_integer).collect();
    let mut calls = Vec::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        let varies = node.operator == Operator::ET_VK_SELECT_AS_SYMINT
            || arguments(graph, node).any(|id| integers.contains(&id));
        if varies {
            calls.push(place);
            integers.extend(node.args.last().copied().filter(is_integer));
        }
    }
    calls
}

/// Returns all arguments of a call and of the calls that it was fused from, including list items.
pub(crate) fn arguments<'g>(
    graph: &'g Graph<'_>,
    node: &'g Node,
) -> impl Iterator<Item = ValueId> + 'g {
    let parts = node.parts.iter().flat_map(|part| &part.args);
    node.args.iter().chain(parts).flat_map(|id| graph.items(id)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varying_calls_depend_on_input_integers() {
        let node = |operator, args: &[ValueId]| Node::new(operator, args.to_vec());
        let graph = Graph {
            values: vec![
                Value::SymInt(0),
                Value::Int(1),
                Value::SymInt(0),
                Value::List(vec![1, 2]),
                Value::SymInt(4),
                Value::List(vec![1, 4]),
                Value::SymInt(7),
            ],
            nodes: vec![
                node(Operator::SYM_ADD, &[0, 1, 2]),
                node(Operator::ABS, &[1, 4]),
                node(Operator::VIEW_COPY, &[1, 5, 1]),
                node(Operator::VIEW_COPY, &[1, 3, 1]),
                // Also reads integer 6, which nevertheless does not vary.
                node(Operator::UPDATE_CACHE, &[1, 1, 0, 6, 1]),
                node(Operator::VIEW_COPY, &[1, 6, 1]),
            ],
            inputs: vec![0],
            ..Graph::default()
        };
        assert_eq!(varying_calls(&graph), [0, 3, 4]);
    }
}
