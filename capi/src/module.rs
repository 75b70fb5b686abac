//! Modules: load a file, compile it for the available processor, and run it. For hosts only,
//! because modules allocate.

use crate::fault::Fault;
use crate::handle;
use crate::meta::torchlet_method_meta;
use crate::pointer::{self, give};
use crate::recorder::torchlet_recorder;
use crate::registry::torchlet_registry;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use crate::values::{torchlet_string, torchlet_value};
use core::ffi::{c_char, c_void};
use core::ptr;
use std::boxed::Box;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use torchlet::{DEVICE_NAMES, FileAccess, Method, Module, ModuleBuilder, RunOn, Tensor, Value};
use torchlet_core::{
    Backend, DelegateBox, DelegateError, DelegateInfo, DeviceMemory, InitContext, InputError,
    MethodMeta, Rates, Scalar, ValueRef,
};

/// A program and its loaded methods. One thread uses it at a time; `torchlet_module_share` creates
/// a module for another thread.
pub struct torchlet_module {
    module: Module,
    /// Method names, which callers borrow.
    names: Vec<String>,
}

/// Results of a method.
pub struct torchlet_values(Vec<Value>);

/// The processor that a program runs on: one of the constants `TORCHLET_RUN_ON_...`. Devices are
/// numbered from 3, in the order in which torchlet lists them; the library needs the feature with
/// the name of the device.
pub type torchlet_run_on = u32;

/// The processor with the shortest estimated time.
pub const TORCHLET_RUN_ON_AUTO: torchlet_run_on = 0;
/// The backends that the program was lowered for.
pub const TORCHLET_RUN_ON_AS_EXPORTED: torchlet_run_on = 1;
/// The CPU.
pub const TORCHLET_RUN_ON_CPU: torchlet_run_on = 2;
/// A GPU through Vulkan.
pub const TORCHLET_RUN_ON_VULKAN: torchlet_run_on = 3;

/// How files are loaded into memory. Mapped files must not be written or truncated while they are
/// in use.
pub type torchlet_file_access = u32;

/// Read into memory.
pub const TORCHLET_FILE_READ: torchlet_file_access = 0;
/// Memory-mapped.
pub const TORCHLET_FILE_MAP: torchlet_file_access = 1;
/// Memory-mapped and prefetched.
pub const TORCHLET_FILE_MAP_PREFETCHED: torchlet_file_access = 2;
/// Memory-mapped and locked in memory.
pub const TORCHLET_FILE_MAP_LOCKED: torchlet_file_access = 3;

/// Options for opening a module. `torchlet_module_options_init` sets the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_module_options {
    /// The processor to run on.
    pub run_on: torchlet_run_on,
    /// Number of kernel threads; 0 for one per processor.
    pub threads: usize,
    /// How files are loaded into memory.
    pub file_access: torchlet_file_access,
    /// Memory limit per method in bytes; 0 for 4 GiB.
    pub memory_limit: u64,
    /// Paths of `.ptd` files with external data.
    pub data_paths: *const *const c_char,
    /// Number of paths.
    pub data_count: usize,
    /// Folder of the compiled-program cache, or null.
    pub compile_cache: *const c_char,
    /// Additional kernels and backends of the caller, or null. They must stay valid as long as the
    /// module, and those that share it.
    pub registry: *const torchlet_registry,
    /// Whether all methods use one activation memory in turn, as large as the largest method
    /// requires. Outputs are copied, so they stay valid.
    pub share_activations: bool,
    /// Recorder of events, or null.
    pub recorder: *const torchlet_recorder,
}

/// A backend in memory of the caller.
struct Borrowed(&'static dyn Backend);

impl Backend for Borrowed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        self.0.is_available()
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.0.device_memory()
    }

    fn rates(&self) -> Option<Rates> {
        self.0.rates()
    }

    fn arena_bytes(&self, delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        self.0.arena_bytes(delegate)
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        self.0.init(context)
    }
}

