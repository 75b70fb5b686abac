//! Inputs and outputs of methods as Python objects.

use crate::error::{Failure, invalid};
use crate::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use torchlet::core::{Scalar, ValueRef};

/// An input or output, without references into the runtime.
pub(crate) enum Value {
    None,
    Scalar(Scalar),
    String(String),
    Tensor(Tensor),
}

impl Value {
    /// Converts a Python object.
    pub(crate) fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Value::None);
        }
        // `bool` is a subclass of `int`.
        if let Ok(value) = object.cast::<PyBool>() {
            return Ok(Value::Scalar(Scalar::Bool(value.is_true())));
        }
        if object.is_instance_of::<PyInt>() {
            let value = object.extract::<i64>();
            let value = value.map_err(|_| invalid(format!("{object} does not fit 64 bits")))?;
            return Ok(Value::Scalar(Scalar::Int(value)));
        }
        if let Ok(value) = object.cast::<PyFloat>() {
            return Ok(Value::Scalar(Scalar::Double(value.extract()?)));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Value::String(text.to_str()?.to_owned()));
        }
        Tensor::from_object(object)?.map(Value::Tensor).ok_or_else(|| {
            invalid(format!(
                "Unsupported python type {}. Ensure that inputs are passed as a flat list of \
             tensors",
                object.get_type()
            ))
        })
    }

    /// Copies a value of the runtime; lists are refused.
    pub(crate) fn copy_of(value: &ValueRef<'_>) -> Result<Self, Failure> {
        Ok(match value {
            ValueRef::None => Value::None,
            ValueRef::Scalar(scalar) => Value::Scalar(*scalar),
            ValueRef::String(text) => Value::String((*text).into()),
            ValueRef::Tensor(tensor) => Value::Tensor(Tensor::copy_of(tensor)?),
            _ => return Err(Failure::invalid("a list output is not supported".into())),
        })
    }

    /// Clones the value; a tensor shares its memory.
    pub(crate) fn again(&self) -> Self {
        match self {
            Value::None => Value::None,
            Value::Scalar(scalar) => Value::Scalar(*scalar),
            Value::String(text) => Value::String(text.clone()),
            Value::Tensor(tensor) => Value::Tensor(tensor.again()),
        }
    }

    /// Converts to a Python object.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Value::None => py.None(),
            Value::Scalar(Scalar::Int(value)) => value.into_pyobject(py)?.into_any().unbind(),
            Value::Scalar(Scalar::Double(value)) => value.into_pyobject(py)?.into_any().unbind(),
            Value::Scalar(Scalar::Bool(value)) => {
                PyBool::new(py, value).to_owned().into_any().unbind()
            }
            Value::String(text) => text.into_pyobject(py)?.into_any().unbind(),
            Value::Tensor(tensor) => Py::new(py, tensor)?.into_any(),
        })
    }
}
