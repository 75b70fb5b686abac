//! A recorded schedule: pipelines and bind groups, and the parameters that shaders read from
//! memory. WebGPU's command buffers run once, so that each run encodes the commands again.

use crate::device::Context;
use crate::error::Error;
use crate::memory::{DEVICE, Memory, buffer};
use crate::pipelines::{Key, Pipeline};
use std::collections::HashSet;
use std::sync::Arc;
use torchlet_core::Parallel;
use torchlet_gpu::{Binding, BufferId, Command, Replay, Schedule, Search, Step, Task, run_tasks};

/// A command with its objects.
enum Recording {
    Dispatch { pipeline: Arc<Pipeline>, bindings: wgpu::BindGroup, groups: [u32; 3] },
    Copy { from: Binding<wgpu::Buffer>, to: Binding<wgpu::Buffer> },
}

/// A recorded schedule of a compiled graph.
pub(crate) struct Recorded {
    commands: Vec<Recording>,
    /// The data for replaying the recording with changed integers.
    pub(crate) replay: Replay,
    /// The argmax search that replaces an output, if it was recorded.
    pub(crate) search: Option<Search>,
    parameters: Option<Parameters>,
}

/// The buffers for parameters that may change: the one that the host writes, and the one that
/// shaders read.
struct Parameters {
    staging: wgpu::Buffer,
    device: wgpu::Buffer,
}

impl Recorded {
    /// Creates a recording without commands.
    pub(crate) fn new(replay: Replay) -> Self {
        Recorded { commands: Vec::new(), replay, search: None, parameters: None }
    }

    /// Records a schedule of these steps.
    pub(crate) fn record(
        &mut self,
        schedule: &mut Schedule<'_>,
        steps: &[Step],
        memory: &Memory,
        context: &Context,
        parallel: &dyn Parallel,
    ) -> Result<(), Error> {
        self.commands.clear();
        self.search = schedule.search;
        self.parameters = match schedule.parameter_bytes {
            0 => None,
            bytes => Some(Parameters {
                staging: buffer(context, bytes, DEVICE)?,
                device: buffer(context, bytes, DEVICE)?,
            }),
        };
        if let Some(Parameters { staging, .. }) = &self.parameters {
            write(context, staging, self.replay.placed(steps))?;
        }
        let commands = std::mem::take(&mut schedule.commands);
        let keys: Vec<Option<Key>> = commands.iter().map(key_of).collect();
        create_pipelines(context, &keys, parallel)?;
        let resolve = |id| match (id, &self.parameters) {
            (BufferId::ParameterStaging, Some(parameters)) => Ok(parameters.staging.clone()),
            (BufferId::Parameters, Some(parameters)) => Ok(parameters.device.clone()),
            (id, _) => memory.resolve(id),
        };
        let commands = commands.into_iter().map(|command| command.resolve(resolve));
        let commands: Vec<Command<'_, wgpu::Buffer>> = commands.collect::<Result<_, Error>>()?;
        let pushed = Pushed::new(context, &commands)?;
        let mut recorded = Vec::with_capacity(commands.len());
        for ((command, key), push) in commands.into_iter().zip(keys).zip(&pushed.places) {
            recorded.push(match (command, key) {
                (Command::Dispatch { bindings, groups, .. }, Some(key)) => {
                    vec![dispatch(context, &key, &bindings, groups, (&pushed.buffer, *push))?]
                }
                (Command::Copy { from, to }, _) => copies(context, from, to)?,
                (Command::Dispatch { .. }, None) => Vec::new(),
            });
        }
        self.commands = recorded.into_iter().flatten().collect();
        Ok(())
    }

    /// Writes the new parameters of the calls that read integers.
    pub(crate) fn write_parameters(&self, steps: &[Step], context: &Context) -> Result<(), Error> {
        match &self.parameters {
            Some(Parameters { staging, .. }) => {
                write(context, staging, self.replay.parameters(steps))
            }
            None => Ok(()),
        }
    }

    /// Submits the commands, and a copy of the outputs for the host.
    pub(crate) fn submit(
        &self,
        memory: &Memory,
        context: &Context,
    ) -> Result<wgpu::SubmissionIndex, Error> {
        context.checked("running commands", || {
            let mut encoder = context.device.create_command_encoder(&Default::default());
            let mut rest = self.commands.iter().peekable();
            while let Some(command) = rest.peek() {
                if let Recording::Copy { from, to } = command {
                    encoder.copy_buffer_to_buffer(
                        &from.buffer,
                        from.offset,
                        &to.buffer,
                        to.offset,
                        from.size,
                    );
                    rest.next();
                    continue;
                }
                let mut pass = encoder.begin_compute_pass(&Default::default());
                while let Some(Recording::Dispatch { pipeline, bindings, groups }) =
                    rest.next_if(|it| matches!(it, Recording::Dispatch { .. }))
                {
                    pass.set_pipeline(&pipeline.raw);
                    pass.set_bind_group(0, bindings, &[]);
                    let [x, y, z] = *groups;
                    pass.dispatch_workgroups(x, y, z);
                }
            }
            memory.copy_outputs(&mut encoder);
            context.submit(Some(encoder))
        })
    }
}

/// The push constants of all dispatches, in one buffer.
struct Pushed {
    buffer: wgpu::Buffer,
    /// The offset and the size of each command's parameters.
    places: Vec<Option<[u64; 2]>>,
}

