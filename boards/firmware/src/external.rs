//! Programs in storage that is not memory-mapped, such as SPI flash. Loading a method copies their
//! weights to the arena.

use crate::infer::{self, log_outputs, set_input};
use crate::memory::{Memory, Sizes};
use crate::models::Model;
use crate::{Failed, checked};
use core::sync::atomic::{AtomicU32, Ordering};
use torchlet::core::{DataLoader, LoadOptions, Method, Program, ReadError};
use torchlet::firmware::Error;

/// Simulated flash that can fail.
pub(crate) struct Flash {
    bytes: &'static [u8],
    /// Whether it is memory-mapped, so that data can be used in place.
    lends: bool,
    /// Number of reads before the first failure.
    left: AtomicU32,
}

impl Flash {
    pub(crate) fn new(bytes: &'static [u8], lends: bool, reads: u32) -> Self {
        Flash { bytes, lends, left: AtomicU32::new(reads) }
    }

    /// Counts a read. A load and a store suffice, because nothing else runs.
    fn count_read(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    fn part(&self, offset: u64, len: usize) -> Option<&'static [u8]> {
        let start = usize::try_from(offset).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

impl DataLoader for Flash {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let from = self.part(offset, into.len()).filter(|_| self.count_read());
        into.copy_from_slice(from.ok_or(ReadError { offset, len: into.len() })?);
        Ok(())
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.part(offset, len).filter(|_| self.lends)
    }
}

/// Whether the program's constants fit in the arena, and the rest of the program after the planned
/// buffers.
pub(crate) fn has_room(model: &Model, memory: &Memory) -> bool {
    // Neither needs the whole program, but neither needs much less than half.
    let program = model.program.len();
    memory.arena.len() >= model.arena + program
        && memory.planned.len() >= model.planned_bytes() + program
}

/// Loads a model from flash, sets its input and calls a function with it.
pub(crate) fn with<R>(
    model: &Model,
    flash: &Flash,
    memory: &mut Memory<'_>,
    then: impl FnOnce(&mut Method<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let (mut memory, rest) = memory.with_rest(model);
    let program = match flash.lends {
        true => Program::load(flash)?,
        false => Program::load_into(flash, rest)?,
    };
    let sizes = Sizes { arena: memory.arena.len(), ..Sizes::of(model) };
    infer::with(model, &program, (&mut memory, sizes), LoadOptions::default(), |method| {
        set_input(model, &mut method.attached())?;
        then(method)
    })
}

/// Runs a model whose weights are read from flash, and logs its outputs.
pub(crate) fn all(model: &Model, memory: &mut Memory<'_>) -> Result<(), Failed> {
    if !has_room(model, memory) {
        return Ok(());
    }
    let flash = Flash::new(model.program, false, u32::MAX);
    checked(with(model, &flash, memory, |method| {
        method.execute()?;
        log_outputs(model.name, " external", method)
    }))
}
