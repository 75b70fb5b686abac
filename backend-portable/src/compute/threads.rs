//! A fork-join thread pool with the latency of a few cache misses.
//!
//! One atomic word announces a run. Workers spin on it for some tens of microseconds after their
//! last work, then sleep; the calls of one inference follow each other closely and find them awake.
//! Joining is voluntary: the caller runs tasks too, and when all are claimed it closes the run and
//! waits only for workers that have joined, never for one that is still waking up. A pool of
//! work-stealing deques supports more (nested parallelism, stealing) and pays for it in each run.
//!
//! The state word: bit 0 is set while a run is open, bits 1..16 count the workers in it, the other
//! bits number the runs.

use crate::parallel::Parallel;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::any::Any;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::vec::Vec;

const OPEN: u32 = 1;
const JOINED: u32 = 2;
const JOINED_MASK: u32 = 0xfffe;
const RUN: u32 = 0x1_0000;

/// Iterations of the spin loop before a worker sleeps: some tens of microseconds.
const IDLE_SPINS: u32 = 2_000;
/// Iterations before a thread that waits for others yields its time slice.
const WAIT_SPINS: u32 = 10_000;

#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync + 'static),
    count: usize,
}

struct Shared {
    state: AtomicU32,
    next: AtomicUsize,
    quit: AtomicBool,
    busy: AtomicBool,
    /// Maximum number of threads of a parallel loop, including the calling thread.
    limit: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Which tasks are claimed, for a run with at most one task per thread.
    claimed: Vec<AtomicBool>,
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is written only by the thread that holds `busy`, while no run is open and no worker
// has joined (the previous run ends by waiting for that). It is read only by workers that joined an
// open run, which they do with an acquire operation on `state` after the writer's release. The task
// that it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`; nothing in it belongs to a particular thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Claims and runs tasks of the open run until none is left, as thread number `own`. If the run
    /// has at most one task for each thread, a thread's own task comes first. On a panic, keeps the
    /// first payload and drops the remaining tasks.
    fn work(&self, job: Job, own: usize) {
        // SAFETY: the caller is the thread inside `run`, or has joined its run. `run` returns, and
        // so ends the borrow of the task, only after all who joined have left.
        let task = unsafe { &*job.task };
        let result = catch_unwind(AssertUnwindSafe(|| {
            if let Some(claimed) = self.claimed.get(..job.count) {
                for i in (own..job.count).chain(0..own.min(job.count)) {
                    if !claimed[i].swap(true, Ordering::Relaxed) {
                        task(i);
                    }
                }
                return;
            }
            loop {
                let i = self.next.fetch_add(1, Ordering::Relaxed);
                if i >= job.count {
                    break;
                }
                task(i);
            }
        }));
        if let Err(panic) = result {
            self.next.store(job.count, Ordering::Relaxed);
            self.claimed.iter().for_each(|claimed| claimed.store(true, Ordering::Relaxed));
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    fn worker(&self, index: usize) {
        let mut seen = 0;
        let mut spins = 0;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            let is_wanted = index + 1 < self.limit.load(Ordering::Relaxed);
            if is_wanted && state & OPEN != 0 && state & !(OPEN | JOINED_MASK) != seen {
                let joined = self.state.compare_exchange(
                    state,
                    state + JOINED,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if joined.is_ok() {
                    seen = state & !(OPEN | JOINED_MASK);
                    // SAFETY: this worker has joined an open run; see `Sync for Shared`.
                    if let Some(job) = unsafe { *self.job.get() } {
                        self.work(job, index + 1);
                    }
                    self.state.fetch_sub(JOINED, Ordering::Release);
                }
                spins = 0;
                continue;
            }
            if self.quit.load(Ordering::Relaxed) {
                return;
            }
            spins += 1;
            if spins < IDLE_SPINS {
                core::hint::spin_loop();
                continue;
            }
            // Announce the sleep, then check again: either the next run sees the announcement and
            // wakes this thread, or this thread sees the run.
            self.asleep[index].store(true, Ordering::SeqCst);
            let now = self.state.load(Ordering::SeqCst);
            let idle = !is_wanted || now & OPEN == 0 || now & !(OPEN | JOINED_MASK) == seen;
            if idle && !self.quit.load(Ordering::SeqCst) {
                thread::park();
            }
            self.asleep[index].store(false, Ordering::SeqCst);
            spins = 0;
        }
    }
}

/// Threads that run tasks together with the calling thread.
///
/// A `run` inside a task, or from a second thread during another run, executes its tasks on the
/// calling thread: it never waits for the pool and so cannot deadlock. A panic in a task ends the
/// run and propagates to the caller.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<(JoinHandle<()>, Thread)>,
}

impl ThreadPool {
    /// Creates a pool of `threads` threads: the caller and `threads - 1` workers (at most 1023, and
    /// as many as the system can start).
    pub fn new(threads: usize) -> Self {
        let wanted = threads.clamp(1, 1024) - 1;
        let shared = Arc::new(Shared {
            state: AtomicU32::new(RUN),
            next: AtomicUsize::new(0),
            quit: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            limit: AtomicUsize::new(wanted + 1),
            job: UnsafeCell::new(None),
            panic: Mutex::new(None),
            claimed: (0..=wanted).map(|_| AtomicBool::new(true)).collect(),
            asleep: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut workers = Vec::with_capacity(wanted);
        for index in 0..wanted {
            let own = Arc::clone(&shared);
            match thread::Builder::new()
                .name(std::format!("torchlet-{}", index + 1))
                .spawn(move || own.worker(index))
            {
                Ok(handle) => {
                    let thread = handle.thread().clone();
                    workers.push((handle, thread));
                }
                Err(_) => break,
            }
        }
        ThreadPool { shared, workers }
    }

    /// Sets the number of threads that later runs use, clamped to at least one and at most the size
    /// of the pool, and returns it. The others sleep. Work is still split for all threads, so
    /// results are the same bit for bit.
    pub fn set_threads(&self, threads: usize) -> usize {
        let threads = threads.clamp(1, self.workers.len() + 1);
        self.shared.limit.store(threads, Ordering::SeqCst);
        threads
    }

    /// Number of threads that runs use now.
    pub fn used_threads(&self) -> usize {
        self.shared.limit.load(Ordering::Relaxed).min(self.workers.len() + 1)
    }

    /// Creates a pool with one thread for each processor that this process may use.
    pub fn with_available_threads() -> Self {
        Self::new(thread::available_parallelism().map_or(1, |n| n.get()))
    }
}

impl core::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).finish()
    }
}

