//! A recorded command buffer that can run repeatedly: dispatches and copies, with barriers between
//! them.

use super::Context;
use super::completion::Completion;
use super::pipeline::Pipeline;
use super::queues::{Lane, Scope};
use super::timestamps::Timestamps;
use crate::error::Error;
use ash::vk;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use torchlet_gpu::device::PipelineKey;

/// A range of a buffer that a command reads or writes.
pub(crate) type Binding = torchlet_gpu::Binding<vk::Buffer>;

/// A command of a recording.
pub(crate) type Command<'s> = torchlet_gpu::Command<'s, vk::Buffer>;

/// Returns the pipelines and bindings of the dispatches among commands.
fn dispatches<'c>(
    commands: &'c [Command<'_>],
) -> impl Iterator<Item = (&'c PipelineKey, &'c [Binding])> {
    commands.iter().filter_map(|command| match command {
        Command::Dispatch { key, bindings, .. } => Some((key.as_ref(), bindings.as_slice())),
        Command::Copy { .. } => None,
    })
}

/// Returns the size in bytes of the largest range that a dispatch binds.
fn largest(bindings: &[Binding]) -> u64 {
    bindings.iter().map(|binding| binding.size).max().unwrap_or(0)
}

/// A command buffer and the objects it uses.
pub(crate) struct Recording {
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    completion: Completion,
    descriptors: vk::DescriptorPool,
    /// Pipelines that the command buffer refers to, and the descriptor set of each dispatch.
    pipelines: Vec<Arc<Pipeline>>,
    sets: Vec<vk::DescriptorSet>,
    /// The concatenated bindings of all descriptor sets. If new commands have the same pipelines
    /// and bindings, the sets are used again.
    bound: Vec<Binding>,
    /// The timestamps around each command; `None` if the commands were recorded without timestamps.
    timestamps: Option<Timestamps>,
    /// The queue to which the recording is submitted.
    lane: Lane,
    context: Arc<Context>,
}

