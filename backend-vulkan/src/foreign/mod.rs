//! Foreign shaders: regions of `torchlet.shader` calls, which run SPIR-V modules of the program's
//! file as they are.
//!
//! A shader is code. The backend runs it only if the caller set the runtime option
//! [`OPTION`], within the memory limit of [`MEMORY_OPTION`]. Tensors are buffers of their elements;
//! images are copied from and to such buffers around each shader. A buffer that a shader may write,
//! although it is only an input of the segment, is a copy.

mod layout;
mod spirv;
mod texel;

use crate::device::{
    Bound, Buffer, Context, ForeignCommand, ForeignPipeline, ForeignRecording, Image, ImageUses,
    MemoryKind, SamplerConfig, Slot,
};
use crate::error::Error;
pub(crate) use spirv::Limits;
use spirv::{Bindings, Kind};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use texel::Texel;
use torchlet_core::{Delegate, DelegateCall, DelegateError, TensorInfo};
use torchlet_gpu::DevicePool;
use torchlet_graph::graph::{Graph, Tensor, Value, ValueId};
use torchlet_graph::operators::{Operator, ShaderArgs};

/// Runtime option of the backend that allows foreign shaders.
pub(crate) const OPTION: &str = "foreign_shaders";
/// Runtime option of the backend: limit on the bytes of device memory of a region of shaders.
pub(crate) const MEMORY_OPTION: &str = "foreign_memory_limit";

/// Integers of a binding.
const RECORD: usize = 10;
/// Limits on sets and bindings. Drivers allocate arrays of the largest binding's size.
const MAX_SETS: u32 = 4;
const MAX_BINDINGS: u32 = 64;
/// Bytes of push constants that every device supports.
const MAX_PUSH: u32 = 128;

/// Numbers of `VkDescriptorType`.
const COMBINED_IMAGE_SAMPLER: i64 = 1;
const SAMPLED_IMAGE: i64 = 2;
const STORAGE_IMAGE: i64 = 3;
const STORAGE_BUFFER: i64 = 7;

/// Whether a graph has foreign shaders.
pub(crate) fn has_shaders(graph: &Graph<'_>) -> bool {
    graph.nodes.iter().any(|node| node.operator == Operator::SHADER)
}

/// A tensor in device memory, as a buffer and, if a shader binds it so, as an image.
struct Stored {
    bytes: usize,
    sizes: Vec<usize>,
    buffer: Buffer,
    image: Option<Image>,
}

impl Stored {
    fn new(
        context: &Arc<Context>,
        tensor: &Tensor<'_>,
        budget: &mut Budget,
    ) -> Result<Self, Error> {
        let numel = tensor.sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size));
        let bytes = numel.and_then(|numel| numel.checked_mul(tensor.scalar_type.size()));
        let bytes = bytes.filter(|bytes| *bytes > 0 && !tensor.dynamic).ok_or_else(|| {
            Error::unsupported("a shader with a tensor that is empty or has no fixed shape")
        })?;
        budget.spend("a tensor", bytes as u64)?;
        context.limits.check_tensor("of the file", bytes as u64)?;
        let buffer = Buffer::new(context, bytes as u64, MemoryKind::Device)?;
        Ok(Stored { bytes, sizes: tensor.sizes.clone(), buffer, image: None })
    }

    /// Fills the buffer, whose size is a multiple of 16. Accesses beyond the tensor's end may reach
    /// the rest of the buffer.
    fn zero(&self) -> ForeignCommand<'_> {
        let bytes = (self.bytes as u64).next_multiple_of(16);
        ForeignCommand::Zero { buffer: &self.buffer, bytes }
    }

    /// Adds the image of the tensor: `[height, width, channels]`, perhaps with a batch of one.
    fn add_image(
        &mut self,
        context: &Arc<Context>,
        format: i64,
        uses: ImageUses,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        if self.image.is_some() {
            return Ok(());
        }
        let (&[1, height, width, _] | &[height, width, _]) = &self.sizes[..] else {
            return Err(Error::Unsupported(format!(
                "an image of shape {:?}: expected [height, width, channels]",
                self.sizes
            )));
        };
        let texel = Texel::of(format)
            .ok_or_else(|| Error::unsupported(format!("an image of Vulkan format {format}")))?;
        let needed = height.checked_mul(width).and_then(|it| it.checked_mul(texel.bytes));
        if needed != Some(self.bytes) {
            return Err(Error::Invalid(format!(
                "an image of shape {:?} whose channels are not those of Vulkan format {format}",
                self.sizes
            )));
        }
        let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let (extent, format_number) =
            ([size(width), size(height)], u32::try_from(format).unwrap_or(0));
        let bytes = self.bytes as u64;
        budget.spend("an image", bytes)?;
        let image = Image::new(context, format_number, extent, uses, bytes)?;
        self.image = Some(image);
        Ok(())
    }
}

