//! Preparation of a method: resolves and checks its tables, and computes its memory needs.
//!
//! This is the only path from a file to a method. [`resolve`](super::resolve) and
//! [`calls`](super::calls) are its two longest steps. Preparing makes all decisions;
//! [finishing](super::finish) carries them out with the requested memory, so the reported needs
//! always match what loading uses.

use super::tables::{Counts, TableUse, Tables, cell_layout};
use super::{Instruction, LoadOptions, Method, MethodMemory};
use crate::error::{InitError, MemoryKind, Message};
use crate::file_tensor::tensor_name;
use crate::format::Part;
use crate::limits::{Budget, Limit, Limits};
use crate::location::{lend_aligned, locate};
use crate::machine::PointerWidth;
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::ArenaSize;
use crate::memory::region::Region;
use crate::memory::slot::{Data, StorageKind, UNPLANNED_STATE_BUFFER};
use crate::meta::{MethodMeta, to_index};
use crate::program::Program;
use crate::registry::Registry;
use crate::runtime_features::{RuntimeFeatures, UNSUPPORTED_BY_IMAGE, has};
use crate::tracer::{Event, EventKind, traced};
use crate::value::Value;
use crate::values::flag;
use core::mem::MaybeUninit;

/// Exact memory needs of a method, besides its planned buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct MemoryNeeds {
    /// Bytes of the tables, a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN).
    pub tables: usize,
    /// Bytes of the method arena: delegates, copied constants, packed weights.
    pub arena: usize,
    /// Bytes of scratch memory.
    pub scratch: usize,
}

impl MemoryNeeds {
    /// Bytes of a combined arena for tables and everything else, as
    /// [`Program::load_method`](crate::Program::load_method) needs it.
    pub fn whole_arena(&self) -> usize {
        // Saturates on overflow: no arena is that large.
        self.tables.saturating_add(self.arena)
    }
}

/// Breakdown of a method's memory, for size reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct ArenaUse {
    /// Planned buffer descriptors and values. Lists stay in the file, and so do scalars unless they
    /// can change.
    pub values: usize,
    /// Tensor descriptors: shape, layout, data location.
    pub tensors: usize,
    /// Instructions.
    pub instructions: usize,
    /// Delegates: their table entries, the memory they allocate, and padding of the tables to a
    /// multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN).
    pub delegates: usize,
    /// Constants that were copied out of the file.
    pub constants: usize,
    /// Weights packed by kernels.
    pub packed: usize,
}

/// A resolved and checked method, before its memory is allocated.
///
/// ```text
/// let mut tables = ...;                       // meta.table_bytes() bytes
/// let prepared = meta.prepare(&mut tables, &registry, options)?;
/// let needs = prepared.needs();               // exact: nothing was reserved so far
/// let method = prepared.finish(memory)?;
/// ```
pub struct Prepared<'m> {
    pub(super) meta: MethodMeta<'m>,
    pub(super) tables: Tables<'m>,
    pub(super) options: LoadOptions<'m>,
    pub(super) registry: Registry<'m>,
    counts: Counts,
    /// Size calculation of the method arena.
    pub(super) arena: ArenaSize,
    /// Sizes of the arena after the delegates, and after the constants.
    delegates_end: usize,
    constants_end: usize,
    pub(super) scratch: usize,
    pub(super) steps: u64,
}

impl<'p> Program<'p> {
    /// Loads a method into the caller's memory: [prepares](MethodMeta::prepare) it at the start of
    /// the arena, and [finishes](crate::Prepared::finish) it with the rest.
    ///
    /// # Errors
    /// The problem with the method or the memory, and its location.
    pub fn load_method(
        &self,
        name: &str,
        registry: &Registry<'p>,
        memory: MethodMemory<'p, '_>,
        options: LoadOptions<'p>,
    ) -> Result<Method<'p>, InitError> {
        self.method_meta(name)?.load(registry, memory, options)
    }
}

impl<'m> MethodMeta<'m> {
    /// Bytes of memory that [`prepare`](Self::prepare) needs for the method's tables.
    ///
    /// # Errors
    /// The file is malformed, or exceeds the limits.
    pub fn table_bytes(&self, limits: &Limits) -> Result<usize, InitError> {
        Ok(self.table_use(limits, PointerWidth::TARGET)?.total())
    }

