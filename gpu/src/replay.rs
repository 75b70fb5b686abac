//! Replays recorded commands with changed integers, such as the position of a token. Only the calls
//! that read changed integers are encoded again. Their new parameters are written to memory, from
//! which the shaders read them; the recorded commands stay the same.

use crate::commands::{Binding, BufferId};
use crate::reads::Reads;
use crate::state::State;
use crate::steps::Step;
use crate::tensors::TensorId;
use crate::varying::arguments;
use torchlet_graph::graph::Graph;

/// The data for running recorded commands again with changed integers.
pub struct Replay {
    /// The calls that read integers, in order.
    pub(crate) calls: Vec<usize>,
    /// The scheduled steps of these calls. Each has the offset of its parameters in the parameter
    /// buffer, or `None` if its shader uses only push constants.
    steps: Vec<(Step, Option<usize>)>,
    /// The parameter offset of each step that is being scheduled.
    places: Vec<Option<usize>>,
    /// The scheduled shapes of all arguments and results of these calls. If one changes, further
    /// calls are affected.
    shapes: Vec<(TensorId, Vec<usize>)>,
    /// The read analysis from encoding the whole graph.
    pub reads: Option<Reads>,
    /// Whether the current integers differ from the encoded ones. Also set if a call failed after
    /// changing some of them.
    pub varied: bool,
    /// The integers of the last run that changed them (`numbers`), and the steps encoded for the
    /// predicted next run (`ahead`).
    pub(crate) numbers: Vec<i64>,
    pub(crate) ahead: Option<Ahead>,
    /// The number of wrong predictions in a row.
    pub(crate) misses: u8,
}

/// Steps encoded for predicted integers.
pub(crate) struct Ahead {
    pub(crate) numbers: Vec<i64>,
    /// All symbolic integers of the graph, after the calls were encoded.
    pub(crate) integers: Vec<Option<i64>>,
    pub(crate) steps: Vec<Step>,
}

impl Replay {
    /// Creates the replay data of commands that are not scheduled yet. `reads` is the analysis from
    /// encoding the whole graph.
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

    /// Stores the shapes of the arguments and results of the calls that read integers.
    pub(crate) fn note_shapes(&mut self, graph: &Graph<'_>, state: &State) {
        let calls = self.calls.iter().filter_map(|place| graph.nodes.get(*place));
        let made = calls.flat_map(|node| arguments(graph, node));
        let shape = |id| Some((id, state.tensor(id).ok()?.sizes.clone()));
        self.shapes = made.filter_map(shape).collect();
    }

    /// Whether the stored shapes match the current ones.
    pub(crate) fn has_shapes_of(&self, state: &State) -> bool {
        let same = |(id, sizes): &(TensorId, Vec<usize>)| {
            state.tensor(*id).is_ok_and(|tensor| tensor.sizes == *sizes)
        };
        self.shapes.iter().all(same)
    }

    /// Assigns a range of the parameter buffer to each step whose shader reads parameters from
    /// memory. Returns these ranges, `None` for other steps, and the total bytes.
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

    /// Returns the parameters of all steps that are being scheduled, each with its offset in the
    /// parameter buffer.
    pub fn placed<'s>(&self, steps: &'s [Step]) -> impl Iterator<Item = (usize, &'s [u8])> {
        steps
            .iter()
            .zip(&self.places)
            .filter_map(|(step, place)| Some(((*place)?, step.in_memory())))
    }

    /// Returns the new parameters of the calls that read integers, each with its offset in the
    /// parameter buffer.
    pub fn parameters<'s>(&self, steps: &'s [Step]) -> impl Iterator<Item = (usize, &'s [u8])> {
        let placed = steps.iter().zip(&self.steps);
        placed.filter_map(|(new, (_, offset))| Some(((*offset)?, new.in_memory())))
    }

    /// Keeps those of the recorded steps whose parameters may change in the next run.
    pub fn hold(&mut self, steps: Vec<Step>) {
        let calls = &self.calls;
        let placed = steps.into_iter().zip(self.places.drain(..));
        self.steps.clear();
        self.steps.extend(placed.filter(|(step, _)| calls.binary_search(&step.node).is_ok()));
    }

    /// Whether these steps equal the recorded ones, except for parameters in memory.
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
