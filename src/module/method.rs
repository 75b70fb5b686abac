//! A loaded method, with the memory that it lives in.

use super::environment::Environment;
use super::signature::{Signature, Slot};
use crate::buffer::{ArenaMemory, Buffer};
use crate::error::Error;
use crate::tensor::Tensor;
use crate::value::Value;
use self_cell::{MutBorrow, self_cell};
use std::cell::OnceCell;
use std::sync::Arc;
use torchlet_core as core;
use torchlet_core::layout::same_layout;
use torchlet_core::{
    ArenaUse, Event, EventKind, InputError, MethodMemory, Prepared, Scalar, TensorMut, ValueRef,
};

/// The memory that a loaded method takes, to the byte. Weights are used where they lie in the file and do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The method arena: values, instructions, delegates, packed weights.
    pub arena: usize,
    /// Where the bytes of the arena go.
    pub arena_use: ArenaUse,
    /// What kernels use while they run.
    pub scratch: usize,
    /// The buffers that the exporter planned for tensors.
    pub planned: Vec<usize>,
    /// Inputs, outputs and state that the exporter left to the caller, in their largest shapes.
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

    /// All of it.
    pub fn total(&self) -> u64 {
        let planned = self.planned.iter().map(|size| *size as u64);
        let others = [self.arena as u64, self.scratch as u64, self.unplanned as u64];
        planned.chain(others).fold(0, u64::saturating_add)
    }
}

/// All that a loaded method borrows from: what it shares with others, and memory of its own.
struct Ground {
    environment: Arc<Environment>,
    tables: MutBorrow<ArenaMemory>,
    /// Allocated when the method is prepared.
    memory: OnceCell<Memory>,
}

/// The memory that a method says it needs when it is prepared.
struct Memory {
    arena: MutBorrow<ArenaMemory>,
    scratch: MutBorrow<Buffer>,
    planned: MutBorrow<Vec<Buffer>>,
    /// Memory for inputs and outputs without a place in the plan.
    inputs: MutBorrow<Vec<Option<Buffer>>>,
    outputs: MutBorrow<Vec<Option<Buffer>>>,
    /// Memory for state without a place in the plan, by value index.
    state: MutBorrow<Vec<(usize, Buffer)>>,
}

type CoreMethod<'g> = core::Method<'g>;

self_cell!(
    struct Loaded {
        owner: Ground,
        #[not_covariant]
        dependent: CoreMethod,
    }
);

/// A loaded method of a [`Module`](crate::Module).
///
/// [`execute`](Method::execute) does everything in one step. The other functions work without copies: write inputs
/// in place with [`input_mut`](Method::input_mut), [`run`](Method::run), and read outputs in place with
/// [`output`](Method::output). All inputs must be written before each run: their memory is used for other tensors too.
pub struct Method {
    name: String,
    signature: Signature,
    /// Inputs that stay set from call to call.
    preset: Vec<Value>,
    loaded: Loaded,
}

impl Memory {
    fn allocate(
        prepared: &Prepared<'_>,
        report: &MemoryReport,
        signature: &Signature,
    ) -> Result<Self, Error> {
        let unplanned = |slots: &[Slot]| -> Result<Vec<Option<Buffer>>, Error> {
            slots
                .iter()
                .map(|slot| slot.unplanned_bytes().map(Buffer::zeroed).transpose())
                .collect()
        };
        let planned = report.planned.iter().map(|size| Buffer::zeroed(*size));
        let state = prepared.state().filter(|state| !state.bound);
        let state = state.map(|state| Ok((state.value, Buffer::zeroed(state.info.nbytes())?)));
        Ok(Memory {
            arena: MutBorrow::new(ArenaMemory::new(prepared.needs().arena)?),
            scratch: MutBorrow::new(Buffer::zeroed(report.scratch)?),
            planned: MutBorrow::new(planned.collect::<Result<_, _>>()?),
            inputs: MutBorrow::new(unplanned(&signature.inputs)?),
            outputs: MutBorrow::new(unplanned(&signature.outputs)?),
            state: MutBorrow::new(state.collect::<Result<_, Error>>()?),
        })
    }
}

