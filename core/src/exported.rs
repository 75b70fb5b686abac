//! A method as its file describes it, value by value and instruction by instruction, for compilers
//! and tools that make another of it. Nothing here is checked beyond its own bytes: indices may
//! lead nowhere, and places may overlap.

use crate::data_map::Blob;
use crate::error::ProgramError;
use crate::format::flatbuffer::Vector;
use crate::format::program_schema::{EValue, InstructionArgs, ListKind, TensorTable};
use crate::format::{Malformed, Part};
use crate::layout::{ShapeDynamism, TensorInfo};
use crate::meta::{MethodMeta, tensor_name};
use crate::method::tables::tensor_info;
use crate::place::planned_place;
use crate::value::Scalar;

/// A value of a method.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ExportedValue<'p> {
    /// Nothing: an optional that is absent.
    None,
    /// A number or truth value, as it is at the start.
    Scalar(Scalar),
    /// A string.
    String(&'p str),
    /// Indices of the values that are the integers.
    Ints(Vector<'p, i64>),
    /// Numbers.
    Doubles(Vector<'p, f64>),
    /// Truth values, a byte each.
    Bools(&'p [u8]),
    /// Indices of the values that are the tensors.
    Tensors(Vector<'p, i32>),
    /// The same, with -1 for none.
    OptionalTensors(Vector<'p, i32>),
    /// A tensor.
    Tensor(ExportedTensor<'p>),
}

/// A tensor of a method.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExportedTensor<'p> {
    /// Type, shape and layout; the bound of the shape where it is dynamic.
    pub info: TensorInfo,
    /// Whether the shape can change.
    pub dynamism: ShapeDynamism,
    /// Its planned buffer and the offset there, if memory was planned for it.
    pub place: Option<(usize, usize)>,
    /// Its data: all there is without a place, what it starts with otherwise.
    pub data: ExportedData<'p>,
    /// Its name, where the exporter kept it.
    pub name: Option<&'p str>,
}

/// Where the data of a tensor is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ExportedData<'p> {
    /// It has none.
    None,
    /// In the program.
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
        /// The operator in the method's table.
        operator: i32,
        /// The arguments.
        args: Vector<'p, i32>,
    },
    /// Runs a delegate.
    Delegate {
        /// The delegate in the method's table.
        delegate: i32,
        /// The arguments.
        args: Vector<'p, i32>,
    },
    /// Copies a value to another.
    Move {
        /// The value that is copied.
        from: i32,
        /// The value that is overwritten.
        to: i32,
    },
    /// Continues elsewhere if a value is false.
    JumpFalse {
        /// The value.
        condition: i32,
        /// The instruction to continue at.
        destination: i32,
    },
    /// Gives up a tensor's memory.
    Free {
        /// The tensor.
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
        let place = match tensor.allocation_info()? {
            Some(allocation) => Some(planned_place(&allocation)?.ok_or(malformed)?),
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
        } else if place.is_some() {
            let table = extra.as_ref().map_or(Ok(0), |extra| extra.mutable_data_segments_idx())?;
            ExportedData::Inside(self.program.initial_data(table, entry, info.nbytes())?)
        } else {
            ExportedData::Inside(self.program.constant(entry, info.nbytes())?)
        };
        Ok(ExportedTensor { info, dynamism, place, data, name: tensor_name(tensor)? })
    }

    /// The values that are the method's inputs, or its outputs.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn exported_interface(&self) -> Result<(Vector<'p, i32>, Vector<'p, i32>), ProgramError> {
        Ok((self.plan.inputs()?, self.plan.outputs()?))
    }

    /// The method's instructions, in order, each with the index at which its chain starts:
    /// destinations count from there.
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
