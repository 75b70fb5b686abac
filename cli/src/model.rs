//! Loads programs with the options of the command line.

use crate::arguments::ModelOptions;
use crate::budget::Budget;
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use torchlet::core::{Backend, Rates};
use torchlet::graph::Target;
use torchlet::graph::device::{DeviceApi, DeviceOptions};
use torchlet::graph::graph::Graph;
use torchlet::portable::engine::CpuTarget;
use torchlet::{DEVICE_APIS, FileAccess, Limits, Module, ModuleBuilder, RunOn, user_cache_folder};

/// Creates a builder from the options.
pub(crate) fn builder(options: &ModelOptions) -> Result<ModuleBuilder, Failure> {
    if let Some(tier) = options.tier {
        tier.choose().map_err(|used| Failure::new(format!("{} is already in use", used.name())))?;
    }
    let mut builder = without_devices(options).run_on(options.backend);
    builder = builder.allow_foreign_shaders(options.allow_foreign_shaders);
    if options.backend == RunOn::Cpu {
        if let Some(device) = &options.device {
            return Err(Failure::new(format!(
                "--device {device} has no effect with --backend cpu, which uses no GPU"
            )));
        }
        if options.allow_foreign_shaders {
            return Err(Failure::new(
                "--allow-foreign-shaders has no effect with --backend cpu: shaders run on GPUs",
            ));
        }
        let engine = Arc::new(torchlet::portable::engine::CpuEngine::new());
        builder = builder.without_default_backends().backend(engine);
    } else {
        builder = with_devices(builder, options)?;
    }
    if let Some(folder) = compile_cache(options) {
        builder = builder.compile_cache(folder);
    }
    if let Some(threads) = options.threads {
        builder = builder.threads(threads.into());
    }
    Ok(builder)
}

/// Creates a builder with the files and the limits of the options.
pub(crate) fn without_devices(options: &ModelOptions) -> ModuleBuilder {
    let mut limits = Limits::HOST;
    limits.backward_jumps = options.jump_limit;
    let limit = options.memory_limit.saturating_mul(1 << 20);
    with_files(&options.data).memory_limit(limit).limits(limits)
}

/// Creates a builder with these external weights. Files may be mapped: the help requires that they
/// do not change while the command runs.
fn with_files(data: &[PathBuf]) -> ModuleBuilder {
    let builder = Module::builder().file_access(FileAccess::Map);
    data.iter().fold(builder, |builder, path| builder.data(path))
}

/// Opens a program as exported, to read it.
pub(crate) fn as_exported(path: &Path, data: &[PathBuf]) -> Result<Module, Failure> {
    Ok(with_files(data).run_on(RunOn::AsExported).load(path)?)
}

/// Environment variable with the folder of the compiled-program cache, or `off`.
const COMPILE_CACHE_VARIABLE: &str = "TORCHLET_COMPILE_CACHE";

/// The folder of the compiled-program cache, unless it is off. Compiling for the CPU is fast, so
/// without devices there is no default folder.
fn compile_cache(options: &ModelOptions) -> Option<PathBuf> {
    let variable = || std::env::var_os(COMPILE_CACHE_VARIABLE).map(PathBuf::from);
    let default = || if DEVICE_APIS.is_empty() { None } else { user_cache_folder() };
    let folder = options.compile_cache.clone().or_else(variable).or_else(default);
    folder.filter(|folder| folder.as_os_str() != "off" && !folder.as_os_str().is_empty())
}

type SharedBackend = Arc<dyn Backend + Send + Sync>;

/// Backend of each device API. All programs of one command share the open devices.
static BACKENDS: OnceLock<Vec<SharedBackend>> = OnceLock::new();

/// The backends of the devices that the options allow.
fn device_backends(
    options: &ModelOptions,
) -> impl Iterator<Item = (RunOn, &'static SharedBackend)> {
    let backends = BACKENDS.get_or_init(|| {
        DEVICE_APIS.iter().map(|api| api.backend(&device_options(*api, options))).collect()
    });
    let all = DEVICE_APIS.iter().map(|api| RunOn::Device(api.name())).zip(backends);
    let chosen = options.backend;
    all.filter(move |(device, _)| !matches!(chosen, RunOn::Device(_)) || *device == chosen)
}

