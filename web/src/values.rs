//! Inputs and outputs of calls, passed element by element; typed arrays are passed as bytes.

use torchlet::core::{ProgramError, TestCase, ValueRef};
use torchlet::{Error, Module, ScalarType, Tensor, Value};
use wasm_bindgen::prelude::*;

/// Element types that a typed array can hold, as values or bits.
const TYPES: &[ScalarType] = &[
    ScalarType::Float,
    ScalarType::Double,
    ScalarType::Half,
    ScalarType::BFloat16,
    ScalarType::Byte,
    ScalarType::Char,
    ScalarType::Short,
    ScalarType::Int,
    ScalarType::Long,
    ScalarType::Bool,
    ScalarType::UInt16,
    ScalarType::UInt32,
    ScalarType::UInt64,
];

/// The inputs of a call, in order.
#[wasm_bindgen]
#[derive(Default)]
pub struct InputValues(Vec<Value>);

#[wasm_bindgen]
impl InputValues {
    /// Creates an empty list.
    #[wasm_bindgen(constructor)]
    pub fn new() -> InputValues {
        InputValues::default()
    }

    /// Adds a tensor with PyTorch's name of the element type, from its elements in row-major order.
    ///
    /// # Errors
    /// If the type is unknown, or the number of elements does not match the shape.
    pub fn tensor(&mut self, dtype: &str, shape: &[u32], bytes: &[u8]) -> Result<(), JsError> {
        let scalar_type = TYPES.iter().find(|it| it.name() == dtype).ok_or_else(|| {
            let names: Vec<&str> = TYPES.iter().map(|it| it.name()).collect();
            JsError::new(&format!("unknown dtype {dtype:?}; expected one of {}", names.join(", ")))
        })?;
        let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
        if *scalar_type == ScalarType::Bool && bytes.iter().any(|byte| *byte > 1) {
            return Err(JsError::new("bool tensor: expected elements 0 and 1"));
        }
        let tensor = Tensor::from_bytes(*scalar_type, &shape, bytes).map_err(super::failure)?;
        self.0.push(tensor.into());
        Ok(())
    }

    /// Adds an integer.
    pub fn int(&mut self, value: i64) {
        self.0.push(value.into());
    }

    /// Adds a floating-point value.
    pub fn float(&mut self, value: f64) {
        self.0.push(value.into());
    }

    /// Adds a boolean.
    pub fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    /// Adds a string.
    pub fn text(&mut self, value: String) {
        self.0.push(value.into());
    }

    /// Adds None, which leaves an input unchanged.
    pub fn none(&mut self) {
        self.0.push(Value::None);
    }
}

impl InputValues {
    pub(crate) fn into_values(self) -> Vec<Value> {
        self.0
    }
}

/// Outputs of a call, accessed by index. An index out of range yields None.
#[wasm_bindgen]
pub struct OutputValues(Vec<Value>);

#[wasm_bindgen]
impl OutputValues {
    /// Number of values.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The kind: `tensor`, `int`, `float`, `bool`, `string` or `None`.
    pub fn kind(&self, index: usize) -> String {
        self.0.get(index).map_or("None", Value::kind).into()
    }

    /// PyTorch's name of a tensor's element type.
    pub fn dtype(&self, index: usize) -> Option<String> {
        self.at(index).map(|tensor| tensor.scalar_type().name().into())
    }

    /// A tensor's shape.
    pub fn shape(&self, index: usize) -> Vec<u32> {
        let shape = self.at(index).map_or(&[][..], Tensor::shape);
        shape.iter().map(|size| u32::try_from(*size).unwrap_or(u32::MAX)).collect()
    }

    /// A copy of a tensor's elements in row-major order.
    ///
    /// # Errors
    /// If the allocation fails.
    pub fn bytes(&self, index: usize) -> Result<Vec<u8>, JsError> {
        let Some(tensor) = self.at(index) else { return Ok(Vec::new()) };
        let tensor = tensor.to_contiguous().map_err(super::failure)?;
        Ok(tensor.bytes().to_vec())
    }

    /// The value of an integer.
    pub fn int(&self, index: usize) -> Option<i64> {
        self.0.get(index).and_then(|value| value.int().ok())
    }

    /// The value of a float.
    pub fn float(&self, index: usize) -> Option<f64> {
        self.0.get(index).and_then(|value| value.float().ok())
    }

    /// The value of a boolean.
    pub fn bool(&self, index: usize) -> Option<bool> {
        self.0.get(index).and_then(|value| value.bool().ok())
    }

    /// The value of a string.
    pub fn text(&self, index: usize) -> Option<String> {
        self.0.get(index).and_then(|value| value.string().ok()).map(str::to_owned)
    }
}

impl OutputValues {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        OutputValues(values)
    }

    fn at(&self, index: usize) -> Option<&Tensor> {
        self.0.get(index).and_then(|value| value.tensor().ok())
    }
}

/// Selects inputs or expected outputs of a test case.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Inputs,
    Outputs,
}

/// Reads inputs or expected outputs of a test case; `None` if it does not exist.
pub(crate) fn case(
    module: &Module,
    method: &str,
    index: usize,
    side: Side,
) -> Result<Option<OutputValues>, Error> {
    let malformed = |source: ProgramError| Error::Format { path: None, source };
    let Some(bundled) = module.bundled() else { return Ok(None) };
    for suite in bundled.suites().map_err(malformed)? {
        let suite = suite.map_err(malformed)?;
        if suite.method_name().map_err(malformed)? == method {
            let case = suite.cases().map_err(malformed)?.nth(index).transpose();
            let case = case.map_err(malformed)?;
            return case.map(|case| one_side(&case, side)).transpose();
        }
    }
    Ok(None)
}

fn one_side(case: &TestCase<'_>, side: Side) -> Result<OutputValues, Error> {
    let malformed = |source: ProgramError| Error::Format { path: None, source };
    let value = |value: Result<ValueRef<'_>, ProgramError>| {
        Ok(match value.map_err(malformed)? {
            ValueRef::Scalar(scalar) => scalar.into(),
            ValueRef::String(text) => text.into(),
            ValueRef::Tensor(tensor) => Tensor::try_from(&tensor)?.into(),
            _ => Value::None,
        })
    };
    let values: Result<Vec<Value>, Error> = match side {
        Side::Inputs => case.inputs().map_err(malformed)?.map(value).collect(),
        Side::Outputs => case.expected_outputs().map_err(malformed)?.map(value).collect(),
    };
    values.map(OutputValues)
}
