//! Memory read bandwidth. It bounds the decode rate of a language model, because each token reads
//! all weights.

use std::time::Instant;

/// Larger than the caches.
const BYTES: usize = 256 << 20;

/// Returns the read bandwidth of `threads` threads in bytes per second, the best of several runs.
pub(super) fn bandwidth(threads: usize) -> f64 {
    let words = vec![1u64; BYTES / 8];
    let part = words.len().div_ceil(threads.max(1));
    let fastest = (0..8).map(|_| {
        let start = Instant::now();
        let sum: u64 = std::thread::scope(|scope| {
            let read = |part: &[u64]| part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
            let parts: Vec<_> =
                words.chunks(part).map(|part| scope.spawn(move || read(part))).collect();
            parts.into_iter().map(|part| part.join().unwrap_or(0)).sum()
        });
        std::hint::black_box(sum);
        start.elapsed().as_secs_f64()
    });
    BYTES as f64 / fastest.fold(f64::INFINITY, f64::min)
}
