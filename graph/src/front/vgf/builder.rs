//! Builder for a graph of ATen and TOSA calls from the instructions of a SPIR-V graph.

use super::calls::Calls;
use super::spirv::{Call, Id, Module, TensorType, Type};
use crate::error::Error;
use crate::graph::ValueId;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// The instructions of a segment under translation.
pub(super) struct Builder<'b, 'p> {
    pub(super) module: &'b Module,
    calls: &'b mut Calls<'p>,
    /// Contents of the module's graph constants, by number.
    outside: BTreeMap<u32, Cow<'p, [u8]>>,
    /// Tensors, by the id of their result. A result that is a structure has several.
    values: BTreeMap<Id, Vec<ValueId>>,
}

impl<'p> Deref for Builder<'_, 'p> {
    type Target = Calls<'p>;

    fn deref(&self) -> &Calls<'p> {
        self.calls
    }
}

impl<'p> DerefMut for Builder<'_, 'p> {
    fn deref_mut(&mut self) -> &mut Calls<'p> {
        self.calls
    }
}

impl<'b, 'p> Builder<'b, 'p> {
    pub(super) fn new(
        module: &'b Module,
        calls: &'b mut Calls<'p>,
        outside: BTreeMap<u32, Cow<'p, [u8]>>,
    ) -> Self {
        Builder { module, calls, outside, values: BTreeMap::new() }
    }

    /// Defines the result of an instruction.
    ///
    /// # Errors
    /// It is defined already.
    pub(super) fn define(&mut self, id: Id, values: Vec<ValueId>) -> Result<(), Error> {
        match self.values.insert(id, values) {
            None if !self.module.is_constant(id) => Ok(()),
            _ => Err(Error::Invalid(format!("SPIR-V: id {id} is defined twice"))),
        }
    }

    /// The items of a result that is a structure.
    pub(super) fn items(&self, id: Id) -> Result<&[ValueId], Error> {
        let found = self.values.get(&id).map(Vec::as_slice);
        found
            .ok_or_else(|| Error::Invalid(format!("SPIR-V: id {id} is read before it is computed")))
    }

    /// The tensor of an operand: a result, or a constant.
    pub(super) fn read(&mut self, id: Id) -> Result<ValueId, Error> {
        if !self.module.is_constant(id) || self.values.contains_key(&id) {
            let [value] = self.items(id)? else {
                return Err(Error::Invalid(format!("SPIR-V: id {id}: expected one tensor")));
            };
            return Ok(*value);
        }
        let module = self.module;
        let of = module.constant_type(id)?;
        let value = match module.outside(id)? {
            Some(number) => {
                let data = self.outside(number, of)?;
                self.constant(of, data)
            }
            None => self.computed(of, || module.contents(id))?,
        };
        self.values.insert(id, vec![value]);
        Ok(value)
    }

    /// A constant of the container, of the size that its type has.
    fn outside(&self, number: u32, of: &TensorType) -> Result<Cow<'p, [u8]>, Error> {
        let found = self.outside.get(&number).cloned();
        let found = found.ok_or_else(|| {
            Error::Invalid(format!("graph constant {number} is not bound to a constant"))
        })?;
        if of.bytes() != Some(found.len()) {
            return Err(Error::Invalid(format!(
                "graph constant {number}: expected {} values of {}, found {} bytes",
                of.numel().unwrap_or(0),
                of.scalar_type.name(),
                found.len()
            )));
        }
        Ok(found)
    }

    /// The declared type of a call's result.
    pub(super) fn result(&self, call: &Call) -> Result<TensorType, Error> {
        self.module.tensor(call.result_type).cloned()
    }

    /// The declared types of the results of a call that has two.
    pub(super) fn two_results(&self, call: &Call) -> Result<[&TensorType; 2], Error> {
        let Type::Struct(items) = self.module.type_of(call.result_type)? else {
            return Err(Error::invalid("expected a result that is a structure"));
        };
        match items[..] {
            [first, second] => Ok([self.module.tensor(first)?, self.module.tensor(second)?]),
            _ => Err(Error::Invalid(format!("expected two results, found {}", items.len()))),
        }
    }
}
