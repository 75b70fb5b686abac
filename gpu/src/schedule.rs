//! Schedules the commands of a plan for the current shapes: parameter and input transfers, steps,
//! and output transfers.

use crate::commands::{Binding, BufferId, Command};
use crate::copies::copy;
use crate::error::Error;
use crate::ids::IdMap;
use crate::labels::{Label, variant};
use crate::plan::{Plan, Updates};
use crate::prefetch;
use crate::replay::Replay;
use crate::search::Search;
use crate::staging::Staging;
use crate::state::State;
use crate::steps::Step;
use crate::tensors::TensorId;
use std::borrow::Cow;
use torchlet_graph::graph::Node;
use torchlet_shaders::Element;

/// The maximum bytes of an input that the device reads directly from host memory (`MAX_READ`), and
/// the maximum bytes that all workgroups read together (`MAX_FETCHED`), since each workgroup reads
/// the whole input.
const MAX_READ: u64 = 4096;
const MAX_FETCHED: u64 = 1 << 18;

/// The maximum bytes of an output that the device writes directly to host memory.
const MAX_WRITTEN: u64 = 16384;

/// The staging memory of inputs and outputs that steps access directly, without a copy.
type AtHost = IdMap<TensorId, Binding>;

/// The uses of an input or output by steps, by the host, and by copies.
#[derive(Default)]
struct Uses<'s> {
    count: usize,
    /// The last step that binds the tensor, with its index.
    last: Option<(usize, &'s Step)>,
    /// Whether the device writes to the tensor.
    written: bool,
}

/// The purpose of each recorded command.
enum Purpose<'s> {
    Parameters,
    Input(usize),
    Step(&'s Step),
    /// A weight prefetch, which runs concurrently with the preceding step.
    Prefetch(TensorId),
    Output(usize),
    /// An argmax search in an output.
    Search(usize),
    Update(usize),
}

/// The commands of a plan for the current shapes.
pub struct Schedule<'s> {
    /// The commands, in order. A command waits for each earlier command whose memory ranges overlap
    /// its own, if either of the two writes.
    pub commands: Vec<Command<'s>>,
    purposes: Vec<Purpose<'s>>,
    /// The argmax search that replaces an output, if requested and possible.
    pub search: Option<Search>,
    /// The bytes of the parameters that shaders read from memory.
    pub parameter_bytes: u64,
}

/// Creates schedules: the plan and the state for which commands are scheduled.
pub struct Scheduler<'s> {
    /// The plan of the graph.
    pub plan: &'s Plan<'s>,
    /// The current shapes and integers.
    pub state: &'s State,
    /// The constants that are updated after all steps.
    pub updates: &'s Updates,
    /// The steps for the current shapes.
    pub steps: &'s [Step],
    /// Whether the staging buffers of inputs and outputs are device memory.
    pub on_device: [bool; 2],
}

