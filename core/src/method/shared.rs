//! Methods that use the same planned memory in turn.

use super::{LentError, Method, OutputMemory, Progress};
use crate::error::{DelegateError, ExecuteError, InitError, InputError, InstructionError};
use crate::memory::SharedMemory;
use crate::meta::MethodMeta;
use crate::tensor::{TensorMut, TensorRef, ValueRef};
use crate::values::Tensor;
use core::ops::Deref;

/// A method that shares planned and scratch memory with others. It can be used while
/// [attached](Self::attach) to that memory.
pub struct SharedMethod<'m> {
    method: Method<'m>,
    /// Inputs that were set since another method used the memory.
    set: Inputs,
}

/// Bit set of inputs. The last bit represents all remaining inputs.
type Inputs = u64;

fn bit(index: usize) -> Inputs {
    1 << index.min(Inputs::BITS as usize - 1)
}

/// A shared method that holds its memory: none of the others can be used until it is dropped.
///
/// Dereferences to [`Method`] for read access; methods that need `&mut` are duplicated here.
// Never exposes `&mut Method`: swapping two methods would let them overwrite each other's memory.
pub struct Attached<'a, 'm> {
    method: &'a mut Method<'m>,
    // Excludes other users of the memory. `None` for a method with memory of its own.
    shared: Option<(&'a mut SharedMemory<'m>, &'a mut Inputs)>,
}

impl<'m> SharedMethod<'m> {
    pub(super) fn new(method: Method<'m>) -> Self {
        method.mark_stale(true);
        SharedMethod { method, set: 0 }
    }

    /// Description of the method in its program.
    pub fn meta(&self) -> &MethodMeta<'m> {
        self.method.meta()
    }

    /// Read access to the method, during which no method runs in the memory. Outputs that another
    /// method may have overwritten cannot be read.
    ///
    /// # Errors
    /// The method was loaded into other memory.
    pub fn view<'a>(&'a self, memory: &'a SharedMemory<'m>) -> Result<&'a Method<'m>, InitError> {
        self.check(memory)?;
        Ok(&self.method)
    }

    /// Checks that this is the method's memory, and records whether another method used it.
    fn check(&self, memory: &SharedMemory<'m>) -> Result<(), InitError> {
        if !memory.is_memory_of(self.method.planned, self.method.scratch) {
            return Err(InitError::Shared { what: "it was loaded into other memory" });
        }
        if !memory.is_held_by(self.method.identity()) {
            self.method.mark_stale(true);
        }
        Ok(())
    }

    /// Attaches the method to its memory, which no other method can use meanwhile.
    ///
    /// # Errors
    /// The method was loaded into other memory.
    pub fn attach<'a>(
        &'a mut self,
        memory: &'a mut SharedMemory<'m>,
    ) -> Result<Attached<'a, 'm>, InitError> {
        self.check(memory)?;
        Ok(Attached { method: &mut self.method, shared: Some((memory, &mut self.set)) })
    }
}

impl<'m> Method<'m> {
    /// Wraps a method with memory of its own, for code that also handles shared methods.
    pub fn attached(&mut self) -> Attached<'_, 'm> {
        Attached { method: self, shared: None }
    }

    /// Identifies the method in its memory: the address of its values.
    fn identity(&self) -> usize {
        self.values.identity()
    }
}

impl<'m> Deref for Attached<'_, 'm> {
    type Target = Method<'m>;
    fn deref(&self) -> &Method<'m> {
        self.method
    }
}

