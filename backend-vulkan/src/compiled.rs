//! A compiled graph: memory, a recording, and staging for inputs and outputs.

use crate::device::{Binding, Buffer, Command, Context, MemoryKind, PipelineKey, Recording};
use crate::encoder::{Encoder, State, Step};
use crate::error::Error;
use crate::ir::{Graph, Value, ValueId};
use crate::memory_plan::{Request, place};
use crate::tensors::{Storage, TensorId, element_of, padded_bytes};
use crate::trace::{Label, Stopwatch, report_commands};
use crate::transfer::{download, upload};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use torchlet_core::{DelegateCall, Scalar, ScalarType};
use torchlet_shaders::{Element, Gather, GatherPush, MAX_DIMS, Pipeline, PushConstants};

/// Where a tensor's memory is.
#[derive(Debug, Clone, Copy)]
struct Place {
    constant: bool,
    offset: u64,
    bytes: u64,
}

/// The part of a staging buffer that an input or output has.
#[derive(Debug, Clone, Copy)]
struct Staging {
    element: Element,
    offset: u64,
    bytes: u64,
}

/// What a command of the recording is for, by position.
enum Purpose<'s> {
    Input(usize),
    Step(&'s Step),
    Output(usize),
    State(usize),
}

/// A graph that is ready to run.
pub(crate) struct Compiled {
    graph: Graph<'static>,
    state: State,
    places: HashMap<TensorId, Place>,
    tensors: Option<Buffer>,
    constants: Option<Buffer>,
    upload: Buffer,
    download: Buffer,
    inputs: Vec<Option<Staging>>,
    outputs: Vec<Option<Staging>>,
    /// Tensors whose values become the contents of constants after a run.
    kept: Vec<(TensorId, TensorId)>,
    /// The inputs whose values operators look at on the host.
    watched: Vec<ValueId>,
    recording: Recording,
    /// Whether the recording is that of the current shapes.
    recorded: bool,
    /// What each command of the recording is for, where a tracer listens; nothing is known otherwise.
    labels: Option<Vec<Label>>,
    context: Arc<Context>,
}

impl Compiled {
    pub(crate) fn new(
        context: &Arc<Context>,
        mut graph: Graph<'_>,
        traced: bool,
        watch: &mut Stopwatch,
    ) -> Result<Self, Error> {
        report_missing(&graph)?;
        crate::passes::run(&mut graph);
        let mut state = State::new(&graph)?;
        state.busy = context.info.kind.busy_invocations();
        let steps = Encoder::encode(&graph, &mut state, true)?;
        watch.lap("encode");
        let align = context.limits.min_storage_buffer_offset_alignment.max(16);
        let (places, tensor_bytes, constant_bytes) = plan_memory(&graph, &state, &steps, align)?;
        watch.lap("plan memory");
        make_pipelines(context, &steps)?;
        watch.lap("make pipelines");

        let mut offset = 0;
        let mut stage = |ids: &[ValueId]| -> Result<(Vec<Option<Staging>>, u64), Error> {
            offset = 0;
            let mut staging = Vec::new();
            for id in ids {
                staging.push(match graph.values.get(*id) {
                    Some(Value::Tensor(tensor)) => {
                        let element = element_of(tensor.host_type)?;
                        let bytes = padded_bytes(element, tensor.sizes.iter().product());
                        let at = offset;
                        offset = (offset + bytes).next_multiple_of(align);
                        Some(Staging { element, offset: at, bytes })
                    }
                    _ => None,
                });
            }
            Ok((staging, offset))
        };
        let (inputs, input_bytes) = stage(&graph.inputs)?;
        let (outputs, output_bytes) = stage(&graph.outputs)?;
        let buffer = |bytes: u64| -> Result<Option<Buffer>, Error> {
            if bytes == 0 {
                Ok(None)
            } else {
                Buffer::new(context, bytes, MemoryKind::Device).map(Some)
            }
        };
        let watched = watched_inputs(&graph, &state);
        let mut compiled = Compiled {
            watched,
            kept: Vec::new(),
            tensors: buffer(tensor_bytes)?,
            constants: buffer(constant_bytes)?,
            upload: Buffer::new(context, input_bytes, MemoryKind::Upload)?,
            download: Buffer::new(context, output_bytes, MemoryKind::Download)?,
            graph: forget_data(graph),
            state,
            places,
            inputs,
            outputs,
            recording: Recording::new(context)?,
            recorded: false,
            labels: traced.then(Vec::new),
            context: context.clone(),
        };
        watch.lap("allocate memory");
        compiled.upload_constants()?;
        watch.lap("upload constants");
        compiled.record(&steps)?;
        watch.lap("record");
        Ok(compiled)
    }

