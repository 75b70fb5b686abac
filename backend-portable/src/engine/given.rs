//! Input shapes and scalars that a plan is built for; the cache key of plans.

use std::vec::Vec;
use torchlet_graph::graph::{Graph, Value};

/// An input, as far as plans depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Given {
    /// A tensor with these sizes.
    Sizes(Vec<usize>),
    /// An integer.
    Number(i64),
}

impl Given {
    /// Returns the inputs as the graph declares them: shapes, or the upper bounds of dynamic ones.
    pub(super) fn of(graph: &Graph<'_>) -> Vec<Given> {
        let inputs = graph.inputs.iter().map(|id| match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => Given::Sizes(tensor.sizes.clone()),
            Some(Value::SymInt(number)) => Given::Number(*number),
            _ => Given::Sizes(Vec::new()),
        });
        inputs.collect()
    }

    /// Whether inputs can differ from the declared ones: dynamic shapes, or integers that are only
    /// known at run time.
    pub(super) fn varies(graph: &Graph<'_>) -> bool {
        graph.inputs.iter().any(|id| match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => tensor.dynamic,
            other => matches!(other, Some(Value::SymInt(_))),
        })
    }
}
