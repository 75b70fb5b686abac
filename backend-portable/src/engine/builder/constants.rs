//! Constants, borrowed or packed.

use super::{Builder, Purpose, Refusal};
use crate::compute::gemm::Context;
use crate::engine::lines::Lines;
use crate::engine::numbers::Precision;
use crate::engine::packed::{Constant, Form, Key, Packs};
use std::borrow::{Cow, ToOwned};
use std::sync::Arc;
use torchlet_graph::graph::{Tensor, Value, ValueId};

/// The cache key of data, if its address is stable: only borrowed data stays in place.
#[expect(clippy::ptr_arg, reason = "whether the data is borrowed matters")]
fn lasting(data: &Cow<'_, [u8]>, key: Key) -> Option<Key> {
    matches!(data, Cow::Borrowed(_)).then_some(key)
}

/// Copies `len` int8 values.
pub(super) fn code_lines<'p>(data: &[u8], len: usize) -> Result<Constant<'p>, Refusal> {
    let data = data.get(..len).ok_or("a constant with less data than its shape requires")?;
    let mut lines = Lines::zeroed(len.div_ceil(4)).ok_or("out of memory for constants")?;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(lines.as_mut_slice());
    bytes.iter_mut().zip(data).for_each(|(slot, byte)| *slot = *byte);
    Ok(Constant::Shared(Arc::new(lines)))
}

