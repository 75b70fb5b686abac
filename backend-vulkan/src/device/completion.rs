//! Waits for submissions, with a timeline semaphore or, where those are not supported, with a
//! fence.

use super::Context;
use super::queues::Lane;
use crate::error::Error;
use ash::vk;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum time that a thread polls for the end of a run before it sleeps: waking up costs 0.2
/// ms.
const POLLING: Duration = Duration::from_millis(2);

/// The interval at which a sleeping thread checks for cancellation.
const CANCEL_INTERVAL: Duration = Duration::from_millis(5);

/// Tracks the completion of a recording's submission; at most one is pending.
pub(crate) struct Completion {
    kind: Kind,
    /// The duration of the last run, if any.
    last_run: Cell<Option<Duration>>,
    /// The submission time of the pending run.
    pending: Cell<Option<Instant>>,
    lane: Lane,
    context: Arc<Context>,
}

enum Kind {
    Fence(vk::Fence),
    /// A semaphore, and its value after the last submission.
    Timeline(vk::Semaphore, u64),
}

impl Completion {
    /// Creates the completion of a recording that is submitted to a queue of the context.
    pub(crate) fn new(context: &Arc<Context>, lane: Lane) -> Result<Self, Error> {
        let kind = if context.timeline.is_some() {
            let mut kind = vk::SemaphoreTypeCreateInfo::default()
                .semaphore_type(vk::SemaphoreType::TIMELINE)
                .initial_value(0);
            let create = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
            // SAFETY: the device was created with timeline semaphores enabled.
            let made = unsafe { context.raw.create_semaphore(&create, None) };
            Kind::Timeline(made.map_err(Error::of("vkCreateSemaphore"))?, 0)
        } else {
            // SAFETY: creating a fence has no preconditions.
            let made = unsafe { context.raw.create_fence(&Default::default(), None) };
            Kind::Fence(made.map_err(Error::of("vkCreateFence"))?)
        };
        Ok(Completion {
            kind,
            last_run: Cell::new(None),
            pending: Cell::new(None),
            lane,
            context: context.clone(),
        })
    }

    /// Submits a command buffer that is recorded and not pending. Waits for the previous submission
    /// first.
    pub(crate) fn submit(&mut self, commands: vk::CommandBuffer) -> Result<(), Error> {
        let commands = [commands];
        self.submit_info(vk::SubmitInfo::default().command_buffers(&commands))
    }

    /// Submits only a wait for a semaphore that another submission signals. After it, all writes
    /// before the signal, by any queue, are visible to this queue.
    pub(super) fn submit_behind(&mut self, semaphore: vk::Semaphore) -> Result<(), Error> {
        let (semaphores, stages) = ([semaphore], [vk::PipelineStageFlags::ALL_COMMANDS]);
        let submit = vk::SubmitInfo::default();
        self.submit_info(submit.wait_semaphores(&semaphores).wait_dst_stage_mask(&stages))
    }

    fn submit_info(&mut self, submit: vk::SubmitInfo<'_>) -> Result<(), Error> {
        self.wait()?;
        let start = Instant::now();
        match &mut self.kind {
            Kind::Fence(fence) => self.context.submit(&self.lane, submit, *fence)?,
            Kind::Timeline(semaphore, last) => {
                let (semaphores, values) = ([*semaphore], [*last + 1]);
                let mut timeline =
                    vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
                let submit = submit.signal_semaphores(&semaphores).push_next(&mut timeline);
                self.context.submit(&self.lane, submit, vk::Fence::null())?;
                *last += 1;
            }
        }
        self.pending.set(Some(start));
        Ok(())
    }

