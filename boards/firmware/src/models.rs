//! The models of the image.

use torchlet::core::Kernel;

/// A model, its input, and what it takes.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) program: &'static [u8],
    pub(crate) kernels: &'static [Kernel],
    /// Bytes of its arena.
    pub(crate) arena: usize,
    /// Bytes of its planned buffers.
    pub(crate) planned: &'static [usize],
    /// Bytes of its scratch memory.
    pub(crate) scratch: usize,
    /// The elements of its only input.
    pub(crate) input: &'static [u8],
    /// How often it runs before its output is looked at.
    pub(crate) runs: usize,
}

impl Model {
    /// Bytes of planned memory, with each buffer aligned.
    pub(crate) const fn planned_bytes(&self) -> usize {
        let (mut bytes, mut index) = (0usize, 0);
        while index < self.planned.len() {
            bytes += self.planned[index].next_multiple_of(16);
            index += 1;
        }
        bytes
    }
}

/// The entry of a module that the build script wrote.
macro_rules! model {
    ($module:ident, $runs:literal, $input:literal) => {
        Model {
            name: stringify!($module),
            program: $module::PROGRAM,
            kernels: &$module::KERNELS,
            arena: $module::forward::ARENA,
            planned: &$module::forward::PLANNED,
            scratch: $module::forward::SCRATCH,
            input: include_bytes!($input),
            runs: $runs,
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/models.rs"));
