//! A program and its loaded methods, shared by threads.

use crate::error::{Failure, invalid};
use crate::metadata::{Description, MethodInfo};
use crate::shared::Shared;
use crate::tensor::Tensor;
use crate::value::Value;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use torchlet::core::layout::same_layout;
use torchlet::core::{TensorInfo, ValueMeta, ValueRef};
use torchlet::{Canceller, Method, Profiler, RunOn, UnknownProcessor};
use torchlet_devtools::Recorder;
use torchlet_devtools::etdump::{self, DelegateIds};

/// A program and its methods.
///
/// Any thread may use it; calls are serialized, and other Python threads run meanwhile. `share`
/// creates another module over the same file, which runs concurrently.
#[pyclass(frozen, module = "torchlet._torchlet", name = "Module")]
pub(crate) struct Module {
    shared: Shared<State>,
    recorders: Recorders,
    canceller: Canceller,
}

/// Event tracers of the module.
#[derive(Clone, Default)]
struct Recorders {
    profiler: Option<Arc<Profiler>>,
    recorder: Option<Arc<Recorder>>,
}

struct State {
    module: torchlet::Module,
    /// Tensor inputs by method.
    inputs: HashMap<String, Vec<Option<TensorInfo>>>,
    /// Outputs whose memory is reused, by method.
    kept: HashMap<String, Vec<Value>>,
}

/// A file by path, or its bytes.
#[derive(FromPyObject)]
pub(crate) enum Source {
    Bytes(Vec<u8>),
    Path(PathBuf),
}

impl State {
    fn new(module: torchlet::Module) -> Self {
        State { module, inputs: HashMap::new(), kept: HashMap::new() }
    }

    /// Loads a method and records its inputs, unless that was done.
    fn load(&mut self, method: &str) -> Result<(), Failure> {
        self.module.load_method(method)?;
        if self.inputs.contains_key(method) {
            return Ok(());
        }
        let meta = self.module.method_meta(method)?;
        let tensor = |index| {
            Ok(match meta.input(index)? {
                Some(ValueMeta::Tensor(tensor)) => Some(tensor.info),
                _ => None,
            })
        };
        let inputs: Result<_, Failure> = (0..meta.input_count()).map(tensor).collect();
        self.inputs.insert(method.into(), inputs?);
        Ok(())
    }

    /// Copies values into the inputs of a loaded method.
    fn set_inputs(&mut self, method: &str, values: &[Value]) -> Result<(), Failure> {
        let taken = self.inputs.get(method).map_or(&[][..], Vec::as_slice);
        let (expected, found) = (taken.len(), values.len());
        if found > expected {
            return Err(
                torchlet::Error::TooManyInputs { method: method.into(), expected, found }.into()
            );
        }
        // Trailing non-tensor inputs may be omitted; they keep their exported values.
        if taken.iter().skip(found).any(Option::is_some) {
            let plural = if expected == 1 { "" } else { "s" };
            return Err(Failure::invalid(format!(
                "'{method}' expects {expected} input{plural}, found {found}"
            )));
        }
        let mut loaded = self.module.method(method)?;
        for (index, taken) in taken.iter().enumerate() {
            set_input(&mut loaded, index, taken.as_ref(), values.get(index))?;
        }
        Ok(())
    }

    /// Copies the outputs, into new memory or that of the previous copies.
    fn outputs(
        &mut self,
        py: Python<'_>,
        method: &str,
        reuse: bool,
    ) -> Result<Vec<Value>, Failure> {
        if !reuse {
            return py.detach(|| {
                let loaded = self.module.method(method)?;
                loaded.check_output_copies()?;
                let count = loaded.output_count();
                (0..count).map(|index| Value::copy_of(&loaded.output(index)?)).collect()
            });
        }
        let loaded = self.module.method(method)?;
        loaded.check_output_copies()?;
        let count = loaded.output_count();
        let kept = self.kept.entry(method.into()).or_default();
        kept.resize_with(count, || Value::None);
        for (index, kept) in kept.iter_mut().enumerate() {
            let output = loaded.output(index)?;
            let written = match (&*kept, &output) {
                (Value::Tensor(kept), ValueRef::Tensor(tensor)) => kept.overwrite(tensor),
                _ => false,
            };
            if !written {
                *kept = Value::copy_of(&output)?;
            }
        }
        Ok(kept.iter().map(Value::again).collect())
    }
}

