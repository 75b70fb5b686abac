//! Which arguments of a call are the inputs and outputs of a graph.
//!
//! Most often, they are the inputs and then the outputs. But the exporter drops inputs that nothing reads from the graph,
//! and names an output once that is returned twice, and leaves the call as it was.

use crate::ir::{Graph, Value, ValueId};
use crate::tensors::element_of;
use torchlet_core::{Arguments, ScalarType};

/// Where a call has the inputs and outputs of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallLayout {
    /// The argument of each input.
    pub(crate) inputs: Vec<usize>,
    /// The first argument that is an output.
    pub(crate) first_output: usize,
    /// The graph's output for each argument from there on.
    pub(crate) outputs: Vec<usize>,
}

impl CallLayout {
    /// Finds the places in a call of `count` arguments. `None` if there are too few, or they do not fit.
    pub(crate) fn find(
        graph: &Graph<'_>,
        arguments: &Arguments<'_, '_>,
        count: usize,
    ) -> Option<Self> {
        Self::find_by(graph, count, |id, argument| fits(graph, id, arguments, argument))
    }

    fn find_by(
        graph: &Graph<'_>,
        count: usize,
        fits: impl Fn(ValueId, usize) -> bool,
    ) -> Option<Self> {
        let (inputs, outputs) = (graph.inputs.len(), graph.outputs.len());
        let extra = count.checked_sub(inputs)?.checked_sub(outputs)?;
        if extra == 0 {
            return Some(CallLayout {
                inputs: (0..inputs).collect(),
                first_output: inputs,
                outputs: (0..outputs).collect(),
            });
        }
        (0..=extra).rev().find_map(|dropped| {
            let first_output = inputs + dropped;
            Some(CallLayout {
                inputs: of_inputs(graph, first_output, &fits)?,
                first_output,
                outputs: of_outputs(graph, first_output..count, &fits)?,
            })
        })
    }
}

/// The last arguments that fit: a tensor that is overwritten unread comes before what overwrites it.
fn of_inputs(
    graph: &Graph<'_>,
    count: usize,
    fits: &impl Fn(ValueId, usize) -> bool,
) -> Option<Vec<usize>> {
    let mut arguments = Vec::with_capacity(graph.inputs.len());
    let mut end = count;
    for (position, id) in graph.inputs.iter().enumerate().rev() {
        // Those before need arguments, too.
        end = (position..end).rev().find(|argument| fits(*id, *argument))?;
        arguments.push(end);
    }
    arguments.reverse();
    Some(arguments)
}

/// The outputs in order, and where the next one does not fit the last before that does.
fn of_outputs(
    graph: &Graph<'_>,
    arguments: std::ops::Range<usize>,
    fits: &impl Fn(ValueId, usize) -> bool,
) -> Option<Vec<usize>> {
    let mut next = 0;
    let places: Option<Vec<usize>> = arguments
        .map(|argument| {
            if graph.outputs.get(next).is_some_and(|id| fits(*id, argument)) {
                next += 1;
                return Some(next - 1);
            }
            graph.outputs.iter().take(next).rposition(|id| fits(*id, argument))
        })
        .collect();
    places.filter(|_| next == graph.outputs.len())
}

fn fits(graph: &Graph<'_>, id: ValueId, arguments: &Arguments<'_, '_>, argument: usize) -> bool {
    match (graph.values.get(id), arguments.info(argument)) {
        (Some(Value::Tensor(bound)), Ok(tensor)) => {
            element_of(tensor.scalar_type).ok() == element_of(bound.host_type).ok()
                && tensor.rank() == bound.sizes.len()
                && bound.sizes.iter().enumerate().all(|(dim, bound)| tensor.size(dim) <= *bound)
        }
        (Some(Value::Tensor(_)), Err(_)) => false,
        (_, Ok(tensor)) => matches!(tensor.scalar_type, ScalarType::Int | ScalarType::Long),
        (_, Err(_)) => arguments.int(argument).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(inputs: &[ValueId], outputs: &[ValueId], arguments: &[ValueId]) -> Option<CallLayout> {
        let graph =
            Graph { inputs: inputs.to_vec(), outputs: outputs.to_vec(), ..Graph::default() };
        // A value fits arguments of its own number.
        CallLayout::find_by(&graph, arguments.len(), |id, argument| {
            arguments.get(argument) == Some(&id)
        })
    }

    #[test]
    fn most_calls_have_inputs_and_then_outputs() {
        let layout = find(&[0, 1], &[2], &[7, 7, 7]).unwrap();
        assert_eq!((layout.inputs, layout.first_output, layout.outputs), (vec![0, 1], 2, vec![0]));
        assert_eq!(find(&[0, 1], &[2], &[0, 1]), None);
    }

    #[test]
    fn dropped_inputs_are_skipped() {
        let layout = find(&[1], &[2], &[1, 1, 2]).unwrap();
        assert_eq!((layout.inputs, layout.first_output, layout.outputs), (vec![1], 2, vec![0]));
        let layout = find(&[1, 3], &[2], &[1, 8, 3, 9, 2]).unwrap();
        assert_eq!((layout.inputs, layout.first_output), (vec![0, 2], 4));
        assert_eq!(find(&[1], &[2], &[3, 4, 2]), None);
    }

    #[test]
    fn outputs_are_returned_twice() {
        let layout = find(&[1], &[2, 3, 4], &[1, 2, 3, 2, 4, 3]).unwrap();
        assert_eq!((layout.first_output, layout.outputs), (1, vec![0, 1, 0, 2, 1]));
    }
}
