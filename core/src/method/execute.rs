//! Execution: the interpreter loop over resolved instructions.

use super::{Instruction, KernelCall, LoadOptions, Method, Packed};
use crate::arguments::Arguments;
use crate::backend::Delegate;
use crate::call::{DelegateCall, Invoke, Prepare, move_value, view};
use crate::dtype::ScalarType;
use crate::error::{DelegateError, ExecuteError, InstructionError, KernelError};
use crate::machine::Machine;
use crate::parallel::{Cancellable, Parallel};
use crate::runtime_features::{RuntimeFeatures, has};
use crate::tracer::{Event, EventKind, EventTracer, OutputValue, traced};
use crate::value::Value;
use core::sync::atomic::{AtomicBool, Ordering};

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Progress {
    /// An instruction was executed; more may follow.
    Stepped,
    /// The method is at its end. The next step starts over.
    Ended,
}

/// Threads of a method's calls, and the flag that cancels its runs.
#[derive(Clone, Copy)]
struct RunThreads<'m> {
    parallel: &'m dyn Parallel,
    cancel: Option<&'m AtomicBool>,
}

impl<'m> RunThreads<'m> {
    fn of(options: &LoadOptions<'m>) -> Self {
        RunThreads { parallel: options.parallel, cancel: options.cancel }
    }

    /// Makes a call with these threads. Returns [`InstructionError::Cancelled`] if the call skipped
    /// work because the run was cancelled, regardless of its result.
    ///
    /// Without the feature `std`, kernels never check for cancellation: runs are cancelled between
    /// instructions only, which keeps firmware small.
    #[inline]
    fn lend<T>(
        self,
        call: impl FnOnce(&dyn Parallel) -> Result<T, InstructionError>,
    ) -> Result<T, InstructionError> {
        if !cfg!(feature = "std") {
            return call(self.parallel);
        }
        let threads = Cancellable::new(self.parallel, self.cancel);
        let result = call(&threads);
        if threads.is_incomplete() { Err(InstructionError::Cancelled) } else { result }
    }
}

impl<'m> Method<'m> {
    /// Runs the method from its first instruction to its end.
    ///
    /// # Errors
    /// The failed instruction, and why. Tensors may be partly written.
    pub fn execute(&mut self) -> Result<(), ExecuteError> {
        let tracer = self.options.run_tracer();
        let event = Event { kind: EventKind::Execute, name: self.meta.name(), instruction: 0 };
        traced(tracer, &event, || {
            self.position = 0;
            self.backward_jumps = 0;
            while self.step()? == Progress::Stepped {}
            Ok(())
        })
    }

