//! Arguments of calls: by position and by name, with the defaults of the schema.

use super::schema::{
    Argument, Float, KEYWORD, NamedArgument, OptionalTensor, SymBoolArgument, SymFloatArgument,
    SymIntArgument,
};
use super::translator::Translator;
use super::weights::scalar_type;
use crate::error::Error;
use crate::graph::{Tensor, Value, ValueId};
use crate::operators::{Kind, Operator, Parameter};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Arguments of a call in the order of the schema; `None` for absent ones.
pub(super) type Given<'a, 'j> = Vec<Option<&'a Argument<'j>>>;

/// Assigns arguments to parameters.
///
/// # Errors
/// An argument has no parameter.
pub(super) fn assign<'a, 'j: 'a>(
    parameters: &[Parameter],
    inputs: impl IntoIterator<Item = &'a NamedArgument<'j>>,
) -> Result<Given<'a, 'j>, Error> {
    let mut given = vec![None; parameters.len()];
    for (position, input) in inputs.into_iter().enumerate() {
        let name = if input.name == "self" { "input" } else { input.name.as_ref() };
        let by_name = parameters.iter().position(|parameter| parameter.name == name);
        let at = if input.kind == Some(KEYWORD) { by_name } else { by_name.or(Some(position)) };
        // The descriptions name some parameters differently, so the position decides.
        let at = if input.kind.is_some_and(|kind| kind != KEYWORD) { Some(position) } else { at };
        match at.and_then(|at| given.get_mut(at)) {
            Some(slot) => *slot = Some(&input.arg),
            None if is_irrelevant(name) => {}
            None => {
                return Err(Error::Unsupported(format!("the argument `{}`", input.name)));
            }
        }
    }
    Ok(given)
}

/// Whether a parameter does not affect the elements of the result.
fn is_irrelevant(name: &str) -> bool {
    let names = ["device", "layout", "pin_memory", "memory_format", "non_blocking", "copy"];
    names.contains(&name)
}

/// Returns the form of an operator whose second operand is a scalar.
pub(super) fn with_scalar(operator: Operator) -> Option<Operator> {
    Some(match operator {
        Operator::ADD_TENSOR => Operator::ADD_SCALAR,
        Operator::SUB_TENSOR => Operator::SUB_SCALAR,
        Operator::MUL_TENSOR => Operator::MUL_SCALAR,
        Operator::DIV_TENSOR => Operator::DIV_SCALAR,
        Operator::DIV_TENSOR_MODE => Operator::DIV_SCALAR_MODE,
        Operator::EQ_TENSOR => Operator::EQ_SCALAR,
        Operator::NE_TENSOR => Operator::NE_SCALAR,
        Operator::LT_TENSOR => Operator::LT_SCALAR,
        Operator::LE_TENSOR => Operator::LE_SCALAR,
        Operator::GT_TENSOR => Operator::GT_SCALAR,
        Operator::GE_TENSOR => Operator::GE_SCALAR,
        Operator::FMOD_TENSOR => Operator::FMOD_SCALAR,
        Operator::REMAINDER_TENSOR => Operator::REMAINDER_SCALAR,
        Operator::POW_TENSOR_TENSOR => Operator::POW_TENSOR_SCALAR,
        Operator::BITWISE_AND_TENSOR => Operator::BITWISE_AND_SCALAR,
        Operator::BITWISE_OR_TENSOR => Operator::BITWISE_OR_SCALAR,
        Operator::BITWISE_XOR_TENSOR => Operator::BITWISE_XOR_SCALAR,
        Operator::LSHIFT_TENSOR => Operator::LSHIFT_SCALAR,
        Operator::RSHIFT_TENSOR => Operator::RSHIFT_SCALAR,
        Operator::BITWISE_LEFT_SHIFT_TENSOR => Operator::BITWISE_LEFT_SHIFT_TENSOR_SCALAR,
        Operator::BITWISE_RIGHT_SHIFT_TENSOR => Operator::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR,
        Operator::COPYSIGN => Operator::COPYSIGN_SCALAR,
        _ => return None,
    })
}

/// Whether an argument is a number and no tensor.
pub(super) fn is_scalar(argument: &Argument<'_>) -> bool {
    matches!(
        argument,
        Argument::Int(_)
            | Argument::Float(_)
            | Argument::Bool(_)
            | Argument::SymInt(_)
            | Argument::SymFloat(_)
            | Argument::SymBool(_)
    )
}

