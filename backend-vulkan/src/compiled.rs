//! A compiled graph: device memory, a command recording, and staging buffers for inputs and
//! outputs.

use crate::argmax::{Search, SearchRequest};
use crate::commands::conversions;
use crate::device::{Binding, Buffer, Clock, Context, MemoryKind, Recording};
use crate::error::Error;
use crate::matrix_units::{self, Benchmark};
use crate::prefetch;
use crate::recording_cache::{CachedRecording, RecordingKey};
use crate::replay::Replay;
use crate::trace::{Label, Stopwatch, report_commands};
use crate::upload::{Task, upload};
use crate::weights::Holder;
use ash::vk;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use torchlet_core::{DelegateCall, Parallel, Scalar, ScalarType, Serial};
use torchlet_gpu::choices::Choices;
use torchlet_gpu::constants::{Constants, forget};
use torchlet_gpu::device::{DeviceFeature, PipelineKey};
use torchlet_gpu::encode::encode;
use torchlet_gpu::memory_plan::{Kind, Location, Locations, Memory, plan_memory};
use torchlet_gpu::state::{State, Storage};
use torchlet_gpu::state_tensors::StateTensor;
use torchlet_gpu::steps::Step;
use torchlet_gpu::tensors::{TensorId, element_of, padded_bytes};
use torchlet_gpu::transfer::{from_staging, to_staging};
use torchlet_gpu::{prefetch as prefetches, warmup, weights as identity};
use torchlet_graph::front::vulkan::{Argument, Buffers, CallLayout};
use torchlet_graph::graph::{Graph, Value, ValueId};
use torchlet_shaders::Element;

/// The range of a staging buffer that holds one input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Staging {
    pub(crate) element: Element,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Staging {
    pub(crate) fn binding(&self, buffer: vk::Buffer, written: bool) -> Binding {
        Binding { buffer, offset: self.offset, size: self.bytes, written }
    }
}

/// Parameters of graph compilation.
#[derive(Clone, Copy)]
pub(crate) struct Build<'b> {
    pub(crate) context: &'b Arc<Context>,
    /// Whether a tracer listens from the first run on.
    pub(crate) traced: bool,
    /// Whether the graph is only run at its largest shapes, to be measured.
    pub(crate) trial: bool,
    pub(crate) parallel: &'b dyn Parallel,
    /// Whether the borrowed data of the graph outlives the compiled graph.
    pub(crate) lasts: bool,
    /// Device features to leave unused.
    pub(crate) without: &'b [DeviceFeature],
}

/// A graph that is ready to run.
pub(crate) struct Compiled {
    pub(crate) graph: Graph<'static>,
    pub(crate) state: State,
    pub(crate) places: Locations,
    pub(crate) tensors: Vec<Buffer>,
    pub(crate) constants: Vec<Buffer>,
    /// Weights that never change; other graphs may share them.
    pub(crate) weights: Vec<Arc<Buffer>>,
    _holder: Holder,
    /// Staging buffers: the host writes inputs to the first and reads outputs from the second.
    pub(crate) input_staging: Buffer,
    pub(crate) output_staging: Buffer,
    pub(crate) inputs: Vec<Option<Staging>>,
    pub(crate) outputs: Vec<Option<Staging>>,
    /// Pairs (new value, constant): after a run, the new value is copied into the constant.
    pub(crate) updates: Vec<(TensorId, TensorId)>,
    /// How many leading outputs are new values of buffers rather than outputs of the caller.
    pub(crate) new_values: usize,
    /// The positions of inputs and outputs among the arguments of a call, cached with the argument
    /// count after the first call.
    layout: Option<(usize, CallLayout)>,
    /// Inputs whose values operators read on the host.
    pub(crate) watched: Vec<ValueId>,
    /// The output that the caller wants searched (argmax) instead of returned.
    pub(crate) wanted: Option<usize>,
    /// The recorded search of that output.
    pub(crate) search: Option<Search>,
    /// Scratch memory for partial results of the search's workgroups, and its size in bytes.
    pub(crate) left: Option<(Buffer, u64)>,
    /// Dummy output buffer of weight prefetches; nothing reads it.
    pub(crate) dummy_output: Option<Buffer>,
    pub(crate) recording: Recording,
    /// Whether the recording matches the current shapes.
    pub(crate) recorded: bool,
    /// Recordings for other shapes, most recently used last.
    pub(crate) kept: Vec<CachedRecording>,
    /// Data for replaying the recording with other integers.
    pub(crate) replay: Replay,
    /// The label of each recorded command; `None` without a tracer.
    pub(crate) labels: Option<Vec<Label>>,
    /// Constants that the graph changes.
    changing: HashSet<TensorId>,
    buffers: Buffers,
    /// State tensors that callers can read and write.
    pub(crate) state_tensors: Vec<StateTensor>,
    pub(crate) context: Arc<Context>,
}

