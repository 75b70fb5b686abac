//! Loads programs with the options of the command line.

use crate::arguments::{Backend, ModelOptions};
use crate::budget::Budget;
use crate::failure::Failure;
use std::path::{Path, PathBuf};
#[cfg(feature = "vulkan")]
use torchlet::core::Backend as _;
use torchlet::core::Rates;
use torchlet::{FileAccess, Limits, Module, ModuleBuilder};

/// Creates a builder from the options.
pub(crate) fn builder(options: &ModelOptions) -> Result<ModuleBuilder, Failure> {
    if let Some(tier) = options.tier {
        tier.choose().map_err(|used| Failure::new(format!("{} is already in use", used.name())))?;
    }
    let mut limits = Limits::HOST;
    limits.backward_jumps = options.jump_limit;
    // Files may be mapped: the help requires that they do not change while the command runs.
    let mut builder = Module::builder()
        .file_access(FileAccess::Map)
        .memory_limit(options.memory_limit.saturating_mul(1 << 20))
        .limits(limits)
        .run_on(options.backend.run_on());
    if options.backend == Backend::Cpu {
        if let Some(device) = &options.device {
            return Err(Failure::new(format!(
                "--device {device} has no effect with --backend cpu, which uses no GPU"
            )));
        }
        let engine = std::sync::Arc::new(torchlet::portable::engine::CpuEngine::new());
        builder = builder.without_default_backends().backend(engine);
    } else {
        builder = with_vulkan(builder, options)?;
    }
    if let Some(folder) = compile_cache(options) {
        builder = builder.compile_cache(folder);
    }
    for path in &options.data {
        builder = builder.data(path);
    }
    if let Some(threads) = options.threads {
        builder = builder.threads(threads.into());
    }
    Ok(builder)
}

/// Environment variable with the folder of the compiled-program cache, or `off`.
const COMPILE_CACHE_VARIABLE: &str = "TORCHLET_COMPILE_CACHE";

/// The folder of the compiled-program cache, unless it is off.
fn compile_cache(options: &ModelOptions) -> Option<PathBuf> {
    let variable = || std::env::var_os(COMPILE_CACHE_VARIABLE).map(PathBuf::from);
    let folder = options.compile_cache.clone().or_else(variable).or_else(user_cache_folder);
    folder.filter(|folder| folder.as_os_str() != "off" && !folder.as_os_str().is_empty())
}

#[cfg(feature = "vulkan")]
fn user_cache_folder() -> Option<PathBuf> {
    torchlet::vulkan::user_cache_folder()
}

/// Compiling for the CPU is fast; no cache is needed.
#[cfg(not(feature = "vulkan"))]
fn user_cache_folder() -> Option<PathBuf> {
    None
}

#[cfg(not(feature = "vulkan"))]
fn with_vulkan(builder: ModuleBuilder, options: &ModelOptions) -> Result<ModuleBuilder, Failure> {
    if options.backend == Backend::Vulkan || options.device.is_some() {
        return Err(Failure::new(
            "this torchlet was built without Vulkan; use --backend cpu or auto, without --device",
        ));
    }
    Ok(builder)
}

/// All programs of one command share one open device.
#[cfg(feature = "vulkan")]
static BACKEND: std::sync::OnceLock<std::sync::Arc<torchlet::vulkan::VulkanBackend>> =
    std::sync::OnceLock::new();

/// Peak rates of the open device by the compiler's cost model; `None` if no device is open.
#[cfg(feature = "vulkan")]
pub(crate) fn gpu_rates() -> Option<Rates> {
    BACKEND.get()?.rates()
}

#[cfg(not(feature = "vulkan"))]
pub(crate) fn gpu_rates() -> Option<Rates> {
    None
}

#[cfg(feature = "vulkan")]
fn with_vulkan(builder: ModuleBuilder, options: &ModelOptions) -> Result<ModuleBuilder, Failure> {
    use std::sync::Arc;
    let backend = BACKEND.get_or_init(|| Arc::new(vulkan_backend(options))).clone();
    let is_wanted = options.backend == Backend::Vulkan || options.device.is_some();
    // A device that is present is opened while the program is read.
    if is_wanted && backend.rates().is_none() {
        backend.is_available().map_err(|error| Failure::new(error.to_string()))?;
    }
    Ok(builder.backend(backend))
}

/// Opens the device ahead of time if the options require one.
#[cfg(feature = "vulkan")]
pub(crate) fn open_device(options: &ModelOptions) -> Result<(), Failure> {
    match BACKEND.get().filter(|_| options.backend == Backend::Vulkan) {
        Some(backend) => backend.is_available().map_err(|error| Failure::new(error.to_string())),
        None => Ok(()),
    }
}

#[cfg(not(feature = "vulkan"))]
pub(crate) fn open_device(_: &ModelOptions) -> Result<(), Failure> {
    Ok(())
}

/// Applies the fusions of a delegate's backend to its graph.
pub(crate) fn prepare(backend: &str, graph: &mut torchlet::graph::graph::Graph<'_>) {
    use torchlet::graph::Target;
    let engine = torchlet::portable::engine::CpuTarget::new();
    #[cfg(feature = "vulkan")]
    let device = torchlet::vulkan::VulkanTarget::any();
    let targets: &[&dyn Target] = &[
        &engine,
        #[cfg(feature = "vulkan")]
        &device,
    ];
    let target = targets.iter().find(|target| target.backend() == backend);
    target.into_iter().for_each(|target| target.fuse(graph));
}

/// The folder of the pipeline cache: that of the user, else `None` if the environment sets one,
/// else the default.
#[cfg(feature = "vulkan")]
pub(crate) fn pipeline_folder(asked: Option<&Path>) -> Option<PathBuf> {
    use torchlet::vulkan::{PIPELINE_CACHE_VARIABLE, user_cache_folder};
    let unset = std::env::var_os(PIPELINE_CACHE_VARIABLE).is_none();
    asked.map(Path::to_path_buf).or_else(|| unset.then(user_cache_folder).flatten())
}

/// Creates the Vulkan backend from the options.
#[cfg(feature = "vulkan")]
fn vulkan_backend(options: &ModelOptions) -> torchlet::vulkan::VulkanBackend {
    let mut backend = torchlet::vulkan::VulkanBackend::builder();
    if let Some(device) = &options.device {
        backend = backend.device(device);
    }
    if let Some(folder) = pipeline_folder(options.pipeline_cache.as_deref()) {
        backend = backend.pipeline_cache(folder);
    }
    if let Some(seconds) = options.tune {
        backend = backend.tune(std::time::Duration::from_secs(seconds));
    }
    backend.build()
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
