//! What a region is called with: plans are made for it.

use std::vec::Vec;
use torchlet_graph::graph::{Graph, Value};

/// What an input is: of a tensor, what plans depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Given {
    /// A tensor of this shape.
    Sizes(Vec<usize>),
    /// A number.
    Number(i64),
}

impl Given {
    /// What the graph says of its inputs: shapes, or the bounds of them.
    pub(super) fn of(graph: &Graph<'_>) -> Vec<Given> {
        let inputs = graph.inputs.iter().map(|id| match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => Given::Sizes(tensor.sizes.clone()),
            Some(Value::SymInt(number)) => Given::Number(*number),
            _ => Given::Sizes(Vec::new()),
        });
        inputs.collect()
    }

    /// Whether inputs can be others than the graph says: shapes within bounds, numbers that are not
    /// known beforehand.
    pub(super) fn varies(graph: &Graph<'_>) -> bool {
        graph.inputs.iter().any(|id| match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => tensor.dynamic,
            other => matches!(other, Some(Value::SymInt(_))),
        })
    }
}
