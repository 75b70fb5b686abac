//! Loading and dropping a thousand modules leaves nothing behind. A process of its own: what other
//! tests hold would count.

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

/// Small and large, with weights, with state, with memory of several sizes.
const FILES: &[&str] = &[
    "vulkan/model/residual.bpte",
    "vulkan/program/running_sum.bpte",
    "vulkan/product/mm_dynamic.bpte",
    "vulkan/program/several_delegates.bpte",
];

/// Bytes of the process that are in memory. On a software device, the device's memory is among
/// them.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn load_run_and_drop(backend: &Arc<VulkanBackend>, fixtures: &[Fixture], times: usize) {
    for fixture in fixtures.iter().cycle().take(times) {
        let builder = Module::builder().threads(1).run_on(RunOn::Vulkan).without_default_backends();
        let source = open(fixture, builder.backend(backend.clone())).unwrap();
        check(&mut source.share(), &source, fixture).unwrap();
    }
}

#[test]
fn a_thousand_modules_leave_nothing() {
    if !device_is_there() {
        return;
    }
    // Pipelines, pools of the allocator and what layers keep are there after this.
    let fixtures: Vec<Fixture> = FILES.iter().map(|file| fixture(file)).collect();
    let backend = Arc::new(VulkanBackend::new());
    load_run_and_drop(&backend, &fixtures, 200);
    let (before, on_device) = (resident(), backend.device_memory().unwrap());
    load_run_and_drop(&backend, &fixtures, 1000);
    assert!(on_device.peak > 0);
    assert_eq!(backend.device_memory().unwrap(), on_device);
    let grown = resident().saturating_sub(before);
    println!("{} KiB before, {} KiB more after", before >> 10, grown >> 10);
    // One module of these has more than 4 KiB; a leak of any part of it would show.
    assert!(grown < 4 << 20, "memory grew by {grown} bytes");
}