/// Copies a value into an input; `taken` is the type and layout of a tensor input.
fn set_input(
    method: &mut Method<'_>,
    index: usize,
    taken: Option<&TensorInfo>,
    value: Option<&Value>,
) -> Result<(), Failure> {
    let value = match value.unwrap_or(&Value::None) {
        Value::Tensor(tensor) => {
            let info = tensor.info();
            let lies_alike = taken.is_some_and(|taken| {
                taken.scalar_type == info.scalar_type
                    && taken.rank() == info.rank()
                    && same_layout(&info.sizes, &info.dim_order, &taken.dim_order)
            });
            if lies_alike {
                let shape: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
                method.resize_input(index, &shape)?;
                if tensor.read(method.input_mut(index)?.bytes_mut()) {
                    return Ok(());
                }
            }
            // The layout is converted; another type or shape is refused.
            tensor.facade()?.into()
        }
        Value::None => torchlet::Value::None,
        Value::Scalar(scalar) => (*scalar).into(),
        Value::String(text) => text.as_str().into(),
    };
    Ok(method.set_input(index, &value)?)
}

/// Parses the name of a backend.
fn run_on(backend: &str) -> PyResult<RunOn> {
    backend.parse().map_err(|error: UnknownProcessor| invalid(error.to_string()))
}

fn objects(py: Python<'_>, values: Vec<Value>) -> PyResult<Bound<'_, PyList>> {
    let objects: PyResult<Vec<_>> = values.into_iter().map(|value| value.into_object(py)).collect();
    PyList::new(py, objects?)
}

fn values(inputs: &[Bound<'_, PyAny>]) -> PyResult<Vec<Value>> {
    inputs.iter().map(Value::from_object).collect()
}

impl Module {
    fn new(module: torchlet::Module, recorders: Recorders) -> Self {
        let canceller = module.canceller();
        Module { shared: Shared::new(State::new(module)), recorders, canceller }
    }

    /// Waits for the lock. Its holder runs no Python code, so a thread cannot deadlock with itself.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        self.shared.lock(py)
    }

    /// Runs a lengthy operation on the module.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut State) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.shared.with(py, body)
    }

    /// The program with no method loaded, for users that load methods themselves.
    pub(crate) fn program(&self, py: Python<'_>) -> PyResult<torchlet::Module> {
        self.with(py, |state| Ok(state.module.share()))
    }
}