/// Device memory of a region of shaders, within the caller's limit.
struct Budget {
    used: u64,
    limit: u64,
}

impl Budget {
    /// Counts memory that is about to be allocated, before the driver sees its size.
    fn spend(&mut self, what: &str, bytes: u64) -> Result<(), Error> {
        let used = self.used.saturating_add(bytes.max(16));
        if used > self.limit {
            return Err(Error::OutOfMemory(format!(
                "{what} of {bytes} bytes beside {} bytes exceeds `ModuleBuilder::memory_limit`, {} \
                 bytes",
                self.used, self.limit
            )));
        }
        self.used = used;
        Ok(())
    }
}

/// Staging memory of an input or output of the region.
struct Staged {
    value: ValueId,
    memory: Buffer,
}

/// A delegate that runs foreign shaders.
pub(crate) struct ForeignDelegate {
    work: Box<Work>,
    device: Arc<Context>,
    pool: DevicePool<Context>,
}

/// Dropped in the order of the fields: the recording first, which waits for its submissions.
struct Work {
    recording: ForeignRecording,
    _pipelines: Vec<ForeignPipeline>,
    inputs: Vec<Staged>,
    outputs: Vec<Staged>,
    stored: HashMap<ValueId, Stored>,
    /// Copies of inputs for shaders that may write them.
    _copies: HashMap<ValueId, Buffer>,
}

impl ForeignDelegate {
    pub(crate) fn new(
        device: &Arc<Context>,
        pool: DevicePool<Context>,
        graph: &Graph<'_>,
        memory_limit: u64,
    ) -> Result<Self, Error> {
        let work = Box::new(Work::new(device, graph, memory_limit)?);
        Ok(ForeignDelegate { work, device: device.clone(), pool })
    }
}

impl Delegate for ForeignDelegate {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        self.pool.checked(&self.device, self.work.run(call))
    }
}

/// A shader call whose arguments are parsed.
struct Call {
    name: String,
    words: Vec<u32>,
    entry: String,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    slots: Vec<SlotOf>,
    groups: [u32; 3],
    push: u32,
    /// Inputs that the shader may write as buffers.
    copied: HashSet<ValueId>,
}

/// A descriptor of a call.
struct SlotOf {
    set: u32,
    binding: u32,
    kind: Kind,
    format: i64,
    tensor: ValueId,
    sampler: Option<SamplerConfig>,
}

fn bad(what: &str) -> Error {
    Error::Invalid(format!("a call of torchlet.shader: {what}"))
}

