//! The state of a method: tensors that keep their contents from run to run.

use super::{Method, Prepared};
use crate::call::{view, view_mut};
use crate::error::InputError;
use crate::layout::TensorInfo;
use crate::meta::MethodMeta;
use crate::tensor::{TensorMut, TensorRef};
use crate::value::{Data, Home};
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
    let flags = values.flags.iter().enumerate();
    flags.filter(|(_, flags)| **flags & flag::STATE != 0).filter_map(|(value, _)| {
        let slot = values.slot(value)?;
        let tensor = values.tensor(slot)?;
        // What the caller passes in or out is no state, if it is named like a buffer.
        if values.has(value, flag::INTERFACE) && tensor.home == Home::Caller {
            return None;
        }
        let name = meta.tensor_name(value);
        let placed = matches!(values.data(slot)?.1, Data::At(_));
        let bound = tensor.home != Home::Caller || placed || tensor.capacity == 0;
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
    /// The method's state outside of delegates: tensors in planned memory that have a name or initial data or are read before they
    /// are written, and named ones that the exporter left to the caller.
    pub fn state(&self) -> impl Iterator<Item = StateInfo<'m>> + '_ {
        states(&self.meta, &self.values)
    }

    fn state_slot(&self, value: usize) -> Result<u32, InputError> {
        let count = self.values.values.len();
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
}
