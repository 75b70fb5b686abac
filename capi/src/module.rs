//! Modules: files that are opened and run, compiled for the processor that there is. On hosts:
//! modules allocate.

use crate::fault::Fault;
use crate::handle;
use crate::meta::torchlet_method_meta;
use crate::pointer::{self, give};
use crate::recorder::torchlet_recorder;
use crate::registry::torchlet_registry;
use crate::status::{run, torchlet_status, torchlet_text, value};
use crate::values::{torchlet_string, torchlet_value};
use core::ffi::{c_char, c_void};
use core::ptr;
use std::boxed::Box;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use torchlet::{FileAccess, Method, Module, ModuleBuilder, RunOn, Tensor, Value};
use torchlet_core::{
    Backend, DelegateBox, DelegateError, DelegateInfo, DeviceMemory, InitContext, InputError,
    MethodMeta, Rates, Scalar, ValueRef,
};

/// A program that is opened, and its loaded methods. One thread uses it at a time;
/// `torchlet_module_share` gives another thread a module of its own.
pub struct torchlet_module {
    module: Module,
    /// As core has them, for callers: names belong to the module.
    names: Vec<String>,
}

/// What a method gave.
pub struct torchlet_values(Vec<Value>);

/// What a program runs on.
pub type torchlet_run_on = u32;

/// What takes the least time, as far as that can be estimated.
pub const TORCHLET_RUN_ON_AUTO: torchlet_run_on = 0;
/// What it was lowered for.
pub const TORCHLET_RUN_ON_AS_EXPORTED: torchlet_run_on = 1;
/// The CPU.
pub const TORCHLET_RUN_ON_CPU: torchlet_run_on = 2;
/// A GPU, through Vulkan, if the library was built with the feature `vulkan`.
pub const TORCHLET_RUN_ON_VULKAN: torchlet_run_on = 3;

/// How files get into memory. Whoever has them mapped promises that nobody writes to them or cuts
/// them short.
pub type torchlet_file_access = u32;

/// They are read.
pub const TORCHLET_FILE_READ: torchlet_file_access = 0;
/// The system maps them.
pub const TORCHLET_FILE_MAP: torchlet_file_access = 1;
/// The system maps them, and is asked to read everything ahead.
pub const TORCHLET_FILE_MAP_PREFETCHED: torchlet_file_access = 2;
/// The system maps them, and keeps them in memory.
pub const TORCHLET_FILE_MAP_LOCKED: torchlet_file_access = 3;

/// How a module is opened. `torchlet_module_options_init` fills it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_module_options {
    /// What it runs on.
    pub run_on: torchlet_run_on,
    /// The number of threads that kernels use; 0 for as many as there are processors.
    pub threads: usize,
    /// How files get into memory.
    pub file_access: torchlet_file_access,
    /// The most bytes that a method may take; 0 for 4 GiB.
    pub memory_limit: u64,
    /// Paths of `.ptd` files with external data.
    pub data_paths: *const *const c_char,
    /// How many there are.
    pub data_count: usize,
    /// A folder for compiled programs, or null.
    pub compile_cache: *const c_char,
    /// Kernels and backends of the caller's, besides those of the library, or null. They must stay
    /// as long as the module, and those that share it.
    pub registry: *const torchlet_registry,
    /// Whether all methods use one memory for activations in turn, as large as the largest needs
    /// it. What methods give is copied, so that it stays.
    pub share_activations: bool,
    /// Who records events, or null.
    pub recorder: *const torchlet_recorder,
}

/// A backend that lies in memory of the caller.
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

