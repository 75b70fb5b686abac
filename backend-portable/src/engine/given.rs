//! Inputs that a region is called with, for which plans are built.

use std::vec::Vec;
use torchlet_graph::graph::{Graph, Value};

/// The properties of an input that plans depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Given {
    /// A tensor of this shape.
    Sizes(Vec<usize>),
    /// An integer.
    Number(i64),
}

impl Given {
    /// Inputs as the graph declares them: shapes, or their upper bounds.
    pub(super) fn of(graph: &Graph<'_>) -> Vec<Given> {
        let inputs = graph.inputs.iter().map(|id| match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => Given::Sizes(tensor.sizes.clone()),
            Some(Value::SymInt(number)) => Given::Number(*number),
            _ => Given::Sizes(Vec::new()),
        });
        inputs.collect()
    }

    /// Whether inputs can differ from the declared ones: dynamic shapes, or integers that are
    /// unknown ahead of time.
    pub(super) fn varies(graph: &Graph<'_>) -> bool {
        graph.inputs.iter().any(|id| match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => tensor.dynamic,
            other => matches!(other, Some(Value::SymInt(_))),
        })
    }
}
