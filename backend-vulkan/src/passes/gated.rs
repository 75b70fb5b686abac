//! Two products of the same rows, of which one gates the other, become one call.

use super::{Makers, floating, remove};
use crate::ops;
use std::collections::HashSet;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::{LinearArgs, Operator};

/// The views between a product and what takes it, at most.
const MOST_VIEWS: usize = 4;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let makers = Makers::of(graph);
    let mut fused = Vec::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        let [a, b, out] = node.args[..] else { continue };
        if node.operator != Operator::MUL_TENSOR {
            continue;
        }
        // Nothing is broadcast: what they are multiplied in is the shape of both.
        let sizes = |id| floating(graph, id).map(|tensor| tensor.sizes);
        if sizes(a) != sizes(b) || sizes(a) != sizes(out) {
            continue;
        }
        let found = [(a, b), (b, a)].into_iter().find_map(|(gate, other)| {
            let mut places = makers.activated(gate)?;
            places.extend(makers.product(other)?);
            makers.are_alike(&places, out).then_some(places)
        });
        let Some(mut places) = found else { continue };
        // Nothing writes to what they take before the last of them is there.
        let first = places.iter().min().copied().unwrap_or(place);
        let between = graph.nodes.get(first..place).unwrap_or_default();
        if between.iter().any(|node| node.operator.traits().writes_arguments()) {
            continue;
        }
        places.push(place);
        fused.push(places);
    }
    let mut gone = HashSet::new();
    for places in fused {
        if let (Some(node), Some((last, before))) = (joined(graph, &places), places.split_last())
            && let Some(slot) = graph.nodes.get_mut(*last)
        {
            *slot = node;
            gone.extend(before);
        }
    }
    remove(graph, &gone);
}

/// One call in place of these.
fn joined(graph: &Graph<'_>, places: &[usize]) -> Option<Node> {
    let parts: Vec<Node> =
        places.iter().map(|place| graph.nodes.get(*place).cloned()).collect::<Option<_>>()?;
    let last = parts.last()?;
    let (id, out) = (last.id, *last.args.last()?);
    let products = parts.iter().filter(|part| ops::weighs_floats(part.operator));
    let inputs = products.filter_map(|part| part.args.split_last());
    let mut args: Vec<ValueId> = inputs.flat_map(|(_, inputs)| inputs).copied().collect();
    args.push(out);
    Some(Node { id, operator: Operator::GATED, args, parts })
}

impl Makers<'_, '_> {
    /// A product, the views of it that lead to a value, and an activation: where they are.
    fn activated(&self, id: ValueId) -> Option<Vec<usize>> {
        let (place, node) = self.taken(id, 1)?;
        if !ops::find(node.operator).is_some_and(|operator| operator.is_activation) {
            return None;
        }
        let mut places = self.product(*node.args.first()?)?;
        places.push(place);
        Some(places)
    }

    /// The same without the activation.
    fn product(&self, id: ValueId) -> Option<Vec<usize>> {
        let mut places = Vec::new();
        let mut id = id;
        while places.len() <= MOST_VIEWS {
            let (place, node) = self.taken(id, 1)?;
            places.push(place);
            if ops::weighs_floats(node.operator) && !self.has_bias(node) {
                places.reverse();
                return Some(places);
            }
            id = *node.args.first().filter(|_| node.operator == Operator::VIEW_COPY)?;
        }
        None
    }

    /// Whether a product with weights that are not quantized has a bias, which no kernel for gates
    /// takes.
    fn has_bias(&self, node: &Node) -> bool {
        let bias = LinearArgs::matching(node).and_then(|call| call.bias);
        let bias = bias.and_then(|id| self.graph.values.get(id));
        bias.is_some_and(|bias| !matches!(bias, Value::None))
    }

    /// Whether these make nothing but tensors of as many elements as `out`, and the products among
    /// them take the same rows.
    fn are_alike(&self, places: &[usize], out: ValueId) -> bool {
        let Some(out) = floating(self.graph, out) else { return false };
        let nodes = || places.iter().filter_map(|place| self.graph.nodes.get(*place));
        let same = nodes().all(|node| {
            let made = node.args.last().and_then(|id| floating(self.graph, *id));
            made.is_some_and(|made| made.numel() == out.numel() && made.element == out.element)
        });
        let mut products = nodes().filter(|node| ops::weighs_floats(node.operator));
        let (Some(first), Some(second)) = (products.next(), products.next()) else { return false };
        same && first.operator == second.operator && first.args.first() == second.args.first()
    }
}
