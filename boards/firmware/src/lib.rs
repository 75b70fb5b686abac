//! What all firmware images have in common: they run models on their test inputs and log what comes
//! out, what it takes, and what happens when something is wrong. A board adds its memory map, its
//! start-up code and the choice of models.
//!
//! Nothing here allocates: the images have no global allocator, and would not link if anything in
//! them did. (The one for AArch64 has one, and loads its models at run time.) What is logged goes
//! through `defmt` to the host, which compares it with what it computes itself
//! (`cargo xtask board`). Start reading at [`check`].

#![no_std]

#[cfg_attr(target_arch = "arm", path = "machine/arm.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine/aarch64.rs")]
#[cfg_attr(any(target_arch = "riscv32", target_arch = "riscv64"), path = "machine/riscv.rs")]
mod machine;

#[cfg(feature = "start")]
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

#[cfg(feature = "start")]
pub use exit::exit;
pub use faults::damage;
pub use memory::{Memory, Room};
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

/// Runs the models that are part of the image. It is called once: the memory can be taken no second
/// time.
#[cfg(all(feature = "start", not(target_arch = "aarch64")))]
pub fn run() -> ! {
    let Ok(mut memory) = checked(Memory::take()) else { exit(false) };
    exit(check(image::MODELS, &mut memory))
}

/// Runs models in this memory, and tries all that can go wrong with the smallest of them. Gives
/// whether all is well.
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

/// Tries all that can go wrong with a model, in memory that has room for it: for an image that
/// starts by itself. Gives whether all of it was noticed. [`try_faults!`] makes both of a module of
/// the image.
pub fn try_faults(model: &Model, memory: &mut Memory<'_>) -> bool {
    faults::all(model, memory).is_ok()
}

/// The [`Model`] of a module that `torchlet::program!` includes: what it is called, how often it
/// runs before its output is looked at, the bytes of its input, and damaged copies of its program.
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

/// A copy of a module's program with bytes flipped: see [`damage`].
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

/// [`try_faults`](fn@try_faults) with a module that `torchlet::program!` includes and the bytes of
/// its input, in static memory.
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
        static ROOM: torchlet::firmware::Once<
            $crate::Room<
                { MODEL.arena.div_ceil(torchlet::core::ARENA_ALIGN) },
                { MODEL.planned_bytes() },
                { MODEL.second_bytes() },
                { MODEL.scratch },
            >,
        > = torchlet::firmware::Once::new($crate::Room::new());
        match ROOM.take() {
            Ok(room) => $crate::try_faults(&MODEL, &mut room.memory()),
            Err(_) => false,
        }
    }};
}
