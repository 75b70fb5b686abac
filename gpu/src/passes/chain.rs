//! Fuses consecutive element-wise calls.

use super::{floating, uses};
use crate::ops::{self, MAX_STAGES};
use crate::tensors::Operand;
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

/// Fuses element-wise calls with their element-wise producers. At first, only producers without
/// other readers are fused. Then producers with other readers are fused too; the chain writes their
/// result as a second output.
pub(super) fn fuse(graph: &mut Graph<'_>) {
    while fuse_where(graph, false) {}
    fuse_where(graph, true);
}

/// Performs one round of fusion, and returns whether any calls were fused. `keep` also fuses
/// results with other readers, one per chain.
fn fuse_where(graph: &mut Graph<'_>, keep: bool) -> bool {
    let uses = uses(graph);
    let nodes = std::mem::take(&mut graph.nodes);
    let count = nodes.len();
    let mut fused: Vec<Option<Node>> = Vec::with_capacity(count);
    // The index of each value's producer, if it can be part of a chain.
    let mut producers: HashMap<ValueId, usize> = HashMap::new();
    for node in nodes {
        if node.operator.traits().writes_arguments() {
            // Reads must not move across this write to a later position.
            producers.clear();
        }
        let Some(mut chain) = Chain::of(graph, &node) else {
            fused.push(Some(node));
            continue;
        };
        for id in chain.inputs.clone() {
            let Some(index) = producers.get(&id).copied() else { continue };
            let others = uses.get(&id) != Some(&1);
            let may_keep = keep && chain.kept.is_none();
            if others && !(may_keep && may_be_computed_later(graph, &fused, index, id)) {
                continue;
            }
            let Some(slot) = fused.get_mut(index) else { continue };
            let joined = slot.as_ref().and_then(|producer| chain.join(graph, producer));
            let Some(mut joined) = joined else { continue };
            joined.kept = joined.kept.or(others.then_some(id));
            chain = joined;
            *slot = None;
        }
        if chain.kept.is_none() {
            producers.insert(chain.out, fused.len());
        }
        let node = chain.into_node(graph, node);
        fused.push(Some(node));
    }
    graph.nodes = fused.into_iter().flatten().collect();
    graph.nodes.len() < count
}

/// Whether no call since the value's producer has read the value so far.
fn may_be_computed_later(
    graph: &Graph<'_>,
    fused: &[Option<Node>],
    index: usize,
    id: ValueId,
) -> bool {
    let between = fused.iter().skip(index + 1).flatten();
    let mut args = between.flat_map(|node| &node.args);
    !args.any(|arg| graph.items(arg).contains(&id))
}

/// A chain of element-wise calls that depend on one another.
#[derive(Debug, Clone)]
struct Chain {
    parts: Vec<Node>,
    inputs: Vec<ValueId>,
    out: ValueId,
    /// An intermediate result that other calls read, so that the chain writes it as a second
    /// output.
    kept: Option<ValueId>,
}

impl Chain {
    /// Returns a call as a chain of one call, if it can be part of a chain.
    fn of(graph: &Graph<'_>, node: &Node) -> Option<Self> {
        let (out, args) = node.args.split_last()?;
        if node.operator == Operator::CHAIN {
            // A chain with two outputs cannot be extended.
            floating(graph, *out)?;
            let (parts, inputs) = (node.parts.clone(), args.to_vec());
            return Some(Chain { parts, inputs, out: *out, kept: None });
        }
        if !ops::find(node.operator)?.chains {
            return None;
        }
        floating(graph, *out)?;
        let mut inputs = Vec::new();
        for id in args {
            if matches!(graph.values.get(*id), Some(Value::Tensor(_))) && !inputs.contains(id) {
                floating(graph, *id)?;
                inputs.push(*id);
            }
        }
        Some(Chain { parts: vec![node.clone()], inputs, out: *out, kept: None })
    }

    /// Prepends the chain of `producer` to this chain.
    fn join(&self, graph: &Graph<'_>, producer: &Node) -> Option<Self> {
        let producer = Chain::of(graph, producer)?;
        let between = floating(graph, producer.out)?;
        let out = floating(graph, self.out)?;
        if producer.parts.len() + self.parts.len() > MAX_STAGES || between.sizes != out.sizes {
            return None;
        }
        let mut inputs: Vec<ValueId> =
            self.inputs.iter().copied().filter(|id| *id != producer.out).collect();
        inputs.extend(producer.inputs.iter().filter(|id| !self.inputs.contains(id)));
        let operands: Vec<Operand> =
            inputs.iter().map(|id| floating(graph, *id)).collect::<Option<_>>()?;
        if !ops::fits(&operands, &out.sizes) {
            return None;
        }
        let parts = producer.parts.into_iter().chain(self.parts.iter().cloned()).collect();
        Some(Chain { parts, inputs, out: self.out, kept: self.kept })
    }

    /// Returns this chain as one call. It replaces the last of the original calls.
    fn into_node(self, graph: &mut Graph<'_>, last: Node) -> Node {
        if self.parts.len() < 2 {
            return last;
        }
        let mut args = self.inputs;
        args.push(match self.kept {
            None => self.out,
            Some(kept) => {
                graph.values.push(Value::List(vec![kept, self.out]));
                graph.values.len() - 1
            }
        });
        Node { id: last.id, operator: Operator::CHAIN, args, parts: self.parts }
    }
}