/// Adds the devices to a module, and checks that the requested one is available.
fn with_devices(
    mut builder: ModuleBuilder,
    options: &ModelOptions,
) -> Result<ModuleBuilder, Failure> {
    let is_requested = matches!(options.backend, RunOn::Device(_)) || options.device.is_some();
    let mut found = Err(Failure::new("this torchlet was built without devices; omit --device"));
    for (_, backend) in device_backends(options) {
        builder = builder.backend(backend.clone());
        // A device that is present is opened while the program is read.
        if is_requested && found.is_err() {
            found = match backend.rates() {
                Some(_) => Ok(()),
                None => available(backend),
            };
        }
    }
    if is_requested { found.map(|()| builder) } else { Ok(builder) }
}

fn available(backend: &SharedBackend) -> Result<(), Failure> {
    backend.is_available().map_err(|error| Failure::new(error.to_string()))
}

/// The device that programs run on, with its peak rates by the compiler's cost model.
pub(crate) fn device(options: &ModelOptions) -> Option<(RunOn, Option<Rates>)> {
    let with_rates = |(device, backend): (RunOn, &SharedBackend)| (device, backend.rates());
    let mut devices = device_backends(options).map(with_rates);
    let first = devices.next()?;
    let known = [first].into_iter().chain(devices).find(|(_, rates)| rates.is_some());
    Some(known.unwrap_or(first))
}

/// Opens the device ahead of time if the options require one.
pub(crate) fn open_device(options: &ModelOptions) -> Result<(), Failure> {
    match options.backend {
        RunOn::Device(_) => device_backends(options).try_for_each(|(_, it)| available(it)),
        _ => Ok(()),
    }
}

/// Applies the fusions of a delegate's backend to its graph.
pub(crate) fn prepare(backend: &str, graph: &mut Graph<'_>) {
    let engine = CpuTarget::new();
    if engine.backend() == backend {
        engine.fuse(graph);
    } else if let Some(api) = DEVICE_APIS.iter().find(|api| api.backend_name() == backend) {
        api.target(None).fuse(graph);
    }
}

/// The folder that a device caches compiled kernels in: that of the user, else `None` if the
/// environment sets one, else the default.
pub(crate) fn pipeline_folder(api: &dyn DeviceApi, asked: Option<&Path>) -> Option<PathBuf> {
    let is_set = api.cache_variable().is_some_and(|name| std::env::var_os(name).is_some());
    asked.map(Path::to_path_buf).or_else(|| if is_set { None } else { user_cache_folder() })
}

fn device_options(api: &dyn DeviceApi, options: &ModelOptions) -> DeviceOptions {
    DeviceOptions {
        device: options.device.clone(),
        cache: pipeline_folder(api, options.pipeline_cache.as_deref()),
        tune: options.tune.map(Duration::from_secs),
    }
}

/// Opens a program.
pub(crate) fn open(path: &Path, options: &ModelOptions) -> Result<Module, Failure> {
    Ok(builder(options)?.load(path)?)
}

/// Loads a method and returns the memory that it leaves for inputs.
pub(crate) fn budget(
    module: &mut Module,
    method: &str,
    options: &ModelOptions,
) -> Result<Budget, Failure> {
    Ok(Budget::beside(&module.method(method)?, options.memory_limit))
}

/// Returns the method to run: the requested one, else the only one, else `forward`.
pub(crate) fn choose_method(module: &Module, asked: Option<&str>) -> Result<String, Failure> {
    let names = module.method_names()?;
    let chosen = match (asked, names.as_slice()) {
        (Some(asked), _) => asked,
        (None, [only]) => only,
        (None, _) => "forward",
    };
    module.method_meta(chosen)?;
    Ok(chosen.into())
}
