//! See `torchlet_fuzz::targets::load_and_run`.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|bytes: &[u8]| torchlet_fuzz::targets::load_and_run(bytes));

fuzz_mutator!(|bytes: &mut [u8], size: usize, max_size: usize, seed: u32| {
    torchlet_fuzz::mutation(bytes, size, max_size, seed, libfuzzer_sys::fuzzer_mutate)
});
