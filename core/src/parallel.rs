//! Multithreading for kernels, through a value that the caller provides: core has no threads.

use core::sync::atomic::{AtomicBool, Ordering};

/// Executor for independent tasks, on one or several threads.
pub trait Parallel: Sync {
    /// Maximum number of threads that [`run`](Parallel::run) uses; 1 for serial execution.
    fn threads(&self) -> usize;

    /// Calls `task` once for each index below `count`, in any order and on any thread. Returns
    /// after all calls have returned.
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync));

    /// Whether the run was cancelled. With the feature `std`, kernels check between tasks and skip
    /// the rest; the run then fails, and its outputs are unspecified. Loading is not cancelled.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Threads of one call that ends early when the run is cancelled.
///
/// Once `is_cancelled` has returned true, the call counts as incomplete, even if the caller clears
/// the flag before it returns.
pub(crate) struct Cancellable<'c> {
    parallel: &'c dyn Parallel,
    cancel: Option<&'c AtomicBool>,
    is_incomplete: AtomicBool,
}

impl<'c> Cancellable<'c> {
    pub(crate) fn new(parallel: &'c dyn Parallel, cancel: Option<&'c AtomicBool>) -> Self {
        Cancellable { parallel, cancel, is_incomplete: AtomicBool::new(false) }
    }

    /// Whether a kernel was told to skip work.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete.load(Ordering::Relaxed)
    }
}

impl Parallel for Cancellable<'_> {
    fn threads(&self) -> usize {
        self.parallel.threads()
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        self.parallel.run(count, task);
    }

    fn is_cancelled(&self) -> bool {
        let is_cancelled = self.is_incomplete()
            || self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
            || self.parallel.is_cancelled();
        if is_cancelled {
            self.is_incomplete.store(true, Ordering::Relaxed);
        }
        is_cancelled
    }
}

/// Wrapper that ignores cancellation, for work that must be complete, such as packing weights at
/// load time.
#[allow(missing_debug_implementations, reason = "`dyn Parallel` does not implement it")]
pub struct Uncancelled<'c>(pub &'c dyn Parallel);

impl Parallel for Uncancelled<'_> {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        self.0.run(count, task);
    }
}

/// Serial execution on the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        for index in 0..count {
            task(index);
        }
    }
}
