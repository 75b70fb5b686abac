//! Threads for kernels, and helpers that split long buffers over them.

use crate::module::SharedParallel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use torchlet_core::Parallel;

/// `threads`, or the number of processors.
pub(crate) fn count(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Threads that the kernels of a module use.
#[derive(Clone)]
pub(crate) struct Threads {
    parallel: SharedParallel,
    /// The same pool, if torchlet created it.
    #[cfg(feature = "portable")]
    pool: Option<Arc<torchlet_portable::ThreadPool>>,
}

impl Threads {
    /// Starts `threads` threads, or one per processor.
    pub(crate) fn start(threads: Option<usize>) -> Self {
        match count(threads) {
            #[cfg(feature = "portable")]
            threads if threads > 1 => {
                let pool = Arc::new(torchlet_portable::ThreadPool::new(threads));
                Threads { parallel: pool.clone(), pool: Some(pool) }
            }
            _ => Threads::from(Arc::new(torchlet_core::Serial) as SharedParallel),
        }
    }

    pub(crate) fn parallel(&self) -> &SharedParallel {
        &self.parallel
    }

    /// Number of threads in use.
    pub(crate) fn used(&self) -> usize {
        #[cfg(feature = "portable")]
        if let Some(pool) = &self.pool {
            return pool.used_threads();
        }
        self.parallel.threads()
    }

    /// Limits the threads in use, and returns the resulting number. Caller-provided threads are not
    /// limited.
    pub(crate) fn limit(&self, threads: usize) -> usize {
        #[cfg(feature = "portable")]
        if let Some(pool) = &self.pool {
            return pool.set_threads(threads);
        }
        let _ = threads;
        self.parallel.threads()
    }
}

impl From<SharedParallel> for Threads {
    /// Wraps caller-provided threads.
    fn from(parallel: SharedParallel) -> Self {
        Threads {
            parallel,
            #[cfg(feature = "portable")]
            pool: None,
        }
    }
}

/// Bytes per work item.
pub(crate) const PART: usize = 1 << 20;

/// Calls `work` with each [`PART`]-byte chunk of `memory` and its start offset, on several threads.
/// Returns the first error, or `None` if a chunk was skipped.
#[cfg_attr(not(unix), allow(dead_code, reason = "files are read in parts on Unix only"))]
pub(crate) fn each_part<E: Send>(
    parallel: &dyn Parallel,
    memory: &mut [u8],
    work: &(dyn Fn(&mut [u8], usize) -> Result<(), E> + Sync),
) -> Option<Result<(), E>> {
    let parts: Vec<Mutex<(Option<&mut [u8]>, Option<E>)>> =
        memory.chunks_mut(PART).map(|part| Mutex::new((Some(part), None))).collect();
    parallel.run(parts.len(), &|index| {
        let Some(part) = parts.get(index) else { return };
        let mut slot = part.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = slot.0.take() {
            slot.1 = work(part, index * PART).err();
        }
    });
    for part in parts {
        match part.into_inner().unwrap_or_else(PoisonError::into_inner) {
            (None, None) => {}
            (None, Some(error)) => return Some(Err(error)),
            (Some(_), _) => return None,
        }
    }
    Some(Ok(()))
}

/// Maps each [`PART`]-byte chunk of `bytes` through `of`, on several threads. Returns `None` if a
/// chunk was skipped.
pub(crate) fn map_parts<T: Send + Sync>(
    parallel: &dyn Parallel,
    bytes: &[u8],
    of: &(dyn Fn(&[u8]) -> T + Sync),
) -> Option<Vec<T>> {
    let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
    let made: Vec<OnceLock<T>> = parts.iter().map(|_| OnceLock::new()).collect();
    parallel.run(parts.len(), &|index| {
        if let (Some(part), Some(made)) = (parts.get(index), made.get(index)) {
            made.get_or_init(|| of(part));
        }
    });
    made.into_iter().map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::Serial;

    #[test]
    fn each_part_is_processed_once() {
        let threads = Threads::start(Some(3));
        for parallel in [&Serial as &dyn Parallel, &**threads.parallel()] {
            let mut memory = vec![0u8; 3 * PART + 5];
            let fill = |part: &mut [u8], start: usize| {
                part.iter_mut().for_each(|byte| *byte += 1 + (start / PART) as u8);
                if part.len() < 5 { Err(start) } else { Ok(()) }
            };
            assert_eq!(each_part(parallel, &mut memory, &fill), Some(Ok(())));
            let sums = map_parts(parallel, &memory, &|part| part.len() * usize::from(part[0]));
            assert_eq!(sums, Some(vec![PART, 2 * PART, 3 * PART, 5 * 4]));
            memory.truncate(2 * PART + 4);
            assert_eq!(each_part(parallel, &mut memory, &fill), Some(Err(2 * PART)));
        }
    }

    /// Runs nothing.
    struct Idle;

    impl Parallel for Idle {
        fn threads(&self) -> usize {
            2
        }

        fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {}
    }

    #[test]
    fn skipped_parts_are_detected() {
        assert_eq!(each_part::<()>(&Idle, &mut [1], &|_, _| Ok(())), None);
        assert_eq!(map_parts(&Idle, &[1], &|_| ()), None);
    }
}
