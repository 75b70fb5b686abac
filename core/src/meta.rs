//! Description of a method's interface and values, available before anything is loaded or
//! allocated.

use crate::backend::DelegateInfo;
use crate::data_map::{Blob, DataMap};
use crate::error::ProgramError;
use crate::file_tensor::{is_constant, planned_offset, tensor_info, tensor_name};
use crate::format::flatbuffer::Vector;
use crate::format::program_schema::{
    BackendDelegate, Chain, EValue, EValueTable, ExecutionPlan, InstructionArgs, InstructionTable,
    TensorTable,
};
use crate::format::{Malformed, Part};
use crate::layout::{ShapeDynamism, Sizes, TensorInfo};
use crate::program::Program;
use crate::registry::{Missing, OperatorName, Registry};
use crate::value::Scalar;

/// Description of a method in its program.
#[derive(Debug, Clone, Copy)]
pub struct MethodMeta<'p> {
    pub(crate) program: Program<'p>,
    pub(crate) plan: ExecutionPlan<'p>,
    name: &'p str,
}

/// A tensor of a method's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMeta<'p> {
    /// Dtype, shape and layout. For a dynamic shape, its upper bound.
    pub info: TensorInfo,
    /// Whether the shape can change between runs.
    pub dynamism: ShapeDynamism,
    /// Whether the tensor has an offset in planned memory; otherwise the caller binds memory to it,
    /// or it is constant.
    pub planned: bool,
    /// Whether the data is constant and stored with the program.
    pub constant: bool,
    /// Fully qualified name of the parameter or buffer, if the exporter kept it.
    pub name: Option<&'p str>,
}

/// A value of a method's interface.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ValueMeta<'p> {
    /// Absent optional at export.
    None,
    /// A number or boolean, with its value at export.
    Scalar(Scalar),
    /// A string, with its value at export.
    String(&'p str),
    /// A tensor.
    Tensor(TensorMeta<'p>),
    /// A list, by length.
    List(usize),
}

/// Converts the index of a value, operator or delegate in the file.
pub(crate) fn to_index(index: i32, malformed: Malformed) -> Result<usize, Malformed> {
    usize::try_from(index).map_err(|_| malformed)
}

impl<'p> Program<'p> {
    /// Describes a method: inputs, outputs and memory requirements.
    ///
    /// # Errors
    /// The file is malformed, or has no such method.
    pub fn method_meta(&self, name: &str) -> Result<MethodMeta<'p>, ProgramError> {
        let plan = self.plans()?.named(name)?.ok_or(ProgramError::NoSuchMethod)?;
        MethodMeta::new(*self, plan)
    }
}

impl<'p> MethodMeta<'p> {
    pub(crate) fn new(program: Program<'p>, plan: ExecutionPlan<'p>) -> Result<Self, ProgramError> {
        Ok(MethodMeta { program, plan, name: plan.name()?.unwrap_or("") })
    }

