//! Maps the arguments of a delegate call to the inputs and outputs of the delegate's graph.
//!
//! Usually, the arguments are the graph's inputs followed by its outputs. Three export steps break
//! that rule: the exporter drops unused inputs from the graph, lists an output once that the method
//! returns twice, and puts the new values of buffers before all other outputs. So the call can have
//! arguments that the graph lacks, and the graph can have outputs that the call lacks.
//!
//! The counts alone can agree by coincidence, so dtypes and shapes decide. The mapping with the
//! fewest new buffer values is preferred. If several mappings remain, static shapes must equal the
//! graph's shapes instead of only staying within its bounds. If the mapping is still ambiguous, the
//! call is rejected.
//!
//! The file does not state which arguments the call writes. If the arguments match the inputs and
//! outputs in number and in order, they are mapped that way. So an unused input with the dtype and
//! shape of a buffer's new value would be mistaken for an output.

use super::Buffers;
use crate::error::Error;
use crate::graph::{Graph, Tensor, Value, ValueId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Description of a call argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Argument {
    /// A tensor.
    Tensor {
        /// Element type.
        scalar_type: ScalarType,
        /// Shape, or its upper bound if `dynamic`.
        sizes: Vec<usize>,
        /// Whether the shape is dynamic.
        dynamic: bool,
        /// Dim order in memory, outermost first.
        order: Vec<usize>,
    },
    /// A scalar, or a value that becomes one.
    Number,
}

impl Argument {
    /// Returns a graph tensor with this description; `None` for scalars.
    pub(crate) fn tensor(&self) -> Option<Tensor<'static>> {
        let Argument::Tensor { scalar_type, sizes, dynamic, .. } = self else { return None };
        Some(Tensor {
            scalar_type: *scalar_type,
            host_type: *scalar_type,
            sizes: sizes.clone(),
            dynamic: *dynamic,
            data: None,
            changes: None,
        })
    }

    /// Returns a placeholder value for an unused input.
    pub(crate) fn unread(&self) -> Value<'static> {
        self.tensor().map_or(Value::SymInt(0), Value::Tensor)
    }
}

/// Mapping from the inputs and outputs of a graph to the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLayout {
    /// Argument index of each input.
    pub inputs: Vec<usize>,
    /// Index of the first output argument.
    pub first_output: usize,
    /// Index of the graph output for each argument from `first_output` on.
    pub outputs: Vec<usize>,
    /// Number of leading graph outputs that are new values of buffers, without an argument.
    pub new_values: usize,
}

impl CallLayout {
    /// Finds the layout of a call.
    ///
    /// # Errors
    /// The arguments fit no layout, or several.
    pub fn find(
        graph: &Graph<'_>,
        buffers: &Buffers,
        arguments: &[Argument],
    ) -> Result<Self, Error> {
        let count = arguments.len();
        let can_own = |new_values| buffers.can_own(new_values);
        let ways = |exactly| {
            let fits =
                |id, at| arguments.get(at).is_some_and(|it: &Argument| it.fits(graph, id, exactly));
            let mut ways = Self::find_by(graph, count, buffers.fewest(), can_own, fits).into_iter();
            (ways.next(), ways.next())
        };
        let (inputs, outputs) = (graph.inputs.len(), graph.outputs.len());
        let found = match ways(false) {
            (Some(first), Some(second)) => match ways(true) {
                (Some(layout), None) => (Some(layout), None),
                _ => (Some(first), Some(second)),
            },
            found => found,
        };
        match found {
            (Some(layout), None) => Ok(layout),
            (Some(_), Some(_)) => Err(Error::Unsupported(format!(
                "a delegate call whose {count} arguments match the graph's {inputs} inputs and \
                 {outputs} outputs in several ways; export the model without unread inputs and \
                 without outputs that are returned twice"
            ))),
            (None, _) if count == inputs + outputs => Err(misfit(graph, arguments)),
            (None, _) => Err(Error::Invalid(format!(
                "delegate call: expected arguments for {inputs} inputs and {outputs} outputs, \
                 found {count}"
            ))),
        }
    }

    /// Returns up to two layouts that fit, with as few new values of buffers as possible.
    fn find_by(
        graph: &Graph<'_>,
        count: usize,
        fewest: usize,
        can_own: impl Fn(usize) -> bool,
        fits: impl Fn(ValueId, usize) -> bool,
    ) -> Vec<Self> {
        let inputs = graph.inputs.len();
        for new_values in fewest..=graph.outputs.len() {
            let Some(taken) = graph.outputs.get(new_values..) else { break };
            let extra = count.checked_sub(inputs).and_then(|rest| rest.checked_sub(taken.len()));
            let Some(extra) = extra else { continue };
            if !can_own(new_values) {
                break;
            }
            let ways = (0..=extra).flat_map(|dropped| {
                let first_output = inputs + dropped;
                let outputs = of_outputs(taken, first_output..count, &fits);
                let inputs = outputs.as_ref().map(|_| of_inputs(graph, first_output, &fits));
                let outputs: Vec<usize> =
                    outputs.into_iter().flatten().map(|output| output + new_values).collect();
                inputs.into_iter().flatten().map(move |inputs| CallLayout {
                    inputs,
                    first_output,
                    outputs: outputs.clone(),
                    new_values,
                })
            });
            let ways: Vec<Self> = ways.take(2).collect();
            if !ways.is_empty() {
                return ways;
            }
        }
        Vec::new()
    }
}

