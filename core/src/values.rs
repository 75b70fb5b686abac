//! The values and tensors of a method.
//!
//! Most values never change and are stored in the file, so a value occupies one word: either its
//! contents, if they fit, or its offset in the file. Values that may change have a cell.

use crate::arguments::elements;
use crate::dtype::ScalarType;
use crate::format::flatbuffer::{Vector, vector_bytes};
use crate::format::program_schema::{EValue, EValueTable, List, ListKind, TensorTable};
use crate::format::{Malformed, Part};
use crate::layout::{
    DimOrder, ShapeDynamism, Sizes, TensorInfo, checked_layout, checked_nbytes, same_layout,
};
use crate::memory::region::Region;
use crate::memory::slot::{Data, ShapeLocation, TensorSlot};
use crate::param::Param;
use crate::runtime_features::{RuntimeFeatures, has};
use crate::value::{Scalar, Value};
use core::ops::Deref;

/// Properties of a value besides its contents.
pub(crate) mod flag {
    /// The value or its shape can change, by instructions or by the caller. Calls that use it are
    /// prepared again before they run.
    pub(crate) const VARIABLE: u8 = 1;
    /// A view whose memory is only known at run time, since it refers to different tensors at
    /// different times.
    pub(crate) const DYNAMIC_VIEW: u8 = 2;
    /// An input or output of the method.
    pub(crate) const INTERFACE: u8 = 4;
    /// Written by an instruction, or an input: later reads do not make it state.
    pub(crate) const WRITTEN: u8 = 8;
    /// A state tensor: keeps its contents between runs.
    pub(crate) const STATE: u8 = 16;
    /// Another tensor is a view of it.
    pub(crate) const VIEWED: u8 = 32;
    /// A delegate was the first to access it.
    pub(crate) const DELEGATE_FIRST: u8 = 64;
}

/// Storage of a value.
mod encoding {
    pub(super) const NONE: usize = 0;
    /// The integer itself.
    pub(super) const INT: usize = 1;
    /// 0 or 1.
    pub(super) const BOOL: usize = 2;
    /// In the file, looked up by value index each time: strings, floats, and integers that do not
    /// fit.
    pub(super) const FILE: usize = 3;
    /// In the cell with this index.
    pub(super) const CELL: usize = 4;
    /// Tensor slot.
    pub(super) const TENSOR: usize = 5;
    /// A list in the file whose offset does not fit. As `FILE`, but such lists never change.
    pub(super) const FILE_LIST: usize = 6;
    // Lists: offset in the file, in units of four bytes. These numbers are those of `ListKind`.
}

/// A value in one word. From the lowest bit: storage, [flags](flag), payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry(usize);

const ENCODING_BITS: u32 = 4;
const PAYLOAD_SHIFT: u32 = ENCODING_BITS + 7;

impl Entry {
    pub(crate) const NONE: Self = Entry(encoding::NONE);

    /// Creates an entry without flags; `None` if the payload does not fit.
    fn new(encoding: usize, payload: usize) -> Option<Self> {
        let shifted = payload << PAYLOAD_SHIFT;
        (shifted >> PAYLOAD_SHIFT == payload).then_some(Entry(shifted | encoding))
    }

    fn of_int(value: i64) -> Option<Self> {
        let entry = Entry((value as usize) << PAYLOAD_SHIFT | encoding::INT);
        (entry.int() == value).then_some(entry)
    }

    /// Inverse of [`of_int`](Self::of_int).
    fn int(self) -> i64 {
        (self.0 as isize >> PAYLOAD_SHIFT) as i64
    }

    fn of_list(list: &List<'_>) -> Self {
        let start = list.items.start().filter(|start| start.is_multiple_of(4));
        start
            .and_then(|start| Entry::new(list.kind as usize, start / 4))
            .unwrap_or(Entry(encoding::FILE_LIST))
    }

    fn encoding(self) -> usize {
        self.0 & ((1 << ENCODING_BITS) - 1)
    }

    fn payload(self) -> usize {
        self.0 >> PAYLOAD_SHIFT
    }

    fn flags(self) -> u8 {
        (self.0 >> ENCODING_BITS) as u8 & 0x7f
    }

    /// Whether the value may change and therefore needs a cell. Applies to scalars, strings and
    /// absent values.
    fn needs_cell(self) -> bool {
        self.flags() & flag::VARIABLE != 0 && self.encoding() <= encoding::FILE
    }

