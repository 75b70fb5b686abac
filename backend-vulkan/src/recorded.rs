//! A recorded schedule: the command buffer, the parameters that its shaders read from memory, and
//! the data for replaying it when only integers have changed, such as the position of a token.

use crate::device::{Buffer, Command, Context, MemoryKind, Recording};
use crate::error::Error;
use crate::memory::Memory;
use ash::vk;
use std::sync::Arc;
use torchlet_gpu::{BufferId, Label, Replay, Schedule, Search, Step};

/// A recorded schedule of a compiled graph.
pub(crate) struct Recorded {
    pub(crate) recording: Recording,
    /// The data for replaying the recording with changed integers.
    pub(crate) replay: Replay,
    /// The argmax search that replaces an output, if it was recorded.
    pub(crate) search: Option<Search>,
    /// The label of each command; `None` if nothing is traced.
    pub(crate) labels: Option<Vec<Label>>,
    parameters: Option<Parameters>,
}

/// The buffers for parameters: the staging buffer that the host writes, and the device buffer that
/// shaders read.
struct Parameters {
    staging: Buffer,
    device: Buffer,
    bytes: u64,
}

impl Recorded {
    /// Creates a recording without commands.
    pub(crate) fn new(context: &Arc<Context>, replay: Replay, traced: bool) -> Result<Self, Error> {
        Ok(Recorded {
            recording: Recording::new(context)?,
            replay,
            search: None,
            labels: traced.then(Vec::new),
            parameters: None,
        })
    }

    /// Records a schedule of these steps.
    pub(crate) fn record(
        &mut self,
        schedule: &mut Schedule<'_>,
        steps: &[Step],
        memory: &Memory,
        context: &Arc<Context>,
    ) -> Result<(), Error> {
        self.search = schedule.search;
        self.grow_parameters(schedule.parameter_bytes, context)?;
        if let Some(Parameters { staging, .. }) = &mut self.parameters {
            write(staging.mapped(), self.replay.placed(steps))?;
        }
        let resolve = |id| self.resolve(id, memory);
        let commands = std::mem::take(&mut schedule.commands)
            .into_iter()
            .map(|command| command.resolve(resolve));
        let commands: Vec<Command<'_>> = commands.collect::<Result<_, Error>>()?;
        self.recording.record(&commands, self.labels.is_some())
    }

    /// Writes the new parameters of the calls that read integers.
    pub(crate) fn write_parameters(&mut self, steps: &[Step]) -> Result<(), Error> {
        match &mut self.parameters {
            Some(Parameters { staging, .. }) => {
                write(staging.mapped(), self.replay.parameters(steps))
            }
            None => Ok(()),
        }
    }

    fn resolve(&self, id: BufferId, memory: &Memory) -> Result<vk::Buffer, Error> {
        match (id, &self.parameters) {
            (BufferId::ParameterStaging, Some(parameters)) => Ok(parameters.staging.raw),
            (BufferId::Parameters, Some(parameters)) => Ok(parameters.device.raw),
            (id, _) => memory.raw(id),
        }
    }

    fn grow_parameters(&mut self, bytes: u64, context: &Arc<Context>) -> Result<(), Error> {
        if self.parameters.as_ref().map_or(0, |parameters| parameters.bytes) >= bytes {
            return Ok(());
        }
        // Cleared first, since an allocation below may fail.
        self.recording.unbind();
        self.parameters = None;
        let staging = Buffer::new(context, bytes, MemoryKind::Upload)?;
        let device = Buffer::new(context, bytes, MemoryKind::Device)?;
        self.parameters = Some(Parameters { staging, device, bytes });
        Ok(())
    }
}

fn write<'p>(
    mapped: &mut [u8],
    parameters: impl Iterator<Item = (usize, &'p [u8])>,
) -> Result<(), Error> {
    for (offset, bytes) in parameters {
        let place = mapped.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len()));
        let place = place.ok_or_else(|| {
            Error::invalid("internal error: shader parameters lie outside their memory")
        })?;
        place.copy_from_slice(bytes);
    }
    Ok(())
}
