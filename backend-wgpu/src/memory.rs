//! The buffers of a compiled graph.

use crate::device::Context;
use crate::error::Error;
use std::sync::Arc;
use torchlet_core::Serial;
use torchlet_gpu::transfer::{from_staging, to_staging};
use torchlet_gpu::{Binding, BufferId, Holder, Plan, StateTensor};

/// The buffers of a compiled graph. Each recording has additional buffers.
pub(crate) struct Memory {
    tensors: Vec<wgpu::Buffer>,
    pub(crate) constants: Vec<wgpu::Buffer>,
    /// Weights that never change; other graphs may share them.
    pub(crate) weights: Vec<Arc<wgpu::Buffer>>,
    pub(crate) holder: Holder,
    /// The inputs and outputs, on the device.
    inputs: wgpu::Buffer,
    outputs: wgpu::Buffer,
    /// The bytes of the inputs, on the host.
    pub(crate) input_bytes: Vec<u8>,
    /// The copy of the outputs that the host reads.
    readback: wgpu::Buffer,
    /// The buffer for partial results of an argmax search.
    search: Option<wgpu::Buffer>,
    context: Arc<Context>,
}

/// The usages of memory that shaders and copies access.
pub(crate) const DEVICE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// The usages of memory that the host reads.
const READBACK: wgpu::BufferUsages =
    wgpu::BufferUsages::MAP_READ.union(wgpu::BufferUsages::COPY_DST);

/// Allocates a buffer.
pub(crate) fn buffer(
    context: &Context,
    bytes: u64,
    usage: wgpu::BufferUsages,
) -> Result<wgpu::Buffer, Error> {
    // Shaders read four words at a time.
    let size = bytes.max(16).checked_next_multiple_of(16).unwrap_or(bytes);
    let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    context.checked("allocating a buffer", || context.device.create_buffer(&descriptor))
}

/// Allocates buffers of these sizes.
pub(crate) fn buffers(context: &Context, sizes: &[u64]) -> Result<Vec<wgpu::Buffer>, Error> {
    sizes.iter().map(|bytes| buffer(context, *bytes, DEVICE)).collect()
}

impl Memory {
    /// Allocates the buffers of a plan, except those of the weights.
    pub(crate) fn new(context: &Arc<Context>, plan: &Plan<'_>) -> Result<Self, Error> {
        let [inputs, outputs] = plan.staging_bytes;
        let input_bytes = usize::try_from(inputs)
            .map_err(|_| Error::internal("the inputs exceed the address space"))?;
        Ok(Memory {
            tensors: buffers(context, &plan.memory.tensors)?,
            constants: buffers(context, &plan.memory.constants)?,
            weights: Vec::new(),
            holder: Holder::default(),
            inputs: buffer(context, inputs, DEVICE)?,
            outputs: buffer(context, outputs, DEVICE)?,
            input_bytes: vec![0; input_bytes.next_multiple_of(4)],
            readback: buffer(context, outputs, READBACK)?,
            search: None,
            context: context.clone(),
        })
    }

    /// Makes the buffer for partial results of a search at least this large.
    pub(crate) fn grow_search(&mut self, bytes: u64) -> Result<(), Error> {
        if self.search.as_ref().map_or(0, wgpu::Buffer::size) < bytes {
            // Freed first, since the allocation may fail.
            self.search = None;
            self.search = Some(buffer(&self.context, bytes, DEVICE)?);
        }
        Ok(())
    }

    /// Returns the buffer with a name of the plan.
    pub(crate) fn resolve(&self, id: BufferId) -> Result<wgpu::Buffer, Error> {
        let buffer = match id {
            BufferId::Tensors(index) => self.tensors.get(index),
            BufferId::Constants(index) => self.constants.get(index),
            BufferId::Weights(index) => self.weights.get(index).map(Arc::as_ref),
            BufferId::Inputs => Some(&self.inputs),
            BufferId::Outputs => Some(&self.outputs),
            BufferId::Search => self.search.as_ref(),
            // Parameters belong to recordings, and weights are not prefetched.
            _ => None,
        };
        buffer.cloned().ok_or_else(|| Error::internal(format!("{id:?} has no memory")))
    }

    /// Uploads the inputs before the next submission.
    pub(crate) fn write_inputs(&self) -> Result<(), Error> {
        if self.input_bytes.is_empty() {
            return Ok(());
        }
        self.context.checked("writing inputs", || {
            self.context.queue.write_buffer(&self.inputs, 0, &self.input_bytes);
        })
    }

    /// Appends the copy of the outputs for the host.
    pub(crate) fn copy_outputs(&self, encoder: &mut wgpu::CommandEncoder) {
        let bytes = self.outputs.size();
        encoder.copy_buffer_to_buffer(&self.outputs, 0, &self.readback, 0, bytes);
    }

    /// Reads the outputs of a finished run.
    pub(crate) fn read_outputs(
        &self,
        use_bytes: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.context.read(&self.readback, self.readback.size(), use_bytes)
    }

    /// Copies a state tensor to the host.
    pub(crate) fn read_state(
        &self,
        state: &StateTensor,
        from: Binding,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let from = from.resolve(|id| self.resolve(id))?;
        let size = from.size.next_multiple_of(4);
        let staging = buffer(&self.context, size, READBACK)?;
        let submission = self.context.checked("reading state", || {
            let mut encoder = self.context.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&from.buffer, from.offset, &staging, 0, size);
            self.context.submit(Some(encoder))
        })?;
        self.context.wait_for(&submission, &|| false)?;
        self.context
            .read(&staging, size, |bytes| Ok(from_staging(bytes, &state.info, target, &Serial)?))
    }

    /// Copies host data into a state tensor.
    pub(crate) fn write_state(
        &self,
        state: &StateTensor,
        to: Binding,
        source: &[u8],
    ) -> Result<(), Error> {
        let to = to.resolve(|id| self.resolve(id))?;
        let size = usize::try_from(to.size)
            .map_err(|_| Error::internal("a state tensor exceeds the address space"))?;
        let mut bytes = vec![0; size];
        to_staging(&state.info, source, &mut bytes, &Serial)?;
        self.context.checked("writing state", || {
            self.context.queue.write_buffer(&to.buffer, to.offset, &bytes);
            self.context.submit(None);
        })
    }
}
