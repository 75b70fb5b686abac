//! A method as exported: its values and instructions, for compilers and tools that rewrite it. Only
//! the encoding of each item is validated: indices may be out of range, and memory offsets may
//! overlap.

use crate::data_map::Blob;
use crate::error::ProgramError;
use crate::file_tensor::{planned_offset, tensor_info, tensor_name};
use crate::format::flatbuffer::Vector;
use crate::format::program_schema::{EValue, InstructionArgs, ListKind, TensorTable};
use crate::format::{Malformed, Part};
use crate::layout::{ShapeDynamism, TensorInfo};
use crate::meta::MethodMeta;
use crate::value::Scalar;

/// A value of a method.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ExportedValue<'p> {
    /// Absent optional.
    None,
    /// A number or boolean, with its initial value.
    Scalar(Scalar),
    /// A string.
    String(&'p str),
    /// Value indices of the integers.
    Ints(Vector<'p, i64>),
    /// Floats.
    Doubles(Vector<'p, f64>),
    /// Booleans, one byte each.
    Bools(&'p [u8]),
    /// Value indices of the tensors.
    Tensors(Vector<'p, i32>),
    /// Value indices of the tensors; -1 marks an absent one.
    OptionalTensors(Vector<'p, i32>),
    /// A tensor.
    Tensor(ExportedTensor<'p>),
}

/// A tensor of a method.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExportedTensor<'p> {
    /// Dtype, shape and layout; for a dynamic shape, its upper bound.
    pub info: TensorInfo,
    /// Whether the shape can change.
    pub dynamism: ShapeDynamism,
    /// Planned buffer and byte offset, if the tensor is memory-planned.
    pub location: Option<(usize, usize)>,
    /// Contents of a constant, or initial contents of a planned tensor.
    pub data: ExportedData<'p>,
    /// Name, if the exporter kept it.
    pub name: Option<&'p str>,
}

/// Location of a tensor's data.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ExportedData<'p> {
    /// The tensor has no data.
    None,
    /// In the program file.
    Inside(Blob<'p>),
    /// In external data, under the tensor's name.
    Outside,
}

/// An instruction of a method, with indices of operators, delegates, values and instructions.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ExportedInstruction<'p> {
    /// Runs a kernel.
    Kernel {
        /// Index in the method's operator table.
        operator: i32,
        /// Value indices of the arguments.
        args: Vector<'p, i32>,
    },
    /// Runs a delegate.
    Delegate {
        /// Index in the method's delegate table.
        delegate: i32,
        /// Value indices of the arguments.
        args: Vector<'p, i32>,
    },
    /// Copies a value to another.
    Move {
        /// Value index of the source.
        from: i32,
        /// Value index of the target.
        to: i32,
    },
    /// Jumps if a value is false.
    JumpFalse {
        /// Value index of the condition.
        condition: i32,
        /// Index of the target instruction, relative to the start of the chain.
        destination: i32,
    },
    /// Releases a tensor's memory.
    Free {
        /// Value index of the tensor.
        value: i32,
    },
}

impl<'p> MethodMeta<'p> {
    /// The method's values, in order.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn exported_values(
        &self,
    ) -> Result<impl Iterator<Item = Result<ExportedValue<'p>, ProgramError>> + use<'p>, ProgramError>
    {
        let meta = *self;
        let values = self.plan.values()?.iter().enumerate();
        Ok(values.map(move |(index, value)| {
            Ok(match value?.value()? {
                EValue::None => ExportedValue::None,
                EValue::Int(value) => ExportedValue::Scalar(Scalar::Int(value)),
                EValue::Bool(value) => ExportedValue::Scalar(Scalar::Bool(value)),
                EValue::Double(value) => ExportedValue::Scalar(Scalar::Double(value)),
                EValue::String(value) => ExportedValue::String(value.text()?),
                EValue::List(list) => match list.kind {
                    ListKind::Int => ExportedValue::Ints(list.items()),
                    ListKind::Double => ExportedValue::Doubles(list.items()),
                    ListKind::Bool => ExportedValue::Bools(list.items.bytes(1)),
                    ListKind::Tensor => ExportedValue::Tensors(list.items()),
                    ListKind::OptionalTensor => ExportedValue::OptionalTensors(list.items()),
                },
                EValue::Tensor(tensor) => {
                    ExportedValue::Tensor(meta.exported_tensor(&tensor, Part::Tensor.at(index))?)
                }
            })
        }))
    }

    fn exported_tensor(
        &self,
        tensor: &TensorTable<'p>,
        malformed: Malformed,
    ) -> Result<ExportedTensor<'p>, Malformed> {
        let info = tensor_info(tensor).ok_or(malformed)?;
        let dynamism = ShapeDynamism::from_number(tensor.shape_dynamism()?).ok_or(malformed)?;
        if tensor.storage_offset()? != 0 {
            return Err(malformed);
        }
        let location = match tensor.allocation_info()? {
            Some(allocation) => Some(planned_offset(&allocation)?.ok_or(malformed)?),
            None => None,
        };
        let extra = tensor.extra_tensor_info()?;
        let outside = match &extra {
            Some(extra) => extra.location()? == 1,
            None => false,
        };
        let entry = usize::try_from(tensor.data_buffer_idx()?).map_err(|_| malformed)?;
        let data = if outside {
            ExportedData::Outside
        } else if entry == 0 {
            ExportedData::None
        } else if location.is_some() {
            let table = extra.as_ref().map_or(Ok(0), |extra| extra.mutable_data_segments_idx())?;
            ExportedData::Inside(self.program.initial_data(table, entry, info.nbytes())?)
        } else {
            ExportedData::Inside(self.program.constant(entry, info.nbytes())?)
        };
        Ok(ExportedTensor { info, dynamism, location, data, name: tensor_name(tensor)? })
    }

    /// Value indices of the method's inputs and outputs.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn exported_interface(&self) -> Result<(Vector<'p, i32>, Vector<'p, i32>), ProgramError> {
        Ok((self.plan.inputs()?, self.plan.outputs()?))
    }

    /// The method's instructions, in order, each with the index at which its chain starts. Jump
    /// targets are relative to that index.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn exported_instructions(
        &self,
    ) -> Result<
        impl Iterator<Item = Result<(usize, ExportedInstruction<'p>), ProgramError>> + use<'p>,
        ProgramError,
    > {
        Ok(self.instructions()?.map(|instruction| {
            let (start, args) = instruction?;
            let instruction = match args {
                InstructionArgs::Kernel { operator, args } => {
                    ExportedInstruction::Kernel { operator, args }
                }
                InstructionArgs::Delegate { delegate, args } => {
                    ExportedInstruction::Delegate { delegate, args }
                }
                InstructionArgs::Move { from, to } => ExportedInstruction::Move { from, to },
                InstructionArgs::JumpFalse { condition, destination } => {
                    ExportedInstruction::JumpFalse { condition, destination }
                }
                InstructionArgs::Free { value } => ExportedInstruction::Free { value },
            };
            Ok((start, instruction))
        }))
    }
}