    /// Copies all constants to the device.
    pub(crate) fn upload_constants(&mut self) -> Result<(), Error> {
        let Some(constants) = &self.constants else { return Ok(()) };
        let mut staging = Buffer::new(&self.context, constants.size(), MemoryKind::Upload)?;
        let target = constants.raw;
        let memory = staging.mapped();
        let mut end = 0;
        for (id, place) in self.places.iter().filter(|(_, place)| place.constant) {
            let Storage::Constant(bytes) = &self.state.tensor(*id)?.storage else { continue };
            let start = place.offset as usize;
            if let Some(memory) = memory.get_mut(start..start + bytes.len()) {
                memory.copy_from_slice(bytes);
            }
            end = end.max(place.offset + place.bytes);
        }
        let size = end;
        let from = Binding { buffer: staging.raw, offset: 0, size, written: false };
        let to = Binding { buffer: target, offset: 0, size, written: true };
        let mut recording = Recording::new(&self.context)?;
        recording.record(&[Command::Copy { from, to }], false)?;
        recording.run()
    }

    fn binding(&self, id: TensorId, written: bool) -> Result<Binding, Error> {
        let root = self.state.root(id);
        let missing = || Error::Invalid(format!("tensor {id} has no memory"));
        let place = self.places.get(&root).ok_or_else(missing)?;
        let needed = self.state.tensor(id)?.bytes();
        if needed > place.bytes {
            return Err(Error::invalid("a tensor exceeds the bound that it was exported with"));
        }
        let buffer = if place.constant { &self.constants } else { &self.tensors };
        let buffer = buffer.as_ref().ok_or_else(missing)?.raw;
        Ok(Binding { buffer, offset: place.offset, size: place.bytes, written })
    }

    /// Records the steps, between the transfers of inputs and outputs.
    fn record(&mut self, steps: &[Step]) -> Result<(), Error> {
        let (mut commands, mut purposes) = (Vec::new(), Vec::new());
        for (position, (id, staging)) in self.graph.inputs.iter().zip(&self.inputs).enumerate() {
            let Some(staging) = staging else { continue };
            if !self.places.contains_key(&self.state.root(*id)) {
                continue;
            }
            let host = Binding {
                buffer: self.upload.raw,
                offset: staging.offset,
                size: staging.bytes,
                written: false,
            };
            let tensor = self.state.tensor(*id)?;
            let device = self.binding(*id, true)?;
            purposes.push(Purpose::Input(position));
            commands.push(transfer(host, staging.element, device, tensor.element, tensor.numel())?);
        }
        for step in steps {
            let bindings: Result<Vec<Binding>, Error> = step
                .accesses
                .iter()
                .map(|access| self.binding(access.tensor, access.written))
                .collect();
            purposes.push(Purpose::Step(step));
            commands.push(Command::Dispatch {
                key: step.key.clone(),
                bindings: bindings?,
                push: step.push.clone(),
                groups: step.groups,
            });
        }
        for (position, (id, staging)) in self.graph.outputs.iter().zip(&self.outputs).enumerate() {
            let Some(staging) = staging else { continue };
            let host = Binding {
                buffer: self.download.raw,
                offset: staging.offset,
                size: staging.bytes,
                written: true,
            };
            let tensor = self.state.tensor(*id)?;
            let device = self.binding(*id, false)?;
            purposes.push(Purpose::Output(position));
            commands.push(transfer(device, tensor.element, host, staging.element, tensor.numel())?);
        }
        for (position, (from, to)) in self.kept.iter().enumerate() {
            let (source, target) = (self.state.tensor(*from)?, self.state.tensor(*to)?);
            let (from, to) = (self.binding(*from, false)?, self.binding(*to, true)?);
            purposes.push(Purpose::State(position));
            commands.push(transfer(from, source.element, to, target.element, source.numel())?);
        }
        if self.labels.is_some() {
            self.labels = Some(purposes.iter().map(|purpose| self.label(purpose)).collect());
        }
        self.recording.record(&commands, self.labels.is_some())?;
        self.recorded = true;
        Ok(())
    }