/// Matches the inputs with the first arguments that fit and with the last ones. If both agree, no
/// other match exists.
fn of_inputs(
    graph: &Graph<'_>,
    count: usize,
    fits: &impl Fn(ValueId, usize) -> bool,
) -> Vec<Vec<usize>> {
    let mut first = Vec::with_capacity(graph.inputs.len());
    let mut begin = 0;
    for id in &graph.inputs {
        let Some(argument) = (begin..count).find(|argument| fits(*id, *argument)) else {
            return Vec::new();
        };
        first.push(argument);
        begin = argument + 1;
    }
    let mut last = Vec::with_capacity(graph.inputs.len());
    let mut end = count;
    for id in graph.inputs.iter().rev() {
        let Some(argument) = (0..end).rev().find(|argument| fits(*id, *argument)) else {
            return Vec::new();
        };
        last.push(argument);
        end = argument;
    }
    last.reverse();
    if first == last { vec![first] } else { vec![first, last] }
}

/// Matches output arguments with graph outputs in order. An argument that does not fit the next
/// output repeats the last earlier output that it fits.
fn of_outputs(
    graph_outputs: &[ValueId],
    arguments: core::ops::Range<usize>,
    fits: &impl Fn(ValueId, usize) -> bool,
) -> Option<Vec<usize>> {
    let mut next = 0;
    let places: Option<Vec<usize>> = arguments
        .map(|argument| {
            if graph_outputs.get(next).is_some_and(|id| fits(*id, argument)) {
                next += 1;
                return Some(next - 1);
            }
            graph_outputs.iter().take(next).rposition(|id| fits(*id, argument))
        })
        .collect();
    places.filter(|_| next == graph_outputs.len())
}

/// The dtype that the exporter stores on the device.
fn narrow(scalar_type: ScalarType) -> ScalarType {
    match scalar_type {
        ScalarType::Long => ScalarType::Int,
        ScalarType::Double => ScalarType::Float,
        other => other,
    }
}

impl Argument {
    /// Whether this argument can be the graph value `id`. With `exactly`, a static shape has to
    /// equal the graph's.
    fn fits(&self, graph: &Graph<'_>, id: ValueId, exactly: bool) -> bool {
        match (graph.values.get(id), self) {
            (Some(Value::Tensor(bound)), Argument::Tensor { scalar_type, sizes, dynamic, .. }) => {
                narrow(*scalar_type) == narrow(bound.host_type)
                    && sizes.len() == bound.sizes.len()
                    && bound.sizes.iter().zip(sizes).all(|(bound, size)| size <= bound)
                    && (!exactly || *dynamic || bound.sizes == *sizes)
            }
            (Some(Value::Tensor(_)), Argument::Number) => false,
            (_, Argument::Tensor { scalar_type, .. }) => {
                matches!(scalar_type, ScalarType::Int | ScalarType::Long)
            }
            // A scalar may be unset before the call.
            (_, Argument::Number) => true,
        }
    }
}