/// Returns the name and the backend of a device.
pub(crate) fn device(
    number: torchlet_run_on,
) -> Result<(&'static str, &'static (dyn Backend + Send + Sync)), Fault> {
    let first = TORCHLET_RUN_ON_CPU + 1;
    let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
    let name = index.and_then(|index| DEVICE_NAMES.get(index));
    let name = name.ok_or(Fault::Argument("run_on: expected one of TORCHLET_RUN_ON_..."))?;
    let backend = torchlet::device_backend(name).ok_or(Fault::Argument(
        "this library was built without that device; enable its feature, such as `vulkan`",
    ))?;
    Ok((name, backend))
}

/// Creates a builder from the options.
///
/// # Safety
/// `options` is null, or valid, as documented at `torchlet_module_options`.
unsafe fn builder(options: *const torchlet_module_options) -> Result<ModuleBuilder, Fault> {
    let mut builder = Module::builder();
    // SAFETY: guaranteed by the caller, here and below.
    let Some(options) = (unsafe { pointer::optional(options, "options")? }) else {
        return Ok(builder);
    };
    builder = builder.run_on(match options.run_on {
        TORCHLET_RUN_ON_AUTO => RunOn::Auto,
        TORCHLET_RUN_ON_AS_EXPORTED => RunOn::AsExported,
        TORCHLET_RUN_ON_CPU => RunOn::Cpu,
        number => RunOn::Device(device(number)?.0),
    });
    if options.threads > 0 {
        builder = builder.threads(options.threads);
    }
    builder = builder.file_access(match options.file_access {
        TORCHLET_FILE_READ => FileAccess::Read,
        TORCHLET_FILE_MAP => FileAccess::Map,
        TORCHLET_FILE_MAP_PREFETCHED => FileAccess::MapPrefetched,
        TORCHLET_FILE_MAP_LOCKED => FileAccess::MapLocked,
        _ => {
            return Err(Fault::Argument("options->file_access: expected one of TORCHLET_FILE_..."));
        }
    });
    if options.memory_limit > 0 {
        builder = builder.memory_limit(options.memory_limit);
    }
    builder = builder.share_activations(options.share_activations);
    // SAFETY: as above.
    unsafe {
        if let Some(recorder) = options.recorder.as_ref() {
            builder = builder.event_tracer(recorder.0.clone());
        }
        let paths = pointer::items(options.data_paths, options.data_count, "options->data_paths")?;
        for path in paths {
            builder = builder.data(pointer::text(*path, "a path of external data")?);
        }
        if !options.compile_cache.is_null() {
            let folder = pointer::text(options.compile_cache, "options->compile_cache")?;
            builder = builder.compile_cache(folder);
        }
        if let Some(registry) = handle::optional(options.registry)? {
            let all: &'static [torchlet_core::Kernel] = &torchlet_portable::KERNELS;
            for table in registry.tables.iter().filter(|table| !ptr::eq(**table, all)) {
                builder = builder.kernels(table);
            }
            for backend in registry.registry.backends() {
                builder = builder.backend(Arc::new(Borrowed(backend)));
            }
        }
    }
    Ok(builder)
}

fn opened(module: Module) -> Result<Box<torchlet_module>, Fault> {
    let names = module.method_names()?;
    Ok(Box::new(torchlet_module { module, names }))
}

/// Dereferences a module pointer.
///
/// # Safety
/// It is null, or was returned to C and not closed, and nothing else uses it meanwhile.
unsafe fn module<'a>(module: *mut torchlet_module) -> Result<&'a mut torchlet_module, Fault> {
    // SAFETY: guaranteed by the caller.
    unsafe { module.as_mut() }.ok_or(Fault::Null("the module"))
}

/// Sets the default options.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_options_init(options: *mut torchlet_module_options) {
    let filled = torchlet_module_options {
        run_on: TORCHLET_RUN_ON_AUTO,
        threads: 0,
        file_access: TORCHLET_FILE_READ,
        memory_limit: 0,
        data_paths: ptr::null(),
        data_count: 0,
        compile_cache: ptr::null(),
        registry: ptr::null(),
        share_activations: false,
        recorder: ptr::null(),
    };
    // SAFETY: guaranteed by the caller.
    value((), || unsafe { pointer::put(options, filled, "options").ok() })
}

