//! Fuses two GEMMs of the same rows if the activation of one is multiplied by the other (SwiGLU).

use super::{Producers, floating, remove};
use crate::ops;
use std::collections::HashSet;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::{LinearArgs, Operator};

/// The maximum number of views between a GEMM and its reader.
const MAX_VIEWS: usize = 4;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let producers = Producers::of(graph);
    let mut fused = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let [a, b, out] = node.args[..] else { continue };
        if node.operator != Operator::MUL_TENSOR {
            continue;
        }
        // Broadcasting is not supported: all shapes must be equal.
        let sizes = |id| floating(graph, id).map(|tensor| tensor.sizes);
        if sizes(a) != sizes(b) || sizes(a) != sizes(out) {
            continue;
        }
        let found = [(a, b), (b, a)].into_iter().find_map(|(gate, other)| {
            let mut indices = producers.activated(gate)?;
            indices.extend(producers.matmul(other)?);
            producers.are_alike(&indices, out).then_some(indices)
        });
        let Some(mut indices) = found else { continue };
        // Inputs must not be overwritten before the last of the fused calls.
        let first = indices.iter().min().copied().unwrap_or(index);
        let between = graph.nodes.get(first..index).unwrap_or_default();
        if between.iter().any(|node| node.operator.traits().writes_arguments()) {
            continue;
        }
        indices.push(index);
        fused.push(indices);
    }
    let mut gone = HashSet::new();
    for indices in fused {
        if let (Some(node), Some((last, before))) = (joined(graph, &indices), indices.split_last())
            && let Some(slot) = graph.nodes.get_mut(*last)
        {
            *slot = node;
            gone.extend(before);
        }
    }
    remove(graph, &gone);
}

/// Returns one call that replaces the calls at these indices.
fn joined(graph: &Graph<'_>, indices: &[usize]) -> Option<Node> {
    let parts: Vec<Node> =
        indices.iter().map(|index| graph.nodes.get(*index).cloned()).collect::<Option<_>>()?;
    let last = parts.last()?;
    let (id, out) = (last.id, *last.args.last()?);
    let products = parts.iter().filter(|part| ops::weighs_floats(part.operator));
    let inputs = products.filter_map(|part| part.args.split_last());
    let mut args: Vec<ValueId> = inputs.flat_map(|(_, inputs)| inputs).copied().collect();
    args.push(out);
    Some(Node { id, operator: Operator::GATED, args, parts })
}

impl Producers<'_, '_> {
    /// Returns the indices of the calls that produce `id`: a GEMM, views of its result, and an
    /// activation.
    fn activated(&self, id: ValueId) -> Option<Vec<usize>> {
        let (index, node) = self.producer_with_uses(id, 1)?;
        if !ops::find(node.operator).is_some_and(|operator| operator.is_activation) {
            return None;
        }
        let mut indices = self.matmul(*node.args.first()?)?;
        indices.push(index);
        Some(indices)
    }

    /// Returns the indices of the calls that produce `id`: a GEMM and views of its result.
    fn matmul(&self, id: ValueId) -> Option<Vec<usize>> {
        let mut indices = Vec::new();
        let mut id = id;
        while indices.len() <= MAX_VIEWS {
            let (index, node) = self.producer_with_uses(id, 1)?;
            indices.push(index);
            if ops::weighs_floats(node.operator) && !self.has_bias(node) {
                indices.reverse();
                return Some(indices);
            }
            id = *node.args.first().filter(|_| node.operator == Operator::VIEW_COPY)?;
        }
        None
    }

    /// Whether a GEMM with unquantized weights has a bias, which the gated kernels do not support.
    fn has_bias(&self, node: &Node) -> bool {
        let bias = LinearArgs::matching(node).and_then(|call| call.bias);
        let bias = bias.and_then(|id| self.graph.values.get(id));
        bias.is_some_and(|bias| !matches!(bias, Value::None))
    }

    /// Whether all these calls produce tensors with as many elements as `out`, and both GEMMs read
    /// the same rows.
    fn are_alike(&self, indices: &[usize], out: ValueId) -> bool {
        let Some(out) = floating(self.graph, out) else { return false };
        let nodes = || indices.iter().filter_map(|index| self.graph.nodes.get(*index));
        let same = nodes().all(|node| {
            let made = node.args.last().and_then(|id| floating(self.graph, *id));
            made.is_some_and(|made| made.numel() == out.numel() && made.element == out.element)
        });
        let mut products = nodes().filter(|node| ops::weighs_floats(node.operator));
        let (Some(first), Some(second)) = (products.next(), products.next()) else { return false };
        same && first.operator == second.operator && first.args.first() == second.args.first()
    }
}
