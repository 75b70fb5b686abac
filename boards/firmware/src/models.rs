//! Description of a model.

use torchlet::core::{ARENA_ALIGN, Kernel};

/// A model, its input and its memory requirements.
pub struct Model {
    /// Name in the log.
    pub name: &'static str,
    /// The program, aligned for its weights.
    pub program: &'static [u8],
    /// The kernels that it calls, sorted by name.
    pub kernels: &'static [Kernel],
    /// Size of its arena in bytes.
    pub arena: usize,
    /// Sizes of its planned buffers in bytes.
    pub planned: &'static [usize],
    /// Size of its scratch memory in bytes.
    pub scratch: usize,
    /// The data of its only input.
    pub input: &'static [u8],
    /// Number of runs before its output is checked.
    pub runs: usize,
    /// Copies of its program with flipped bits.
    pub damaged: &'static [&'static [u8]],
}

impl Model {
    /// Size of its first planned buffer, rounded up to the arena alignment.
    pub const fn planned_bytes(&self) -> usize {
        match self.planned {
            [first, ..] => first.next_multiple_of(ARENA_ALIGN),
            [] => 0,
        }
    }

    /// Total size of its other planned buffers, each rounded up to the arena alignment.
    pub const fn second_bytes(&self) -> usize {
        let (mut bytes, mut index) = (0, 1);
        while index < self.planned.len() {
            bytes += self.planned[index].next_multiple_of(ARENA_ALIGN);
            index += 1;
        }
        bytes
    }
}