/// Opens a program file, `.pte` or `.bpte`. `options` can be null. Close the module with
/// `torchlet_module_close`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_open(
    path: *const c_char,
    options: *const torchlet_module_options,
    module: *mut *mut torchlet_module,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let path = pointer::text(path, "path")?;
        give(module, opened(builder(options)?.load(path)?)?)
    })
}

/// Opens a program in memory. The bytes are copied.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_open_bytes(
    data: *const c_void,
    size: usize,
    options: *const torchlet_module_options,
    module: *mut *mut torchlet_module,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let bytes = pointer::bytes(data, size, "data")?;
        give(module, opened(builder(options)?.from_bytes(bytes)?)?)
    })
}

/// Creates a module for another thread over the same opened files, with no method loaded.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_share(
    module: *const torchlet_module,
    other: *mut *mut torchlet_module,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let module = module.as_ref().ok_or(Fault::Null("the module"))?;
        give(other, opened(module.module.share())?)
    })
}

/// Closes a module. Null is ignored.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The module was opened or shared, and is not used
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_close(module: *mut torchlet_module) {
    if !module.is_null() {
        // SAFETY: guaranteed by the caller; the pointer came from `Box`.
        value((), || unsafe {
            drop(Box::from_raw(module));
            Some(())
        })
    }
}

/// Number of kernel threads.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_threads(module: *const torchlet_module) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { module.as_ref()? }.module.threads()))
}

/// Limits the kernel threads of a module, and of those that share its files, from the next run of a
/// method. Returns the resulting number: at least one, and at most the number at opening. Results
/// stay bit-identical.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_set_threads(
    module: *const torchlet_module,
    threads: usize,
) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { module.as_ref()? }.module.set_threads(threads)))
}

/// Number of methods.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_method_count(module: *const torchlet_module) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { module.as_ref()? }.names.len()))
}

/// The name of a method, counted from 0; null data if the index is out of range. It belongs to the
/// module.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_method_name(
    module: *const torchlet_module,
    index: usize,
) -> torchlet_string {
    let none = torchlet_string { data: ptr::null(), size: 0 };
    // SAFETY: guaranteed by the caller.
    value(none, || Some(torchlet_string::of(unsafe { module.as_ref()? }.names.get(index)?)))
}

/// Metadata of a method, valid as long as the module.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_method_meta(
    module: *const torchlet_module,
    method: *const c_char,
    meta: *mut torchlet_method_meta,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        // SAFETY: guaranteed by the caller; the metadata borrows heap data of the module, which
        // does not move with it.
        let module: &'static torchlet_module = module.as_ref().ok_or(Fault::Null("the module"))?;
        let found: MethodMeta<'static> =
            module.module.method_meta(pointer::text(method, "method")?)?;
        handle::open(meta, found)
    })
}

/// Loads a method, unless it is loaded. The first execution of a method also loads it.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_load_method(
    module: *mut torchlet_module,
    method: *const c_char,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        Ok(self::module(module)?.module.load_method(pointer::text(method, "method")?)?)
    })
}

/// Whether a method is loaded.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_is_loaded(
    module: *const torchlet_module,
    method: *const c_char,
) -> bool {
    value(false, || {
        // SAFETY: guaranteed by the caller.
        let (module, method) = unsafe { (module.as_ref()?, pointer::text(method, "").ok()?) };
        Some(module.module.is_method_loaded(method))
    })
}

/// Unloads a method and its state. Returns whether it was loaded.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_unload(
    module: *mut torchlet_module,
    method: *const c_char,
) -> bool {
    value(false, || {
        // SAFETY: guaranteed by the caller.
        let (module, method) = unsafe { (module.as_mut()?, pointer::text(method, "").ok()?) };
        Some(module.module.unload(method))
    })
}

/// Resets the state of a method to its initial values.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_reset(
    module: *mut torchlet_module,
    method: *const c_char,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, { Ok(self::module(module)?.module.reset(pointer::text(method, "method")?)?) })
}

/// Sets a default for an input of a method, used by all later executions that do not pass it; a
/// value of kind none removes the default. The data is copied.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_set_input(
    module: *mut torchlet_module,
    method: *const c_char,
    index: usize,
    input: *const torchlet_value,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let input = owned(&pointer::get(input, "input")?.checked()?)?;
        let method = pointer::text(method, "method")?;
        Ok(self::module(module)?.module.set_input(method, index, input)?)
    })
}

