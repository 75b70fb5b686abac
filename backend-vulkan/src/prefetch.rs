//! Dispatches that prefetch weights.

use crate::compiled::Compiled;
use crate::device::{Binding, Buffer, Command, Context, MemoryKind};
use crate::error::Error;
use std::borrow::Cow;
use std::sync::Arc;
use torchlet_gpu::device::PipelineKey;
use torchlet_gpu::tensors::{TensorId, u32_of};
use torchlet_shaders::{Pipeline, Prefetch, PrefetchPush, PushConstants};

/// Invocations per workgroup, and the bytes that each reads.
const WORKGROUP: u32 = 128;
const BYTES_EACH: u64 = 8 * 16;

/// The prefetch pipeline.
pub(crate) fn pipeline() -> PipelineKey {
    let constants = Prefetch {}.constants();
    PipelineKey { module: Prefetch::MODULE, constants, workgroup: [WORKGROUP, 1, 1] }
}

/// The dummy output buffer of prefetch dispatches.
pub(crate) fn dummy_output(context: &Arc<Context>) -> Result<Buffer, Error> {
    Buffer::new(context, 16, MemoryKind::Device)
}

impl Compiled {
    /// Returns the dispatch that prefetches a tensor.
    pub(crate) fn prefetch(&self, id: TensorId) -> Result<Command<'static>, Error> {
        let missing = || Error::invalid("a prefetch has no dummy output");
        let dummy_output = self.dummy_output.as_ref().ok_or_else(missing)?.raw;
        let weights = self.binding(id, false)?;
        let size = self.state.tensor(id)?.bytes().min(weights.size);
        let weights = Binding { size, ..weights };
        let quads = u32_of(usize::try_from(size / 16).unwrap_or(usize::MAX))?;
        // Declared as not written, so that prefetches do not wait for each other.
        let dummy_output = Binding { buffer: dummy_output, offset: 0, size: 16, written: false };
        let groups = size.div_ceil(u64::from(WORKGROUP) * BYTES_EACH);
        let groups = u32_of(usize::try_from(groups).unwrap_or(usize::MAX))?;
        Ok(Command::Dispatch {
            key: Cow::Owned(pipeline()),
            bindings: vec![weights, dummy_output],
            push: Cow::Owned(PrefetchPush { quads }.bytes()),
            groups: [groups, 1, 1],
        })
    }
}