impl Compiled {
    pub(crate) fn new(
        build: Build<'_>,
        mut graph: Graph<'_>,
        state_tensors: Vec<StateTensor>,
        watch: &mut Stopwatch,
    ) -> Result<Self, Error> {
        let context = build.context;
        report_missing(&graph)?;
        torchlet_gpu::passes::cut(&mut graph, &context.limits);
        torchlet_gpu::passes::by_place(&mut graph, &context.used_features(), &context.limits);
        torchlet_gpu::passes::run(&mut graph);
        crate::tuning::tune(build, &graph)?;
        watch.lap("measure");
        Self::choosing(build, graph, state_tensors, Self::choices(context), watch)
    }

    /// Returns the kernel variants to use on a device.
    fn choices(context: &Context) -> Choices {
        let known = || {
            let mut known = context.found.all();
            known.remove(&matrix_units::question());
            Choices::known(known)
        };
        context.variant.map_or_else(known, Choices::forced)
    }

    /// Compiles a graph with these kernel variants.
    pub(crate) fn choosing(
        build: Build<'_>,
        graph: Graph<'_>,
        state_tensors: Vec<StateTensor>,
        choices: Choices,
        watch: &mut Stopwatch,
    ) -> Result<Self, Error> {
        let Build { context, traced, trial, parallel, lasts, without } = build;
        let buffers = Buffers::of(&graph)?;
        let mut state =
            State::on(&context.planned(), &graph, buffers.changing().into_iter().collect())?;
        state.features = state.features.without(without);
        state.choices = choices;
        let mut replay = Replay::new(state.varying.clone());
        let (steps, reads) = encode(&graph, &mut state, true)?;
        replay.reads = Some(reads);
        watch.lap("encode");
        let changing = changing(&graph, &state, &steps)?;
        let shared = if lasts { identity::of(&graph, &state, &changing) } else { HashMap::new() };
        let found = context.weights.find(&shared);
        let kind = |id| match (found.get(&id), shared.contains_key(&id)) {
            (Some(found), _) => Kind::Shared(found.bytes),
            (None, true) => Kind::Weight,
            (None, false) => Kind::Own,
        };
        let (align, largest) = (context.align, context.largest_allocation);
        let plan = plan_memory(&graph, &state, &steps, align, largest, kind)?;
        let mut places = plan.places;
        watch.lap("plan memory");
        let (inputs, input_bytes) = stage(&graph, &graph.inputs, align)?;
        let (outputs, output_bytes) = stage(&graph, &graph.outputs, align)?;
        let memory = |sizes: Vec<u64>, kind: MemoryKind| -> Result<Vec<Buffer>, Error> {
            sizes.into_iter().map(|bytes| Buffer::new(context, bytes, kind)).collect()
        };
        let tensors = memory(plan.tensors, MemoryKind::Device)?;
        let mut constants = memory(plan.constants, MemoryKind::Constants)?;
        let mut own_weights = memory(plan.weights, MemoryKind::Constants)?;
        let input_staging = Buffer::new(context, input_bytes, MemoryKind::Upload)?;
        let output_staging = Buffer::new(context, output_bytes, MemoryKind::Download)?;
        watch.lap("allocate memory");

        let contents = Constants::of(&graph, &state, &places, Memory::Constants, |_| true)?;
        let of_weights = Constants::of(&graph, &state, &places, Memory::Weights, |_| true)?;
        let conversions = conversions(&graph, &state, &inputs, &outputs)?;
        let dummy_output = match prefetches::plan(&state, &steps, context.prefetch).is_empty() {
            true => None,
            false => Some(prefetch::dummy_output(context)?),
        };
        let prefetch = dummy_output.is_some().then(prefetch::pipeline);
        let benchmark = if trial { None } else { Benchmark::of(context, &steps) };
        let keys = steps.iter().map(|step| &step.key).chain(&conversions).chain(&prefetch);
        let needed: HashSet<&PipelineKey> = keys.collect();
        let most = if trial { 0 } else { 4 * needed.len() + 64 };
        let others = warmup::pipelines(&graph, &state, most);
        watch.lap("rehearse");
        let mut keys: Vec<&PipelineKey> = needed.iter().copied().collect();
        keys.extend(others.iter().filter(|key| !needed.contains(key)));
        let compared = benchmark.iter().flat_map(Benchmark::pipelines);
        keys.extend(compared.filter(|key| !needed.contains(key) && !others.contains(key)));
        // The largest modules first, so that no long compilation is left running alone at the end.
        keys.sort_by_key(|key| std::cmp::Reverse(key.module.spirv.len()));
        let made = {
            let bytes = contents.bytes() + of_weights.bytes();
            format!("{} pipelines, {bytes} bytes, {} weights shared", keys.len(), plan.shared.len())
        };
        let longest = Mutex::new((Duration::ZERO, ""));
        let pipelines = keys.into_iter().map(|key| -> Task<'_> {
            Box::new(|| {
                let start = Instant::now();
                match context.pipelines.get(key) {
                    // Pipelines of other shapes may never be needed: their errors are ignored.
                    Err(error) if needed.contains(key) || error.is_device_loss() => {
                        return Err(error);
                    }
                    _ => {}
                }
                let took = (start.elapsed(), key.module.name);
                let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
                *longest = took.max(*longest);
                Ok(())
            })
        });
        let pipelines = pipelines.collect();
        upload(&of_weights, context, &mut own_weights, parallel, pipelines)?;
        upload(&contents, context, &mut constants, parallel, Vec::new())?;
        let (took, name) = longest.into_inner().unwrap_or_else(PoisonError::into_inner);
        let took = took.as_secs_f64() * 1e3;
        let made = format!("{made}, slowest {took:.1} ms: {name}");
        watch.lap_of("create pipelines and upload constants", made);
        if let Some(benchmark) = benchmark {
            let (uses_units, why) = benchmark.settle(build)?;
            watch.lap_of("compare matrix units", why);
            if !uses_units {
                // This happens once per device, whose result is stored from then on. The memory is
                // freed first, because two copies may not fit on the device.
                drop((tensors, constants, own_weights, input_staging, output_staging));
                return Self::choosing(build, graph, state_tensors, Self::choices(context), watch);
            }
        }

