//! Device APIs of this build.

use crate::processor::UnknownProcessor;
use std::sync::{Arc, LazyLock};
use torchlet_core::Backend;
use torchlet_graph::device::{DeviceApi, DeviceOptions};

/// Registers crates of device APIs, each as `feature module = crate`.
macro_rules! device_apis {
    ($($feature:literal $module:ident = $source:ident;)*) => {
        /// The crates of the device APIs.
        pub(crate) mod crates {
            $(
                #[cfg(feature = $feature)]
                #[doc(no_inline)]
                pub use $source as $module;
            )*
        }

        /// Device APIs of this build. A program runs on the first one with a usable device, unless
        /// [`RunOn`](crate::RunOn) names another.
        pub static DEVICE_APIS: &[&dyn DeviceApi] = &[
            $(
                #[cfg(feature = $feature)]
                $source::DEVICE_API,
            )*
        ];

        #[cfg(feature = "lazy")]
        impl crate::lazy::Device {
            $(
                #[doc = concat!("Returns the first device of the API `", $feature, "`.")]
                ///
                /// # Errors
                /// No device of the API is usable, or this build lacks it.
                pub fn $module() -> Result<Self, crate::Error> {
                    Self::named($feature)
                }
            )*
        }

        /// Names of all device APIs, including those that this build lacks.
        pub const DEVICE_NAMES: &[&str] = &[$($feature),*];
    };
}

device_apis! {
    "vulkan" vulkan = torchlet_vulkan;
    "webgpu" webgpu = torchlet_wgpu;
}

/// Backends of [`DEVICE_APIS`]. All modules share them, including the devices that they open.
pub(crate) fn shared_backends() -> &'static [Arc<dyn Backend + Send + Sync>] {
    static BACKENDS: LazyLock<Vec<Arc<dyn Backend + Send + Sync>>> = LazyLock::new(|| {
        let options = DeviceOptions::default();
        DEVICE_APIS.iter().map(|api| api.backend(&options)).collect()
    });
    &BACKENDS
}

/// Returns the backend of a device API by its name, which modules share by default; `None` if this
/// build lacks the API.
pub fn device_backend(name: &str) -> Option<&'static (dyn Backend + Send + Sync)> {
    let found = DEVICE_APIS.iter().zip(shared_backends()).find(|(api, _)| api.name() == name);
    found.map(|(_, backend)| backend.as_ref())
}

/// Whether an earlier API of this build opens the same devices: WebGPU runs on Vulkan, except on
/// Apple's systems and Windows.
pub(crate) fn is_covered(api: &dyn DeviceApi) -> bool {
    let has_others = cfg!(any(windows, target_vendor = "apple", target_family = "wasm"));
    api.name() == "webgpu" && cfg!(feature = "vulkan") && !has_others
}

/// Returns the device API with this name.
pub(crate) fn device_api(name: &str) -> Result<&'static dyn DeviceApi, UnknownProcessor> {
    let api = DEVICE_APIS.iter().copied().find(|api| api.name() == name);
    api.ok_or_else(|| UnknownProcessor(name.into()))
}
