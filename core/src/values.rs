//! The values and tensors of a method.
//!
//! Most of what a method's values are never changes and is in the file, so a value takes one word:
//! what it is, if that fits, or where the file says it. What may change has a cell.

use crate::arguments::elements;
use crate::dtype::ScalarType;
use crate::format::flatbuffer::{Vector, vector_bytes};
use crate::format::program_schema::{EValue, EValueTable, List, ListKind, TensorTable};
use crate::format::{Malformed, Part};
use crate::kernel::Param;
use crate::layout::{
    DimOrder, ShapeDynamism, Sizes, TensorInfo, checked_layout, checked_nbytes, same_layout,
};
use crate::memory::region::Region;
use crate::memory::slot::{Data, ShapeAt, TensorSlot};
use crate::uses::{Uses, has};
use crate::value::{Scalar, Value};
use core::ops::Deref;

/// What is known of a value beside its contents.
pub(crate) mod flag {
    /// Instructions or the caller change it or its shape, so calls that take it are prepared anew
    /// before they run.
    pub(crate) const VARIABLE: u8 = 1;
    /// A view that calls place when they run: of this tensor here and of that one there.
    pub(crate) const FLOATING: u8 = 2;
    /// An input or output of the method.
    pub(crate) const INTERFACE: u8 = 4;
    /// An instruction wrote it, or it is an input: what is read from then on is no state.
    pub(crate) const WRITTEN: u8 = 8;
    /// A planned tensor that keeps its contents from run to run.
    pub(crate) const STATE: u8 = 16;
    /// Another tensor is a view of it.
    pub(crate) const VIEWED: u8 = 32;
    /// A delegate was the first to be given it.
    pub(crate) const GIVEN: u8 = 64;
}

/// How a value is kept.
mod kept {
    pub(super) const NONE: usize = 0;
    /// The number itself.
    pub(super) const INT: usize = 1;
    /// 0 or 1.
    pub(super) const BOOL: usize = 2;
    /// In the file, where it is looked up among the values each time: texts, and numbers that do
    /// not fit.
    pub(super) const FILE: usize = 3;
    /// In the cell of this index.
    pub(super) const CELL: usize = 4;
    /// Its slot.
    pub(super) const TENSOR: usize = 5;
    /// In the file, as [`FILE`], but a list, whose place does not fit: these never change.
    pub(super) const FILE_LIST: usize = 6;
    // Lists: where they start in the file, in units of four bytes. The numbers are those of
    // `ListKind`.
}

/// A value in one word: from the lowest bit on, how it is kept, its [flags](flag), and what is
/// kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry(usize);

const KEPT_BITS: u32 = 4;
const PAYLOAD: u32 = KEPT_BITS + 7;

impl Entry {
    pub(crate) const NONE: Self = Entry(kept::NONE);

    /// Without flags; `None` if there is no room for as much.
    fn new(kept: usize, payload: usize) -> Option<Self> {
        let shifted = payload << PAYLOAD;
        (shifted >> PAYLOAD == payload).then_some(Entry(shifted | kept))
    }

    fn of_int(value: i64) -> Option<Self> {
        let entry = Entry((value as usize) << PAYLOAD | kept::INT);
        (entry.int() == value).then_some(entry)
    }

    /// What [`of_int`](Self::of_int) keeps.
    fn int(self) -> i64 {
        (self.0 as isize >> PAYLOAD) as i64
    }

    fn of_list(list: &List<'_>) -> Self {
        let start = list.items.start().filter(|start| start.is_multiple_of(4));
        start
            .and_then(|start| Entry::new(list.kind as usize, start / 4))
            .unwrap_or(Entry(kept::FILE_LIST))
    }

    fn kept(self) -> usize {
        self.0 & ((1 << KEPT_BITS) - 1)
    }

    fn payload(self) -> usize {
        self.0 >> PAYLOAD
    }

    fn flags(self) -> u8 {
        (self.0 >> KEPT_BITS) as u8 & 0x7f
    }

    /// Whether the value may change, and is to be kept apart for that: numbers, texts and nothings
    /// are.
    fn changes(self) -> bool {
        self.flags() & flag::VARIABLE != 0 && self.kept() <= kept::FILE
    }

