//! Device timestamps between the commands of a recording.

use super::Context;
use crate::error::Error;
use ash::vk;
use std::sync::Arc;

/// A query pool for the timestamps of one recording.
pub(crate) struct Timestamps {
    pool: vk::QueryPool,
    count: u32,
    context: Arc<Context>,
}

impl Timestamps {
    pub(crate) fn new(context: &Arc<Context>, count: usize) -> Result<Self, Error> {
        let count =
            u32::try_from(count).map_err(|_| Error::unsupported("more than 2^32 timestamps"))?;
        let create = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(count.max(1));
        // SAFETY: the create info is complete and lives through the call.
        let pool = unsafe { context.raw.create_query_pool(&create, None) }
            .map_err(Error::of("vkCreateQueryPool"))?;
        Ok(Timestamps { pool, count: count.max(1), context: context.clone() })
    }

    /// Records a reset of all timestamps, and the timestamp before the first command.
    pub(crate) fn start(&self, commands: vk::CommandBuffer) {
        // SAFETY: the command buffer is being recorded for a compute queue, outside of any render
        // pass; the queries are the pool's.
        unsafe { self.context.raw.cmd_reset_query_pool(commands, self.pool, 0, self.count) };
        self.take(commands, 0);
    }

    /// Records timestamp `index`, taken when all commands before it are done.
    pub(crate) fn take(&self, commands: vk::CommandBuffer, index: usize) {
        let Ok(index) = u32::try_from(index) else { return };
        if index >= self.count {
            return;
        }
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: as above; timestamps are created only if the context has a clock, so the queue
        // supports them.
        unsafe { self.context.raw.cmd_write_timestamp(commands, stage, self.pool, index) };
    }

    /// Returns the timestamps of the recording's last run, which must be complete.
    pub(crate) fn read(&self) -> Result<Vec<u64>, Error> {
        let mut times = vec![0u64; self.count as usize];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the slice has room for each query of the pool, of 64 bits each.
        unsafe { self.context.raw.get_query_pool_results(self.pool, 0, &mut times, flags) }
            .map_err(Error::of("vkGetQueryPoolResults"))?;
        Ok(times)
    }
}

impl Drop for Timestamps {
    fn drop(&mut self) {
        if self.context.is_abandoned() {
            return;
        }
        // SAFETY: the recording that uses the pool waits for its submissions, so the pool is idle;
        // it is destroyed once.
        unsafe { self.context.raw.destroy_query_pool(self.pool, None) };
    }
}
