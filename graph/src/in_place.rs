//! Computes new state values in place of the old ones.
//!
//! By default, a new value is copied over the old one after the last call. The call can write to
//! the state directly if no later call reads the old value, and the call itself does not read it or
//! only replaces some of its elements. An update of a KV cache then costs time proportional to the
//! new entries.

use crate::graph::{Graph, Node, ValueId};
use crate::partition::{Part, Region, arguments};
use alloc::collections::{BTreeMap, BTreeSet};

/// Readers and producers of the values of a graph, in the execution order of its parts.
#[derive(Default)]
struct Order<'g> {
    /// The last call that reads each value.
    last: BTreeMap<ValueId, usize>,
    /// The producer of each value that is the only output of a host instruction.
    makers: BTreeMap<ValueId, (usize, &'g Node)>,
}

impl<'g> Order<'g> {
    fn of(graph: &'g Graph<'_>, parts: &[Part]) -> Self {
        let mut order = Order::default();
        let mut at = 0usize;
        for part in parts {
            let (Part::Host(nodes) | Part::Device(_, Region { nodes, .. })) = part;
            for node in nodes.iter().filter_map(|node| graph.nodes.get(*node)) {
                at += 1;
                let (taken, made) = arguments(graph, node);
                order.last.extend(taken.into_iter().map(|id| (id, at)));
                if let (Part::Host(_), [new]) = (part, &made[..])
                    && !node.operator.traits().writes_arguments()
                {
                    order.makers.insert(*new, (at, node));
                }
            }
        }
        order
    }
}

/// Maps each new state value that can be computed in place to the old value.
pub(crate) fn new_values(graph: &Graph<'_>, parts: &[Part]) -> BTreeMap<ValueId, ValueId> {
    let order = Order::of(graph, parts);
    let mut counts: BTreeMap<ValueId, usize> = BTreeMap::new();
    for id in graph.updates.iter().flat_map(|(new, old)| [*new, *old]) {
        *counts.entry(id).or_insert(0) += 1;
    }
    let outputs: BTreeSet<ValueId> = graph.outputs.iter().copied().collect();
    let is_static = |id: ValueId| graph.tensor(id).is_some_and(|tensor| !tensor.dynamic);
    let fits = graph.updates.iter().copied().filter(|(new, old)| {
        let Some((at, node)) = order.makers.get(new) else { return false };
        let others = node.args.iter().skip(usize::from(node.operator.traits().updates_input));
        let reads = others.flat_map(|id| graph.items(id)).any(|id| id == old);
        // If no call reads the old value up to here, a later analysis could not tell that it is
        // state.
        let is_last = order.last.get(old).is_some_and(|last| last <= at);
        let is_own = [new, old].iter().all(|id| counts.get(id) == Some(&1));
        let is_alike = graph.are_alike(*new, *old) && is_static(*new) && is_static(*old);
        is_last && !reads && is_own && is_alike && !outputs.contains(old)
    });
    fits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::partition;
    use crate::passes::text;
    use alloc::vec;
    use alloc::vec::Vec;

    fn found(text: &str) -> Vec<(ValueId, ValueId)> {
        let graph = text::parse(text);
        let parts = partition(&graph, &vec![None; graph.nodes.len()]);
        new_values(&graph, &parts).into_iter().collect()
    }

    #[test]
    fn what_changes_some_elements_does_so_where_they_lie() {
        let text = "in cache f32[4,2]
            in row f32[1,2]
            new f32[4,2] = aten.slice_scatter.default(cache, row, 0, 1, 2, 1)
            y f32[4,2] = aten.neg.default(new)
            update new cache
            out y";
        assert_eq!(found(text), [(2, 0)]);
        let read_later = text.replace("neg.default(new)", "add.Tensor(new, cache, 1)");
        assert_eq!(found(&read_later), []);
        let read_by_itself = text.replace("row, 0, 1, 2", "cache, 0, 0, 4");
        assert_eq!(found(&read_by_itself), []);
        let given_to_others = text.replace("out y", "out y cache");
        assert_eq!(found(&given_to_others), []);
    }

    #[test]
    fn what_does_not_read_the_old_value_writes_over_it() {
        let text = "in kept f32[2]
            in x f32[2]
            y f32[2] = aten.add.Tensor(x, kept, 1)
            new f32[2] = aten.neg.default(x)
            update new kept
            out y";
        assert_eq!(found(text), [(3, 0)]);
        assert_eq!(found(&text.replace("neg.default(x)", "neg.default(kept)")), []);
    }
}