    fn mark(&mut self, flags: u8) {
        self.0 |= usize::from(flags & 0x7f) << KEPT_BITS;
    }
}

/// The values of a method, and the tensors that they refer to.
#[derive(Debug)]
pub(crate) struct Values<'m> {
    /// The values in the file.
    file: Vector<'m, EValueTable<'m>>,
    entries: &'m mut [Entry],
    /// The values that may change, as they are now, once there is memory for them.
    cells: &'m mut [Value<'m>],
    pub(crate) tensors: &'m mut [TensorSlot<'m>],
    /// Of each tensor whose shape may change, the largest and the present shape: little-endian.
    shapes: &'m mut [[u8; 4]],
}

/// A value as the file has it; `None` for tensors, which have slots.
#[inline(never)]
fn in_file<'m>(file: &Vector<'m, EValueTable<'m>>, index: usize) -> Option<Value<'m>> {
    Some(match file.get(index).ok()??.value().ok()? {
        EValue::Int(value) => Scalar::Int(value).into(),
        EValue::Double(value) => Scalar::Double(value).into(),
        EValue::String(value) => Value::String(value.bytes(1)),
        // They are looked up here if they have cells alone.
        EValue::None if has(Uses::VARIABLE) => Value::None,
        EValue::Bool(value) if has(Uses::VARIABLE) => Value::Bool(value),
        EValue::None | EValue::Bool(_) | EValue::Tensor(_) => return None,
        EValue::List(List { kind, items }) => list(kind, items.bytes(kind.item())),
    })
}

/// A list of these bytes.
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

/// Appends sizes to an empty list. No tensor has more dimensions than fit.
#[inline(never)]
fn read_sizes(file: &[[u8; 4]], sizes: &mut Sizes) {
    for size in file {
        let _ = sizes.push(i32::from_le_bytes(*size));
    }
}

/// The bytes of a list in the file, of items of this size. A list never lies at its start: what
/// leads to it is there.
#[inline(never)]
fn list_at(file: &[u8], start: usize, item: usize) -> &[u8] {
    let list = if start == 0 { None } else { vector_bytes(file, start, item) };
    list.unwrap_or(&[])
}