    /// What a command is called where its time is told.
    fn label(&self, purpose: &Purpose<'_>) -> Label {
        let of_tensor = |name: &str, position: usize, id: Option<&TensorId>| {
            let tensor = id.and_then(|id| self.state.tensor(*id).ok());
            let sizes = tensor.map(|tensor| format!("{:?}", tensor.sizes)).unwrap_or_default();
            Label { name: name.to_owned(), id: position as u32, detail: sizes }
        };
        match purpose {
            Purpose::Input(position) => {
                of_tensor("input (copy)", *position, self.graph.inputs.get(*position))
            }
            Purpose::Output(position) => {
                of_tensor("output (copy)", *position, self.graph.outputs.get(*position))
            }
            Purpose::State(position) => {
                of_tensor("state (copy)", *position, self.kept.get(*position).map(|(to, _)| to))
            }
            Purpose::Step(step) => {
                let node = self.graph.nodes.get(step.node);
                let operator = node.map_or("", |node| node.operator.as_str());
                let written = step.accesses.iter().find(|access| access.written);
                let name = format!("{operator} ({})", step.key.module.name);
                let id = node.map_or(0, |node| node.id);
                Label { id, ..of_tensor(&name, 0, written.map(|access| &access.tensor)) }
            }
        }
    }

    /// Makes the first outputs new contents of constants. A graph that owns buffers has their new values as its first
    /// outputs, which its caller does not know; which buffer each belongs to, the file does not say: it is the first one of
    /// that shape and type that the value is computed from, or else the first one at all.
    fn keep_outputs(&mut self, count: usize) -> Result<(), Error> {
        let outputs: Vec<ValueId> = self.graph.outputs.drain(..count).collect();
        self.outputs.drain(..count);
        let mut taken: Vec<TensorId> = Vec::new();
        for out in outputs {
            let tensor = self.state.tensor(out)?;
            let is_target = |id: &TensorId| {
                let candidate = self.state.tensor(*id);
                matches!(candidate, Ok(constant) if matches!(constant.storage, Storage::Constant(_))
                    && constant.element == tensor.element
                    && constant.sizes == tensor.sizes)
                    && self.places.contains_key(id)
                    && !taken.contains(id)
            };
            let mut sources: HashSet<ValueId> = HashSet::from([out]);
            for node in self.graph.nodes.iter().rev() {
                let Some((result, inputs)) = node.args.split_last() else { continue };
                let results = match self.graph.values.get(*result) {
                    Some(Value::List(items)) => items.clone(),
                    _ => vec![*result],
                };
                if results.iter().any(|id| sources.contains(id)) {
                    for id in inputs {
                        sources.insert(*id);
                        if let Some(Value::List(items)) = self.graph.values.get(*id) {
                            sources.extend(items);
                        }
                    }
                }
            }
            let mut constants: Vec<TensorId> = (0..self.graph.values.len()).collect();
            constants.retain(is_target);
            let target = constants.iter().find(|id| sources.contains(id)).or(constants.first());
            if let Some(target) = target.copied() {
                taken.push(target);
                if self.state.root(out) != target {
                    self.kept.push((out, target));
                }
            }
        }
        self.recorded = false;
        Ok(())
    }