    /// Waits for the pending submission, if any.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        self.wait_unless(&|| false)
    }

    /// Waits like [`wait`](Self::wait), but returns early when the run is cancelled. The submission
    /// then stays pending, and must be waited for before the host or another submission accesses
    /// its memory.
    pub(crate) fn wait_unless(&self, is_cancelled: &dyn Fn() -> bool) -> Result<(), Error> {
        let Some(start) = self.pending.get() else { return Ok(()) };
        let timeout = self.context.timeout;
        let expected = polling(self.last_run.get());
        let polls = !expected.is_zero() && self.context.polls();
        let polling = if polls { expected } else { Duration::ZERO };
        let result = match &self.kind {
            Kind::Fence(fence) => {
                let fences = [*fence];
                // SAFETY: the fence belongs to this device. The wait below reports errors.
                poll(polling, || unsafe { self.context.raw.get_fence_status(*fence) } != Ok(false));
                // SAFETY: the fence belongs to this device.
                let waited = wait_in_turns(timeout, is_cancelled, |time| unsafe {
                    self.context.raw.wait_for_fences(&fences, true, time)
                });
                let Some(waited) = waited else { return Err(Error::Cancelled) };
                self.context.waited("vkWaitForFences", waited).and_then(|()| {
                    // SAFETY: the fence is signalled, so no submission uses it.
                    unsafe { self.context.raw.reset_fences(&fences) }
                        .map_err(Error::of("vkResetFences"))
                })
            }
            Kind::Timeline(semaphore, last) => {
                let (semaphores, values) = ([*semaphore], [*last]);
                let wait = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
                let Some(functions) = &self.context.timeline else { return Ok(()) };
                poll(polling, || {
                    // SAFETY: the semaphore belongs to this device. The wait below reports errors.
                    let value = unsafe { functions.get_semaphore_counter_value(*semaphore) };
                    value.map_or(true, |value| value >= *last)
                });
                // SAFETY: as above.
                let waited = wait_in_turns(timeout, is_cancelled, |time| unsafe {
                    functions.wait_semaphores(&wait, time)
                });
                let Some(waited) = waited else { return Err(Error::Cancelled) };
                self.context.waited("vkWaitSemaphores", waited)
            }
        };
        self.last_run.set(Some(start.elapsed()));
        self.pending.set(None);
        result
    }
}

/// Waits in intervals until the submission completes or the timeout expires. Returns `None` if the
/// run is cancelled first. `wait` waits for at most the given number of nanoseconds.
fn wait_in_turns(
    most: Duration,
    is_cancelled: &dyn Fn() -> bool,
    wait: impl Fn(u64) -> Result<(), vk::Result>,
) -> Option<Result<(), vk::Result>> {
    let start = Instant::now();
    loop {
        let left = most.saturating_sub(start.elapsed());
        let waited = wait(nanoseconds(left.min(CANCEL_INTERVAL)));
        if waited != Err(vk::Result::TIMEOUT) || left.is_zero() {
            return Some(waited);
        }
        if is_cancelled() {
            return None;
        }
    }
}

/// Returns how long to poll for the end of a run: up to twice the duration of the last run, because
/// runs usually last equally long. After a long run, the thread sleeps at once.
fn polling(last_run: Option<Duration>) -> Duration {
    let expected = last_run.unwrap_or(POLLING);
    if expected > POLLING { Duration::ZERO } else { POLLING.min(expected * 2) }
}

/// Polls for the end of a short run, because waking up a sleeping thread would cost more time.
fn poll(time: Duration, is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while start.elapsed() < time && !is_done() {
        std::hint::spin_loop();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.context.is_abandoned() {
            return;
        }
        // SAFETY: the owner waited for its submissions; the object is destroyed once.
        unsafe {
            match self.kind {
                Kind::Fence(fence) => self.context.raw.destroy_fence(fence, None),
                Kind::Timeline(semaphore, _) => {
                    self.context.raw.destroy_semaphore(semaphore, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_runs_are_polled() {
        let micros = Duration::from_micros;
        assert_eq!(polling(None), POLLING);
        assert_eq!(polling(Some(micros(300))), micros(600));
        assert_eq!(polling(Some(micros(1900))), POLLING);
        assert_eq!(polling(Some(micros(2100))), Duration::ZERO);
    }

    #[test]
    fn cancelled_runs_are_not_waited_for() {
        let (most, asked) = (Duration::from_secs(60), Cell::new(0));
        let cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let busy = |_| Err(vk::Result::TIMEOUT);
        assert_eq!(wait_in_turns(most, &cancelled, busy), None);
        assert_eq!(asked.get(), 3);
        assert_eq!(wait_in_turns(most, &|| true, |_| Ok(())), Some(Ok(())));
        assert_eq!(wait_in_turns(Duration::ZERO, &|| true, busy), Some(busy(0)));
        let lost = |_| Err(vk::Result::ERROR_DEVICE_LOST);
        assert_eq!(wait_in_turns(most, &|| true, lost), Some(lost(0)));
    }
}
