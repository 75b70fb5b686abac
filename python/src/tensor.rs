//! `torchlet.Tensor`: elements in memory that Python libraries share.

use crate::error::{Failure, invalid, unsupported};
use crate::memory::{self, Memory};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use std::ffi::c_int;
use std::sync::Arc;
use torchlet::core::layout::same_layout;
use torchlet::core::{ScalarType, TensorInfo, TensorRef};

/// A tensor in host memory.
///
/// Objects with the buffer protocol or DLPack (NumPy, PyTorch, JAX, ...) are converted without a
/// copy, unless their elements have gaps. Conversion to their types needs no copy either:
/// `torch.from_dlpack(tensor)`, `numpy.asarray(tensor)`.
#[pyclass(frozen, module = "torchlet", name = "Tensor")]
pub(crate) struct Tensor {
    info: TensorInfo,
    memory: Arc<Memory>,
}

/// Parses an element type, such as `float32` or `torch.float32`.
fn scalar_type_of(name: &str) -> PyResult<ScalarType> {
    let short = name.strip_prefix("torch.").unwrap_or(name);
    (0..)
        .map_while(ScalarType::from_number)
        .find(|scalar_type| scalar_type.name() == short)
        .ok_or_else(|| {
            invalid(format!("unknown dtype {name:?}; expected a name such as 'float32'"))
        })
}

impl Tensor {
    /// Copies a tensor of the runtime.
    pub(crate) fn copy_of(tensor: &TensorRef<'_>) -> Result<Self, Failure> {
        let bytes = tensor.bytes();
        let memory = Memory::copy_of(bytes).ok_or_else(|| Failure::out_of_memory(bytes.len()))?;
        Ok(Tensor { info: tensor.info().clone(), memory })
    }

    /// Converts another `Tensor`, a buffer, or a DLPack object; `None` for other objects.
    pub(crate) fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = object.py();
        if let Ok(tensor) = object.cast::<Tensor>() {
            let tensor = tensor.get();
            return Ok(Some(Tensor { info: tensor.info.clone(), memory: tensor.memory.clone() }));
        }
        let give = object.getattr_opt("__dlpack__")?;
        if memory::is_buffer(object) {
            match (memory::import_buffer(object), &give) {
                // Buffer formats lack types that DLPack has.
                (Err(_), Some(_)) => {}
                (buffer, _) => {
                    let (info, memory) = buffer?.adopt()?;
                    return Ok(Some(Tensor { info, memory }));
                }
            }
        }
        let Some(give) = give else { return Ok(None) };
        let keywords = PyDict::new(py);
        keywords.set_item("max_version", (1, 0))?;
        let capsule = match give.call((), Some(&keywords)) {
            // Objects before DLPack 1.0 lack the argument.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => give.call0(),
            result => result,
        }?;
        let capsule = capsule.cast::<PyCapsule>().map_err(|_| {
            invalid(format!("`__dlpack__` of {} returned no capsule", object.get_type()))
        })?;
        let (info, memory) = memory::import_capsule(capsule)?.adopt()?;
        Ok(Some(Tensor { info, memory }))
    }

    /// Copies the elements to memory of the same layout; returns `false`, and copies nothing, if
    /// the size differs.
    pub(crate) fn read(&self, target: &mut [u8]) -> bool {
        self.memory.read(target)
    }

    pub(crate) fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// Copies the elements of a tensor with the same layout; returns `false` if the layout differs,
    /// or the memory is foreign.
    pub(crate) fn overwrite(&self, tensor: &TensorRef<'_>) -> bool {
        self.info == *tensor.info() && self.memory.write(tensor.bytes())
    }

    pub(crate) fn again(&self) -> Self {
        Tensor { info: self.info.clone(), memory: self.memory.clone() }
    }
}

