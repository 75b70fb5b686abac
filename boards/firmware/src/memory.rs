//! Memory that models use in turn.

use crate::models::Model;
use core::mem::MaybeUninit;
use torchlet::core::{ARENA_ALIGN, AlignedBytes, ArenaBlock, MethodMemory};

/// Memory that models use in turn.
pub struct Memory<'a> {
    /// For tables and copied constants.
    pub arena: &'a mut [MaybeUninit<u8>],
    /// For the first planned buffer: activations.
    pub planned: &'a mut [u8],
    /// For the other planned buffers, such as state. May be in another RAM.
    pub second: &'a mut [u8],
    /// Scratch memory of kernels.
    pub scratch: &'a mut [u8],
}

/// Sizes of the memory that a method is lent.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) arena: usize,
    pub(crate) planned: &'static [usize],
    /// Bytes by which the last planned buffer is too small.
    pub(crate) missing: usize,
    pub(crate) scratch: usize,
}

impl Sizes {
    /// The sizes that the model requires.
    pub(crate) fn of(model: &Model) -> Self {
        let Model { arena, planned, scratch, .. } = *model;
        Sizes { arena, planned, missing: 0, scratch }
    }
}

/// Maximum number of planned buffers of a model here.
const MAX_BUFFERS: usize = 4;

impl Memory<'_> {
    /// Lends memory of these sizes, clamped to the available memory.
    pub(crate) fn lend<'m, R>(
        &'m mut self,
        sizes: &Sizes,
        to: impl FnOnce(MethodMemory<'m, '_>) -> R,
    ) -> R {
        let mut buffers: [&'m mut [u8]; MAX_BUFFERS] = core::array::from_fn(|_| Default::default());
        let (mut free, mut second) = (&mut *self.planned, Some(&mut *self.second));
        let last = sizes.planned.len().saturating_sub(1);
        for (index, (buffer, size)) in buffers.iter_mut().zip(sizes.planned).enumerate() {
            let whole = free.len().min(size.next_multiple_of(ARENA_ALIGN));
            let (first, rest) = core::mem::take(&mut free).split_at_mut(whole);
            let missing = if index == last { sizes.missing } else { 0 };
            let exact = first.len().min(size.saturating_sub(missing));
            *buffer = &mut first[..exact];
            free = second.take().unwrap_or(rest);
        }
        let (arena, scratch) =
            (self.arena.len().min(sizes.arena), self.scratch.len().min(sizes.scratch));
        to(MethodMemory {
            arena: &mut self.arena[..arena],
            planned: &mut buffers[..sizes.planned.len()],
            scratch: &mut self.scratch[..scratch],
        })
    }

    /// Memory for a model with the whole arena, and the rest of the planned memory.
    pub(crate) fn with_rest(&mut self, model: &Model) -> (Memory<'_>, &mut [u8]) {
        let first = self.planned.len().min(model.planned_bytes());
        let (planned, rest) = self.planned.split_at_mut(first);
        let Memory { arena, second, scratch, .. } = self;
        (Memory { arena, planned, second, scratch }, rest)
    }
}

/// Static memory of fixed sizes: arena in units of its alignment, planned buffers, and scratch
/// memory.
pub struct Room<
    const BLOCKS: usize,
    const PLANNED: usize,
    const SECOND: usize,
    const SCRATCH: usize,
> {
    arena: [ArenaBlock; BLOCKS],
    planned: AlignedBytes<[u8; PLANNED]>,
    second: AlignedBytes<[u8; SECOND]>,
    scratch: AlignedBytes<[u8; SCRATCH]>,
}

impl<const BLOCKS: usize, const PLANNED: usize, const SECOND: usize, const SCRATCH: usize>
    Room<BLOCKS, PLANNED, SECOND, SCRATCH>
{
    /// Zeroed memory.
    #[allow(clippy::new_without_default, reason = "statics require a const function")]
    pub const fn new() -> Self {
        Room {
            arena: [ArenaBlock::UNINIT; BLOCKS],
            planned: AlignedBytes([0; PLANNED]),
            second: AlignedBytes([0; SECOND]),
            scratch: AlignedBytes([0; SCRATCH]),
        }
    }

    /// All of the memory.
    pub fn memory(&mut self) -> Memory<'_> {
        Memory {
            arena: ArenaBlock::bytes(&mut self.arena),
            planned: &mut self.planned.0,
            second: &mut self.second.0,
            scratch: &mut self.scratch.0,
        }
    }
}
