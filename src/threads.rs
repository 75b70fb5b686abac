//! The threads that kernels use.

use std::sync::Arc;
use torchlet_core::Parallel;

/// Threads for kernels: so many, or one for each processor.
pub(crate) fn pool(threads: Option<usize>) -> Arc<dyn Parallel + Send + Sync> {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    match threads.unwrap_or_else(available) {
        0 | 1 => Arc::new(torchlet_core::Serial),
        #[cfg(feature = "portable")]
        threads => Arc::new(torchlet_portable::ThreadPool::new(threads)),
        #[cfg(not(feature = "portable"))]
        _ => Arc::new(torchlet_core::Serial),
    }
}
