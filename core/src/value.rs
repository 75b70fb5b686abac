//! Values that instructions read and write.

use crate::dtype::ScalarType;

/// A scalar of a program: PyTorch's `Scalar`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Scalar {
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A floating-point number.
    Double(f64),
}

impl Scalar {
    /// Converts to a float.
    #[inline]
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Bool(value) => f64::from(u8::from(value)),
            Scalar::Double(value) => value,
        }
    }

    /// Converts to an integer; floats are truncated and saturate.
    #[inline]
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Int(value) => value,
            Scalar::Bool(value) => i64::from(value),
            Scalar::Double(value) => value as i64,
        }
    }

    /// Converts to a boolean: whether the value is not zero.
    #[inline]
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Int(value) => value != 0,
            Scalar::Bool(value) => value,
            Scalar::Double(value) => value != 0.0,
        }
    }

    /// The dtype that PyTorch infers for a tensor of this scalar, with float32 as the default
    /// dtype.
    pub fn scalar_type(self) -> ScalarType {
        match self {
            Scalar::Int(_) => ScalarType::Long,
            Scalar::Bool(_) => ScalarType::Bool,
            Scalar::Double(_) => ScalarType::Float,
        }
    }
}

/// A 64-bit value with an alignment of four bytes: a [`Value`] then has 12 bytes instead of 16 on
/// 32-bit targets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word64([u32; 2]);

impl Word64 {
    const fn new(bits: u64) -> Self {
        Word64([bits as u32, (bits >> 32) as u32])
    }

    const fn bits(self) -> u64 {
        let Word64([low, high]) = self;
        low as u64 | (high as u64) << 32
    }

    pub(crate) const fn of_int(value: i64) -> Self {
        Word64::new(value as u64)
    }

    pub(crate) const fn int(self) -> i64 {
        self.bits() as i64
    }

    pub(crate) const fn of_double(value: f64) -> Self {
        Word64::new(value.to_bits())
    }

    pub(crate) const fn double(self) -> f64 {
        f64::from_bits(self.bits())
    }
}

/// A value of a loaded method. Lists of integers and tensors hold undecoded indices of other
/// values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'m> {
    None,
    Int(Word64),
    Bool(bool),
    Double(Word64),
    /// UTF-8 bytes, validated when the method was loaded, so that reading the kind alone skips the
    /// check.
    String(&'m [u8]),
    /// Tensor slot.
    Tensor(u32),
    /// Little-endian i64 value indices.
    IntList(&'m [[u8; 8]]),
    /// Little-endian doubles.
    DoubleList(&'m [[u8; 8]]),
    BoolList(&'m [u8]),
    /// Little-endian i32 value indices; if `optional`, -1 marks an absent tensor.
    TensorList(&'m [[u8; 4]], bool),
}

/// Value kinds as bit flags.
pub(crate) mod kind {
    pub(crate) const NONE: u16 = 1 << 0;
    pub(crate) const INT: u16 = 1 << 1;
    pub(crate) const BOOL: u16 = 1 << 2;
    pub(crate) const DOUBLE: u16 = 1 << 3;
    pub(crate) const STRING: u16 = 1 << 4;
    pub(crate) const TENSOR: u16 = 1 << 5;
    pub(crate) const INT_LIST: u16 = 1 << 6;
    pub(crate) const DOUBLE_LIST: u16 = 1 << 7;
    pub(crate) const BOOL_LIST: u16 = 1 << 8;
    pub(crate) const TENSOR_LIST: u16 = 1 << 9;
    pub(crate) const OPTIONAL_TENSOR_LIST: u16 = 1 << 10;
}

impl Value<'_> {
    /// Bit flag of the value's [kind].
    pub(crate) fn kind(&self) -> u16 {
        match self {
            Value::None => kind::NONE,
            Value::Int(_) => kind::INT,
            Value::Bool(_) => kind::BOOL,
            Value::Double(_) => kind::DOUBLE,
            Value::String(_) => kind::STRING,
            Value::Tensor(_) => kind::TENSOR,
            Value::IntList(_) => kind::INT_LIST,
            Value::DoubleList(_) => kind::DOUBLE_LIST,
            Value::BoolList(_) => kind::BOOL_LIST,
            Value::TensorList(_, false) => kind::TENSOR_LIST,
            Value::TensorList(_, true) => kind::OPTIONAL_TENSOR_LIST,
        }
    }

    /// Number of list items, for [`Limits`](crate::Limits). A string counts one item per 16 bytes,
    /// which are about as expensive to validate.
    #[inline(never)]
    pub(crate) fn items(&self) -> usize {
        match self {
            Value::IntList(items) | Value::DoubleList(items) => items.len(),
            Value::TensorList(items, _) => items.len(),
            Value::BoolList(items) => items.len(),
            Value::String(text) => text.len() / 16,
            _ => 0,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(
            self,
            Value::IntList(_) | Value::DoubleList(_) | Value::BoolList(_) | Value::TensorList(..)
        )
    }

    /// Name of the value's type, for error messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Int(_) => "int",
            Value::Bool(_) => "bool",
            Value::Double(_) => "float",
            Value::String(_) => "string",
            Value::Tensor(_) => "tensor",
            Value::IntList(_) => "int list",
            Value::DoubleList(_) => "float list",
            Value::BoolList(_) => "bool list",
            Value::TensorList(_, false) => "tensor list",
            Value::TensorList(_, true) => "optional tensor list",
        }
    }

    pub(crate) fn scalar(&self) -> Option<Scalar> {
        match *self {
            Value::Int(value) => Some(Scalar::Int(value.int())),
            Value::Bool(value) => Some(Scalar::Bool(value)),
            Value::Double(value) => Some(Scalar::Double(value.double())),
            _ => None,
        }
    }
}

impl From<Scalar> for Value<'_> {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Int(value) => Value::Int(Word64::of_int(value)),
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Double(value) => Value::Double(Word64::of_double(value)),
        }
    }
}

/// Decodes the value index in an entry of an argument or tensor list. Negative entries map to
/// indices that exceed any number of values that fits in memory.
pub(crate) fn list_index(entry: [u8; 4]) -> usize {
    i32::from_le_bytes(entry) as usize
}
