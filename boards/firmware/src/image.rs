//! The models in the image, and its static memory, sized for the largest model.

use crate::memory::Memory;
use crate::models::Model;
use crate::{damaged, model};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use torchlet::core::{ARENA_ALIGN, AlignedBytes, ArenaBlock};
use torchlet::firmware::{Error, TakeOnce};

include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// The maximum of a property over all models.
macro_rules! max_over_models {
    ($of:expr) => {{
        let (mut most, mut index) = (0, 0);
        while index < MODELS.len() {
            let model: &Model = &MODELS[index];
            let found = $of(model);
            most = if found > most { found } else { most };
            index += 1;
        }
        most
    }};
}

const fn arena(model: &Model) -> usize {
    model.arena
}

const fn scratch(model: &Model) -> usize {
    model.scratch
}

/// Arena size of the smallest program if its weights are copied from storage, for images of several
/// models, which test that.
const fn external() -> usize {
    let (mut least, mut index) = (usize::MAX, 0);
    while index < MODELS.len() {
        let model: &Model = &MODELS[index];
        let found = model.arena + model.program.len();
        least = if found < least { found } else { least };
        index += 1;
    }
    if MODELS.len() > 2 { least } else { 0 }
}

const fn larger(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

const BLOCKS: usize = larger(max_over_models!(arena), external()).div_ceil(ARENA_ALIGN);
const PLANNED: usize = max_over_models!(Model::planned_bytes);
const SECOND: usize = max_over_models!(Model::second_bytes);
const SCRATCH: usize = max_over_models!(scratch);

static ARENA_MEMORY: TakeOnce<[ArenaBlock; BLOCKS]> = TakeOnce::new([ArenaBlock::UNINIT; BLOCKS]);
static PLANNED_MEMORY: TakeOnce<AlignedBytes<[u8; PLANNED]>> =
    TakeOnce::new(AlignedBytes([0; PLANNED]));
static SCRATCH_MEMORY: TakeOnce<AlignedBytes<[u8; SCRATCH]>> =
    TakeOnce::new(AlignedBytes([0; SCRATCH]));

impl Memory<'static> {
    /// Takes all memory of the image; fails the second time.
    pub(crate) fn take() -> Result<Self, Error> {
        Ok(Memory {
            arena: ArenaBlock::bytes(ARENA_MEMORY.take()?),
            planned: &mut PLANNED_MEMORY.take()?.0,
            second: second(SECOND_TAKEN.take()?),
            scratch: &mut SCRATCH_MEMORY.take()?.0,
        })
    }
}

/// Memory in its own section, so that a board can place it in another RAM. Uninitialised at
/// start-up.
#[repr(C, align(16))]
struct Second(UnsafeCell<MaybeUninit<[u8; SECOND]>>);

// SAFETY: it is only accessed through `second`, which runs once.
unsafe impl Sync for Second {}

#[unsafe(link_section = ".uninit.second")]
static SECOND_MEMORY: Second = Second(UnsafeCell::new(MaybeUninit::uninit()));
static SECOND_TAKEN: TakeOnce<()> = TakeOnce::new(());

/// The memory, zeroed.
fn second(_once: &'static mut ()) -> &'static mut [u8] {
    // SAFETY: the argument exists once, so no other reference to the memory exists or will.
    let memory = unsafe { &mut *SECOND_MEMORY.0.get() };
    memory.write([0; SECOND])
}
