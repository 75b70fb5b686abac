//! Element-wise calls in a row become one.

use super::{floating, uses};
use crate::ops::{self, MAX_STAGES};
use crate::tensors::Operand;
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

/// Fuses every element-wise call with those before it: first where nobody else takes their results,
/// also among the calls of a chain; then where somebody does, and the chain writes them besides.
pub(super) fn fuse(graph: &mut Graph<'_>) {
    while fuse_where(graph, false) {}
    fuse_where(graph, true);
}

/// Whether there were any. `keep`: with results that others take, too, one for a chain.
fn fuse_where(graph: &mut Graph<'_>, keep: bool) -> bool {
    let uses = uses(graph);
    let nodes = std::mem::take(&mut graph.nodes);
    let count = nodes.len();
    let mut fused: Vec<Option<Node>> = Vec::with_capacity(count);
    // Where the call is that makes a value, if it can be part of a chain.
    let mut makers: HashMap<ValueId, usize> = HashMap::new();
    for node in nodes {
        if node.operator.traits().writes_arguments() {
            // What was read before must not be read after.
            makers.clear();
        }
        let Some(mut chain) = Chain::of(graph, &node) else {
            fused.push(Some(node));
            continue;
        };
        for id in chain.inputs.clone() {
            let Some(place) = makers.get(&id).copied() else { continue };
            let others = uses.get(&id) != Some(&1);
            let may_keep = keep && chain.kept.is_none();
            if others && !(may_keep && may_be_made_later(graph, &fused, place, id)) {
                continue;
            }
            let Some(slot) = fused.get_mut(place) else { continue };
            let joined = slot.as_ref().and_then(|maker| chain.join(graph, maker));
            let Some(mut joined) = joined else { continue };
            joined.kept = joined.kept.or(others.then_some(id));
            chain = joined;
            *slot = None;
        }
        if chain.kept.is_none() {
            makers.insert(chain.out, fused.len());
        }
        let node = chain.into_node(graph, node);
        fused.push(Some(node));
    }
    graph.nodes = fused.into_iter().flatten().collect();
    graph.nodes.len() < count
}

/// Whether nothing behind the place where a value is made reads it so far.
fn may_be_made_later(graph: &Graph<'_>, fused: &[Option<Node>], place: usize, id: ValueId) -> bool {
    let between = fused.iter().skip(place + 1).flatten();
    let mut args = between.flat_map(|node| &node.args);
    !args.any(|arg| graph.items(arg).contains(&id))
}

/// Element-wise calls that depend on one another.
#[derive(Debug, Clone)]
struct Chain {
    parts: Vec<Node>,
    inputs: Vec<ValueId>,
    out: ValueId,
    /// What others take besides.
    kept: Option<ValueId>,
}

impl Chain {
    /// A call as a chain, if it can be part of one.
    fn of(graph: &Graph<'_>, node: &Node) -> Option<Self> {
        let (out, args) = node.args.split_last()?;
        if node.operator == Operator::CHAIN {
            // One with two outputs is done.
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

    /// This chain with the one of `maker` before it.
    fn join(&self, graph: &Graph<'_>, maker: &Node) -> Option<Self> {
        let maker = Chain::of(graph, maker)?;
        let between = floating(graph, maker.out)?;
        let out = floating(graph, self.out)?;
        if maker.parts.len() + self.parts.len() > MAX_STAGES || between.sizes != out.sizes {
            return None;
        }
        let mut inputs: Vec<ValueId> =
            self.inputs.iter().copied().filter(|id| *id != maker.out).collect();
        inputs.extend(maker.inputs.iter().filter(|id| !self.inputs.contains(id)));
        let operands: Vec<Operand> =
            inputs.iter().map(|id| floating(graph, *id)).collect::<Option<_>>()?;
        if !ops::fits(&operands, &out.sizes) {
            return None;
        }
        let parts = maker.parts.into_iter().chain(self.parts.iter().cloned()).collect();
        Some(Chain { parts, inputs, out: self.out, kept: self.kept })
    }

    /// A call of this chain in place of its last part.
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