impl Pushed {
    fn new(context: &Context, commands: &[Command<'_, wgpu::Buffer>]) -> Result<Self, Error> {
        let align = context.planned().limits.align;
        let mut bytes: Vec<u8> = Vec::new();
        let mut places = Vec::with_capacity(commands.len());
        for command in commands {
            places.push(match command {
                Command::Dispatch { push, .. } if !push.is_empty() => {
                    let start = (bytes.len() as u64).next_multiple_of(align);
                    bytes.resize(start as usize, 0);
                    bytes.extend_from_slice(push);
                    bytes.resize(bytes.len().next_multiple_of(16), 0);
                    Some([start, bytes.len() as u64 - start])
                }
                _ => None,
            });
        }
        let made = buffer(context, bytes.len() as u64, DEVICE)?;
        context.checked("writing parameters", || context.queue.write_buffer(&made, 0, &bytes))?;
        Ok(Pushed { buffer: made, places })
    }
}

/// Returns the pipeline of a dispatch.
fn key_of(command: &Command<'_>) -> Option<Key> {
    let Command::Dispatch { key, bindings, .. } = command else { return None };
    let mut same = Vec::new();
    for (at, own) in (0u32..).zip(bindings) {
        let is_same = |it: &Binding| (it.buffer, it.offset) == (own.buffer, own.offset);
        if let Some(first) = (0..at).zip(bindings).find(|(_, it)| is_same(it)) {
            same.push([first.0, at]);
        }
    }
    Some(Key { planned: key.as_ref().clone(), same })
}

/// Creates the missing pipelines of commands, in parallel.
fn create_pipelines(
    context: &Context,
    keys: &[Option<Key>],
    parallel: &dyn Parallel,
) -> Result<(), Error> {
    let unique: HashSet<&Key> = keys.iter().flatten().collect();
    let mut keys: Vec<&Key> = unique.into_iter().collect();
    // The largest modules first, so that the end does not wait for a single long compilation.
    keys.sort_by_key(|key| std::cmp::Reverse(key.planned.module.spirv.len()));
    let create = |key| -> Task<'_, Error> {
        Box::new(move || context.pipelines.get(context, key).map(drop))
    };
    run_tasks(parallel, keys.into_iter().map(create).collect())
}

/// Creates the objects of a dispatch. `pushed` is the buffer with the push constants of all
/// dispatches, and the range of this one's.
fn dispatch(
    context: &Context,
    key: &Key,
    bindings: &[Binding<wgpu::Buffer>],
    groups: [u32; 3],
    (pushed, push): (&wgpu::Buffer, Option<[u64; 2]>),
) -> Result<Recording, Error> {
    let limits = context.planned().limits;
    let name = key.planned.module.name;
    let largest = bindings.iter().map(|binding| binding.size).max().unwrap_or(0);
    limits.check_tensor(name, largest)?;
    limits.check_workgroups(name, groups)?;
    let pipeline = context.pipelines.get(context, key)?;
    // The parameters come after the tensors. Only what the shader uses with its constants is bound.
    let tensors = (0..).zip(bindings).map(|(at, it)| {
        // A binding for several tensors is as large as the largest.
        let others = key.same.iter().filter(|[first, _]| *first == at);
        let others = others.filter_map(|[_, other]| bindings.get(*other as usize));
        let size = others.map(|other| other.size).fold(it.size, u64::max);
        (at, Binding { size, ..it.clone() })
    });
    let parameters = push.map(|[offset, size]| {
        let buffer = pushed.clone();
        (bindings.len() as u32, Binding { buffer, offset, size, written: false })
    });
    let mut bound: Vec<(u32, Binding<wgpu::Buffer>)> = tensors.chain(parameters).collect();
    bound.retain(|(at, _)| pipeline.bindings.contains(at));
    if context.refuses_overlaps {
        check_overlaps(name, &bound)?;
    }
    let entries: Vec<_> = bound
        .iter()
        .map(|(binding, it)| wgpu::BindGroupEntry {
            binding: *binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &it.buffer,
                offset: it.offset,
                size: std::num::NonZeroU64::new(it.size),
            }),
        })
        .collect();
    let bindings = context.checked("binding buffers", || {
        context.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(name),
            layout: &pipeline.layout,
            entries: &entries,
        })
    })?;
    Ok(Recording::Dispatch { pipeline, bindings, groups })
}

/// Refuses bindings that overlap, as browsers do.
fn check_overlaps(shader: &str, bound: &[(u32, Binding<wgpu::Buffer>)]) -> Result<(), Error> {
    for (index, (at, own)) in bound.iter().enumerate() {
        let mut others = bound.iter().skip(index + 1);
        if let Some((other, _)) = others.find(|(_, it)| own.overlaps(it)) {
            return Err(Error::Plan(torchlet_gpu::Error::Unsupported(format!(
                "shader {shader}: buffers {at} and {other} overlap, which WebGPU refuses"
            ))));
        }
    }
    Ok(())
}

/// Copies within one buffer go through another one.
fn copies(
    context: &Context,
    from: Binding<wgpu::Buffer>,
    to: Binding<wgpu::Buffer>,
) -> Result<Vec<Recording>, Error> {
    if from.buffer != to.buffer {
        return Ok(vec![Recording::Copy { from, to }]);
    }
    let between = Binding {
        buffer: buffer(context, from.size, DEVICE)?,
        offset: 0,
        size: from.size,
        written: true,
    };
    let back = Binding { written: false, ..between.clone() };
    Ok(vec![Recording::Copy { from, to: between }, Recording::Copy { from: back, to }])
}

fn write<'p>(
    context: &Context,
    staging: &wgpu::Buffer,
    parameters: impl Iterator<Item = (usize, &'p [u8])>,
) -> Result<(), Error> {
    context.checked("writing parameters", || {
        for (offset, bytes) in parameters {
            context.queue.write_buffer(staging, offset as u64, bytes);
        }
    })
}
