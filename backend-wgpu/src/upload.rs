//! Uploads constants from the host to the device.

use crate::device::Context;
use crate::error::Error;
use std::slice::from_ref;
use torchlet_core::Parallel;
use torchlet_gpu::constants::{Constants, extent, targets};
use torchlet_gpu::{Task, run_tasks};

/// Writes are multiples of this many bytes.
const WORD: u64 = 4;

/// Writes constants into their buffers.
pub(crate) fn upload(
    constants: &Constants<'_>,
    context: &Context,
    buffers: &[wgpu::Buffer],
    parallel: &dyn Parallel,
) -> Result<(), Error> {
    // The end of the previous chunk, and the bytes of its last word.
    let mut last: Option<(usize, u64, Vec<u8>)> = None;
    for chunk in constants.chunks() {
        let number = chunk.first().map_or(0, |first| first.buffer);
        let buffer = buffers.get(number);
        let buffer = buffer.ok_or_else(|| Error::internal("a constant outside all buffers"))?;
        let (start, bytes) = extent(chunk);
        // A constant may be divided within a word.
        let begin = start / WORD * WORD;
        let end = (start + bytes).next_multiple_of(WORD);
        let mut memory = vec![0; (end - begin) as usize];
        if let Some((_, _, word)) = last.filter(|(own, at, _)| (*own, *at) == (number, start)) {
            memory.iter_mut().zip(word).for_each(|(byte, known)| *byte = known);
        }
        let own = memory.get_mut((start - begin) as usize..).unwrap_or_default();
        let tasks = targets(chunk, start, own)?.into_iter().map(|(constant, target)| {
            let write = || constant.write(target).map_err(Error::from);
            Box::new(write) as Task<'_, Error>
        });
        run_tasks(parallel, tasks.collect())?;
        context.checked("uploading constants", || {
            // One by one, because constants that are not uploaded may lie between them.
            for constant in chunk {
                let (first, size) = extent(from_ref(constant));
                let (from, to) = (first / WORD * WORD, (first + size).next_multiple_of(WORD));
                let range = (from - begin) as usize..(to - begin) as usize;
                context.queue.write_buffer(buffer, from, memory.get(range).unwrap_or_default());
            }
            // Frees the staging memory of the queue.
            context.submit(None);
        })?;
        let word = (start + bytes) / WORD * WORD;
        let tail = memory.get((word - begin) as usize..).unwrap_or_default().to_vec();
        last = Some((number, start + bytes, tail));
    }
    Ok(())
}
