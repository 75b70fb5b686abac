//! Producers and use counts of values, computed once per graph.

use crate::graph::{Graph, Node, Value, ValueId};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// For each value, the call that produces it and the number of its uses. A snapshot: later changes
/// of the graph are not reflected.
#[derive(Debug)]
pub struct Uses {
    producers: Vec<Option<usize>>,
    counts: Vec<u32>,
}

/// Whether each value has at most one producer. If a malformed file has several, the last one
/// counts; passes that look for a value's producer would have to find the right one.
pub fn has_unique_producers(graph: &Graph<'_>) -> bool {
    let mut made: BTreeSet<ValueId> = graph.inputs.iter().copied().collect();
    let mut results =
        graph.nodes.iter().flat_map(|node| node.args.last()).flat_map(|out| graph.items(out));
    results.all(|out| made.insert(*out))
}

impl Uses {
    /// Computes producers and uses. Using or producing a list counts for each member of the list.
    /// Graph outputs and update sources count as one more use.
    pub fn of(graph: &Graph<'_>) -> Self {
        let mut uses =
            Uses { producers: vec![None; graph.values.len()], counts: vec![0; graph.values.len()] };
        for (place, node) in graph.nodes.iter().enumerate() {
            for id in inputs(node) {
                each_member(graph, *id, |id| uses.count(id));
            }
            if let Some(out) = node.args.last() {
                each_member(graph, *out, |id| uses.make(id, place));
            }
        }
        for id in graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)) {
            each_member(graph, *id, |id| uses.count(id));
        }
        uses
    }

    /// Returns the index of the call that produces a value; `None` for other values.
    pub fn producer(&self, id: ValueId) -> Option<usize> {
        self.producers.get(id).copied().flatten()
    }

    /// Returns the number of uses of a value, alone or as a member of a list.
    pub fn count_of(&self, id: ValueId) -> u32 {
        self.counts.get(id).copied().unwrap_or(0)
    }

    /// Adds the uses of a replaced value to its replacement.
    pub(super) fn give(&mut self, from: ValueId, to: ValueId) {
        let count = self.count_of(from);
        if let Some(own) = self.counts.get_mut(to) {
            *own = own.saturating_add(count);
        }
    }

    /// Adds a use.
    pub(super) fn add(&mut self, id: ValueId) {
        if id >= self.counts.len() {
            self.counts.resize(id + 1, 0);
        }
        self.count(id);
    }

    /// Removes a use.
    pub(super) fn drop(&mut self, id: ValueId) {
        if let Some(count) = self.counts.get_mut(id) {
            *count = count.saturating_sub(1);
        }
    }

    fn count(&mut self, id: ValueId) {
        if let Some(count) = self.counts.get_mut(id) {
            *count = count.saturating_add(1);
        }
    }

    fn make(&mut self, id: ValueId, place: usize) {
        if let Some(producer) = self.producers.get_mut(id) {
            *producer = Some(place);
        }
    }
}

/// The arguments of a call before its output.
pub(crate) fn inputs(node: &Node) -> &[ValueId] {
    node.args.split_last().map_or(&[], |(_, inputs)| inputs)
}

/// Visits a value, and, if it is a list, its members.
pub(super) fn each_member(graph: &Graph<'_>, id: ValueId, mut visit: impl FnMut(ValueId)) {
    visit(id);
    if let Some(Value::List(items)) = graph.values.get(id) {
        items.iter().for_each(|item| visit(*item));
    }
}

/// For each value, whether a call overwrites it in place.
pub(super) fn written(graph: &Graph<'_>) -> Vec<bool> {
    let mut written = vec![false; graph.values.len()];
    for node in &graph.nodes {
        for argument in node.operator.traits().writes.iter() {
            let Some(id) = inputs(node).get(argument) else { break };
            each_member(graph, *id, |id| {
                if let Some(written) = written.get_mut(id) {
                    *written = true;
                }
            });
        }
    }
    written
}
