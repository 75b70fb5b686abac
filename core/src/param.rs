//! Kinds of operator arguments.

use crate::value::kind;

/// Kind of an operator's argument, as in its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Param {
    /// `Tensor`.
    Tensor,
    /// `Tensor?`.
    OptionalTensor,
    /// `Tensor[]`.
    TensorList,
    /// `Tensor?[]`.
    OptionalTensorList,
    /// `Tensor(a!)`: written. An in-place operator declares its `self` as `Out`.
    Out,
    /// `Tensor(a!)` that exporters reserve as workspace of an operator: its contents are
    /// meaningless before and after the call. Kernels cannot access it, as they request [scratch
    /// memory](crate::Plan::with_scratch) instead.
    Scratch,
    /// `Tensor(a!)[]`: every tensor is written.
    OutList,
    /// `int`, `SymInt`, and enumerations stored as integers (`ScalarType`, `MemoryFormat`).
    Int,
    /// `int?`.
    OptionalInt,
    /// `int[]`. A single integer in the file counts as a list of one.
    IntList,
    /// `int[]?`.
    OptionalIntList,
    /// `float`; also accepts an integer.
    Float,
    /// `float?`.
    OptionalFloat,
    /// `float[]?`.
    OptionalFloatList,
    /// `bool`.
    Bool,
    /// `bool?`.
    OptionalBool,
    /// `bool[]`.
    BoolList,
    /// `Scalar`: an integer, float or bool.
    Scalar,
    /// `Scalar?`.
    OptionalScalar,
    /// `str`.
    String,
    /// `str?`.
    OptionalString,
    /// A scalar that is written, as by the `executorch_prim` operators.
    OutScalar,
}

impl Param {
    /// Name of the kind, for error messages.
    pub fn name(self) -> &'static str {
        match self {
            Param::Tensor | Param::Out | Param::Scratch => "tensor",
            Param::OptionalTensor => "tensor or None",
            Param::TensorList | Param::OutList => "tensor list",
            Param::OptionalTensorList => "optional tensor list",
            Param::Int => "int",
            Param::OptionalInt => "int or None",
            Param::IntList => "int list",
            Param::OptionalIntList => "int list or None",
            Param::Float => "float",
            Param::OptionalFloat => "float or None",
            Param::OptionalFloatList => "float list or None",
            Param::Bool => "bool",
            Param::OptionalBool => "bool or None",
            Param::BoolList => "bool list",
            Param::Scalar | Param::OutScalar => "scalar",
            Param::OptionalScalar => "scalar or None",
            Param::String => "string",
            Param::OptionalString => "string or None",
        }
    }

    /// Accepted value kinds, as [bit flags](kind).
    pub(crate) const fn kinds(self) -> u16 {
        const NUMBER: u16 = kind::INT | kind::BOOL | kind::DOUBLE;
        match self {
            Param::Tensor | Param::Out | Param::Scratch => kind::TENSOR,
            Param::OptionalTensor => kind::TENSOR | kind::NONE,
            Param::TensorList | Param::OutList => kind::TENSOR_LIST,
            Param::OptionalTensorList => kind::TENSOR_LIST | kind::OPTIONAL_TENSOR_LIST,
            Param::Int | Param::Bool => kind::INT | kind::BOOL,
            Param::OptionalInt | Param::OptionalBool => kind::INT | kind::BOOL | kind::NONE,
            Param::IntList => kind::INT_LIST | kind::INT,
            Param::OptionalIntList => kind::INT_LIST | kind::INT | kind::NONE,
            Param::Float => kind::DOUBLE | kind::INT,
            Param::OptionalFloat => kind::DOUBLE | kind::INT | kind::NONE,
            Param::OptionalFloatList => kind::DOUBLE_LIST | kind::NONE,
            Param::BoolList => kind::BOOL_LIST,
            Param::Scalar => NUMBER,
            // An output scalar may still be absent if a jump skipped the instruction that writes it
            // first.
            Param::OptionalScalar | Param::OutScalar => NUMBER | kind::NONE,
            Param::String => kind::STRING,
            Param::OptionalString => kind::STRING | kind::NONE,
        }
    }

    /// Whether the argument is written.
    pub fn is_out(self) -> bool {
        matches!(self, Param::Out | Param::OutList | Param::OutScalar)
    }
}