/// The options as the facade takes them.
///
/// # Safety
/// `options` is null, or as `torchlet_module_options` says.
unsafe fn builder(options: *const torchlet_module_options) -> Result<ModuleBuilder, Fault> {
    let mut builder = Module::builder();
    // SAFETY: the caller's promise, here and below.
    let Some(options) = (unsafe { pointer::optional(options, "options")? }) else {
        return Ok(builder);
    };
    builder = builder.run_on(match options.run_on {
        TORCHLET_RUN_ON_AUTO => RunOn::Auto,
        TORCHLET_RUN_ON_AS_EXPORTED => RunOn::AsExported,
        TORCHLET_RUN_ON_CPU => RunOn::Cpu,
        TORCHLET_RUN_ON_VULKAN if cfg!(feature = "vulkan") => RunOn::Vulkan,
        TORCHLET_RUN_ON_VULKAN => {
            return Err(Fault::Argument("this library was built without the feature vulkan"));
        }
        _ => return Err(Fault::Argument("options->run_on is none of TORCHLET_RUN_ON_...")),
    });
    if options.threads > 0 {
        builder = builder.threads(options.threads);
    }
    builder = builder.file_access(match options.file_access {
        TORCHLET_FILE_READ => FileAccess::Read,
        TORCHLET_FILE_MAP => FileAccess::Map,
        TORCHLET_FILE_MAP_PREFETCHED => FileAccess::MapPrefetched,
        TORCHLET_FILE_MAP_LOCKED => FileAccess::MapLocked,
        _ => return Err(Fault::Argument("options->file_access is none of TORCHLET_FILE_...")),
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

/// The module that a pointer stands for.
///
/// # Safety
/// It is null, or was given out and not closed, and nobody else uses it meanwhile.
unsafe fn module<'a>(module: *mut torchlet_module) -> Result<&'a mut torchlet_module, Fault> {
    // SAFETY: the caller's promise.
    unsafe { module.as_mut() }.ok_or(Fault::Null("the module"))
}

/// The options that hold where none are given.
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
    // SAFETY: the caller's promise.
    value((), || unsafe { pointer::put(options, filled, "options").ok() })
}

/// Opens a program file, `.pte` or `.bpte`. Options can be null. The module is closed with
/// `torchlet_module_close`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_open(
    path: *const c_char,
    options: *const torchlet_module_options,
    module: *mut *mut torchlet_module,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let path = pointer::text(path, "path")?;
            give(module, opened(builder(options)?.load(path)?)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Opens a program that is in memory. The bytes are copied.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_open_bytes(
    data: *const c_void,
    size: usize,
    options: *const torchlet_module_options,
    module: *mut *mut torchlet_module,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = pointer::bytes(data, size, "data")?;
            give(module, opened(builder(options)?.from_bytes(bytes)?)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Another module over the same opened files, for another thread, with no method loaded.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_share(
    module: *const torchlet_module,
    other: *mut *mut torchlet_module,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let module = module.as_ref().ok_or(Fault::Null("the module"))?;
            give(other, opened(module.module.share())?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Closes a module. Null is left alone.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The module was opened or shared, and is not used any
/// more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_close(module: *mut torchlet_module) {
    if !module.is_null() {
        // SAFETY: the caller's promise; it was made by `Box`.
        value((), || unsafe {
            drop(Box::from_raw(module));
            Some(())
        })
    }
}

/// The number of threads that kernels use.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_threads(module: *const torchlet_module) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { module.as_ref()? }.module.threads()))
}

/// Lets kernels of a module, and of those that share its files, use so many threads from the next
/// run of a method on, and gives how many these are: one at least, and at most those that it was
/// opened with. Results stay the same bit for bit.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_set_threads(
    module: *const torchlet_module,
    threads: usize,
) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { module.as_ref()? }.module.set_threads(threads)))
}

/// Number of methods.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_method_count(module: *const torchlet_module) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { module.as_ref()? }.names.len()))
}

/// The name of a method, counted from 0; null data if there is none. It belongs to the module.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_method_name(
    module: *const torchlet_module,
    index: usize,
) -> torchlet_string {
    let none = torchlet_string { data: ptr::null(), size: 0 };
    // SAFETY: the caller's promise.
    value(none, || Some(torchlet_string::of(unsafe { module.as_ref()? }.names.get(index)?)))
}

