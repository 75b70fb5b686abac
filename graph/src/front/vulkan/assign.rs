//! Converts in-place overwrites to SSA form.
//!
//! Some exporters let the new value of a buffer overwrite the old one (`alias_buffer_mutations`).
//! In SSA form, calls can be moved and fused without tracking readers of the old value; an update
//! stores the last value in the buffer after the run.

use crate::graph::{Graph, Tensor, Value, ValueId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Makes each value the result of exactly one call. Overwrites become updates of the graph.
pub(super) fn once(graph: &mut Graph<'_>) {
    let is_constant =
        |value: &Value<'_>| matches!(value, Value::Tensor(Tensor { data: Some(_), .. }));
    let values = graph.values.iter().enumerate();
    let mut known: BTreeSet<ValueId> =
        values.filter(|(_, value)| is_constant(value)).map(|(id, _)| id).collect();
    known.extend(&graph.inputs);
    // Maps each overwritten value to its current version.
    let mut current: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut nodes = core::mem::take(&mut graph.nodes);
    for node in &mut nodes {
        let in_place = node.operator.traits().writes_arguments();
        let Some((out, inputs)) = node.args.split_last_mut() else { continue };
        for id in inputs.iter_mut() {
            *id = renamed(graph, &current, *id);
            known.extend(graph.items(id));
        }
        for id in graph.items(out).to_vec() {
            let overwrites = known.contains(&id) && !in_place;
            known.insert(id);
            if overwrites && let Some(Value::Tensor(tensor)) = graph.values.get(id) {
                let fresh = Value::Tensor(Tensor { data: None, ..tensor.clone() });
                current.insert(id, graph.values.len());
                graph.values.push(fresh);
            }
        }
        *out = renamed(graph, &current, *out);
    }
    graph.nodes = nodes;
    let outputs = core::mem::take(&mut graph.outputs);
    graph.outputs = outputs.into_iter().map(|id| renamed(graph, &current, id)).collect();
    let mut updates: Vec<(ValueId, ValueId)> =
        current.into_iter().map(|(old, new)| (new, old)).collect();
    updates.sort_unstable();
    graph.updates = updates;
}

/// Replaces a value by its current version. A list with replaced items becomes a new list.
fn renamed(graph: &mut Graph<'_>, current: &BTreeMap<ValueId, ValueId>, id: ValueId) -> ValueId {
    let of = |id: &ValueId| current.get(id).copied().unwrap_or(*id);
    match graph.values.get(id) {
        Some(Value::List(items)) if items.iter().any(|id| current.contains_key(id)) => {
            let items = items.iter().map(of).collect();
            graph.values.push(Value::List(items));
            graph.values.len() - 1
        }
        _ => of(&id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;
    use crate::operators::Operator;
    use alloc::vec;
    use torchlet_core::ScalarType;

    /// Builds a graph of calls `(operator, inputs, output)` over four tensors.
    fn graph(calls: &[(Operator, &[ValueId], ValueId)], outputs: &[ValueId]) -> Graph<'static> {
        let tensor = || {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: vec![2],
                dynamic: false,
                data: None,
                changes: None,
            })
        };
        let node = |(operator, inputs, out): &(Operator, &[ValueId], ValueId)| {
            Node::new(*operator, [inputs, &[*out][..]].concat())
        };
        Graph {
            values: (0..4).map(|_| tensor()).collect(),
            nodes: calls.iter().map(node).collect(),
            inputs: vec![0],
            outputs: outputs.to_vec(),
            ..Graph::default()
        }
    }

    #[test]
    fn what_is_overwritten_stays_what_it_was_for_calls_before() {
        // Value 1 is read, overwritten, read and overwritten again.
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::ABS, &[1], 2),
            (Operator::NEG, &[0], 1),
            (Operator::MUL_TENSOR, &[1, 2], 3),
            (Operator::EXP, &[3], 1),
        ];
        let mut graph = graph(calls, &[1, 3]);
        once(&mut graph);
        let (second, third) = (4, 5);
        let args: Vec<&[ValueId]> = graph.nodes.iter().map(|node| node.args.as_slice()).collect();
        assert_eq!(args, [&[1, 2][..], &[0, second], &[second, 2, 3], &[3, third]]);
        assert_eq!((graph.outputs, graph.updates), (vec![third, 3], vec![(third, 1)]));
    }
}
