//! See `torchlet_fuzz::targets::control_flow`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| torchlet_fuzz::targets::control_flow(bytes));
