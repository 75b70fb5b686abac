//! New values of state that are made where the old ones lie.
//!
//! A new value is copied over the old one when all is done. Where nobody reads the old value behind
//! the call that makes the new one, the call can write there at once, if it does not read the old
//! value at all, or changes some of its elements only: then a cache costs as much as it is given.

use crate::graph::{Graph, Node, ValueId};
use crate::partition::{Part, Region, arguments};
use alloc::collections::{BTreeMap, BTreeSet};

/// Who reads and makes the values of a graph, in the order in which its parts run.
#[derive(Default)]
struct Order<'g> {
    /// The last to read each.
    last: BTreeMap<ValueId, usize>,
    /// What makes each, if it is an instruction on the host that makes nothing else.
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

/// The new values that can be made in place, each with the old one.
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
        // What nobody read before would not show that it is state.
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