impl Recording {
    /// Creates a recording for the compute queue.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        Self::on(context, context.compute.clone())
    }

    /// Creates a recording for copies to constants. It uses the upload queue, if the device has
    /// one.
    pub(crate) fn of_uploads(context: &Arc<Context>) -> Result<Self, Error> {
        Self::on(context, context.uploads.as_ref().unwrap_or(&context.compute).clone())
    }

    fn on(context: &Arc<Context>, lane: Lane) -> Result<Self, Error> {
        let device = &context.raw;
        let mut recording = Recording {
            pool: vk::CommandPool::null(),
            commands: vk::CommandBuffer::null(),
            completion: Completion::new(context, lane.clone())?,
            descriptors: vk::DescriptorPool::null(),
            pipelines: Vec::new(),
            sets: Vec::new(),
            bound: Vec::new(),
            timestamps: None,
            lane,
            context: context.clone(),
        };
        let family = recording.lane.family;
        let create = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the queue family is the device's.
        recording.pool = unsafe { device.create_command_pool(&create, None) }
            .map_err(Error::of("vkCreateCommandPool"))?;
        let allocate = vk::CommandBufferAllocateInfo::default()
            .command_pool(recording.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool was just created.
        let buffers = unsafe { device.allocate_command_buffers(&allocate) }
            .map_err(Error::of("vkAllocateCommandBuffers"))?;
        recording.commands = buffers.first().copied().unwrap_or_default();
        Ok(recording)
    }

    /// Records commands, replacing the previous ones. If `timed` is set and the device has a clock,
    /// also records a timestamp after each command.
    pub(crate) fn record(&mut self, commands: &[Command<'_>], timed: bool) -> Result<(), Error> {
        self.wait()?;
        let device = self.context.raw.clone();
        for command in commands {
            if let Command::Dispatch { key, groups, bindings, .. } = command {
                if self.lane.copies_only {
                    return Err(Error::invalid(
                        "internal error: a dispatch was recorded for a transfer queue",
                    ));
                }
                let name = key.module.name;
                self.context.limits.check_tensor(name, largest(bindings))?;
                self.context.limits.check_workgroups(name, *groups)?;
            }
        }
        if !self.binds(commands) {
            self.bind(commands)?;
        }
        // SAFETY: nothing recorded from this pool is pending: every submission is waited for.
        unsafe { device.reset_command_pool(self.pool, Default::default()) }
            .map_err(Error::of("vkResetCommandPool"))?;
        // SAFETY: the command buffer is in its initial state after the reset.
        unsafe { device.begin_command_buffer(self.commands, &Default::default()) }
            .map_err(Error::of("vkBeginCommandBuffer"))?;
        self.timestamps = match self.context.clock {
            Some(_) if timed && !self.lane.copies_only => {
                Some(Timestamps::new(&self.context, commands.len() + 1)?)
            }
            _ => None,
        };
        if let Some(timestamps) = &self.timestamps {
            timestamps.start(self.commands);
        }
        // Makes writes of earlier submissions, such as model state, visible. Waiting for them made
        // them visible only to the host.
        self.barrier();
        let mut pending: Vec<Binding> = Vec::new();
        let mut dispatches = self.pipelines.iter().zip(&self.sets);
        for (index, command) in commands.iter().enumerate() {
            let copied;
            let bindings = match command {
                Command::Dispatch { bindings, .. } => bindings.as_slice(),
                Command::Copy { from, to } => {
                    copied = [*from, *to];
                    &copied
                }
            };
            let hazard = bindings.iter().any(|binding| {
                pending.iter().any(|earlier| {
                    (binding.written || earlier.written) && binding.overlaps(earlier)
                })
            });
            if hazard {
                self.barrier();
                pending.clear();
            }
            pending.extend(bindings);
            match command {
                Command::Dispatch { push, groups, .. } => {
                    let Some((pipeline, set)) = dispatches.next() else { break };
                    let sets = [*set];
                    // SAFETY: the command buffer is being recorded; pipeline, layout and set were
                    // made for one another, push constants have the size of the layout's range, and
                    // group counts are within the limits.
                    unsafe {
                        let point = vk::PipelineBindPoint::COMPUTE;
                        device.cmd_bind_pipeline(self.commands, point, pipeline.raw);
                        device.cmd_bind_descriptor_sets(
                            self.commands,
                            point,
                            pipeline.layout(),
                            0,
                            &sets,
                            &[],
                        );
                        if !push.is_empty() {
                            let stage = vk::ShaderStageFlags::COMPUTE;
                            device.cmd_push_constants(
                                self.commands,
                                pipeline.layout(),
                                stage,
                                0,
                                push,
                            );
                        }
                        device.cmd_dispatch(self.commands, groups[0], groups[1], groups[2]);
                    }
                }
                Command::Copy { from, to } => {
                    let region = [vk::BufferCopy {
                        src_offset: from.offset,
                        dst_offset: to.offset,
                        size: from.size,
                    }];
                    // SAFETY: both ranges lie in their buffers (their owners made the bindings) and
                    // do not overlap.
                    unsafe {
                        device.cmd_copy_buffer(self.commands, from.buffer, to.buffer, &region)
                    };
                }
            }
            if let Some(timestamps) = &self.timestamps {
                timestamps.take(self.commands, index + 1);
            }
        }
        // Makes device writes visible to the host.
        let Scope { stages, writes, .. } = Scope::of(&self.lane);
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(writes)
            .dst_access_mask(vk::AccessFlags::HOST_READ)];
        // SAFETY: the command buffer is being recorded.
        unsafe {
            device.cmd_pipeline_barrier(
                self.commands,
                stages,
                vk::PipelineStageFlags::HOST,
                Default::default(),
                &barrier,
                &[],
                &[],
            );
            device.end_command_buffer(self.commands)
        }
        .map_err(Error::of("vkEndCommandBuffer"))
    }

    fn barrier(&self) {
        Scope::of(&self.lane).record_barrier(&self.context.raw, self.commands);
    }

    /// Whether the current descriptor sets match the bindings and pipelines of these commands.
    fn binds(&self, commands: &[Command<'_>]) -> bool {
        let mut bound = self.bound.as_slice();
        let mut pipelines = self.pipelines.iter();
        let same = |(key, bindings): (&PipelineKey, &[Binding])| {
            let Some((own, rest)) = bound.split_at_checked(bindings.len()) else { return false };
            bound = rest;
            own == bindings && pipelines.next().is_some_and(|pipeline| pipeline.is_of(key))
        };
        dispatches(commands).all(same)
            && bound.is_empty()
            && pipelines.next().is_none()
            && self.sets.len() == self.pipelines.len()
    }

    /// Invalidates the descriptor sets. This is necessary before a buffer that they refer to is
    /// destroyed, because a new buffer may get the same handle.
    pub(crate) fn unbind(&mut self) {
        self.bound.clear();
        self.sets.clear();
    }

    /// Gets the pipelines of commands, and descriptor sets for them.
    fn bind(&mut self, commands: &[Command<'_>]) -> Result<(), Error> {
        self.unbind();
        let mut earlier = std::mem::take(&mut self.pipelines).into_iter();
        let mut pipelines = Vec::with_capacity(commands.len());
        for (key, _) in dispatches(commands) {
            // Usually, the pipeline is the same as before, which saves the lookup.
            let same = earlier.next().filter(|pipeline| pipeline.is_of(key));
            pipelines.push(same.map_or_else(|| self.context.pipelines.get(key), Ok)?);
        }
        self.sets = self.allocate_sets(&pipelines, commands)?;
        self.pipelines = pipelines;
        self.bound.extend(dispatches(commands).flat_map(|(_, bindings)| bindings));
        Ok(())
    }

    /// Allocates a descriptor set for each dispatch, replacing the old sets.
    fn allocate_sets(
        &mut self,
        pipelines: &[Arc<Pipeline>],
        commands: &[Command<'_>],
    ) -> Result<Vec<vk::DescriptorSet>, Error> {
        let device = &self.context.raw;
        // SAFETY: no submission that uses the old sets is pending; null is ignored.
        unsafe { device.destroy_descriptor_pool(self.descriptors, None) };
        self.descriptors = vk::DescriptorPool::null();
        if pipelines.is_empty() {
            return Ok(Vec::new());
        }
        let infos: Vec<vk::DescriptorBufferInfo> = dispatches(commands)
            .flat_map(|(_, bindings)| bindings)
            .map(|binding| vk::DescriptorBufferInfo {
                buffer: binding.buffer,
                offset: binding.offset,
                range: binding.size,
            })
            .collect();
        let sizes = [vk::DescriptorPoolSize {
            ty: vk::DescriptorType::STORAGE_BUFFER,
            descriptor_count: infos.len().max(1) as u32,
        }];
        let create = vk::DescriptorPoolCreateInfo::default()
            .max_sets(pipelines.len() as u32)
            .pool_sizes(&sizes);
        // SAFETY: the create info is complete and lives through the call.
        self.descriptors = unsafe { device.create_descriptor_pool(&create, None) }
            .map_err(Error::of("vkCreateDescriptorPool"))?;
        let layouts: Vec<_> = pipelines.iter().map(|pipeline| pipeline.set_layout()).collect();
        let allocate = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.descriptors)
            .set_layouts(&layouts);
        // SAFETY: the pool has room for these sets.
        let sets = unsafe { device.allocate_descriptor_sets(&allocate) }
            .map_err(Error::of("vkAllocateDescriptorSets"))?;
        let mut rest = infos.as_slice();
        let mut writes = Vec::with_capacity(sets.len());
        for (set, (_, bindings)) in sets.iter().zip(dispatches(commands)) {
            let Some((own, others)) = rest.split_at_checked(bindings.len()) else { break };
            rest = others;
            let write = vk::WriteDescriptorSet::default()
                .dst_set(*set)
                .dst_binding(0)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(own);
            writes.push(write);
        }
        // SAFETY: consecutive bindings of one type may be written at once; ranges lie in their
        // buffers.
        unsafe { device.update_descriptor_sets(&writes, &[]) };
        Ok(sets)
    }

    /// Submits the recording and waits for it.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        self.submit()?;
        self.wait()
    }

    /// Submits the recording. The memory that it accesses must stay alive until the submission was
    /// waited for or the recording is dropped.
    pub(crate) fn submit(&mut self) -> Result<(), Error> {
        self.completion.submit(self.commands)
    }

    /// Waits for the pending submission.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        self.completion.wait()
    }

    /// Waits like [`wait`](Self::wait), but returns early when the run is cancelled. The submission
    /// then stays pending, and must be [waited for](Self::wait) before its memory is accessed.
    pub(crate) fn wait_unless(&self, is_cancelled: &dyn Fn() -> bool) -> Result<(), Error> {
        self.completion.wait_unless(is_cancelled)
    }

    /// Returns the timestamps of the last run: one before the first command, and one after each
    /// command. Returns `None` if the commands were recorded without timestamps.
    pub(crate) fn times(&self) -> Result<Option<Vec<u64>>, Error> {
        self.timestamps.as_ref().map(Timestamps::read).transpose()
    }
}

