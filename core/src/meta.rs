//! What a method takes, gives and needs, known before anything is loaded or reserved.

use crate::arguments::{ArgumentSource, Arguments, is_constant, tensor_info};
use crate::backend::DelegateInfo;
use crate::call::Prepare;
use crate::data_map::{Blob, DataMap};
use crate::error::{InitError, ProgramError};
use crate::format::flatbuffer::{Malformed, Vector};
use crate::format::program_schema::{
    BackendDelegate, EValue, ExecutionPlan, InstructionArgs, InstructionTable, TensorTable,
};
use crate::kernel::{Kernel, Plan};
use crate::layout::{ShapeDynamism, TensorInfo};
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::Measure;
use crate::memory::region::Region;
use crate::method::Instruction;
use crate::program::Program;
use crate::registry::{Missing, OperatorName, Registry};
use crate::value::{Scalar, TensorSlot, Value};
use crate::values::Roles;

/// A method's description in its program.
#[derive(Debug, Clone, Copy)]
pub struct MethodMeta<'p> {
    pub(crate) program: Program<'p>,
    pub(crate) plan: ExecutionPlan<'p>,
    name: &'p str,
}

/// A tensor of a method's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMeta<'p> {
    /// Type, shape and layout. Where the shape is dynamic, it is the bound.
    pub info: TensorInfo,
    /// Whether the shape can change between runs.
    pub dynamism: ShapeDynamism,
    /// Whether it has a place in planned memory; otherwise the caller binds memory to it, or it is constant.
    pub planned: bool,
    /// Whether its data comes with the program.
    pub constant: bool,
    /// Its name, where the exporter kept it: that of a parameter or buffer.
    pub name: Option<&'p str>,
}

/// A value of a method's interface.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ValueMeta<'p> {
    /// Nothing: an optional that was absent at export.
    None,
    /// A number or truth value, as it was at export.
    Scalar(Scalar),
    /// A string, as it was at export.
    String(&'p str),
    /// A tensor.
    Tensor(TensorMeta<'p>),
    /// A list of this many elements.
    List(usize),
}

/// The exact memory that loading a method takes, beside its planned buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MemoryNeeds {
    /// Bytes of the method arena.
    pub arena: usize,
    /// Bytes of scratch memory.
    pub scratch: usize,
}

/// A piece of a method's memory, for reports on where the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaUse {
    /// Values and their lists.
    pub values: usize,
    /// Tensors: shape, layout, place.
    pub tensors: usize,
    /// Instructions.
    pub instructions: usize,
    /// Delegates and what they allocate.
    pub delegates: usize,
    /// Constants that had to be copied out of the file.
    pub constants: usize,
    /// Weights that kernels packed.
    pub packed: usize,
}

