//! The plan of a graph: everything about the graph's execution that does not change from run to run
//! and needs no GPU API.
//!
//! A backend allocates the buffers of the [memory plan](MemoryPlan), uploads the constants, creates
//! the pipelines and records the [commands](crate::Schedule). Shapes, integers and the steps that
//! depend on them are in [`Encoded`]; when shapes change, the backend encodes the graph again and
//! records the new commands.

use crate::choices::Choices;
use crate::commands::{Binding, BufferId};
use crate::constants::{Constants, forget};
use crate::copies::conversion;
use crate::device::{Device, PipelineKey};
use crate::encode::encode;
use crate::error::Error;
use crate::memory_plan::{Kind, Location, Memory, MemoryPlan, plan_memory};
use crate::ops;
use crate::passes;
use crate::prefetch;
use crate::reads::Reads;
use crate::staging::{Staging, stage};
use crate::state::{State, Storage};
use crate::state_tensors::StateTensor;
use crate::steps::Step;
use crate::tensors::{TensorId, padded_bytes};
use crate::warmup;
use crate::weights::{Weight, weights};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use torchlet_graph::front::vulkan::{Argument, Buffers, CallLayout};
use torchlet_graph::graph::{Graph, ValueId};

/// Options for planning a graph.
#[derive(Debug, Clone)]
pub struct PlanOptions<'d> {
    /// The device to plan for.
    pub device: &'d Device,
    /// The kernel variants to use.
    pub choices: Choices,
    /// Whether to prefetch weights; `None` decides by the device and the program.
    pub prefetch: Option<bool>,
    /// Whether weights may be shared with other graphs, which requires that the data borrowed by
    /// the graph outlives the plan.
    pub shares_weights: bool,
}

/// The plan of a graph for a device.
#[derive(Debug)]
pub struct Plan<'g> {
    /// The graph after all passes.
    pub graph: Graph<'g>,
    /// The locations of tensors in memory, and the sizes of the buffers.
    pub memory: MemoryPlan,
    /// The weights that other graphs may share.
    pub weights: HashMap<TensorId, Weight>,
    /// The staging memory of each input; `None` for inputs that are not tensors.
    pub inputs: Vec<Option<Staging>>,
    /// The staging memory of each output; `None` for outputs that are not tensors.
    pub outputs: Vec<Option<Staging>>,
    /// The sizes of the staging buffers for inputs and outputs, in bytes.
    pub staging_bytes: [u64; 2],
    /// Integer tensors among the inputs whose elements operators read on the host.
    pub watched: Vec<ValueId>,
    /// State tensors that callers can read and write.
    pub state_tensors: Vec<StateTensor>,
    /// Whether to prefetch weights; `None` decides by the device and the program.
    pub(crate) prefetch: Option<bool>,
    /// Whether the steps for the largest shapes include weight prefetches.
    pub prefetches: bool,
    /// Constants that change when the graph runs.
    changing: HashSet<TensorId>,
    buffers: Buffers,
}

/// The parts of a plan that change with shapes and integers.
pub struct Encoded {
    /// The current shapes and integers.
    pub state: State,
    /// The steps for the current shapes and integers.
    pub steps: Vec<Step>,
    /// The read analysis, which encoding a part of the graph again requires.
    pub reads: Reads,
}

/// The state updates of a call, which commands depend on.
#[derive(Debug, Clone, Default)]
pub struct Updates {
    /// The number of leading graph outputs that are new values of state buffers; the caller
    /// receives only the outputs after them.
    pub new_values: usize,
    /// Pairs (new value, constant): after a run, the new value is copied into the constant.
    pub copies: Vec<(TensorId, TensorId)>,
}

/// Rewrites a graph for a device, with fused calls.
///
/// # Errors
/// The graph has operators without kernels.
pub fn rewrite(graph: &mut Graph<'_>, device: &Device) -> Result<(), Error> {
    report_missing(graph)?;
    passes::cut(graph, &device.limits);
    passes::to_channels_last(graph, &device.features, &device.limits);
    passes::run(graph);
    Ok(())
}