    /// Executes one instruction. The caller may do other work between steps.
    /// [`execute`](Self::execute) starts over, even if the method was not stepped to its end.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn step(&mut self) -> Result<Progress, ExecuteError> {
        let instruction = self.position;
        let fail = |name, source| ExecuteError { instruction, name, source };
        self.check_runnable().map_err(|source| fail("", source))?;
        let Some(current) = self.instructions.get(instruction) else {
            self.position = 0;
            self.backward_jumps = 0;
            return Ok(Progress::Ended);
        };
        self.position += 1;
        match *current {
            Instruction::Kernel(ref call) => {
                let name = call.kernel.name;
                self.kernel(call, instruction).map_err(|source| fail(name, source))?;
            }
            Instruction::Delegate { delegate, args } if has(RuntimeFeatures::DELEGATES) => {
                self.delegate(delegate, args, instruction, |delegate, call| delegate.execute(call))
                    .map_err(|source| fail("delegate", source))?;
            }
            Instruction::Move { from, to } if has(RuntimeFeatures::CONTROL) => {
                move_value(&mut self.values, from, to)
                    .map_err(|error| fail("move", InstructionError::Kernel(error)))?;
            }
            Instruction::JumpFalse { condition, destination } if has(RuntimeFeatures::CONTROL) => {
                let holds =
                    self.condition(condition).ok_or(fail("", InstructionError::Condition))?;
                if !holds {
                    if destination <= instruction {
                        self.backward_jumps += 1;
                        if self.backward_jumps > self.options.limits.backward_jumps {
                            return Err(fail("", InstructionError::JumpLimit));
                        }
                    }
                    self.position = destination;
                }
            }
            // Preparation rejects instructions that the image does not support.
            _ => {}
        }
        Ok(Progress::Stepped)
    }

    /// Checks that the next instruction may run.
    #[inline]
    pub(super) fn check_runnable(&self) -> Result<(), InstructionError> {
        if !self.is_usable {
            return Err(InstructionError::Unusable);
        }
        if self.options.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(InstructionError::Cancelled);
        }
        Ok(())
    }

    fn kernel(
        &mut self,
        call: &KernelCall<'m>,
        instruction: usize,
    ) -> Result<(), InstructionError> {
        let tracer = self.options.run_tracer();
        let event = Event { kind: EventKind::Operator, name: call.kernel.name, instruction };
        let threads = RunThreads::of(&self.options);
        let result = traced(tracer, &event, || {
            threads.lend(|parallel| self.invoke(call, parallel).map_err(InstructionError::Kernel))
        });
        if let Some(tracer) = tracer
            && result.is_ok()
            && tracer.wants_outputs()
        {
            self.trace_outputs(call, tracer, &event);
        }
        result
    }

    fn invoke(
        &mut self,
        call: &KernelCall<'m>,
        parallel: &dyn Parallel,
    ) -> Result<(), KernelError> {
        let (mut invoke, mut scratch) = (call.invoke, call.scratch);
        let packed = match call.packed {
            Packed::Ready(packed) if has(RuntimeFeatures::PACKING) => Some(packed),
            _ => None,
        };
        if has(RuntimeFeatures::VARIABLE) && call.dynamic {
            let threads = parallel.threads();
            let arguments = Arguments::new(&mut self.values, call.args, call.kernel.params);
            let plan =
                (call.kernel.prepare)(&mut Prepare::new(arguments, true, threads, Machine::Here))?;
            let (needed, available) = (plan.scratch, self.scratch.len());
            if needed > available && !plan.scratch_optional {
                return Err(KernelError::scratch(needed, available));
            }
            let bytes = plan.packed.map_or(0, |(bytes, _)| bytes);
            if bytes != packed.map_or(0, |region| region.len()) {
                return Err(KernelError::unsupported(
                    "packed weights whose size depends on shapes",
                ));
            }
            scratch = if plan.scratch_optional { 0 } else { needed };
            invoke = plan.invoke;
        }
        let resources = self.resources(scratch, packed, parallel);
        let (args, known) = (call.args, call.known);
        invoke(&mut Invoke::new(&mut self.values, args, call.kernel, known, resources)?)
    }

    #[cold]
    fn trace_outputs(&self, call: &KernelCall<'m>, tracer: &dyn EventTracer, event: &Event<'_>) {
        for (arg, (param, entry)) in call.kernel.params.iter().zip(call.args).enumerate() {
            if !param.is_out() {
                continue;
            }
            match self.values.value(crate::value::list_index(*entry)) {
                Some(Value::Tensor(slot)) => self.trace_tensor(slot, None, arg, tracer, event),
                Some(Value::TensorList(items, _)) if has(RuntimeFeatures::TENSOR_LISTS) => {
                    for (position, item) in items.iter().enumerate() {
                        if let Some(slot) = self.values.slot(crate::value::list_index(*item)) {
                            self.trace_tensor(slot, Some(position), arg, tracer, event);
                        }
                    }
                }
                Some(value) => {
                    if let Some(scalar) = value.scalar() {
                        tracer.output(event, arg, &OutputValue::Scalar(scalar));
                    }
                }
                None => {}
            }
        }
    }

    fn trace_tensor(
        &self,
        slot: u32,
        item: Option<usize>,
        arg: usize,
        tracer: &dyn EventTracer,
        event: &Event<'_>,
    ) {
        if let Some(tensor) = view(&self.values, slot) {
            let value = match item {
                Some(position) => OutputValue::Item(position, &tensor),
                None => OutputValue::Tensor(&tensor),
            };
            tracer.output(event, arg, &value);
        }
    }

    #[cold]
    fn trace_arguments(&self, args: &'m [[u8; 4]], tracer: &dyn EventTracer, event: &Event<'_>) {
        for (arg, entry) in args.iter().enumerate() {
            if let Some(slot) = self.values.slot(crate::value::list_index(*entry)) {
                self.trace_tensor(slot, None, arg, tracer, event);
            }
        }
    }

    pub(super) fn delegate<T>(
        &mut self,
        index: usize,
        args: &'m [[u8; 4]],
        instruction: usize,
        run: impl FnOnce(&mut dyn Delegate, &mut DelegateCall<'_, '_>) -> Result<T, DelegateError>,
    ) -> Result<T, InstructionError> {
        let tracer = self.options.run_tracer();
        let threads = RunThreads::of(&self.options);
        threads.lend(|parallel| {
            let resources = self.resources(0, None, parallel);
            let Some(Some(delegate)) = self.delegates.get_mut(index) else {
                return Err(InstructionError::Kernel(KernelError::access(0)));
            };
            let delegate = delegate.get_mut();
            let mut call = DelegateCall::new(&mut self.values, args, resources, tracer);
            let result = match tracer {
                None => run(delegate, &mut call),
                Some(tracer) => {
                    let name = self.meta.delegate_backend(index).unwrap_or("");
                    let event = Event { kind: EventKind::Delegate, name, instruction };
                    let token = tracer.begin(&event);
                    let result = run(delegate, &mut call);
                    tracer.end(&event, token);
                    if result.is_ok() && tracer.wants_outputs() {
                        self.trace_arguments(args, tracer, &event);
                    }
                    result
                }
            };
            result.map_err(InstructionError::Delegate)
        })
    }

    /// Evaluates a jump condition: a bool, or a bool tensor whose elements must all be true.
    fn condition(&self, index: usize) -> Option<bool> {
        match self.values.value(index)? {
            Value::Bool(value) => Some(value),
            Value::Tensor(slot) => {
                let tensor = view(&self.values, slot)?;
                if tensor.scalar_type != ScalarType::Bool {
                    return None;
                }
                Some(tensor.bytes().iter().all(|byte| *byte != 0))
            }
            _ => None,
        }
    }
}