/// The index of a value, operator or delegate, as the file has it.
pub(crate) fn to_index(index: i32, what: &'static str) -> Result<usize, Malformed> {
    usize::try_from(index).map_err(|_| Malformed { what, offset: 0 })
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
            Some(index) => self.value(to_index(index, "value index")?).map(Some),
            None => Ok(None),
        }
    }

    fn value(&self, index: usize) -> Result<ValueMeta<'p>, ProgramError> {
        let malformed = Malformed { what: "value", offset: index };
        Ok(match self.plan.values()?.get(index)?.ok_or(malformed)?.value()? {
            EValue::None => ValueMeta::None,
            EValue::Int(value) => ValueMeta::Scalar(Scalar::Int(value)),
            EValue::Bool(value) => ValueMeta::Scalar(Scalar::Bool(value)),
            EValue::Double(value) => ValueMeta::Scalar(Scalar::Double(value)),
            EValue::String(value) => ValueMeta::String(value),
            EValue::IntList(items) => ValueMeta::List(items.len()),
            EValue::DoubleList(items) => ValueMeta::List(items.len()),
            EValue::BoolList(items) => ValueMeta::List(items.len()),
            EValue::TensorList(items) | EValue::OptionalTensorList(items) => {
                ValueMeta::List(items.len())
            }
            EValue::Tensor(tensor) => {
                let malformed = Malformed { what: "tensor (type, shape or layout)", offset: index };
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

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.plan.inputs().map_or(0, |inputs| inputs.len())
    }

    /// What input `index` is; `None` beyond the last.
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

    /// What output `index` is; `None` beyond the last.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn output(&self, index: usize) -> Result<Option<ValueMeta<'p>>, ProgramError> {
        self.interface(self.plan.outputs(), index)
    }

    /// Number of values.
    pub fn value_count(&self) -> usize {
        self.plan.values().map_or(0, |values| values.len())
    }

    /// What the value of this index is, for tools that show a method; `None` beyond the last.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn value_meta(&self, index: usize) -> Result<Option<ValueMeta<'p>>, ProgramError> {
        if index < self.value_count() { self.value(index).map(Some) } else { Ok(None) }
    }

    /// The method's state that has no place in planned memory: value index and description of tensors that keep their
    /// contents between runs and that the caller [binds memory to](crate::Method::bind_state). Exporters leave such state
    /// to the caller on request only.
    pub fn unplanned_state(
        &self,
    ) -> impl Iterator<Item = Result<(usize, TensorMeta<'p>), ProgramError>> + use<'p> {
        let meta = *self;
        (0..self.value_count()).filter_map(move |index| match meta.value(index) {
            Ok(ValueMeta::Tensor(tensor)) => {
                let state = !tensor.planned && !tensor.constant && tensor.name.is_some();
                (state && !meta.is_interface(index)).then_some(Ok((index, tensor)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Whether a value is an input or an output.
    fn is_interface(&self, index: usize) -> bool {
        let names = |indices: Result<Vector<'p, i32>, Malformed>| {
            let mut indices = indices.iter().flat_map(|indices| indices.iter()).flatten();
            indices.any(|other| usize::try_from(other) == Ok(index))
        };
        names(self.plan.inputs()) || names(self.plan.outputs())
    }

    /// Number of planned buffers that the caller supplies. (Files list one more: their first is reserved.)
    pub fn planned_buffer_count(&self) -> usize {
        self.plan.non_const_buffer_sizes().map_or(0, |sizes| sizes.len().saturating_sub(1))
    }

    /// Bytes of planned buffer `index`.
    ///
    /// # Errors
    /// The file is malformed, or there is no such buffer.
    pub fn planned_buffer_size(&self, index: usize) -> Result<usize, ProgramError> {
        let malformed = Malformed { what: "planned buffer size", offset: index };
        let position = index.checked_add(1).ok_or(malformed)?;
        let size = self.plan.non_const_buffer_sizes()?.get(position)?.ok_or(malformed)?;
        usize::try_from(size).map_err(|_| malformed.into())
    }

    /// Names of the operators that the method uses, each once.
    pub fn operators(
        &self,
    ) -> impl Iterator<Item = Result<OperatorName<'p>, ProgramError>> + use<'p> {
        let operators = self.plan.operators();
        let count = operators.map_or(0, |operators| operators.len());
        (0..count).map(move |index| {
            let malformed = Malformed { what: "operator", offset: index };
            let operator = operators?.get(index)?.ok_or(malformed)?;
            Ok(OperatorName {
                name: operator.name()?.unwrap_or(""),
                overload: operator.overload()?.unwrap_or(""),
            })
        })
    }

    /// The operator of this index in the method's table.
    pub(crate) fn operator(&self, index: usize) -> Result<OperatorName<'p>, Malformed> {
        let malformed = Malformed { what: "operator index", offset: index };
        let operator = self.plan.operators()?.get(index)?.ok_or(malformed)?;
        Ok(OperatorName {
            name: operator.name()?.unwrap_or(""),
            overload: operator.overload()?.unwrap_or(""),
        })
    }

    /// Number of delegates.
    pub fn delegate_count(&self) -> usize {
        self.plan.delegates().map_or(0, |delegates| delegates.len())
    }

    /// The name of the backend of delegate `index`; `None` beyond the last.
    pub fn delegate_backend(&self, index: usize) -> Option<&'p str> {
        self.plan.delegates().ok()?.get(index).ok()??.id().ok()?
    }

    /// What the program says of delegate `index`.
    ///
    /// # Errors
    /// The file is malformed, or there is no such delegate.
    pub fn delegate(
        &self,
        index: usize,
        data: &'p [DataMap<'p>],
    ) -> Result<DelegateInfo<'p>, ProgramError> {
        let malformed = Malformed { what: "delegate", offset: index };
        let delegate: BackendDelegate<'p> = self.plan.delegates()?.get(index)?.ok_or(malformed)?;
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

    /// Every instruction with the index at which its chain starts.
    pub(crate) fn instructions(
        &self,
    ) -> Result<
        impl Iterator<Item = Result<(usize, InstructionArgs<'p>), Malformed>> + use<'p>,
        Malformed,
    > {
        let chains = self.plan.chains()?;
        let mut start = 0usize;
        Ok(chains.iter().flat_map(move |chain| {
            let instructions: Result<Vector<'p, InstructionTable<'p>>, Malformed> =
                chain.and_then(|chain| chain.instructions());
            let first = start;
            start = start.saturating_add(instructions.map_or(0, |list| list.len()));
            let (list, error) = match instructions {
                Ok(list) => (Some(list), None),
                Err(error) => (None, Some(Err(error))),
            };
            list.into_iter()
                .flat_map(|list| list.iter())
                .map(move |instruction| Ok((first, instruction?.args()?)))
                .chain(error)
        }))
    }

    /// The name of what each instruction runs, for tools that show a method.
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
                InstructionArgs::Kernel { operator, .. } => {
                    InstructionName::Kernel(meta.operator(to_index(operator, "operator index")?)?)
                }
                InstructionArgs::Delegate { delegate, .. } => {
                    InstructionName::Delegate(to_index(delegate, "delegate index")?)
                }
                InstructionArgs::Move { .. } => InstructionName::Move,
                InstructionArgs::JumpFalse { .. } => InstructionName::JumpFalse,
                InstructionArgs::Free { .. } => InstructionName::Free,
            })
        }))
    }

    /// The operators and backends that the method needs and the registry does not have.
    pub fn missing(&self, registry: &'p Registry<'p>) -> Missing<'p> {
        Missing { meta: *self, registry }
    }

    /// The kernel of an instruction.
    pub(crate) fn find_kernel(
        &self,
        registry: &'p Registry<'p>,
        operator: OperatorName<'p>,
        args: Vector<'p, i32>,
    ) -> Result<Option<&'p Kernel>, Malformed> {
        let Some(name) = operator.joined() else { return Ok(None) };
        let arguments =
            Arguments::new(ArgumentSource::File { values: self.plan.values()?, args }, &[]);
        let tensor =
            |wanted: usize| (0..args.len()).filter_map(|arg| arguments.info(arg).ok()).nth(wanted);
        Ok(registry.find(&name, tensor))
    }

    /// What a kernel decides when it sees the arguments as they are in the file.
    pub(crate) fn plan_kernel(
        &self,
        kernel: &'p Kernel,
        args: Vector<'p, i32>,
        threads: usize,
    ) -> Result<Result<Plan, crate::error::KernelError>, Malformed> {
        let source = ArgumentSource::File { values: self.plan.values()?, args };
        let arguments = Arguments::new(source, kernel.params);
        Ok(arguments
            .check_kinds()
            .and_then(|()| (kernel.prepare)(&mut Prepare::new(arguments, false, threads))))
    }

    /// Checks that what the file lists from several places does not unfold to more than the file could list
    /// once: then loading takes time and memory in proportion to the file, even if its tables are shared.
    pub(crate) fn check_unfolded(&self) -> Result<(), Malformed> {
        // Every instruction, argument and size takes four bytes at least.
        let mut left = self.program.flatbuffer_size() / 4;
        let mut take = |count: usize, what| {
            left = left.checked_sub(count).ok_or(Malformed { what, offset: 0 })?;
            Ok(())
        };
        take(self.instruction_count(), "chains (shared)")?;
        for instruction in self.instructions()? {
            if let (
                _,
                InstructionArgs::Kernel { args, .. } | InstructionArgs::Delegate { args, .. },
            ) = instruction?
            {
                take(args.len(), "arguments (shared)")?;
            }
        }
        for value in self.plan.values()?.iter() {
            if let EValue::Tensor(tensor) = value?.value()? {
                take(tensor.sizes()?.len(), "sizes (shared)")?;
            }
        }
        Ok(())
    }

    /// The exact bytes of method arena and scratch memory for this method with these kernels and backends,
    /// this external data and at most `threads` threads.
    ///
    /// # Errors
    /// The method could not be loaded either: the file is malformed, or something is missing.
    pub fn memory_needs(
        &self,
        registry: &'p Registry<'p>,
        data: &'p [DataMap<'p>],
        threads: usize,
    ) -> Result<MemoryNeeds, InitError<'p>> {
        self.memory_report(registry, data, threads).map(|(needs, _)| needs)
    }

    /// As [`memory_needs`](Self::memory_needs), with a breakdown of the arena.
    ///
    /// # Errors
    /// As [`memory_needs`](Self::memory_needs).
    pub fn memory_report(
        &self,
        registry: &'p Registry<'p>,
        data: &'p [DataMap<'p>],
        threads: usize,
    ) -> Result<(MemoryNeeds, ArenaUse), InitError<'p>> {
        let missing = self.missing(registry);
        if !missing.is_empty() {
            return Err(InitError::Missing(missing));
        }
        self.check_unfolded()?;
        let values = self.plan.values()?;
        let (mut tensors, mut ranks) = (0usize, 0usize);
        for value in values.iter() {
            if let EValue::Tensor(tensor) = value?.value()? {
                tensors += 1;
                ranks += tensor.sizes()?.len();
            }
        }
        let mut measure = Measure::new();
        let mut marks = [0usize; 7];
        let mut mark = |measure: &Measure, position: usize| {
            if let (Some(total), Some(slot)) = (measure.total(), marks.get_mut(position)) {
                *slot = total;
            }
        };
        // The order is that of `Method::load`.
        measure.slice::<Region<'_>>(self.planned_buffer_count());
        measure.slice::<Value<'_>>(values.len());
        measure.slice::<u8>(values.len());
        mark(&measure, 1);
        measure.slice::<TensorSlot<'_>>(tensors);
        measure.slice::<i32>(ranks);
        mark(&measure, 2);
        measure.slice::<Instruction<'_>>(self.instruction_count());
        mark(&measure, 3);
        measure.slice::<Option<crate::backend::DelegateBox<'_>>>(self.delegate_count());

        let mut scratch = 0usize;
        for index in 0..self.delegate_count() {
            let info = self.delegate(index, data)?;
            let backend = registry
                .backend(info.backend)
                .ok_or_else(|| InitError::Missing(self.missing(registry)))?;
            let bytes = backend.arena_bytes(&info).map_err(|source| InitError::Delegate {
                index,
                backend: info.backend,
                source,
            })?;
            measure.bytes(bytes, ARENA_ALIGN);
            if info.processed.lend().is_none() {
                scratch = scratch.max(info.processed.size());
            }
        }
        mark(&measure, 4);
        for value in values.iter() {
            if let EValue::Tensor(tensor) = value?.value()? {
                let source = crate::place::locate(&self.program, data, &tensor)
                    .map_err(|error| error.at(&tensor, 0))?;
                if let crate::place::Place::Constant(blob, info) = source
                    && crate::place::must_copy(&blob, &info)
                {
                    measure.bytes(info.nbytes(), ARENA_ALIGN);
                }
            }
        }
        mark(&measure, 5);
        for instruction in self.instructions()? {
            let (_, InstructionArgs::Kernel { operator, args }) = instruction? else { continue };
            let operator = self.operator(to_index(operator, "operator index")?)?;
            let Some(kernel) = self.find_kernel(registry, operator, args)? else { continue };
            // What fails here fails again, with its place, when the method is loaded.
            if let Ok(plan) = self.plan_kernel(kernel, args, threads)? {
                let source = ArgumentSource::File { values, args };
                let arguments = Arguments::new(source, kernel.params);
                let shared =
                    arguments.shared_inputs(Roles::Params(kernel.params)).unwrap_or_default();
                let needed = arguments.scratch_with_copies(plan.scratch, &shared);
                scratch = scratch.max(needed.ok_or(InitError::TooLarge)?);
                if let Some((bytes, _)) = plan.packed {
                    measure.bytes(bytes, ARENA_ALIGN);
                }
            }
        }
        mark(&measure, 6);
        let arena = measure.total().ok_or(InitError::TooLarge)?;
        let [
            _,
            after_values,
            after_tensors,
            after_instructions,
            after_delegates,
            after_constants,
            end,
        ] = marks;
        let report = ArenaUse {
            values: after_values,
            tensors: after_tensors.saturating_sub(after_values),
            instructions: after_instructions.saturating_sub(after_tensors),
            delegates: after_delegates.saturating_sub(after_instructions),
            constants: after_constants.saturating_sub(after_delegates),
            packed: end.saturating_sub(after_constants),
        };
        Ok((MemoryNeeds { arena, scratch }, report))
    }
}

/// What an instruction runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstructionName<'p> {
    /// A kernel of this operator.
    Kernel(OperatorName<'p>),
    /// The delegate of this index.
    Delegate(usize),
    /// Copies a value to another.
    Move,
    /// Continues elsewhere if a value is false.
    JumpFalse,
    /// Gives up a tensor's memory.
    Free,
}

pub(crate) fn tensor_name<'p>(tensor: &TensorTable<'p>) -> Result<Option<&'p str>, Malformed> {
    match tensor.extra_tensor_info()? {
        Some(extra) => extra.fully_qualified_name(),
        None => Ok(None),
    }
}
