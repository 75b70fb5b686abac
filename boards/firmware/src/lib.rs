//! What all firmware images have in common: they run models on their test inputs and log what comes out, what it takes, and what
//! happens when something is wrong. A board adds its memory map, its start-up code and the choice of models.
//!
//! Nothing here allocates: the images have no global allocator, and would not link if anything in them did. What is logged goes
//! through `defmt` to the host, which compares it with what it computes itself (`cargo xtask board`). Start reading at [`run`].

#![no_std]

#[cfg_attr(target_arch = "arm", path = "machine/arm.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine/aarch64.rs")]
#[cfg_attr(any(target_arch = "riscv32", target_arch = "riscv64"), path = "machine/riscv.rs")]
mod machine;

mod exit;
mod external;
mod faults;
mod infer;
mod memory;
mod models;
mod stack;
mod watch;

pub use exit::exit;
use memory::Memory;
use models::{MODELS, SMALLEST};

/// What was wrong is in the log.
pub(crate) struct Failed;

/// Logs an error.
pub(crate) fn checked<T, E: defmt::Format>(result: Result<T, E>) -> Result<T, Failed> {
    result.map_err(|error| {
        defmt::println!("error: {}", error);
        Failed
    })
}

/// Runs all models that the image has. It is called once: a second call ends with failure, since the memory is taken.
pub fn run() -> ! {
    machine::start();
    let Ok(mut memory) = checked(Memory::take()) else { exit(false) };
    let mut succeeded = true;
    for model in MODELS {
        succeeded &= infer::all(model, &mut memory).is_ok();
    }
    let first = &MODELS[SMALLEST];
    succeeded &= external::all(first, &mut memory).is_ok();
    succeeded &= faults::all(first, &mut memory).is_ok();
    exit(succeeded)
}
