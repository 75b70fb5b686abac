//! The fixtures lowered for Vulkan match PyTorch's outputs through WebGPU.

use crate::common::{Fixture, check, check_all, fixtures, open};
use crate::{device_is_there, on_device};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::webgpu::WebGpuBackend;

/// Fixtures with Vulkan delegates, which are compiled for WebGPU.
fn delegated(wanted: fn(&Fixture) -> bool) -> Vec<Fixture> {
    let needs = |fixture: &Fixture| fixture.backends.iter().any(|name| name == "VulkanBackend");
    let mut all: Vec<Fixture> = fixtures().into_iter().filter(needs).collect();
    assert!(all.len() > 400, "the manifest lists {} files for Vulkan", all.len());
    // One file or folder, to find an error.
    if let Ok(name) = std::env::var("TORCHLET_TEST_FIXTURE") {
        all.retain(|fixture| fixture.file.contains(&name));
    }
    all.retain(wanted);
    all
}

/// Checks fixtures against PyTorch's outputs, with the tolerances of the Vulkan tests.
fn check_delegated(backend: WebGpuBackend, fixtures: &[Fixture]) {
    let backend = Arc::new(backend);
    let cases = AtomicUsize::new(0);
    let failures = check_all(fixtures, |fixture| {
        let builder = on_device().backend(backend.clone()).threads(1);
        let module = open(fixture, builder).map_err(|error| error.to_string())?;
        cases.fetch_add(check(&mut module.share(), &module, fixture)?, Ordering::Relaxed);
        Ok(())
    });
    let cases = cases.into_inner();
    println!("{cases} cases of {} files; {} pipelines", fixtures.len(), backend.pipelines());
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn webgpu_outputs_match_pytorch() {
    if device_is_there() {
        check_delegated(WebGpuBackend::new(), &delegated(|_| true));
    }
}
