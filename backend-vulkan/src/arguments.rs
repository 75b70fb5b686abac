//! Which arguments of a call are the inputs of a graph.

use crate::ir::{Graph, Value, ValueId};
use crate::tensors::element_of;
use torchlet_core::{Invoke, ScalarType};

/// The arguments that are a graph's inputs, in order, among the first `count`. The exporter drops inputs that nothing
/// reads from the graph, but not from its calls: then these are the last ones that fit, as a tensor that is overwritten
/// unread comes before what overwrites it.
pub(crate) fn of_inputs(graph: &Graph<'_>, invoke: &Invoke<'_, '_>, count: usize) -> Vec<usize> {
    let mut arguments = Vec::with_capacity(graph.inputs.len());
    let mut end = count;
    for (position, id) in graph.inputs.iter().enumerate().rev() {
        // Those before need arguments, too.
        let fitting = (position..end).rev().find(|argument| fits(graph, *id, invoke, *argument));
        end = fitting.unwrap_or(end.saturating_sub(1));
        arguments.push(end);
    }
    arguments.reverse();
    arguments
}

fn fits(graph: &Graph<'_>, id: ValueId, invoke: &Invoke<'_, '_>, argument: usize) -> bool {
    match (graph.values.get(id), invoke.tensor(argument)) {
        (Some(Value::Tensor(bound)), Ok(tensor)) => {
            element_of(tensor.scalar_type).ok() == element_of(bound.host_type).ok()
                && tensor.rank() == bound.sizes.len()
                && bound.sizes.iter().enumerate().all(|(dim, bound)| tensor.size(dim) <= *bound)
        }
        (Some(Value::Tensor(_)), Err(_)) => false,
        (_, Ok(tensor)) => matches!(tensor.scalar_type, ScalarType::Int | ScalarType::Long),
        (_, Err(_)) => invoke.int(argument).is_ok(),
    }
}