    fn mark(&mut self, flags: u8) {
        self.0 |= usize::from(flags & 0x7f) << ENCODING_BITS;
    }
}

/// The values of a method, and the tensors that they refer to.
#[derive(Debug)]
pub(crate) struct Values<'m> {
    /// Values in the file.
    file: Vector<'m, EValueTable<'m>>,
    entries: &'m mut [Entry],
    /// Current contents of the values that may change. Empty until memory is allocated.
    cells: &'m mut [Value<'m>],
    pub(crate) tensors: &'m mut [TensorSlot<'m>],
    /// Upper-bound and current shape of each tensor with a dynamic shape, little-endian.
    shapes: &'m mut [[u8; 4]],
}

/// Reads a value from the file; `None` for tensors, which have slots.
#[inline(never)]
fn read_from_file<'m>(file: &Vector<'m, EValueTable<'m>>, index: usize) -> Option<Value<'m>> {
    Some(match file.get(index).ok()??.value().ok()? {
        EValue::Int(value) => Scalar::Int(value).into(),
        EValue::Double(value) => Scalar::Double(value).into(),
        EValue::String(value) => Value::String(value.bytes(1)),
        // Only looked up here for values with cells.
        EValue::None if has(RuntimeFeatures::VARIABLE) => Value::None,
        EValue::Bool(value) if has(RuntimeFeatures::VARIABLE) => Value::Bool(value),
        EValue::None | EValue::Bool(_) | EValue::Tensor(_) => return None,
        EValue::List(List { kind, items }) => list(kind, items.bytes(kind.item())),
    })
}

/// Creates a list value from its bytes.
#[inline(never)]
fn list(kind: ListKind, bytes: &[u8]) -> Value<'_> {
    match kind {
        ListKind::Int => Value::IntList(elements(bytes)),
        ListKind::Double => Value::DoubleList(elements(bytes)),
        ListKind::Bool => Value::BoolList(bytes),
        ListKind::Tensor => Value::TensorList(elements(bytes), false),
        ListKind::OptionalTensor => Value::TensorList(elements(bytes), true),
    }
}

/// Appends sizes to an empty list. Tensors never have more dims than fit.
#[inline(never)]
fn read_sizes(file: &[[u8; 4]], sizes: &mut Sizes) {
    for size in file {
        let _ = sizes.push(i32::from_le_bytes(*size));
    }
}

/// Bytes of a list in the file. Offset 0 means no list: the root offset is stored there.
#[inline(never)]
fn list_at(file: &[u8], start: usize, item: usize) -> &[u8] {
    let list = if start == 0 { None } else { vector_bytes(file, start, item) };
    list.unwrap_or(&[])
}

/// Decodes a tensor, without data. `used` is the number of entries of `shapes` in use.
#[inline(never)]
fn read_tensor(
    table: &TensorTable<'_>,
    slot: &mut TensorSlot<'_>,
    shapes: &mut [[u8; 4]],
    used: &mut usize,
    invalid: Malformed,
) -> Result<(), Malformed> {
    let (file, dim_order) = (table.sizes()?, table.dim_order()?);
    let scalar_type = ScalarType::from_number(table.scalar_type()?.into()).ok_or(invalid)?;
    let dynamism = ShapeDynamism::from_number(table.shape_dynamism()?).ok_or(invalid)?;
    let mut sizes = Sizes::new();
    read_sizes(elements(file.bytes()), &mut sizes);
    // `sizes` is truncated at the maximum rank; compare the lengths in the file.
    let bytes = match file.len() == dim_order.len() {
        true => checked_layout(scalar_type, &sizes, dim_order.bytes()).ok_or(invalid)?,
        false => return Err(invalid),
    };
    let mut shape = ShapeLocation::File(file.start().unwrap_or(0));
    if dynamism != ShapeDynamism::Static {
        shape = ShapeLocation::Dynamic(*used);
    }
    if has(RuntimeFeatures::VARIABLE) && dynamism != ShapeDynamism::Static {
        let end = used.saturating_add(2 * sizes.len());
        let both = shapes.get_mut(*used..end).ok_or(invalid)?;
        // The second half, the current shape, is initialised by `reset`.
        for (own, size) in both.iter_mut().zip(elements(file.bytes())) {
            *own = *size;
        }
        *used = end;
    }
    let dim_order = dim_order.start().unwrap_or(0);
    *slot = TensorSlot::new(scalar_type, shape, dim_order, bytes).ok_or(invalid)?;
    Ok(())
}

