//! [`Method`]: set inputs of a loaded method, run it, read its outputs.

use super::environment::SharedTracer;
use super::group::Group;
use super::signature::{Signature, Slot};
use crate::error::Error;
use crate::tensor::Tensor;
use crate::value::Value;
use std::sync::Arc;
use torchlet_core::layout::same_layout;
use torchlet_core::{
    ArenaUse, Element, Event, EventKind, EventTracer, ExecuteError, InputError, LentError,
    OutputMemory, OutputValue, Prepared, Scalar, TensorInfo, TensorMut, ValueRef,
};

/// Exact memory of a loaded method, in bytes. Weights used in place in the file do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Method arena: values, instructions, delegates, packed weights.
    pub arena: usize,
    /// Breakdown of the arena.
    pub arena_use: ArenaUse,
    /// Scratch memory of kernels.
    pub scratch: usize,
    /// Buffers that the exporter planned for tensors.
    pub planned: Vec<usize>,
    /// Inputs, outputs and state that the exporter left to the caller, in their maximum shapes.
    pub unplanned: usize,
}

impl MemoryReport {
    pub(super) fn of(prepared: &Prepared<'_>) -> Result<Self, Error> {
        let (meta, needs) = (prepared.meta(), prepared.needs());
        let planned = (0..meta.planned_buffer_count()).map(|index| meta.planned_buffer_size(index));
        let of_load = |error| Error::of_load(meta.name(), error);
        let planned = planned.collect::<Result<_, _>>().map_err(of_load)?;
        let interface = Signature::of(meta).map_err(of_load)?.unplanned_bytes();
        let state = prepared.state().filter(|state| !state.bound);
        let unplanned = state.fold(interface, |sum, state| sum.saturating_add(state.info.nbytes()));
        Ok(MemoryReport {
            arena: needs.whole_arena(),
            arena_use: prepared.arena_use(),
            scratch: needs.scratch,
            planned,
            unplanned,
        })
    }

    /// Sum of all memory.
    pub fn total(&self) -> u64 {
        let planned = self.planned.iter().map(|size| *size as u64);
        planned.chain([self.scratch as u64]).fold(self.own(), u64::saturating_add)
    }

    /// Memory that methods cannot share: everything except planned and scratch memory.
    pub(super) fn own(&self) -> u64 {
        (self.arena as u64).saturating_add(self.unplanned as u64)
    }
}

/// Overrides, for one method, of the settings that its module was [built](crate::ModuleBuilder)
/// with.
#[derive(Clone, Default)]
pub struct MethodOptions {
    tracer: Option<SharedTracer>,
}

impl MethodOptions {
    /// Creates options without overrides.
    pub fn new() -> Self {
        MethodOptions::default()
    }

    /// Sets the tracer for events of this method.
    #[must_use]
    pub fn event_tracer(mut self, tracer: Arc<dyn EventTracer + Send + Sync>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    pub(super) fn tracer(&self) -> Option<&SharedTracer> {
        self.tracer.as_ref()
    }
}

impl std::fmt::Debug for MethodOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MethodOptions").field("traced", &self.tracer.is_some()).finish()
    }
}

/// A loaded method, borrowed from its [`Module`](crate::Module).
///
/// [`execute`](Method::execute) does everything in one step: it copies tensors in, runs, and copies
/// the outputs into new tensors. The other functions copy less:
///
/// | | copies |
/// |---|---|
/// | [`set_input`](Method::set_input), [`set_input_ref`](Method::set_input_ref) | the elements, once, into the method's memory |
/// | [`input_mut`](Method::input_mut) | nothing: the caller writes where the method reads |
/// | [`run`](Method::run) | nothing |
/// | [`execute_into`](Method::execute_into) | nothing for tensors that the exporter left to the caller; else as above |
/// | [`output`](Method::output) | nothing: the caller reads where the method wrote |
/// | [`output_into`](Method::output_into) | the elements, once, into memory of the caller |
/// | [`output_value`](Method::output_value) | the elements, once, into a new tensor |
///
/// Write all inputs before each run, because their memory is reused for other tensors. Read outputs
/// before another method runs that shares [state](crate::Module#state) with this one.
pub struct Method<'a> {
    pub(super) group: &'a mut Group,
    pub(super) index: usize,
}

pub(super) fn input_error(method: &str, index: usize, expected: &str, source: InputError) -> Error {
    Error::Input { method: method.into(), index, expected: expected.into(), source }
}

pub(super) fn output_error(method: &str, index: usize, source: InputError) -> Error {
    Error::Output { method: method.into(), index, source }
}

