//! Opening programs with the options of the command line.

use crate::arguments::{Backend, ModelOptions};
use crate::failure::Failure;
use std::path::Path;
use torchlet::{Module, ModuleBuilder};

/// A builder with the options of the command line.
pub(crate) fn builder(options: &ModelOptions) -> Result<ModuleBuilder, Failure> {
    let mut builder = Module::builder().memory_limit(options.memory_limit.saturating_mul(1 << 20));
    match options.backend {
        Backend::Auto => {}
        Backend::Portable => builder = builder.without_default_backends(),
        #[cfg(feature = "vulkan")]
        Backend::Vulkan => {
            use torchlet::core::Backend as _;
            let backend = torchlet::vulkan::VulkanBackend::new();
            backend.is_available().map_err(|error| Failure::new(error.to_string()))?;
        }
        #[cfg(not(feature = "vulkan"))]
        Backend::Vulkan => {
            return Err(Failure::new(
                "this torchlet was built without Vulkan; use --backend portable or auto",
            ));
        }
    }
    for path in &options.data {
        builder = builder.data(path);
    }
    if let Some(threads) = options.threads {
        builder = builder.threads(threads.into());
    }
    Ok(builder)
}

/// Opens a program.
pub(crate) fn open(path: &Path, options: &ModelOptions) -> Result<Module, Failure> {
    Ok(builder(options)?.load(path)?)
}

/// The method to run: the one that was asked for, else `forward`, else the only one.
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
