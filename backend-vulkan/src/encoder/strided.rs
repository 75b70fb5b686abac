//! Tensors whose elements lie in the memory of another with strides of their own: attention reads
//! and writes them there.

use super::Encoder;
use crate::error::Error;
use crate::ids::IdMap;
use crate::tensors::{Operand, strides};
use torchlet_graph::graph::{Graph, Node, ValueId};
use torchlet_graph::operators::Operator;

/// The operators that take strides, with how many of their arguments, the first ones, can have any.
const TAKERS: &[(Operator, usize)] =
    &[(Operator::ET_VK_SDPA, 3), (Operator::ATTENTION, 3), (Operator::LLAMA_CUSTOM_SDPA, 3)];

/// The views between a tensor and the calls that read it, at most.
const MOST_VIEWS: usize = 16;

impl<'e> Encoder<'e, '_> {
    /// How far neighbours are from each other in memory, in each dimension.
    pub(crate) fn strides(&self, tensor: &Operand) -> Vec<usize> {
        let own = self.state.strided.get(&tensor.id);
        own.cloned().unwrap_or_else(|| strides(&tensor.sizes))
    }

    /// Makes a tensor `input[base + strides * index]` without a copy, where all that read it take
    /// strides. Nothing may write to either while the other is needed.
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
        // A tensor that repeats elements would be larger than what it lies in.
        let fits = base.checked_add(out.numel()).is_some_and(|end| end <= input.numel());
        let Some(strides) = by_four(&out.sizes, strides).filter(|_| fits) else { return Ok(false) };
        if !self.takes_strides(out, &mut MOST_VIEWS.clone()) {
            return Ok(false);
        }
        let taken = self.take_part(out, input, base)?;
        if taken {
            self.state.strided.insert(out.id, strides);
        }
        Ok(taken)
    }

    /// Whether all calls that read a tensor take strides, also through views that only add
    /// dimensions of one or leave them out.
    fn takes_strides(&self, tensor: &Operand, views: &mut usize) -> bool {
        match views.checked_sub(1) {
            Some(left) => *views = left,
            None => return false,
        }
        let mut takes = |node: &Node| {
            let count = TAKERS.iter().find(|(operator, _)| *operator == node.operator);
            let Some((_, count)) = count.filter(|_| node.parts.is_empty()) else {
                let out = node.args.last().and_then(|out| self.tensor(*out).ok());
                let same = out.filter(|out| {
                    node.operator.traits().is_view
                        && out.element == tensor.element
                        && is_like(out, tensor)
                });
                return same.is_some_and(|out| self.takes_strides(&out, views));
            };
            !node.args.iter().skip(*count).any(|id| *id == tensor.value)
        };
        let readers = self.readers(tensor.value);
        !readers.is_empty() && readers.into_iter().all(&mut takes)
    }

    /// Gives a view the strides of what it views, if these are not in order.
    pub(crate) fn keep_strides(&mut self, out: &Operand, input: &Operand) -> Result<(), Error> {
        let Some(strides) = self.state.strided.get(&input.id) else { return Ok(()) };
        if !is_like(out, input) {
            return Err(Error::invalid("a view of elements that are not in order"));
        }
        let of_many = input.sizes.iter().zip(strides).filter(|(size, _)| **size != 1);
        let mut of_many = of_many.map(|(_, stride)| *stride);
        let stride = |size: &usize| if *size == 1 { Some(0) } else { of_many.next() };
        let strides = out.sizes.iter().map(stride).collect::<Option<_>>();
        let strides = strides.ok_or_else(|| Error::invalid("a view of fewer dimensions"))?;
        self.state.strided.insert(out.id, strides);
        Ok(())
    }

    /// Makes a tensor that the current call writes with strides the memory of a permutation of it,
    /// where nothing else reads it: the call that permutes has nothing to do then.
    pub(crate) fn give_permuted(&mut self, out: &Operand) -> Result<(), Error> {
        // Decided when memory is planned: later, looking for readers would only take time in each
        // run that differs.
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

    /// Whether a tensor was written to the memory of another, its permutation, already.
    pub(crate) fn is_permuted(&self, input: &Operand, out: &Operand) -> bool {
        self.state.strided.contains_key(&input.id)
            && self.state.location(input.id) == self.state.location(out.id)
    }

    /// The calls that read a value; none where it leaves the graph.
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

/// The calls that read each value, in order, those that were fused among them.
fn readers_of(graph: &Graph<'_>) -> IdMap<ValueId, Vec<usize>> {
    let mut readers: IdMap<ValueId, Vec<usize>> = IdMap::default();
    for (place, node) in graph.nodes.iter().enumerate() {
        let inputs = node.args.split_last().map_or(&[][..], |(_, inputs)| inputs);
        let parts = node.parts.iter().flat_map(|part| &part.args);
        for id in inputs.iter().chain(parts).flat_map(|arg| graph.items(arg)) {
            let places = readers.entry(*id).or_default();
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
    readers
}

/// Whether two shapes differ in dimensions of one alone.
fn is_like(a: &Operand, b: &Operand) -> bool {
    let many = |operand: &Operand| -> Vec<usize> {
        operand.sizes.iter().copied().filter(|size| *size != 1).collect()
    };
    many(a) == many(b)
}

/// Strides with which rows of the last dimension can be read four elements at a time.
fn by_four(sizes: &[usize], strides: &[i64]) -> Option<Vec<usize>> {
    let (1, true) = (*strides.last()?, sizes.len() == strides.len()) else { return None };
    let mut own = Vec::with_capacity(strides.len());
    for (size, stride) in sizes.iter().zip(strides).take(sizes.len() - 1) {
        // Nothing has a neighbour in a dimension of one.
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
    fn rows_of_four_have_strides_of_four() {
        assert_eq!(by_four(&[1, 2, 3, 8], &[7, 16, 32, 1]), Some(vec![0, 16, 32, 1]));
        assert_eq!(by_four(&[2, 2, 3, 8], &[7, 16, 32, 1]), None);
        assert_eq!(by_four(&[1, 2, 3, 8], &[96, 48, 1, 3]), None);
        assert_eq!(by_four(&[8, 3], &[-4, 1]), None);
    }

    /// Attention over the thirds of a tensor of rows of 96, permuted, as layers of transformers
    /// have it; the queries leave the graph if asked for.
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
        // The keys take a way round.
        graph.nodes.push(Node::new(Operator::VIEW_COPY, vec![13, 1, 7]));
        graph.nodes.push(Node::new(Operator::ATTENTION, vec![6, 7, 8, 9, 9, 9, 10]));
        graph.nodes.push(Node::new(Operator::PERMUTE_COPY, vec![10, 11, 12]));
        graph.outputs.extend(queries_leave.then_some(6));
        graph
    }

    #[test]
    fn what_is_repeated_is_copied() {
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
    fn a_permutation_of_another_shape_is_not_written_to() {
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
    fn attention_reads_and_writes_where_the_elements_are() {
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
