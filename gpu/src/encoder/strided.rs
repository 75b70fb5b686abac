//! Strided views of another tensor's memory. Attention reads and writes them without a copy.

use super::Encoder;
use crate::error::Error;
use crate::reads::readers_of;
use crate::tensors::{Operand, strides};
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;

/// Operators that support strided arguments, with the number of leading arguments that may be
/// strided.
const STRIDED_OPERATORS: &[(Operator, usize)] =
    &[(Operator::ET_VK_SDPA, 3), (Operator::ATTENTION, 3), (Operator::LLAMA_CUSTOM_SDPA, 3)];

/// The maximum number of views between a tensor and the calls that read it.
const MAX_VIEWS: usize = 16;

impl<'e> Encoder<'e, '_> {
    /// Returns the element strides of a tensor.
    pub(crate) fn strides(&self, tensor: &Operand) -> Vec<usize> {
        let own = self.state.strided.get(&tensor.id);
        own.cloned().unwrap_or_else(|| strides(&tensor.sizes))
    }

    /// Makes `out` the view `input[base + strides * index]` without a copy, if all readers of `out`
    /// support strides. Neither tensor may be written while the other is still read.
    pub(crate) fn take_strided(
        &mut self,
        out: &Operand,
        input: &Operand,
        strides: &[i64],
        base: usize,
    ) -> Result<bool, Error> {
        if !self.planning {
            return Ok(self.state.strided.contains_key(&out.id));
        }
        // A view that repeats elements would be larger than the memory that it aliases.
        let fits = base.checked_add(out.numel()).is_some_and(|end| end <= input.numel());
        let Some(strides) = by_four(&out.sizes, strides).filter(|_| fits) else { return Ok(false) };
        if !self.supports_strides(out, &mut MAX_VIEWS.clone()) {
            return Ok(false);
        }
        let taken = self.take_part(out, input, base)?;
        if taken {
            self.state.strided.insert(out.id, strides);
        }
        Ok(taken)
    }

    /// Whether all readers of a tensor support strides. A view that only adds or removes dims
    /// of size one counts as a reader if all readers of the view support strides.
    fn supports_strides(&self, tensor: &Operand, views: &mut usize) -> bool {
        match views.checked_sub(1) {
            Some(left) => *views = left,
            None => return false,
        }
        let mut supports = |node: &Node| {
            let count = STRIDED_OPERATORS.iter().find(|(operator, _)| *operator == node.operator);
            let Some((_, count)) = count.filter(|_| node.parts.is_empty()) else {
                let out = node.args.last().and_then(|out| self.tensor(*out).ok());
                let same = out.filter(|out| {
                    node.operator.traits().is_view
                        && out.element == tensor.element
                        && is_like(out, tensor)
                });
                return same.is_some_and(|out| self.supports_strides(&out, views));
            };
            !node.args.iter().skip(*count).any(|id| *id == tensor.value)
        };
        let readers = self.readers(tensor.value);
        !readers.is_empty() && readers.into_iter().all(&mut supports)
    }

    /// Copies the strides of `input`, if it is strided, to its view `out`.
    pub(crate) fn keep_strides(&mut self, out: &Operand, input: &Operand) -> Result<(), Error> {
        let Some(strides) = self.state.strided.get(&input.id) else { return Ok(()) };
        if !is_like(out, input) {
            return Err(Error::Invalid(format!(
                "internal error: a strided tensor of shape {:?} viewed as {:?}",
                input.sizes, out.sizes
            )));
        }
        let of_many = input.sizes.iter().zip(strides).filter(|(size, _)| **size != 1);
        let mut of_many = of_many.map(|(_, stride)| *stride);
        let stride = |size: &usize| if *size == 1 { Some(0) } else { of_many.next() };
        let strides = out.sizes.iter().map(stride).collect::<Option<_>>();
        let strides =
            strides.ok_or_else(|| Error::invalid("internal error: a view with too few strides"))?;
        self.state.strided.insert(out.id, strides);
        Ok(())
    }

    /// If the only reader of the current call's output is a permutation, makes the call write
    /// directly to the memory of the permuted tensor. The permutation then needs no dispatch.
    pub(crate) fn give_permuted(&mut self, out: &Operand) -> Result<(), Error> {
        // Decided when memory is planned: searching for readers again would slow down each run with
        // new shapes.
        if !self.planning {
            return Ok(());
        }
        let [reader] = self.readers(out.value)[..] else { return Ok(()) };
        let (true, &[input, order, permuted]) =
            (reader.operator == Operator::PERMUTE_COPY, &reader.args[..])
        else {
            return Ok(());
        };
        if input != out.value || self.state.strided.contains_key(&out.id) {
            return Ok(());
        }
        let (order, permuted) = (self.ints(order)?, self.tensor(permuted)?);
        let dims = order.iter().map(|dim| Ok(out.size(out.dim(*dim)?)));
        if dims.collect::<Result<Vec<_>, Error>>()? != permuted.sizes {
            return Ok(());
        }
        let mut own = vec![0; out.rank()];
        for (dim, stride) in order.iter().zip(permuted.strides()) {
            if let Some(slot) = own.get_mut(out.dim(*dim)?) {
                *slot = stride as i64;
            }
        }
        let Some(strides) = by_four(&out.sizes, &own) else { return Ok(()) };
        if self.take_part(out, &permuted, 0)? {
            self.state.strided.insert(out.id, strides);
        }
        Ok(())
    }

    /// Whether the producer of `input` already wrote it to the memory of the permuted tensor `out`.
    pub(crate) fn is_permuted(&self, input: &Operand, out: &Operand) -> bool {
        self.state.strided.contains_key(&input.id)
            && self.state.location(input.id) == self.state.location(out.id)
    }

    /// Returns the calls that read a value; empty if the value is an output or a new state value.
    pub(crate) fn readers(&self, id: ValueId) -> Vec<&'e Node> {
        let graph = self.graph;
        let leaves = graph.outputs.contains(&id) || graph.updates.iter().any(|(new, _)| *new == id);
        if leaves {
            return Vec::new();
        }
        let readers = self.readers.get_or_init(|| readers_of(graph));
        let places = readers.get(&id).map(Vec::as_slice).unwrap_or_default();
        places.iter().filter_map(|place| graph.nodes.get(*place)).collect()
    }
}