        let mut weights: Vec<Arc<Buffer>> = own_weights.into_iter().map(Arc::new).collect();
        for id in plan.shared {
            let Some(found) = found.get(&id) else { continue };
            let (offset, bytes) = (found.offset, found.bytes);
            let buffer = found.among(&mut weights);
            places.insert(id, Location { memory: Memory::Weights, buffer, offset, bytes });
        }
        let holder = context.weights.keep(&shared, &places, &weights);
        let graph = forget(graph, &mut state, |id| changing.contains(&id));
        let watched = torchlet_gpu::ops::watched_inputs(&graph, &state);
        let mut compiled = Compiled {
            watched,
            updates: Vec::new(),
            new_values: 0,
            layout: None,
            tensors,
            constants,
            weights,
            _holder: holder,
            input_staging,
            output_staging,
            graph,
            state,
            places,
            inputs,
            outputs,
            wanted: None,
            search: None,
            left: None,
            dummy_output,
            recording: Recording::new(context)?,
            recorded: false,
            kept: Vec::new(),
            replay,
            labels: traced.then(Vec::new),
            changing,
            buffers,
            state_tensors,
            context: context.clone(),
        };
        compiled.find_updates()?;
        compiled.record_or_evict(steps, watch)?;
        context.pipelines.save();
        watch.lap("save pipelines");
        Ok(compiled)
    }

    /// Finds the constants that are updated after all steps: those that the graph lists, and those
    /// whose new values are outputs that the caller does not receive.
    fn find_updates(&mut self) -> Result<(), Error> {
        let owners = self.buffers.owners(self.new_values)?;
        let owned = self.graph.outputs.iter().copied().zip(owners);
        let mut copies = Vec::new();
        for (new, old) in self.graph.updates.iter().copied().chain(owned) {
            let (source, target) = (self.state.root(new), self.state.root(old));
            let is_constant = matches!(self.state.tensor(target)?.storage, Storage::Constant(_));
            // A buffer that no step reads has no memory.
            if is_constant && source != target && self.places.contains_key(&target) {
                // The new value may be a part of another tensor's memory.
                copies.push((new, target));
            }
        }
        self.updates = in_safe_order(&copies, |id| self.state.root(id))
            .ok_or_else(|| Error::unsupported("buffers that exchange their values"))?;
        Ok(())
    }

    /// Returns the positions of inputs and outputs among the arguments. They are found at the first
    /// call, because the number of arguments is unknown until then.
    fn layout(&mut self, call: &DelegateCall<'_, '_>) -> Result<CallLayout, Error> {
        let count = call.len();
        if let Some((_, layout)) = self.layout.as_ref().filter(|(known, _)| *known == count) {
            return Ok(layout.clone());
        }
        let arguments: Vec<Argument> = (0..count).map(|at| argument(call, at)).collect();
        let layout = CallLayout::find(&self.graph, &self.buffers, &arguments)?;
        if self.new_values != layout.new_values {
            self.new_values = layout.new_values;
            self.find_updates()?;
            self.recorded = false;
            self.kept.clear();
        }
        self.layout = Some((count, layout.clone()));
        Ok(layout)
    }

    /// Runs the graph on the arguments of a call. If an output was searched instead of returned,
    /// the result is its number of rows.
    pub(crate) fn run(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        mut wanted: Option<SearchRequest<'_>>,
    ) -> Result<Option<usize>, Error> {
        let layout = self.layout(call)?;
        let searched = wanted.as_ref().and_then(|wanted| {
            layout.outputs.get(wanted.arg.checked_sub(layout.first_output)?).copied()
        });
        let mut watch = Stopwatch::new(call.is_traced());
        if call.is_traced() != self.labels.is_some() {
            self.labels = call.is_traced().then(Vec::new);
            self.recorded = false;
            self.kept.clear();
        }
        let invoke = call.split(layout.first_output)?;
        let staged = layout.inputs.iter().zip(&self.inputs).filter(|(_, it)| it.is_some());
        let sizes = staged.map(|(argument, _)| {
            let tensor = invoke.tensor(*argument)?;
            Ok((0..tensor.rank()).map(|dim| tensor.size(dim)).collect())
        });
        let sizes = sizes.collect::<Result<_, Error>>()?;
        self.switch_to(RecordingKey { sizes, wanted: searched })?;
        watch.lap("find recording");
        for (position, argument) in layout.inputs.into_iter().enumerate() {
            let id = self.graph.inputs[position];
            if let Some(staging) = self.inputs[position] {
                let tensor = invoke.tensor(argument)?;
                if element_of(tensor.scalar_type)? != staging.element {
                    let found = tensor.scalar_type;
                    return Err(Error::Invalid(format!("input {position} has type {found}")));
                }
                let memory = self
                    .input_staging
                    .mapped()
                    .get_mut(staging.offset as usize..)
                    .unwrap_or_default();
                to_staging(tensor.info(), tensor.bytes(), memory, invoke.parallel())?;
                if self.watched.contains(&id) {
                    let numel = tensor.numel();
                    let ints = memory.as_chunks::<4>().0.iter().take(numel);
                    let ints: Vec<i32> = ints.map(|bytes| i32::from_le_bytes(*bytes)).collect();
                    if self.state.host.get(&id) != Some(&ints) {
                        self.state.host.insert(id, ints);
                        self.replay.varied = true;
                    }
                }
            } else if let Some(Some(slot)) = self.state.integers.get_mut(id) {
                let value = match invoke.tensor(argument) {
                    Ok(tensor) => match tensor.scalar_type {
                        ScalarType::Long => tensor.data::<i64>()?.first().copied().unwrap_or(0),
                        ScalarType::Int => {
                            tensor.data::<i32>()?.first().copied().unwrap_or(0).into()
                        }
                        found => {
                            return Err(Error::Invalid(format!(
                                "input {position} has type {found}"
                            )));
                        }
                    },
                    Err(_) => invoke.int(argument)?,
                };
                if *slot != value {
                    *slot = value;
                    self.replay.varied = true;
                }
            }
        }
        watch.lap("write inputs");
        if self.replay.varied && self.recorded {
            // Cleared first, so that an error leaves no valid recording.
            self.recorded = false;
            self.recorded = self.update()?;
            watch.lap("update");
        }
        if !self.recorded {
            let (steps, reads) = encode(&self.graph, &mut self.state, false)?;
            self.replay.reads = Some(reads);
            watch.lap("encode");
            self.record_or_evict(steps, &mut watch)?;
            // Other shapes may have created new pipelines.
            self.context.pipelines.save();
        }
        let parallel = invoke.parallel();
        if parallel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let varied = std::mem::take(&mut self.replay.varied);
        self.recording.submit()?;
        if varied {
            self.predict();
        }
        self.recording.wait_unless(&|| parallel.is_cancelled())?;
        watch.lap("submit and wait");
        let mut found = None;
        for (arg, position) in (layout.first_output..).zip(layout.outputs) {
            let id = self.graph.outputs[position];
            if let Some(staging) = self.outputs[position] {
                let sizes = &self.state.tensor(id)?.sizes;
                let sizes: Vec<i32> = sizes.iter().map(|size| *size as i32).collect();
                invoke.resize(arg, &sizes)?;
                let out = invoke.out(arg)?;
                if element_of(out.scalar_type)? != staging.element {
                    let found = out.scalar_type;
                    return Err(Error::Invalid(format!("output {position} has type {found}")));
                }
                if let Some(search) = self.search.filter(|it| it.position == position)
                    && let Some(wanted) = wanted.take()
                {
                    found = Some(self.found(&search, wanted)?);
                    continue;
                }
                let (info, parallel) = (out.info().clone(), invoke.parallel());
                let memory =
                    self.output_staging.mapped().get(staging.offset as usize..).unwrap_or_default();
                from_staging(memory, &info, out.into_bytes(), parallel)?;
            } else if let Some(Some(value)) = self.state.integers.get(id) {
                invoke.set_scalar(arg, Scalar::Int(*value))?;
            }
        }
        watch.lap("read outputs");
        self.report(call, &watch)?;
        Ok(found)
    }

    /// Reports the timing of the run's phases and commands to the tracer, if any.
    fn report(&self, call: &DelegateCall<'_, '_>, watch: &Stopwatch) -> Result<(), Error> {
        let Some(labels) = &self.labels else { return Ok(()) };
        watch.report(|event| call.trace(event));
        if let (Some(clock), Some(times)) = (&self.context.clock, self.recording.times()?) {
            let first = times.first().and_then(|first| self.since_call(*first, clock, watch));
            report_commands(call, labels, clock, &times, first);
        }
        Ok(())
    }

    /// Returns the device ticks between the start of `watch` and the device timestamp `taken`;
    /// `None` if the device clock cannot be compared with the host's.
    fn since_call(&self, taken: u64, clock: &Clock, watch: &Stopwatch) -> Option<u64> {
        let (now, ticks) = self.context.now()?;
        let passed = clock.nanoseconds(clock.since_first(&[taken, ticks]).last().copied()?);
        let began = watch.nanoseconds_until(now)?.checked_sub(passed)?;
        Some(clock.ticks(began))
    }

    /// Waits for a cancelled run to finish on the device, which owns the memory until then. Other
    /// delegates are unaffected: they share only weights, which are read-only.
    pub(crate) fn finish_pending(&self) -> Result<(), Error> {
        let kept = self.kept.iter().map(|kept| &kept.recording);
        kept.chain([&self.recording]).try_for_each(Recording::wait)
    }

    /// Restores the initial contents of all buffers.
    pub(crate) fn reset(&mut self) -> Result<(), Error> {
        let changing = |id| self.changing.contains(&id);
        let memory = Memory::Constants;
        let contents = Constants::of(&self.graph, &self.state, &self.places, memory, changing)?;
        upload(&contents, &self.context, &mut self.constants, &Serial, Vec::new())
    }
}