    /// Runs the graph over the arguments of a call.
    pub(crate) fn run(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), Error> {
        let (input_count, output_count) = (self.graph.inputs.len(), self.graph.outputs.len());
        let found = call.len();
        if found > input_count && found < input_count + output_count {
            self.keep_outputs(input_count + output_count - found)?;
            return self.run(call);
        }
        if found != input_count + output_count {
            let expected = input_count + output_count;
            return Err(torchlet_core::KernelError::ArgumentCount { expected, found }.into());
        }
        let mut watch = Stopwatch::new(call.is_traced());
        if call.is_traced() != self.labels.is_some() {
            self.labels = call.is_traced().then(Vec::new);
            self.recorded = false;
        }
        let invoke = call.split(input_count)?;
        for position in 0..input_count {
            let id = self.graph.inputs[position];
            if let Some(staging) = self.inputs[position] {
                let tensor = invoke.tensor(position)?;
                let sizes: Vec<usize> = (0..tensor.rank()).map(|dim| tensor.size(dim)).collect();
                let slot = self.state.tensors.get_mut(id).and_then(Option::as_mut);
                let slot = slot
                    .ok_or_else(|| Error::Invalid(format!("input {position} is not a tensor")))?;
                if slot.sizes != sizes {
                    if padded_bytes(staging.element, tensor.numel()) > staging.bytes {
                        return Err(Error::Invalid(format!("input {position} exceeds its bound")));
                    }
                    slot.sizes = sizes;
                    self.recorded = false;
                }
                if element_of(tensor.scalar_type)? != staging.element {
                    let found = tensor.scalar_type;
                    return Err(Error::Invalid(format!("input {position} has type {found}")));
                }
                let memory =
                    self.upload.mapped().get_mut(staging.offset as usize..).unwrap_or_default();
                upload(tensor.info(), tensor.bytes(), memory)?;
                if self.watched.contains(&id) {
                    let numel = tensor.numel();
                    let ints = memory.as_chunks::<4>().0.iter().take(numel);
                    let ints: Vec<i32> = ints.map(|bytes| i32::from_le_bytes(*bytes)).collect();
                    if self.state.host.get(&id) != Some(&ints) {
                        self.state.host.insert(id, ints);
                        self.recorded = false;
                    }
                }
            } else if let Some(Some(slot)) = self.state.integers.get_mut(id) {
                let value = match invoke.tensor(position) {
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
                    Err(_) => invoke.int(position)?,
                };
                if *slot != value {
                    *slot = value;
                    self.recorded = false;
                }
            }
        }
        watch.lap("write inputs");
        if !self.recorded {
            let steps = Encoder::encode(&self.graph, &mut self.state, false)?;
            self.record(&steps)?;
            watch.lap("record");
        }
        self.recording.run()?;
        watch.lap("submit and wait");
        for position in 0..output_count {
            let id = self.graph.outputs[position];
            let arg = input_count + position;
            if let Some(staging) = self.outputs[position] {
                let sizes = &self.state.tensor(id)?.sizes;
                let sizes: Vec<i32> = sizes.iter().map(|size| *size as i32).collect();
                invoke.resize(arg, &sizes)?;
                let out = invoke.out(arg)?;
                if element_of(out.scalar_type)? != staging.element {
                    let found = out.scalar_type;
                    return Err(Error::Invalid(format!("output {position} has type {found}")));
                }
                let info = out.info().clone();
                let memory =
                    self.download.mapped().get(staging.offset as usize..).unwrap_or_default();
                download(memory, &info, out.into_bytes())?;
            } else if let Some(Some(value)) = self.state.integers.get(id) {
                invoke.set_scalar(arg, Scalar::Int(*value))?;
            }
        }
        watch.lap("read outputs");
        self.report(call, &watch)
    }

    /// Tells the tracer, if there is one, of the run's parts.
    fn report(&self, call: &DelegateCall<'_, '_>, watch: &Stopwatch) -> Result<(), Error> {
        let Some(labels) = &self.labels else { return Ok(()) };
        watch.report(|event| call.trace(event));
        if let (Some(clock), Some(times)) = (&self.context.clock, self.recording.times()?) {
            report_commands(call, labels, clock, &times);
        }
        Ok(())
    }

    /// Gives state its initial values again.
    pub(crate) fn reset(&mut self) -> Result<(), Error> {
        self.upload_constants()
    }
}

/// A copy between a tensor and its staging memory, with conversion where the types differ.
fn transfer(
    from: Binding,
    from_element: Element,
    to: Binding,
    to_element: Element,
    numel: usize,
) -> Result<Command, Error> {
    let (from, to) = (Binding { written: false, ..from }, Binding { written: true, ..to });
    if from_element == to_element {
        let size = padded_bytes(from_element, numel).min(from.size).min(to.size);
        return Ok(Command::Copy { from: Binding { size, ..from }, to: Binding { size, ..to } });
    }
    let pipeline = Gather { input: from_element, output: to_element, contiguous: true };
    let push = GatherPush {
        numel: crate::encoder::u32_of(numel)?,
        base: 0,
        sizes: [1; MAX_DIMS],
        strides: [0; MAX_DIMS],
    };
    let workgroup = [64, 1, 1];
    Ok(Command::Dispatch {
        key: PipelineKey { module: Gather::MODULE, constants: pipeline.constants(), workgroup },
        bindings: vec![from, to],
        push: push.bytes(),
        groups: [crate::encoder::u32_of(numel.div_ceil(4).div_ceil(64))?.max(1), 1, 1],
    })
}

/// The inputs of integers that operators look at on the host.
fn watched_inputs(graph: &Graph<'_>, state: &State) -> Vec<ValueId> {
    let nodes = graph.nodes.iter().filter(|node| node.operator == crate::ops::SELECT_AS_SYMINT);
    let roots = nodes.filter_map(|node| node.args.first()).map(|id| state.root(*id));
    roots
        .filter(|id| {
            let ints = state.tensor(*id).is_ok_and(|tensor| tensor.element == Element::I32);
            ints && graph.inputs.contains(id)
        })
        .collect()
}