impl Call {
    fn of(graph: &Graph<'_>, args: &[ValueId]) -> Result<Self, Error> {
        let call = ShaderArgs::of(args).map_err(torchlet_graph::Error::from)?;
        let text = |id: ValueId| match graph.values.get(id) {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(bad("expected a string")),
        };
        let ints = |id: ValueId| match graph.values.get(id) {
            Some(Value::IntList(items)) => Ok(items.as_slice()),
            _ => Err(bad("expected a list of integers")),
        };
        let list = |id: ValueId| match graph.values.get(id) {
            Some(Value::List(items)) => Ok(items.clone()),
            _ => Err(bad("expected a list of tensors")),
        };
        let code = match graph.values.get(call.code) {
            Some(Value::Tensor(Tensor { data: Some(data), .. })) => data,
            _ => return Err(bad("expected a constant module")),
        };
        let (words, rest) = code.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(bad("a module whose size is not a multiple of four bytes"));
        }
        let words = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (inputs, outputs) = (list(call.inputs)?, list(call.out)?);
        let tensors: Vec<ValueId> = inputs.iter().chain(&outputs).copied().collect();
        let number = |number: i64| u32::try_from(number).map_err(|_| bad("a number out of range"));
        let (records, rest) = ints(call.bindings)?.as_chunks::<RECORD>();
        if !rest.is_empty() {
            return Err(bad("a truncated binding"));
        }
        let (mut slots, mut seen) = (Vec::new(), HashSet::new());
        for &[set, binding, kind, format, tensor, min, mag, u, v, border] in records {
            let (set, binding) = (number(set)?, number(binding)?);
            if set >= MAX_SETS || binding >= MAX_BINDINGS {
                return Err(Error::unsupported(format!(
                    "a descriptor at set {set}, binding {binding}; the limits are {MAX_SETS} sets \
                     of {MAX_BINDINGS} bindings"
                )));
            }
            if !seen.insert((set, binding)) {
                return Err(Error::Invalid(format!("set {set}, binding {binding} is bound twice")));
            }
            let kind = match kind {
                STORAGE_BUFFER => Kind::Buffer,
                STORAGE_IMAGE => Kind::StorageImage,
                SAMPLED_IMAGE => Kind::SampledImage,
                COMBINED_IMAGE_SAMPLER => Kind::Combined,
                other => return Err(Error::unsupported(format!("descriptor type {other}"))),
            };
            let sampler = match kind {
                Kind::Combined => {
                    let numbers = [min, mag, u, v, border].map(|it| u32::try_from(it).ok());
                    let numbers = numbers.map(|number| number.unwrap_or(u32::MAX));
                    Some(SamplerConfig::new(numbers)?)
                }
                _ => None,
            };
            let tensor = usize::try_from(tensor).ok().and_then(|at| tensors.get(at)).copied();
            let tensor = tensor.ok_or_else(|| bad("a binding of a tensor that does not exist"))?;
            slots.push(SlotOf { set, binding, kind, format, tensor, sampler });
        }
        let &[x, y, z] = ints(call.groups)? else {
            return Err(bad("expected three numbers of workgroups"));
        };
        let groups = [number(x)?, number(y)?, number(z)?];
        let (ranges, rest) = ints(call.push)?.as_chunks::<2>();
        let mut push = 0u32;
        for [offset, size] in ranges {
            let (offset, size) = (number(*offset)?, number(*size)?);
            let end = offset.checked_add(size).filter(|end| *end <= MAX_PUSH);
            let end = end.filter(|_| offset.is_multiple_of(4) && size.is_multiple_of(4));
            push = push.max(end.ok_or_else(|| {
                Error::unsupported(format!(
                    "push constants of {size} bytes at {offset}; the limit is {MAX_PUSH} bytes"
                ))
            })?);
        }
        if !rest.is_empty() {
            return Err(bad("a truncated range of push constants"));
        }
        let (name, entry) = (text(call.name)?, text(call.entry)?);
        let copied = HashSet::new();
        Ok(Call { name, words, entry, inputs, outputs, slots, groups, push, copied })
    }

    /// Checks the workgroups, the number of descriptors and the module. Notes which inputs the
    /// shader may write.
    fn check(&mut self, context: &Arc<Context>) -> Result<(), Error> {
        if self.groups.contains(&0) {
            return Err(Error::Invalid(format!("{:?} workgroups", self.groups)));
        }
        context.limits.check_workgroups("of the file", self.groups)?;
        let buffers = self.slots.iter().filter(|slot| slot.kind == Kind::Buffer).count();
        if buffers > context.limits.buffers as usize || self.slots.len() - buffers > 4 {
            return Err(Error::unsupported(format!(
                "a shader with {buffers} buffers and {} images; the limits are {} and 4",
                self.slots.len() - buffers,
                context.limits.buffers
            )));
        }
        let bound = |slot: &SlotOf| ((slot.set, slot.binding), (slot.kind, Texel::of(slot.format)));
        let bindings: Bindings = self.slots.iter().map(bound).collect();
        let (features, limits) = (&context.features, context.foreign_limits());
        let written =
            spirv::check(&self.words, &self.entry, &bindings, self.push, features, &limits)?;
        let is_written = |slot: &&SlotOf| {
            slot.kind == Kind::Buffer
                && written.contains(&(slot.set, slot.binding))
                && self.inputs.contains(&slot.tensor)
        };
        self.copied = self.slots.iter().filter(is_written).map(|slot| slot.tensor).collect();
        Ok(())
    }

    /// Allocates the copies of inputs that the shader may write. Shaders share them, since each
    /// begins with a new copy.
    fn add_copies(
        &self,
        context: &Arc<Context>,
        stored: &HashMap<ValueId, Stored>,
        copies: &mut HashMap<ValueId, Buffer>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        for id in &self.copied {
            let it = stored.get(id).ok_or_else(|| bad("a tensor without memory"))?;
            if !copies.contains_key(id) {
                budget.spend("a copy of a tensor that the shader may write", it.bytes as u64)?;
                copies.insert(*id, Buffer::new(context, it.bytes as u64, MemoryKind::Device)?);
            }
        }
        Ok(())
    }

    /// Descriptors that are images.
    fn images(&self) -> impl Iterator<Item = &SlotOf> {
        self.slots.iter().filter(|slot| slot.kind != Kind::Buffer)
    }

    /// Adds the formats and uses of the tensors that are images here.
    fn collect_images(&self, uses: &mut HashMap<ValueId, (i64, ImageUses)>) -> Result<(), Error> {
        let buffers: HashSet<ValueId> = self
            .slots
            .iter()
            .filter(|slot| slot.kind == Kind::Buffer)
            .map(|slot| slot.tensor)
            .collect();
        for slot in self.images() {
            if buffers.contains(&slot.tensor) {
                return Err(Error::unsupported("a tensor as a buffer and an image of a shader"));
            }
            let (format, of) =
                uses.entry(slot.tensor).or_insert((slot.format, ImageUses::default()));
            if *format != slot.format {
                return Err(Error::unsupported("a tensor as images of several formats"));
            }
            match slot.kind {
                Kind::StorageImage => of.is_storage = true,
                _ => of.is_sampled = true,
            }
            of.is_filtered |= slot.sampler.is_some_and(SamplerConfig::filters_linearly);
        }
        Ok(())
    }
}

