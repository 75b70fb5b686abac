//! The fixtures lowered for Vulkan match PyTorch's outputs through WebGPU.

use crate::common::{Fixture, check, check_all, check_programs, fixtures, open, programs_for_gpus};
use crate::{device_is_there, on_device};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::webgpu::WebGpuBackend;

/// Fixtures with Vulkan delegates, which are compiled for WebGPU.
fn delegated(wanted: fn(&Fixture) -> bool) -> Vec<Fixture> {
    let needs = |fixture: &Fixture| fixture.backends.iter().any(|name| name == "VulkanBackend");
    let mut all: Vec<Fixture> = fixtures().into_iter().filter(needs).collect();
    assert!(all.len() > 400, "the manifest lists {} files for Vulkan", all.len());
    all.retain(|fixture| wanted(fixture) && is_selected(fixture));
    all
}

/// Whether the environment selects a file by a part of its name, to find an error.
fn is_selected(fixture: &Fixture) -> bool {
    let name = std::env::var("TORCHLET_TEST_FIXTURE").unwrap_or_default();
    fixture.file.contains(&name)
}

/// Checks fixtures against PyTorch's outputs, with the tolerances of the Vulkan tests. Calls that
/// the device cannot run are on the CPU; returns the numbers of calls on the device and on the CPU.
fn check_delegated(backend: WebGpuBackend, fixtures: &[Fixture]) -> [usize; 2] {
    let backend = Arc::new(backend);
    let [cases, device, host] = [(); 3].map(|()| AtomicUsize::new(0));
    let failures = check_all(fixtures, |fixture| {
        let builder = on_device().backend(backend.clone()).threads(1);
        let module = open(fixture, builder).map_err(|error| error.to_string())?;
        for method in module.plan().iter().flat_map(|plan| &plan.methods) {
            let there = method.on_device();
            device.fetch_add(there, Ordering::Relaxed);
            host.fetch_add(method.calls.len() - there, Ordering::Relaxed);
            if there < method.calls.len() {
                let all = method.calls.len();
                println!("{}: {there} of {all} calls on the device", fixture.file);
            }
        }
        cases.fetch_add(check(&mut module.share(), &module, fixture)?, Ordering::Relaxed);
        Ok(())
    });
    let [cases, device, host] = [cases, device, host].map(AtomicUsize::into_inner);
    println!(
        "{cases} cases of {} files; {device} calls on the device, {host} on the CPU; {} pipelines",
        fixtures.len(),
        backend.pipelines()
    );
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
    [device, host]
}

#[test]
fn webgpu_outputs_match_pytorch() {
    if device_is_there() {
        check_delegated(WebGpuBackend::new(), &delegated(|_| true));
    }
}

/// The limits are those of every WebGPU device, and so of browsers, and kernels are chosen as for a
/// large GPU.
#[test]
fn webgpu_kernels_of_large_devices_respect_the_limits_of_browsers() {
    if device_is_there() {
        let backend = WebGpuBackend::builder().as_browsers().busy_invocations(1 << 16).build();
        check_delegated(backend, &delegated(|fixture| fixture.kind != "model"));
    }
}

/// Programs whose operands are so far apart that the remainder needs steps without contraction,
/// which WGSL cannot request.
const CONTRACTED: &[&str] = &["ops/ends/fmod_far.bpte", "ops/ends/remainder_far.bpte"];

#[test]
fn webgpu_matches_pytorch_whatever_a_program_was_exported_for() {
    if !device_is_there() {
        return;
    }
    let mut programs = programs_for_gpus();
    programs.retain(|fixture| !CONTRACTED.contains(&fixture.file.as_str()) && is_selected(fixture));
    check_programs(&programs, |fixture: &Fixture, _| {
        open(fixture, on_device().threads(1)).map_err(|error| error.to_string())
    });
}
