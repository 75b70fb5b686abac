//! Records the commands of a compiled graph: input transfers, steps, output transfers.

use crate::compiled::{Compiled, Staging};
use crate::device::{Binding, Command};
use crate::error::Error;
use crate::trace::{Label, Stopwatch, variant};
use std::borrow::Cow;
use std::sync::Arc;
use torchlet_gpu::device::{Limits, PipelineKey};
use torchlet_gpu::ids::IdMap;
use torchlet_gpu::memory_plan::Memory;
use torchlet_gpu::state::State;
use torchlet_gpu::steps::Step;
use torchlet_gpu::tensors::{TensorId, padded_bytes, u32_of};
use torchlet_graph::graph::{Graph, Node};
use torchlet_shaders::{Element, Gather, GatherPush, MAX_DIMS, Pipeline, PushConstants};

/// The largest input, in bytes, that the device reads directly from host memory, and the limit for
/// the reads of all workgroups together, since each workgroup fetches the input again.
const MAX_READ: u64 = 4096;
const MAX_FETCHED: u64 = 1 << 18;

/// The largest output, in bytes, that the device writes directly to host memory.
const MAX_WRITTEN: u64 = 16384;

/// The host memory of tensors that are used in place instead of copied.
type AtHost = IdMap<TensorId, Binding>;

/// Uses of an input or output by steps, by the host, and by copies.
#[derive(Default)]
struct Uses<'s> {
    count: usize,
    /// The index of the last step that binds it, and that step.
    last: Option<(usize, &'s Step)>,
    /// Whether the device writes to it.
    written: bool,
}

/// The purpose of each recorded command.
pub(crate) enum Purpose<'s> {
    Parameters,
    Input(usize),
    Step(&'s Step),
    /// A weight prefetch that runs beside the preceding step.
    Prefetch(TensorId),
    Output(usize),
    /// A search (argmax) in an output.
    Search(usize),
    Update(usize),
}

impl Compiled {
    pub(crate) fn binding(&self, id: TensorId, written: bool) -> Result<Binding, Error> {
        let (root, start) = self.state.location(id);
        let missing = || Error::Invalid(format!("tensor {id} has no memory"));
        let place = self.places.get(&root).ok_or_else(missing)?;
        let needed = self.state.tensor(id)?.bytes();
        let rest = place.bytes.checked_sub(start).filter(|rest| needed <= *rest);
        let rest = rest.ok_or_else(|| Error::invalid("a tensor exceeds its exported bound"))?;
        let buffer = match place.memory {
            Memory::Tensors => self.tensors.get(place.buffer),
            Memory::Constants => self.constants.get(place.buffer),
            Memory::Weights => self.weights.get(place.buffer).map(Arc::as_ref),
        };
        let buffer = buffer.ok_or_else(missing)?.raw;
        // Disjoint parts of one tensor need no barriers between each other.
        let in_one_piece = self.state.is_part(id) && !self.state.strided.contains_key(&id);
        let size = if in_one_piece { needed } else { rest };
        Ok(Binding { buffer, offset: place.offset + start, size, written })
    }

