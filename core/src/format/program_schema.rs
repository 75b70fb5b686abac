//! Tables of `.pte` programs, by field number (ExecuTorch's published `program.fbs`, identifier
//! `ET12`).

use super::flatbuffer::{Extent, Item, Table, Vector};
use super::malformed::{Malformed, Part};
use crate::runtime_features::{RuntimeFeatures, has};

crate::flatbuffer_table! {
    /// Root of a program.
    ProgramTable {
        0 version: u32,
        1 execution_plan: Vector<'a, ExecutionPlan<'a>>,
        2 constant_buffer: Vector<'a, Buffer<'a>>,
        3 backend_delegate_data: Vector<'a, Buffer<'a>>,
        4 segments: Vector<'a, DataSegment<'a>>,
        5 constant_segment: SubsegmentOffsets<'a>,
        6 mutable_data_segments: Vector<'a, SubsegmentOffsets<'a>>,
        7 named_data: Vector<'a, NamedData<'a>>,
    }
}

crate::flatbuffer_table! {
    /// A method: its values, its instructions and the tables that they refer to.
    ExecutionPlan {
        0 name: &'a str,
        2 values: Vector<'a, EValueTable<'a>>,
        3 inputs: Vector<'a, i32>,
        4 outputs: Vector<'a, i32>,
        5 chains: Vector<'a, Chain<'a>>,
        6 operators: Vector<'a, Operator<'a>>,
        7 delegates: Vector<'a, BackendDelegate<'a>>,
        /// Sizes of the planned buffers; entry 0 is reserved.
        8 non_const_buffer_sizes: Vector<'a, i64>,
    }
}

crate::flatbuffer_table! {
    /// Constant data or delegate data inside the flatbuffer.
    Buffer {
        0 storage: Vector<'a, u8>,
    }
}

crate::flatbuffer_table! {
    /// A range of data after the flatbuffer; the offset is relative to the segment base.
    DataSegment {
        0 offset: u64,
        1 size: u64,
    }
}

crate::flatbuffer_table! {
    /// Offsets of data within one segment.
    SubsegmentOffsets {
        0 segment_index: u32,
        1 offsets: Vector<'a, u64>,
    }
}

crate::flatbuffer_table! {
    /// A segment with a name.
    NamedData {
        0 key: &'a str,
        1 segment_index: u32,
    }
}

crate::flatbuffer_table! {
    /// A list of instructions.
    Chain {
        2 instructions: Vector<'a, InstructionTable<'a>>,
    }
}

crate::flatbuffer_table! {
    /// Name and overload of an operator.
    Operator {
        0 name: &'a str,
        1 overload: &'a str,
    }
}

crate::flatbuffer_table! {
    /// A lowered part of the model.
    BackendDelegate {
        0 id: &'a str,
        1 processed: DelegateDataReference<'a>,
        2 compile_specs: Vector<'a, CompileSpecTable<'a>>,
    }
}

crate::flatbuffer_table! {
    /// Location of a delegate's data: 0 inline, 1 in a segment.
    DelegateDataReference {
        0 location: i8,
        1 index: u32,
    }
}

crate::flatbuffer_table! {
    /// A key-value pair for a backend.
    CompileSpecTable {
        0 key: &'a str,
        1 value: Vector<'a, u8>,
    }
}

crate::flatbuffer_table! {
    /// Metadata of a tensor, and the location of its data.
    TensorTable {
        0 scalar_type: i8,
        1 storage_offset: i32,
        2 sizes: Vector<'a, i32>,
        3 dim_order: Vector<'a, u8>,
        5 data_buffer_idx: u32,
        6 allocation_info: AllocationDetails<'a>,
        8 shape_dynamism: i8,
        9 extra_tensor_info: ExtraTensorInfo<'a>,
    }
}

crate::flatbuffer_table! {
    /// Offset of a mutable tensor in planned memory.
    AllocationDetails {
        0 memory_id: u32,
        1 memory_offset_low: u32,
        2 memory_offset_high: u32,
    }
}

crate::flatbuffer_table! {
    /// Rarely used tensor metadata. Location 0 is this file, 1 is external data under the tensor's
    /// name.
    ExtraTensorInfo {
        0 mutable_data_segments_idx: u64,
        1 fully_qualified_name: &'a str,
        2 location: i8,
        3 device_type: i8,
        4 device_index: i8,
    }
}

crate::flatbuffer_table! { IntTable { 0 value: i64, } }
crate::flatbuffer_table! { BoolTable { 0 value: bool, } }
crate::flatbuffer_table! { DoubleTable { 0 value: f64, } }

/// A list value: its table has one field, the items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<'a> {
    pub(crate) kind: ListKind,
    pub(crate) items: Extent<'a>,
}

/// Kind of list items; the discriminant is the type number in the union of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ListKind {
    /// Value indices of integers, as `i64`.
    Int = 7,
    Double = 8,
    Bool = 9,
    /// Value indices of tensors, as `i32`.
    Tensor = 10,
    /// Value indices of tensors, as `i32`; -1 marks an absent tensor.
    OptionalTensor = 11,
}