#[pymethods]
impl Tensor {
    /// A tensor from an object with the buffer protocol or DLPack, without a copy if its elements
    /// are dense.
    #[new]
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Tensor::from_object(object)?.ok_or_else(|| {
            let kind = object.get_type();
            PyTypeError::new_err(format!(
                "{kind} supports neither the buffer protocol nor `__dlpack__`"
            ))
        })
    }

    /// A tensor of zeros.
    #[staticmethod]
    #[pyo3(signature = (shape, dtype = "float32"))]
    fn zeros(shape: Vec<i32>, dtype: &str) -> PyResult<Self> {
        let info = TensorInfo::contiguous(scalar_type_of(dtype)?, &shape).ok_or_else(|| {
            invalid(format!(
                "shape {shape:?}: expected sizes of at least 0 within the address space"
            ))
        })?;
        let memory = Memory::zeroed(info.nbytes());
        let memory = memory.ok_or_else(|| Failure::out_of_memory(info.nbytes()))?;
        Ok(Tensor { info, memory: Arc::new(memory) })
    }

    /// Reinterprets the bits as another type of the same size, such as `uint16` as `bfloat16`.
    /// Nothing is copied.
    fn with_dtype(&self, dtype: &str) -> PyResult<Self> {
        let scalar_type = scalar_type_of(dtype)?;
        if scalar_type.size() != self.info.scalar_type.size() {
            return Err(invalid(format!(
                "with_dtype: {} and {scalar_type} differ in element size",
                self.info.scalar_type
            )));
        }
        let info = TensorInfo { scalar_type, ..self.info.clone() };
        Ok(Tensor { info, memory: self.memory.clone() })
    }

    /// The size of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.info.sizes.iter())
    }

    /// PyTorch's name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.info.scalar_type.name()
    }

    /// The dim order: dimensions from outermost to innermost in memory.
    #[getter]
    fn dim_order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.info.dim_order.iter())
    }

    /// Strides in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.info.strides().iter())
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.info.rank()
    }

    /// Number of elements.
    #[getter]
    fn numel(&self) -> usize {
        self.info.numel()
    }

    /// Size of the data in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.info.nbytes()
    }

    /// Whether the memory is writable.
    #[getter]
    fn writable(&self) -> bool {
        self.memory.is_writable()
    }

    /// Whether both tensors have the same shape and memory layout, so that copies need no
    /// rearranging.
    fn has_layout_of(&self, other: &Tensor) -> bool {
        self.info.sizes == other.info.sizes
            && same_layout(&self.info.sizes, &self.info.dim_order, &other.info.dim_order)
    }

    /// Compares with expected elements: `(largest difference, elements out of tolerance)`.
    #[pyo3(signature = (expected, rtol = 1e-5, atol = 1e-8))]
    fn compare(&self, expected: &Tensor, rtol: f64, atol: f64) -> PyResult<(f64, usize)> {
        let compared = self.facade()?.compare(&expected.facade()?, rtol, atol);
        let compared = compared.map_err(Failure::from)?;
        Ok((compared.max_abs, compared.mismatches))
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(stream) = stream {
            return Err(unsupported(format!("stream {stream}: the tensor is on the CPU")));
        }
        if let Some((kind, id)) = dl_device.filter(|device| *device != CPU) {
            return Err(PyBufferError::new_err(format!(
                "the tensor is on the CPU, not on DLPack device ({kind}, {id})"
            )));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if copy == Some(true) {
            let copied = self.memory.duplicate();
            let copied = copied.ok_or_else(|| Failure::out_of_memory(self.memory.len()))?;
            return memory::export_capsule(py, &self.info, &copied, versioned);
        }
        if !versioned && !self.memory.is_writable() {
            return Err(PyBufferError::new_err(
                "the tensor is read-only, which only DLPack 1.0 and later can express",
            ));
        }
        memory::export_capsule(py, &self.info, &self.memory, versioned)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }

    /// # Safety
    /// Called by Python, with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let tensor = slf.get();
        // SAFETY: the view comes from Python, and the object owns its memory, which it never
        // replaces.
        unsafe {
            memory::export_buffer(slf.clone().into_any(), &tensor.info, &tensor.memory, view, flags)
        }
    }

    /// # Safety
    /// Called by Python, once for each filled view.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: as above.
        unsafe { memory::release(view) }
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.info.sizes.first();
        let first =
            first.ok_or_else(|| PyTypeError::new_err("len() of a zero-dimensional tensor"))?;
        Ok(usize::try_from(*first).unwrap_or(0))
    }

    /// The elements as nested lists.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let arrays = PyModule::import(py, "torchlet._arrays")?;
        arrays.call_method1("nested", (self.numbers(py)?, self.shape(py)?))
    }

    /// The only element as a Python number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.info.numel() != 1 {
            return Err(invalid(format!(
                "item(): expected one element, found {}",
                self.info.numel()
            )));
        }
        self.numbers(py)?.get_item(0)
    }

    /// A NumPy array over the same memory.
    fn numpy<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        PyModule::import(slf.py(), "torchlet._arrays")?.call_method1("to_numpy", (slf,))
    }

    /// A PyTorch tensor over the same memory.
    fn torch<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        PyModule::import(slf.py(), "torchlet._arrays")?.call_method1("to_torch", (slf,))
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(self.facade()?.to_string())
    }
}

/// DLPack's CPU device.
const CPU: (i32, i32) = (1, 0);

impl Tensor {
    /// Copies to a tensor of the facade crate.
    pub(crate) fn facade(&self) -> Result<torchlet::Tensor, Failure> {
        let mut bytes = Vec::new();
        let len = self.memory.len();
        bytes.try_reserve_exact(len).map_err(|_| Failure::out_of_memory(len))?;
        bytes.resize(len, 0);
        self.memory.read(&mut bytes);
        let tensor = TensorRef::new(self.info.clone(), &bytes);
        let tensor = tensor.ok_or_else(|| {
            Failure::invalid("internal error: the size of a tensor does not match its shape".into())
        })?;
        Ok(torchlet::Tensor::try_from(&tensor)?)
    }

    /// The elements in row-major order as Python numbers.
    fn numbers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tensor = self.facade()?;
        let fail = |error| PyErr::from(Failure::Runtime(error));
        Ok(match self.info.scalar_type {
            ScalarType::Bool => tensor.to_bools().map_err(fail)?.into_pyobject(py)?.into_any(),
            ScalarType::UInt64 => {
                tensor.to_vec::<u64>().map_err(fail)?.into_pyobject(py)?.into_any()
            }
            integral if integral.is_integral(false) => {
                let tensor = tensor.to_type(ScalarType::Long).map_err(fail)?;
                tensor.to_vec::<i64>().map_err(fail)?.into_pyobject(py)?.into_any()
            }
            _ => tensor.to_f64_vec().map_err(fail)?.into_pyobject(py)?.into_any(),
        })
    }
}