    /// Records the input transfers, the steps and the output transfers.
    pub(crate) fn record(&mut self, steps: &[Step], watch: &mut Stopwatch) -> Result<(), Error> {
        // Few commands are added to the steps.
        let most = steps.len() + self.graph.inputs.len() + self.graph.outputs.len() + 8;
        let (mut commands, mut purposes) = (Vec::with_capacity(most), Vec::with_capacity(most));
        self.replay.note_shapes(&self.graph, &self.state);
        let (parameters, copy) = self.replay.place(steps, &self.context, &mut self.recording)?;
        if let Some(copy) = copy {
            purposes.push(Purpose::Parameters);
            commands.push(copy);
        }
        self.search = self.wanted.and_then(|position| self.search(position));
        let mut at_host = self.at_host(steps);
        if let Some(output) = self.search.and_then(|it| self.graph.outputs.get(it.position)) {
            at_host.remove(&self.state.root(*output));
        }
        for (position, (id, staging)) in self.graph.inputs.iter().zip(&self.inputs).enumerate() {
            let Some(staging) = staging else { continue };
            let root = self.state.root(*id);
            if !self.places.contains_key(&root) || at_host.contains_key(&root) {
                continue;
            }
            let host = staging.binding(self.input_staging.raw, false);
            let tensor = self.state.tensor(*id)?;
            let device = (self.binding(*id, true)?, tensor.element);
            let limits = &self.state.limits;
            purposes.push(Purpose::Input(position));
            commands.push(transfer(limits, (host, staging.element), device, tensor.numel())?);
        }
        let ahead = match self.dummy_output {
            Some(_) => torchlet_gpu::prefetch::plan(&self.state, steps, self.context.prefetch),
            None => Vec::new(),
        };
        let mut ahead = ahead.into_iter().peekable();
        for (index, (step, parameters)) in steps.iter().zip(parameters).enumerate() {
            let mut bindings = Vec::with_capacity(step.accesses.len() + 1);
            for access in &step.accesses {
                bindings.push(self.bound(&at_host, access.tensor, access.written)?);
            }
            bindings.extend(parameters);
            purposes.push(Purpose::Step(step));
            commands.push(Command::Dispatch {
                key: Cow::Borrowed(&step.key),
                bindings,
                push: Cow::Borrowed(step.push()),
                groups: step.groups,
            });
            while let Some((_, id)) = ahead.next_if(|(beside, _)| *beside == index) {
                purposes.push(Purpose::Prefetch(id));
                commands.push(self.prefetch(id)?);
            }
        }
        if let Some(search) = self.search {
            self.record_search(&search, &mut commands, &mut purposes)?;
        }
        let limits = &self.state.limits;
        let outputs = self.graph.outputs.iter().zip(&self.outputs).enumerate();
        for (position, (id, staging)) in outputs.skip(self.new_values) {
            let is_searched = self.search.is_some_and(|it| it.position == position);
            // An input that is returned as an output is read from the memory that the host wrote.
            let is_there = |host: &Binding| host.buffer == self.output_staging.raw;
            let is_copied = !is_searched && !at_host.get(id).is_some_and(is_there);
            let Some(staging) = staging.filter(|_| is_copied) else { continue };
            let host = staging.binding(self.output_staging.raw, true);
            let tensor = self.state.tensor(*id)?;
            let device = (self.bound(&at_host, *id, false)?, tensor.element);
            purposes.push(Purpose::Output(position));
            commands.push(transfer(limits, device, (host, staging.element), tensor.numel())?);
        }
        for (position, (from, to)) in self.updates.iter().enumerate() {
            let (source, target) = (self.state.tensor(*from)?, self.state.tensor(*to)?);
            let from = (self.bound(&at_host, *from, false)?, source.element);
            let to = (self.binding(*to, true)?, target.element);
            purposes.push(Purpose::Update(position));
            commands.push(transfer(limits, from, to, source.numel())?);
        }
        self.recording.record(&commands, self.labels.is_some())?;
        watch.lap("record");
        if self.labels.is_some() {
            self.labels = Some(purposes.iter().map(|purpose| self.label(purpose)).collect());
            watch.lap("name commands");
        }
        self.recorded = true;
        Ok(())
    }

    /// Returns the memory of a tensor: its staging memory if it is used in place.
    fn bound(&self, at_host: &AtHost, id: TensorId, written: bool) -> Result<Binding, Error> {
        let (root, start) = self.state.location(id);
        let Some(host) = at_host.get(&root) else { return self.binding(id, written) };
        let needed = self.state.tensor(id)?.bytes();
        let size = host.size.checked_sub(start).filter(|rest| needed <= *rest);
        let size = size.ok_or_else(|| Error::invalid("a tensor exceeds its staging memory"))?;
        Ok(Binding { offset: host.offset + start, size, written, ..*host })
    }