    /// The method's name.
    pub fn name(&self) -> &'p str {
        self.name
    }

    /// The program that the method is part of.
    pub fn program(&self) -> Program<'p> {
        self.program
    }

    fn interface(
        &self,
        indices: Result<Vector<'p, i32>, Malformed>,
        position: usize,
    ) -> Result<Option<ValueMeta<'p>>, ProgramError> {
        match indices?.get(position)? {
            Some(index) => self.value(to_index(index, Part::Value.at(position))?).map(Some),
            None => Ok(None),
        }
    }

    fn value(&self, index: usize) -> Result<ValueMeta<'p>, ProgramError> {
        Ok(match self.plan.values()?.item(index, Part::Value)?.value()? {
            EValue::None => ValueMeta::None,
            EValue::Int(value) => ValueMeta::Scalar(Scalar::Int(value)),
            EValue::Bool(value) => ValueMeta::Scalar(Scalar::Bool(value)),
            EValue::Double(value) => ValueMeta::Scalar(Scalar::Double(value)),
            EValue::String(value) => ValueMeta::String(value.text()?),
            EValue::List(list) => ValueMeta::List(list.items.len()),
            EValue::Tensor(tensor) => {
                let malformed = Part::Tensor.at(index);
                ValueMeta::Tensor(TensorMeta {
                    info: tensor_info(&tensor).ok_or(malformed)?,
                    dynamism: ShapeDynamism::from_number(tensor.shape_dynamism()?)
                        .ok_or(malformed)?,
                    planned: tensor.allocation_info()?.is_some(),
                    constant: is_constant(&tensor),
                    name: tensor_name(&tensor)?,
                })
            }
        })
    }

    /// Iterates over the tensors among the method's values, in order.
    pub(crate) fn tensors(&self) -> Result<Tensors<'p>, Malformed> {
        Ok(Tensors { values: self.plan.values()?, next: 0, count: 0, current: None })
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.plan.inputs().map_or(0, |inputs| inputs.len())
    }

    /// Describes input `index`; `None` if out of range.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn input(&self, index: usize) -> Result<Option<ValueMeta<'p>>, ProgramError> {
        self.interface(self.plan.inputs(), index)
    }

    /// Number of outputs.
    pub fn output_count(&self) -> usize {
        self.plan.outputs().map_or(0, |outputs| outputs.len())
    }

    /// Describes output `index`; `None` if out of range.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn output(&self, index: usize) -> Result<Option<ValueMeta<'p>>, ProgramError> {
        self.interface(self.plan.outputs(), index)
    }

    /// Value index of output `index`; `None` if out of range.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn output_value_index(&self, index: usize) -> Result<Option<usize>, ProgramError> {
        let value = self.plan.outputs()?.get(index)?;
        Ok(value.and_then(|value| usize::try_from(value).ok()))
    }

    /// Number of values.
    pub fn value_count(&self) -> usize {
        self.plan.values().map_or(0, |values| values.len())
    }

    /// Describes the value at an index, for tools that display methods; `None` if out of range.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn value_meta(&self, index: usize) -> Result<Option<ValueMeta<'p>>, ProgramError> {
        if index < self.value_count() { self.value(index).map(Some) } else { Ok(None) }
    }

    /// Planned buffer and byte offset of the tensor at this value index. `None` if the value is not
    /// a tensor, or not memory-planned.
    ///
    /// # Errors
    /// The file is malformed, or the value does not exist.
    pub fn planned_offset(&self, index: usize) -> Result<Option<(usize, usize)>, ProgramError> {
        let malformed = Part::Value.at(index);
        let value = self.plan.values()?.get(index)?.ok_or(malformed)?.value()?;
        let EValue::Tensor(tensor) = value else { return Ok(None) };
        match tensor.allocation_info()? {
            Some(allocation) => Ok(planned_offset(&allocation)?),
            None => Ok(None),
        }
    }

    /// Whether the value is a tensor with data that is not memory-planned.
    pub(crate) fn is_constant(&self, index: usize) -> Result<bool, Malformed> {
        let value = self.plan.values()?.get(index)?.ok_or(Part::Value.at(index))?;
        Ok(value.tensor()?.is_some_and(|tensor| is_constant(&tensor)))
    }

    /// Name of the tensor at this value index, if the exporter kept it.
    pub(crate) fn tensor_name(&self, index: usize) -> Option<&'p str> {
        tensor_name(&self.plan.values().ok()?.get(index).ok()??.tensor().ok()??).ok()?
    }

    /// Exported sizes of the tensor at this value index.
    pub(crate) fn tensor_sizes(&self, index: usize) -> Option<Sizes> {
        let tensor = self.plan.values().ok()?.get(index).ok()??.tensor().ok()??;
        Some(tensor.sizes().ok()?.iter().flatten().collect())
    }

    /// Number of planned buffers that the caller supplies. (Files list one more: their first entry
    /// is reserved.)
    pub fn planned_buffer_count(&self) -> usize {
        self.plan.non_const_buffer_sizes().map_or(0, |sizes| sizes.len().saturating_sub(1))
    }

    /// Size of planned buffer `index` in bytes.
    ///
    /// # Errors
    /// The file is malformed, or the buffer does not exist.
    pub fn planned_buffer_size(&self, index: usize) -> Result<usize, ProgramError> {
        Ok(self.planned_size(index)?)
    }

    /// Like [`planned_buffer_size`](Self::planned_buffer_size), with an error that fits a register.
    pub(crate) fn planned_size(&self, index: usize) -> Result<usize, Malformed> {
        let malformed = Part::PlannedBuffer.at(index);
        let position = index.checked_add(1).ok_or(malformed)?;
        let size = self.plan.non_const_buffer_sizes()?.get(position)?.ok_or(malformed)?;
        usize::try_from(size).map_err(|_| malformed)
    }

    /// Names of the operators that the method uses, without duplicates.
    pub fn operators(
        &self,
    ) -> impl Iterator<Item = Result<OperatorName<'p>, ProgramError>> + use<'p> {
        let meta = *self;
        let count = self.plan.operators().map_or(0, |operators| operators.len());
        (0..count).map(move |index| Ok(meta.operator(index)?))
    }

    /// Operator at this index of the method's operator table.
    pub(crate) fn operator(&self, index: usize) -> Result<OperatorName<'p>, Malformed> {
        let operator = self.plan.operators()?.item(index, Part::Operator)?;
        Ok(OperatorName {
            name: operator.name()?.unwrap_or(""),
            overload: operator.overload()?.unwrap_or(""),
        })
    }

    /// Number of delegates.
    pub fn delegate_count(&self) -> usize {
        self.plan.delegates().map_or(0, |delegates| delegates.len())
    }

    /// Backend name of delegate `index`; `None` if out of range.
    pub fn delegate_backend(&self, index: usize) -> Option<&'p str> {
        self.plan.delegates().ok()?.get(index).ok()??.id().ok()?
    }

    /// Describes delegate `index`.
    ///
    /// # Errors
    /// The file is malformed, or the delegate does not exist.
    pub fn delegate(
        &self,
        index: usize,
        data: &'p [DataMap<'p>],
    ) -> Result<DelegateInfo<'p>, ProgramError> {
        Ok(self.delegate_info(index, data)?)
    }

    /// Like [`delegate`](Self::delegate), with an error that fits a register.
    pub(crate) fn delegate_info(
        &self,
        index: usize,
        data: &'p [DataMap<'p>],
    ) -> Result<DelegateInfo<'p>, Malformed> {
        let delegate: BackendDelegate<'p> = self.plan.delegates()?.item(index, Part::Delegate)?;
        let processed = match delegate.processed()? {
            Some(reference) => self.program.delegate_data(&reference)?,
            None => Blob::inline(&[]),
        };
        Ok(DelegateInfo {
            backend: delegate.id()?.unwrap_or(""),
            method: self.name,
            index,
            processed,
            compile_specs: delegate.compile_specs()?,
            program: self.program,
            data,
        })
    }

    /// Number of instructions.
    pub fn instruction_count(&self) -> usize {
        let Ok(chains) = self.plan.chains() else { return 0 };
        chains
            .iter()
            .flatten()
            .filter_map(|chain| chain.instructions().ok())
            .fold(0, |count, instructions| count.saturating_add(instructions.len()))
    }

    /// Iterates over all instructions, each with the index at which its chain starts.
    pub(crate) fn instructions(&self) -> Result<Instructions<'p>, Malformed> {
        let chains = self.plan.chains()?;
        Ok(Instructions { chains, chain: 0, list: None, position: 0, start: 0 })
    }

    /// Operator, backend or kind of each instruction, for tools that display methods.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn instruction_names(
        &self,
    ) -> Result<
        impl Iterator<Item = Result<InstructionName<'p>, ProgramError>> + use<'p>,
        ProgramError,
    > {
        let meta = *self;
        Ok(self.instructions()?.map(move |instruction| {
            Ok(match instruction?.1 {
                InstructionArgs::Kernel { operator, .. } => InstructionName::Kernel(
                    meta.operator(to_index(operator, Part::Operator.at(0))?)?,
                ),
                InstructionArgs::Delegate { delegate, .. } => {
                    InstructionName::Delegate(to_index(delegate, Part::Delegate.at(0))?)
                }
                InstructionArgs::Move { .. } => InstructionName::Move,
                InstructionArgs::JumpFalse { .. } => InstructionName::JumpFalse,
                InstructionArgs::Free { .. } => InstructionName::Free,
            })
        }))
    }

    /// First string among the arguments of an instruction: the message of an assertion, such as
    /// `aten::_assert_scalar`. `None` if it has none.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn instruction_text(&self, index: usize) -> Result<Option<&'p str>, ProgramError> {
        let Some(instruction) = self.instructions()?.nth(index) else { return Ok(None) };
        let InstructionArgs::Kernel { args, .. } = instruction?.1 else { return Ok(None) };
        for value in args.iter() {
            let Ok(value) = usize::try_from(value?) else { continue };
            if let Some(ValueMeta::String(text)) = self.value_meta(value)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Operators and backends that the method needs and the registry lacks.
    pub fn missing<'a>(&self, registry: &'a Registry<'a>) -> Missing<'a>
    where
        'p: 'a,
    {
        Missing { meta: *self, registry }
    }
}