    /// Sizes of the method's tables on a machine with this pointer width, which may differ from
    /// this one.
    ///
    /// # Errors
    /// As [`table_bytes`](Self::table_bytes).
    pub fn table_use(&self, limits: &Limits, width: PointerWidth) -> Result<TableUse, InitError> {
        self.counts(limits)?.table_use(width).ok_or(InitError::TooLarge)
    }

    /// Decodes the method into tables, resolves and checks it, and computes its memory needs.
    ///
    /// `tables` must start at a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes and have a
    /// length of [`table_bytes`](Self::table_bytes).
    ///
    /// # Errors
    /// The problem with the method, and its location.
    pub fn prepare(
        &self,
        tables: &'m mut [MaybeUninit<u8>],
        registry: &Registry<'m>,
        options: LoadOptions<'m>,
    ) -> Result<Prepared<'m>, InitError> {
        let counts = self.counts(&options.limits)?;
        self.check_missing(registry)?;
        self.prepare_counted(&counts, tables, registry, options)
    }

    #[inline(never)]
    fn prepare_counted(
        &self,
        counts: &Counts,
        tables: &'m mut [MaybeUninit<u8>],
        registry: &Registry<'m>,
        options: LoadOptions<'m>,
    ) -> Result<Prepared<'m>, InitError> {
        let width = options.machine.pointer_width();
        counts.table_use(width).ok_or(InitError::TooLarge)?;
        let mut prepared = Prepared {
            meta: *self,
            tables: Tables::decode(self, counts, tables)?,
            options,
            registry: *registry,
            counts: *counts,
            arena: ArenaSize::new(),
            delegates_end: 0,
            constants_end: 0,
            scratch: 0,
            // One step for each value.
            steps: counts.values as u64,
        };
        prepared.resolve_all()?;
        Ok(prepared)
    }

    /// Fails if operators or backends are not registered. The error contains their names, as far as
    /// they fit.
    #[inline(never)]
    fn check_missing(&self, registry: &Registry<'_>) -> Result<(), InitError> {
        let missing = self.missing(registry);
        let (operators, backends) = (missing.operators().count(), missing.backends().count());
        if operators == 0 && backends == 0 {
            return Ok(());
        }
        let names = Message::new(format_args!("{missing}"));
        Err(InitError::Missing { operators, backends, names })
    }

    pub(crate) fn load(
        &self,
        registry: &Registry<'m>,
        memory: MethodMemory<'m, '_>,
        options: LoadOptions<'m>,
    ) -> Result<Method<'m>, InitError> {
        let event = Event { kind: EventKind::Load, name: self.name(), instruction: 0 };
        traced(options.tracer, &event, || {
            crate::log::debug!("loading method {}", self.name());
            let counts = self.counts(&options.limits)?;
            self.check_missing(registry)?;
            let table_use = counts.table_use(PointerWidth::TARGET).ok_or(InitError::TooLarge)?;
            let (needed, available) = (table_use.total(), memory.arena.len());
            let (tables, arena) =
                memory.arena.split_at_mut_checked(needed).ok_or(InitError::MemoryTooSmall {
                    memory: MemoryKind::Tables,
                    needed,
                    available,
                })?;
            let prepared = self.prepare_counted(&counts, tables, registry, options)?;
            let whole = prepared.needs().whole_arena();
            if whole > available {
                let memory = MemoryKind::Arena;
                return Err(InitError::MemoryTooSmall { memory, needed: whole, available });
            }
            prepared.finish(MethodMemory { arena, ..memory })
        })
    }
}