    /// Chooses the inputs and outputs that steps use directly in staging memory, which saves a copy
    /// that other commands would wait for. If staging memory is on the device: all inputs that no
    /// step changes, and outputs that exactly one step writes. Otherwise: inputs and outputs that
    /// exactly one step uses, if they are so small that direct access is faster than a copy.
    fn at_host(&self, steps: &[Step]) -> AtHost {
        let ends = self.graph.inputs.iter().chain(&self.graph.outputs);
        let mut uses: IdMap<TensorId, Uses<'_>> =
            ends.clone().map(|id| (*id, Uses::default())).collect();
        for (index, step) in steps.iter().enumerate() {
            for access in &step.accesses {
                let Some(uses) = uses.get_mut(&self.state.root(access.tensor)) else { continue };
                uses.written |= access.written;
                if uses.last.is_none_or(|(last, _)| last != index) {
                    uses.last = Some((index, step));
                    uses.count += 1;
                }
            }
        }
        let moved = self.updates.iter().flat_map(|(from, to)| [(*from, false), (*to, true)]);
        for (id, written) in ends.map(|id| (*id, false)).chain(moved) {
            if let Some(uses) = uses.get_mut(&self.state.root(id)) {
                uses.count += 1;
                uses.written |= written;
            }
        }
        // The tensor must have the staging type and layout. A tensor that exceeds its bound is
        // rejected elsewhere.
        let is_same = |id: TensorId, staging: &Staging| {
            self.state.location(id) == (id, 0)
                && !self.state.strided.contains_key(&id)
                && self.state.tensor(id).is_ok_and(|tensor| {
                    tensor.element == staging.element && tensor.bytes() <= staging.bytes
                })
        };
        // Also used by exactly one step. Types below 32 bits are excluded, as they may be written
        // with atomic operations.
        let is_alone = |id: TensorId, staging: &Staging, most: u64| {
            let is_plain = matches!(staging.element, Element::F32 | Element::I32);
            let has_one = uses.get(&id).is_some_and(|uses| uses.count == 2);
            is_same(id, staging) && is_plain && has_one && staging.bytes <= most
        };
        // The last step, if it accesses the tensor only as a whole and only in this direction.
        let user = |id: TensorId, written: bool| {
            let (_, step) = uses.get(&id)?.last?;
            let is_own = |tensor: TensorId| self.state.root(tensor) == id;
            let mut own = step.accesses.iter().filter(|access| is_own(access.tensor));
            own.all(|access| access.tensor == id && access.written == written).then_some(step)
        };
        let mut found = IdMap::default();
        for (id, staging) in self.graph.inputs.iter().zip(&self.inputs) {
            let Some(staging) = staging.filter(|it| is_same(*id, it)) else { continue };
            if self.input_staging.is_on_device() {
                if uses.get(id).is_some_and(|uses| !uses.written) {
                    found.insert(*id, staging.binding(self.input_staging.raw, false));
                }
                continue;
            }
            if !is_alone(*id, &staging, MAX_READ) {
                continue;
            }
            let workgroups = |step: &Step| {
                step.groups.iter().map(|groups| u64::from(*groups)).fold(1, u64::saturating_mul)
            };
            let fetched =
                user(*id, false).map(workgroups).map(|all: u64| all.saturating_mul(staging.bytes));
            if fetched.is_some_and(|bytes| bytes <= MAX_FETCHED) {
                found.insert(*id, staging.binding(self.input_staging.raw, false));
            }
        }
        let most = if self.output_staging.is_on_device() { u64::MAX } else { MAX_WRITTEN };
        for (id, staging) in self.graph.outputs.iter().zip(&self.outputs).skip(self.new_values) {
            let Some(staging) = staging.filter(|it| is_alone(*id, it, most)) else {
                continue;
            };
            if user(*id, true).is_some() {
                found.insert(*id, staging.binding(self.output_staging.raw, true));
            }
        }
        found
    }

