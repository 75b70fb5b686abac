//! Replays a recording with other integers, such as the position of a token. Only the calls that
//! read changed integers are encoded again, and their new parameters are written to memory from
//! which the shaders read them. The recording is unchanged.

use crate::ahead::Ahead;
use crate::device::{Binding, Buffer, Command, Context, MemoryKind, Recording};
use crate::error::Error;
use std::sync::Arc;
use torchlet_gpu::encoder::Reads;
use torchlet_gpu::state::State;
use torchlet_gpu::steps::Step;
use torchlet_gpu::tensors::TensorId;
use torchlet_gpu::varying::arguments;
use torchlet_graph::graph::Graph;

/// Data for running a recording again with other integers.
pub(crate) struct Replay {
    /// The calls that read integers, in order.
    pub(crate) calls: Vec<usize>,
    /// Their steps as recorded, each with the memory offset of its parameters if the shader reads
    /// them from memory.
    steps: Vec<(Step, Option<usize>)>,
    /// The parameter offsets of all steps that are being recorded.
    places: Vec<Option<usize>>,
    /// The shapes that were recorded for the results of these calls. If one changes, further calls
    /// are affected.
    shapes: Vec<(TensorId, Vec<usize>)>,
    /// The read analysis from the full encoding.
    pub(crate) reads: Option<Reads>,
    /// Whether integers differ from the encoded ones. Also set after a call that failed after
    /// setting some.
    pub(crate) varied: bool,
    /// The integers of the last run that changed them, and the steps encoded for the predicted next
    /// run.
    pub(crate) numbers: Vec<i64>,
    pub(crate) ahead: Option<Ahead>,
    /// The number of wrong predictions in a row.
    pub(crate) misses: u8,
    /// Parameter memory: the staging buffer that the host writes, and the device buffer that
    /// shaders read.
    memory: Option<[Buffer; 2]>,
    bytes: u64,
}

impl Replay {
    pub(crate) fn new(calls: Vec<usize>) -> Self {
        Replay {
            calls,
            steps: Vec::new(),
            places: Vec::new(),
            shapes: Vec::new(),
            reads: None,
            varied: false,
            numbers: Vec::new(),
            ahead: None,
            misses: 0,
            memory: None,
            bytes: 0,
        }
    }

    /// Stores the shapes of the results of the calls.
    pub(crate) fn note_shapes(&mut self, graph: &Graph<'_>, state: &State) {
        let calls = self.calls.iter().filter_map(|place| graph.nodes.get(*place));
        let made = calls.flat_map(|node| arguments(graph, node));
        let shape = |id| Some((id, state.tensor(id).ok()?.sizes.clone()));
        self.shapes = made.filter_map(shape).collect();
    }

    /// Whether these shapes are unchanged.
    pub(crate) fn has_shapes_of(&self, state: &State) -> bool {
        let same = |(id, sizes): &(TensorId, Vec<usize>)| {
            state.tensor(*id).is_ok_and(|tensor| tensor.sizes == *sizes)
        };
        self.shapes.iter().all(same)
    }

