//! Limits on the resources that a file may request.

use crate::error::InitError;
use core::fmt;

/// Upper bounds on the resources that a program may request. A malicious file can describe any
/// amount of work and memory. Exceeding a limit fails before the work is done, with an error that
/// names the limit.
///
/// [`HOST`](Limits::HOST) is far above the needs of real programs on machines with an operating
/// system; [`FIRMWARE`](Limits::FIRMWARE) suits microcontrollers. The default depends on the
/// feature `std`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Limits {
    /// Size of the program file in bytes.
    pub file_bytes: u64,
    /// Number of values of a method.
    pub values: u64,
    /// Number of list items. Each list counts once for every call that has it as an argument, every
    /// move and every output. A string counts one item per 16 bytes.
    pub list_items: u64,
    /// Number of instructions of a method.
    pub instructions: u64,
    /// Number of entries in a method's operator table.
    pub operators: u64,
    /// Number of delegates of a method.
    pub delegates: u64,
    /// Number of tensors among the arguments of one call, including those in lists.
    pub call_tensors: u64,
    /// Total size of a method's planned buffers in bytes. Also bounds the total size of its planned
    /// state tensors, which may overlap.
    pub planned_bytes: u64,
    /// Total size of a method's constant tensors in bytes, excluding those of delegates.
    pub constant_bytes: u64,
    /// Number of name comparisons for external data: tensors to look up times names in the data
    /// files. Names longer than 64 bytes count several times.
    pub name_lookups: u64,
    /// Number of backward jumps in one run. Stops programs that do not terminate; with an operating
    /// system, a loop that does nothing else is stopped within seconds. Exported loops jump once
    /// for each step of a sequence.
    pub backward_jumps: u64,
}

impl Limits {
    /// Limits for machines with an operating system.
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

    /// Limits for microcontrollers.
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

/// Identifies one of the [`Limits`].
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
    /// Value of a limit.
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
    /// Fails if a method exceeds a limit.
    pub(crate) fn check(&self, limit: Limit, found: u64) -> Result<(), InitError> {
        Budget::new(self, limit).take(found)
    }
}

/// Running total of a limited resource.
pub(crate) struct Budget {
    limit: Limit,
    used: u64,
    allowed: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits, limit: Limit) -> Self {
        Budget { limit, used: 0, allowed: limits.of(limit) }
    }

    /// Adds to the total; fails if it exceeds the limit.
    #[inline(never)]
    pub(crate) fn take(&mut self, more: u64) -> Result<(), InitError> {
        self.used = self.used.saturating_add(more);
        if self.used > self.allowed {
            let Budget { limit, used: found, allowed } = *self;
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