impl<'m> Values<'m> {
    /// Decodes the values of a file into tables, whose lengths come from
    /// [`Counts`](crate::method::tables::Counts).
    #[inline(never)]
    pub(crate) fn read(
        file: Vector<'m, EValueTable<'m>>,
        entries: &'m mut [Entry],
        tensors: &'m mut [TensorSlot<'m>],
        shapes: &'m mut [[u8; 4]],
    ) -> Result<Self, Malformed> {
        let (mut slots, mut shapes_used) = (0usize, 0usize);
        for (index, target) in entries.iter_mut().enumerate() {
            let table = file.item(index, Part::Value)?;
            let mut is_dynamic = false;
            let entry = match table.value()? {
                EValue::None => Some(Entry::NONE),
                EValue::Int(value) => Entry::of_int(value),
                EValue::Bool(value) => Entry::new(encoding::BOOL, value.into()),
                EValue::Tensor(tensor) => {
                    let invalid = Part::Tensor.at(index);
                    let slot = tensors.get_mut(slots).ok_or(invalid)?;
                    read_tensor(&tensor, slot, shapes, &mut shapes_used, invalid)?;
                    is_dynamic = slot.is_dynamic();
                    slots += 1;
                    // An index that does not fit yields no value.
                    Entry::new(encoding::TENSOR, slots - 1)
                }
                EValue::Double(_) | EValue::String(_) => None,
                EValue::List(list) => Some(Entry::of_list(&list)),
            };
            *target = entry.unwrap_or(Entry(encoding::FILE));
            if is_dynamic {
                target.mark(flag::VARIABLE);
            }
        }
        let mut values = Values { file, entries, cells: &mut [], tensors, shapes };
        values.reset();
        Ok(values)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Identifies the values of this method: the address of its entries.
    pub(crate) fn identity(&self) -> usize {
        self.entries.as_ptr().addr()
    }

    #[inline(never)]
    pub(crate) fn value(&self, index: usize) -> Option<Value<'m>> {
        let entry = *self.entries.get(index)?;
        Some(match entry.encoding() {
            encoding::NONE => Value::None,
            encoding::INT => Scalar::Int(entry.int()).into(),
            encoding::BOOL => Value::Bool(entry.payload() != 0),
            encoding::TENSOR => Value::Tensor(entry.payload() as u32),
            encoding::CELL if has(RuntimeFeatures::VARIABLE) => *self.cells.get(entry.payload())?,
            encoding => {
                let Some(kind) = ListKind::from_number(encoding) else {
                    return read_from_file(&self.file, index);
                };
                let start = entry.payload().wrapping_mul(4);
                return Some(list(kind, list_at(self.file.buffer(), start, kind.item())));
            }
        })
    }

    /// All values with their flags.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Value<'m>, u8)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| Some((self.value(index)?, entry.flags())))
    }

    /// Index of the first value that may change, a scalar or a tensor with a dynamic shape.
    pub(crate) fn first_variable(&self) -> Option<usize> {
        self.entries.iter().position(|entry| entry.flags() & flag::VARIABLE != 0)
    }

    /// Number of cells: values other than tensors that may change.
    pub(crate) fn cell_count(&self) -> usize {
        if !has(RuntimeFeatures::VARIABLE) {
            return 0;
        }
        self.entries.iter().filter(|entry| entry.needs_cell()).count()
    }

    /// Moves the values that may change into cells, of which there must be enough.
    pub(crate) fn move_to_cells(&mut self, cells: &'m mut [Value<'m>]) {
        self.cells = cells;
        for (used, entry) in self.entries.iter_mut().filter(|entry| entry.needs_cell()).enumerate()
        {
            let flags = entry.flags();
            // Cannot fail: the number of cells is bounded by the number of values, whose indices
            // fit.
            *entry = Entry::new(encoding::CELL, used).unwrap_or(Entry::NONE);
            entry.mark(flags);
        }
        self.reset();
    }

    /// Changes the contents of a cell; false if the value has none.
    pub(crate) fn set(&mut self, index: usize, value: Value<'m>) -> bool {
        if !has(RuntimeFeatures::VARIABLE) {
            return false;
        }
        let entry = self.entries.get(index).filter(|entry| entry.encoding() == encoding::CELL);
        match entry.and_then(|entry| self.cells.get_mut(entry.payload())) {
            Some(cell) => {
                *cell = value;
                true
            }
            None => false,
        }
    }

    /// Resets scalars and shapes to those in the file.
    pub(crate) fn reset(&mut self) {
        if !has(RuntimeFeatures::VARIABLE) {
            return;
        }
        for index in 0..self.len() {
            if self.entries.get(index).is_some_and(|entry| entry.encoding() == encoding::CELL)
                && let Some(value) = read_from_file(&self.file, index)
            {
                self.set(index, value);
            }
        }
        for slot in self.tensors.iter() {
            if let ShapeLocation::Dynamic(at) = slot.shape_location() {
                let rank = list_at(self.file.buffer(), slot.dim_order as usize, 1).len();
                let both = self.shapes.get_mut(at..).and_then(|rest| rest.get_mut(..2 * rank));
                if let Some((bound, shape)) = both.map(|both| both.split_at_mut(rank)) {
                    for (size, bound) in shape.iter_mut().zip(bound) {
                        *size = *bound;
                    }
                }
            }
        }
    }

    pub(crate) fn tensor(&self, slot: u32) -> Option<Tensor<'_, 'm>> {
        let slot = self.tensors.get(usize::try_from(slot).ok()?)?;
        Some(Tensor { slot, values: self })
    }

    pub(crate) fn tensor_mut(&mut self, slot: u32) -> Option<&mut TensorSlot<'m>> {
        self.tensors.get_mut(usize::try_from(slot).ok()?)
    }

    /// Resizes a tensor, or checks whether it could be resized if `apply` is false.
    #[inline(never)]
    pub(crate) fn resize(
        &mut self,
        slot: u32,
        sizes: &[i32],
        apply: bool,
    ) -> Result<(), ResizeError> {
        let Some(tensor) = self.tensor(slot) else { return Err(ResizeError::Rank) };
        let found = tensor.sizes();
        if *found == *sizes {
            return Ok(());
        }
        if sizes.len() != found.len() {
            return Err(ResizeError::Rank);
        }
        let Some(shape) = tensor.shape(true).filter(|_| has(RuntimeFeatures::VARIABLE)) else {
            return Err(ResizeError::Static);
        };
        if checked_nbytes(tensor.scalar_type, sizes).is_none_or(|bytes| bytes > tensor.capacity()) {
            return Err(ResizeError::Capacity);
        }
        if apply && let Some(shape) = self.shapes.get_mut(shape) {
            for (own, size) in shape.iter_mut().zip(sizes) {
                *own = size.to_le_bytes();
            }
        }
        Ok(())
    }

    /// Location of a tensor's data, and the slot that it is recorded in. For a view, that is the
    /// slot of the viewed tensor.
    pub(crate) fn data(&self, slot: u32) -> Option<(u32, Data<'m>)> {
        let tensor = self.tensor(slot)?;
        match tensor.data() {
            Data::View(root) if has(RuntimeFeatures::VIEWS) => {
                Some((root, self.tensor(root)?.data()))
            }
            data => Some((slot, data)),
        }
    }

    /// Memory of a tensor's current shape; `None` if it has no memory or too little.
    pub(crate) fn region(&self, slot: u32) -> Option<Region<'m>> {
        let bytes = self.tensor(slot)?.nbytes();
        match self.data(slot)?.1 {
            _ if bytes == 0 => Some(Region::empty()),
            Data::At(region) => region.part(0, bytes),
            _ => None,
        }
    }

    /// Tensor slot of value `index`.
    pub(crate) fn slot(&self, index: usize) -> Option<u32> {
        let entry = self.entries.get(index)?;
        (entry.encoding() == encoding::TENSOR).then_some(entry.payload() as u32)
    }

    /// Items of value `index`, if it is a tensor list. Not inlined: otherwise, the compiler loads
    /// the items before checking the kind, which Valgrind reports as a use of uninitialised memory.
    #[inline(never)]
    pub(crate) fn tensor_list(&self, index: usize) -> Option<&'m [[u8; 4]]> {
        if !has(RuntimeFeatures::TENSOR_LISTS) {
            return None;
        }
        match self.value(index)? {
            Value::TensorList(items, _) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn has(&self, index: usize, flag: u8) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.flags() & flag != 0)
    }

    pub(crate) fn mark(&mut self, index: usize, flag: u8) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.mark(flag);
        }
    }
}