    /// Assigns memory to the parameters of steps. Returns a binding for each step that reads
    /// parameters from memory, and the copy command that must run first. The recording refers to
    /// the current buffers.
    pub(crate) fn place(
        &mut self,
        steps: &[Step],
        context: &Arc<Context>,
        recording: &mut Recording,
    ) -> Result<(Vec<Option<Binding>>, Option<Command<'static>>), Error> {
        (self.ahead, self.misses) = (None, 0);
        self.numbers.clear();
        let mut end = 0u64;
        let mut places = Vec::with_capacity(steps.len());
        for step in steps {
            places.push(if step.key.module.in_memory > 0 {
                let place = end;
                let bytes = (step.in_memory().len() as u64).max(4);
                end = (place + bytes).next_multiple_of(context.align.max(4));
                Some((place, bytes))
            } else {
                None
            });
        }
        let offsets = places.iter().map(|place| place.map(|(offset, _)| offset as usize));
        self.places = offsets.collect();
        if end == 0 {
            return Ok((vec![None; steps.len()], None));
        }
        if end > self.bytes {
            // Cleared first, since an allocation below may fail.
            recording.unbind();
            (self.memory, self.bytes) = (None, 0);
            let staging = Buffer::new(context, end, MemoryKind::Upload)?;
            self.memory = Some([staging, Buffer::new(context, end, MemoryKind::Device)?]);
            self.bytes = end;
        }
        let Some([staging, device]) = &mut self.memory else {
            return Err(Error::invalid("parameters have no memory"));
        };
        let mapped = staging.mapped();
        for (step, offset) in steps.iter().zip(&self.places) {
            write(mapped, *offset, step.in_memory())?;
        }
        let binding = |buffer: &Buffer, offset, size, written| Binding {
            buffer: buffer.raw,
            offset,
            size,
            written,
        };
        let copy = Command::Copy {
            from: binding(staging, 0, end, false),
            to: binding(device, 0, end, true),
        };
        let bound = places
            .iter()
            .map(|place| place.map(|(offset, bytes)| binding(device, offset, bytes, false)));
        Ok((bound.collect(), Some(copy)))
    }

    /// Stores the recorded steps whose parameters may change in the next run.
    pub(crate) fn hold(&mut self, steps: Vec<Step>) {
        let calls = &self.calls;
        let placed = steps.into_iter().zip(self.places.drain(..));
        self.steps.clear();
        self.steps.extend(placed.filter(|(step, _)| calls.binary_search(&step.node).is_ok()));
    }

    /// Whether these steps equal the recorded ones except for the parameters in memory.
    pub(crate) fn has_steps(&self, steps: &[Step]) -> bool {
        steps.len() == self.steps.len()
            && steps.iter().zip(&self.steps).all(|(new, (old, _))| {
                new.node == old.node
                    && new.groups == old.groups
                    && new.accesses == old.accesses
                    && new.key == old.key
                    && new.push() == old.push()
            })
    }

    /// Writes the parameters of these steps.
    pub(crate) fn write(&mut self, steps: &[Step]) -> Result<(), Error> {
        let Some([staging, _]) = &mut self.memory else { return Ok(()) };
        let mapped = staging.mapped();
        for (new, (_, offset)) in steps.iter().zip(&self.steps) {
            write(mapped, *offset, new.in_memory())?;
        }
        Ok(())
    }
}

fn write(mapped: &mut [u8], offset: Option<usize>, bytes: &[u8]) -> Result<(), Error> {
    let Some(offset) = offset else { return Ok(()) };
    let place = mapped.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len()));
    let place = place.ok_or_else(|| Error::invalid("parameters lie outside of their memory"))?;
    place.copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_gpu::varying::varying_calls;
    use torchlet_graph::graph::{Node, Tensor, Value};
    use torchlet_graph::operators::Operator;

    #[test]
    fn changed_shapes_are_detected() {
        let tensor = |rows: usize| {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: vec![rows, 3],
                dynamic: true,
                data: None,
                changes: None,
            })
        };
        let graph = Graph {
            values: vec![Value::SymInt(0), tensor(8), tensor(8), tensor(8)],
            nodes: vec![
                Node::new(Operator::SLICE_COPY_TENSOR, vec![1, 0, 2]),
                Node::new(Operator::ABS, vec![2, 3]),
            ],
            inputs: vec![0, 1],
            outputs: vec![3],
            ..Graph::default()
        };
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        let mut replay = Replay::new(varying_calls(&graph));
        replay.note_shapes(&graph, &state);
        assert!(replay.has_shapes_of(&state));
        state.tensors[2].as_mut().unwrap().sizes[0] = 5;
        assert!(!replay.has_shapes_of(&state));
        replay.note_shapes(&graph, &state);
        assert!(replay.has_shapes_of(&state));
    }
}
