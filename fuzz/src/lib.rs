//! Fuzzing of parsers: [`targets`] defines what is tested with a file, [`mutate`] changes files so
//! that most of them stay plausible.
//!
//! Used by the programs in `fuzz_targets`, which run as long as desired (`cargo xtask fuzz`), and
//! by the test `tests/fuzz.rs`, which tries the same few thousand files each time. Nothing here
//! depends on the fuzzer.

#![forbid(unsafe_code)]

mod fields;
pub mod flow;
pub mod mutate;
pub mod targets;

/// A custom mutator for libFuzzer: changes the first `size` bytes of `bytes`, and returns the new
/// size. Every eighth time, and for files without structure, it uses the fuzzer's own mutations
/// (`plain`).
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