impl Work {
    fn new(context: &Arc<Context>, graph: &Graph<'_>, limit: u64) -> Result<Self, Error> {
        let mut budget = Budget { used: 0, limit };
        let mut stored: HashMap<ValueId, Stored> = HashMap::new();
        let mut images: HashMap<ValueId, (i64, ImageUses)> = HashMap::new();
        let (mut calls, mut constants) = (Vec::new(), Vec::new());
        let mut made: HashSet<ValueId> = graph.inputs.iter().copied().collect();
        for node in &graph.nodes {
            if node.operator != Operator::SHADER {
                return Err(Error::Unsupported(format!(
                    "operator {} in a region of shaders",
                    node.operator.name()
                )));
            }
            let call = Call::of(graph, &node.args)?;
            let named = |error: Error| in_shader(&call.name, error);
            for id in call.inputs.iter().chain(&call.outputs) {
                let Some(Value::Tensor(tensor)) = graph.values.get(*id) else {
                    return Err(named(bad("an argument that is not a tensor")));
                };
                if !stored.contains_key(id) {
                    stored.insert(*id, Stored::new(context, tensor, &mut budget).map_err(named)?);
                    if let Some(data) = &tensor.data {
                        constants.push((*id, data));
                        made.insert(*id);
                    }
                }
            }
            if !call.inputs.iter().all(|id| made.contains(id)) {
                return Err(named(bad("an input that is not computed before")));
            }
            if !call.outputs.iter().all(|id| made.insert(*id)) {
                return Err(named(bad("an output that is an input or computed twice")));
            }
            call.collect_images(&mut images).map_err(named)?;
            calls.push(call);
        }
        // An image has one usage, that of all shaders together.
        for call in &calls {
            for slot in call.images() {
                let found = (stored.get_mut(&slot.tensor), images.get(&slot.tensor));
                if let (Some(stored), Some((format, uses))) = found {
                    let made = stored.add_image(context, *format, *uses, &mut budget);
                    made.map_err(|error| in_shader(&call.name, error))?;
                }
            }
        }
        let mut copies = HashMap::new();
        for call in &mut calls {
            call.check(context)
                .and_then(|()| call.add_copies(context, &stored, &mut copies, &mut budget))
                .map_err(|error| in_shader(&call.name, error))?;
        }
        let mut pipelines = Vec::new();
        for call in &calls {
            let made = pipeline(context, call, &stored, &copies);
            pipelines.push(made.map_err(|error| in_shader(&call.name, error))?);
        }
        let mut staged = |ids: &[ValueId], kind| {
            let staged = ids.iter().map(|id| {
                let bytes = stored.get(id).map(|it| it.bytes as u64);
                let bytes = bytes.ok_or_else(|| bad("an input or output that no shader uses"))?;
                budget.spend("staging memory", bytes)?;
                Ok(Staged { value: *id, memory: Buffer::new(context, bytes, kind)? })
            });
            staged.collect::<Result<Vec<Staged>, Error>>()
        };
        let inputs = staged(&graph.inputs, MemoryKind::Upload)?;
        let outputs = staged(&graph.outputs, MemoryKind::Download)?;
        load_constants(context, &constants, &stored, &mut budget)?;
        let mut commands = Vec::new();
        let copied = |staged: &'_ Staged| stored.get(&staged.value).map(|it| (it, it.bytes as u64));
        for staged in &inputs {
            if let Some((stored, bytes)) = copied(staged) {
                commands.push(stored.zero());
                commands.push(ForeignCommand::Copy {
                    from: &staged.memory,
                    to: &stored.buffer,
                    bytes,
                });
            }
        }
        for (call, pipeline) in calls.iter().zip(&pipelines) {
            let outputs = || call.outputs.iter().filter_map(|id| stored.get(id));
            for it in outputs() {
                commands.push(it.zero());
            }
            // The buffer has the tensor's contents between shaders. Its image has them only while
            // a shader runs that binds the tensor as an image.
            let as_image: HashSet<ValueId> = call.images().map(|slot| slot.tensor).collect();
            let images = |ids| {
                let of = |id: &ValueId| {
                    let it = as_image.get(id).and_then(|id| stored.get(id))?;
                    it.image.as_ref().map(|image| (image, &it.buffer))
                };
                Vec::into_iter(ids).filter_map(of)
            };
            for id in &call.copied {
                if let (Some(from), Some(to)) = (stored.get(id), copies.get(id)) {
                    let bytes = (from.bytes as u64).next_multiple_of(16);
                    commands.push(ForeignCommand::Copy { from: &from.buffer, to, bytes });
                }
            }
            for (to, from) in images(call.inputs.iter().chain(&call.outputs).collect()) {
                commands.push(ForeignCommand::ToImage { from, to });
            }
            commands.push(ForeignCommand::Dispatch { pipeline, groups: call.groups });
            for (from, to) in images(call.outputs.iter().collect()) {
                commands.push(ForeignCommand::FromImage { from, to });
            }
        }
        for staged in &outputs {
            if let Some((stored, bytes)) = copied(staged) {
                commands.push(ForeignCommand::Copy {
                    from: &stored.buffer,
                    to: &staged.memory,
                    bytes,
                });
            }
        }
        let images: Vec<&Image> = stored.values().filter_map(|it| it.image.as_ref()).collect();
        let recording = ForeignRecording::new(context, &images, &commands)?;
        Ok(Work { recording, _pipelines: pipelines, inputs, outputs, stored, _copies: copies })
    }

