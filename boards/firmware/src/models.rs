//! What there is to know of a model.

use torchlet::core::{ARENA_ALIGN, Kernel};

/// A model, its input, and what it takes.
pub struct Model {
    /// What it is called in the log.
    pub name: &'static str,
    /// The program, aligned for its weights.
    pub program: &'static [u8],
    /// The kernels that it calls, sorted by name.
    pub kernels: &'static [Kernel],
    /// Bytes of its arena.
    pub arena: usize,
    /// Bytes of its planned buffers.
    pub planned: &'static [usize],
    /// Bytes of its scratch memory.
    pub scratch: usize,
    /// The elements of its only input.
    pub input: &'static [u8],
    /// How often it runs before its output is looked at.
    pub runs: usize,
    /// Its program with bytes flipped, as flash may be.
    pub damaged: &'static [&'static [u8]],
}

impl Model {
    /// Bytes of its first planned buffer, up to where another one could start.
    pub const fn planned_bytes(&self) -> usize {
        match self.planned {
            [first, ..] => first.next_multiple_of(ARENA_ALIGN),
            [] => 0,
        }
    }

    /// Bytes of its other planned buffers, each up to where the next one starts.
    pub const fn second_bytes(&self) -> usize {
        let (mut bytes, mut index) = (0, 1);
        while index < self.planned.len() {
            bytes += self.planned[index].next_multiple_of(ARENA_ALIGN);
            index += 1;
        }
        bytes
    }
}
