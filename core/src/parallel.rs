//! How kernels use several threads: through a value that the caller lends, since core knows no
//! threads.

use core::sync::atomic::{AtomicBool, Ordering};

/// Runs independent pieces of work, on one thread or on several.
pub trait Parallel: Sync {
    /// The most threads that [`run`](Parallel::run) uses; 1 for serial execution.
    fn threads(&self) -> usize;

    /// Calls `task` once with every number below `count`, in any order and on any thread, and
    /// returns when all calls have returned.
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync));

    /// Whether the run was cancelled. With the standard library, kernels ask between pieces of
    /// work, and skip the rest: the run ends with an error, whatever they wrote. Loading is not
    /// cancelled.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// The threads of one call, which ends early when the run is cancelled.
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

    /// Whether a kernel was told to leave out work.
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

/// The same threads for work that must be complete, such as packing weights when a method is
/// loaded.
#[allow(missing_debug_implementations, reason = "the threads have none")]
pub struct Uncancelled<'c>(pub &'c dyn Parallel);

impl Parallel for Uncancelled<'_> {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        self.0.run(count, task);
    }
}

/// Runs everything on the calling thread.
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
