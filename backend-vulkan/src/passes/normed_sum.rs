//! A sum and the norm of its rows become one call, which gives the sum, too, where others take it.
//!
//! The norm moves to where the sum is. A sum whose terms an element-wise call makes for it alone is
//! left to be part of a chain, which writes it without a dispatch of its own, too.

use super::{Makers, adds_once, floating, remove};
use crate::ops;
use std::collections::{BTreeMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let makers = Makers::of(graph);
    let mut fused: BTreeMap<usize, usize> = BTreeMap::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        // A second norm of a sum reads it.
        if let Some(sum) = makers.normed_sum(place, node)
            && !fused.contains_key(&sum)
        {
            fused.insert(sum, place);
        }
    }
    let others: HashSet<ValueId> =
        makers.uses.iter().filter(|(_, count)| **count > 1).map(|(id, _)| *id).collect();
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

impl Makers<'_, '_> {
    /// Where the sum is that this call at `place` is the norm of, if they can be one.
    fn normed_sum(&self, place: usize, node: &Node) -> Option<usize> {
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
        let at = *self.makers.get(input)?;
        let sum = self.graph.nodes.get(at).filter(|sum| sum.operator == Operator::ADD_TENSOR)?;
        let (out, terms) = sum.args.split_last()?;
        let [a, b, factor @ ..] = terms else { return None };
        let tensor = floating(self.graph, *out)?;
        let [a, b] = [floating(self.graph, *a)?, floating(self.graph, *b)?];
        let is_plain = factor.iter().all(|factor| adds_once(self.graph, *factor));
        let is_chained = [&a, &b].iter().any(|term| self.is_chained(term.value, &tensor.sizes));
        let [x, _] = ops::terms(&a, &b, &tensor.sizes, normalized)?;
        // What else the norm takes is there before the sum, and stays as it is.
        let is_there = |id: &ValueId| match self.makers.get(id) {
            Some(made) => *made < at,
            None => true,
        };
        let between = self.graph.nodes.get(at..place)?;
        let moves = others.split_last().is_some_and(|(_, others)| others.iter().all(is_there))
            && !others.contains(input)
            && !between.iter().any(|node| node.operator.traits().writes_arguments());
        (is_plain && !is_chained && x.element == tensor.element && moves).then_some(at)
    }

    /// Whether a term of a sum of this shape is made by an element-wise call, for the sum alone.
    fn is_chained(&self, term: ValueId, sizes: &[usize]) -> bool {
        let chains = |node: &Node| ops::find(node.operator).is_some_and(|operator| operator.chains);
        let same = floating(self.graph, term).is_some_and(|term| term.sizes == sizes);
        same && self.taken(term, 1).is_some_and(|(_, node)| chains(node))
    }
}

/// One call in place of a sum and its norm; `taken` are values that several calls take.
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
