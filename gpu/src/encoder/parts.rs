//! Tensors that are contiguous parts of another tensor: they share its memory, without a copy.

use super::Encoder;
use crate::error::Error;
use crate::state::Storage;
use crate::tensors::{Operand, TensorId};
use torchlet_graph::graph::Value;

impl Encoder<'_, '_> {
    /// Makes a tensor an alias of the memory of another tensor, starting at a byte offset.
    pub(super) fn share(&mut self, id: TensorId, (root, start): (TensorId, u64)) {
        if root != id
            && let Some(Some(tensor)) = self.state.tensors.get_mut(id)
        {
            tensor.storage = Storage::Alias(root, start);
            self.reads.join(id, root, self.node);
        }
    }

    /// Makes `out` an alias of the elements of `input` from `start` on, if no copy is required:
    /// both have static shapes, and the device can bind the offset. Neither may be written while
    /// the other is still read.
    pub(crate) fn take_part(
        &mut self,
        out: &Operand,
        input: &Operand,
        start: usize,
    ) -> Result<bool, Error> {
        let (root, base) = self.state.location(input.id);
        let Some(start) = self.start_of_part(out, input, start) else { return Ok(false) };
        // This was decided when memory was planned.
        if self.state.location(out.id) == (root, base + start) {
            return Ok(true);
        }
        let possible = self.planning
            && self.is_lasting(root)?
            && self.is_lasting(out.id)?
            && !self.is_taken_over(out.id, input.id);
        if possible {
            self.share(out.id, (root, base + start));
        }
        Ok(possible)
    }

    /// Moves `input`, which exists already, into the memory of `out` from element `start` on, if
    /// possible. The producer of `input` then writes it there directly.
    pub(crate) fn give_part(
        &mut self,
        input: &Operand,
        out: &Operand,
        start: usize,
    ) -> Result<bool, Error> {
        let (root, base) = self.state.location(input.id);
        let Some(start) = self.start_of_part(input, out, start) else { return Ok(false) };
        let (whole, first) = self.state.location(out.id);
        // This was decided when memory was planned.
        if (root, base) == (whole, first + start) {
            return Ok(true);
        }
        let bytes = self.state.tensor(root)?.bytes();
        let own = (input.numel() * input.element.size()) as u64;
        let possible = self.planning
            && !self.state.is_part(input.id)
            && root != whole
            && bytes == own
            && self.is_lasting(root)?
            && self.is_lasting(whole)?
            && ![&self.graph.inputs, &self.graph.outputs].iter().any(|ids| ids.contains(&root))
            && !self.reads.becomes_new(root);
        if possible {
            self.share(root, (whole, first + start));
        }
        Ok(possible)
    }

    /// Returns the byte offset of a part inside `whole`, if the device can bind a buffer at that
    /// offset.
    fn start_of_part(&self, part: &Operand, whole: &Operand, start: usize) -> Option<u64> {
        let start = start.checked_mul(whole.element.size())? as u64;
        let (_, base) = self.state.location(whole.id);
        let fits = part.element == whole.element
            && (base + start).is_multiple_of(self.state.limits.align)
            && !self.varies();
        fits.then_some(start)
    }

    /// Whether a tensor belongs to the graph, has a static shape and planned memory, and is written
    /// only by its producer.
    fn is_lasting(&self, id: TensorId) -> Result<bool, Error> {
        let is_static =
            matches!(self.graph.values.get(id), Some(Value::Tensor(tensor)) if !tensor.dynamic);
        let root = self.state.root(id);
        let is_planned = matches!(self.state.tensor(root)?.storage, Storage::Planned);
        Ok(is_static && is_planned && !self.is_written(id))
    }

