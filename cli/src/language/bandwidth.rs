//! How fast memory is read: what bounds how fast a language model writes, since each token takes
//! all of its weights.

use std::time::Instant;

/// More than caches hold.
const BYTES: usize = 256 << 20;

/// Bytes a second that so many threads read from memory: the fastest of a few times.
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