/// Copies a value.
fn owned(value: &ValueRef<'_>) -> Result<Value, Fault> {
    Ok(match value {
        ValueRef::Tensor(tensor) => Value::Tensor(Tensor::try_from(tensor)?),
        ValueRef::Scalar(scalar) => Value::from(*scalar),
        ValueRef::String(text) => Value::from(*text),
        ValueRef::List(_) => return Err(Fault::Argument("lists cannot be inputs")),
        _ => Value::None,
    })
}

/// Executes a method. Inputs that are missing, or of kind none, have the default of
/// `torchlet_module_set_input`. Tensors must have the exported type, and the exported shape or one
/// within its bounds; any dim order is accepted. Free the results with `torchlet_values_free`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_execute(
    module: *mut torchlet_module,
    method: *const c_char,
    inputs: *const torchlet_value,
    count: usize,
    outputs: *mut *mut torchlet_values,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let method = pointer::text(method, "method")?;
        let inputs = pointer::items(inputs, count, "inputs")?;
        let inputs = inputs.iter().map(|input| input.checked());
        let inputs: Vec<ValueRef<'_>> = inputs.collect::<Result<_, _>>()?;
        let mut method = self::module(module)?.module.method(method)?;
        give(outputs, Box::new(torchlet_values(execute(&mut method, &inputs)?)))
    })
}

/// Executes a method on borrowed inputs; they are converted only if necessary.
fn execute(method: &mut Method<'_>, inputs: &[ValueRef<'_>]) -> Result<Vec<Value>, Fault> {
    let convertible =
        |error: &InputError| matches!(error, InputError::Layout | InputError::Kind { .. });
    match method.execute_ref(inputs) {
        Err(torchlet::Error::Input { source, .. }) if convertible(&source) => {
            let values = inputs.iter().map(owned).collect::<Result<Vec<_>, _>>()?;
            Ok(method.execute(&values)?)
        }
        result => {
            result?;
            method.check_output_copies()?;
            let outputs = (0..method.output_count()).map(|index| method.output_value(index));
            Ok(outputs.collect::<Result<_, _>>()?)
        }
    }
}

/// Executes the method `forward`: see `torchlet_module_execute`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_forward(
    module: *mut torchlet_module,
    inputs: *const torchlet_value,
    count: usize,
    outputs: *mut *mut torchlet_values,
    error: *const torchlet_error_message,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe { torchlet_module_execute(module, c"forward".as_ptr(), inputs, count, outputs, error) }
}

/// Number of values.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_values_count(values: *const torchlet_values) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { values.as_ref()? }.0.len()))
}

/// A value, counted from 0. Its data belongs to the values, and can be read by several threads.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_values_get(
    values: *const torchlet_values,
    index: usize,
    result: *mut torchlet_value,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let values = &values.as_ref().ok_or(Fault::Null("values"))?.0;
        let count = values.len();
        let found = match values.get(index) {
            None => return Err(Fault::Index { what: "value", index, count }),
            Some(Value::Tensor(tensor)) => {
                torchlet_value::of(&ValueRef::Tensor(tensor.as_tensor_ref()))
            }
            Some(Value::Int(value)) => torchlet_value::of_scalar(Scalar::Int(*value)),
            Some(Value::Float(value)) => torchlet_value::of_scalar(Scalar::Double(*value)),
            Some(Value::Bool(value)) => torchlet_value::of_scalar(Scalar::Bool(*value)),
            Some(Value::String(text)) => torchlet_value::of_string(text),
            Some(_) => torchlet_value::none(),
        };
        pointer::put(result, found, "result")
    })
}

/// Frees values. Null is ignored.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The values were returned by a module and are not used
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_values_free(values: *mut torchlet_values) {
    if !values.is_null() {
        // SAFETY: guaranteed by the caller; the pointer came from `Box`.
        value((), || unsafe {
            drop(Box::from_raw(values));
            Some(())
        })
    }
}