impl<'j, 'p> Translator<'j, 'p> {
    /// Returns the value of an argument for a parameter. `out` is the dtype of the output, which a
    /// number gets that is passed for a tensor.
    ///
    /// # Errors
    /// The argument has the wrong kind, or is unknown.
    pub(super) fn argument(
        &mut self,
        parameter: &Parameter,
        given: Option<&Argument<'j>>,
        out: Option<ScalarType>,
    ) -> Result<ValueId, Error> {
        let Some(given) = given else {
            let value = parameter.default_value().ok_or_else(|| {
                Error::Invalid(format!("the argument `{}` is missing", parameter.name))
            })?;
            return Ok(self.push(value));
        };
        let kind = parameter.kind;
        let value = match given {
            Argument::None(_) => Value::None,
            Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor)) => {
                let id = self.tensor(&tensor.name)?;
                if kind == Kind::Tensors {
                    return Ok(self.push(Value::List(vec![id])));
                }
                return Ok(id);
            }
            Argument::OptionalTensor(OptionalTensor::None(_)) => Value::None,
            Argument::Tensors(tensors) => {
                let items = tensors.iter().map(|tensor| self.tensor(&tensor.name));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Argument::OptionalTensors(tensors) => {
                let mut items = Vec::with_capacity(tensors.len());
                for tensor in tensors {
                    items.push(match tensor {
                        OptionalTensor::Tensor(tensor) => self.tensor(&tensor.name)?,
                        OptionalTensor::None(_) => self.push(Value::None),
                    });
                }
                Value::List(items)
            }
            Argument::Int(number) => Value::Int(*number),
            Argument::Ints(items) => Value::IntList(items.clone()),
            Argument::Float(Float(number)) => Value::Double(*number),
            Argument::Floats(items) => Value::DoubleList(items.iter().map(|it| it.0).collect()),
            Argument::Bool(truth) | Argument::SymBool(SymBoolArgument::Bool(truth)) => {
                Value::Bool(*truth)
            }
            Argument::Bools(items) => Value::BoolList(items.clone()),
            Argument::String(text) => Value::String(String::from(text.as_ref())),
            Argument::SymInt(SymIntArgument::Int(number)) => Value::Int(*number),
            Argument::SymInt(SymIntArgument::Name(name))
            | Argument::SymFloat(SymFloatArgument::Name(name))
            | Argument::SymBool(SymBoolArgument::Name(name)) => {
                let id = self.number(name)?;
                if matches!(kind, Kind::Ints | Kind::OptionalInts) {
                    return Ok(self.push(Value::List(vec![id])));
                }
                return self.as_operand(id, kind, out);
            }
            Argument::SymInts(items) => self.integers(items)?,
            Argument::SymFloat(SymFloatArgument::Float(Float(number))) => Value::Double(*number),
            Argument::ScalarType(number) => {
                let known = scalar_type(*number);
                let known = known
                    .ok_or_else(|| Error::Unsupported(format!("the dtype number {number}")))?;
                Value::Int(known as i64)
            }
            // Tensors of a graph are contiguous, wherever they are.
            Argument::MemoryFormat(_) | Argument::Device(_) => Value::None,
            Argument::Layout(STRIDED) => Value::None,
            Argument::Layout(number) => {
                return Err(Error::Unsupported(format!("the sparse layout number {number}")));
            }
            other => {
                return Err(Error::Unsupported(format!(
                    "{} as the argument `{}`",
                    other.kind(),
                    parameter.name
                )));
            }
        };
        let value = kind.coerced(value);
        let id = self.push(value);
        self.as_operand(id, kind, out)
    }

    /// Turns a number that is passed for a tensor into a tensor without dims.
    fn as_operand(
        &mut self,
        id: ValueId,
        kind: Kind,
        out: Option<ScalarType>,
    ) -> Result<ValueId, Error> {
        if !matches!(kind, Kind::Tensor | Kind::OptionalTensor) {
            return Ok(id);
        }
        let out = out.filter(|out| *out != ScalarType::Bool);
        let (own, is_known) = match self.graph.values.get(id) {
            Some(Value::Int(_)) => (out.unwrap_or(ScalarType::Long), true),
            Some(Value::Double(_)) => (out.unwrap_or(ScalarType::Float), true),
            Some(Value::Bool(_)) => (ScalarType::Bool, true),
            Some(Value::SymInt(_)) => (out.unwrap_or(ScalarType::Long), false),
            _ => return Ok(id),
        };
        let data = if is_known { self.element(id, own) } else { None };
        let made = Tensor {
            scalar_type: own,
            host_type: own,
            sizes: Vec::new(),
            dynamic: false,
            changes: data.is_some().then_some(false),
            data: data.map(Cow::Owned),
        };
        let is_constant = made.data.is_some();
        let tensor = self.push(Value::Tensor(made));
        if !is_constant {
            let (dtype, none) = (self.push(Value::Int(own as i64)), self.push(Value::None));
            self.call(Operator::SCALAR_TENSOR, &[id, dtype, none, none, none], tensor);
        }
        Ok(tensor)
    }

    /// The bytes of an element with the value of a number; `None` for dtypes that need rounding.
    fn element(&self, id: ValueId, scalar_type: ScalarType) -> Option<Vec<u8>> {
        let (int, double) = match self.graph.values.get(id)? {
            Value::Int(number) => (*number, *number as f64),
            Value::Double(number) => (*number as i64, *number),
            Value::Bool(truth) => (i64::from(*truth), f64::from(u8::from(*truth))),
            _ => return None,
        };
        Some(match scalar_type {
            ScalarType::Float => (double as f32).to_le_bytes().to_vec(),
            ScalarType::Double => double.to_le_bytes().to_vec(),
            ScalarType::Long => int.to_le_bytes().to_vec(),
            ScalarType::Int => (int as i32).to_le_bytes().to_vec(),
            ScalarType::Bool => vec![u8::from(double != 0.0)],
            _ => return None,
        })
    }

    /// A list of integers: constant if all of them are.
    fn integers(&mut self, items: &[SymIntArgument<'j>]) -> Result<Value<'p>, Error> {
        let mut list = Vec::with_capacity(items.len());
        let mut known = Vec::with_capacity(items.len());
        for item in items {
            let id = match item {
                SymIntArgument::Int(number) => self.push(Value::Int(*number)),
                SymIntArgument::Name(name) => self.number(name)?,
            };
            if let Some(Value::Int(number)) = self.graph.values.get(id) {
                known.push(*number);
            }
            list.push(id);
        }
        Ok(if known.len() == list.len() { Value::IntList(known) } else { Value::List(list) })
    }
}

/// The layout of dense tensors in the schema.
pub(super) const STRIDED: u8 = 7;
