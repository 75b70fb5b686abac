//! Reuses concatenations that are prefixes of later ones.
//!
//! In DenseNet and similar networks, each layer concatenates the results of all layers before it.
//! If each concatenation starts with the previous one, the layers' results can be written directly
//! into the last one, without copies ([`give_part`](crate::encoder::Encoder::give_part)).

use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Value, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_graph::passes::uses::has_unique_producers;

/// Rewrites each concatenation whose list starts with all tensors of an earlier concatenation over
/// the same dim: its list then starts with the result of the earlier one.
pub(super) fn share(graph: &mut Graph<'_>) {
    if !has_unique_producers(graph) {
        return;
    }
    // For each first tensor and dim, the latest concatenation: its list, and its result.
    let mut latest: HashMap<(ValueId, i64), (Vec<ValueId>, ValueId)> = HashMap::new();
    for index in 0..graph.nodes.len() {
        let Some(node) = graph.nodes.get(index) else { continue };
        if node.operator.traits().writes_arguments() {
            latest.clear();
        }
        let (Operator::CAT, &[list, ref dim @ .., out]) = (node.operator, &node.args[..]) else {
            continue;
        };
        let dim = match dim.first().map(|dim| graph.values.get(*dim)) {
            None => 0,
            Some(Some(Value::Int(dim))) => *dim,
            Some(_) => continue,
        };
        let Some(Value::List(items)) = graph.values.get(list) else { continue };
        let Some(first) = items.first().copied() else { continue };
        let items = items.clone();
        // Skips concatenations that convert types, which would make the prefixes differ.
        let of = |id| graph.tensor(id).map(|tensor| tensor.scalar_type);
        if items.iter().any(|item| of(*item).is_none() || of(*item) != of(out)) {
            continue;
        }
        if let Some((before, made)) = latest.get(&(first, dim))
            && before.len() > 1
            && let Some(rest) = items.strip_prefix(&before[..])
        {
            let shorter = [&[*made], rest].concat();
            graph.values.push(Value::List(shorter));
            let list = graph.values.len() - 1;
            if let Some(slot) = graph.nodes.get_mut(index).and_then(|node| node.args.first_mut()) {
                *slot = list;
            }
        }
        latest.insert((first, dim), (items, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Node, Tensor};

    /// Builds concatenations of these lists over these dims, and returns the rewritten lists.
    /// Values 0 to 3 are tensors, results start at 10.
    fn shared(calls: &[(&[ValueId], i64)]) -> Vec<Vec<ValueId>> {
        let tensor = || {
            let (scalar_type, sizes) = (ScalarType::Float, vec![1, 4]);
            let (host_type, dynamic, data, changes) = (scalar_type, false, None, None);
            Value::Tensor(Tensor { scalar_type, host_type, sizes, dynamic, data, changes })
        };
        let mut graph = Graph { values: (0..20).map(|_| tensor()).collect(), ..Graph::default() };
        for (number, (items, dim)) in calls.iter().enumerate() {
            graph.values.push(Value::List(items.to_vec()));
            graph.values.push(Value::Int(*dim));
            let list = graph.values.len() - 2;
            graph.nodes.push(Node::new(Operator::CAT, vec![list, list + 1, 10 + number]));
        }
        share(&mut graph);
        graph.nodes.iter().map(|node| graph.items(&node.args[0]).to_vec()).collect()
    }

    #[test]
    fn concatenations_reuse_their_prefix() {
        let found = shared(&[(&[0, 1], 1), (&[0, 1, 2], 1), (&[0, 1, 2, 3], 1)]);
        assert_eq!(found, [vec![0, 1], vec![10, 2], vec![11, 3]]);
        // A repeated concatenation becomes a concatenation of the first result alone.
        assert_eq!(shared(&[(&[0, 1], 1), (&[0, 1], 1)]), [vec![0, 1], vec![10]]);
    }

    #[test]
    fn other_concatenations_stay() {
        let cases: [&[(&[ValueId], i64)]; 3] = [
            &[(&[0, 1], 1), (&[0, 1, 2], 0)],
            &[(&[0, 1], 1), (&[0, 2, 1], 1)],
            &[(&[0], 1), (&[0, 1], 1)],
        ];
        for calls in cases {
            let lists: Vec<_> = calls.iter().map(|(items, _)| items.to_vec()).collect();
            assert_eq!(shared(calls), lists);
        }
    }
}
