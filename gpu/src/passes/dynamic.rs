//! Splits each dynamically quantized linear layer into two calls: the quantization of the input
//! rows, which layers with the same input share, and the quantized GEMM.

use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::Operator;

pub(super) fn split(graph: &mut Graph<'_>) {
    let mut rounded: HashMap<ValueId, ValueId> = HashMap::new();
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in std::mem::take(&mut graph.nodes) {
        if node.operator.traits().writes_arguments() {
            // Reads must not move across this write to a later position.
            rounded.clear();
        }
        let [input, codes, scales, _, bias, bits, out] = node.args[..] else {
            nodes.push(node);
            continue;
        };
        let Some(Value::Tensor(rows)) =
            graph.values.get(input).filter(|_| node.operator == Operator::DYNAMIC_LINEAR)
        else {
            nodes.push(node);
            continue;
        };
        let tensor = Tensor { data: None, changes: None, sizes: rows.sizes.clone(), ..*rows };
        let call = |operator, args| Node { id: node.id, operator, args, parts: Vec::new() };
        let rows = *rounded.entry(input).or_insert_with(|| {
            let id = graph.values.len();
            graph.values.push(Value::Tensor(tensor));
            nodes.push(call(Operator::ROUNDED_ROWS, vec![input, id]));
            id
        });
        nodes.push(call(Operator::LINEAR_INT8, vec![rows, codes, scales, bias, bits, out]));
    }
    graph.nodes = nodes;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::tensor;
    use torchlet_core::ScalarType;

    #[test]
    fn shared_rows_are_quantized_once() {
        let float = |sizes: &[usize], data| tensor(ScalarType::Float, sizes, data);
        let values = vec![
            float(&[2, 8], false),
            tensor(ScalarType::Char, &[4, 8], true),
            float(&[4, 1], true),
            float(&[4], true),
            Value::None,
            Value::Int(8),
            float(&[2, 4], false),
            float(&[2, 4], false),
        ];
        let nodes =
            [6, 7].map(|out| Node::new(Operator::DYNAMIC_LINEAR, vec![0, 1, 2, 3, 4, 5, out]));
        let nodes = nodes.to_vec();
        let mut graph =
            Graph { values, nodes, inputs: vec![0], outputs: vec![6, 7], ..Graph::default() };
        split(&mut graph);
        let calls: Vec<_> =
            graph.nodes.iter().map(|node| (node.operator, node.args.clone())).collect();
        let expected = [
            (Operator::ROUNDED_ROWS, vec![0, 8]),
            (Operator::LINEAR_INT8, vec![8, 1, 2, 4, 5, 6]),
            (Operator::LINEAR_INT8, vec![8, 1, 2, 4, 5, 7]),
        ];
        assert_eq!(calls, expected);
    }
}