/// Lending iterator over the tensors among a method's values. An `Iterator` would copy each item.
pub(crate) struct Tensors<'p> {
    values: Vector<'p, EValueTable<'p>>,
    /// Index of the next value.
    next: usize,
    /// Number of tensors so far.
    count: u32,
    current: Option<TensorValue<'p>>,
}

/// A tensor among a method's values.
pub(crate) struct TensorValue<'p> {
    /// Index of the value.
    pub(crate) index: usize,
    /// Index among the tensors.
    pub(crate) slot: u32,
    pub(crate) tensor: TensorTable<'p>,
}

impl<'p> Tensors<'p> {
    pub(crate) fn next(&mut self) -> Result<Option<&TensorValue<'p>>, Malformed> {
        while let Some(value) = self.values.get(self.next)? {
            let index = self.next;
            self.next += 1;
            if let Some(tensor) = value.tensor()? {
                let slot = self.count;
                self.count = slot.saturating_add(1);
                return Ok(Some(self.current.insert(TensorValue { index, slot, tensor })));
            }
        }
        Ok(None)
    }
}

/// Iterator over the instructions of all chains, in order.
pub(crate) struct Instructions<'p> {
    chains: Vector<'p, Chain<'p>>,
    /// Index of the next chain.
    chain: usize,
    /// Instructions of the current chain, and the index of the next one.
    list: Option<Vector<'p, InstructionTable<'p>>>,
    position: usize,
    /// Index of the current chain's first instruction.
    start: usize,
}

impl<'p> Iterator for Instructions<'p> {
    type Item = Result<(usize, InstructionArgs<'p>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            // Iteration ends at the first error.
            (self.chain, self.list) = (usize::MAX, None);
        }
        next.transpose()
    }
}

impl<'p> Instructions<'p> {
    /// Returns the next instruction, for callers that stop at an error.
    pub(crate) fn advance(&mut self) -> Result<Option<(usize, InstructionArgs<'p>)>, Malformed> {
        loop {
            if let Some(list) = &self.list
                && let Some(instruction) = list.get(self.position)?
            {
                self.position += 1;
                return Ok(Some((self.start, instruction.args()?)));
            }
            let Some(chain) = self.chains.get(self.chain)? else { return Ok(None) };
            self.chain += 1;
            self.start = self.start.saturating_add(self.position);
            self.position = 0;
            self.list = Some(chain.instructions()?);
        }
    }
}

/// Operation of an instruction, with its operator or delegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstructionName<'p> {
    /// A kernel for this operator.
    Kernel(OperatorName<'p>),
    /// The delegate with this index.
    Delegate(usize),
    /// A copy of a value to another.
    Move,
    /// A jump that is taken if a value is false.
    JumpFalse,
    /// A release of a tensor's memory.
    Free,
}
