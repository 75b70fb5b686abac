//! Fuses `x * sigmoid(x)` into SiLU.

use super::{producer_indices, remove, uses};
use std::collections::HashSet;
use torchlet_graph::graph::{Graph, Node};
use torchlet_graph::operators::Operator;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let producers = producer_indices(graph);
    let mut replaced = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let [a, b, out] = node.args[..] else { continue };
        if node.operator != Operator::MUL_TENSOR {
            continue;
        }
        for (x, gate) in [(a, b), (b, a)] {
            let Some(producer) = producers.get(&gate) else { continue };
            let sigmoid = graph.nodes.get(*producer).filter(|producer| {
                producer.operator == Operator::SIGMOID && producer.args.first() == Some(&x)
            });
            if sigmoid.is_some() && uses.get(&gate) == Some(&1) && x != gate {
                replaced.push((
                    index,
                    *producer,
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
    for (index, producer, silu) in replaced {
        if let Some(node) = graph.nodes.get_mut(index) {
            *node = silu;
            gone.insert(producer);
        }
    }
    remove(graph, &gone);
}
