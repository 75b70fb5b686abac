//! Sharing work and memory among tasks: the only place that hands out parts of a `&mut` slice to several threads.
//!
//! [`for_each_job`] deals jobs out one by one, so that threads that finish early take more. Each job index, and each
//! workspace part, is claimed from an atomic counter: that no two threads ever get the same one does not depend on
//! the [`Parallel`] implementation calling each task exactly once.

use crate::parallel::Parallel;
use core::marker::PhantomData;

/// Runs everything on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn threads(&self) -> usize {
        1
    }
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        for i in 0..count {
            task(i);
        }
    }
}

/// A mutable slice of which disjoint parts are handed to several threads.
pub(crate) struct Parts<'a, T> {
    data: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `part`, whose caller promises that no two live parts overlap; so sharing it among threads
// is like sending them disjoint `&mut [T]`, for which `T: Send` suffices.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Parts { data: data.as_mut_ptr(), len: data.len(), lifetime: PhantomData }
    }

    /// The part `start..start + len`, shortened where it would pass the end.
    ///
    /// # Safety
    /// While the result lives, no other part that overlaps it exists.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        let start = start.min(self.len);
        let len = len.min(self.len - start);
        // SAFETY: the range lies in the slice borrowed for 'a, and the caller promises that it is not aliased.
        unsafe { core::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

/// Calls `job(index, workspace)` once for each index in `0..jobs`, with a workspace of its own of `slot_len` elements.
///
/// As many threads take part as there are threads, jobs, and workspaces in `workspace`. With less than one slot of
/// workspace everything runs on this thread and gets what there is.
pub fn for_each_job<W: Send>(
    parallel: &dyn Parallel,
    jobs: usize,
    workspace: &mut [W],
    slot_len: usize,
    job: &(dyn Fn(usize, &mut [W]) + Sync),
) {
    #[cfg(target_has_atomic = "ptr")]
    {
        use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        let fitting = workspace.len().checked_div(slot_len).unwrap_or(usize::MAX);
        let slots = parallel.threads().min(jobs).min(fitting);
        if slots > 1 {
            let (next_job, next_slot) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let parts = Parts::new(&mut *workspace);
            parallel.run(slots, &|_| {
                let slot = next_slot.fetch_add(1, Relaxed);
                if slot >= slots {
                    return;
                }
                // SAFETY: the counter gives each slot number out once, and slots are `slot_len` apart; `slots * slot_len`
                // is at most the length of the workspace, so the product does not overflow.
                let own = unsafe { parts.part(slot * slot_len, slot_len) };
                loop {
                    let index = next_job.fetch_add(1, Relaxed);
                    if index >= jobs {
                        break;
                    }
                    job(index, own);
                }
            });
            return;
        }
    }
    // Also where the processor has no atomic addition: there is one thread then.
    let _ = (parallel, slot_len);
    for index in 0..jobs {
        job(index, workspace);
    }
}

/// Calls `task(index, chunk)` once for each chunk of `chunk_len` elements; the last may be shorter.
pub fn for_each_chunk_mut<T: Send>(
    parallel: &dyn Parallel,
    data: &mut [T],
    chunk_len: usize,
    task: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let chunk_len = chunk_len.max(1);
    let chunks = data.len().div_ceil(chunk_len);
    let parts = Parts::new(data);
    for_each_job::<()>(parallel, chunks, &mut [], 0, &|index, _| {
        // SAFETY: `for_each_job` calls with each index once, and chunks of different indices do not overlap; the start
        // is less than the length, so the product does not overflow.
        task(index, unsafe { parts.part(index * chunk_len, chunk_len) });
    });
}

/// A chunk length for `len` elements of which one thread should get at least `grain`: about four chunks for each
/// thread, so that dealing them out evens the load.
pub(crate) fn chunk_len(parallel: &dyn Parallel, len: usize, grain: usize) -> usize {
    let threads = parallel.threads();
    if threads <= 1 {
        return len.max(1);
    }
    len.div_ceil(threads.saturating_mul(4)).max(grain).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_slice_once() {
        for (len, chunk) in [(0, 4), (1, 4), (8, 4), (9, 4), (10, 1), (7, 0), (7, usize::MAX)] {
            let mut data = vec![0u32; len];
            for_each_chunk_mut(&Serial, &mut data, chunk, &|i, part| {
                part.iter_mut().for_each(|x| *x += 1 + i as u32)
            });
            let chunk = chunk.max(1);
            assert!(
                data.iter().enumerate().all(|(i, &x)| x == 1 + (i / chunk) as u32),
                "{len} {chunk}"
            );
        }
    }

    /// Calls every task twice, from two threads: wrong, but it must not be unsound.
    struct Twice;
    impl Parallel for Twice {
        fn threads(&self) -> usize {
            2
        }
        fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| (0..count).for_each(task));
                }
            });
        }
    }

    #[test]
    fn a_parallel_that_repeats_tasks_is_harmless() {
        let mut data = vec![0u32; 1000];
        for_each_chunk_mut(&Twice, &mut data, 3, &|_, part| part.iter_mut().for_each(|x| *x += 1));
        assert!(data.iter().all(|&x| x == 1));
    }

    #[test]
    fn each_thread_has_its_own_workspace() {
        let mut workspace = vec![0u32; 2 * 8 + 3];
        for_each_job(&Twice, 100, &mut workspace, 8, &|_, own| {
            assert_eq!(own.len(), 8);
            own.fill(1);
        });
        let mut small = vec![0u32; 7];
        for_each_job(&Twice, 3, &mut small, 8, &|_, own| assert_eq!(own.len(), 7));
    }
}
