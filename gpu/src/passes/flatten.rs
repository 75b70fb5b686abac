//! Swaps an RMS norm and the following view that flattens its result to a matrix. The norm then
//! directly precedes the GEMM that reads the matrix, and can be fused into it.

use super::{floating, producer_indices, uses};
use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

pub(super) fn run(graph: &mut Graph<'_>) {
    let (producers, uses) = (producer_indices(graph), uses(graph));
    let found: Vec<[usize; 2]> = graph
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(index, view)| {
            let [of, sizes, _] = view.args[..] else { return None };
            let norm = *producers.get(&of).filter(|_| uses.get(&of) == Some(&1))?;
            let producer = graph.nodes.get(norm)?;
            let moves = view.operator == Operator::VIEW_COPY
                && producer.operator == Operator::ET_VK_RMS_NORM
                && keeps_rows(graph, of, sizes);
            // The input of the norm must still be unmodified at the view.
            let mut between = graph.nodes.get(norm..index)?.iter();
            (moves && !between.any(|node| node.operator.traits().writes_arguments()))
                .then_some([norm, index])
        })
        .collect();
    let mut gone = HashSet::new();
    let mut moved = HashMap::new();
    for [norm, view] in found {
        if let Some(calls) = swapped(graph, norm, view) {
            gone.insert(norm);
            moved.insert(view, calls);
        }
    }
    let nodes = std::mem::take(&mut graph.nodes).into_iter().enumerate();
    let nodes = nodes.filter(|(index, _)| !gone.contains(index));
    graph.nodes = nodes
        .flat_map(|(index, node)| moved.remove(&index).unwrap_or_else(|| vec![node]))
        .collect();
}

/// Whether a view keeps the rows, that is, the size of the last dim.
fn keeps_rows(graph: &Graph<'_>, of: ValueId, sizes: ValueId) -> bool {
    let last = graph.items(&sizes).last().and_then(|id| graph.values.get(*id));
    let row = floating(graph, of).and_then(|tensor| tensor.sizes.last().copied());
    matches!((last, row), (Some(Value::Int(last)), Some(row)) if usize::try_from(*last) == Ok(row))
}

/// Returns the two calls that replace a view: a view of the norm's input, followed by the norm. The
/// sizes of the view may be computed between the original calls.
fn swapped(graph: &mut Graph<'_>, norm: usize, view: usize) -> Option<Vec<Node>> {
    let [norm, view] = [norm, view].map(|index| graph.nodes.get(index).cloned());
    let (mut norm, mut view) = (norm?, view?);
    let (input, out) = (*norm.args.first()?, *view.args.last()?);
    let [Value::Tensor(given), Value::Tensor(viewed)] =
        [graph.values.get(input)?, graph.values.get(out)?]
    else {
        return None;
    };
    let types = (given.scalar_type, given.host_type);
    let mut rows = viewed.clone();
    (rows.scalar_type, rows.host_type) = types;
    let id = graph.values.len();
    graph.values.push(Value::Tensor(rows));
    *view.args.first_mut()? = input;
    *view.args.last_mut()? = id;
    *norm.args.first_mut()? = id;
    *norm.args.last_mut()? = out;
    Some(vec![view, norm])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::tensor;
    use torchlet_core::ScalarType;

    /// A norm of `[1, 3, 8]`, a view of the result with rows of `row` elements, and a reader of
    /// that view.
    fn graph(row: usize) -> Graph<'static> {
        let float = |sizes: &[usize]| tensor(ScalarType::Float, sizes, false);
        let values = vec![
            float(&[1, 3, 8]),
            float(&[8]),
            Value::Double(1e-5),
            float(&[1, 3, 8]),
            Value::Int(24 / row as i64),
            Value::Int(row as i64),
            Value::List(vec![4, 5]),
            float(&[24 / row, row]),
            float(&[24 / row, row]),
        ];
        let nodes = vec![
            Node::new(Operator::ET_VK_RMS_NORM, vec![0, 1, 2, 3]),
            Node::new(Operator::VIEW_COPY, vec![3, 6, 7]),
            Node::new(Operator::ABS, vec![7, 8]),
        ];
        Graph { values, nodes, inputs: vec![0], outputs: vec![8], ..Graph::default() }
    }

    fn operators(mut graph: Graph<'_>) -> (Vec<Operator>, Graph<'_>) {
        run(&mut graph);
        (graph.nodes.iter().map(|node| node.operator).collect(), graph)
    }

    #[test]
    fn norm_moves_after_row_preserving_view() {
        let (found, graph) = operators(graph(8));
        assert_eq!(found, [Operator::VIEW_COPY, Operator::ET_VK_RMS_NORM, Operator::ABS]);
        assert_eq!(graph.nodes[0].args, [0, 6, 9]);
        assert_eq!(graph.nodes[1].args, [9, 1, 2, 7]);
        let Value::Tensor(rows) = &graph.values[9] else { panic!("no tensor") };
        assert_eq!(rows.sizes, [3, 8]);
    }

    #[test]
    fn norm_stays_before_other_views_or_with_other_readers() {
        let stays = [Operator::ET_VK_RMS_NORM, Operator::VIEW_COPY, Operator::ABS];
        assert_eq!(operators(graph(4)).0, stays);
        let mut seen = graph(8);
        seen.outputs.push(3);
        assert_eq!(operators(seen).0, stays);
        let mut written = graph(8);
        written.nodes.insert(1, Node::new(Operator::UPDATE_CACHE, vec![0, 3, 0]));
        assert_eq!(operators(written).0[0], Operator::ET_VK_RMS_NORM);
    }
}