#[pymethods]
impl Module {
    /// Opens a program by path, or from its bytes, with files of external data.
    #[staticmethod]
    #[pyo3(signature = (source, *, data = Vec::new(), backend = "auto", threads = None, memory_limit = None, compile_cache = None, map = false, record = None, record_values = 0))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn open(
        py: Python<'_>,
        source: Source,
        data: Vec<Source>,
        backend: &str,
        threads: Option<usize>,
        memory_limit: Option<u64>,
        compile_cache: Option<PathBuf>,
        map: bool,
        record: Option<&str>,
        record_values: usize,
    ) -> PyResult<Self> {
        let mut builder = torchlet::Module::builder().run_on(run_on(backend)?);
        let mut recorders = Recorders::default();
        match record {
            None => {}
            Some("profile") => {
                let profiler = Arc::new(Profiler::new());
                builder = builder.event_tracer(profiler.clone());
                recorders.profiler = Some(profiler);
            }
            Some("events") => {
                let recorder = match record_values {
                    0 => Recorder::new(),
                    bytes => Recorder::new().with_values(bytes),
                };
                let recorder = Arc::new(recorder);
                builder = builder.event_tracer(recorder.clone());
                recorders.recorder = Some(recorder);
            }
            Some(other) => {
                return Err(invalid(format!(
                    "cannot record {other:?}; expected 'profile' or 'events'"
                )));
            }
        }
        if let Some(threads) = threads {
            builder = builder.threads(threads);
        }
        if let Some(limit) = memory_limit {
            builder = builder.memory_limit(limit);
        }
        if let Some(folder) = compile_cache {
            builder = builder.compile_cache(folder);
        }
        if map {
            builder = builder.file_access(torchlet::FileAccess::Map);
        }
        for source in data {
            builder = match source {
                Source::Bytes(bytes) => builder.data_bytes(bytes),
                Source::Path(path) => builder.data(path),
            };
        }
        let opened = py.detach(|| match source {
            Source::Bytes(bytes) => builder.from_bytes(bytes),
            Source::Path(path) => builder.load(path),
        });
        Ok(Module::new(opened.map_err(Failure::from)?, recorders))
    }

    /// Another module over the same opened files, with no method loaded, which runs concurrently.
    fn share(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Module::new(self.program(py)?, self.recorders.clone()))
    }

    /// The names of the methods, in the order of the file.
    fn method_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |state| Ok(state.module.method_names()?))
    }

    /// Metadata of a method.
    fn method_info(&self, py: Python<'_>, method: &str) -> PyResult<MethodInfo> {
        let description =
            self.with(py, |state| Ok(Description::of(&state.module.method_meta(method)?)?))?;
        description.into_info(py)
    }

    /// Loads a method, unless it is loaded.
    fn load_method(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        self.with(py, |state| state.load(method))
    }

    /// Whether a method is loaded.
    fn is_method_loaded(&self, py: Python<'_>, method: &str) -> PyResult<bool> {
        self.with(py, |state| Ok(state.module.is_method_loaded(method)))
    }

    /// Unloads a method; returns whether it was loaded.
    fn unload(&self, py: Python<'_>, method: &str) -> PyResult<bool> {
        self.with(py, |state| Ok(state.module.unload(method)))
    }

    /// Resets a method's state to its initial values.
    fn reset(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        self.with(py, |state| Ok(state.module.reset(method)?))
    }

    /// Copies values into the inputs of a method, loading it if necessary.
    fn set_inputs(
        &self,
        py: Python<'_>,
        method: &str,
        inputs: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let values = values(&inputs)?;
        let mut guard = self.lock(py)?;
        let state: &mut State = &mut guard;
        py.detach(|| state.load(method))?;
        let set = state.set_inputs(method, &values);
        drop(guard);
        Ok(set?)
    }

    /// Runs a method with the inputs that were set.
    fn run(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        self.with(py, |state| Ok(state.module.method(method)?.run()?))
    }

    /// The outputs of a method's last run: copies, or with `reuse`, in the memory of the previous
    /// call's outputs.
    #[pyo3(signature = (method, reuse = false))]
    fn outputs<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        reuse: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut guard = self.lock(py)?;
        let outputs = guard.outputs(py, method, reuse);
        drop(guard);
        objects(py, outputs?)
    }

    /// Sets the inputs, runs, and returns the outputs, as one atomic operation.
    #[pyo3(signature = (method, inputs, reuse = false))]
    fn execute<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        inputs: Vec<Bound<'py, PyAny>>,
        reuse: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        // Declared before the lock and so dropped after it: lenders of tensors may run Python code
        // then.
        let values = values(&inputs)?;
        let mut guard = self.lock(py)?;
        let state: &mut State = &mut guard;
        let mut run = || {
            py.detach(|| state.load(method))?;
            state.set_inputs(method, &values)?;
            py.detach(|| state.module.method(method)?.run())?;
            state.outputs(py, method, reuse)
        };
        let outputs = run();
        drop(guard);
        objects(py, outputs?)
    }

    /// State tensors of a method: indices of their values, and names if the exporter kept them.
    fn state(&self, py: Python<'_>, method: &str) -> PyResult<Vec<(usize, Option<String>)>> {
        self.with(py, |state| {
            let tensors = state.module.method(method)?.state()?;
            Ok(tensors.into_iter().map(|tensor| (tensor.value, tensor.name)).collect())
        })
    }

    /// A copy of a state tensor.
    fn read_state(&self, py: Python<'_>, method: &str, value: usize) -> PyResult<Tensor> {
        self.with(py, |state| {
            let tensor = state.module.method(method)?.read_state(value)?;
            Tensor::copy_of(&tensor.as_tensor_ref())
        })
    }

    /// Writes a state tensor.
    fn write_state(
        &self,
        py: Python<'_>,
        method: &str,
        value: usize,
        tensor: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Value::Tensor(tensor) = Value::from_object(tensor)? else {
            return Err(invalid(format!("state: expected a tensor, found {}", tensor.get_type())));
        };
        let tensor = tensor.facade()?;
        self.with(py, |state| Ok(state.module.method(method)?.write_state(value, &tensor)?))
    }

    /// The state of all loaded methods, as the bytes of a safetensors file.
    fn save_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |state| Ok(state.module.save_state()?))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Loads the bytes that `save_state` returned.
    fn load_state(&self, py: Python<'_>, bytes: Vec<u8>) -> PyResult<()> {
        self.with(py, |state| Ok(state.module.load_state(&bytes)?))
    }

    /// Number of test cases of a method in a bundled program.
    fn test_case_count(&self, py: Python<'_>, method: &str) -> PyResult<usize> {
        self.with(py, |state| {
            state.module.method_meta(method)?;
            Ok(cases(&state.module, method)?.len())
        })
    }

    /// The inputs and expected outputs of a test case of a method.
    fn test_case<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        index: usize,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        let (inputs, expected) = self.with(py, |state| {
            state.module.method_meta(method)?;
            let cases = cases(&state.module, method)?;
            let case = cases.get(index).ok_or_else(|| {
                Failure::invalid(format!(
                    "test case {index} of '{method}' does not exist; the method has {}",
                    cases.len()
                ))
            })?;
            let inputs: Result<Vec<_>, Failure> =
                case.inputs()?.map(|value| Value::copy_of(&value?)).collect();
            let expected: Result<Vec<_>, Failure> =
                case.expected_outputs()?.map(|value| Value::copy_of(&value?)).collect();
            Ok((inputs?, expected?))
        })?;
        Ok((objects(py, inputs)?, objects(py, expected)?))
    }

    /// How the running program was obtained.
    fn origin(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |state| {
            Ok(match state.module.origin() {
                torchlet::Origin::Exported => "exported".into(),
                torchlet::Origin::Compiled => "compiled".into(),
                torchlet::Origin::Cached => "cached".into(),
                torchlet::Origin::NotCompiled(why) => format!("exported: {why}"),
                _ => "unknown".into(),
            })
        })
    }

    /// Size of the file in bytes.
    fn file_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |state| Ok(state.module.file_size()))
    }

    /// Memory of a method in bytes: arena, planned, scratch, and unplanned inputs and outputs.
    fn memory_report(
        &self,
        py: Python<'_>,
        method: &str,
    ) -> PyResult<(usize, usize, usize, usize)> {
        self.with(py, |state| {
            let report = state.module.memory_report(method)?;
            Ok((report.arena, report.planned.iter().sum(), report.scratch, report.unplanned))
        })
    }

    /// Number of kernel threads.
    #[getter]
    fn threads(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |state| Ok(state.module.threads()))
    }

    /// Sets the number of kernel threads, and returns the resulting number.
    fn set_threads(&self, py: Python<'_>, threads: usize) -> PyResult<usize> {
        self.with(py, |state| Ok(state.module.set_threads(threads)))
    }

    /// Cancels the current run, if any, and all later ones, which fail.
    fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Permits runs again.
    fn resume(&self) {
        self.canceller.resume();
    }

    /// Profile entries: kind, name, instruction, detail, count, and nanoseconds of all runs and of
    /// the longest. `None` if profiling is off.
    fn profile(&self) -> Option<Vec<(String, String, usize, String, u64, u64, u64)>> {
        let entries = self.recorders.profiler.as_ref()?.entries().into_iter();
        let nanoseconds =
            |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let entries = entries.map(|entry| {
            let (total, longest) = (nanoseconds(entry.total), nanoseconds(entry.longest));
            let kind = format!("{:?}", entry.kind);
            (kind, entry.name, entry.instruction, entry.detail, entry.count, total, longest)
        });
        Some(entries.collect())
    }

    /// Clears the profile.
    fn clear_profile(&self) {
        if let Some(profiler) = &self.recorders.profiler {
            profiler.clear();
        }
    }

    /// The recorded events as an ETDump for ExecuTorch's tools, and the bytes of recorded values;
    /// `None` if recording is off. With `numbers`, delegate parts are identified by debug handles,
    /// otherwise by names.
    #[pyo3(signature = (numbers = false))]
    fn etdump<'py>(
        &self,
        py: Python<'py>,
        numbers: bool,
    ) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let recording = self.recorders.recorder.as_ref()?.recording();
        let ids = if numbers { DelegateIds::Numbers } else { DelegateIds::Names };
        let dump = etdump::write(&recording, ids);
        Some((PyBytes::new(py, &dump), PyBytes::new(py, &recording.buffer)))
    }
}

/// The test cases of a method.
fn cases<'m>(
    module: &'m torchlet::Module,
    method: &str,
) -> Result<Vec<torchlet::core::TestCase<'m>>, Failure> {
    let Some(bundled) = module.bundled() else { return Ok(Vec::new()) };
    for suite in bundled.suites()? {
        let suite = suite?;
        if suite.method_name()? == method {
            let cases: Result<Vec<_>, _> = suite.cases()?.collect();
            return Ok(cases?);
        }
    }
    Ok(Vec::new())
}
