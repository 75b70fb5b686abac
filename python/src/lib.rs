//! The native part of the Python package `torchlet`: programs, tensors, and the command.
//!
//! It is small and typed; the convenient interface, and ExecuTorch's Python API, are written in
//! Python (`python/torchlet`). Start reading at [`module`]. All `unsafe` code is in `memory/`.

mod error;
mod language;
mod memory;
mod metadata;
mod module;
mod shared;
mod tensor;
mod value;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList};
use std::ffi::OsString;
use std::io::Write;
use torchlet::DEVICE_APIS;
use torchlet::core::error::code;
use torchlet::graph::device::{DeviceOptions, Property};

/// The names of all kernels, once per specialization.
#[pyfunction]
fn operator_names() -> Vec<&'static str> {
    torchlet::portable::KERNELS.iter().map(|kernel| kernel.name).collect()
}

/// Supported delegate backends. XNNPACK programs are compiled for the CPU engine or a GPU.
#[pyfunction]
fn backend_names() -> Vec<&'static str> {
    let devices = DEVICE_APIS.iter().map(|api| api.backend_name());
    ["XnnpackBackend", torchlet::portable::engine::BACKEND_NAME]
        .into_iter()
        .chain(devices)
        .collect()
}

/// Whether a backend is supported, and for that of a device, whether one is available, including
/// software drivers.
#[pyfunction]
fn is_backend_available(py: Python<'_>, name: &str) -> bool {
    match DEVICE_APIS.iter().find(|api| api.backend_name() == name) {
        Some(api) => {
            let device = torchlet::device_backend(api.name());
            py.detach(|| device.is_some_and(|device| device.is_available().is_ok()))
        }
        None => backend_names().contains(&name),
    }
}

/// The devices of an API, such as `vulkan`, as dictionaries of their properties.
#[pyfunction]
fn devices<'py>(py: Python<'py>, api: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let Some(found) = DEVICE_APIS.iter().find(|known| known.name() == api) else {
        return Err(error::unsupported(format!("'{api}': the package was built without it")));
    };
    let listed = py.detach(|| found.devices(&DeviceOptions::default()));
    let listed = listed.map_err(|error| error::raise(error.to_string(), code::NOT_FOUND))?;
    listed.into_iter().map(|device| properties(py, device.properties)).collect()
}

/// Named properties of a device as a dictionary.
fn properties<'py>(
    py: Python<'py>,
    properties: Vec<(&'static str, Property)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    for (name, property) in properties {
        dictionary.set_item(name, object(py, property)?)?;
    }
    Ok(dictionary)
}

/// A property of a device as a Python object.
fn object(py: Python<'_>, property: Property) -> PyResult<Bound<'_, PyAny>> {
    Ok(match property {
        Property::None => py.None().into_bound(py),
        Property::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Property::Number(value) => value.into_pyobject(py)?.into_any(),
        Property::Text(text) => text.into_pyobject(py)?.into_any(),
        Property::List(items) => {
            let items: PyResult<Vec<_>> = items.into_iter().map(|item| object(py, item)).collect();
            PyList::new(py, items?)?.into_any()
        }
        Property::Object(named) => properties(py, named)?.into_any(),
    })
}

/// Runs the command `torchlet`; the first argument is its name. Returns the exit status.
#[pyfunction]
fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        let status = torchlet_cli::run_command(arguments);
        // The interpreter does not flush Rust's standard output at exit.
        let _ = std::io::stdout().flush();
        status
    })
}

/// Objects are immutable or behind a mutex, and tensors are copied as [`memory`] describes, so a
/// free-threaded interpreter need not enable its GIL.
#[pymodule(gil_used = false)]
fn _torchlet(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<module::Module>()?;
    module.add_class::<language::Runner>()?;
    module.add_class::<language::Tokenizer>()?;
    module.add_class::<language::Transcriber>()?;
    module.add_class::<language::Turn>()?;
    module.add_class::<tensor::Tensor>()?;
    module.add_class::<metadata::MethodInfo>()?;
    module.add_class::<metadata::ValueInfo>()?;
    module.add_function(wrap_pyfunction!(operator_names, module)?)?;
    module.add_function(wrap_pyfunction!(backend_names, module)?)?;
    module.add_function(wrap_pyfunction!(is_backend_available, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(run_command, module)?)
}
