//! Programs on the WebGPU device of this machine. Without a device, the tests report that they were
//! skipped.

#![cfg(feature = "webgpu")]

#[path = "../common/mod.rs"]
mod common;
mod errors;
mod fixtures;

use torchlet::webgpu::DEVICE_API;
use torchlet::{Module, ModuleBuilder, RunOn};

/// As for the Vulkan tests. `required`: a missing device is a failure. `off`: skip the tests.
const VARIABLE: &str = "TORCHLET_TEST_VULKAN";

/// Whether a device is available for tests. Prints a message if not, and fails if one is required.
fn device_is_there() -> bool {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    if wanted == "off" {
        println!("not run: {VARIABLE} is off");
        return false;
    }
    let backend = DEVICE_API.backend(&Default::default());
    let Err(missing) = backend.is_available() else { return true };
    assert_ne!(wanted, "required", "{VARIABLE} requires a device: {missing}");
    println!("not run: {missing}");
    false
}

/// A builder for the device, including software devices, which are only used if requested
/// explicitly.
fn on_device() -> ModuleBuilder {
    Module::builder().run_on(RunOn::Device("webgpu"))
}