/// Makes writes of the upload queue visible to the compute queue, and waits until they are. Does
/// nothing without an upload queue.
///
/// So far, only the host waited for the uploads, which makes their writes available; a semaphore
/// between the queues makes them visible.
pub(crate) fn hand_over_uploads(context: &Arc<Context>) -> Result<(), Error> {
    let Some(uploads) = &context.uploads else { return Ok(()) };
    let mut completion = Completion::new(context, context.compute.clone())?;
    // SAFETY: creating a semaphore has no preconditions.
    let semaphore = unsafe { context.raw.create_semaphore(&Default::default(), None) }
        .map_err(Error::of("vkCreateSemaphore"))?;
    let semaphores = [semaphore];
    let signal = vk::SubmitInfo::default().signal_semaphores(&semaphores);
    let signalled = context.submit(uploads, signal, vk::Fence::null());
    let waited = signalled.and_then(|()| {
        let waited = completion.submit_behind(semaphore).and_then(|()| completion.wait());
        if waited.is_err() && !context.is_abandoned() {
            // The signal may still be pending: wait for it before the semaphore is destroyed. An
            // error here repeats the one already returned. SAFETY: the lock gives exclusive access
            // to the queue.
            let _ = unsafe { context.raw.queue_wait_idle(*uploads.queue()) };
        }
        waited
    });
    if !context.is_abandoned() {
        // SAFETY: no submission uses it: both have completed, or none was made.
        unsafe { context.raw.destroy_semaphore(semaphore, None) };
    }
    context.transfers.fetch_add(1, Ordering::Relaxed);
    waited
}