impl<'s> Scheduler<'s> {
    /// Returns the commands. If `wanted` is the index of an output, a search replaces that output
    /// if possible.
    ///
    /// # Errors
    /// A tensor exceeds its memory.
    pub fn schedule(
        &self,
        replay: &mut Replay,
        wanted: Option<usize>,
    ) -> Result<Schedule<'s>, Error> {
        let Scheduler { plan, state, updates, steps, .. } = *self;
        let graph = &plan.graph;
        let limits = &state.limits;
        // Few commands are added to those of the steps.
        let most = steps.len() + graph.inputs.len() + graph.outputs.len() + 8;
        let (mut commands, mut purposes) = (Vec::with_capacity(most), Vec::with_capacity(most));
        replay.note_shapes(graph, state);
        let (parameters, parameter_bytes) = replay.place(steps, limits.align);
        if parameter_bytes > 0 {
            let binding =
                |buffer, written| Binding { buffer, offset: 0, size: parameter_bytes, written };
            purposes.push(Purpose::Parameters);
            commands.push(Command::Copy {
                from: binding(BufferId::ParameterStaging, false),
                to: binding(BufferId::Parameters, true),
            });
        }
        let search = wanted.and_then(|position| Search::of(plan, state, updates, position));
        let mut at_host = self.at_host();
        if let Some(output) = search.and_then(|it| graph.outputs.get(it.position)) {
            at_host.remove(&state.root(*output));
        }
        for (position, (id, staging)) in graph.inputs.iter().zip(&plan.inputs).enumerate() {
            let Some(staging) = staging else { continue };
            let root = state.root(*id);
            if !plan.memory.places.contains_key(&root) || at_host.contains_key(&root) {
                continue;
            }
            let host = staging.binding(BufferId::Inputs, false);
            let tensor = state.tensor(*id)?;
            let device = (plan.binding(state, *id, true)?, tensor.element);
            purposes.push(Purpose::Input(position));
            commands.push(copy(limits, (host, staging.element), device, tensor.numel())?);
        }
        let ahead = match plan.prefetches {
            true => prefetch::plan(state, steps, plan.prefetch),
            false => Vec::new(),
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
                let bytes = state.tensor(id)?.bytes();
                commands.push(prefetch::command(plan.binding(state, id, false)?, bytes)?);
            }
        }
        if let Some(search) = search {
            let found = search.commands(plan.binding(state, search.id, false)?, limits)?;
            purposes.extend(found.iter().map(|_| Purpose::Search(search.position)));
            commands.extend(found);
        }
        let outputs = graph.outputs.iter().zip(&plan.outputs).enumerate();
        for (position, (id, staging)) in outputs.skip(updates.new_values) {
            let is_searched = search.is_some_and(|it| it.position == position);
            // An input that is returned as an output is copied from the staging memory that the
            // host wrote.
            let is_there = |host: &Binding| host.buffer == BufferId::Outputs;
            let is_copied = !is_searched && !at_host.get(id).is_some_and(is_there);
            let Some(staging) = staging.filter(|_| is_copied) else { continue };
            let host = staging.binding(BufferId::Outputs, true);
            let tensor = state.tensor(*id)?;
            let device = (self.bound(&at_host, *id, false)?, tensor.element);
            purposes.push(Purpose::Output(position));
            commands.push(copy(limits, device, (host, staging.element), tensor.numel())?);
        }
        for (position, (from, to)) in updates.copies.iter().enumerate() {
            let (source, target) = (state.tensor(*from)?, state.tensor(*to)?);
            let from = (self.bound(&at_host, *from, false)?, source.element);
            let to = (plan.binding(state, *to, true)?, target.element);
            purposes.push(Purpose::Update(position));
            commands.push(copy(limits, from, to, source.numel())?);
        }
        Ok(Schedule { commands, purposes, search, parameter_bytes })
    }

    /// Returns the label of each command.
    pub fn labels(&self, schedule: &Schedule<'_>) -> Vec<Label> {
        schedule.purposes.iter().map(|purpose| self.label(purpose)).collect()
    }

    /// Returns the memory range of a tensor: its staging memory if steps access that directly.
    fn bound(&self, at_host: &AtHost, id: TensorId, written: bool) -> Result<Binding, Error> {
        let (root, start) = self.state.location(id);
        let Some(host) = at_host.get(&root) else {
            return self.plan.binding(self.state, id, written);
        };
        let needed = self.state.tensor(id)?.bytes();
        let size = host.size.checked_sub(start).filter(|rest| needed <= *rest);
        let size = size.ok_or_else(|| {
            Error::Invalid(format!(
                "internal error: tensor {id} of {needed} bytes exceeds its staging memory"
            ))
        })?;
        Ok(Binding { offset: host.offset + start, size, written, ..*host })
    }

    /// Chooses the inputs and outputs that steps access directly in staging memory. This saves a
    /// copy that other commands would wait for. If staging memory is on the device: all inputs that
    /// no step changes, and outputs that exactly one step writes. Otherwise: inputs and outputs
    /// that exactly one step uses, if they are so small that direct access is faster than a copy.
    fn at_host(&self) -> AtHost {
        let Scheduler { plan, state, updates, steps, on_device: [inputs, outputs] } = *self;
        let graph = &plan.graph;
        let ends = graph.inputs.iter().chain(&graph.outputs);
        let mut uses: IdMap<TensorId, Uses<'_>> =
            ends.clone().map(|id| (*id, Uses::default())).collect();
        for (index, step) in steps.iter().enumerate() {
            for access in &step.accesses {
                let Some(uses) = uses.get_mut(&state.root(access.tensor)) else { continue };
                uses.written |= access.written;
                if uses.last.is_none_or(|(last, _)| last != index) {
                    uses.last = Some((index, step));
                    uses.count += 1;
                }
            }
        }
        let moved = updates.copies.iter().flat_map(|(from, to)| [(*from, false), (*to, true)]);
        for (id, written) in ends.map(|id| (*id, false)).chain(moved) {
            if let Some(uses) = uses.get_mut(&state.root(id)) {
                uses.count += 1;
                uses.written |= written;
            }
        }
        // The tensor must have the element type and layout of the staging memory. A tensor that
        // exceeds its bound is rejected elsewhere.
        let is_same = |id: TensorId, staging: &Staging| {
            state.location(id) == (id, 0)
                && !state.strided.contains_key(&id)
                && state.tensor(id).is_ok_and(|tensor| {
                    tensor.element == staging.element && tensor.bytes() <= staging.bytes
                })
        };
        // Exactly one step uses the tensor. Types below 32 bits are excluded, as they may be
        // written with atomic operations.
        let is_alone = |id: TensorId, staging: &Staging, most: u64| {
            let is_plain = matches!(staging.element, Element::F32 | Element::I32);
            let has_one = uses.get(&id).is_some_and(|uses| uses.count == 2);
            is_same(id, staging) && is_plain && has_one && staging.bytes <= most
        };
        // The last step, if it accesses the tensor only as a whole and only in this direction.
        let user = |id: TensorId, written: bool| {
            let (_, step) = uses.get(&id)?.last?;
            let is_own = |tensor: TensorId| state.root(tensor) == id;
            let mut own = step.accesses.iter().filter(|access| is_own(access.tensor));
            own.all(|access| access.tensor == id && access.written == written).then_some(step)
        };
        let mut found = IdMap::default();
        for (id, staging) in graph.inputs.iter().zip(&plan.inputs) {
            let Some(staging) = staging.filter(|it| is_same(*id, it)) else { continue };
            if inputs {
                if uses.get(id).is_some_and(|uses| !uses.written) {
                    found.insert(*id, staging.binding(BufferId::Inputs, false));
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
                found.insert(*id, staging.binding(BufferId::Inputs, false));
            }
        }
        let most = if outputs { u64::MAX } else { MAX_WRITTEN };
        for (id, staging) in graph.outputs.iter().zip(&plan.outputs).skip(updates.new_values) {
            let Some(staging) = staging.filter(|it| is_alone(*id, it, most)) else {
                continue;
            };
            if user(*id, true).is_some() {
                found.insert(*id, staging.binding(BufferId::Outputs, true));
            }
        }
        found
    }

    /// Returns the label of a command in traces.
    fn label(&self, purpose: &Purpose<'_>) -> Label {
        let Scheduler { plan, state, updates, .. } = *self;
        let graph = &plan.graph;
        let of_tensor = |name: &str, position: usize, id: Option<&TensorId>| {
            let tensor = id.and_then(|id| state.tensor(*id).ok());
            let sizes = tensor.map(|tensor| format!("{:?}", tensor.sizes)).unwrap_or_default();
            Label { name: name.to_owned(), id: position as u32, detail: sizes, call: None }
        };
        match purpose {
            Purpose::Parameters => of_tensor("parameters (copy)", 0, None),
            Purpose::Prefetch(id) => of_tensor("weights (prefetch)", 0, Some(id)),
            Purpose::Input(position) => {
                of_tensor("input (copy)", *position, graph.inputs.get(*position))
            }
            Purpose::Output(position) => {
                of_tensor("output (copy)", *position, graph.outputs.get(*position))
            }
            Purpose::Search(position) => {
                of_tensor("output (largest)", *position, graph.outputs.get(*position))
            }
            Purpose::Update(position) => of_tensor(
                "buffer (copy)",
                *position,
                updates.copies.get(*position).map(|(to, _)| to),
            ),
            Purpose::Step(step) => {
                let node = graph.nodes.get(step.node);
                let operator = node.map(Node::title).unwrap_or_default();
                let written = step.accesses.iter().find(|access| access.written);
                let name = format!("{operator} ({})", step.key.module.name);
                let id = node.map_or(0, |node| node.id);
                let label = of_tensor(&name, 0, written.map(|access| &access.tensor));
                let variants = state.choices.names(step.node);
                let detail = format!("{}, {}", label.detail, variant(&step.key));
                let detail =
                    variants.fold(detail, |detail, variant| format!("{detail}, {variant}"));
                Label { id, detail, call: Some(step.node), ..label }
            }
        }
    }
}
