//! A trained classifier of handwritten digits on a Cortex-M4, without operating system and without heap: the
//! image has no global allocator, so it would not link if anything in it allocated.
//!
//! The program lies in flash, where its weights are used in place. Its memory is static, of exactly the sizes
//! that the program asks for. What is logged goes through `defmt` to the host, which compares it with what
//! the host itself computes (`cargo xtask board`). Start reading at [`classify`].

#![no_std]
#![no_main]

mod sizes;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use cortex_m as _;
use defmt::{Display2Format, println};
use defmt_semihosting as _;
use semihosting::process::ExitCode;
use sizes::{ARENA, PLANNED, SCRATCH};
use torchlet_core::{
    ARENA_ALIGN, AlignedBytes, ArenaBlock, Kernel, LoadOptions, MethodMemory, Program, Registry,
    TensorRef, ValueRef,
};
use torchlet_portable::{elementwise, linear, normalize, shape, spatial};

/// The program, aligned for its weights.
static PROGRAM: &[u8] =
    &AlignedBytes(*include_bytes!("../../../tests/fixtures/digits/digits.pte")).0;

/// A picture of a handwritten 2 that was not trained with: 1×1×8×8 numbers behind a header.
static IMAGE: &[u8] = include_bytes!("../../../tests/fixtures/digits/image_2.npy");

/// The kernels that the program uses, sorted by name; the linker drops all others.
static KERNELS: &[Kernel] = &[
    normalize::batch::BATCH_NORM_NO_TRAINING_OUT,
    linear::ADDMM_OUT,
    spatial::CONVOLUTION_OUT,
    spatial::MAX_POOL2D_WITH_INDICES_OUT,
    shape::PERMUTE_COPY_OUT,
    elementwise::activation::RELU_OUT,
];

/// Memory that is taken once.
struct Static<M>(UnsafeCell<M>, AtomicBool);

// SAFETY: `take` gives the memory out once.
unsafe impl<M: Send> Sync for Static<M> {}

impl<M> Static<M> {
    const fn new(memory: M) -> Self {
        Static(UnsafeCell::new(memory), AtomicBool::new(false))
    }

    fn take(&'static self) -> &'static mut M {
        assert!(!self.1.swap(true, Ordering::Relaxed), "memory is taken once");
        // SAFETY: the flag was not set before, so no other reference exists.
        unsafe { &mut *self.0.get() }
    }
}

const ARENA_BLOCKS: usize = ARENA.div_ceil(ARENA_ALIGN);
static ARENA_MEMORY: Static<[ArenaBlock; ARENA_BLOCKS]> =
    Static::new([ArenaBlock::UNINIT; ARENA_BLOCKS]);
static PLANNED_MEMORY: Static<AlignedBytes<[u8; PLANNED]>> =
    Static::new(AlignedBytes([0; PLANNED]));
static SCRATCH_MEMORY: Static<AlignedBytes<[u8; SCRATCH]>> =
    Static::new(AlignedBytes([0; SCRATCH]));

/// Says that the sizes differ from those of the program; `cargo xtask board` looks for this line.
fn sizes_differ() {
    println!("sizes.rs is not exact: run `cargo xtask board --overwrite`");
}

/// Runs the classifier on the image; gives an error as text for the log.
fn classify() -> Result<(), ()> {
    let registry = checked(Registry::new().with_kernels(KERNELS))?;
    let program = checked(Program::from_bytes(PROGRAM))?;
    let meta = checked(program.method_meta("forward"))?;
    let options = LoadOptions::default();
    let table_bytes = checked(meta.table_bytes(&options.limits))?;
    let planned = checked(meta.planned_buffer_size(0))?;
    let arena = &mut ArenaBlock::bytes(ARENA_MEMORY.take())[..ARENA];
    // The tables come first; what else is needed is known when they are made.
    let Some((tables, arena)) = arena.split_at_mut_checked(table_bytes) else {
        println!("arena: {=usize} bytes, or more", table_bytes);
        println!("planned: {=usize} bytes", planned);
        println!("scratch: {=usize} bytes, or more", SCRATCH);
        return Err(sizes_differ());
    };
    let prepared = checked(meta.prepare(tables, &registry, options))?;
    let (needs, arena_use) = (prepared.needs(), prepared.arena_use());
    println!("program: {=usize} bytes", PROGRAM.len());
    println!("arena: {=usize} bytes", needs.whole_arena());
    println!("planned: {=usize} bytes in {=usize}", planned, meta.planned_buffer_count());
    println!("scratch: {=usize} bytes", needs.scratch);
    println!(
        "arena use: values {=usize}, tensors {=usize}, instructions {=usize}, packed weights {=usize}",
        arena_use.values, arena_use.tensors, arena_use.instructions, arena_use.packed
    );
    if (needs.whole_arena(), planned, needs.scratch) != (ARENA, PLANNED, SCRATCH) {
        return Err(sizes_differ());
    }
    let mut method = checked(prepared.finish(MethodMemory {
        arena,
        planned: &mut [&mut PLANNED_MEMORY.take().0],
        scratch: &mut SCRATCH_MEMORY.take().0,
    }))?;

    let info = method.meta().input(0);
    let Ok(Some(torchlet_core::ValueMeta::Tensor(input))) = info else { return Err(()) };
    let pixels = IMAGE.len().checked_sub(input.info.nbytes()).and_then(|at| IMAGE.get(at..));
    let image = pixels.and_then(|pixels| TensorRef::new(input.info, pixels)).ok_or(())?;
    checked(method.set_input_tensor(0, &image))?;
    checked(method.execute())?;
    let ValueRef::Tensor(output) = checked(method.output(0))? else { return Err(()) };
    let logits = checked(output.data::<f32>())?;
    let mut class = 0;
    for (index, logit) in logits.iter().enumerate() {
        println!("logit {=usize}: {=f32}", index, *logit);
        if *logit > logits[class] {
            class = index;
        }
    }
    println!("class: {=usize}", class);
    Ok(())
}

/// Logs an error.
fn checked<T, E: core::fmt::Display>(result: Result<T, E>) -> Result<T, ()> {
    result.map_err(|error| println!("error: {}", Display2Format(&error)))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let code = match classify() {
        Ok(()) => ExitCode::SUCCESS,
        Err(()) => ExitCode::FAILURE,
    };
    code.exit_process()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("{}", Display2Format(info));
    ExitCode::FAILURE.exit_process()
}