/// Orders copies so that none overwrites memory that a later one reads; `root` maps a tensor to the
/// tensor whose memory it lies in. Returns `None` if no such order exists.
fn in_safe_order<T: Copy + PartialEq>(
    copies: &[(T, T)],
    root: impl Fn(T) -> T,
) -> Option<Vec<(T, T)>> {
    let mut rest = copies.to_vec();
    let mut ordered = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let reads = |target: T, own: usize| {
            rest.iter().enumerate().any(|(at, (from, _))| at != own && root(*from) == target)
        };
        let next = (0..rest.len()).find(|at| rest.get(*at).is_some_and(|copy| !reads(copy.1, *at)));
        ordered.push(rest.remove(next?));
    }
    Some(ordered)
}

/// Describes an argument of a call.
fn argument(call: &DelegateCall<'_, '_>, at: usize) -> Argument {
    match call.arguments().info(at) {
        Ok(tensor) => Argument::Tensor {
            scalar_type: tensor.scalar_type,
            sizes: (0..tensor.rank()).map(|dim| tensor.size(dim)).collect(),
            dynamic: true,
            order: tensor.dim_order.iter().map(|dim| usize::from(*dim)).collect(),
        },
        Err(_) => Argument::Number,
    }
}

/// Assigns each tensor among the values a range of staging memory; also returns the total bytes.
fn stage(
    graph: &Graph<'_>,
    ids: &[ValueId],
    align: u64,
) -> Result<(Vec<Option<Staging>>, u64), Error> {
    let mut end = 0u64;
    let mut staging = Vec::with_capacity(ids.len());
    for id in ids {
        staging.push(match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => {
                let element = element_of(tensor.host_type)?;
                let bytes = padded_bytes(element, tensor.sizes.iter().product());
                let offset = end;
                end = offset
                    .checked_add(bytes)
                    .and_then(|end| end.checked_next_multiple_of(align))
                    .ok_or_else(|| Error::invalid("inputs and outputs are too large"))?;
                Some(Staging { element, offset, bytes })
            }
            _ => None,
        });
    }
    Ok((staging, end))
}

/// Returns the constants that change when the graph runs, or may: those written by steps, those
/// that the graph updates, and those whose new value may be an output.
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
            return Err(Error::Invalid(format!("a call writes to constant {root}")));
        }
    }
    Ok(changing)
}

/// Returns an error that lists all unsupported operators of the graph.
fn report_missing(graph: &Graph<'_>) -> Result<(), Error> {
    let mut missing: Vec<&str> = Vec::new();
    for operator in graph.nodes.iter().map(|node| node.operator) {
        if torchlet_gpu::ops::find(operator).is_none() && !missing.contains(&operator.name()) {
            missing.push(operator.name());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported(format!("operators {}", missing.join(", "))))
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
        // Tensor 5 lies in the memory of tensor 0.
        let root = |id: u8| if id == 5 { 0 } else { id };
        assert_eq!(in_safe_order(&[(9, 0), (5, 1)], root), Some(vec![(5, 1), (9, 0)]));
    }
}