impl<'m> Prepared<'m> {
    /// Description of the method in its program.
    pub fn meta(&self) -> &MethodMeta<'m> {
        &self.meta
    }

    /// Exact memory needs on the [machine](LoadOptions::machine) that the method is prepared for,
    /// besides the planned buffers ([`MethodMeta::planned_buffer_size`]). The needs of delegates
    /// are always those on this machine.
    pub fn needs(&self) -> MemoryNeeds {
        let (tables, arena) = (self.table_use().total(), self.arena_bytes());
        MemoryNeeds { tables, arena, scratch: self.scratch }
    }

    /// Sizes of the tables. Cannot fail, since the tables exist.
    fn table_use(&self) -> TableUse {
        self.counts.table_use(self.options.machine.pointer_width()).unwrap_or_default()
    }

    /// Bytes of the method arena. Cannot overflow in a prepared method: `resolve_all` checks that.
    fn arena_bytes(&self) -> usize {
        self.arena.total().unwrap_or(usize::MAX)
    }

    /// Breakdown of tables and arena.
    pub fn arena_use(&self) -> ArenaUse {
        let TableUse { values, tensors, instructions, delegates } = self.table_use();
        let (cell, _) = cell_layout(self.options.machine.pointer_width());
        let cells = self.tables.values.cell_count().saturating_mul(cell);
        ArenaUse {
            values: values.saturating_add(cells),
            tensors,
            instructions,
            delegates: delegates.saturating_add(self.delegates_end),
            constants: self.constants_end.saturating_sub(self.delegates_end),
            packed: self.arena_bytes().saturating_sub(self.constants_end).saturating_sub(cells),
        }
    }

    /// Runtime features that the method uses. A firmware [image](RuntimeFeatures) must include all
    /// of them to load it.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn uses(&self) -> Result<RuntimeFeatures, InitError> {
        let mut uses = RuntimeFeatures::NONE;
        let Tables { values, instructions, delegates, .. } = &self.tables;
        if !delegates.is_empty() {
            uses = uses.union(RuntimeFeatures::DELEGATES);
        }
        if values.first_variable().is_some() {
            uses = uses.union(RuntimeFeatures::VARIABLE);
        }
        for (value, _) in values.iter() {
            uses = uses.union(match value {
                Value::String(_) => RuntimeFeatures::STRINGS,
                Value::Double(_) => RuntimeFeatures::FLOAT_SCALARS,
                Value::IntList(_) | Value::DoubleList(_) | Value::BoolList(_) => {
                    RuntimeFeatures::NUMERIC_LISTS
                }
                Value::TensorList(..) => RuntimeFeatures::TENSOR_LISTS,
                Value::Tensor(slot) => match values.tensor(slot).map(|tensor| tensor.data()) {
                    Some(Data::Planned { buffer: UNPLANNED_STATE_BUFFER, .. }) => {
                        RuntimeFeatures::UNPLANNED_STATE
                    }
                    _ => RuntimeFeatures::NONE,
                },
                _ => RuntimeFeatures::NONE,
            });
        }
        for instruction in instructions.iter() {
            uses = uses.union(match instruction {
                Instruction::Kernel(call) => call.uses(),
                Instruction::Delegate { .. } => RuntimeFeatures::DELEGATES,
                Instruction::Move { .. } | Instruction::JumpFalse { .. } => {
                    RuntimeFeatures::CONTROL
                }
                Instruction::Nop => RuntimeFeatures::NONE,
            });
        }
        let mut tensors = self.meta.tensors()?;
        while let Some(value) = tensors.next()? {
            if let Some(extra) = value.tensor.extra_tensor_info()?
                && extra.location()? == 1
            {
                uses = uses.union(RuntimeFeatures::EXTERNAL_DATA);
            }
        }
        Ok(uses)
    }

    /// Work done to prepare the method, in loop iterations over items of the file. A test checks
    /// that it is proportional to the file size, whatever the file contains.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

impl core::fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Prepared({}, {:?})", self.meta.name(), self.needs())
    }
}

/// Steps of preparation; each adds to the results of the previous ones.
impl<'m> Prepared<'m> {
    fn resolve_all(&mut self) -> Result<(), InitError> {
        self.delegate_needs()?;
        self.delegates_end = self.arena.total().ok_or(InitError::TooLarge)?;
        self.check_interface()?;
        self.resolve_instructions()?;
        self.locate_tensors()?;
        self.constants_end = self.arena.total().ok_or(InitError::TooLarge)?;
        if !has(RuntimeFeatures::VARIABLE)
            && let Some(index) = self.tables.values.first_variable()
        {
            return Err(InitError::Value { index, what: UNSUPPORTED_BY_IMAGE });
        }
        self.resolve_views();
        self.prepare_calls()?;
        let cell = cell_layout(self.options.machine.pointer_width());
        self.arena.add_items(cell, self.tables.values.cell_count());
        self.state_bytes()?;
        self.arena.total().ok_or(InitError::TooLarge)?;
        Ok(())
    }

    /// Asks backends for the memory needs of their delegates.
    fn delegate_needs(&mut self) -> Result<(), InitError> {
        if !has(RuntimeFeatures::DELEGATES) {
            return Ok(());
        }
        for index in 0..self.tables.delegates.len() {
            let info = self.meta.delegate_info(index, self.options.data)?;
            let backend = self.registry.backend(info.backend).ok_or(Part::Delegate.at(index))?;
            let bytes = backend.arena_bytes(&info).map_err(|source| InitError::Delegate {
                index,
                backend: backend.name(),
                source,
            })?;
            self.arena.add_bytes(bytes, ARENA_ALIGN);
            if info.processed.lend().is_none() {
                self.scratch = self.scratch.max(info.processed.size());
            }
        }
        Ok(())
    }