impl<'g> Plan<'g> {
    /// Plans a rewritten graph for its largest shapes. `find` returns the weights that are already
    /// on the device, with their bytes.
    ///
    /// # Errors
    /// The graph is invalid or unsupported, or its memory cannot be addressed.
    pub fn new(
        graph: Graph<'g>,
        state_tensors: Vec<StateTensor>,
        options: PlanOptions<'_>,
        find: impl FnOnce(&HashMap<TensorId, Weight>) -> HashMap<TensorId, u64>,
    ) -> Result<(Self, Encoded), Error> {
        let PlanOptions { device, choices, prefetch, shares_weights } = options;
        let buffers = Buffers::of(&graph)?;
        let mut state = State::on(device, &graph, buffers.changing().into_iter().collect())?;
        state.choices = choices;
        let (steps, reads) = encode(&graph, &mut state, true)?;
        let changing = changing(&graph, &state, &steps)?;
        let weights = match shares_weights {
            true => weights(&graph, &state, &changing),
            false => HashMap::new(),
        };
        let found = find(&weights);
        let kind = |id| match (found.get(&id), weights.contains_key(&id)) {
            (Some(bytes), _) => Kind::Shared(*bytes),
            (None, true) => Kind::Weight,
            (None, false) => Kind::Own,
        };
        let align = state.limits.align;
        let memory = plan_memory(&graph, &state, &steps, align, device.allocation, kind)?;
        let (inputs, input_bytes) = stage(&graph, &graph.inputs, align)?;
        let (outputs, output_bytes) = stage(&graph, &graph.outputs, align)?;
        let prefetches = !prefetch::plan(&state, &steps, prefetch).is_empty();
        let plan = Plan {
            memory,
            weights,
            inputs,
            outputs,
            staging_bytes: [input_bytes, output_bytes],
            watched: ops::watched_inputs(&graph, &state),
            state_tensors,
            prefetch,
            prefetches,
            changing,
            buffers,
            graph,
        };
        Ok((plan, Encoded { state, steps, reads }))
    }