    fn run(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), Error> {
        self.recording.wait()?;
        let count = self.inputs.len();
        if call.len() != count + self.outputs.len() {
            return Err(Error::Invalid(format!(
                "a region of shaders: expected {} arguments, found {}",
                count + self.outputs.len(),
                call.len()
            )));
        }
        let invoke = call.split(count)?;
        for (arg, staged) in self.inputs.iter_mut().enumerate() {
            let tensor = invoke.tensor(arg)?;
            let stored = self.stored.get(&staged.value);
            check(tensor.info(), stored)?;
            copy(tensor.bytes(), staged.memory.mapped())?;
        }
        let parallel = invoke.parallel();
        if parallel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        self.recording.run(&|| parallel.is_cancelled())?;
        for (arg, staged) in (count..).zip(&mut self.outputs) {
            let out = invoke.out(arg)?;
            check(out.info(), self.stored.get(&staged.value))?;
            let target = out.into_bytes();
            let source = staged.memory.mapped().get(..target.len());
            let source = source.ok_or_else(|| bad("an output that exceeds its memory"))?;
            target.copy_from_slice(source);
        }
        Ok(())
    }
}

fn in_shader(name: &str, error: Error) -> Error {
    match error {
        Error::Invalid(what) => Error::Invalid(format!("{name}: {what}")),
        Error::Unsupported(what) => Error::Unsupported(format!("{name}: {what}")),
        Error::OutOfMemory(what) => Error::OutOfMemory(format!("{name}: {what}")),
        other => other,
    }
}

