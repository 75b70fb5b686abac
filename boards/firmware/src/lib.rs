//! What all firmware images have in common: they run models on their test inputs and log what comes out, what it takes, and what
//! happens when something is wrong. A board adds its memory map, its start-up code and the choice of models.
//!
//! Nothing here allocates: the images have no global allocator, and would not link if anything in them did. (The one for AArch64 has
//! one, and loads its models at run time.) What is logged goes through `defmt` to the host, which compares it with what it computes
//! itself (`cargo xtask board`). Start reading at [`check`].

#![no_std]

#[cfg_attr(target_arch = "arm", path = "machine/arm.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine/aarch64.rs")]
#[cfg_attr(any(target_arch = "riscv32", target_arch = "riscv64"), path = "machine/riscv.rs")]
mod machine;

mod exit;
mod external;
mod faults;
#[cfg(not(target_arch = "aarch64"))]
mod image;
mod infer;
#[cfg(feature = "kernels")]
mod kernels;
mod memory;
mod models;
mod shared;
mod stack;
mod watch;

pub use exit::exit;
pub use memory::Memory;
pub use models::Model;

/// What was wrong is in the log.
pub(crate) struct Failed;

/// Logs an error.
pub(crate) fn checked<T, E: defmt::Format>(result: Result<T, E>) -> Result<T, Failed> {
    result.map_err(|error| {
        defmt::println!("error: {}", error);
        Failed
    })
}

/// Runs the models that are part of the image. It is called once: the memory can be taken no second time.
#[cfg(not(target_arch = "aarch64"))]
pub fn run() -> ! {
    let Ok(mut memory) = checked(Memory::take()) else { exit(false) };
    exit(check(image::MODELS, &mut memory))
}

/// Runs models in this memory, and tries all that can go wrong with the smallest of them. Gives whether all is well.
pub fn check(models: &[Model], memory: &mut Memory<'_>) -> bool {
    machine::start();
    let mut succeeded = true;
    for model in models {
        succeeded &= infer::all(model, memory).is_ok();
    }
    succeeded &= shared::all(models, memory).is_ok();
    #[cfg(feature = "kernels")]
    {
        succeeded &= kernels::all().is_ok();
    }
    if let Some(smallest) = models.iter().min_by_key(|model| model.program.len()) {
        succeeded &= external::all(smallest, memory).is_ok();
        succeeded &= faults::all(smallest, memory).is_ok();
    }
    succeeded
}
