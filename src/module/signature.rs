//! Inputs and outputs of a method, decoded once when it is loaded.

use crate::error::Error;
use torchlet_core::{
    InputError, MethodMeta, ProgramError, Scalar, ShapeDynamism, TensorInfo, TensorMeta, ValueMeta,
};

/// An input or output.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    None,
    Scalar(Scalar),
    String(String),
    List(usize),
    Tensor { info: TensorInfo, dynamic: bool, unplanned: bool },
}

impl Slot {
    fn of(value: &ValueMeta<'_>) -> Self {
        match value {
            ValueMeta::Scalar(scalar) => Slot::Scalar(*scalar),
            ValueMeta::String(text) => Slot::String((*text).into()),
            ValueMeta::List(len) => Slot::List(*len),
            ValueMeta::Tensor(TensorMeta { info, dynamism, planned, constant, .. }) => {
                Slot::Tensor {
                    info: info.clone(),
                    dynamic: *dynamism != ShapeDynamism::Static,
                    unplanned: !planned && !constant,
                }
            }
            _ => Slot::None,
        }
    }

    /// Description of accepted values, for error messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Slot::None => "nothing".into(),
            Slot::Scalar(Scalar::Int(_)) => "an int".into(),
            Slot::Scalar(Scalar::Bool(_)) => "a bool".into(),
            Slot::Scalar(Scalar::Double(_)) => "a float".into(),
            Slot::String(text) => format!("the string {text:?}"),
            Slot::List(len) => format!("a list of {len}"),
            Slot::Tensor { info, dynamic: true, .. } => format!("at most {info}"),
            Slot::Tensor { info, .. } => info.to_string(),
        }
    }

    /// Bytes of memory that the caller must bind to it.
    pub(crate) fn unplanned_bytes(&self) -> Option<usize> {
        match self {
            Slot::Tensor { info, unplanned: true, .. } => Some(info.nbytes()),
            _ => None,
        }
    }
}

/// Inputs and outputs of a method.
#[derive(Debug, Clone)]
pub(crate) struct Signature {
    pub(crate) inputs: Vec<Slot>,
    pub(crate) outputs: Vec<Slot>,
}

impl Signature {
    pub(crate) fn of(meta: &MethodMeta<'_>) -> Result<Self, ProgramError> {
        let slot = |value: Option<ValueMeta<'_>>| value.map_or(Slot::None, |v| Slot::of(&v));
        let inputs = (0..meta.input_count()).map(|index| Ok(slot(meta.input(index)?)));
        let outputs = (0..meta.output_count()).map(|index| Ok(slot(meta.output(index)?)));
        Ok(Signature {
            inputs: inputs.collect::<Result<_, ProgramError>>()?,
            outputs: outputs.collect::<Result<_, ProgramError>>()?,
        })
    }

    /// Description of values that an input accepts, for error messages. Empty if the input does not
    /// exist.
    pub(crate) fn describe_input(&self, index: usize) -> String {
        self.inputs.get(index).map_or_else(String::new, Slot::describe)
    }

    /// Error for an input that does not fit.
    pub(crate) fn refused(&self, method: &str, index: usize, source: InputError) -> Error {
        super::method::input_error(method, index, &self.describe_input(index), source)
    }

    /// Bytes of all memory that the caller must bind.
    pub(crate) fn unplanned_bytes(&self) -> usize {
        let slots = self.inputs.iter().chain(&self.outputs);
        slots.filter_map(Slot::unplanned_bytes).fold(0, usize::saturating_add)
    }
}