/// Error for the first argument that does not fit the graph's inputs and outputs in order.
fn misfit(graph: &Graph<'_>, arguments: &[Argument]) -> Error {
    let values = graph.inputs.iter().chain(&graph.outputs).zip(arguments).enumerate();
    let mut misfits = values.filter(|(_, (id, argument))| !argument.fits(graph, **id, false));
    let Some((place, (id, argument))) = misfits.next() else {
        return Error::invalid(
            "delegate call: the arguments do not match the mutable buffers of the graph",
        );
    };
    let expected = match graph.values.get(*id) {
        Some(Value::Tensor(bound)) => {
            format!("a tensor ({}, at most {:?})", bound.host_type, bound.sizes)
        }
        _ => String::from("an integer"),
    };
    let found = match argument {
        Argument::Tensor { scalar_type, sizes, .. } => {
            format!("a tensor ({scalar_type}, {sizes:?})")
        }
        Argument::Number => String::from("a scalar"),
    };
    Error::Invalid(format!("argument {place}: expected {expected}, found {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all layouts in which ids of arguments and values agree, with `fewest..=most` new
    /// values of buffers.
    fn ways(
        inputs: &[ValueId],
        outputs: &[ValueId],
        arguments: &[ValueId],
        fewest: usize,
        most: usize,
    ) -> Vec<CallLayout> {
        let graph =
            Graph { inputs: inputs.to_vec(), outputs: outputs.to_vec(), ..Graph::default() };
        let fits = |id, argument| arguments.get(argument) == Some(&id);
        CallLayout::find_by(&graph, arguments.len(), fewest, |count| count <= most, fits)
    }

    fn find(inputs: &[ValueId], outputs: &[ValueId], arguments: &[ValueId]) -> Option<CallLayout> {
        let ways = ways(inputs, outputs, arguments, 0, 0);
        assert!(ways.len() < 2, "{ways:?}");
        ways.into_iter().next()
    }

    #[test]
    fn most_calls_have_inputs_and_then_outputs() {
        let layout = find(&[0, 1], &[2], &[0, 1, 2]).unwrap();
        assert_eq!((layout.inputs, layout.first_output, layout.outputs), (vec![0, 1], 2, vec![0]));
        assert_eq!(find(&[0, 1], &[2], &[0, 1]), None);
        assert_eq!(find(&[0, 1], &[2], &[0, 7, 2]), None);
    }

    #[test]
    fn dropped_inputs_are_skipped() {
        let layout = find(&[1], &[2], &[4, 1, 2]).unwrap();
        assert_eq!((layout.inputs, layout.first_output, layout.outputs), (vec![1], 2, vec![0]));
        let layout = find(&[1, 3], &[2], &[1, 8, 3, 9, 2]).unwrap();
        assert_eq!((layout.inputs, layout.first_output), (vec![0, 2], 4));
        assert_eq!(find(&[1], &[2], &[3, 4, 2]), None);
    }

    #[test]
    fn of_two_inputs_that_fit_none_is_chosen() {
        assert_eq!(ways(&[1], &[2], &[1, 1, 2], 0, 0).len(), 2);
        assert_eq!(ways(&[1, 3], &[2], &[1, 3, 1, 2], 0, 0).len(), 1);
    }

    #[test]
    fn of_shapes_that_cannot_change_the_graphs_own_are_taken() {
        let tensor = |size: usize, dynamic| Argument::Tensor {
            scalar_type: ScalarType::Float,
            sizes: vec![size],
            dynamic,
            order: vec![0],
        };
        let values =
            [6, 6].map(|size| tensor(size, false).tensor().map_or(Value::SymInt(0), Value::Tensor));
        let graph = Graph {
            values: values.to_vec(),
            inputs: vec![0],
            outputs: vec![1],
            ..Graph::default()
        };
        let buffers = Buffers::of(&graph).unwrap();
        let find = |arguments: &[Argument]| CallLayout::find(&graph, &buffers, arguments);
        // Nothing reads the input of three elements.
        for (sizes, input) in [([3, 6, 6], 1), ([6, 3, 6], 0)] {
            let layout = find(&sizes.map(|size| tensor(size, false))).unwrap();
            assert_eq!((layout.inputs, layout.outputs), (vec![input], vec![0]));
        }
        // Ambiguous with dynamic shapes, and if both have six elements.
        assert!(find(&[tensor(3, true), tensor(6, true), tensor(6, true)]).is_err());
        assert!(find(&[tensor(6, false), tensor(6, false), tensor(6, false)]).is_err());
    }

    #[test]
    fn outputs_are_returned_twice() {
        let layout = find(&[1], &[2, 3, 4], &[1, 2, 3, 2, 4, 3]).unwrap();
        assert_eq!((layout.first_output, layout.outputs), (1, vec![0, 1, 0, 2, 1]));
    }

    #[test]
    fn new_values_of_buffers_come_first() {
        let ways = ways(&[1], &[5, 6, 2], &[1, 2], 0, 2);
        let [layout] = &ways[..] else { panic!("{ways:?}") };
        assert_eq!((layout.new_values, layout.first_output), (2, 1));
        assert_eq!(layout.outputs, [2]);
    }

    #[test]
    fn a_dropped_input_and_a_new_value_do_not_cancel() {
        // Three arguments for three inputs and outputs, but the second argument is neither.
        let all = ways(&[1], &[5, 2], &[1, 9, 2], 0, 1);
        let [layout] = &all[..] else { panic!("{all:?}") };
        assert_eq!((layout.new_values, layout.first_output), (1, 2));
        assert_eq!((&layout.inputs[..], &layout.outputs[..]), (&[0][..], &[1][..]));
        // Applies even if all fit in order, when at least one new value is certain.
        assert_eq!(ways(&[1], &[2, 2], &[1, 2, 2], 1, 1)[0].new_values, 1);
        assert_eq!(ways(&[1], &[2, 2], &[1, 2, 2], 0, 1)[0].new_values, 0);
    }
}