impl<'g, 'p> Builder<'g, 'p> {
    /// The `len` elements of a constant: borrowed if possible, else a copy shared between all
    /// users.
    pub(super) fn lent(
        &mut self,
        tensor: &Tensor<'_>,
        data: &'g Cow<'p, [u8]>,
        len: usize,
    ) -> Result<Constant<'p>, Refusal> {
        let cut_short = "a constant with less data than its shape requires";
        let precision = Precision::of(tensor.scalar_type)
            .ok_or("a constant of another dtype than floating point")?;
        if precision == Precision::Single
            && let Cow::Borrowed(lent) = data
            && let Cow::Borrowed(lent) = precision.elements(lent)
        {
            return lent.get(..len).map(Constant::Lent).ok_or_else(|| cut_short.to_owned());
        }
        let key = self.key(data, Some(precision), Form::Widened { len });
        if let Some(known) = self.lines.get(&key) {
            return Ok(known.clone());
        }
        let copy = || {
            let elements = precision.elements(data);
            let elements = elements.get(..len).ok_or(cut_short)?;
            Lines::of(elements).ok_or("out of memory for constants")
        };
        let packs =
            self.packs().ok_or("internal error: constants were read while support was queried")?;
        let copy = Constant::Shared(packs.get(lasting(data, key), copy)?);
        self.lines.insert(key, copy.clone());
        Ok(copy)
    }

    /// Cache key of packed data.
    fn key(&self, data: &[u8], precision: Option<Precision>, form: Form) -> Key {
        let (address, bytes) = (data.as_ptr().addr(), data.len());
        Key { address, bytes, precision, tier: self.machine.tier, form }
    }

    /// Whether a value is a constant tensor.
    pub(in crate::engine) fn is_constant(&self, id: ValueId) -> bool {
        let has_data = matches!(self.value(id), Value::Tensor(Tensor { data: Some(_), .. }));
        has_data || self.packed.contains_key(&id)
    }

    /// The elements of a constant in dim order; `None` if only support is being queried.
    ///
    /// # Errors
    /// If the value is not a constant, or truncated.
    pub(in crate::engine) fn constant(
        &mut self,
        id: ValueId,
    ) -> Result<Option<Constant<'p>>, Refusal> {
        let Value::Tensor(tensor @ Tensor { data: Some(data), sizes, .. }) = self.value(id) else {
            return Err(std::format!("value {id} that is not constant"));
        };
        self.plain.insert(id);
        let len = self.count(sizes)?;
        match self.purpose {
            Purpose::Plan(_) => self.lent(tensor, data, len).map(Some),
            Purpose::Question | Purpose::Packing(_) => Ok(None),
        }
    }

    /// Registers weights that were packed ahead of time.
    ///
    /// # Errors
    /// If the data is missing.
    pub(in crate::engine) fn define_packed(
        &mut self,
        id: ValueId,
        form: ValueId,
        data: ValueId,
    ) -> Result<(), Refusal> {
        if self.is_question() {
            return Err("weights that are already packed for one machine".to_owned());
        }
        let Value::IntList(form) = self.value(form) else {
            return Err("packed weights: expected a list of integers as their form".to_owned());
        };
        let Value::Tensor(tensor @ Tensor { data: Some(data), sizes, .. }) = self.value(data)
        else {
            return Err("packed weights: expected a constant tensor as their data".to_owned());
        };
        let len = self.count(sizes)?;
        let data = self.lent(tensor, data, len)?;
        let forms = self.packed.entry(id).or_default();
        if forms.iter().any(|(known, _)| *known == form) {
            return Err(std::format!("weights {id} are packed twice in the same form"));
        }
        forms.push((form, data));
        Ok(())
    }

    /// Packed constant weights of `len` elements, shared between all users. `pack` gets the
    /// original weights and the destination.
    pub(in crate::engine) fn packed(
        &mut self,
        id: ValueId,
        form: Form,
        len: usize,
        pack: impl FnOnce(Context<'_>, &[f32], &mut [f32]) -> Result<(), Refusal>,
    ) -> Result<Constant<'p>, Refusal> {
        let precision = self.precision(id)?;
        self.packed_bytes(id, form, len, |context, data, packed| {
            pack(context, &precision.elements(data), packed)
        })
    }

    /// Like [`packed`](Self::packed), for constants of any element type: `pack` gets their bytes.
    pub(in crate::engine) fn packed_bytes(
        &mut self,
        id: ValueId,
        form: Form,
        len: usize,
        pack: impl FnOnce(Context<'_>, &[u8], &mut [f32]) -> Result<(), Refusal>,
    ) -> Result<Constant<'p>, Refusal> {
        if let Some(forms) = self.packed.get(&id) {
            let numbers = form.numbers(self.machine.tier);
            let (_, data) = forms
                .iter()
                .find(|(form, data)| *form == numbers && data.as_slice().len() == len)
                .ok_or(
                    "weights that are packed for another machine; compile the program again on \
                        this one",
                )?;
            return Ok(data.clone());
        }
        let (Value::Tensor(tensor @ Tensor { data: Some(data), .. }), Some(packs)) =
            (self.value(id), self.packs())
        else {
            return Err(std::format!("internal error: weights {id} have no data"));
        };
        let key = self.key(data, Precision::of(tensor.scalar_type), form);
        let lines = packs.get(lasting(data, key), || {
            let mut lines = Lines::zeroed(len).ok_or("out of memory for packed weights")?;
            pack(self.machine, data, lines.as_mut_slice())?;
            Ok::<_, Refusal>(lines)
        })?;
        if matches!(self.purpose, Purpose::Packing(_)) {
            self.packed_here.push((id, form, lines.clone()));
        }
        Ok(Constant::Shared(lines))
    }

    /// The values of a constant, unless it was packed ahead of time.
    pub(in crate::engine) fn plain_numbers(&self, id: ValueId) -> Option<Cow<'g, [f32]>> {
        match self.value(id) {
            Value::Tensor(Tensor { data: Some(data), .. }) if !self.packed.contains_key(&id) => {
                Some(self.precision(id).ok()?.elements(data))
            }
            _ => None,
        }
    }

    /// Whether weights were packed ahead of time in this form.
    pub(in crate::engine) fn is_packed_as(&self, id: ValueId, form: Form) -> bool {
        let numbers = form.numbers(self.machine.tier);
        self.packed.get(&id).is_some_and(|forms| forms.iter().any(|(form, _)| *form == numbers))
    }

    fn packs(&self) -> Option<&'g Packs> {
        match self.purpose {
            Purpose::Question => None,
            Purpose::Packing(packs) | Purpose::Plan(packs) => Some(packs),
        }
    }
}