impl Ground {
    /// Loads the method into this memory.
    fn build(&self, name: &str, signature: &Signature) -> Result<CoreMethod<'_>, Error> {
        let environment = &self.environment;
        let prepared = environment.prepare(name, self.tables.borrow_mut())?;
        let report = MemoryReport::of(&prepared)?;
        environment.check_memory(name, report.total())?;
        let memory = Memory::allocate(&prepared, &report, signature)?;
        let memory = self.memory.get_or_init(|| memory);
        let mut planned: Vec<&mut [u8]> =
            memory.planned.borrow_mut().iter_mut().map(Buffer::bytes_mut).collect();
        let lent = MethodMemory {
            arena: memory.arena.borrow_mut().bytes(),
            planned: &mut planned,
            scratch: memory.scratch.borrow_mut().bytes_mut(),
        };
        let mut method = prepared.finish(lent).map_err(|error| Error::of_load(name, error))?;
        for (index, buffer) in memory.inputs.borrow_mut().iter_mut().enumerate() {
            if let Some(buffer) = buffer.as_mut().filter(|_| method.input_is_unbound(index)) {
                method
                    .bind_input(index, buffer.bytes_mut())
                    .map_err(|source| input_error(name, index, "", source))?;
            }
        }
        for (index, buffer) in memory.outputs.borrow_mut().iter_mut().enumerate() {
            if let Some(buffer) = buffer.as_mut().filter(|_| method.output_is_unbound(index)) {
                method
                    .bind_output(index, buffer.bytes_mut())
                    .map_err(|source| output_error(name, index, source))?;
            }
        }
        for (value, buffer) in memory.state.borrow_mut().iter_mut() {
            method
                .bind_state(*value, buffer.bytes_mut())
                .map_err(|source| input_error(name, *value, "memory for state", source))?;
        }
        Ok(method)
    }
}

fn input_error(method: &str, index: usize, expected: &str, source: InputError) -> Error {
    Error::Input { method: method.into(), index, expected: expected.into(), source }
}

fn output_error(method: &str, index: usize, source: InputError) -> Error {
    Error::Output { method: method.into(), index, source }
}

impl Method {
    pub(super) fn load(environment: &Arc<Environment>, name: &str) -> Result<Self, Error> {
        let meta = environment.method_meta(name)?;
        let signature = Signature::of(&meta).map_err(|error| Error::of_load(name, error))?;
        let tables = MutBorrow::new(environment.tables(&meta)?);
        let memory = OnceCell::new();
        let ground = Ground { environment: environment.clone(), tables, memory };
        let event = Event { kind: EventKind::Load, name, instruction: 0 };
        let token = environment.tracer.as_ref().map(|tracer| tracer.begin(&event));
        let loaded = Loaded::try_new(ground, |ground| ground.build(name, &signature));
        if let (Some(tracer), Some(token)) = (&environment.tracer, token) {
            tracer.end(&event, token);
        }
        let loaded = loaded?;
        let preset = signature.inputs.iter().map(|_| Value::None).collect();
        Ok(Method { name: name.into(), signature, preset, loaded })
    }

