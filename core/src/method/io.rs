//! Inputs and outputs of a loaded method.

use super::Method;
use crate::call::{view, view_mut};
use crate::error::{InputError, ShapeNote};
use crate::format::Malformed;
use crate::format::flatbuffer::Vector;
use crate::layout::{ShapeDynamism, TensorInfo, same_layout};
use crate::memory::region::Region;
use crate::memory::slot::Data;
use crate::runtime_features::{RuntimeFeatures, has};
use crate::tensor::{TensorMut, TensorRef, ValueRef};
use crate::value::Value;
use crate::values::ResizeError;
use core::sync::atomic::Ordering;

/// Value index of input or output `index`.
fn interface_value(
    values: Result<Vector<'_, i32>, Malformed>,
    index: usize,
) -> Result<usize, InputError> {
    let Ok(values) = values else { return Err(InputError::Index { index, count: 0 }) };
    let value = values.get(index).ok().flatten();
    let error = InputError::Index { index, count: values.len() };
    value.and_then(|value| usize::try_from(value).ok()).ok_or(error)
}

impl<'m> Method<'m> {
    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.meta.input_count()
    }

    /// Number of outputs.
    pub fn output_count(&self) -> usize {
        self.meta.output_count()
    }

    pub(super) fn input_value(&self, index: usize) -> Result<usize, InputError> {
        interface_value(self.meta.plan.inputs(), index)
    }

    pub(super) fn output_value(&self, index: usize) -> Result<usize, InputError> {
        interface_value(self.meta.plan.outputs(), index)
    }

    #[inline(never)]
    fn type_name(&self, value: usize) -> &'static str {
        self.values.value(value).map_or("nothing", |value| value.type_name())
    }

    pub(super) fn slot(&self, value: usize) -> Result<u32, InputError> {
        self.values
            .slot(value)
            .ok_or_else(|| InputError::Kind { expected: "tensor", found: self.type_name(value) })
    }

    /// Copies a value into an input. A tensor must have the exported dtype and layout; with a
    /// dynamic shape, any shape within the bound is accepted.
    ///
    /// # Errors
    /// The value does not fit, and why; or the input has no memory yet.
    pub fn set_input(&mut self, index: usize, value: &ValueRef<'_>) -> Result<(), InputError> {
        let target = self.input_value(index)?;
        match value {
            ValueRef::Tensor(tensor) => self.set_input_tensor(index, tensor),
            ValueRef::None | ValueRef::Scalar(_) => {
                let new = match value {
                    ValueRef::Scalar(scalar) => (*scalar).into(),
                    _ => Value::None,
                };
                let mismatch = |expected| InputError::Kind { expected, found: new.type_name() };
                let current = self.type_name(target);
                if current != new.type_name() || !self.values.set(target, new) {
                    return Err(mismatch(current));
                }
                Ok(())
            }
            ValueRef::String(_) => self.unsettable(target, "string"),
            ValueRef::List(_) => self.unsettable(target, "list"),
        }
    }

    fn unsettable(&self, target: usize, found: &'static str) -> Result<(), InputError> {
        Err(InputError::Kind { expected: self.type_name(target), found })
    }

    /// Copies a tensor into an input.
    ///
    /// # Errors
    /// As [`set_input`](Self::set_input).
    pub fn set_input_tensor(
        &mut self,
        index: usize,
        tensor: &TensorRef<'_>,
    ) -> Result<(), InputError> {
        let slot = self.slot(self.input_value(index)?)?;
        self.fit_input(index, tensor)?;
        let mut target = view_mut(&mut self.values, slot).ok_or(InputError::Unbound)?;
        target.bytes_mut().copy_from_slice(tensor.bytes());
        Ok(())
    }

    /// Checks dtype and layout of a tensor for an input, and resizes the input to its shape.
    pub(super) fn fit_input(
        &mut self,
        index: usize,
        tensor: &TensorRef<'_>,
    ) -> Result<(), InputError> {
        let slot = self.slot(self.input_value(index)?)?;
        self.check_info(slot, tensor.info())?;
        self.resize_input(index, &tensor.sizes)
    }

    fn check_info(&self, slot: u32, info: &TensorInfo) -> Result<(), InputError> {
        let Some(target) = self.values.tensor(slot) else { return Err(InputError::Unbound) };
        if target.scalar_type != info.scalar_type {
            let (expected, found) = (target.scalar_type, info.scalar_type);
            return Err(InputError::ScalarType { expected, found });
        }
        if target.dim_order().len() == info.sizes.len()
            && !same_layout(&info.sizes, &info.dim_order, target.dim_order())
        {
            return Err(InputError::Layout);
        }
        Ok(())
    }

    /// Sets the shape of an input with a dynamic shape.
    ///
    /// # Errors
    /// The shape differs from a static one, or exceeds the bound.
    pub fn resize_input(&mut self, index: usize, sizes: &[i32]) -> Result<(), InputError> {
        let value = self.input_value(index)?;
        let slot = self.slot(value)?;
        self.values.resize(slot, sizes, true).map_err(|error| {
            let bound = error == ResizeError::Capacity;
            // The current shape is from an earlier run; the bound is in the file.
            let declared = self.meta.tensor_sizes(value).unwrap_or_default();
            let expected = ShapeNote::new(&declared);
            InputError::Shape { expected, found: ShapeNote::new(sizes), bound }
        })
    }

    /// Write access to an input tensor in place, without a copy.
    ///
    /// # Errors
    /// The input does not exist, is not a tensor, or has no writable memory.
    pub fn input_mut(&mut self, index: usize) -> Result<TensorMut<'_>, InputError> {
        let slot = self.slot(self.input_value(index)?)?;
        view_mut(&mut self.values, slot).ok_or(InputError::Unbound)
    }

    /// Binds memory to an input tensor that is not memory-planned, to be filled by
    /// [`set_input`](Self::set_input) or [`input_mut`](Self::input_mut).
    ///
    /// # Errors
    /// The input has memory of its own, or the memory is misaligned or too small for the
    /// upper-bound shape.
    pub fn bind_input(&mut self, index: usize, memory: &'m mut [u8]) -> Result<(), InputError> {
        let slot = self.slot(self.input_value(index)?)?;
        self.bind(slot, Region::writable(memory))
    }

    /// Binds constant data to an input tensor that is not memory-planned.
    ///
    /// # Errors
    /// As [`bind_input`](Self::bind_input).
    pub fn bind_constant_input(&mut self, index: usize, data: &'m [u8]) -> Result<(), InputError> {
        let slot = self.slot(self.input_value(index)?)?;
        self.bind(slot, Region::read_only(data))
    }

    /// Binds memory to an output tensor that is not memory-planned.
    ///
    /// # Errors
    /// As [`bind_input`](Self::bind_input).
    pub fn bind_output(&mut self, index: usize, memory: &'m mut [u8]) -> Result<(), InputError> {
        let slot = self.slot(self.output_value(index)?)?;
        self.bind(slot, Region::writable(memory))
    }

    /// Binds memory to a [state](Self::state) tensor that the exporter left to the caller, by its
    /// value index. The memory is zeroed.
    ///
    /// # Errors
    /// As [`bind_input`](Self::bind_input).
    pub fn bind_state(&mut self, value: usize, memory: &'m mut [u8]) -> Result<(), InputError> {
        let slot = self.slot(value)?;
        memory.fill(0);
        self.bind(slot, Region::writable(memory))
    }

    fn bind(&mut self, slot: u32, memory: Region<'m>) -> Result<(), InputError> {
        let Some(tensor) = self.values.tensor(slot) else { return Err(InputError::Unbound) };
        if !tensor.is_caller_bound() {
            return Err(InputError::Planned);
        }
        let (needed, available) = (tensor.capacity(), memory.len());
        if available < needed {
            return Err(InputError::TooSmall { needed, available });
        }
        if needed > 0 && !memory.addr().is_multiple_of(tensor.alignment()) {
            return Err(InputError::Misaligned);
        }
        if let Some(tensor) = self.values.tensor_mut(slot) {
            tensor.set_data(memory.part(0, needed));
        }
        Ok(())
    }

    /// Whether memory must be bound to an input before the method runs.
    pub fn input_is_unbound(&self, index: usize) -> bool {
        self.input_value(index).is_ok_and(|value| self.is_unbound(value))
    }

    /// Whether an output has no memory. It may get memory during a run; otherwise, memory must be
    /// bound.
    pub fn output_is_unbound(&self, index: usize) -> bool {
        self.output_value(index).is_ok_and(|value| self.is_unbound(value))
    }

    fn is_unbound(&self, value: usize) -> bool {
        let slot = self.values.slot(value).and_then(|slot| self.values.tensor(slot));
        slot.is_some_and(|tensor| {
            tensor.is_caller_bound() && matches!(tensor.data(), Data::None) && tensor.capacity() > 0
        })
    }

    /// Returns an output of the last run.
    ///
    /// # Errors
    /// The output does not exist, is a tensor without memory, or another method used its
    /// [memory](crate::SharedMemory) since.
    pub fn output(&self, index: usize) -> Result<ValueRef<'_>, InputError> {
        self.value_ref(self.output_value(index)?)
    }

    /// Returns an input, as it was set.
    ///
    /// # Errors
    /// The input does not exist, is a tensor without memory, or another method used its
    /// [memory](crate::SharedMemory) since the last run.
    pub fn input(&self, index: usize) -> Result<ValueRef<'_>, InputError> {
        self.value_ref(self.input_value(index)?)
    }

    /// Checks that the memory of a value still belongs to this method.
    ///
    /// # Errors
    /// Another method used the memory since this one ran.
    #[cold]
    fn check_fresh(&self, value: usize) -> Result<(), InputError> {
        let data = self.values.slot(value).and_then(|slot| self.values.data(slot));
        let Some((_, Data::At(region))) = data else { return Ok(()) };
        let (first, end) = (region.addr(), region.addr().saturating_add(region.len()));
        let lies_in = |memory: &Region<'_>| {
            first < memory.addr().saturating_add(memory.len()) && memory.addr() < end
        };
        if self.planned.iter().any(lies_in) { Err(InputError::Stale) } else { Ok(()) }
    }

    fn value_ref(&self, index: usize) -> Result<ValueRef<'_>, InputError> {
        if has(RuntimeFeatures::SHARED_MEMORY) && self.stale.load(Ordering::Relaxed) {
            self.check_fresh(index)?;
        }
        let count = self.values.len();
        let value = self.values.value(index).ok_or(InputError::Index { index, count })?;
        Ok(match value {
            Value::None => ValueRef::None,
            Value::String(text) if has(RuntimeFeatures::STRINGS) => {
                ValueRef::String(core::str::from_utf8(text).unwrap_or_default())
            }
            Value::Tensor(slot) => {
                ValueRef::Tensor(view(&self.values, slot).ok_or(InputError::Unbound)?)
            }
            _ => match value.scalar() {
                Some(scalar) => ValueRef::Scalar(scalar),
                None => ValueRef::List(value.items()),
            },
        })
    }

    /// Whether the shape of an input may change between runs.
    pub fn input_dynamism(&self, index: usize) -> Option<ShapeDynamism> {
        let value = self.meta.plan.values().ok()?.get(self.input_value(index).ok()?).ok()??;
        ShapeDynamism::from_number(value.tensor().ok()??.shape_dynamism().ok()?)
    }
}