    /// Locates the data of every tensor.
    fn locate_tensors(&mut self) -> Result<(), InitError> {
        let limits = &self.options.limits;
        let names = self.options.data.iter();
        let names = names.fold(0u64, |sum, map| sum.saturating_add(map.name_count() as u64));
        let mut lookups = Budget::new(limits, Limit::NameLookups);
        let mut constant_bytes = Budget::new(limits, Limit::ConstantBytes);
        let mut unplanned_bytes = 0usize;
        if has(RuntimeFeatures::UNPLANNED_STATE) {
            self.tables.state_views(&self.meta, &mut lookups)?;
        }
        let mut tensors = self.meta.tensors()?;
        while let Some(value) = tensors.next()? {
            let index = value.index;
            let name = tensor_name(&value.tensor)?;
            if has(RuntimeFeatures::EXTERNAL_DATA) && value.tensor.extra_tensor_info()?.is_some() {
                // Comparing long names costs more.
                let weight = 1 + name.map_or(0, str::len) as u64 / 64;
                lookups.take(names.saturating_mul(weight))?;
            }
            let values = &mut self.tables.values;
            let tensor = values.tensor(value.slot).ok_or(Part::Value.at(index))?;
            let capacity = tensor.capacity();
            let location = locate(&self.meta, self.options.data, value, &tensor)?;
            let is_written =
                has(RuntimeFeatures::UNPLANNED_STATE) && values.has(index, flag::STATE);
            let target = values.tensor_mut(value.slot).ok_or(Part::Value.at(index))?;
            let mut state = name.is_some();
            match (location.planned, location.stored) {
                (None, Some(_)) if matches!(target.storage_kind(), StorageKind::View(_)) => {
                    state = false
                }
                (None, Some(_)) if is_written => {
                    target.set_planned(UNPLANNED_STATE_BUFFER, unplanned_bytes);
                    self.arena.add_bytes(capacity, ARENA_ALIGN);
                    let end = unplanned_bytes.checked_add(capacity);
                    let end = end.and_then(|end| end.checked_next_multiple_of(ARENA_ALIGN));
                    unplanned_bytes = end.ok_or(InitError::TooLarge)?;
                }
                (None, Some(blob)) => {
                    target.set_constant();
                    constant_bytes.take(capacity as u64)?;
                    match lend_aligned(&blob, target.alignment()) {
                        Some(bytes) => target.set_data(Some(Region::read_only(bytes))),
                        None => self.arena.add_bytes(capacity, ARENA_ALIGN),
                    }
                    state = false;
                }
                (Some((buffer, offset)), stored) => {
                    let buffer = u16::try_from(buffer)
                        .ok()
                        .filter(|buffer| *buffer != UNPLANNED_STATE_BUFFER);
                    let buffer = buffer.ok_or(InitError::TooLarge)?;
                    target.set_planned(buffer, offset);
                    state |= stored.is_some();
                }
                (None, None) => {}
            }
            if state {
                self.tables.values.mark(index, flag::STATE);
            }
        }
        Ok(())
    }

    /// Checks the indices of inputs and outputs, and marks scalars that the caller can set.
    fn check_interface(&mut self) -> Result<(), InitError> {
        let inputs = self.meta.plan.inputs()?;
        let outputs = self.meta.plan.outputs()?;
        let max_entries = self.meta.program.flatbuffer_size() / 4;
        if inputs.len().saturating_add(outputs.len()) > max_entries {
            return Err(Part::Shared.at(0).into());
        }
        for (position, index) in inputs.iter().enumerate() {
            let index = to_index(index?, Part::Input.at(position))?;
            let values = &mut self.tables.values;
            if index >= values.len() {
                return Err(Part::Input.at(position).into());
            }
            let scalar = if values.slot(index).is_some() { 0 } else { flag::VARIABLE };
            values.mark(index, flag::INTERFACE | flag::WRITTEN | scalar);
        }
        for (position, index) in outputs.iter().enumerate() {
            let index = to_index(index?, Part::Output.at(position))?;
            if index >= self.tables.values.len() {
                return Err(Part::Output.at(position).into());
            }
            self.tables.values.mark(index, flag::INTERFACE);
        }
        Ok(())
    }
}