    /// The method's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.signature.inputs.len()
    }

    /// Number of outputs.
    pub fn output_count(&self) -> usize {
        self.signature.outputs.len()
    }

    fn slot(&self, index: usize) -> Result<&Slot, Error> {
        let count = self.input_count();
        self.signature.inputs.get(index).ok_or_else(|| {
            input_error(&self.name, index, "no such input", InputError::Index { index, count })
        })
    }

    /// Sets an input for all [`execute`](Self::execute) calls to come, until it is set to [`Value::None`].
    ///
    /// # Errors
    /// There is no such input, or the value does not fit it.
    pub fn preset_input(&mut self, index: usize, value: Value) -> Result<(), Error> {
        self.slot(index)?;
        if !value.is_none() {
            // What does not fit is told now, not at the next call.
            self.set_input(index, &value)?;
        }
        self.preset[index] = value;
        Ok(())
    }

    /// Runs the method: sets the inputs, those of them that are not given from [presets](Self::preset_input), runs,
    /// and copies the outputs.
    ///
    /// # Errors
    /// An input is missing or does not fit, or the method failed while running.
    pub fn execute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        let (expected, found) = (self.input_count(), inputs.len());
        if found > expected {
            return Err(Error::TooManyInputs { method: self.name.clone(), expected, found });
        }
        for index in 0..expected {
            match inputs.get(index) {
                Some(value) if !value.is_none() => self.set_input(index, value)?,
                _ => {
                    let preset = self.preset[index].clone();
                    self.set_preset(index, preset)?;
                }
            }
        }
        self.run()?;
        (0..self.output_count()).map(|index| self.output_value(index)).collect()
    }

    fn set_preset(&mut self, index: usize, preset: Value) -> Result<(), Error> {
        let slot = self.slot(index)?;
        match (&preset, slot) {
            (Value::None, Slot::None) => Ok(()),
            (Value::None, slot) => Err(Error::InputNotSet {
                method: self.name.clone(),
                index,
                expected: slot.describe(),
            }),
            (value, _) => self.set_input(index, value),
        }
    }

    /// Copies a value into an input. Tensors are converted to the exported memory layout; numbers become
    /// floating-point numbers, or tensors without dimensions, where the method takes those.
    ///
    /// # Errors
    /// The value does not fit, and how.
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
            (Slot::String(fixed), Value::String(text), _) => {
                if fixed == text {
                    return Ok(());
                }
                Err(Error::FixedInput {
                    method: self.name.clone(),
                    index,
                    expected: format!("{fixed:?}"),
                })
            }
            (_, Value::String(text), _) => self.set_core_input(index, &ValueRef::String(text)),
            (_, Value::Tensor(tensor), _) => {
                self.set_core_input(index, &ValueRef::Tensor(tensor.as_tensor_ref()))
            }
            _ => self.set_core_input(index, &ValueRef::None),
        }
    }

    fn set_core_input(&mut self, index: usize, value: &ValueRef<'_>) -> Result<(), Error> {
        self.loaded
            .with_dependent_mut(|_, method| method.set_input(index, value))
            .map_err(|source| self.refused(index, source))
    }

    fn refused(&self, index: usize, source: InputError) -> Error {
        let expected = self.signature.inputs.get(index).map_or_else(String::new, Slot::describe);
        input_error(&self.name, index, &expected, source)
    }

    /// Gives an input of dynamic shape the shape of the next run, before it is written in place.
    ///
    /// # Errors
    /// The shape differs from a static one, or exceeds the bound.
    pub fn resize_input(&mut self, index: usize, shape: &[usize]) -> Result<(), Error> {
        let sizes: Vec<i32> =
            shape.iter().map(|&size| i32::try_from(size).unwrap_or(i32::MAX)).collect();
        self.loaded
            .with_dependent_mut(|_, method| method.resize_input(index, &sizes))
            .map_err(|source| self.refused(index, source))
    }

    /// An input tensor in its place, to be written without a copy.
    ///
    /// # Errors
    /// There is no such input, or it is not a tensor.
    pub fn input_mut(&mut self, index: usize) -> Result<TensorMut<'_>, Error> {
        let (name, signature) = (&self.name, &self.signature);
        self.loaded.with_dependent_mut(|_, method| method.input_mut(index)).map_err(|source| {
            let expected = signature.inputs.get(index).map_or_else(String::new, Slot::describe);
            input_error(name, index, &expected, source)
        })
    }

    /// Runs the method with the inputs as they were written.
    ///
    /// # Errors
    /// The instruction that failed, and why.
    pub fn run(&mut self) -> Result<(), Error> {
        self.loaded
            .with_dependent_mut(|_, method| method.execute().map_err(Box::new))
            .map_err(|source| Error::Execute { method: self.name.clone(), source })
    }

    /// An output in its place, as the last run left it.
    ///
    /// # Errors
    /// There is no such output, or it has no memory.
    pub fn output(&self, index: usize) -> Result<ValueRef<'_>, Error> {
        self.loaded
            .with_dependent(|_, method| method.output(index))
            .map_err(|source| output_error(&self.name, index, source))
    }

    /// A copy of an output, as the last run left it.
    ///
    /// # Errors
    /// As [`output`](Self::output), or there is no memory.
    pub fn output_value(&self, index: usize) -> Result<Value, Error> {
        Ok(match self.output(index)? {
            ValueRef::Scalar(scalar) => scalar.into(),
            ValueRef::String(text) => text.into(),
            ValueRef::Tensor(tensor) => Tensor::try_from(&tensor)?.into(),
            ValueRef::None => Value::None,
            _ => {
                let source = InputError::Kind { expected: "single value", found: "list" };
                return Err(output_error(&self.name, index, source));
            }
        })
    }

    /// Gives the method's state its initial values again. Presets stay.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn reset(&mut self) -> Result<(), Error> {
        let name = &self.name;
        self.loaded.with_dependent_mut(|_, method| {
            method.reset().map_err(|error| Error::of_load(name, error))
        })
    }
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Method").field("name", &self.name).finish_non_exhaustive()
    }
}
