//! The buffers of a compiled graph.

use crate::device::{Binding, Buffer, Command, Context, MemoryKind, Recording};
use crate::error::Error;
use ash::vk;
use std::sync::Arc;
use torchlet_core::Serial;
use torchlet_gpu::transfer::{from_staging, to_staging};
use torchlet_gpu::{
    Binding as PlannedBinding, BufferId, Holder, PREFETCH_OUTPUT_BYTES, Plan, StateTensor,
};

/// The buffers of a compiled graph. Each recording has additional buffers.
pub(crate) struct Memory {
    tensors: Vec<Buffer>,
    pub(crate) constants: Vec<Buffer>,
    /// Weights that never change; other graphs may share them.
    pub(crate) weights: Vec<Arc<Buffer>>,
    pub(crate) holder: Holder,
    /// Staging buffers: the host writes inputs to `inputs`, and reads outputs from `outputs`.
    pub(crate) inputs: Buffer,
    pub(crate) outputs: Buffer,
    /// The buffer for partial results of an argmax search, and its size in bytes.
    search: Option<(Buffer, u64)>,
    /// The output of weight prefetches; nothing reads it.
    prefetch_output: Option<Buffer>,
    context: Arc<Context>,
}

impl Memory {
    /// Allocates the buffers of a plan, except those of the weights.
    pub(crate) fn new(context: &Arc<Context>, plan: &Plan<'_>) -> Result<Self, Error> {
        let [inputs, outputs] = plan.staging_bytes;
        Ok(Memory {
            tensors: buffers(context, &plan.memory.tensors, MemoryKind::Device)?,
            constants: buffers(context, &plan.memory.constants, MemoryKind::Constants)?,
            weights: Vec::new(),
            holder: Holder::default(),
            inputs: Buffer::new(context, inputs, MemoryKind::Upload)?,
            outputs: Buffer::new(context, outputs, MemoryKind::Download)?,
            search: None,
            prefetch_output: match plan.prefetches {
                true => Some(Buffer::new(context, PREFETCH_OUTPUT_BYTES, MemoryKind::Device)?),
                false => None,
            },
            context: context.clone(),
        })
    }

    /// Whether the staging buffers of inputs and outputs are device memory.
    pub(crate) fn staging_on_device(&self) -> [bool; 2] {
        [&self.inputs, &self.outputs].map(Buffer::is_on_device)
    }

    /// Whether the current buffer can hold this many bytes of partial results of a search.
    pub(crate) fn has_search(&self, bytes: u64) -> bool {
        bytes == 0 || self.search.as_ref().is_some_and(|(_, room)| *room >= bytes)
    }

    /// Replaces the buffer for partial results of a search with a larger one. No recording may
    /// refer to the old buffer.
    pub(crate) fn grow_search(&mut self, bytes: u64) -> Result<(), Error> {
        // Freed first, since the allocation may fail.
        self.search = None;
        self.search = Some((Buffer::new(&self.context, bytes, MemoryKind::Device)?, bytes));
        Ok(())
    }

    /// Returns the Vulkan buffer for a buffer name of the plan.
    pub(crate) fn raw(&self, id: BufferId) -> Result<vk::Buffer, Error> {
        let buffer = match id {
            BufferId::Tensors(index) => self.tensors.get(index),
            BufferId::Constants(index) => self.constants.get(index),
            BufferId::Weights(index) => self.weights.get(index).map(Arc::as_ref),
            BufferId::Inputs => Some(&self.inputs),
            BufferId::Outputs => Some(&self.outputs),
            BufferId::Search => self.search.as_ref().map(|(buffer, _)| buffer),
            BufferId::PrefetchOutput => self.prefetch_output.as_ref(),
            _ => None,
        };
        let buffer = buffer
            .ok_or_else(|| Error::Invalid(format!("internal error: {id:?} has no memory")))?;
        Ok(buffer.raw)
    }

    /// Copies a state tensor to the host.
    pub(crate) fn read(
        &self,
        state: &StateTensor,
        from: PlannedBinding,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let from = from.resolve(|id| self.raw(id))?;
        let mut staging = Buffer::new(&self.context, from.size, MemoryKind::Download)?;
        let to = Binding { buffer: staging.raw, offset: 0, size: from.size, written: true };
        self.copy(from, to)?;
        Ok(from_staging(staging.mapped(), &state.info, target, &Serial)?)
    }

    /// Copies host data into a state tensor.
    pub(crate) fn write(
        &self,
        state: &StateTensor,
        to: PlannedBinding,
        source: &[u8],
    ) -> Result<(), Error> {
        let to = to.resolve(|id| self.raw(id))?;
        let mut staging = Buffer::new(&self.context, to.size, MemoryKind::Upload)?;
        staging.mapped().fill(0);
        to_staging(&state.info, source, staging.mapped(), &Serial)?;
        let from = Binding { buffer: staging.raw, offset: 0, size: to.size, written: false };
        self.copy(from, to)
    }

    fn copy(&self, from: Binding, to: Binding) -> Result<(), Error> {
        let mut recording = Recording::new(&self.context)?;
        recording.record(&[Command::Copy { from, to }], false)?;
        recording.run()
    }
}

/// Allocates buffers of these sizes.
pub(crate) fn buffers(
    context: &Arc<Context>,
    sizes: &[u64],
    kind: MemoryKind,
) -> Result<Vec<Buffer>, Error> {
    sizes.iter().map(|bytes| Buffer::new(context, *bytes, kind)).collect()
}
