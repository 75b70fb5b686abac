//! Fuses a sum and the norm of its rows. If the sum has other readers, it becomes a second output.
//!
//! The norm moves to the position of the sum. A sum is not fused if one of its operands is an
//! element-wise result without other readers. The sum then joins the chain of that operand, and
//! needs no separate dispatch either.

use super::{Producers, floating, remove};
use crate::ops;
use std::collections::{BTreeMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_graph::passes::epilogue::is_one;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let producers = Producers::of(graph);
    let mut fused: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        // Only the first norm of a sum is fused.
        if let Some(sum) = producers.normed_sum(index, node)
            && !fused.contains_key(&sum)
        {
            fused.insert(sum, index);
        }
    }
    let others: HashSet<ValueId> =
        producers.uses.iter().filter(|(_, count)| **count > 1).map(|(id, _)| *id).collect();
    let mut gone = HashSet::new();
    for (sum, norm) in fused {
        if let Some(node) = joined(graph, sum, norm, &others)
            && let Some(slot) = graph.nodes.get_mut(sum)
        {
            *slot = node;
            gone.insert(norm);
        }
    }
    remove(graph, &gone);
}

impl Producers<'_, '_> {
    /// Returns the index of the sum whose rows `node`, the norm at `index`, normalises, if they can
    /// be fused.
    fn normed_sum(&self, index: usize, node: &Node) -> Option<usize> {
        let (input, others) = node.args.split_first()?;
        let normalized = match (node.operator, others) {
            (Operator::ET_VK_RMS_NORM, _) => 1,
            (Operator::NATIVE_LAYER_NORM, [sizes, ..]) => match self.graph.values.get(*sizes)? {
                Value::IntList(sizes) => sizes.len(),
                Value::List(sizes) => sizes.len(),
                _ => return None,
            },
            _ => return None,
        };
        let at = *self.producers.get(input)?;
        let sum = self.graph.nodes.get(at).filter(|sum| sum.operator == Operator::ADD_TENSOR)?;
        let (out, terms) = sum.args.split_last()?;
        let [a, b, factor @ ..] = terms else { return None };
        let tensor = floating(self.graph, *out)?;
        let [a, b] = [floating(self.graph, *a)?, floating(self.graph, *b)?];
        let is_plain = factor.iter().all(|factor| is_one(self.graph, *factor));
        let is_chained = [&a, &b].iter().any(|term| self.is_chained(term.value, &tensor.sizes));
        let [x, _] = ops::terms(&a, &b, &tensor.sizes, normalized)?;
        // The other arguments of the norm must be computed before the sum, and must not change
        // until the norm.
        let is_there = |id: &ValueId| match self.producers.get(id) {
            Some(made) => *made < at,
            None => true,
        };
        let between = self.graph.nodes.get(at..index)?;
        let moves = others.split_last().is_some_and(|(_, others)| others.iter().all(is_there))
            && !others.contains(input)
            && !between.iter().any(|node| node.operator.traits().writes_arguments());
        (is_plain && !is_chained && x.element == tensor.element && moves).then_some(at)
    }

    /// Whether an operand of a sum with this shape is an element-wise result that only the sum
    /// reads.
    fn is_chained(&self, term: ValueId, sizes: &[usize]) -> bool {
        let chains = |node: &Node| ops::find(node.operator).is_some_and(|operator| operator.chains);
        let same = floating(self.graph, term).is_some_and(|term| term.sizes == sizes);
        same && self.producer_with_uses(term, 1).is_some_and(|(_, node)| chains(node))
    }
}

/// Returns one call that replaces a sum and its norm; `taken` are values with several readers.
fn joined(
    graph: &mut Graph<'_>,
    sum: usize,
    norm: usize,
    taken: &HashSet<ValueId>,
) -> Option<Node> {
    let (sum, norm) = (graph.nodes.get(sum)?.clone(), graph.nodes.get(norm)?.clone());
    let (made, terms) = sum.args.split_last()?;
    let (normed, others) = norm.args.split_last()?;
    let mut args = terms.get(..2)?.to_vec();
    args.extend(others.get(1..)?);
    args.push(if taken.contains(made) {
        let first = graph.items(normed).first().copied()?;
        graph.values.push(Value::List(vec![first, *made]));
        graph.values.len() - 1
    } else {
        *normed
    });
    Some(Node { id: norm.id, operator: Operator::NORMED_SUM, args, parts: vec![sum, norm] })
}
