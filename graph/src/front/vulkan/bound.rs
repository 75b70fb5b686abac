//! Binds a blob's graph to the program around it: inputs and outputs become exactly the arguments
//! of the delegate call, and the graph states which constants change.

use super::{Argument, Buffers, CallLayout};
use crate::error::Error;
use crate::graph::{Graph, Value};

/// A graph whose inputs, then outputs, are the arguments of the delegate call.
#[derive(Debug, Clone)]
pub struct Bound<'p> {
    /// The graph.
    ///
    /// `updates` lists the buffers whose new values are outputs of the delegate. `changes` is set
    /// for each tensor with data: true if a run overwrites it. If the call returns an output twice,
    /// `outputs` lists it twice. A call argument that the blob does not read has an input value
    /// that no node uses.
    pub graph: Graph<'p>,
    /// Index of the first output argument.
    pub first_output: usize,
}

impl<'p> Bound<'p> {
    /// Binds a graph to the arguments of a call.
    ///
    /// # Errors
    /// The arguments do not fit, or their mapping is ambiguous.
    pub fn new(mut graph: Graph<'p>, arguments: &[Argument]) -> Result<Self, Error> {
        let buffers = Buffers::of(&graph)?;
        let layout = CallLayout::find(&graph, &buffers, arguments)?;
        let mut changing = buffers.written().clone();
        for (new, old) in graph.outputs.iter().zip(buffers.owners(layout.new_values)?) {
            graph.updates.push((*new, old));
            changing.insert(old);
        }
        let is_static = |argument: &Argument| match argument {
            Argument::Tensor { dynamic, .. } => !dynamic,
            Argument::Number => false,
        };
        let fixed = arguments.iter().all(is_static);
        for (id, value) in graph.values.iter_mut().enumerate() {
            let Value::Tensor(tensor) = value else { continue };
            tensor.dynamic &= !fixed;
            if tensor.data.is_some() {
                tensor.changes = Some(changing.contains(&id));
            }
        }
        let taken = core::mem::take(&mut graph.inputs);
        let given = arguments.get(..layout.first_output).unwrap_or_default();
        for (place, argument) in given.iter().enumerate() {
            let input = layout.inputs.iter().position(|input| *input == place);
            let id = match input.and_then(|input| taken.get(input)) {
                Some(id) => *id,
                None => {
                    graph.values.push(argument.unread());
                    graph.values.len() - 1
                }
            };
            graph.inputs.push(id);
        }
        let outputs = core::mem::take(&mut graph.outputs);
        let of = |output: &usize| outputs.get(*output).copied();
        graph.outputs = layout.outputs.iter().filter_map(of).collect();
        Ok(Bound { graph, first_output: layout.first_output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Node, Tensor};
    use crate::operators::Operator;
    use alloc::borrow::Cow;
    use alloc::vec;
    use alloc::vec::Vec;
    use torchlet_core::ScalarType;

    fn tensor(size: usize, data: Option<Vec<u8>>) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: vec![size],
            dynamic: true,
            data: data.map(Cow::Owned),
            changes: None,
        })
    }

    fn argument(size: usize) -> Argument {
        Argument::Tensor {
            scalar_type: ScalarType::Float,
            sizes: vec![size],
            dynamic: false,
            order: vec![0],
        }
    }

    #[test]
    fn what_a_blob_leaves_open_is_said() {
        // x and a buffer produce a new buffer value and y. The call has another input before x.
        let mut graph = Graph {
            values: vec![
                tensor(3, None),
                tensor(2, Some(vec![0; 8])),
                tensor(2, None),
                tensor(3, None),
            ],
            inputs: vec![0],
            outputs: vec![2, 3],
            ..Graph::default()
        };
        graph.nodes.push(Node::new(Operator::ABS, vec![1, 2]));
        graph.nodes.push(Node::new(Operator::ABS, vec![0, 3]));
        let arguments = [argument(7), argument(3), argument(3), argument(3)];
        // The third argument could be an input or an output.
        assert!(Bound::new(graph.clone(), &arguments).is_err());
        let bound = Bound::new(graph, &[argument(7), argument(3), argument(3)]).unwrap();
        assert_eq!((bound.first_output, &bound.graph.updates[..]), (2, &[(2, 1)][..]));
        assert_eq!((bound.graph.inputs, bound.graph.outputs), (vec![4, 0], vec![3]));
        let Value::Tensor(buffer) = &bound.graph.values[1] else { panic!() };
        assert_eq!((buffer.changes, buffer.dynamic), (Some(true), false));
    }
}