impl<'a> Method<'a> {
    pub(super) fn new(group: &'a mut Group, index: usize) -> Self {
        Method { group, index }
    }

    fn signature(&self) -> &Signature {
        &self.group.entry(self.index).signature
    }

    /// Name of the method.
    pub fn name(&self) -> &str {
        &self.group.entry(self.index).name
    }

    /// Bytes of memory of the method and of the methods that share it. The [memory
    /// limit](crate::ModuleBuilder::memory_limit) applies to this number.
    pub fn memory_bytes(&self) -> u64 {
        self.group.memory_bytes()
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.signature().inputs.len()
    }

    /// Number of outputs.
    pub fn output_count(&self) -> usize {
        self.signature().outputs.len()
    }

    fn slot(&self, index: usize) -> Result<&Slot, Error> {
        let count = self.input_count();
        self.signature().inputs.get(index).ok_or_else(|| {
            input_error(self.name(), index, "no such input", InputError::Index { index, count })
        })
    }

    /// Sets an input for all later [`execute`](Self::execute) calls, until it is set to
    /// [`Value::None`].
    ///
    /// # Errors
    /// The input does not exist, or the value does not fit it.
    pub fn preset_input(&mut self, index: usize, value: Value) -> Result<(), Error> {
        self.slot(index)?;
        if !value.is_none() {
            // Reports a value that does not fit now instead of at the next call.
            self.set_input(index, &value)?;
        }
        if let Some(preset) = self.group.entry_mut(self.index).preset.get_mut(index) {
            *preset = value;
        }
        Ok(())
    }

