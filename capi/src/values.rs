//! Inputs and outputs of methods in C.

use crate::fault::Fault;
use crate::pointer;
use crate::tensor::torchlet_tensor;
use core::ffi::c_char;
use torchlet_core::{Scalar, ValueRef};

/// A string, not null-terminated. It belongs to the object that returned it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_string {
    /// The text in UTF-8.
    pub data: *const c_char,
    /// Its size in bytes.
    pub size: usize,
}

/// The kind of a value.
pub type torchlet_kind = u32;

/// None. As an input, it leaves the input unchanged.
pub const TORCHLET_KIND_NONE: torchlet_kind = 0;
/// A tensor.
pub const TORCHLET_KIND_TENSOR: torchlet_kind = 1;
/// An integer.
pub const TORCHLET_KIND_INTEGER: torchlet_kind = 2;
/// A floating-point value.
pub const TORCHLET_KIND_FLOAT: torchlet_kind = 3;
/// A boolean.
pub const TORCHLET_KIND_BOOLEAN: torchlet_kind = 4;
/// A string.
pub const TORCHLET_KIND_STRING: torchlet_kind = 5;
/// A list, represented by its length.
pub const TORCHLET_KIND_LIST: torchlet_kind = 6;

/// The data of a value, selected by its kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union torchlet_value_data {
    /// A tensor.
    pub tensor: torchlet_tensor,
    /// An integer.
    pub integer: i64,
    /// A floating-point value.
    pub number: f64,
    /// A boolean; nonzero is true.
    pub boolean: u8,
    /// A string.
    pub string: torchlet_string,
    /// The length of a list.
    pub length: usize,
}

/// An input or output value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_value {
    /// Selects the member of `data`.
    pub kind: torchlet_kind,
    /// The value.
    pub data: torchlet_value_data,
}

impl torchlet_string {
    pub(crate) fn of(text: &str) -> Self {
        torchlet_string { data: text.as_ptr().cast(), size: text.len() }
    }
}

impl torchlet_value {
    pub(crate) fn of(value: &ValueRef<'_>) -> Self {
        match value {
            ValueRef::Tensor(tensor) => {
                let tensor = torchlet_tensor::of(tensor);
                let data = torchlet_value_data { tensor };
                torchlet_value { kind: TORCHLET_KIND_TENSOR, data }
            }
            ValueRef::Scalar(scalar) => torchlet_value::of_scalar(*scalar),
            ValueRef::String(text) => torchlet_value::of_string(text),
            ValueRef::List(length) => torchlet_value::of_list(*length),
            _ => torchlet_value::none(),
        }
    }

    pub(crate) fn none() -> Self {
        torchlet_value { kind: TORCHLET_KIND_NONE, data: torchlet_value_data { integer: 0 } }
    }

    pub(crate) fn of_scalar(scalar: Scalar) -> Self {
        let (kind, data) = match scalar {
            Scalar::Int(integer) => (TORCHLET_KIND_INTEGER, torchlet_value_data { integer }),
            Scalar::Double(number) => (TORCHLET_KIND_FLOAT, torchlet_value_data { number }),
            Scalar::Bool(value) => {
                (TORCHLET_KIND_BOOLEAN, torchlet_value_data { boolean: value.into() })
            }
        };
        torchlet_value { kind, data }
    }

    pub(crate) fn of_string(text: &str) -> Self {
        let data = torchlet_value_data { string: torchlet_string::of(text) };
        torchlet_value { kind: TORCHLET_KIND_STRING, data }
    }

    pub(crate) fn of_list(length: usize) -> Self {
        torchlet_value { kind: TORCHLET_KIND_LIST, data: torchlet_value_data { length } }
    }

    /// Converts to the type of the core library, if consistent.
    ///
    /// # Safety
    /// The member that `kind` selects is initialized, and its data outlives the result and is not
    /// written meanwhile.
    pub(crate) unsafe fn checked<'a>(&self) -> Result<ValueRef<'a>, Fault> {
        // SAFETY: guaranteed by the caller; all members are plain data, valid for any bytes.
        unsafe {
            Ok(match self.kind {
                TORCHLET_KIND_NONE => ValueRef::None,
                TORCHLET_KIND_TENSOR => ValueRef::Tensor(self.data.tensor.checked()?),
                TORCHLET_KIND_INTEGER => Scalar::Int(self.data.integer).into(),
                TORCHLET_KIND_FLOAT => Scalar::Double(self.data.number).into(),
                TORCHLET_KIND_BOOLEAN => Scalar::Bool(self.data.boolean != 0).into(),
                TORCHLET_KIND_STRING => {
                    let string = self.data.string;
                    let bytes = pointer::bytes(string.data.cast(), string.size, "a string")?;
                    let text = core::str::from_utf8(bytes);
                    ValueRef::String(text.map_err(|_| Fault::Utf8("a string"))?)
                }
                TORCHLET_KIND_LIST => ValueRef::List(self.data.length),
                _ => return Err(Fault::Argument("a value has an unknown kind")),
            })
        }
    }
}