impl Parallel for ThreadPool {
    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        let workers = self.used_threads() - 1;
        if count <= 1 || workers == 0 || shared.busy.swap(true, Ordering::Acquire) {
            for i in 0..count {
                task(i);
            }
            return;
        }
        let task: *const (dyn Fn(usize) + Sync + '_) = task;
        // SAFETY: only the lifetime in the type changes. The pointer is used only by this thread
        // and by workers that joined the run, and this function does not return before they have
        // left it.
        let task: *const (dyn Fn(usize) + Sync + 'static) = unsafe { core::mem::transmute(task) };
        let job = Job { task, count };
        // SAFETY: `busy` is held by this thread, and no run is open; see `Sync for Shared`.
        unsafe { *shared.job.get() = Some(job) };
        shared.next.store(0, Ordering::Relaxed);
        shared
            .claimed
            .iter()
            .take(count)
            .for_each(|claimed| claimed.store(false, Ordering::Relaxed));
        // The run number wraps around. A worker that slept for exactly one full cycle misses one
        // more run, which is harmless.
        let closed = shared.state.load(Ordering::Relaxed);
        let open = closed.wrapping_add(RUN) | OPEN;
        shared.state.store(open, Ordering::SeqCst);
        let workers = self.workers.iter().take(workers.min(count - 1));
        for (asleep, (_, thread)) in shared.asleep.iter().zip(workers) {
            if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }

        shared.work(job, 0);

        shared.state.fetch_and(!OPEN, Ordering::Relaxed);
        let mut spins = 0;
        while shared.state.load(Ordering::Acquire) & JOINED_MASK != 0 {
            spins += 1;
            if spins < WAIT_SPINS {
                core::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        for (handle, thread) in self.workers.drain(..) {
            thread.unpark();
            // Workers catch the panics of tasks, so this join cannot report one.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn counts(pool: &ThreadPool, count: usize) {
        let hits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        pool.run(count, &|i| {
            hits[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [0, 1, 2, 3, 5] {
            let pool = ThreadPool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for count in [0, 1, 2, 3, 17, 1000] {
                for _ in 0..20 {
                    counts(&pool, count);
                }
            }
        }
    }

    #[test]
    fn workers_wake_after_sleeping() {
        let pool = ThreadPool::new(2);
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(3));
            let both = std::sync::Barrier::new(2);
            // Ends only if a second thread joins.
            pool.run(2, &|_| {
                both.wait();
            });
        }
    }

    #[test]
    fn thread_limit_shrinks_and_grows() {
        let pool = ThreadPool::new(3);
        for (wanted, used) in [(1, 1), (2, 2), (9, 3), (0, 1), (2, 2), (3, 3)] {
            assert_eq!(pool.set_threads(wanted), used);
            assert_eq!((pool.used_threads(), pool.threads()), (used, 3));
            let ran_on = Mutex::new(std::collections::HashSet::new());
            let all = std::sync::Barrier::new(used);
            // Ends only if all of these threads take part; in the second loop, a sleeping worker
            // that joins would be an additional thread ID.
            pool.run(used, &|_| {
                all.wait();
            });
            for _ in 0..50 {
                pool.run(3, &|_| {
                    ran_on.lock().unwrap().insert(thread::current().id());
                });
            }
            assert!(ran_on.lock().unwrap().len() <= used);
            counts(&pool, 100);
        }
    }

    #[test]
    fn few_tasks_stay_on_their_threads() {
        let pool = ThreadPool::new(3);
        let ran_on = Mutex::new(vec![None; 3]);
        for _ in 0..20 {
            let all = std::sync::Barrier::new(3);
            pool.run(3, &|i| {
                // Prevents a thread from claiming a second task.
                all.wait();
                let own = thread::current().id();
                let before = ran_on.lock().unwrap()[i].replace(own);
                assert!(before.is_none_or(|before| before == own));
            });
        }
        assert_eq!(ran_on.lock().unwrap()[0], Some(thread::current().id()));
    }

    #[test]
    fn nested_and_concurrent_runs_do_not_deadlock() {
        let pool = ThreadPool::new(3);
        let total = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..100 {
                        pool.run(4, &|_| {
                            pool.run(4, &|_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            })
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 3 * 100 * 16);
    }

    #[test]
    fn panic_propagates_and_pool_survives() {
        let pool = ThreadPool::new(2);
        for bad in [0, 7, 31] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(32, &|i| {
                    if i == bad {
                        panic!("task {i}");
                    }
                })
            }));
            let message = result.unwrap_err().downcast::<std::string::String>().unwrap();
            assert_eq!(*message, std::format!("task {bad}"));
            counts(&pool, 100);
        }
    }
}