/// Whether two shapes differ only in dims of size one.
fn is_like(a: &Operand, b: &Operand) -> bool {
    let many = |operand: &Operand| -> Vec<usize> {
        operand.sizes.iter().copied().filter(|size| *size != 1).collect()
    };
    many(a) == many(b)
}

/// Returns the strides, if each row of the last dim can be read four elements at a time.
fn by_four(sizes: &[usize], strides: &[i64]) -> Option<Vec<usize>> {
    let (1, true) = (*strides.last()?, sizes.len() == strides.len()) else { return None };
    let mut own = Vec::with_capacity(strides.len());
    for (size, stride) in sizes.iter().zip(strides).take(sizes.len() - 1) {
        // The stride of a dim of size one is irrelevant.
        let stride = if *size == 1 { 0 } else { usize::try_from(*stride).ok()? };
        own.push(Some(stride).filter(|stride| stride.is_multiple_of(4))?);
    }
    own.push(1);
    Some(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Tensor, Value};

    #[test]
    fn row_strides_are_multiples_of_four() {
        assert_eq!(by_four(&[1, 2, 3, 8], &[7, 16, 32, 1]), Some(vec![0, 16, 32, 1]));
        assert_eq!(by_four(&[2, 2, 3, 8], &[7, 16, 32, 1]), None);
        assert_eq!(by_four(&[1, 2, 3, 8], &[96, 48, 1, 3]), None);
        assert_eq!(by_four(&[8, 3], &[-4, 1]), None);
    }

    /// Attention over the thirds of a tensor with rows of 96, permuted as in transformer layers. If
    /// `queries_leave`, the queries are also an output of the graph.
    fn layer(queries_leave: bool) -> Graph<'static> {
        let tensor = |sizes: &[usize]| {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: sizes.to_vec(),
                dynamic: false,
                data: None,
                changes: None,
            })
        };
        let heads = || tensor(&[1, 2, 9, 16]);
        let list = |items: &[i64]| Value::IntList(items.to_vec());
        let mut graph = Graph {
            values: vec![
                tensor(&[9, 96]),
                list(&[1, 2, 9, 16]),
                list(&[864, 16, 96, 1]),
                Value::Int(0),
                Value::Int(32),
                Value::Int(64),
                heads(),
                heads(),
                heads(),
                Value::None,
                heads(),
                list(&[0, 2, 1, 3]),
                tensor(&[1, 9, 2, 16]),
                tensor(&[2, 9, 16]),
                list(&[2, 9, 16]),
                list(&[16, 96, 1]),
            ],
            inputs: vec![0],
            outputs: vec![12],
            ..Graph::default()
        };
        for (sizes, strides, start, out) in [(1, 2, 3, 6), (14, 15, 4, 13), (1, 2, 5, 8)] {
            let args = vec![0, sizes, strides, start, out];
            graph.nodes.push(Node::new(Operator::AS_STRIDED_COPY, args));
        }
        // The keys pass through a view.
        graph.nodes.push(Node::new(Operator::VIEW_COPY, vec![13, 1, 7]));
        graph.nodes.push(Node::new(Operator::ATTENTION, vec![6, 7, 8, 9, 9, 9, 10]));
        graph.nodes.push(Node::new(Operator::PERMUTE_COPY, vec![10, 11, 12]));
        graph.outputs.extend(queries_leave.then_some(6));
        graph
    }

    #[test]
    fn broadcast_views_are_copied() {
        let tensor = |batches| {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: vec![batches, 2, 9, 16],
                dynamic: false,
                data: None,
                changes: None,
            })
        };
        let sizes = Value::IntList(vec![3, 2, 9, 16]);
        let values = vec![tensor(3), tensor(1), sizes, tensor(3), Value::None, tensor(3)];
        let graph = Graph {
            values,
            nodes: vec![
                Node::new(Operator::EXPAND_COPY, vec![1, 2, 3]),
                Node::new(Operator::ATTENTION, vec![0, 3, 3, 4, 4, 4, 5]),
            ],
            inputs: vec![0, 1],
            outputs: vec![5],
            ..Graph::default()
        };
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        let (steps, _) = encode(&graph, &mut state, true).unwrap();
        assert_eq!((steps.len(), state.location(3)), (2, (3, 0)));
    }

    #[test]
    fn permutation_of_another_shape_is_not_aliased() {
        let mut graph = layer(false);
        if let Value::Tensor(permuted) = &mut graph.values[12] {
            permuted.sizes = vec![1, 9, 2000, 16];
        }
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        state.limits.align = 64;
        encode(&graph, &mut state, true).unwrap();
        assert_eq!(state.location(10), (10, 0));
    }

    #[test]
    fn attention_reads_and_writes_strided_views() {
        for (queries_leave, shaders) in [(false, vec![]), (true, vec!["gather"])] {
            let graph = layer(queries_leave);
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            state.limits.align = 64;
            let (steps, _) = encode(&graph, &mut state, true).unwrap();
            let mut names: Vec<&str> = steps.iter().map(|step| step.key.module.name).collect();
            assert_eq!(names.pop(), Some("attention_tiled"));
            assert_eq!(names, shaders);
            let location = |id| state.location(id);
            assert_eq!(location(6), if queries_leave { (6, 0) } else { (0, 0) });
            assert_eq!([location(7), location(8), location(10)], [(0, 128), (0, 256), (12, 0)]);
            let (again, _) = encode(&graph, &mut state, false).unwrap();
            assert_eq!(again.len(), steps.len());
            assert!(again.iter().zip(&steps).all(|(a, b)| a.parameters == b.parameters));
        }
    }
}