impl<'a, 'm> Attached<'a, 'm> {
    /// As [`Method::input_mut`], for the lifetime of the attachment.
    ///
    /// # Errors
    /// As [`Method::input_mut`].
    pub fn into_input_mut(mut self, index: usize) -> Result<TensorMut<'a>, InputError> {
        self.set(index);
        self.method.input_mut(index)
    }

    /// As [`Method::state_mut`], for the lifetime of the attachment.
    ///
    /// # Errors
    /// As [`Method::state_mut`].
    pub fn into_state_mut(mut self, value: usize) -> Result<TensorMut<'a>, InputError> {
        self.start();
        self.method.state_mut(value)
    }

    /// As [`Method::set_input`].
    ///
    /// # Errors
    /// As [`Method::set_input`].
    pub fn set_input(&mut self, index: usize, value: &ValueRef<'_>) -> Result<(), InputError> {
        self.method.set_input(index, value)?;
        self.set(index);
        Ok(())
    }

    /// As [`Method::set_input_tensor`].
    ///
    /// # Errors
    /// As [`Method::set_input_tensor`].
    pub fn set_input_tensor(
        &mut self,
        index: usize,
        tensor: &TensorRef<'_>,
    ) -> Result<(), InputError> {
        self.method.set_input_tensor(index, tensor)?;
        self.set(index);
        Ok(())
    }

    /// As [`Method::resize_input`].
    ///
    /// # Errors
    /// As [`Method::resize_input`].
    pub fn resize_input(&mut self, index: usize, sizes: &[i32]) -> Result<(), InputError> {
        self.method.resize_input(index, sizes)
    }

    /// As [`Method::input_mut`].
    ///
    /// # Errors
    /// As [`Method::input_mut`].
    pub fn input_mut(&mut self, index: usize) -> Result<TensorMut<'_>, InputError> {
        self.set(index);
        self.method.input_mut(index)
    }

    /// As [`Method::bind_input`].
    ///
    /// # Errors
    /// As [`Method::bind_input`].
    pub fn bind_input(&mut self, index: usize, memory: &'m mut [u8]) -> Result<(), InputError> {
        self.method.bind_input(index, memory)
    }

    /// As [`Method::bind_constant_input`].
    ///
    /// # Errors
    /// As [`Method::bind_constant_input`].
    pub fn bind_constant_input(&mut self, index: usize, data: &'m [u8]) -> Result<(), InputError> {
        self.method.bind_constant_input(index, data)
    }

    /// As [`Method::bind_output`].
    ///
    /// # Errors
    /// As [`Method::bind_output`].
    pub fn bind_output(&mut self, index: usize, memory: &'m mut [u8]) -> Result<(), InputError> {
        self.method.bind_output(index, memory)
    }

    /// As [`Method::bind_state`].
    ///
    /// # Errors
    /// As [`Method::bind_state`].
    pub fn bind_state(&mut self, value: usize, memory: &'m mut [u8]) -> Result<(), InputError> {
        self.method.bind_state(value, memory)
    }

    /// As [`Method::state_mut`]. Afterwards, no method with state can be loaded into the shared
    /// memory.
    ///
    /// # Errors
    /// As [`Method::state_mut`].
    pub fn state_mut(&mut self, value: usize) -> Result<TensorMut<'_>, InputError> {
        self.start();
        self.method.state_mut(value)
    }

    /// As [`Method::write_delegate_state`].
    ///
    /// # Errors
    /// As [`Method::write_delegate_state`].
    pub fn write_delegate_state(
        &mut self,
        place: [usize; 2],
        source: &[u8],
    ) -> Result<(), DelegateError> {
        self.method.write_delegate_state(place, source)
    }

    /// Records that state may differ from its initial values.
    fn start(&mut self) {
        if let Some((memory, _)) = &mut self.shared {
            memory.start();
        }
    }

    /// Records that an input was set. Inputs set before another method used the memory do not
    /// count.
    fn set(&mut self, index: usize) {
        let method = self.method.identity();
        if let Some((memory, set)) = &mut self.shared {
            if memory.hold(method) {
                **set = 0;
            }
            **set |= bit(index);
        }
    }

    /// Begins or continues a run.
    ///
    /// # Errors
    /// Another method used the memory since the run began, or since a memory-planned input was set.
    fn run(&mut self, begins: bool) -> Result<(), ExecuteError> {
        self.start();
        let method = self.method.identity();
        let Some((memory, set)) = &mut self.shared else { return Ok(()) };
        let is_fresh = memory.hold(method);
        if is_fresh {
            **set = 0;
        }
        let set = **set;
        let fits = if begins { self.planned_inputs() & !set == 0 } else { !is_fresh };
        if !fits {
            return self.stale();
        }
        self.method.mark_stale(false);
        Ok(())
    }

    #[cold]
    fn stale(&self) -> Result<(), ExecuteError> {
        let (instruction, source) = (self.method.position, InstructionError::Stale);
        Err(ExecuteError { instruction, name: "", source })
    }

    /// Bit set of the memory-planned inputs.
    fn planned_inputs(&self) -> Inputs {
        (0..self.method.input_count()).fold(0, |inputs, index| {
            let slot = self.method.input_value(index).and_then(|value| self.method.slot(value));
            let tensor = slot.ok().and_then(|slot| self.method.values.tensor(slot));
            let is_planned = |tensor: Tensor<'_, '_>| tensor.is_planned() && tensor.capacity() > 0;
            if tensor.is_some_and(is_planned) { inputs | bit(index) } else { inputs }
        })
    }

    /// As [`Method::execute`].
    ///
    /// # Errors
    /// As [`Method::execute`], or a memory-planned input was not set since another method used the
    /// memory, which may have overwritten it.
    pub fn execute(&mut self) -> Result<(), ExecuteError> {
        self.run(true)?;
        self.method.execute()
    }

    /// As [`Method::execute_argmax`].
    ///
    /// # Errors
    /// As [`execute`](Self::execute) and [`Method::execute_argmax`].
    pub fn execute_argmax(
        &mut self,
        output: usize,
        indices: &mut [i32],
    ) -> Result<Option<usize>, ExecuteError> {
        self.run(true)?;
        self.method.execute_argmax(output, indices)
    }

    /// As [`Method::execute_into`].
    ///
    /// # Errors
    /// As [`Method::execute_into`].
    pub fn execute_into(
        &mut self,
        inputs: &[(usize, TensorRef<'_>)],
        outputs: &mut [OutputMemory<'_>],
    ) -> Result<(), LentError> {
        inputs.iter().for_each(|(index, _)| self.set(*index));
        self.run(true).map_err(LentError::Execute)?;
        self.method.execute_into(inputs, outputs)
    }

    /// As [`Method::step`].
    ///
    /// # Errors
    /// As [`execute`](Self::execute), or another method used the memory since the run began.
    pub fn step(&mut self) -> Result<Progress, ExecuteError> {
        self.run(self.method.position == 0)?;
        self.method.step()
    }

    /// As [`Method::reset`]. In memory shared with other methods, only the [state](Method::state)
    /// of this method is reset.
    ///
    /// # Errors
    /// As [`Method::reset`].
    pub fn reset(&mut self) -> Result<(), InitError> {
        let others = self.shared.as_ref().is_some_and(|(memory, _)| memory.is_shared());
        self.method.reset_memory(!others)
    }
}
