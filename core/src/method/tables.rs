//! A method's tables: values, tensors and instructions, decoded once from the file into caller
//! memory.

use super::Instruction;
use crate::backend::DelegateBox;
use crate::error::{InitError, MemoryKind};
use crate::file_tensor::{is_constant, tensor_name};
use crate::format::program_schema::EValue;
use crate::format::{Malformed, Part};
use crate::layout::ShapeDynamism;
use crate::limits::{Budget, Limit, Limits};
use crate::machine::PointerWidth;
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::{Arena, ArenaSize, Exhausted};
use crate::memory::region::Region;
use crate::memory::slot::TensorSlot;
use crate::meta::MethodMeta;
use crate::registry::OperatorName;
use crate::runtime_features::{RuntimeFeatures, UNSUPPORTED_BY_IMAGE, has};
use crate::value::Value;
use crate::values::{Entry, Values, flag};
use core::mem::MaybeUninit;

/// Size and alignment of each table's entries.
struct EntryLayouts {
    region: (usize, usize),
    entry: (usize, usize),
    cell: (usize, usize),
    tensor: (usize, usize),
    instruction: (usize, usize),
    delegate: (usize, usize),
}

const fn layout<T>() -> (usize, usize) {
    (size_of::<T>(), align_of::<T>())
}

impl EntryLayouts {
    const HERE: Self = EntryLayouts {
        region: layout::<Region<'_>>(),
        entry: layout::<Entry>(),
        cell: layout::<Value<'_>>(),
        tensor: layout::<TensorSlot<'_>>(),
        instruction: layout::<Instruction<'_>>(),
        delegate: layout::<Option<DelegateBox<'_>>>(),
    };

    const BITS32: Self = EntryLayouts {
        region: (12, 4),
        entry: (4, 4),
        cell: (12, 4),
        tensor: (20, 4),
        instruction: (36, 4),
        delegate: (8, 4),
    };

    const BITS64: Self = EntryLayouts {
        region: (24, 8),
        entry: (8, 8),
        cell: (24, 8),
        tensor: (32, 8),
        instruction: (72, 8),
        delegate: (16, 8),
    };

    const fn of(width: PointerWidth) -> Self {
        match width {
            PointerWidth::Bits32 => Self::BITS32,
            PointerWidth::Bits64 => Self::BITS64,
        }
    }
}

/// Checks the table sizes of the compilation target, so the sizes for other pointer widths are
/// verified whenever such a target is compiled.
const _: () = {
    let (here, declared) = (EntryLayouts::HERE, EntryLayouts::of(PointerWidth::TARGET));
    assert!(here.region.0 == declared.region.0 && here.region.1 == declared.region.1);
    assert!(here.entry.0 == declared.entry.0 && here.entry.1 == declared.entry.1);
    assert!(here.cell.0 == declared.cell.0 && here.cell.1 == declared.cell.1);
    assert!(here.tensor.0 == declared.tensor.0 && here.tensor.1 == declared.tensor.1);
    assert!(
        here.instruction.0 == declared.instruction.0
            && here.instruction.1 == declared.instruction.1
    );
    assert!(here.delegate.0 == declared.delegate.0 && here.delegate.1 == declared.delegate.1);
};

/// Size and alignment of the cell of a mutable value.
pub(super) const fn cell_layout(width: PointerWidth) -> (usize, usize) {
    EntryLayouts::of(width).cell
}

/// Number of entries in each table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    planned: usize,
    pub(super) values: usize,
    tensors: usize,
    /// Number of entries for dynamic shapes.
    shapes: usize,
    instructions: usize,
    delegates: usize,
}

/// Sizes of a method's tables in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct TableUse {
    /// Planned buffer descriptors and values. Lists stay in the file.
    pub values: usize,
    /// Tensor descriptors: shape, layout, data location.
    pub tensors: usize,
    /// Instructions.
    pub instructions: usize,
    /// Delegate entries, and padding to a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN).
    pub delegates: usize,
}

impl TableUse {
    /// Total size: a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN), so that an arena can follow.
    pub fn total(&self) -> usize {
        self.values + self.tensors + self.instructions + self.delegates
    }
}

