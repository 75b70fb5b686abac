//! Decoding of scalar arguments (integers, floats, bools) and integer lists of a call.

use super::builder::{Builder, Refusal};
use std::borrow::ToOwned;
use std::vec;
use std::vec::Vec;
use torchlet_graph::graph::{Value, ValueId};

impl Builder<'_, '_> {
    /// Decodes an integer, float or bool as `f64`.
    pub(super) fn number(&self, id: impl Into<Option<ValueId>>) -> Result<f64, Refusal> {
        let id = given(id)?;
        match self.value(id) {
            Value::Int(value) => Ok(*value as f64),
            Value::Double(value) => Ok(*value),
            Value::Bool(value) => Ok(f64::from(u8::from(*value))),
            Value::SymInt(_) => Ok(self.integer(id)? as f64),
            _ => Err(std::format!("value {id}: expected a number")),
        }
    }

    /// Decodes an integer, float or bool as `f64`; `None` if absent.
    pub(super) fn optional_number(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<f64>, Refusal> {
        let Some(id) = id.into() else { return Ok(None) };
        match self.value(id) {
            Value::None => Ok(None),
            _ => self.number(id).map(Some),
        }
    }

    /// Decodes an integer; `None` if absent.
    pub(super) fn optional_integer(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<i64>, Refusal> {
        let Some(id) = id.into() else { return Ok(None) };
        match self.value(id) {
            Value::None => Ok(None),
            Value::Int(value) => Ok(Some(*value)),
            Value::SymInt(_) => match self.given_integer(id) {
                Some(value) => Ok(Some(value)),
                None => Err("an integer that is unknown at load time".to_owned()),
            },
            _ => Err(std::format!("value {id}: expected an integer")),
        }
    }

    /// Decodes an integer.
    pub(super) fn integer(&self, id: impl Into<Option<ValueId>>) -> Result<i64, Refusal> {
        self.optional_integer(id)?.ok_or_else(|| "an integer argument is missing".to_owned())
    }

    /// Decodes a bool; false if absent.
    pub(super) fn truth(&self, id: impl Into<Option<ValueId>>) -> Result<bool, Refusal> {
        let id = given(id)?;
        match self.value(id) {
            Value::Bool(value) => Ok(*value),
            Value::None => Ok(false),
            _ => Err(std::format!("value {id}: expected a bool")),
        }
    }

    /// Decodes a list of integers; a single integer is a list of one.
    pub(super) fn integers(&self, id: impl Into<Option<ValueId>>) -> Result<Vec<i64>, Refusal> {
        let id = given(id)?;
        match self.value(id) {
            Value::IntList(items) => Ok(items.clone()),
            Value::Int(_) | Value::SymInt(_) => Ok(vec![self.integer(id)?]),
            Value::None => Ok(Vec::new()),
            Value::List(ids) => ids.iter().map(|id| self.integer(*id)).collect(),
            _ => Err(std::format!("value {id}: expected a list of integers")),
        }
    }
}

/// Returns the value ID of an argument; an error if the call lacks it.
fn given(id: impl Into<Option<ValueId>>) -> Result<ValueId, Refusal> {
    id.into().ok_or_else(|| "an argument is missing".to_owned())
}
