//! Replays commands with other integers, such as the position of a token. Only the calls that read
//! changed integers are encoded again, and their new parameters are written to memory from which
//! the shaders read them. The commands are unchanged.

use crate::commands::{Binding, BufferId};
use crate::reads::Reads;
use crate::state::State;
use crate::steps::Step;
use crate::tensors::TensorId;
use crate::varying::arguments;
use torchlet_graph::graph::Graph;

/// Data for running commands again with other integers.
pub struct Replay {
    /// The calls that read integers, in order.
    pub(crate) calls: Vec<usize>,
    /// Their steps as scheduled, each with the memory offset of its parameters if the shader reads
    /// them from memory.
    steps: Vec<(Step, Option<usize>)>,
    /// The parameter offsets of all steps that are being scheduled.
    places: Vec<Option<usize>>,
    /// The shapes that were scheduled for the results of these calls. If one changes, further calls
    /// are affected.
    shapes: Vec<(TensorId, Vec<usize>)>,
    /// The read analysis from the full encoding.
    pub reads: Option<Reads>,
    /// Whether integers differ from the encoded ones. Also set after a call that failed after
    /// setting some.
    pub varied: bool,
    /// The integers of the last run that changed them, and the steps encoded for the predicted next
    /// run.
    pub(crate) numbers: Vec<i64>,
    pub(crate) ahead: Option<Ahead>,
    /// The number of wrong predictions in a row.
    pub(crate) misses: u8,
}

/// The calls that read integers, encoded for predicted values.
pub(crate) struct Ahead {
    pub(crate) numbers: Vec<i64>,
    /// All integers of the graph, as the encoded calls left them.
    pub(crate) integers: Vec<Option<i64>>,
    pub(crate) steps: Vec<Step>,
}

impl Replay {
    /// Creates the data for commands that are not scheduled yet; `reads` is from a full encoding.
    pub fn new(state: &State, reads: Option<Reads>) -> Self {
        Replay {
            calls: state.varying.clone(),
            steps: Vec::new(),
            places: Vec::new(),
            shapes: Vec::new(),
            reads,
            varied: false,
            numbers: Vec::new(),
            ahead: None,
            misses: 0,
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
    /// parameters from memory, and the total bytes.
    pub(crate) fn place(&mut self, steps: &[Step], align: u64) -> (Vec<Option<Binding>>, u64) {
        (self.ahead, self.misses) = (None, 0);
        self.numbers.clear();
        let mut end = 0u64;
        let mut bindings = Vec::with_capacity(steps.len());
        for step in steps {
            bindings.push((step.key.module.in_memory > 0).then(|| {
                let (buffer, offset) = (BufferId::Parameters, end);
                let size = (step.in_memory().len() as u64).max(4);
                end = (offset + size).next_multiple_of(align.max(4));
                Binding { buffer, offset, size, written: false }
            }));
        }
        let offset = |binding: &Option<Binding>| binding.map(|binding| binding.offset as usize);
        self.places = bindings.iter().map(offset).collect();
        (bindings, end)
    }

    /// Returns the parameters of all steps that are being scheduled, with their offsets.
    pub fn placed<'s>(&self, steps: &'s [Step]) -> impl Iterator<Item = (usize, &'s [u8])> {
        steps
            .iter()
            .zip(&self.places)
            .filter_map(|(step, place)| Some(((*place)?, step.in_memory())))
    }

    /// Returns the new parameters of the calls that read integers, with their offsets.
    pub fn parameters<'s>(&self, steps: &'s [Step]) -> impl Iterator<Item = (usize, &'s [u8])> {
        let placed = steps.iter().zip(&self.steps);
        placed.filter_map(|(new, (_, offset))| Some(((*offset)?, new.in_memory())))
    }

    /// Stores the recorded steps whose parameters may change in the next run.
    pub fn hold(&mut self, steps: Vec<Step>) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varying::varying_calls;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
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
        state.varying = varying_calls(&graph);
        let mut replay = Replay::new(&state, None);
        replay.note_shapes(&graph, &state);
        assert!(replay.has_shapes_of(&state));
        state.tensors[2].as_mut().unwrap().sizes[0] = 5;
        assert!(!replay.has_shapes_of(&state));
        replay.note_shapes(&graph, &state);
        assert!(replay.has_shapes_of(&state));
    }
}
