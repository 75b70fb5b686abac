//! The common part of all firmware images: runs models on their test inputs and logs outputs,
//! memory, time, and the errors of injected faults. A board adds its memory map, start-up code and
//! choice of models.
//!
//! The images do not allocate: without a global allocator, they would not link otherwise. (The
//! AArch64 image has an allocator and loads its models at run time.) Logs go through `defmt` to the
//! host, which compares them with its own results (`cargo xtask board`). Start reading at
//! [`check`].

#![no_std]

#[cfg_attr(target_arch = "arm", path = "machine/arm.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine/aarch64.rs")]
#[cfg_attr(any(target_arch = "riscv32", target_arch = "riscv64"), path = "machine/riscv.rs")]
mod machine;

#[cfg(feature = "handlers")]
mod exit;
mod external;
mod faults;
#[cfg(all(feature = "start", not(target_arch = "aarch64")))]
mod image;
mod infer;
#[cfg(feature = "kernels")]
mod kernels;
mod memory;
mod models;
mod shared;
pub mod stack;
mod watch;

#[cfg(feature = "handlers")]
pub use exit::exit;
pub use faults::damage;
pub use machine::{start as start_clock, ticks as clock_ticks};
pub use memory::{Memory, Room};
pub use models::Model;

/// A failure that was logged.
pub(crate) struct Failed;

/// Logs an error.
pub(crate) fn checked<T, E: defmt::Format>(result: Result<T, E>) -> Result<T, Failed> {
    result.map_err(|error| {
        defmt::println!("error: {}", error);
        Failed
    })
}

/// Runs the models of the image. Called once, because the memory can only be taken once.
#[cfg(all(feature = "start", not(target_arch = "aarch64")))]
pub fn run() -> ! {
    let Ok(mut memory) = checked(Memory::take()) else { exit(false) };
    exit(check(image::MODELS, &mut memory))
}

/// Runs models in this memory and injects faults with the smallest of them. Returns whether all
/// succeeded.
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

/// Injects faults with a model, in memory that fits it, for images with their own start-up. Returns
/// whether all were detected. [`try_faults!`] derives both arguments from a module of the image.
pub fn try_faults(model: &Model, memory: &mut Memory<'_>) -> bool {
    faults::all(model, memory).is_ok()
}

/// The [`Model`] of a module that `torchlet::program!` includes, with its name, the number of runs
/// before its output is checked, its input bytes, and damaged copies of its program.
#[macro_export]
macro_rules! model {
    ($module:ident, $name:expr, $runs:expr, $input:expr, $damaged:expr) => {
        $crate::Model {
            name: $name,
            program: $module::PROGRAM,
            kernels: &$module::KERNELS,
            arena: $module::forward::ARENA,
            planned: &$module::forward::PLANNED,
            scratch: $module::forward::SCRATCH,
            input: $input,
            runs: $runs,
            damaged: $damaged,
        }
    };
}

/// A copy of a module's program with flipped bits: see [`damage`].
#[macro_export]
macro_rules! damaged {
    ($module:ident, $seed:expr) => {{
        const COPY: torchlet::core::AlignedBytes<[u8; $module::PROGRAM.len()]> = {
            let mut bytes = [0; $module::PROGRAM.len()];
            bytes.copy_from_slice($module::PROGRAM);
            $crate::damage(&mut bytes, $seed);
            torchlet::core::AlignedBytes(bytes)
        };
        static DAMAGED: torchlet::core::AlignedBytes<[u8; $module::PROGRAM.len()]> = COPY;
        &DAMAGED.0
    }};
}

/// [`try_faults`](fn@try_faults) for a module that `torchlet::program!` includes, with its input
/// bytes, in static memory.
#[macro_export]
macro_rules! try_faults {
    ($module:ident, $input:expr) => {{
        const COPIES: &[&[u8]] = &[
            $crate::damaged!($module, 0),
            $crate::damaged!($module, 1),
            $crate::damaged!($module, 2),
            $crate::damaged!($module, 3),
        ];
        const MODEL: $crate::Model =
            $crate::model!($module, stringify!($module), 1, $input, COPIES);
        static ROOM: torchlet::firmware::TakeOnce<
            $crate::Room<
                { MODEL.arena.div_ceil(torchlet::core::ARENA_ALIGN) },
                { MODEL.planned_bytes() },
                { MODEL.second_bytes() },
                { MODEL.scratch },
            >,
        > = torchlet::firmware::TakeOnce::new($crate::Room::new());
        match ROOM.take() {
            Ok(room) => $crate::try_faults(&MODEL, &mut room.memory()),
            Err(_) => false,
        }
    }};
}
