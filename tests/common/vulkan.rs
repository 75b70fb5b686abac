//! Device detection and random values for the Vulkan tests.

// Each test target uses only a part.
#![allow(dead_code)]

use torchlet::vulkan::devices;
use torchlet::{Module, ModuleBuilder, RunOn};

/// `required`: a missing device is a failure, as in the step `vulkan` of `cargo xtask test`. `off`:
/// skip the tests.
const VARIABLE: &str = "TORCHLET_TEST_VULKAN";

/// Whether a device is available for tests. Prints a message if not, and fails if one is required.
pub(crate) fn device_is_there() -> bool {
    assert_is_selected();
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    if wanted == "off" {
        println!("not run: {VARIABLE} is off");
        return false;
    }
    let missing = match devices() {
        Ok(devices) if devices.iter().any(|device| device.unusable.is_none()) => return true,
        Ok(_) => "no device is usable".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_ne!(wanted, "required", "{VARIABLE} requires a device: {missing}");
    println!("not run: {missing}");
    false
}

/// Panics if the step `vulkan` would not select the current test: outside programs named `vulkan*`,
/// it runs tests whose names contain `gpu`.
fn assert_is_selected() {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let is_selected = program.starts_with("vulkan") || test.contains("gpu");
    assert!(is_selected, "{program}: the name of {test} has to contain `gpu`");
}

/// A builder for the device, including software devices, which are only used if requested
/// explicitly.
pub(crate) fn on_device() -> ModuleBuilder {
    Module::builder().run_on(RunOn::Device("vulkan"))
}

/// Deterministic random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    /// A random number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// A random item of a non-empty slice.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A random item; `None` if the slice is empty.
    pub(crate) fn maybe<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.below(items.len())).copied()
    }
}
