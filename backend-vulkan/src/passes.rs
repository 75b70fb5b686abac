//! What is done to a graph before it is encoded: calls that can be one become one.

mod assign;
mod chain;
mod epilogue;
mod silu;

use crate::ir::{Graph, Value, ValueId};
use crate::tensors::{Operand, element_of};
use std::collections::HashMap;
use torchlet_core::ScalarType;

/// Rewrites a graph into one that computes the same with fewer calls.
pub(crate) fn run(graph: &mut Graph<'_>) {
    assign::once(graph);
    silu::fuse(graph);
    epilogue::fuse(graph);
    chain::fuse(graph);
}

/// How many calls take each value, also within lists; an output of the graph, or what updates a buffer, counts as one more.
fn uses(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    for node in &graph.nodes {
        let mut taken: Vec<ValueId> = Vec::new();
        let Some((_, args)) = node.args.split_last() else { continue };
        for id in args {
            taken.push(*id);
            if let Some(Value::List(items)) = graph.values.get(*id) {
                taken.extend(items);
            }
        }
        taken.sort_unstable();
        taken.dedup();
        for id in taken {
            *uses.entry(id).or_insert(0) += 1;
        }
    }
    for id in graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)) {
        *uses.entry(*id).or_insert(0) += 1;
    }
    uses
}

/// Which call makes each value.
fn by_maker(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let nodes = graph.nodes.iter().enumerate();
    nodes.filter_map(|(place, node)| Some((*node.args.last()?, place))).collect()
}

/// The tensor of a value, if shaders compute with it in floating point.
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
    use crate::ir::{Graph, Node, Tensor, Value, ValueId};
    use crate::ops::{CHAIN, EPILOGUE, MAX_STAGES, SILU};
    use torchlet_core::ScalarType;

    /// A graph of calls `(operator, inputs, output)` over tensors of these shapes; the value behind them is 1, the next
    /// nothing.
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
                changes: None,
            })
        };
        let mut values: Vec<Value<'_>> = shapes.iter().map(tensor).collect();
        values.extend([Value::Int(1), Value::None]);
        let nodes = calls.iter().map(|(operator, inputs, out)| Node {
            operator: (*operator).to_owned(),
            args: [inputs, &[*out][..]].concat(),
            ..Node::default()
        });
        let nodes = nodes.collect();
        Graph { values, nodes, inputs: vec![0], outputs: outputs.to_vec(), updates: Vec::new() }
    }

    fn operators<'g>(graph: &'g Graph<'_>) -> Vec<&'g str> {
        graph.nodes.iter().map(|node| node.operator.as_str()).collect()
    }

    fn parts(node: &Node) -> Vec<&str> {
        node.parts.iter().map(|part| part.operator.as_str()).collect()
    }

    const SHAPE: &[usize] = &[2, 3];

    #[test]
    fn a_row_of_calls_becomes_one() {
        let calls: &[(&str, &[ValueId], ValueId)] = &[
            ("aten.sigmoid.default", &[0], 2),
            ("aten.mul.Tensor", &[1, 2], 3),
            ("aten.add.Tensor", &[3, 1, 5], 4),
        ];
        let mut graph = graph(&[SHAPE, &[3], SHAPE, SHAPE, SHAPE], calls, &[4]);
        super::run(&mut graph);
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
        super::run(&mut both);
        // Both branches join; what they share stays.
        assert_eq!(operators(&both), ["aten.sigmoid.default", CHAIN]);
        let mut output = graph(&[SHAPE; 5], calls, &[2, 4]);
        super::run(&mut output);
        assert_eq!(operators(&output), ["aten.sigmoid.default", "aten.abs.default", CHAIN]);
    }

    #[test]
    fn a_chain_ends_where_the_shader_does() {
        let calls: Vec<(&str, [ValueId; 1], ValueId)> =
            (0..8).map(|at| ("aten.abs.default", [at], at + 1)).collect();
        let calls: Vec<(&str, &[ValueId], ValueId)> =
            calls.iter().map(|(name, inputs, out)| (*name, &inputs[..], *out)).collect();
        let mut long = graph(&[SHAPE; 9], &calls, &[8]);
        super::run(&mut long);
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
        super::run(&mut graph);
        assert_eq!(graph.nodes.len(), 3);
    }

    #[test]
    fn what_is_overwritten_stays_what_it_was_for_calls_before() {
        // Value 1 is read, overwritten, read again.
        let calls: &[(&str, &[ValueId], ValueId)] = &[
            ("aten.abs.default", &[1], 2),
            ("aten.neg.default", &[0], 1),
            ("aten.mul.Tensor", &[1, 2], 3),
            ("aten.exp.default", &[3], 1),
        ];
        let mut graph = graph(&[SHAPE; 4], calls, &[1, 3]);
        super::assign::once(&mut graph);
        // Behind the tensors come a number and nothing.
        let (second, third) = (6, 7);
        let args: Vec<&[ValueId]> = graph.nodes.iter().map(|node| node.args.as_slice()).collect();
        assert_eq!(args, [&[1, 2][..], &[0, second], &[second, 2, 3], &[3, third]]);
        assert_eq!((graph.outputs, graph.updates), (vec![third, 3], vec![(third, 1)]));
    }

    #[test]
    fn products_take_sums_and_functions() {
        // Through a view, in this order, and not a second sum.
        let flat: &[usize] = &[6];
        let calls: &[(&str, &[ValueId], ValueId)] = &[
            ("aten.mm.default", &[0, 1], 2),
            ("aten.view_copy.default", &[2, 8], 3),
            ("aten.add.Tensor", &[4, 3, 8], 5),
            ("aten.relu.default", &[5], 6),
            ("aten.add.Tensor", &[6, 4, 8], 7),
        ];
        let mut graph = graph(&[SHAPE, &[3, 3], SHAPE, flat, flat, flat, flat, flat], calls, &[7]);
        super::run(&mut graph);
        let expected = [
            EPILOGUE,
            "aten.view_copy.default",
            "aten.alias_copy.default",
            "aten.alias_copy.default",
        ];
        assert_eq!(operators(&graph)[..4], expected);
        assert_eq!(
            parts(&graph.nodes[0]),
            ["aten.mm.default", "aten.add.Tensor", "aten.relu.default"]
        );
        assert_eq!(graph.nodes[0].args, [0, 1, 4, 2]);
        assert_eq!(operators(&graph)[4..], ["aten.add.Tensor"]);
    }

    #[test]
    fn sums_that_scale_or_broadcast_stay() {
        let calls: &[(&str, &[ValueId], ValueId)] =
            &[("aten.mm.default", &[0, 1], 2), ("aten.add.Tensor", &[2, 3], 4)];
        let mut graph = graph(&[SHAPE, &[3, 3], SHAPE, &[1, 3], SHAPE], calls, &[4]);
        super::run(&mut graph);
        assert_eq!(operators(&graph), ["aten.mm.default", "aten.add.Tensor"]);
    }

    #[test]
    fn silu_is_recognised() {
        let calls: &[(&str, &[ValueId], ValueId)] = &[
            ("aten.mm.default", &[0, 1], 2),
            ("aten.sigmoid.default", &[2], 3),
            ("aten.mul.Tensor", &[2, 3], 4),
        ];
        let mut graph = graph(&[SHAPE, &[3, 3], SHAPE, SHAPE, SHAPE], calls, &[4]);
        super::run(&mut graph);
        assert_eq!(operators(&graph), [EPILOGUE, "aten.alias_copy.default"]);
        assert_eq!(parts(&graph.nodes[0]), ["aten.mm.default", SILU]);
    }
}