/// Checks that an argument has the memory layout of a tensor.
fn check(info: &TensorInfo, stored: Option<&Stored>) -> Result<(), Error> {
    let bytes = stored.map(|it| it.bytes);
    match info.is_contiguous() && Some(info.nbytes()) == bytes {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a region of shaders: expected a contiguous tensor of {bytes:?} bytes, found {info:?}"
        ))),
    }
}

fn copy(source: &[u8], target: &mut [u8]) -> Result<(), Error> {
    let target = target.get_mut(..source.len());
    target.ok_or_else(|| bad("an input that exceeds its memory"))?.copy_from_slice(source);
    Ok(())
}

/// Writes constants to their buffers.
fn load_constants(
    context: &Arc<Context>,
    constants: &[(ValueId, impl AsRef<[u8]>)],
    stored: &HashMap<ValueId, Stored>,
    budget: &mut Budget,
) -> Result<(), Error> {
    let used = budget.used;
    for (id, data) in constants {
        let Some(to) = stored.get(id).filter(|it| it.bytes == data.as_ref().len()) else {
            return Err(bad("a constant of another size"));
        };
        // The staging memory of one constant is freed before the next one's is allocated.
        budget.spend("staging memory of a constant", to.bytes as u64)?;
        let mut staging = Buffer::new(context, to.bytes as u64, MemoryKind::Upload)?;
        copy(data.as_ref(), staging.mapped())?;
        let bytes = to.bytes as u64;
        let command = ForeignCommand::Copy { from: &staging, to: &to.buffer, bytes };
        ForeignRecording::new(context, &[], &[to.zero(), command])?.run(&|| false)?;
        budget.used = used;
    }
    Ok(())
}

/// Creates the pipeline of a call whose module is checked.
fn pipeline(
    context: &Arc<Context>,
    call: &Call,
    stored: &HashMap<ValueId, Stored>,
    copies: &HashMap<ValueId, Buffer>,
) -> Result<ForeignPipeline, Error> {
    let mut slots: Vec<Slot<'_>> = Vec::new();
    for slot in &call.slots {
        let it = stored.get(&slot.tensor).ok_or_else(|| bad("a tensor without memory"))?;
        let copy = copies.get(&slot.tensor).filter(|_| call.copied.contains(&slot.tensor));
        let bound = match (slot.kind, it.image.as_ref(), slot.sampler) {
            (Kind::Buffer, ..) => Bound::Buffer(copy.unwrap_or(&it.buffer), it.bytes as u64),
            (Kind::StorageImage, Some(image), _) => Bound::StorageImage(image),
            (Kind::SampledImage, Some(image), _) => Bound::SampledImage(image),
            (Kind::Combined, Some(image), Some(sampler)) => Bound::Combined(image, sampler),
            _ => return Err(bad("an image without memory or sampler")),
        };
        slots.push((slot.set, slot.binding, bound));
    }
    ForeignPipeline::new(context, &call.words, &call.entry, &slots, call.push)
}
