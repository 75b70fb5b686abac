//! `torchlet devices`.

use crate::terminal::{FAINT, NAME, paint};
use std::thread::available_parallelism;

/// Shows what programs can run on here.
pub(crate) fn devices() {
    let threads = available_parallelism().map_or(1, usize::from);
    let architecture = std::env::consts::ARCH;
    anstream::println!("{}  {architecture}, {threads} threads", paint(NAME, "portable"));
    anstream::println!("{}    {}", paint(NAME, "vulkan"), paint(FAINT, "built without Vulkan"));
}