/// What the file says of a tensor, without data yet. So many of `shapes` are used.
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
    // The list of sizes ends where no tensor has more: lengths are compared as the file has them.
    let bytes = match file.len() == dim_order.len() {
        true => checked_layout(scalar_type, &sizes, dim_order.bytes()).ok_or(invalid)?,
        false => return Err(invalid),
    };
    let mut shape = ShapeAt::File(file.start().unwrap_or(0));
    if dynamism != ShapeDynamism::Static {
        shape = ShapeAt::Changing(*used);
    }
    if has(Uses::VARIABLE) && dynamism != ShapeDynamism::Static {
        let end = used.saturating_add(2 * sizes.len());
        let both = shapes.get_mut(*used..end).ok_or(invalid)?;
        // The second half, the present shape, becomes the same when all is reset.
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
    /// The values that the file has, in these tables, which are as long as
    /// [`Counts`](crate::method::tables::Counts) says.
    #[inline(never)]
    pub(crate) fn read(
        file: Vector<'m, EValueTable<'m>>,
        entries: &'m mut [Entry],
        tensors: &'m mut [TensorSlot<'m>],
        shapes: &'m mut [[u8; 4]],
    ) -> Result<Self, Malformed> {
        let (mut slots, mut shapes_used) = (0usize, 0usize);
        for (index, place) in entries.iter_mut().enumerate() {
            let table = file.item(index, Part::Value)?;
            let mut varies = false;
            let entry = match table.value()? {
                EValue::None => Some(Entry::NONE),
                EValue::Int(value) => Entry::of_int(value),
                EValue::Bool(value) => Entry::new(kept::BOOL, value.into()),
                EValue::Tensor(tensor) => {
                    let invalid = Part::Tensor.at(index);
                    let slot = tensors.get_mut(slots).ok_or(invalid)?;
                    read_tensor(&tensor, slot, shapes, &mut shapes_used, invalid)?;
                    varies = slot.varies();
                    slots += 1;
                    // Where there are too many, they are no values.
                    Entry::new(kept::TENSOR, slots - 1)
                }
                EValue::Double(_) | EValue::String(_) => None,
                EValue::List(list) => Some(Entry::of_list(&list)),
            };
            *place = entry.unwrap_or(Entry(kept::FILE));
            if varies {
                place.mark(flag::VARIABLE);
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

    /// What tells the values of this method from those of others: where they are.
    pub(crate) fn identity(&self) -> usize {
        self.entries.as_ptr().addr()
    }

    #[inline(never)]
    pub(crate) fn value(&self, index: usize) -> Option<Value<'m>> {
        let entry = *self.entries.get(index)?;
        Some(match entry.kept() {
            kept::NONE => Value::None,
            kept::INT => Scalar::Int(entry.int()).into(),
            kept::BOOL => Value::Bool(entry.payload() != 0),
            kept::TENSOR => Value::Tensor(entry.payload() as u32),
            kept::CELL if has(Uses::VARIABLE) => *self.cells.get(entry.payload())?,
            kept => {
                let Some(kind) = ListKind::from_number(kept) else {
                    return in_file(&self.file, index);
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

    /// The first value that may change, be it a number or the shape of a tensor.
    pub(crate) fn first_variable(&self) -> Option<usize> {
        self.entries.iter().position(|entry| entry.flags() & flag::VARIABLE != 0)
    }

    /// How many numbers and the like may change: each takes a cell.
    pub(crate) fn changing(&self) -> usize {
        if !has(Uses::VARIABLE) {
            return 0;
        }
        self.entries.iter().filter(|entry| entry.changes()).count()
    }

    /// Keeps the values that may change in cells, of which there are enough.
    pub(crate) fn keep_in(&mut self, cells: &'m mut [Value<'m>]) {
        self.cells = cells;
        for (used, entry) in self.entries.iter_mut().filter(|entry| entry.changes()).enumerate() {
            let flags = entry.flags();
            // There are no more of them than values, whose indices fit.
            *entry = Entry::new(kept::CELL, used).unwrap_or(Entry::NONE);
            entry.mark(flags);
        }
        self.reset();
    }

    /// Changes a number; false if it may not.
    pub(crate) fn set(&mut self, index: usize, value: Value<'m>) -> bool {
        if !has(Uses::VARIABLE) {
            return false;
        }
        let entry = self.entries.get(index).filter(|entry| entry.kept() == kept::CELL);
        match entry.and_then(|entry| self.cells.get_mut(entry.payload())) {
            Some(cell) => {
                *cell = value;
                true
            }
            None => false,
        }
    }

    /// Makes numbers and shapes those of the file again.
    pub(crate) fn reset(&mut self) {
        if !has(Uses::VARIABLE) {
            return;
        }
        for index in 0..self.len() {
            if self.entries.get(index).is_some_and(|entry| entry.kept() == kept::CELL)
                && let Some(value) = in_file(&self.file, index)
            {
                self.set(index, value);
            }
        }
        for slot in self.tensors.iter() {
            if let ShapeAt::Changing(at) = slot.shape_at() {
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

    /// Gives a tensor a shape, if it can take it; or only looks whether it can.
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
        let Some(shape) = tensor.shape(true).filter(|_| has(Uses::VARIABLE)) else {
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

    /// Where the data of a tensor is, and in which slot that is said: a view's is that of what it
    /// is a view of.
    pub(crate) fn data(&self, slot: u32) -> Option<(u32, Data<'m>)> {
        let tensor = self.tensor(slot)?;
        match tensor.data() {
            Data::View(root) if has(Uses::VIEWS) => Some((root, self.tensor(root)?.data())),
            data => Some((slot, data)),
        }
    }

    /// The bytes of a tensor's current shape; `None` if it has no memory or too little.
    pub(crate) fn region(&self, slot: u32) -> Option<Region<'m>> {
        let bytes = self.tensor(slot)?.nbytes();
        match self.data(slot)?.1 {
            _ if bytes == 0 => Some(Region::empty()),
            Data::At(region) => region.part(0, bytes),
            _ => None,
        }
    }

    /// The slot of the tensor that value `index` is.
    pub(crate) fn slot(&self, index: usize) -> Option<u32> {
        let entry = self.entries.get(index)?;
        (entry.kept() == kept::TENSOR).then_some(entry.payload() as u32)
    }

    /// The items of value `index`, if it is a list of tensors. It is not inlined, since compilers
    /// then look at where the items are before they look at what the value is, which Valgrind takes
    /// for the use of memory without contents.
    #[inline(never)]
    pub(crate) fn tensor_list(&self, index: usize) -> Option<&'m [[u8; 4]]> {
        if !has(Uses::TENSOR_LISTS) {
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

/// Why a tensor cannot take a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeError {
    Static,
    Rank,
    Capacity,
}

/// A tensor with its shape.
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

    /// Where its present or largest shape is among those that change.
    fn shape(&self, present: bool) -> Option<core::ops::Range<usize>> {
        let ShapeAt::Changing(start) = self.shape_at() else { return None };
        let rank = self.dim_order().len();
        let start = if present { start.saturating_add(rank) } else { start };
        Some(start..start.saturating_add(rank))
    }

    /// Appends the present shape, or the largest, to an empty list: it is made where it is wanted,
    /// as stacks are small.
    #[inline(never)]
    fn list(&self, present: bool, sizes: &mut Sizes) {
        let list = match self.shape_at() {
            ShapeAt::File(start) => elements(list_at(self.values.file.buffer(), start, 4)),
            ShapeAt::Changing(_) => self
                .shape(present)
                .and_then(|shape| self.values.shapes.get(shape))
                .unwrap_or_default(),
        };
        read_sizes(list, sizes);
    }

    fn sizes_of(&self, present: bool) -> Sizes {
        let mut sizes = Sizes::new();
        self.list(present, &mut sizes);
        sizes
    }

    /// The largest shape.
    #[inline(always)]
    pub(crate) fn bound(&self) -> Sizes {
        self.sizes_of(false)
    }

    /// The present shape.
    #[inline(always)]
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes_of(true)
    }

    pub(crate) fn info(&self) -> TensorInfo {
        let (sizes, dim_order) = (Sizes::new(), DimOrder::new());
        let mut info = TensorInfo { scalar_type: self.scalar_type, sizes, dim_order };
        self.list(true, &mut info.sizes);
        // As many as there are sizes.
        let _ = info.dim_order.extend_from_slice(self.dim_order());
        info
    }

    #[inline(never)]
    fn bytes_of(&self, present: bool) -> usize {
        match self.fixed_bytes() {
            Some(bytes) => bytes,
            None => checked_nbytes(self.scalar_type, &self.sizes_of(present)).unwrap_or(0),
        }
    }

    /// Bytes of the present shape.
    #[inline(always)]
    pub(crate) fn nbytes(&self) -> usize {
        self.bytes_of(true)
    }

    /// Bytes of the largest shape.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes_of(false)
    }

    /// Whether its elements lie as in this dim order.
    #[inline(never)]
    pub(crate) fn has_order(&self, dim_order: &[u8]) -> bool {
        same_layout(&self.sizes(), self.dim_order(), dim_order)
    }

    /// Whether another tensor has this shape.
    #[inline(never)]
    pub(crate) fn has_sizes_of(&self, other: &Tensor<'_, '_>) -> bool {
        self.sizes() == other.sizes()
    }
}

/// Which arguments of a call are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Roles<'m> {
    /// As the operator's schema says.
    Params(&'m [Param]),
    /// All from this one on: a delegate's outputs follow its inputs.
    From(usize),
}

impl Roles<'_> {
    pub(crate) fn is_out(&self, arg: usize) -> bool {
        match self {
            Roles::Params(params) => params.get(arg).is_some_and(|param| param.is_out()),
            Roles::From(first) => arg >= *first,
        }
    }

    /// Whether the argument is memory that nobody looks at.
    pub(crate) fn is_scratch(&self, arg: usize) -> bool {
        matches!(self, Roles::Params(params) if params.get(arg) == Some(&Param::Scratch))
    }
}
