//! Uploads constants from the host to the device.

use crate::device::{Binding, Buffer, Command, Context, MemoryKind, Recording, hand_over_uploads};
use crate::error::Error;
use std::sync::Arc;
use torchlet_core::Parallel;
use torchlet_gpu::constants::{Constant, Constants, extent, runs, targets};
use torchlet_gpu::run_tasks;

/// Staging memory for one chunk of constants, and the recording that copies the chunk to the
/// device.
struct UploadChannel {
    // Dropped first, because dropping it waits until the device has read the staging memory.
    recording: Recording,
    staging: Buffer,
}

impl UploadChannel {
    fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, Error> {
        let staging = Buffer::new(context, bytes, MemoryKind::Upload)?;
        Ok(UploadChannel { recording: Recording::of_uploads(context)?, staging })
    }
}

/// A task that may run in parallel with others.
pub(crate) type Task<'t> = torchlet_gpu::Task<'t, Error>;

/// Writes constants into their buffers, in parallel with other tasks.
pub(crate) fn upload(
    constants: &Constants<'_>,
    context: &Arc<Context>,
    buffers: &mut [Buffer],
    parallel: &dyn Parallel,
    others: Vec<Task<'_>>,
) -> Result<(), Error> {
    let mut tasks = others;
    let missing = || Error::invalid("internal error: a constant lies outside all buffers");
    if context.host_writes && buffers.iter_mut().all(|buffer| !buffer.mapped().is_empty()) {
        let mut buffers = buffers.iter_mut().enumerate();
        for constants in constants.by_buffer() {
            let number = constants.first().map_or(0, |first| first.buffer);
            let found = buffers.find(|(own, _)| *own == number);
            let (_, buffer) = found.ok_or_else(missing)?;
            tasks.extend(writes(constants, 0, buffer.mapped())?);
        }
        return run_tasks(parallel, tasks);
    }
    let chunks = constants.chunks();
    let largest = |first: usize, step: usize| {
        let turns = chunks.iter().skip(first).step_by(step);
        turns.map(|chunk| extent(chunk).1).max().unwrap_or(0)
    };
    if largest(0, 1) == 0 {
        return run_tasks(parallel, tasks);
    }
    // If memory suffices, the upload uses double buffering: the host writes one chunk while the
    // device copies the other. Each channel is dropped before the buffers that it copies between.
    let mut channels = Vec::new();
    if chunks.len() > 1 {
        let both = [0, 1].map(|first| UploadChannel::new(context, largest(first, 2).max(4)));
        channels.extend(both.into_iter().flatten());
    }
    if channels.len() != 2 {
        channels.clear();
        channels.push(UploadChannel::new(context, largest(0, 1))?);
    }
    let count = channels.len();
    for (turn, chunk) in chunks.into_iter().enumerate() {
        let (start, _) = extent(chunk);
        let number = chunk.first().map_or(0, |first| first.buffer);
        let target = buffers.get(number).ok_or_else(missing)?.raw;
        let Some(UploadChannel { recording, staging }) = channels.get_mut(turn % count) else {
            break;
        };
        recording.wait()?;
        let mut tasks = std::mem::take(&mut tasks);
        tasks.extend(writes(chunk, start, staging.mapped())?);
        run_tasks(parallel, tasks)?;
        let copies: Vec<Command<'_>> = runs(chunk)
            .map(|(first, size)| Command::Copy {
                from: Binding { buffer: staging.raw, offset: first - start, size, written: false },
                to: Binding { buffer: target, offset: first, size, written: true },
            })
            .collect();
        recording.record(&copies, false)?;
        recording.submit()?;
    }
    channels.iter_mut().try_for_each(|channel| channel.recording.wait())?;
    hand_over_uploads(context)
}

/// Returns one task per constant of a chunk. The task writes the constant to its offset relative to
/// `start`, the offset of the chunk.
fn writes<'t>(
    chunk: &'t [Constant<'t>],
    start: u64,
    memory: &'t mut [u8],
) -> Result<Vec<Task<'t>>, Error> {
    let write = |(constant, target): (&'t Constant<'t>, &'t mut [u8])| -> Task<'t> {
        Box::new(move || Ok(constant.write(target)?))
    };
    Ok(targets(chunk, start, memory)?.into_iter().map(write).collect())
}
