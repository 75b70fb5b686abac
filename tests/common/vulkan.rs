//! Whether the Vulkan tests can run here, and chance for them.

// No test target uses all of it.
#![allow(dead_code)]

use torchlet::vulkan::devices;
use torchlet::{Module, ModuleBuilder, RunOn};

/// `required`: a missing device is a failure, as in the step `vulkan` of `cargo xtask test`. `off`:
/// they run elsewhere.
const VARIABLE: &str = "TORCHLET_TEST_VULKAN";

/// Whether there is a device to test on. Says so where there is none, and fails where there has to
/// be one.
pub(crate) fn device_is_there() -> bool {
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
    assert_ne!(wanted, "required", "{VARIABLE} says that there is a device: {missing}");
    println!("not run: {missing}");
    false
}

/// For the device, also where it is software, which only who asks for it by name gets.
pub(crate) fn on_device() -> ModuleBuilder {
    Module::builder().run_on(RunOn::Vulkan)
}

/// Numbers that are the same on every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// One of the items, which must be some.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// One of the items, if there are any.
    pub(crate) fn maybe<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.below(items.len())).copied()
    }
}
