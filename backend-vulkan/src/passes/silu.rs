//! Fuses `x * sigmoid(x)` into SiLU.

use super::{by_maker, remove, uses};
use std::collections::HashSet;
use torchlet_graph::graph::{Graph, Node};
use torchlet_graph::operators::Operator;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let makers = by_maker(graph);
    let mut replaced = Vec::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        let [a, b, out] = node.args[..] else { continue };
        if node.operator != Operator::MUL_TENSOR {
            continue;
        }
        for (x, gate) in [(a, b), (b, a)] {
            let Some(maker) = makers.get(&gate) else { continue };
            let sigmoid = graph.nodes.get(*maker).filter(|maker| {
                maker.operator == Operator::SIGMOID && maker.args.first() == Some(&x)
            });
            if sigmoid.is_some() && uses.get(&gate) == Some(&1) && x != gate {
                replaced.push((
                    place,
                    *maker,
                    Node {
                        id: node.id,
                        operator: Operator::SILU,
                        args: vec![x, out],
                        parts: Vec::new(),
                    },
                ));
                break;
            }
        }
    }
    let mut gone = HashSet::new();
    for (place, maker, silu) in replaced {
        if let Some(node) = graph.nodes.get_mut(place) {
            *node = silu;
            gone.insert(maker);
        }
    }
    remove(graph, &gone);
}
