//! Metadata of methods for Python.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use torchlet::core::{MethodMeta, ProgramError, Scalar, ShapeDynamism, TensorInfo, ValueMeta};

/// Metadata of an input or output.
#[pyclass(frozen, module = "torchlet", name = "ValueInfo")]
pub(crate) struct ValueInfo {
    kind: &'static str,
    tensor: Option<TensorInfo>,
    /// Its name in the model, if the exporter kept it.
    #[pyo3(get)]
    name: Option<String>,
    /// Whether its shape is dynamic, with `shape` as upper bound.
    #[pyo3(get)]
    dynamic: bool,
    /// Whether it is in planned memory or a constant of the program.
    #[pyo3(get)]
    planned: bool,
}

impl ValueInfo {
    fn of(value: Option<ValueMeta<'_>>) -> Self {
        let plain =
            |kind| ValueInfo { kind, tensor: None, name: None, dynamic: false, planned: false };
        match value {
            Some(ValueMeta::Tensor(tensor)) => ValueInfo {
                kind: "Tensor",
                tensor: Some(tensor.info),
                name: tensor.name.map(String::from),
                dynamic: tensor.dynamism != ShapeDynamism::Static,
                planned: tensor.planned || tensor.constant,
            },
            Some(ValueMeta::Scalar(Scalar::Int(_))) => plain("Int"),
            Some(ValueMeta::Scalar(Scalar::Double(_))) => plain("Double"),
            Some(ValueMeta::Scalar(Scalar::Bool(_))) => plain("Bool"),
            Some(ValueMeta::String(_)) => plain("String"),
            Some(ValueMeta::List(_)) => plain("List"),
            _ => plain("None"),
        }
    }
}

#[pymethods]
impl ValueInfo {
    /// `Tensor`, `Int`, `Double`, `Bool`, `String`, `List` or `None`, as in ExecuTorch's tags.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    /// The shape of a tensor; the upper bound of a dynamic shape. Empty for other kinds.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let sizes = self.tensor.as_ref().map_or(&[][..], |info| info.sizes.as_slice());
        PyTuple::new(py, sizes)
    }

    /// The dim order of a tensor, from outermost to innermost. Empty for other kinds.
    #[getter]
    fn dim_order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let dims = self.tensor.as_ref().map_or(&[][..], |info| info.dim_order.as_slice());
        PyTuple::new(py, dims)
    }

    /// PyTorch's name of a tensor's element type.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.tensor.as_ref().map(|info| info.scalar_type.name())
    }

    /// Name and value of a tensor's element type in ExecuTorch's `ScalarType`.
    #[getter]
    fn scalar_type(&self) -> Option<(String, i8)> {
        let info = self.tensor.as_ref()?;
        Some((format!("{:?}", info.scalar_type), info.scalar_type as i8))
    }

    /// Size of a tensor's data in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.as_ref().map_or(0, TensorInfo::nbytes)
    }

    fn __repr__(&self) -> String {
        match &self.tensor {
            Some(info) if self.dynamic => format!("at most {info}"),
            Some(info) => info.to_string(),
            None => self.kind.to_lowercase(),
        }
    }
}

/// Metadata of a method.
#[pyclass(frozen, module = "torchlet", name = "MethodInfo")]
pub(crate) struct MethodInfo {
    #[pyo3(get)]
    name: String,
    inputs: Vec<Py<ValueInfo>>,
    outputs: Vec<Py<ValueInfo>>,
    attributes: Vec<Py<ValueInfo>>,
    /// The backends of the method's delegates.
    #[pyo3(get)]
    backends: Vec<String>,
    /// Number of instructions.
    #[pyo3(get)]
    instructions: usize,
}

/// Metadata of a method, read while the module is locked.
pub(crate) struct Description {
    name: String,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    attributes: Vec<ValueInfo>,
    backends: Vec<String>,
    instructions: usize,
}

impl Description {
    pub(crate) fn of(meta: &MethodMeta<'_>) -> Result<Self, ProgramError> {
        let inputs = (0..meta.input_count()).map(|index| Ok(ValueInfo::of(meta.input(index)?)));
        let outputs = (0..meta.output_count()).map(|index| Ok(ValueInfo::of(meta.output(index)?)));
        let mut attributes = Vec::new();
        for index in 0..meta.value_count() {
            let value = ValueInfo::of(meta.value_meta(index)?);
            if value.name.is_some() {
                attributes.push(value);
            }
        }
        let mut backends: Vec<String> = Vec::new();
        for index in 0..meta.delegate_count() {
            let backend = meta.delegate_backend(index).unwrap_or_default();
            if !backends.iter().any(|other| other == backend) {
                backends.push(backend.into());
            }
        }
        Ok(Description {
            name: meta.name().into(),
            inputs: inputs.collect::<Result<_, ProgramError>>()?,
            outputs: outputs.collect::<Result<_, ProgramError>>()?,
            attributes,
            backends,
            instructions: meta.instruction_count(),
        })
    }

    pub(crate) fn into_info(self, py: Python<'_>) -> PyResult<MethodInfo> {
        let list = |values: Vec<ValueInfo>| -> PyResult<Vec<Py<ValueInfo>>> {
            values.into_iter().map(|value| Py::new(py, value)).collect()
        };
        Ok(MethodInfo {
            name: self.name,
            inputs: list(self.inputs)?,
            outputs: list(self.outputs)?,
            attributes: list(self.attributes)?,
            backends: self.backends,
            instructions: self.instructions,
        })
    }
}

#[pymethods]
impl MethodInfo {
    /// The inputs.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.inputs)
    }

    /// The outputs.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.outputs)
    }

    /// Tensors whose names the exporter kept.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.attributes)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let list = |values: &[Py<ValueInfo>]| {
            let texts: Vec<String> =
                values.iter().map(|value| value.bind(py).get().__repr__()).collect();
            texts.join(", ")
        };
        format!("{}({}) -> ({})", self.name, list(&self.inputs), list(&self.outputs))
    }
}
