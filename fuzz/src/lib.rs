//! Fuzzing of what reads files: [`targets`] says what is tried with a file, [`mutate`] changes
//! files so that most of them still make sense.
//!
//! Used by the programs in `fuzz_targets`, which search for as long as one lets them
//! (`cargo xtask fuzz`), and by the test `tests/fuzz.rs`, which tries the same few thousand files
//! each time. Nothing in here depends on the fuzzer.

pub mod flow;
pub mod mutate;
mod places;
pub mod targets;

/// What the fuzzer asks for instead of its own mutations: a file of `size` bytes in `bytes` is
/// changed; gives its new size. Every eighth time, and where there is no structure to keep, `plain`
/// changes bytes as it likes.
pub fn mutation(
    bytes: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    plain: fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut random = mutate::Random::new(seed);
    if random.below(8) > 0 && mutate::mutate(&mut bytes[..size], &mut random) {
        return size;
    }
    plain(bytes, size, max_size)
}
