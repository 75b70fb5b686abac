//! The threads that kernels use.

use std::sync::Arc;
use torchlet_core::Parallel;

/// So many threads, or one for each processor.
pub(crate) fn count(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Threads for kernels: so many, or one for each processor.
pub(crate) fn pool(threads: Option<usize>) -> Arc<dyn Parallel + Send + Sync> {
    match count(threads) {
        0 | 1 => Arc::new(torchlet_core::Serial),
        #[cfg(feature = "portable")]
        threads => Arc::new(torchlet_portable::ThreadPool::new(threads)),
        #[cfg(not(feature = "portable"))]
        _ => Arc::new(torchlet_core::Serial),
    }
}