    /// Whether any call other than the producer of a tensor writes to the tensor's memory.
    pub(super) fn is_written(&self, id: TensorId) -> bool {
        let root = self.state.root(id);
        let written = self.written.get_or_init(|| {
            let writers =
                self.graph.nodes.iter().filter(|node| node.operator.traits().writes_arguments());
            writers.flat_map(|node| &node.args).copied().collect()
        });
        written.iter().any(|arg| self.state.root(*arg) == root)
    }
}

#[cfg(test)]
mod tests {
    use crate::encode::encode;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Tensor, Value};
    use torchlet_graph::operators::Operator;

    fn tensor(numel: usize, dynamic: bool) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: vec![numel],
            dynamic,
            data: None,
            changes: None,
        })
    }

    /// Concatenates `(-x[start..start + 64], x[start..start + 64])`. Value 5 is the slice, 6 its
    /// negative, 8 the result.
    fn sliced_and_joined(start: i64, dynamic: bool) -> Graph<'static> {
        let number = Value::Int;
        Graph {
            values: vec![
                tensor(256, dynamic),
                number(0),
                number(start),
                number(start + 64),
                number(1),
                tensor(64, dynamic),
                tensor(64, dynamic),
                Value::List(vec![6, 5]),
                tensor(128, dynamic),
            ],
            nodes: vec![
                Node::new(Operator::SLICE_COPY_TENSOR, vec![0, 1, 2, 3, 4, 5]),
                Node::new(Operator::NEG, vec![5, 6]),
                Node::new(Operator::CAT, vec![7, 1, 8]),
            ],
            inputs: vec![0],
            outputs: vec![8],
            ..Graph::default()
        }
    }

    /// Returns the shaders used and the locations of values 5 and 6. Encoding the graph again must
    /// give the same steps.
    fn encoded(graph: &Graph<'_>) -> (Vec<&'static str>, [(usize, u64); 2]) {
        let mut state = State::new(graph, HashSet::new()).unwrap();
        let (steps, _) = encode(graph, &mut state, true).unwrap();
        let locations = [5, 6].map(|id| state.location(id));
        let (again, _) = encode(graph, &mut state, false).unwrap();
        assert_eq!(steps.len(), again.len());
        assert_eq!(locations, [5, 6].map(|id| state.location(id)));
        (steps.iter().map(|step| step.key.module.name).collect(), locations)
    }

    #[test]
    fn parts_alias_the_whole() {
        // The slice aliases its source, and the negative is written directly into the result. Only
        // the slice is copied into the result.
        let (shaders, locations) = encoded(&sliced_and_joined(64, false));
        assert_eq!((shaders, locations), (vec!["unary", "insert"], [(0, 256), (8, 0)]));
    }

    #[test]
    fn unbindable_or_dynamic_parts_are_copied() {
        let (shaders, locations) = encoded(&sliced_and_joined(3, false));
        assert_eq!((shaders, locations), (vec!["gather", "unary"], [(8, 256), (8, 0)]));
        let (shaders, locations) = encoded(&sliced_and_joined(64, true));
        assert_eq!(shaders, ["gather", "unary", "insert", "insert"]);
        assert_eq!(locations, [(5, 0), (6, 0)]);
    }

    #[test]
    fn host_integers_respect_part_offset() {
        let mut graph = sliced_and_joined(64, false);
        for value in [0, 5] {
            if let Value::Tensor(tensor) = &mut graph.values[value] {
                (tensor.scalar_type, tensor.host_type) = (ScalarType::Int, ScalarType::Int);
            }
        }
        graph.values.push(Value::SymInt(0));
        // Element 1 of the slice, which starts at 64.
        graph.nodes.truncate(1);
        graph.nodes.push(Node::new(Operator::ET_VK_SELECT_AS_SYMINT, vec![5, 1, 4, 9]));
        graph.outputs = vec![5];
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        encode(&graph, &mut state, true).unwrap();
        assert_eq!(state.location(5), (0, 256));
        state.host.insert(0, (0..256).collect());
        encode(&graph, &mut state, false).unwrap();
        assert_eq!(state.integers[9], Some(65));
    }
}