    /// Returns the label of a command in traces.
    fn label(&self, purpose: &Purpose<'_>) -> Label {
        let of_tensor = |name: &str, position: usize, id: Option<&TensorId>| {
            let tensor = id.and_then(|id| self.state.tensor(*id).ok());
            let sizes = tensor.map(|tensor| format!("{:?}", tensor.sizes)).unwrap_or_default();
            Label { name: name.to_owned(), id: position as u32, detail: sizes, call: None }
        };
        match purpose {
            Purpose::Parameters => of_tensor("parameters (copy)", 0, None),
            Purpose::Prefetch(id) => of_tensor("weights (prefetch)", 0, Some(id)),
            Purpose::Input(position) => {
                of_tensor("input (copy)", *position, self.graph.inputs.get(*position))
            }
            Purpose::Output(position) => {
                of_tensor("output (copy)", *position, self.graph.outputs.get(*position))
            }
            Purpose::Search(position) => {
                of_tensor("output (largest)", *position, self.graph.outputs.get(*position))
            }
            Purpose::Update(position) => {
                of_tensor("buffer (copy)", *position, self.updates.get(*position).map(|(to, _)| to))
            }
            Purpose::Step(step) => {
                let node = self.graph.nodes.get(step.node);
                let operator = node.map(Node::title).unwrap_or_default();
                let written = step.accesses.iter().find(|access| access.written);
                let name = format!("{operator} ({})", step.key.module.name);
                let id = node.map_or(0, |node| node.id);
                let label = of_tensor(&name, 0, written.map(|access| &access.tensor));
                let variants = self.state.choices.names(step.node);
                let detail = format!("{}, {}", label.detail, variant(&step.key));
                let detail =
                    variants.fold(detail, |detail, variant| format!("{detail}, {variant}"));
                Label { id, detail, call: Some(step.node), ..label }
            }
        }
    }
}

/// Builds a copy between a tensor and its staging memory; converts if the types differ.
fn transfer(
    limits: &Limits,
    (from, from_element): (Binding, Element),
    (to, to_element): (Binding, Element),
    numel: usize,
) -> Result<Command<'static>, Error> {
    let (from, to) = (Binding { written: false, ..from }, Binding { written: true, ..to });
    if from_element == to_element {
        let size = padded_bytes(from_element, numel).min(from.size).min(to.size);
        return Ok(Command::Copy { from: Binding { size, ..from }, to: Binding { size, ..to } });
    }
    let key = conversion(from_element, to_element);
    let push = GatherPush {
        numel: u32_of(numel)?,
        base: 0,
        rank: 0,
        sizes: [1; MAX_DIMS],
        strides: [0; MAX_DIMS],
    };
    let groups = [u32_of(numel.div_ceil(4).div_ceil(64))?.max(1), 1, 1];
    // A size that cannot be folded is rejected when it is recorded.
    let groups = limits.folded(groups, 0).unwrap_or(groups);
    Ok(Command::Dispatch {
        key: Cow::Owned(key),
        bindings: vec![from, to],
        push: Cow::Owned(push.bytes()),
        groups,
    })
}

/// The pipeline that converts elements of one type to another.
fn conversion(from: Element, to: Element) -> PipelineKey {
    let pipeline = Gather { input: from, output: to, contiguous: true, by_four: false };
    let constants = pipeline.constants();
    PipelineKey { module: Gather::MODULE, constants, workgroup: [64, 1, 1] }
}

/// Returns the pipelines for inputs and outputs whose staging type differs from the tensor type.
pub(crate) fn conversions(
    graph: &Graph<'_>,
    state: &State,
    inputs: &[Option<Staging>],
    outputs: &[Option<Staging>],
) -> Result<Vec<PipelineKey>, Error> {
    let mut keys = Vec::new();
    for (id, staging) in graph.inputs.iter().zip(inputs) {
        let Some(host) = staging.map(|staging| staging.element) else { continue };
        let device = state.tensor(*id)?.element;
        keys.extend((host != device).then(|| conversion(host, device)));
    }
    for (id, staging) in graph.outputs.iter().zip(outputs) {
        let Some(host) = staging.map(|staging| staging.element) else { continue };
        let device = state.tensor(*id)?.element;
        keys.extend((host != device).then(|| conversion(device, host)));
    }
    Ok(keys)
}