    /// Drops the host copies of all constants except those that change, which a reset restores.
    /// Call this once all constants are on the device.
    pub fn without_data(self, state: &mut State) -> Plan<'static> {
        let graph = forget(self.graph, state, |id| self.changing.contains(&id));
        Plan { graph, ..self }
    }

    /// Returns the pipelines that these steps and the transfers of inputs and outputs need.
    ///
    /// # Errors
    /// An input or output is not a tensor.
    pub fn pipelines(&self, state: &State, steps: &[Step]) -> Result<HashSet<PipelineKey>, Error> {
        let mut keys: HashSet<PipelineKey> = steps.iter().map(|step| step.key.clone()).collect();
        for (id, staging) in self.graph.inputs.iter().zip(&self.inputs) {
            let Some(host) = staging.map(|staging| staging.element) else { continue };
            let device = state.tensor(*id)?.element;
            keys.extend((host != device).then(|| conversion(host, device)));
        }
        for (id, staging) in self.graph.outputs.iter().zip(&self.outputs) {
            let Some(host) = staging.map(|staging| staging.element) else { continue };
            let device = state.tensor(*id)?.element;
            keys.extend((host != device).then(|| conversion(device, host)));
        }
        keys.extend(self.prefetches.then(prefetch::pipeline));
        Ok(keys)
    }

    /// Returns the pipelines that shapes other than the largest ones need, at most about `most`.
    pub fn other_pipelines(&self, state: &State, most: usize) -> HashSet<PipelineKey> {
        warmup::pipelines(&self.graph, state, most)
    }

    /// Returns the constants in a kind of memory, to be uploaded.
    ///
    /// # Errors
    /// A constant has no bytes.
    pub fn constants<'c>(
        &'c self,
        state: &'c State,
        memory: Memory,
    ) -> Result<Constants<'c>, Error> {
        Constants::of(&self.graph, state, &self.memory.places, memory, |_| true)
    }

    /// Returns the initial contents of the constants that change when the graph runs.
    pub fn initial_state<'c>(&'c self, state: &'c State) -> Result<Constants<'c>, Error> {
        let changing = |id| self.changing.contains(&id);
        Constants::of(&self.graph, state, &self.memory.places, Memory::Constants, changing)
    }

    /// Records the location of a weight that is already on the device.
    pub fn place_weight(&mut self, id: TensorId, buffer: usize, offset: u64, bytes: u64) {
        let place = Location { memory: Memory::Weights, buffer, offset, bytes };
        self.memory.places.insert(id, place);
    }

    /// Returns the memory range of a tensor.
    ///
    /// # Errors
    /// The tensor has no memory, or exceeds its bound.
    pub fn binding(&self, state: &State, id: TensorId, written: bool) -> Result<Binding, Error> {
        let (root, start) = state.location(id);
        let missing = || Error::Invalid(format!("internal error: tensor {id} has no memory"));
        let place = self.memory.places.get(&root).ok_or_else(missing)?;
        let needed = state.tensor(id)?.bytes();
        let rest = place.bytes.checked_sub(start).filter(|rest| needed <= *rest);
        let rest = rest.ok_or_else(|| {
            Error::Invalid(format!(
                "tensor {id}: {needed} bytes exceed the {} bytes of its exported upper bound",
                place.bytes
            ))
        })?;
        let buffer = match place.memory {
            Memory::Tensors => BufferId::Tensors(place.buffer),
            Memory::Constants => BufferId::Constants(place.buffer),
            Memory::Weights => BufferId::Weights(place.buffer),
        };
        // Disjoint parts of one tensor need no barriers between each other.
        let in_one_piece = state.is_part(id) && !state.strided.contains_key(&id);
        let size = if in_one_piece { needed } else { rest };
        Ok(Binding { buffer, offset: place.offset + start, size, written })
    }

    /// Returns the copies of new state values into constants after all steps: for the updates that
    /// the graph lists, and for outputs that are new state values and that the caller does not
    /// receive.
    ///
    /// # Errors
    /// Buffers exchange their values.
    pub fn updates(&self, state: &State, new_values: usize) -> Result<Updates, Error> {
        let owners = self.buffers.owners(new_values)?;
        let owned = self.graph.outputs.iter().copied().zip(owners);
        let mut copies = Vec::new();
        for (new, old) in self.graph.updates.iter().copied().chain(owned) {
            let (source, target) = (state.root(new), state.root(old));
            let is_constant = matches!(state.tensor(target)?.storage, Storage::Constant(_));
            // A buffer that no step reads has no memory.
            if is_constant && source != target && self.memory.places.contains_key(&target) {
                // The new value may be a part of another tensor's memory.
                copies.push((new, target));
            }
        }
        let copies = in_safe_order(&copies, |id| state.root(id))
            .ok_or_else(|| Error::unsupported("state buffers that swap their values"))?;
        Ok(Updates { new_values, copies })
    }

    /// Returns the positions of inputs and outputs among the arguments of a call.
    ///
    /// # Errors
    /// The arguments do not match the graph.
    pub fn call_layout(&self, arguments: &[Argument]) -> Result<CallLayout, Error> {
        Ok(CallLayout::find(&self.graph, &self.buffers, arguments)?)
    }

    /// Returns the current sizes of each tensor input, in order.
    pub fn input_sizes(&self, state: &State) -> Vec<Vec<usize>> {
        let sizes = |id: ValueId| state.tensor(id).ok().map(|tensor| tensor.sizes.clone());
        self.staged_inputs().filter_map(|(_, id, _)| sizes(id)).collect()
    }

    /// Checks sizes of all tensor inputs against their bounds.
    ///
    /// # Errors
    /// An input exceeds its bound.
    pub fn check_input_sizes(&self, sizes: &[Vec<usize>]) -> Result<(), Error> {
        for ((position, _, staging), sizes) in self.staged_inputs().zip(sizes) {
            let numel = sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size));
            if numel.is_none_or(|numel| padded_bytes(staging.element, numel) > staging.bytes) {
                return Err(Error::Invalid(format!(
                    "input {position}: shape {sizes:?} exceeds its exported upper bound of {} \
                     bytes",
                    staging.bytes
                )));
            }
        }
        Ok(())
    }

    /// Sets the sizes of all tensor inputs.
    pub fn set_input_sizes(&self, state: &mut State, sizes: &[Vec<usize>]) {
        for ((_, id, _), sizes) in self.staged_inputs().zip(sizes) {
            if let Some(Some(tensor)) = state.tensors.get_mut(id) {
                tensor.sizes.clone_from(sizes);
            }
        }
    }

    /// Returns the position, id and staging memory of each tensor input.
    fn staged_inputs(&self) -> impl Iterator<Item = (usize, ValueId, Staging)> {
        let inputs = self.graph.inputs.iter().zip(&self.inputs).enumerate();
        inputs.filter_map(|(position, (id, staging))| Some((position, *id, (*staging)?)))
    }
}