    /// Sets the inputs, runs the method, and copies the outputs. Missing inputs are taken from
    /// [presets](Self::preset_input).
    ///
    /// # Errors
    /// An input is missing or does not fit, the method failed while running, or its memory plus the
    /// copies exceeds the [limit](crate::ModuleBuilder::memory_limit).
    pub fn execute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        self.execute_in_place(inputs)?;
        self.check_output_copies()?;
        (0..self.output_count()).map(|index| self.output_value(index)).collect()
    }

    /// As [`execute`](Self::execute), but leaves the outputs in place, to be read with
    /// [`output`](Self::output).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn execute_in_place(&mut self, inputs: &[Value]) -> Result<(), Error> {
        self.check_input_count(inputs.len())?;
        for index in 0..self.input_count() {
            match inputs.get(index) {
                Some(value) if !value.is_none() => self.set_input(index, value)?,
                _ => self.set_preset(index)?,
            }
        }
        self.run()
    }

    /// Checks that copies of all current outputs, plus the memory of the method, stay within the
    /// [limit](crate::ModuleBuilder::memory_limit). A program may return one tensor many times.
    ///
    /// [`execute`](Self::execute) calls this itself. Call it before copying outputs one by one.
    ///
    /// # Errors
    /// The limit is exceeded, or an output has no memory.
    pub fn check_output_copies(&self) -> Result<(), Error> {
        let mut bytes = 0u64;
        for index in 0..self.output_count() {
            if let ValueRef::Tensor(tensor) = self.output(index)? {
                bytes = bytes.saturating_add(tensor.bytes().len() as u64);
            }
        }
        self.group.check_copies(self.index, bytes)
    }

    /// Value index of an output.
    pub(crate) fn output_value_index(&self, index: usize) -> Result<Option<usize>, Error> {
        let value =
            self.group.with(self.index, |method| method.meta().output_value_index(index))?;
        value.map_err(|error| Error::of_load(self.name(), error))
    }

    /// Runs the method on inputs in the caller's memory, and leaves the outputs in place, to be
    /// read with [`output`](Self::output) or [`output_into`](Self::output_into). For
    /// [`ValueRef::None`], the input's [preset](Self::preset_input) is used.
    ///
    /// ```
    /// use torchlet::{Module, TensorRef};
    ///
    /// let mut module = Module::load("tests/fixtures/digits/digits.pte")?;
    /// let mut method = module.method("forward")?;
    /// // For example, a camera frame and the caller's result buffer.
    /// let (pixels, mut logits) = ([0.5f32; 64], [0f32; 10]);
    /// let image = TensorRef::from_slice(&[1, 1, 8, 8], &pixels).ok_or("not 64 elements")?;
    /// method.execute_ref(&[image.into()])?;
    /// method.output_into(0, &mut logits)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`execute`](Self::execute). Tensors must have the exported memory layout.
    pub fn execute_ref(&mut self, inputs: &[ValueRef<'_>]) -> Result<(), Error> {
        self.set_inputs_ref(inputs)?;
        self.run()
    }

    /// Sets all inputs, as [`execute_ref`](Self::execute_ref).
    pub(crate) fn set_inputs_ref(&mut self, inputs: &[ValueRef<'_>]) -> Result<(), Error> {
        self.check_input_count(inputs.len())?;
        for index in 0..self.input_count() {
            match inputs.get(index) {
                None | Some(ValueRef::None) => self.set_preset(index)?,
                Some(value) => self.set_input_ref(index, value)?,
            }
        }
        Ok(())
    }

    /// Runs the method on inputs in the caller's memory, as [`execute_ref`](Self::execute_ref), and
    /// writes outputs to the caller's memory.
    ///
    /// Tensors that were exported without planned memory
    /// (`MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)`) are read and
    /// written there directly. Other tensors are copied once.
    ///
    /// ```
    /// use torchlet::{Module, OutputMemory, TensorRef};
    ///
    /// let mut module = Module::load("tests/fixtures/digits/digits_unplanned_io.bpte")?;
    /// let (pixels, mut logits) = ([0.5f32; 64], [0f32; 10]);
    /// let image = TensorRef::from_slice(&[1, 1, 8, 8], &pixels).ok_or("not 64 elements")?;
    /// let mut outputs = [OutputMemory::from_slice(0, &mut logits)];
    /// module.method("forward")?.execute_into(&[image.into()], &mut outputs)?;
    /// println!("{:?}", outputs[0].tensor());
    /// println!("{logits:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`output`](Self::output) reads the method's own memory, for outputs that are not in
    /// `outputs`.
    ///
    /// # Errors
    /// As [`execute_ref`](Self::execute_ref), the program writes to an input, or an output does not
    /// fit its memory.
    pub fn execute_into(
        &mut self,
        inputs: &[ValueRef<'_>],
        outputs: &mut [OutputMemory<'_>],
    ) -> Result<(), Error> {
        self.check_input_count(inputs.len())?;
        let mut tensors = Vec::new();
        for index in 0..self.input_count() {
            match inputs.get(index) {
                None | Some(ValueRef::None) => self.set_preset(index)?,
                Some(ValueRef::Tensor(tensor)) => tensors.push((index, tensor.clone())),
                Some(value) => self.set_input_ref(index, value)?,
            }
        }
        self.group
            .with_mut(self.index, |mut method| method.execute_into(&tensors, outputs))?
            .map_err(|error| match error {
                LentError::Input { index, source } => self.refused(index, source),
                LentError::Output { index, source } => output_error(self.name(), index, source),
                LentError::Execute(source) => self.failed(Box::new(source)),
                _ => output_error(self.name(), 0, InputError::Unbound),
            })
    }

    fn check_input_count(&self, found: usize) -> Result<(), Error> {
        let expected = self.input_count();
        if found <= expected {
            return Ok(());
        }
        Err(Error::TooManyInputs { method: self.name().into(), expected, found })
    }

    fn set_preset(&mut self, index: usize) -> Result<(), Error> {
        let preset = self.group.entry(self.index).preset.get(index).cloned().unwrap_or_default();
        match (&preset, self.slot(index)?) {
            (Value::None, Slot::None) => Ok(()),
            (Value::None, slot) => Err(Error::InputNotSet {
                method: self.name().into(),
                index,
                expected: slot.describe(),
            }),
            (value, _) => self.set_input(index, value),
        }
    }

    /// Copies a value into an input. Tensors are converted to the exported memory layout. Scalars
    /// are converted to floats or to zero-dimensional tensors if the method expects those.
    ///
    /// # Errors
    /// The value does not fit the input.
    pub fn set_input(&mut self, index: usize, value: &Value) -> Result<(), Error> {
        let slot = self.slot(index)?;
        let scalar = match value {
            Value::Int(value) => Some(Scalar::Int(*value)),
            Value::Float(value) => Some(Scalar::Double(*value)),
            Value::Bool(value) => Some(Scalar::Bool(*value)),
            _ => None,
        };
        match (slot, value, scalar) {
            (Slot::Tensor { info, .. }, Value::Tensor(tensor), _) => {
                let order = &info.dim_order;
                let fits = order.len() != tensor.rank()
                    || same_layout(&tensor.info().sizes, tensor.dim_order(), order);
                let converted = if fits { tensor.clone() } else { tensor.to_dim_order(order)? };
                self.set_core_input(index, &ValueRef::Tensor(converted.as_tensor_ref()))
            }
            (Slot::Tensor { info, .. }, _, Some(scalar)) if info.rank() == 0 => {
                let value = match scalar {
                    Scalar::Int(value) => Tensor::scalar(value)?,
                    Scalar::Double(value) => Tensor::scalar(value)?,
                    Scalar::Bool(value) => Tensor::from_bools(&[], &[value])?,
                };
                let value = value.to_type(info.scalar_type)?;
                self.set_core_input(index, &ValueRef::Tensor(value.as_tensor_ref()))
            }
            (Slot::Scalar(Scalar::Double(_)), Value::Int(value), _) => {
                self.set_core_input(index, &ValueRef::Scalar(Scalar::Double(*value as f64)))
            }
            (_, _, Some(scalar)) => self.set_core_input(index, &ValueRef::Scalar(scalar)),
            (_, Value::String(text), _) => self.set_input_ref(index, &ValueRef::String(text)),
            (_, Value::Tensor(tensor), _) => {
                self.set_core_input(index, &ValueRef::Tensor(tensor.as_tensor_ref()))
            }
            _ => self.set_core_input(index, &ValueRef::None),
        }
    }

    /// Copies a value from the caller's memory into an input, without conversion: a tensor must
    /// have the exported dtype and memory layout.
    ///
    /// # Errors
    /// The value does not fit the input.
    pub fn set_input_ref(&mut self, index: usize, value: &ValueRef<'_>) -> Result<(), Error> {
        if let (Slot::String(fixed), ValueRef::String(text)) = (self.slot(index)?, value) {
            if fixed == text {
                return Ok(());
            }
            let (method, expected) = (self.name().into(), format!("{fixed:?}"));
            return Err(Error::FixedInput { method, index, expected });
        }
        self.set_core_input(index, value)
    }

    fn set_core_input(&mut self, index: usize, value: &ValueRef<'_>) -> Result<(), Error> {
        self.group
            .with_mut(self.index, |mut method| method.set_input(index, value))?
            .map_err(|source| self.refused(index, source))
    }

    fn refused(&self, index: usize, source: InputError) -> Error {
        self.signature().refused(self.name(), index, source)
    }

    /// Sets the shape of a dynamically shaped input for the next run, before it is written in
    /// place.
    ///
    /// # Errors
    /// The shape differs from a static one, or exceeds the bound.
    pub fn resize_input(&mut self, index: usize, shape: &[usize]) -> Result<(), Error> {
        let sizes: Vec<i32> =
            shape.iter().map(|&size| i32::try_from(size).unwrap_or(i32::MAX)).collect();
        self.group
            .with_mut(self.index, |mut method| method.resize_input(index, &sizes))?
            .map_err(|source| self.refused(index, source))
    }

    /// Borrows an input tensor in place, to be written without a copy.
    ///
    /// # Errors
    /// The input does not exist, or is not a tensor.
    pub fn input_mut(&mut self, index: usize) -> Result<TensorMut<'_>, Error> {
        let entry = self.group.entry(self.index);
        let (name, expected) = (entry.name.clone(), entry.signature.describe_input(index));
        self.group
            .with_mut(self.index, |method| method.into_input_mut(index))?
            .map_err(|source| input_error(&name, index, &expected, source))
    }

    /// The error of a run that failed.
    fn failed(&self, source: Box<ExecuteError>) -> Error {
        let assertion = self.group.assertion(self.index, &source);
        Error::Execute { method: self.name().into(), source, assertion }
    }

    /// Runs the method with the current inputs.
    ///
    /// # Errors
    /// An instruction failed.
    pub fn run(&mut self) -> Result<(), Error> {
        self.group
            .with_mut(self.index, |mut method| method.execute().map_err(Box::new))?
            .map_err(|source| self.failed(source))?;
        self.report_outputs_if_requested()
    }

    /// Runs the method with the current inputs, and returns the argmax over the last dim of one
    /// output, one index per row. The first of equal maxima wins. An index is `None` if no element
    /// of the row is greater than minus infinity; NaN elements are ignored.
    ///
    /// A GPU computes the argmax itself and transfers only the indices. [`output`](Self::output)
    /// then returns stale elements for that output. Returns `Ok(None)` if no delegate computes the
    /// argmax, for example on the CPU; the output is then written as by [`run`](Self::run).
    ///
    /// # Errors
    /// The output does not exist, or as [`run`](Self::run).
    pub fn run_argmax(&mut self, output: usize) -> Result<Option<Vec<Option<u32>>>, Error> {
        let count = self.output_count();
        let missing = InputError::Index { index: output, count };
        let slot = self.signature().outputs.get(output);
        let slot = slot.ok_or_else(|| output_error(self.name(), output, missing))?;
        // Upper bound: the number of rows in the method's memory.
        let rows = match slot {
            Slot::Tensor { info, .. } if info.rank() > 0 => {
                info.numel().checked_div(info.size(info.rank() - 1)).unwrap_or(0)
            }
            _ => 0,
        };
        if rows == 0 {
            return self.run().map(|()| None);
        }
        let mut indices = vec![-1; rows];
        let found = self
            .group
            .with_mut(self.index, |mut method| {
                method.execute_argmax(output, &mut indices).map_err(Box::new)
            })?
            .map_err(|source| self.failed(source))?;
        self.report_outputs_if_requested()?;
        Ok(found.map(|count| {
            indices.truncate(count);
            indices.into_iter().map(|index| u32::try_from(index).ok()).collect()
        }))
    }

    /// Reports the outputs to the tracer, if it asks for them.
    fn report_outputs_if_requested(&self) -> Result<(), Error> {
        match self.group.tracer(self.index) {
            Some(tracer) if tracer.wants_outputs() => self.report_outputs(tracer.as_ref()),
            _ => Ok(()),
        }
    }

    /// Reports the outputs to a tracer.
    fn report_outputs(&self, tracer: &dyn EventTracer) -> Result<(), Error> {
        let event = Event { kind: EventKind::Execute, name: self.name(), instruction: 0 };
        for index in 0..self.output_count() {
            match self.output(index)? {
                ValueRef::Tensor(tensor) => {
                    tracer.output(&event, index, &OutputValue::Tensor(&tensor));
                }
                ValueRef::Scalar(scalar) => {
                    tracer.output(&event, index, &OutputValue::Scalar(scalar));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Borrows an output of the last run in place.
    ///
    /// # Errors
    /// The output does not exist, or has no memory.
    pub fn output(&self, index: usize) -> Result<ValueRef<'_>, Error> {
        self.group
            .with(self.index, |method| method.output(index))?
            .map_err(|source| output_error(self.name(), index, source))
    }

    /// Copies an output of the last run.
    ///
    /// # Errors
    /// As [`output`](Self::output), or the copy cannot be allocated.
    pub fn output_value(&self, index: usize) -> Result<Value, Error> {
        Ok(match self.output(index)? {
            ValueRef::Scalar(scalar) => scalar.into(),
            ValueRef::String(text) => text.into(),
            ValueRef::Tensor(tensor) => Tensor::try_from(&tensor)?.into(),
            ValueRef::None => Value::None,
            _ => {
                let source =
                    InputError::Kind { expected: "tensor, number, string or None", found: "list" };
                return Err(output_error(self.name(), index, source));
            }
        })
    }

    /// Copies the elements of an output tensor of the last run to the start of `memory`, in memory
    /// order. Returns its dtype, shape and layout.
    ///
    /// # Errors
    /// As [`output`](Self::output), or the output is not a tensor, has another dtype, or has more
    /// elements than `memory`.
    pub fn output_into<T: Element>(
        &self,
        index: usize,
        memory: &mut [T],
    ) -> Result<TensorInfo, Error> {
        let fail = |source| output_error(self.name(), index, source);
        let tensor = match self.output(index)? {
            ValueRef::Tensor(tensor) => tensor,
            ValueRef::None => return Err(fail(not_a_tensor("None"))),
            ValueRef::Scalar(_) => return Err(fail(not_a_tensor("number"))),
            _ => return Err(fail(not_a_tensor("string or list"))),
        };
        if tensor.scalar_type != T::SCALAR_TYPE {
            let (expected, found) = (T::SCALAR_TYPE, tensor.scalar_type);
            return Err(fail(InputError::ScalarType { expected, found }));
        }
        let (needed, available) = (tensor.bytes().len(), size_of_val(memory));
        let target = bytemuck::cast_slice_mut(memory).get_mut(..needed);
        let target = target.ok_or_else(|| fail(InputError::TooSmall { needed, available }))?;
        target.copy_from_slice(tensor.bytes());
        Ok(tensor.info().clone())
    }

    /// Restores the initial values of the method's state, and of all state shared with it. Presets
    /// are kept.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn reset(&mut self) -> Result<(), Error> {
        for index in self.group.siblings(self.index) {
            self.group
                .with_mut(index, |mut method| method.reset())?
                .map_err(|error| Error::of_load(&self.group.entry(index).name, error))?;
        }
        Ok(())
    }
}

fn not_a_tensor(found: &'static str) -> InputError {
    InputError::Kind { expected: "tensor", found }
}

impl std::fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Method").field("name", &self.name()).finish_non_exhaustive()
    }
}
