//! Element-wise calls in a row become one.

use super::{floating, uses};
use crate::ops::{self, MAX_STAGES};
use crate::tensors::Operand;
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

/// Fuses every element-wise call with those before it whose results only it takes.
pub(super) fn fuse(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let nodes = std::mem::take(&mut graph.nodes);
    let mut fused: Vec<Option<Node>> = Vec::with_capacity(nodes.len());
    // Where the call is that makes a value, if it can be part of a chain.
    let mut makers: HashMap<ValueId, usize> = HashMap::new();
    for node in nodes {
        if node.operator.writes_arguments() {
            // What was read before must not be read after.
            makers.clear();
        }
        let Some(mut chain) = Chain::of(graph, &node) else {
            fused.push(Some(node));
            continue;
        };
        for id in chain.inputs.clone() {
            let Some(place) = makers.get(&id) else { continue };
            if uses.get(&id) != Some(&1) {
                continue;
            }
            let maker = fused.get_mut(*place);
            let Some(slot) = maker else { continue };
            let Some(joined) = slot.as_ref().and_then(|maker| chain.join(graph, maker)) else {
                continue;
            };
            chain = joined;
            *slot = None;
        }
        makers.insert(chain.out, fused.len());
        fused.push(Some(chain.into_node(node)));
    }
    graph.nodes = fused.into_iter().flatten().collect();
}

/// Element-wise calls that depend on one another.
#[derive(Debug, Clone)]
struct Chain {
    parts: Vec<Node>,
    inputs: Vec<ValueId>,
    out: ValueId,
}

impl Chain {
    /// A call as a chain, if it can be part of one.
    fn of(graph: &Graph<'_>, node: &Node) -> Option<Self> {
        let (out, args) = node.args.split_last()?;
        if node.operator == Operator::CHAIN {
            return Some(Chain { parts: node.parts.clone(), inputs: args.to_vec(), out: *out });
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
        Some(Chain { parts: vec![node.clone()], inputs, out: *out })
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
        Some(Chain { parts, inputs, out: self.out })
    }

    /// A call of this chain in place of its last part.
    fn into_node(self, last: Node) -> Node {
        if self.parts.len() < 2 {
            return last;
        }
        let mut args = self.inputs;
        args.push(self.out);
        Node { id: last.id, operator: Operator::CHAIN, args, parts: self.parts }
    }
}
