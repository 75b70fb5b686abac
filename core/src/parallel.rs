//! How kernels use several threads: through a value that the caller lends, since core knows no threads.

/// Runs independent pieces of work, on one thread or on several.
pub trait Parallel: Sync {
    /// The most threads that [`run`](Parallel::run) uses; 1 for serial execution.
    fn threads(&self) -> usize;

    /// Calls `task` once with every number below `count`, in any order and on any thread, and returns
    /// when all calls have returned.
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync));
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