/// Why a tensor cannot be resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeError {
    Static,
    Rank,
    Capacity,
}

/// A tensor with access to its shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor<'v, 'm> {
    slot: &'v TensorSlot<'m>,
    values: &'v Values<'m>,
}

impl<'m> Deref for Tensor<'_, 'm> {
    type Target = TensorSlot<'m>;
    fn deref(&self) -> &TensorSlot<'m> {
        self.slot
    }
}

impl<'m> Tensor<'_, 'm> {
    pub(crate) fn dim_order(&self) -> &'m [u8] {
        list_at(self.values.file.buffer(), self.slot.dim_order as usize, 1)
    }

    /// Range of the current or upper-bound shape in the table of dynamic shapes.
    fn shape(&self, current: bool) -> Option<core::ops::Range<usize>> {
        let ShapeLocation::Dynamic(start) = self.shape_location() else { return None };
        let rank = self.dim_order().len();
        let start = if current { start.saturating_add(rank) } else { start };
        Some(start..start.saturating_add(rank))
    }

    /// Appends the current or upper-bound shape to an empty list. Writes in place, which saves
    /// stack.
    #[inline(never)]
    fn list(&self, current: bool, sizes: &mut Sizes) {
        let list = match self.shape_location() {
            ShapeLocation::File(start) => elements(list_at(self.values.file.buffer(), start, 4)),
            ShapeLocation::Dynamic(_) => self
                .shape(current)
                .and_then(|shape| self.values.shapes.get(shape))
                .unwrap_or_default(),
        };
        read_sizes(list, sizes);
    }

    fn sizes_of(&self, current: bool) -> Sizes {
        let mut sizes = Sizes::new();
        self.list(current, &mut sizes);
        sizes
    }

    /// Upper-bound shape.
    #[inline(always)]
    pub(crate) fn bound(&self) -> Sizes {
        self.sizes_of(false)
    }

    /// Current shape.
    #[inline(always)]
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes_of(true)
    }

    pub(crate) fn info(&self) -> TensorInfo {
        let (sizes, dim_order) = (Sizes::new(), DimOrder::new());
        let mut info = TensorInfo { scalar_type: self.scalar_type, sizes, dim_order };
        self.list(true, &mut info.sizes);
        // As many entries as sizes.
        let _ = info.dim_order.extend_from_slice(self.dim_order());
        info
    }

    #[inline(never)]
    fn bytes_of(&self, current: bool) -> usize {
        match self.fixed_bytes() {
            Some(bytes) => bytes,
            None => checked_nbytes(self.scalar_type, &self.sizes_of(current)).unwrap_or(0),
        }
    }

    /// Bytes of the current shape.
    #[inline(always)]
    pub(crate) fn nbytes(&self) -> usize {
        self.bytes_of(true)
    }

    /// Bytes of the upper-bound shape.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes_of(false)
    }

    /// Whether the memory layout matches this dim order.
    #[inline(never)]
    pub(crate) fn has_order(&self, dim_order: &[u8]) -> bool {
        same_layout(&self.sizes(), self.dim_order(), dim_order)
    }

    /// Whether the other tensor has the same shape.
    #[inline(never)]
    pub(crate) fn has_sizes_of(&self, other: &Tensor<'_, '_>) -> bool {
        self.sizes() == other.sizes()
    }
}

/// Which arguments of a call are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Roles<'m> {
    /// According to the operator's schema.
    Params(&'m [Param]),
    /// All arguments from this index on: a delegate's outputs follow its inputs.
    From(usize),
}

impl Roles<'_> {
    pub(crate) fn is_out(&self, arg: usize) -> bool {
        match self {
            Roles::Params(params) => params.get(arg).is_some_and(|param| param.is_out()),
            Roles::From(first) => arg >= *first,
        }
    }

    /// Whether the argument is exporter-reserved workspace, which no kernel accesses.
    pub(crate) fn is_scratch(&self, arg: usize) -> bool {
        matches!(self, Roles::Params(params) if params.get(arg) == Some(&Param::Scratch))
    }
}
