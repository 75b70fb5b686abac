//! Arguments of operators.

use super::Tensor;
use torchlet_core::ScalarType;

/// Argument of an operator: a tensor, a number, a list, or nothing.
///
/// Methods accept whatever converts to it: `&Tensor`, integers, floats, booleans, strings, dtypes,
/// slices and arrays of integers or floats, lists of tensors, and options of these.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Arg {
    /// An absent argument.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A list of tensors, some of which may be absent.
    Tensors(Vec<Option<Tensor>>),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(String),
    /// A dtype.
    Dtype(ScalarType),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A list of floating-point numbers.
    Floats(Vec<f64>),
    /// A list of booleans.
    Bools(Vec<bool>),
}

macro_rules! numbers {
    ($($type:ty => $variant:ident as $wide:ty),* $(,)?) => {
        $(
            impl From<$type> for Arg {
                fn from(value: $type) -> Self {
                    Arg::$variant(value as $wide)
                }
            }
        )*
    };
}

numbers! {
    i8 => Int as i64, i16 => Int as i64, i32 => Int as i64, i64 => Int as i64,
    u8 => Int as i64, u16 => Int as i64, u32 => Int as i64,
    f32 => Float as f64, f64 => Float as f64,
}

impl From<usize> for Arg {
    /// Sizes beyond `i64` become its maximum, which no operator accepts.
    fn from(value: usize) -> Self {
        Arg::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Arg {
    fn from(value: bool) -> Self {
        Arg::Bool(value)
    }
}

impl From<&str> for Arg {
    fn from(value: &str) -> Self {
        Arg::Text(value.into())
    }
}

impl From<ScalarType> for Arg {
    fn from(value: ScalarType) -> Self {
        Arg::Dtype(value)
    }
}

impl From<&Tensor> for Arg {
    fn from(value: &Tensor) -> Self {
        Arg::Tensor(value.clone())
    }
}

impl From<Tensor> for Arg {
    fn from(value: Tensor) -> Self {
        Arg::Tensor(value)
    }
}

impl From<&[Tensor]> for Arg {
    fn from(value: &[Tensor]) -> Self {
        Arg::Tensors(value.iter().cloned().map(Some).collect())
    }
}

impl From<&Vec<Tensor>> for Arg {
    fn from(value: &Vec<Tensor>) -> Self {
        Arg::from(&value[..])
    }
}

impl From<&[&Tensor]> for Arg {
    fn from(value: &[&Tensor]) -> Self {
        Arg::Tensors(value.iter().map(|it| Some((*it).clone())).collect())
    }
}

impl<const N: usize> From<[&Tensor; N]> for Arg {
    fn from(value: [&Tensor; N]) -> Self {
        Arg::from(&value[..])
    }
}

impl<const N: usize> From<&[&Tensor; N]> for Arg {
    fn from(value: &[&Tensor; N]) -> Self {
        Arg::from(&value[..])
    }
}

impl From<&[Option<&Tensor>]> for Arg {
    fn from(value: &[Option<&Tensor>]) -> Self {
        Arg::Tensors(value.iter().map(|it| it.cloned()).collect())
    }
}

macro_rules! lists {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(
            impl From<&[$type]> for Arg {
                fn from(value: &[$type]) -> Self {
                    Arg::$variant(value.to_vec())
                }
            }
            impl From<Vec<$type>> for Arg {
                fn from(value: Vec<$type>) -> Self {
                    Arg::$variant(value)
                }
            }
            impl From<&Vec<$type>> for Arg {
                fn from(value: &Vec<$type>) -> Self {
                    Arg::$variant(value.clone())
                }
            }
            impl<const N: usize> From<[$type; N]> for Arg {
                fn from(value: [$type; N]) -> Self {
                    Arg::$variant(value.to_vec())
                }
            }
            impl<const N: usize> From<&[$type; N]> for Arg {
                fn from(value: &[$type; N]) -> Self {
                    Arg::$variant(value.to_vec())
                }
            }
        )*
    };
}

lists! { i64 => Ints, f64 => Floats, bool => Bools }

impl<T: Into<Arg>> From<Option<T>> for Arg {
    fn from(value: Option<T>) -> Self {
        value.map_or(Arg::None, Into::into)
    }
}