impl Drop for Recording {
    fn drop(&mut self) {
        // If a submission never ends, waiting marks the context as abandoned. On a lost device,
        // nothing is pending.
        let _ = self.wait();
        if self.context.is_abandoned() {
            return;
        }
        let device = &self.context.raw;
        // SAFETY: every submission was waited for, above if its run was cancelled; each object is
        // destroyed once, and null handles are ignored.
        unsafe {
            device.destroy_descriptor_pool(self.descriptors, None);
            device.destroy_command_pool(self.pool, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::{Buffer, MemoryKind};
    use super::super::context::tests::context;
    use super::super::options::Options;
    use super::*;
    use std::borrow::Cow;
    use torchlet_shaders::{Element, Gather, GatherPush, MAX_DIMS, Pipeline as _, PushConstants};

    #[test]
    fn descriptors_are_reused_only_for_the_same_memory() {
        let Some(context) = context(&Options::default()) else { return };
        let sources = [1u8, 2].map(|number| {
            let mut source = Buffer::new(&context, 16, MemoryKind::Upload).unwrap();
            source.mapped().fill(number);
            source
        });
        let mut target = Buffer::new(&context, 16, MemoryKind::Download).unwrap();
        let binding =
            |buffer: &Buffer, written| Binding { buffer: buffer.raw, offset: 0, size: 16, written };
        let written = binding(&target, true);
        let key = |workgroup| {
            let (input, output) = (Element::I32, Element::I32);
            let pipeline = Gather { input, output, contiguous: true, by_four: false };
            let constants = pipeline.constants();
            PipelineKey { module: Gather::MODULE, constants, workgroup: [workgroup, 1, 1] }
        };
        let commands = |source: usize, numel, workgroup| {
            let (sizes, strides) = ([1; MAX_DIMS], [0; MAX_DIMS]);
            let push = GatherPush { numel, base: 0, rank: 0, sizes, strides };
            [Command::Dispatch {
                key: Cow::Owned(key(workgroup)),
                bindings: vec![binding(&sources[source], false), written],
                push: Cow::Owned(push.bytes()),
                groups: [1, 1, 1],
            }]
        };
        let mut recording = Recording::new(&context).unwrap();
        // Bindings with another length or another source, and another pipeline.
        for (source, numel, workgroup, stay) in [
            (0, 1, 64, false),
            (0, 4, 64, true),
            (1, 4, 64, false),
            (1, 3, 64, true),
            (1, 4, 32, false),
            (0, 4, 32, false),
        ] {
            let commands = commands(source, numel, workgroup);
            assert_eq!(recording.binds(&commands), stay, "{source}, {numel}, {workgroup}");
            target.mapped().fill(0);
            recording.record(&commands, false).unwrap();
            assert!(recording.binds(&commands));
            recording.run().unwrap();
            let written = target.mapped().get(..4 * numel as usize).unwrap();
            assert!(written.iter().all(|byte| usize::from(*byte) == source + 1), "{written:?}");
        }
        // The commands of the last recording again, and then no commands.
        assert!(recording.binds(&commands(0, 4, 32)));
        recording.unbind();
        assert!(!recording.binds(&commands(0, 4, 32)));
    }
}