/// What a method takes and gives. The description is valid as long as the module.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_method_meta(
    module: *const torchlet_module,
    method: *const c_char,
    meta: *mut torchlet_method_meta,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise; what the description borrows is the module's, and does not
        // move with it.
        unsafe {
            let module: &'static torchlet_module =
                module.as_ref().ok_or(Fault::Null("the module"))?;
            let found: MethodMeta<'static> =
                module.module.method_meta(pointer::text(method, "method")?)?;
            handle::open(meta, found)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Loads a method, unless it is loaded. The first call of a method loads it, too.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_load_method(
    module: *mut torchlet_module,
    method: *const c_char,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe { Ok(self::module(module)?.module.load_method(pointer::text(method, "method")?)?) }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
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
        // SAFETY: the caller's promise.
        let (module, method) = unsafe { (module.as_ref()?, pointer::text(method, "").ok()?) };
        Some(module.module.is_method_loaded(method))
    })
}

/// Frees a loaded method, with its state. Returns whether it was loaded.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_unload(
    module: *mut torchlet_module,
    method: *const c_char,
) -> bool {
    value(false, || {
        // SAFETY: the caller's promise.
        let (module, method) = unsafe { (module.as_mut()?, pointer::text(method, "").ok()?) };
        Some(module.module.unload(method))
    })
}

/// Gives the state of a method its first values again.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_reset(
    module: *mut torchlet_module,
    method: *const c_char,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe { Ok(self::module(module)?.module.reset(pointer::text(method, "method")?)?) }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Sets an input of a method for all calls to come that do not give it; a value of the kind none
/// ends that. The data is copied.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_set_input(
    module: *mut torchlet_module,
    method: *const c_char,
    index: usize,
    input: *const torchlet_value,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let input = owned(&pointer::get(input, "input")?.checked()?)?;
            let method = pointer::text(method, "method")?;
            Ok(self::module(module)?.module.set_input(method, index, input)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// A value of the facade's.
fn owned(value: &ValueRef<'_>) -> Result<Value, Fault> {
    Ok(match value {
        ValueRef::Tensor(tensor) => Value::Tensor(Tensor::try_from(tensor)?),
        ValueRef::Scalar(scalar) => Value::from(*scalar),
        ValueRef::String(text) => Value::from(*text),
        ValueRef::List(_) => return Err(Fault::Argument("lists cannot be inputs")),
        _ => Value::None,
    })
}

/// Runs a method on inputs; those that are not given, or are of the kind none, are those that were
/// set before. Tensors must have the exported type, and the exported shape or one within its
/// bounds; their memory order may be any. The results are freed with `torchlet_values_free`.
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
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let method = pointer::text(method, "method")?;
            let inputs = pointer::items(inputs, count, "inputs")?;
            let inputs = inputs.iter().map(|input| input.checked());
            let inputs: Vec<ValueRef<'_>> = inputs.collect::<Result<_, _>>()?;
            let mut method = self::module(module)?.module.method(method)?;
            give(outputs, Box::new(torchlet_values(execute(&mut method, &inputs)?)))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Runs a method on inputs where they lie; they are converted only if they have to be.
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

/// Runs the method `forward`: see `torchlet_module_execute`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_module_forward(
    module: *mut torchlet_module,
    inputs: *const torchlet_value,
    count: usize,
    outputs: *mut *mut torchlet_values,
    error: *const torchlet_text,
) -> torchlet_status {
    // SAFETY: the caller's promise.
    unsafe { torchlet_module_execute(module, c"forward".as_ptr(), inputs, count, outputs, error) }
}

/// Number of values.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_values_count(values: *const torchlet_values) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { values.as_ref()? }.0.len()))
}

/// A value, counted from 0. What it points to belongs to the values, and can be read by several
/// threads.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_values_get(
    values: *const torchlet_values,
    index: usize,
    result: *mut torchlet_value,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let values = &unsafe { values.as_ref() }.ok_or(Fault::Null("values"))?.0;
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
        // SAFETY: the caller's promise.
        unsafe { pointer::put(result, found, "result") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Frees values. Null is left alone.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The values were given by a module and are not used any
/// more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_values_free(values: *mut torchlet_values) {
    if !values.is_null() {
        // SAFETY: the caller's promise; they were made by `Box`.
        value((), || unsafe {
            drop(Box::from_raw(values));
            Some(())
        })
    }
}
