//! The state of a method: tensors that keep their contents from run to run.

use super::{Method, Prepared};
use crate::backend::{DelegateBox, DelegateState};
use crate::call::{view, view_mut};
use crate::error::{DelegateError, InputError, Message};
use crate::layout::TensorInfo;
use crate::memory::slot::{Data, Home};
use crate::meta::MethodMeta;
use crate::tensor::{TensorMut, TensorRef};
use crate::values::{Values, flag};

/// A tensor of a method's state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateInfo<'m> {
    /// The index of its value in the method.
    pub value: usize,
    /// Its name in the model, where the exporter kept it (ExecuTorch: `emit_mutable_buffer_names`).
    pub name: Option<&'m str>,
    /// Type, shape and layout.
    pub info: TensorInfo,
    /// Whether it has memory: where not, the caller [binds](Method::bind_state) some.
    pub bound: bool,
}

/// The state among a method's values.
fn states<'a, 'm>(
    meta: &'a MethodMeta<'m>,
    values: &'a Values<'m>,
) -> impl Iterator<Item = StateInfo<'m>> + 'a {
    (0..values.len()).filter(|value| values.has(*value, flag::STATE)).filter_map(|value| {
        let slot = values.slot(value)?;
        let tensor = values.tensor(slot)?;
        // A view of other state is that state.
        if matches!(tensor.home(), Home::View(_)) {
            return None;
        }
        // What the caller passes in or out is no state, if it is named like a buffer.
        if values.has(value, flag::INTERFACE) && tensor.is_callers() {
            return None;
        }
        let name = meta.tensor_name(value);
        let placed = matches!(values.data(slot)?.1, Data::At(_));
        let bound = !tensor.is_callers() || placed || tensor.capacity() == 0;
        Some(StateInfo { value, name, info: tensor.info(), bound })
    })
}

impl<'m> Prepared<'m> {
    /// As [`Method::state`], before there is memory for it.
    pub fn state(&self) -> impl Iterator<Item = StateInfo<'m>> + '_ {
        states(&self.meta, &self.tables.values)
    }
}

impl<'m> Method<'m> {
    /// The method's state outside of delegates: tensors in planned memory that have a name or
    /// initial data or are read before they are written, tensors with initial data that have no
    /// place there and are written, and named ones that the exporter left to the caller.
    pub fn state(&self) -> impl Iterator<Item = StateInfo<'m>> + '_ {
        states(&self.meta, &self.values)
    }

    fn state_slot(&self, value: usize) -> Result<u32, InputError> {
        let count = self.values.len();
        let is_state = self.values.has(value, flag::STATE);
        let slot = self.values.slot(value).filter(|_| is_state);
        slot.ok_or(InputError::Index { index: value, count })
    }

    /// A tensor of the state, by the index of its value: see [`state`](Self::state).
    ///
    /// # Errors
    /// It is no state, or has no memory.
    pub fn state_ref(&self, value: usize) -> Result<TensorRef<'_>, InputError> {
        view(&self.values, self.state_slot(value)?).ok_or(InputError::Unbound)
    }

    /// A tensor of the state, to be written.
    ///
    /// # Errors
    /// As [`state_ref`](Self::state_ref).
    pub fn state_mut(&mut self, value: usize) -> Result<TensorMut<'_>, InputError> {
        let slot = self.state_slot(value)?;
        view_mut(&mut self.values, slot).ok_or(InputError::Unbound)
    }

    /// What the method's delegates keep from run to run: the number of the delegate, and that of
    /// the tensor there.
    pub fn delegate_state(&self) -> impl Iterator<Item = ([usize; 2], DelegateState<'_>)> + '_ {
        let delegates = self.delegates.iter().enumerate();
        let delegates = delegates.filter_map(|(index, delegate)| Some((index, delegate.as_ref()?)));
        delegates.flat_map(|(index, delegate)| {
            let all = (0..).map_while(|number| delegate.get().state(number));
            all.enumerate().map(move |(number, state)| ([index, number], state))
        })
    }

    /// Copies a tensor that a delegate keeps to memory of its size: see
    /// [`delegate_state`](Self::delegate_state).
    ///
    /// # Errors
    /// There is no such tensor, the memory is of another size, or the device failed.
    pub fn read_delegate_state(
        &self,
        [delegate, number]: [usize; 2],
        target: &mut [u8],
    ) -> Result<(), DelegateError> {
        let delegate = self.delegates.get(delegate).and_then(Option::as_ref);
        delegate.map(DelegateBox::get).ok_or_else(no_delegate)?.read_state(number, target)
    }

    /// Gives a tensor that a delegate keeps other contents: see
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
    DelegateError::Unsupported(Message::from("a method without such a delegate"))
}
