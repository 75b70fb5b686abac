//! Reads the arguments of a call by type.

use super::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::{Value, ValueId};

impl Encoder<'_, '_> {
    /// Returns the first argument of a call, and its output.
    pub(crate) fn ends(&self, args: &[ValueId]) -> Result<(ValueId, ValueId), Error> {
        match args {
            [input, .., out] => Ok((*input, *out)),
            _ => Err(Error::Invalid(format!(
                "expected an input and an output, found {} arguments",
                args.len()
            ))),
        }
    }

    /// Returns the last argument of a call: its output.
    pub(crate) fn out(&self, args: &[ValueId]) -> Result<Operand, Error> {
        self.tensor(self.out_id(args)?)
    }

    /// Returns the value id of the output.
    pub(crate) fn out_id(&self, args: &[ValueId]) -> Result<ValueId, Error> {
        let id = args
            .last()
            .copied()
            .ok_or_else(|| Error::invalid("the call has no output argument"))?;
        match self.value(id)? {
            Value::List(items) if items.len() == 1 => Ok(items[0]),
            _ => Ok(id),
        }
    }

    /// Returns the outputs of a call with several outputs.
    pub(crate) fn outs(&self, args: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let id = args
            .last()
            .copied()
            .ok_or_else(|| Error::invalid("the call has no output argument"))?;
        Ok(match self.value(id)? {
            Value::List(items) => items.clone(),
            _ => vec![id],
        })
    }

    /// Returns a tensor argument.
    pub(crate) fn tensor(&self, id: ValueId) -> Result<Operand, Error> {
        let tensor = self.state.tensor(id)?;
        Ok(Operand { id, value: id, element: tensor.element, sizes: tensor.sizes.clone() })
    }

    /// Returns a tensor argument, if the call has it.
    pub(crate) fn optional_tensor(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<Operand>, Error> {
        self.given(id.into()).map(|id| self.tensor(id)).transpose()
    }

    /// Returns an argument, unless it is missing or `None`.
    fn given(&self, id: Option<ValueId>) -> Option<ValueId> {
        id.filter(|id| !matches!(self.value(*id), Ok(Value::None)))
    }

    /// Returns an integer argument, symbolic or not.
    pub(crate) fn int(&self, id: ValueId) -> Result<i64, Error> {
        match self.value(id)? {
            Value::Int(value) => Ok(*value),
            Value::Bool(value) => Ok(i64::from(*value)),
            Value::Double(value) => Ok(*value as i64),
            Value::SymInt(_) => {
                self.state.integers.get(id).copied().flatten().ok_or_else(|| {
                    Error::Invalid(format!("symbolic integer {id} has no value yet"))
                })
            }
            _ => Err(Error::Invalid(format!("value {id}: expected an integer"))),
        }
    }

    /// Whether an integer can change from run to run.
    pub(crate) fn is_symbolic(&self, id: ValueId) -> bool {
        matches!(self.value(id), Ok(Value::SymInt(_)))
    }

    /// Returns an integer argument, if the call has it.
    pub(crate) fn optional_int(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<i64>, Error> {
        self.given(id.into()).map(|id| self.int(id)).transpose()
    }

    /// Returns a float argument; integers are converted.
    pub(crate) fn float(&self, id: ValueId) -> Result<f64, Error> {
        match self.value(id)? {
            Value::Double(value) => Ok(*value),
            _ => self.int(id).map(|value| value as f64),
        }
    }

    /// Returns a float argument, if the call has it.
    pub(crate) fn optional_float(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<f64>, Error> {
        self.given(id.into()).map(|id| self.float(id)).transpose()
    }

    /// Returns a boolean argument.
    pub(crate) fn bool(&self, id: ValueId) -> Result<bool, Error> {
        self.int(id).map(|value| value != 0)
    }

    /// Returns a boolean argument, if the call has it.
    pub(crate) fn optional_bool(&self, id: Option<ValueId>) -> Result<Option<bool>, Error> {
        self.given(id).map(|id| self.bool(id)).transpose()
    }

    /// Returns a list of integers, some of which may be symbolic. A single integer counts as a list
    /// of one.
    pub(crate) fn ints(&self, id: ValueId) -> Result<Vec<i64>, Error> {
        match self.value(id)? {
            Value::IntList(items) => Ok(items.clone()),
            Value::BoolList(items) => Ok(items.iter().map(|item| i64::from(*item)).collect()),
            Value::List(items) => items.iter().map(|item| self.int(*item)).collect(),
            _ => Ok(vec![self.int(id)?]),
        }
    }

    /// Returns a list of integers, if the call has it.
    pub(crate) fn optional_ints(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<Vec<i64>>, Error> {
        self.given(id.into()).map(|id| self.ints(id)).transpose()
    }

    /// Returns a list of floats, if the call has it.
    pub(crate) fn optional_floats(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<Vec<f64>>, Error> {
        let Some(id) = self.given(id.into()) else { return Ok(None) };
        match self.value(id)? {
            Value::DoubleList(items) => Ok(Some(items.clone())),
            _ => Ok(Some(self.ints(id)?.into_iter().map(|item| item as f64).collect())),
        }
    }

    /// Returns a list of value ids. A single value counts as a list of one.
    pub(crate) fn list(&self, id: ValueId) -> Result<Vec<ValueId>, Error> {
        match self.value(id)? {
            Value::List(items) => Ok(items.clone()),
            _ => Ok(vec![id]),
        }
    }

    /// Returns a string argument, if the call has it.
    pub(crate) fn optional_string(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<&str>, Error> {
        let Some(id) = self.given(id.into()) else { return Ok(None) };
        match self.value(id)? {
            Value::String(text) => Ok(Some(text)),
            _ => Err(Error::Invalid(format!("value {id}: expected a string"))),
        }
    }
}