/// All operators of the graph that there are none of, in one error.
fn report_missing(graph: &Graph<'_>) -> Result<(), Error> {
    let mut missing: Vec<&str> = Vec::new();
    for node in &graph.nodes {
        if crate::ops::find(&node.operator).is_none() && !missing.contains(&node.operator.as_str())
        {
            missing.push(&node.operator);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported(format!("operators {}", missing.join(", "))))
}

/// The graph without the data of its constants, which is on the device by now.
fn forget_data(graph: Graph<'_>) -> Graph<'static> {
    let values = graph
        .values
        .into_iter()
        .map(|value| match value {
            Value::None => Value::None,
            Value::Int(value) => Value::Int(value),
            Value::Double(value) => Value::Double(value),
            Value::Bool(value) => Value::Bool(value),
            Value::String(value) => Value::String(value),
            Value::IntList(items) => Value::IntList(items),
            Value::DoubleList(items) => Value::DoubleList(items),
            Value::BoolList(items) => Value::BoolList(items),
            Value::List(items) => Value::List(items),
            Value::SymInt(value) => Value::SymInt(value),
            Value::Tensor(tensor) => Value::Tensor(crate::ir::Tensor {
                data: tensor.data.map(|_| std::borrow::Cow::Owned(Vec::new())),
                scalar_type: tensor.scalar_type,
                host_type: tensor.host_type,
                sizes: tensor.sizes,
            }),
        })
        .collect();
    Graph { values, nodes: graph.nodes, inputs: graph.inputs, outputs: graph.outputs }
}

type Places = HashMap<TensorId, Place>;

/// Places every tensor that is bound, entered or left: planned ones in shared memory, constants in memory of their own.
fn plan_memory(
    graph: &Graph<'_>,
    state: &State,
    steps: &[Step],
    align: u64,
) -> Result<(Places, u64, u64), Error> {
    let end = steps.len() + 1;
    let mut lives: HashMap<TensorId, (usize, usize)> = HashMap::new();
    let mut bytes: HashMap<TensorId, u64> = HashMap::new();
    let mut touch = |id: TensorId, at: usize| -> Result<(), Error> {
        let root = state.root(id);
        let life = lives.entry(root).or_insert((at, at));
        *life = (life.0.min(at), life.1.max(at));
        let size = bytes.entry(root).or_insert(0);
        *size = (*size).max(state.tensor(id)?.bytes()).max(state.tensor(root)?.bytes());
        // A shape that depends on numbers may be smaller now than the file says it can be.
        if let Some(Value::Tensor(tensor)) = graph.values.get(id) {
            let bound = tensor.sizes.iter().product();
            *size = (*size).max(padded_bytes(element_of(tensor.scalar_type)?, bound));
        }
        Ok(())
    };
    for id in &graph.inputs {
        if state.tensor(*id).is_ok() {
            touch(*id, 0)?;
        }
    }
    for (index, step) in steps.iter().enumerate() {
        for access in &step.accesses {
            touch(access.tensor, index + 1)?;
        }
    }
    for id in &graph.outputs {
        if state.tensor(*id).is_ok() {
            touch(*id, end)?;
        }
    }
    let mut roots: Vec<TensorId> = lives.keys().copied().collect();
    roots.sort_unstable();
    let mut places = HashMap::new();
    let (mut requests, mut planned, mut constant_bytes) = (Vec::new(), Vec::new(), 0u64);
    for root in roots {
        let ((first, last), size) = (lives[&root], bytes[&root]);
        if let Storage::Constant(data) = &state.tensor(root)?.storage {
            let size = size.max(data.len() as u64).next_multiple_of(16);
            places.insert(root, Place { constant: true, offset: constant_bytes, bytes: size });
            constant_bytes = (constant_bytes + size).next_multiple_of(align);
        } else {
            requests.push(Request { bytes: size, first, last });
            planned.push(root);
        }
    }
    let (offsets, total) = place(&requests, align);
    for ((root, request), offset) in planned.into_iter().zip(&requests).zip(offsets) {
        places.insert(root, Place { constant: false, offset, bytes: request.bytes });
    }
    Ok((places, total, constant_bytes))
}

/// Makes all pipelines, several at a time.
fn make_pipelines(context: &Context, steps: &[Step]) -> Result<(), Error> {
    let keys: Vec<&PipelineKey> =
        steps.iter().map(|step| &step.key).collect::<HashSet<_>>().into_iter().collect();
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).min(8);
    let chunk = keys.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = keys
            .chunks(chunk)
            .map(|keys| {
                scope.spawn(move || {
                    keys.iter().try_for_each(|key| context.pipelines.get(key).map(drop))
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Error::unsupported("making a pipeline panicked")))
        })
    })
}
