//! `torchlet devices`.

use crate::terminal::{FAINT, NAME, count, paint};
use std::thread::available_parallelism;
use torchlet::portable::compute::simd::Tier;

/// Shows what programs can run on here.
pub(crate) fn devices() {
    let threads = available_parallelism().map_or(1, usize::from);
    let architecture = std::env::consts::ARCH;
    let tier = Tier::detect().name();
    let threads = count(threads, "thread");
    anstream::println!("{}  {architecture}, {tier}, {threads}", paint(NAME, "portable"));
    anstream::println!("{}    {}", paint(NAME, "vulkan"), paint(FAINT, "built without Vulkan"));
}
