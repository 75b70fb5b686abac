//! Inputs and outputs, piece by piece: JavaScript's typed arrays are bytes here.

use torchlet::core::{ProgramError, TestCase, ValueRef};
use torchlet::{Error, Module, ScalarType, Tensor, Value};
use wasm_bindgen::prelude::*;

/// Types that a typed array can have the elements of, or the bits.
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
    /// None so far.
    #[wasm_bindgen(constructor)]
    pub fn new() -> InputValues {
        InputValues::default()
    }

    /// A tensor of a type that PyTorch calls so, from its elements in row-major order.
    ///
    /// # Errors
    /// There is no such type, or the shape has another number of elements.
    pub fn tensor(&mut self, dtype: &str, shape: &[u32], bytes: &[u8]) -> Result<(), JsError> {
        let scalar_type = TYPES.iter().find(|it| it.name() == dtype).ok_or_else(|| {
            let names: Vec<&str> = TYPES.iter().map(|it| it.name()).collect();
            JsError::new(&format!(
                "there is no element type {dtype:?}; expected one of {}",
                names.join(", ")
            ))
        })?;
        let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
        if *scalar_type == ScalarType::Bool && bytes.iter().any(|byte| *byte > 1) {
            return Err(JsError::new("a bool tensor has elements other than 0 and 1"));
        }
        let tensor = Tensor::from_bytes(*scalar_type, &shape, bytes).map_err(super::failure)?;
        self.0.push(tensor.into());
        Ok(())
    }

    /// An integer.
    pub fn int(&mut self, value: i64) {
        self.0.push(value.into());
    }

    /// A floating-point number.
    pub fn float(&mut self, value: f64) {
        self.0.push(value.into());
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    /// A text.
    pub fn text(&mut self, value: String) {
        self.0.push(value.into());
    }

    /// Nothing: the input stays as it was.
    pub fn none(&mut self) {
        self.0.push(Value::None);
    }
}

impl InputValues {
    pub(crate) fn into_values(self) -> Vec<Value> {
        self.0
    }
}

/// Values that come out, by number. One beyond the last is nothing.
#[wasm_bindgen]
pub struct OutputValues(Vec<Value>);

#[wasm_bindgen]
impl OutputValues {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// `tensor`, `int`, `float`, `bool`, `string` or `None`.
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
    /// There is no memory.
    pub fn bytes(&self, index: usize) -> Result<Vec<u8>, JsError> {
        let Some(tensor) = self.at(index) else { return Ok(Vec::new()) };
        let tensor = tensor.to_contiguous().map_err(super::failure)?;
        Ok(tensor.bytes().to_vec())
    }

    /// An integer.
    pub fn int(&self, index: usize) -> Option<i64> {
        self.0.get(index).and_then(|value| value.int().ok())
    }

    /// A floating-point number.
    pub fn float(&self, index: usize) -> Option<f64> {
        self.0.get(index).and_then(|value| value.float().ok())
    }

    /// A truth value.
    pub fn bool(&self, index: usize) -> Option<bool> {
        self.0.get(index).and_then(|value| value.bool().ok())
    }

    /// A text.
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

/// What a test case gives to a method, or expects of it.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Inputs,
    Outputs,
}

/// One side of a test case of the file; `None` where it has no such case.
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
