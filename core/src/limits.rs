//! How much a file may ask for.

use crate::error::InitError;
use core::fmt;

/// Upper bounds on what a program may ask of the runtime. A malicious file can describe any amount
/// of work and memory; what exceeds a limit is refused with an error that names it, before the work
/// is done.
///
/// [`HOST`](Limits::HOST) is far beyond what real programs take on machines with an operating
/// system, [`FIRMWARE`](Limits::FIRMWARE) what fits microcontrollers; the default is the one for
/// the build (`std` or not).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the program file.
    pub file_bytes: u64,
    /// Values of a method.
    pub values: u64,
    /// Items of lists, each list counted once for each call that it is an argument of, each move
    /// and each output. Sixteen bytes of a text count for one.
    pub list_items: u64,
    /// Instructions of a method.
    pub instructions: u64,
    /// Entries in a method's table of operators.
    pub operators: u64,
    /// Delegates of a method.
    pub delegates: u64,
    /// Tensors among the arguments of one call, those in lists included.
    pub call_tensors: u64,
    /// Bytes of all planned buffers of a method; the same for all tensors of its state there, which
    /// may overlap.
    pub planned_bytes: u64,
    /// Bytes of a method's constant tensors, those of delegates not counted.
    pub constant_bytes: u64,
    /// Comparisons of names while looking for external data: tensors to be found times names in the
    /// data files. One of more than 64 bytes counts for several.
    pub name_lookups: u64,
    /// Backward jumps in one run: a program without end fails there, on machines with an operating
    /// system within seconds where its loop does nothing else. Loops of exporters have one for each
    /// step of a sequence.
    pub backward_jumps: u64,
}

impl Limits {
    /// For machines with an operating system.
    pub const HOST: Limits = Limits {
        file_bytes: 1 << 40,
        values: 1 << 22,
        list_items: 1 << 24,
        instructions: 1 << 22,
        operators: 1 << 16,
        delegates: 1 << 14,
        call_tensors: 1 << 13,
        planned_bytes: 1 << 34,
        constant_bytes: 1 << 40,
        name_lookups: 1 << 26,
        backward_jumps: 1_000_000,
    };

    /// For microcontrollers.
    pub const FIRMWARE: Limits = Limits {
        file_bytes: 1 << 26,
        values: 1 << 14,
        list_items: 1 << 15,
        instructions: 1 << 13,
        operators: 1 << 10,
        delegates: 1 << 6,
        call_tensors: 1 << 8,
        planned_bytes: 1 << 26,
        constant_bytes: 1 << 26,
        name_lookups: 1 << 18,
        backward_jumps: 100_000,
    };
}

impl Default for Limits {
    fn default() -> Self {
        if cfg!(feature = "std") { Limits::HOST } else { Limits::FIRMWARE }
    }
}

/// One of the [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::file_bytes`].
    FileBytes,
    /// [`Limits::values`].
    Values,
    /// [`Limits::list_items`].
    ListItems,
    /// [`Limits::instructions`].
    Instructions,
    /// [`Limits::operators`].
    Operators,
    /// [`Limits::delegates`].
    Delegates,
    /// [`Limits::call_tensors`].
    CallTensors,
    /// [`Limits::planned_bytes`].
    PlannedBytes,
    /// [`Limits::constant_bytes`].
    ConstantBytes,
    /// [`Limits::name_lookups`].
    NameLookups,
}

impl Limits {
    /// The number that this limit allows.
    pub fn of(&self, limit: Limit) -> u64 {
        match limit {
            Limit::FileBytes => self.file_bytes,
            Limit::Values => self.values,
            Limit::ListItems => self.list_items,
            Limit::Instructions => self.instructions,
            Limit::Operators => self.operators,
            Limit::Delegates => self.delegates,
            Limit::CallTensors => self.call_tensors,
            Limit::PlannedBytes => self.planned_bytes,
            Limit::ConstantBytes => self.constant_bytes,
            Limit::NameLookups => self.name_lookups,
        }
    }
}

impl Limits {
    /// Fails if a method asks for more than it may.
    pub(crate) fn check(&self, limit: Limit, found: u64) -> Result<(), InitError> {
        Budget::new(self, limit).take(found)
    }
}

/// What a method may ask for of one kind, and what it asked for so far.
pub(crate) struct Budget {
    limit: Limit,
    taken: u64,
    allowed: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits, limit: Limit) -> Self {
        Budget { limit, taken: 0, allowed: limits.of(limit) }
    }

    /// Fails if the method asks for more than it may, with so many more.
    #[inline(never)]
    pub(crate) fn take(&mut self, more: u64) -> Result<(), InitError> {
        self.taken = self.taken.saturating_add(more);
        if self.taken > self.allowed {
            let Budget { limit, taken: found, allowed } = *self;
            return Err(InitError::Limit { limit, found, allowed });
        }
        Ok(())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::FileBytes => "file_bytes",
            Limit::Values => "values",
            Limit::ListItems => "list_items",
            Limit::Instructions => "instructions",
            Limit::Operators => "operators",
            Limit::Delegates => "delegates",
            Limit::CallTensors => "call_tensors",
            Limit::PlannedBytes => "planned_bytes",
            Limit::ConstantBytes => "constant_bytes",
            Limit::NameLookups => "name_lookups",
        })
    }
}
