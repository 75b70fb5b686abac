//! The values and tensors of a loaded method.

use crate::kernel::Param;
use crate::value::{TensorSlot, Value};

/// The values of a loaded method, and the tensors that they refer to.
#[derive(Debug)]
pub(crate) struct Values<'m> {
    pub(crate) values: &'m mut [Value<'m>],
    pub(crate) tensors: &'m mut [TensorSlot<'m>],
}

impl<'m> Values<'m> {
    pub(crate) fn value(&self, index: usize) -> Option<Value<'m>> {
        self.values.get(index).copied()
    }

    pub(crate) fn tensor(&self, slot: u32) -> Option<&TensorSlot<'m>> {
        self.tensors.get(usize::try_from(slot).ok()?)
    }

    pub(crate) fn tensor_mut(&mut self, slot: u32) -> Option<&mut TensorSlot<'m>> {
        self.tensors.get_mut(usize::try_from(slot).ok()?)
    }

    /// The slot of the tensor that value `index` is.
    pub(crate) fn slot(&self, index: usize) -> Option<u32> {
        match self.value(index)? {
            Value::Tensor(slot) => Some(slot),
            _ => None,
        }
    }
}

/// Which arguments of a call are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Roles<'m> {
    /// As the operator's schema says.
    Params(&'m [Param]),
    /// All from this one on: a delegate's outputs follow its inputs.
    From(usize),
}

impl Roles<'_> {
    /// How many of `len` arguments count.
    pub(crate) fn count(&self, len: usize) -> usize {
        match self {
            Roles::Params(params) => params.len().min(len),
            Roles::From(_) => len,
        }
    }

    pub(crate) fn is_out(&self, arg: usize) -> bool {
        match self {
            Roles::Params(params) => params.get(arg).is_some_and(|param| param.is_out()),
            Roles::From(first) => arg >= *first,
        }
    }
}