impl Counts {
    /// Sizes of the tables for a pointer width; `None` if they exceed the address space.
    pub(crate) fn table_use(&self, width: PointerWidth) -> Option<TableUse> {
        // Same order as `Tables::decode_into`.
        let entries = EntryLayouts::of(width);
        let mut size = ArenaSize::new();
        size.add_items(entries.region, self.planned);
        size.add_items(entries.entry, self.values);
        let values = size.total()?;
        size.add_items(entries.tensor, self.tensors);
        size.add_items((4, 1), self.shapes);
        let tensors = size.total()?;
        size.add_items(entries.instruction, self.instructions);
        let instructions = size.total()?;
        size.add_items(entries.delegate, self.delegates);
        size.add_bytes(0, ARENA_ALIGN);
        let total = size.total()?;
        Some(TableUse {
            values,
            tensors: tensors - values,
            instructions: instructions - tensors,
            delegates: total - instructions,
        })
    }
}

/// A method's tables.
pub(crate) struct Tables<'m> {
    pub(crate) planned: &'m mut [Region<'m>],
    pub(crate) values: Values<'m>,
    pub(crate) instructions: &'m mut [Instruction<'m>],
    pub(crate) delegates: &'m mut [Option<DelegateBox<'m>>],
}

impl<'m> MethodMeta<'m> {
    /// Counts table entries and checks them against the limits.
    ///
    /// Also checks that shared tables and strings do not expand to more than the file could contain
    /// without sharing. Decoding then needs time and memory proportional to the file size.
    pub(crate) fn counts(&self, limits: &Limits) -> Result<Counts, InitError> {
        let values = self.plan.values()?;
        let delegates = if has(RuntimeFeatures::DELEGATES) { self.delegate_count() } else { 0 };
        let planned = self.planned_buffer_count();
        let instructions = self.instruction_count();
        limits.check(Limit::FileBytes, self.program.file_size())?;
        limits.check(Limit::Values, values.len() as u64)?;
        limits.check(Limit::Instructions, instructions as u64)?;
        limits.check(Limit::Operators, self.plan.operators()?.len() as u64)?;
        limits.check(Limit::Delegates, delegates as u64)?;
        // A string counts with its length each time it is referenced.
        let mut bytes_left = self.program.flatbuffer_size();
        let mut count_text = |len| -> Result<(), Malformed> {
            bytes_left = bytes_left.checked_sub(len).ok_or(Part::Shared.at(0))?;
            Ok(())
        };
        for operator in self.operators() {
            let OperatorName { name, overload } = operator?;
            count_text(name.len().saturating_add(overload.len()))?;
        }
        for index in 0..delegates {
            count_text(self.delegate_backend(index).map_or(0, str::len))?;
        }
        // Every instruction, size and planned buffer needs at least four bytes.
        let room = self.program.flatbuffer_size() / 4;
        let (mut tensors, mut sizes, mut shapes) = (0usize, 0usize, 0usize);
        for value in values.iter() {
            let text = match value?.value()? {
                EValue::Tensor(tensor) => {
                    tensors += 1;
                    let rank = tensor.sizes()?.len();
                    sizes = sizes.saturating_add(rank);
                    // Without the feature, dynamic tensors are rejected later.
                    if has(RuntimeFeatures::VARIABLE)
                        && tensor.shape_dynamism()? != ShapeDynamism::Static as i8
                    {
                        shapes = shapes.saturating_add(rank.saturating_mul(2));
                    }
                    tensor_name(&tensor)?
                }
                EValue::String(string) if has(RuntimeFeatures::STRINGS) => Some(string.text()?),
                _ => None,
            };
            count_text(text.map_or(0, str::len))?;
        }
        if instructions.saturating_add(sizes).saturating_add(planned) > room {
            return Err(Part::Shared.at(0).into());
        }
        let mut planned_bytes = 0u64;
        for index in 0..planned {
            planned_bytes = planned_bytes.saturating_add(self.planned_size(index)? as u64);
        }
        limits.check(Limit::PlannedBytes, planned_bytes)?;
        let values = values.len();
        Ok(Counts { planned, values, tensors, shapes, instructions, delegates })
    }
}

