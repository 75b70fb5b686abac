//! Reads the arguments of a call.

use super::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::{Value, ValueId};

impl Encoder<'_, '_> {
    /// Returns argument `position` of a call.
    pub(crate) fn arg(&self, args: &[ValueId], position: usize) -> Result<ValueId, Error> {
        args.get(position).copied().ok_or_else(|| {
            Error::Invalid(format!(
                "the call has {} arguments, expected {}",
                args.len(),
                position + 1
            ))
        })
    }

    /// Returns the last argument of a call: its output.
    pub(crate) fn out(&self, args: &[ValueId]) -> Result<Operand, Error> {
        self.tensor(self.out_id(args)?)
    }

    /// Returns the value id of the output.
    pub(crate) fn out_id(&self, args: &[ValueId]) -> Result<ValueId, Error> {
        let id = args.last().copied().ok_or_else(|| Error::invalid("the call has no arguments"))?;
        match self.value(id)? {
            Value::List(items) if items.len() == 1 => Ok(items[0]),
            _ => Ok(id),
        }
    }

    /// Returns the outputs of a call with several outputs.
    pub(crate) fn outs(&self, args: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let id = args.last().copied().ok_or_else(|| Error::invalid("the call has no arguments"))?;
        Ok(match self.value(id)? {
            Value::List(items) => items.clone(),
            _ => vec![id],
        })
    }

    /// Returns a tensor.
    pub(crate) fn tensor(&self, id: ValueId) -> Result<Operand, Error> {
        let tensor = self.state.tensor(id)?;
        Ok(Operand { id, value: id, element: tensor.element, sizes: tensor.sizes.clone() })
    }

    /// Returns a tensor, or `None` for an absent argument.
    pub(crate) fn optional_tensor(&self, id: ValueId) -> Result<Option<Operand>, Error> {
        match self.value(id)? {
            Value::None => Ok(None),
            _ => self.tensor(id).map(Some),
        }
    }

    /// Whether an argument is `None`.
    pub(crate) fn is_none(&self, id: ValueId) -> bool {
        matches!(self.value(id), Ok(Value::None))
    }

    /// Returns an integer, symbolic or not.
    pub(crate) fn int(&self, id: ValueId) -> Result<i64, Error> {
        match self.value(id)? {
            Value::Int(value) => Ok(*value),
            Value::Bool(value) => Ok(i64::from(*value)),
            Value::Double(value) => Ok(*value as i64),
            Value::SymInt(_) => self
                .state
                .integers
                .get(id)
                .copied()
                .flatten()
                .ok_or_else(|| Error::Invalid(format!("value {id} is not an integer"))),
            _ => Err(Error::Invalid(format!("value {id} is not an integer"))),
        }
    }

    /// Whether an integer can change from run to run.
    pub(crate) fn is_symbolic(&self, id: ValueId) -> bool {
        matches!(self.value(id), Ok(Value::SymInt(_)))
    }

    /// Returns an integer, or `None` for an absent argument.
    pub(crate) fn optional_int(&self, id: ValueId) -> Result<Option<i64>, Error> {
        if self.is_none(id) { Ok(None) } else { self.int(id).map(Some) }
    }

    /// Returns a float; integers are converted.
    pub(crate) fn float(&self, id: ValueId) -> Result<f64, Error> {
        match self.value(id)? {
            Value::Double(value) => Ok(*value),
            _ => self.int(id).map(|value| value as f64),
        }
    }

    /// Returns a float, or `None` for an absent argument.
    pub(crate) fn optional_float(&self, id: ValueId) -> Result<Option<f64>, Error> {
        if self.is_none(id) { Ok(None) } else { self.float(id).map(Some) }
    }

    /// Returns a boolean.
    pub(crate) fn bool(&self, id: ValueId) -> Result<bool, Error> {
        self.int(id).map(|value| value != 0)
    }

    /// Returns a list of integers, some of which may be symbolic. A single integer is a list of
    /// one.
    pub(crate) fn ints(&self, id: ValueId) -> Result<Vec<i64>, Error> {
        match self.value(id)? {
            Value::IntList(items) => Ok(items.clone()),
            Value::BoolList(items) => Ok(items.iter().map(|item| i64::from(*item)).collect()),
            Value::List(items) => items.iter().map(|item| self.int(*item)).collect(),
            _ => Ok(vec![self.int(id)?]),
        }
    }

    /// Returns a list of integers, or `None` for an absent argument.
    pub(crate) fn optional_ints(&self, id: ValueId) -> Result<Option<Vec<i64>>, Error> {
        if self.is_none(id) { Ok(None) } else { self.ints(id).map(Some) }
    }

    /// Returns a list of floats, or `None` for an absent argument.
    pub(crate) fn optional_floats(&self, id: ValueId) -> Result<Option<Vec<f64>>, Error> {
        match self.value(id)? {
            Value::None => Ok(None),
            Value::DoubleList(items) => Ok(Some(items.clone())),
            _ => Ok(Some(self.ints(id)?.into_iter().map(|item| item as f64).collect())),
        }
    }

    /// Returns a list of values. A single value is a list of one.
    pub(crate) fn list(&self, id: ValueId) -> Result<Vec<ValueId>, Error> {
        match self.value(id)? {
            Value::List(items) => Ok(items.clone()),
            _ => Ok(vec![id]),
        }
    }

    /// Returns a string, or `None` for an absent argument.
    pub(crate) fn optional_string(&self, id: ValueId) -> Result<Option<&str>, Error> {
        match self.value(id)? {
            Value::None => Ok(None),
            Value::String(text) => Ok(Some(text)),
            _ => Err(Error::Invalid(format!("value {id} is not a string"))),
        }
    }
}