/// Orders copies so that none overwrites memory that a later one reads; `root` maps a tensor to the
/// tensor whose memory it lies in. Returns `None` if no such order exists.
fn in_safe_order<T: Copy + Ord>(copies: &[(T, T)], root: impl Fn(T) -> T) -> Option<Vec<(T, T)>> {
    // Per tensor, the number of remaining copies that read it, and the copies that overwrite it.
    let mut readers: BTreeMap<T, usize> = BTreeMap::new();
    let mut writers: BTreeMap<T, Vec<usize>> = BTreeMap::new();
    for (index, (from, to)) in copies.iter().enumerate() {
        *readers.entry(root(*from)).or_default() += 1;
        writers.entry(*to).or_default().push(index);
    }
    let is_ready = |readers: &BTreeMap<T, usize>, (from, to): (T, T)| {
        readers.get(&to).copied().unwrap_or(0) <= usize::from(root(from) == to)
    };
    let mut ready: BTreeSet<usize> =
        (0..copies.len()).filter(|index| is_ready(&readers, copies[*index])).collect();
    let mut ordered = Vec::with_capacity(copies.len());
    while let Some(index) = ready.pop_first() {
        let copy = copies[index];
        ordered.push(copy);
        let read = root(copy.0);
        let Some(left) = readers.get_mut(&read) else { continue };
        *left -= 1;
        // With more readers left, no copy to this tensor became ready.
        if *left <= 1 {
            let waiting = writers.get(&read).map_or(&[][..], Vec::as_slice);
            let now = waiting.iter().filter(|other| **other != index);
            ready.extend(now.filter(|other| is_ready(&readers, copies[**other])));
        }
    }
    (ordered.len() == copies.len()).then_some(ordered)
}

/// Returns the constants that can change when the graph runs: those written by steps, those that
/// the graph updates, and those whose new value may be an output.
///
/// # Errors
/// A step writes to a constant that was assumed to be immutable when other constants were derived
/// from it.
fn changing(graph: &Graph<'_>, state: &State, steps: &[Step]) -> Result<HashSet<TensorId>, Error> {
    let updated = graph.updates.iter().map(|(_, old)| state.root(*old));
    let mut changing = state.changing.clone();
    changing.extend(updated);
    for access in steps.iter().flat_map(|step| &step.accesses).filter(|access| access.written) {
        let root = state.root(access.tensor);
        let is_constant = matches!(state.tensor(root)?.storage, Storage::Constant(_));
        if changing.insert(root) && is_constant && root < graph.values.len() {
            return Err(Error::Invalid(format!(
                "a call writes to constant {root}, which others assume not to change"
            )));
        }
    }
    Ok(changing)
}

/// Returns an error that lists all unsupported operators of the graph.
fn report_missing(graph: &Graph<'_>) -> Result<(), Error> {
    let mut missing: Vec<&str> = Vec::new();
    for operator in graph.nodes.iter().map(|node| node.operator) {
        if ops::find(operator).is_none() && !missing.contains(&operator.name()) {
            missing.push(operator.name());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported(format!("operators without a GPU kernel: {}", missing.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_ordered_before_overwrites() {
        // `b` receives the old value of `a`, and `a` a new one.
        let own = |id: u8| id;
        assert_eq!(in_safe_order(&[(9, 0), (0, 1)], own), Some(vec![(0, 1), (9, 0)]));
        assert_eq!(in_safe_order(&[(1, 0), (0, 1)], own), None);
        assert_eq!(in_safe_order(&[], own), Some(vec![]));
        // A copy may read the memory that it overwrites.
        let clamped = |id: u8| id.min(1);
        assert_eq!(in_safe_order(&[(2, 1), (1, 0)], clamped), Some(vec![(1, 0), (2, 1)]));
        assert_eq!(in_safe_order(&[(0, 0), (0, 1)], own), Some(vec![(0, 1), (0, 0)]));
        // In an order that reverses the whole list, in linear time.
        let chain: Vec<(u32, u32)> = (0..100_000).rev().map(|at| (at + 1, at)).collect();
        let reversed: Vec<(u32, u32)> = chain.iter().rev().copied().collect();
        assert_eq!(in_safe_order(&chain, |id| id), Some(reversed));
        // Tensor 5 lies in the memory of tensor 0.
        let root = |id: u8| if id == 5 { 0 } else { id };
        assert_eq!(in_safe_order(&[(9, 0), (5, 1)], root), Some(vec![(5, 1), (9, 0)]));
    }
}