impl<'m> Tables<'m> {
    pub(crate) fn decode(
        meta: &MethodMeta<'m>,
        counts: &Counts,
        memory: &'m mut [MaybeUninit<u8>],
    ) -> Result<Self, InitError> {
        let available = memory.len();
        let tables = MemoryKind::Tables;
        let mut arena = Arena::new(memory).ok_or(InitError::MemoryMisaligned { memory: tables })?;
        Self::decode_into(meta, counts, &mut arena).map_err(|error| match error {
            DecodeError::Exhausted => {
                // Report the total size instead of the end of the failed allocation.
                match counts.table_use(PointerWidth::TARGET) {
                    Some(whole) => {
                        let needed = whole.total();
                        InitError::MemoryTooSmall { memory: tables, needed, available }
                    }
                    None => InitError::TooLarge,
                }
            }
            DecodeError::Malformed(malformed) => malformed.into(),
        })
    }

    fn decode_into(
        meta: &MethodMeta<'m>,
        counts: &Counts,
        arena: &mut Arena<'m>,
    ) -> Result<Self, DecodeError> {
        let planned = arena.slice(counts.planned, Region::empty)?;
        let entries = arena.slice(counts.values, || Entry::NONE)?;
        let tensors = arena.slice(counts.tensors, TensorSlot::empty)?;
        let shapes = if has(RuntimeFeatures::VARIABLE) { counts.shapes } else { 0 };
        let shapes = arena.slice(shapes, || [0; 4])?;
        let values = Values::read(meta.plan.values()?, entries, tensors, shapes)?;
        let instructions = arena.slice(counts.instructions, || Instruction::Nop)?;
        let delegates = arena.slice(counts.delegates, || None)?;
        arena.allocate(0, ARENA_ALIGN)?;
        Ok(Tables { planned, values, instructions, delegates })
    }
}

impl<'m> Tables<'m> {
    /// Turns aliases of unplanned state into views. Exporters elide views of such state: the result
    /// is a tensor with the name and data of the state that no instruction creates.
    pub(super) fn state_views(
        &mut self,
        meta: &MethodMeta<'m>,
        lookups: &mut Budget,
    ) -> Result<(), InitError> {
        let values = &mut self.values;
        let mut states = meta.tensors()?;
        while let Some(state) = states.next()? {
            let slot = values.tensor(state.slot).filter(|it| it.is_caller_bound());
            let Some(capacity) = slot.map(|it| it.capacity()) else { continue };
            if !values.has(state.index, flag::STATE) {
                continue;
            }
            let Some(name) = tensor_name(&state.tensor)? else { continue };
            let mut others = meta.tensors()?;
            while let Some(other) = others.next()? {
                lookups.take(1 + name.len() as u64 / 64)?;
                let is_view = other.slot != state.slot
                    && is_constant(&other.tensor)
                    && other.tensor.data_buffer_idx()? == state.tensor.data_buffer_idx()?
                    && tensor_name(&other.tensor)? == Some(name);
                let index = other.index;
                if let Some(other) = values.tensor_mut(other.slot).filter(|_| is_view) {
                    other.set_view(Some(state.slot));
                }
                let other = values.tensor(other.slot).filter(|_| is_view);
                if other.is_some_and(|other| {
                    other.capacity() != capacity || !has(RuntimeFeatures::VIEWS)
                }) {
                    let what = match has(RuntimeFeatures::VIEWS) {
                        true => "alias of a state tensor of another size",
                        false => UNSUPPORTED_BY_IMAGE,
                    };
                    return Err(InitError::Value { index, what });
                }
            }
        }
        Ok(())
    }
}

/// Why tables cannot be decoded.
enum DecodeError {
    Exhausted,
    Malformed(Malformed),
}

impl From<Exhausted> for DecodeError {
    fn from(_: Exhausted) -> Self {
        DecodeError::Exhausted
    }
}
impl From<Malformed> for DecodeError {
    fn from(malformed: Malformed) -> Self {
        DecodeError::Malformed(malformed)
    }
}
