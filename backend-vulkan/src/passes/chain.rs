//! Element-wise calls in a row become one.

use super::uses;
use crate::ir::{Graph, Node, Value, ValueId};
use crate::ops::{self, CHAIN, MAX_STAGES};
use crate::tensors::{Operand, element_of};
use std::collections::HashMap;
use torchlet_core::ScalarType;

/// Fuses every element-wise call with those before it whose results only it takes.
pub(super) fn fuse(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let nodes = std::mem::take(&mut graph.nodes);
    let mut fused: Vec<Option<Node>> = Vec::with_capacity(nodes.len());
    // Where the call is that makes a value, if it can be part of a chain.
    let mut makers: HashMap<ValueId, usize> = HashMap::new();
    for node in nodes {
        if ops::find(&node.operator).is_some_and(|operator| operator.in_place) {
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
        if node.operator == CHAIN {
            return Some(Chain { parts: node.parts.clone(), inputs: args.to_vec(), out: *out });
        }
        if !ops::find(&node.operator)?.chains {
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
        Node { id: last.id, operator: CHAIN.to_owned(), args, parts: self.parts }
    }
}

/// The tensor of a value, if chains can compute with it: numbers as the shader has them in registers.
fn floating(graph: &Graph<'_>, id: ValueId) -> Option<Operand> {
    let Some(Value::Tensor(tensor)) = graph.values.get(id) else { return None };
    let types = [ScalarType::Float, ScalarType::Half, ScalarType::Double, ScalarType::Bool];
    if !types.contains(&tensor.scalar_type) {
        return None;
    }
    let element = element_of(tensor.scalar_type).ok()?;
    Some(Operand { id, value: id, element, sizes: tensor.sizes.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Tensor;

    /// A graph of calls `(operator, inputs, output)` over tensors of these shapes.
    fn graph(
        shapes: &[&[usize]],
        calls: &[(&str, &[ValueId], ValueId)],
        outputs: &[ValueId],
    ) -> Graph<'static> {
        let tensor = |sizes: &&[usize]| {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: sizes.to_vec(),
                data: None,
            })
        };
        let mut values: Vec<Value<'_>> = shapes.iter().map(tensor).collect();
        values.push(Value::Int(1));
        let nodes = calls.iter().map(|(operator, inputs, out)| Node {
            operator: (*operator).to_owned(),
            args: [inputs, &[*out][..]].concat(),
            ..Node::default()
        });
        let nodes = nodes.collect();
        Graph { values, nodes, inputs: vec![0], outputs: outputs.to_vec() }
    }

    fn operators(graph: &Graph<'_>) -> Vec<String> {
        graph.nodes.iter().map(|node| node.operator.clone()).collect()
    }

    const SHAPE: &[usize] = &[2, 3];

    #[test]
    fn a_row_of_calls_becomes_one() {
        let calls: &[(&str, &[ValueId], ValueId)] = &[
            ("aten.sigmoid.default", &[0], 2),
            ("aten.mul.Tensor", &[0, 2], 3),
            ("aten.add.Tensor", &[3, 1, 5], 4),
        ];
        let mut graph = graph(&[SHAPE, &[3], SHAPE, SHAPE, SHAPE], calls, &[4]);
        fuse(&mut graph);
        assert_eq!(operators(&graph), [CHAIN]);
        assert_eq!(graph.nodes[0].parts.len(), 3);
        assert_eq!(graph.nodes[0].args.last(), Some(&4));
        let mut inputs = graph.nodes[0].args[..2].to_vec();
        inputs.sort_unstable();
        assert_eq!(inputs, [0, 1]);
    }

    #[test]
    fn what_others_need_is_kept() {
        let calls: &[(&str, &[ValueId], ValueId)] = &[
            ("aten.sigmoid.default", &[0], 1),
            ("aten.abs.default", &[1], 2),
            ("aten.neg.default", &[1], 3),
            ("aten.mul.Tensor", &[2, 3], 4),
        ];
        let mut both = graph(&[SHAPE; 5], calls, &[4]);
        fuse(&mut both);
        // Both branches join; what they share stays.
        assert_eq!(operators(&both), ["aten.sigmoid.default", CHAIN]);
        let mut output = graph(&[SHAPE; 5], calls, &[2, 4]);
        fuse(&mut output);
        assert_eq!(operators(&output), ["aten.sigmoid.default", "aten.abs.default", CHAIN]);
    }

    #[test]
    fn a_chain_ends_where_the_shader_does() {
        let calls: Vec<(&str, [ValueId; 1], ValueId)> =
            (0..8).map(|at| ("aten.abs.default", [at], at + 1)).collect();
        let calls: Vec<(&str, &[ValueId], ValueId)> =
            calls.iter().map(|(name, inputs, out)| (*name, &inputs[..], *out)).collect();
        let mut long = graph(&[SHAPE; 9], &calls, &[8]);
        fuse(&mut long);
        let parts: Vec<usize> = long.nodes.iter().map(|node| node.parts.len().max(1)).collect();
        assert_eq!(parts.iter().sum::<usize>(), 8);
        assert!(parts.iter().all(|parts| *parts <= MAX_STAGES), "{parts:?}");
    }

    #[test]
    fn nothing_moves_behind_a_write() {
        let calls: &[(&str, &[ValueId], ValueId)] = &[
            ("aten.abs.default", &[0], 1),
            ("update_cache.default", &[2, 0], 3),
            ("aten.neg.default", &[1], 4),
        ];
        let mut graph = graph(&[SHAPE; 5], calls, &[4]);
        fuse(&mut graph);
        assert_eq!(graph.nodes.len(), 3);
    }
}
