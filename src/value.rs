//! Inputs and outputs of methods.

use crate::error::Error;
use crate::tensor::Tensor;
use std::fmt;
use torchlet_core::Scalar;

/// Input or output of a method.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Value {
    /// No value. As an input, it keeps the value that was [set before](crate::Module::set_input).
    #[default]
    None,
    /// An integer.
    Int(i64),
    /// A floating-point value.
    Float(f64),
    /// A Boolean.
    Bool(bool),
    /// A string.
    String(String),
    /// A tensor.
    Tensor(Tensor),
}

impl Value {
    /// Name of the variant: `"None"`, `"int"`, `"float"`, `"bool"`, `"string"` or `"tensor"`.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Tensor(_) => "tensor",
        }
    }

    fn other(&self, expected: &'static str) -> Error {
        Error::Kind { expected, found: self.kind() }
    }

    /// Whether this is [`Value::None`].
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// Returns the tensor.
    ///
    /// # Errors
    /// The value is not a tensor.
    pub fn tensor(&self) -> Result<&Tensor, Error> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(other.other("tensor")),
        }
    }

    /// Converts into the tensor.
    ///
    /// # Errors
    /// The value is not a tensor.
    pub fn into_tensor(self) -> Result<Tensor, Error> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(other.other("tensor")),
        }
    }

    /// Returns the integer.
    ///
    /// # Errors
    /// The value is not an integer.
    pub fn int(&self) -> Result<i64, Error> {
        match self {
            Value::Int(value) => Ok(*value),
            other => Err(other.other("int")),
        }
    }

    /// Returns the floating-point value.
    ///
    /// # Errors
    /// The value is not a float.
    pub fn float(&self) -> Result<f64, Error> {
        match self {
            Value::Float(value) => Ok(*value),
            other => Err(other.other("float")),
        }
    }

    /// Returns the Boolean.
    ///
    /// # Errors
    /// The value is not a Boolean.
    pub fn bool(&self) -> Result<bool, Error> {
        match self {
            Value::Bool(value) => Ok(*value),
            other => Err(other.other("bool")),
        }
    }

    /// Returns the string.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn string(&self) -> Result<&str, Error> {
        match self {
            Value::String(value) => Ok(value),
            other => Err(other.other("string")),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Int(value) => value.fmt(f),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Value::String(value) => write!(f, "{value:?}"),
            Value::Tensor(tensor) => tensor.fmt(f),
        }
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $convert:expr),* $(,)?) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $convert
            }
        })*
    };
}
from! {
    Tensor => |tensor| Value::Tensor(tensor),
    &Tensor => |tensor| Value::Tensor(tensor.clone()),
    &Value => |value| value.clone(),
    i32 => |value| Value::Int(value.into()),
    i64 => |value| Value::Int(value),
    f32 => |value| Value::Float(value.into()),
    f64 => |value| Value::Float(value),
    bool => |value| Value::Bool(value),
    &str => |value| Value::String(value.into()),
    String => |value| Value::String(value),
    Scalar => |scalar| match scalar {
        Scalar::Int(value) => Value::Int(value),
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::Double(value) => Value::Float(value),
    },
}

impl<V: Into<Value>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Self {
        value.map_or(Value::None, Into::into)
    }
}

/// Inputs of a call: a tensor, a tuple, or an array, slice or vector of values.
///
/// ```
/// # use torchlet::{Inputs, Tensor, Value};
/// # let tensor = Tensor::scalar(1.0f32)?;
/// let one = (&tensor).into_values();
/// let several = (&tensor, 2, 0.5, true).into_values();
/// let list = vec![Value::from(&tensor), Value::Int(2)].into_values();
/// # assert_eq!((one.len(), several.len(), list.len()), (1, 4, 2));
/// # Ok::<(), torchlet::Error>(())
/// ```
pub trait Inputs {
    /// Converts into values, in input order.
    fn into_values(self) -> Vec<Value>;
}

impl Inputs for () {
    fn into_values(self) -> Vec<Value> {
        Vec::new()
    }
}

impl Inputs for Tensor {
    fn into_values(self) -> Vec<Value> {
        [self].into_values()
    }
}

impl Inputs for &Tensor {
    fn into_values(self) -> Vec<Value> {
        [self].into_values()
    }
}

impl<V: Into<Value>, const N: usize> Inputs for [V; N] {
    fn into_values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<V: Into<Value>> Inputs for Vec<V> {
    fn into_values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<V> Inputs for &[V]
where
    for<'v> &'v V: Into<Value>,
{
    fn into_values(self) -> Vec<Value> {
        self.iter().map(Into::into).collect()
    }
}

impl<V> Inputs for &Vec<V>
where
    for<'v> &'v V: Into<Value>,
{
    fn into_values(self) -> Vec<Value> {
        self.as_slice().into_values()
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => {
        $(impl<$($name: Into<Value>),+> Inputs for ($($name,)+) {
            #[allow(non_snake_case, reason = "the types name the variables")]
            fn into_values(self) -> Vec<Value> {
                let ($($name,)+) = self;
                [$($name.into()),+].into()
            }
        })*
    };
}
tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}