impl ListKind {
    /// List kind with this number, if the image supports it.
    #[inline(always)]
    pub(crate) fn from_number(number: usize) -> Option<Self> {
        Some(match number {
            7 if has(RuntimeFeatures::NUMERIC_LISTS) => ListKind::Int,
            8 if has(RuntimeFeatures::NUMERIC_LISTS) => ListKind::Double,
            9 if has(RuntimeFeatures::NUMERIC_LISTS) => ListKind::Bool,
            10 if has(RuntimeFeatures::TENSOR_LISTS) => ListKind::Tensor,
            11 if has(RuntimeFeatures::TENSOR_LISTS) => ListKind::OptionalTensor,
            _ => return None,
        })
    }

    /// Size of an item in bytes.
    pub(crate) fn item(self) -> usize {
        match self {
            ListKind::Int | ListKind::Double => 8,
            ListKind::Bool => 1,
            ListKind::Tensor | ListKind::OptionalTensor => 4,
        }
    }
}

impl<'a> List<'a> {
    /// The items; `T` must have their size.
    pub(crate) fn items<T: Item<'a>>(&self) -> Vector<'a, T> {
        Vector::new(self.items)
    }
}

crate::flatbuffer_table! {
    /// A value as a union: field 0 is the type, field 1 the table.
    EValueTable {
        0 kind: u8,
    }
}

/// A value of a method as described in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EValue<'a> {
    None,
    Int(i64),
    Bool(bool),
    Double(f64),
    Tensor(TensorTable<'a>),
    /// Bytes that were not validated yet.
    String(Extent<'a>),
    List(List<'a>),
}

impl<'a> EValueTable<'a> {
    /// Returns the value if it is a tensor.
    pub(crate) fn tensor(&self) -> Result<Option<TensorTable<'a>>, Malformed> {
        match self.kind()? {
            5 => Ok(Some(TensorTable(self.0.union_value(1)?.ok_or(Part::ValueKind.at(5))?))),
            _ => Ok(None),
        }
    }

    pub(crate) fn value(&self) -> Result<EValue<'a>, Malformed> {
        let kind = self.kind()?;
        let Some(table) = self.0.union_value(1)? else {
            return match kind {
                0 | 1 => Ok(EValue::None),
                _ => Err(Part::ValueKind.at(usize::from(kind))),
            };
        };
        Ok(match kind {
            0 | 1 => EValue::None,
            2 => EValue::Int(IntTable(table).value()?),
            3 => EValue::Bool(BoolTable(table).value()?),
            4 if has(RuntimeFeatures::FLOAT_SCALARS) => EValue::Double(DoubleTable(table).value()?),
            5 => EValue::Tensor(TensorTable(table)),
            6 if has(RuntimeFeatures::STRINGS) => EValue::String(Extent::of_field(&table, 0, 1)?),
            _ => {
                let number = usize::from(kind);
                let kind = ListKind::from_number(number).ok_or(Part::ValueKind.at(number))?;
                EValue::List(List { kind, items: Extent::of_field(&table, 0, kind.item())? })
            }
        })
    }
}

crate::flatbuffer_table! {
    /// An instruction as a union: field 0 is the type, field 1 the table.
    InstructionTable {
        0 kind: u8,
    }
}

crate::flatbuffer_table! { KernelCallTable { 0 op_index: i32, 1 args: Vector<'a, i32>, } }
crate::flatbuffer_table! { DelegateCallTable { 0 delegate_index: i32, 1 args: Vector<'a, i32>, } }
crate::flatbuffer_table! { MoveCallTable { 0 from: i32, 1 to: i32, } }
crate::flatbuffer_table! { JumpFalseCallTable { 0 condition: i32, 1 destination: i32, } }
crate::flatbuffer_table! { FreeCallTable { 0 value: i32, } }

/// An instruction as described in the file; indices are unchecked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InstructionArgs<'a> {
    Kernel { operator: i32, args: Vector<'a, i32> },
    Delegate { delegate: i32, args: Vector<'a, i32> },
    Move { from: i32, to: i32 },
    JumpFalse { condition: i32, destination: i32 },
    Free { value: i32 },
}

impl<'a> InstructionTable<'a> {
    pub(crate) fn args(&self) -> Result<InstructionArgs<'a>, Malformed> {
        let kind = self.kind()?;
        let unknown = Part::InstructionKind.at(usize::from(kind));
        let table: Table<'a> = self.0.union_value(1)?.ok_or(unknown)?;
        Ok(match kind {
            1 => {
                let call = KernelCallTable(table);
                InstructionArgs::Kernel { operator: call.op_index()?, args: call.args()? }
            }
            2 if has(RuntimeFeatures::DELEGATES) => {
                let call = DelegateCallTable(table);
                InstructionArgs::Delegate { delegate: call.delegate_index()?, args: call.args()? }
            }
            3 if has(RuntimeFeatures::CONTROL) => {
                let call = MoveCallTable(table);
                InstructionArgs::Move { from: call.from()?, to: call.to()? }
            }
            4 if has(RuntimeFeatures::CONTROL) => {
                let call = JumpFalseCallTable(table);
                InstructionArgs::JumpFalse {
                    condition: call.condition()?,
                    destination: call.destination()?,
                }
            }
            5 => InstructionArgs::Free { value: FreeCallTable(table).value()? },
            _ => return Err(unknown),
        })
    }
}
