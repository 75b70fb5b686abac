//! State of a method: tensors that keep their contents between runs.

use super::{Method, Prepared};
use crate::backend::{DelegateBox, DelegateState};
use crate::call::{view, view_mut};
use crate::error::{DelegateError, InputError, Message};
use crate::layout::TensorInfo;
use crate::memory::slot::{Data, StorageKind};
use crate::meta::MethodMeta;
use crate::tensor::{TensorMut, TensorRef};
use crate::values::{Values, flag};

/// Description of a state tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateInfo<'m> {
    /// Value index of the tensor.
    pub value: usize,
    /// Name in the model, if the exporter kept it (ExecuTorch: `emit_mutable_buffer_names`).
    pub name: Option<&'m str>,
    /// Dtype, shape and layout.
    pub info: TensorInfo,
    /// Whether the tensor has memory; if not, the caller must [bind](Method::bind_state) it.
    pub bound: bool,
}

/// State tensors among a method's values.
fn states<'a, 'm>(
    meta: &'a MethodMeta<'m>,
    values: &'a Values<'m>,
) -> impl Iterator<Item = StateInfo<'m>> + 'a {
    (0..values.len()).filter(|value| values.has(*value, flag::STATE)).filter_map(|value| {
        let slot = values.slot(value)?;
        let tensor = values.tensor(slot)?;
        // A view of state is not listed separately.
        if matches!(tensor.storage_kind(), StorageKind::View(_)) {
            return None;
        }
        // Caller-bound inputs and outputs are not state, even if they have the name of a buffer.
        if values.has(value, flag::INTERFACE) && tensor.is_caller_bound() {
            return None;
        }
        let name = meta.tensor_name(value);
        let placed = matches!(values.data(slot)?.1, Data::At(_));
        let bound = !tensor.is_caller_bound() || placed || tensor.capacity() == 0;
        Some(StateInfo { value, name, info: tensor.info(), bound })
    })
}

impl<'m> Prepared<'m> {
    /// As [`Method::state`], before memory is allocated.
    pub fn state(&self) -> impl Iterator<Item = StateInfo<'m>> + '_ {
        states(&self.meta, &self.tables.values)
    }
}

impl<'m> Method<'m> {
    /// The method's state outside of delegates:
    ///
    /// - memory-planned tensors that have a name or initial data, or are read before they are
    ///   written
    /// - written tensors that have initial data but are not memory-planned
    /// - named tensors that the exporter left to the caller
    pub fn state(&self) -> impl Iterator<Item = StateInfo<'m>> + '_ {
        states(&self.meta, &self.values)
    }

    fn state_slot(&self, value: usize) -> Result<u32, InputError> {
        let count = self.values.len();
        let is_state = self.values.has(value, flag::STATE);
        let slot = self.values.slot(value).filter(|_| is_state);
        slot.ok_or(InputError::Index { index: value, count })
    }

    /// A state tensor, by its value index in [`state`](Self::state).
    ///
    /// # Errors
    /// The value is not state, or has no memory.
    pub fn state_ref(&self, value: usize) -> Result<TensorRef<'_>, InputError> {
        view(&self.values, self.state_slot(value)?).ok_or(InputError::Unbound)
    }

    /// A state tensor, for writing.
    ///
    /// # Errors
    /// As [`state_ref`](Self::state_ref).
    pub fn state_mut(&mut self, value: usize) -> Result<TensorMut<'_>, InputError> {
        let slot = self.state_slot(value)?;
        view_mut(&mut self.values, slot).ok_or(InputError::Unbound)
    }

    /// State tensors of the method's delegates, each with the index of the delegate and of the
    /// tensor within the delegate.
    pub fn delegate_state(&self) -> impl Iterator<Item = ([usize; 2], DelegateState<'_>)> + '_ {
        let delegates = self.delegates.iter().enumerate();
        let delegates = delegates.filter_map(|(index, delegate)| Some((index, delegate.as_ref()?)));
        delegates.flat_map(|(index, delegate)| {
            let all = (0..).map_while(|number| delegate.get().state(number));
            all.enumerate().map(move |(number, state)| ([index, number], state))
        })
    }

    /// Copies a delegate's state tensor to `target`, which has its size. Indices are those of
    /// [`delegate_state`](Self::delegate_state).
    ///
    /// # Errors
    /// The tensor does not exist, `target` has another size, or the device failed.
    pub fn read_delegate_state(
        &self,
        [delegate, number]: [usize; 2],
        target: &mut [u8],
    ) -> Result<(), DelegateError> {
        let delegate = self.delegates.get(delegate).and_then(Option::as_ref);
        delegate.map(DelegateBox::get).ok_or_else(no_delegate)?.read_state(number, target)
    }

    /// Overwrites a delegate's state tensor. Indices are those of
    /// [`delegate_state`](Self::delegate_state).
    ///
    /// # Errors
    /// As [`read_delegate_state`](Self::read_delegate_state).
    pub fn write_delegate_state(
        &mut self,
        [delegate, number]: [usize; 2],
        source: &[u8],
    ) -> Result<(), DelegateError> {
        let delegate = self.delegates.get_mut(delegate).and_then(Option::as_mut);
        delegate.map(DelegateBox::get_mut).ok_or_else(no_delegate)?.write_state(number, source)
    }
}

fn no_delegate() -> DelegateError {
    DelegateError::Unsupported(Message::from("an index that no delegate of the method has"))
}
