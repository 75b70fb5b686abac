//! Loading and dropping a thousand modules leaks no memory. A separate process, so that other tests
//! do not affect the measurement.

#![cfg(all(feature = "vulkan", target_os = "linux"))]

mod common;
#[path = "common/vulkan.rs"]
mod device;

use common::{Fixture, check, fixture, open};
use device::device_is_there;
use std::sync::Arc;
use torchlet::core::Backend;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Module, RunOn};

/// Small and large programs, with weights, state, and dynamic shapes.
const FILES: &[&str] = &[
    "vulkan/model/residual.bpte",
    "vulkan/program/running_sum.bpte",
    "vulkan/product/mm_dynamic.bpte",
    "vulkan/program/several_delegates.bpte",
];

/// Resident memory of the process in bytes. For a software device, this includes the device's
/// memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn load_run_and_drop(backend: &Arc<VulkanBackend>, fixtures: &[Fixture], times: usize) {
    for fixture in fixtures.iter().cycle().take(times) {
        let builder =
            Module::builder().threads(1).run_on(RunOn::Device("vulkan")).without_default_backends();
        let source = open(fixture, builder.backend(backend.clone())).unwrap();
        check(&mut source.share(), &source, fixture).unwrap();
    }
}

#[test]
fn a_thousand_modules_do_not_leak() {
    if !device_is_there() {
        return;
    }
    // Creates pipelines, allocator pools and data of layers, which are kept.
    let fixtures: Vec<Fixture> = FILES.iter().map(|file| fixture(file)).collect();
    let backend = Arc::new(VulkanBackend::new());
    load_run_and_drop(&backend, &fixtures, 200);
    let (before, on_device) = (resident(), backend.device_memory().unwrap());
    load_run_and_drop(&backend, &fixtures, 1000);
    assert!(on_device.peak > 0);
    assert_eq!(backend.device_memory().unwrap(), on_device);
    let grown = resident().saturating_sub(before);
    println!("{} KiB before, {} KiB more after", before >> 10, grown >> 10);
    // Each of these modules has more than 4 KiB; a leak of any part would show.
    assert!(grown < 4 << 20, "memory grew by {grown} bytes");
}
