//! Missing, weak and lost devices are errors that say what to do.

use crate::common::{check, fixture, open};
use crate::{device_is_there, on_device};
use std::sync::Arc;
use torchlet::Module;
use torchlet::webgpu::{WebGpuBackend, WebGpuBackendBuilder};

const MODEL: &str = "vulkan/model/residual.bpte";
const STATEFUL: &str = "vulkan/state/two_states_aliased.bpte";

fn load(backend: &Arc<WebGpuBackend>, file: &str) -> Module {
    open(&fixture(file), on_device().backend(backend.clone())).unwrap()
}

/// Runs the test cases of a file.
fn run(module: &mut Module, file: &str) -> Result<usize, String> {
    let source = open(&fixture(file), on_device()).unwrap();
    check(module, &source, &fixture(file))
}

/// The error of running a file on a device that cannot be opened.
fn refused(backend: WebGpuBackendBuilder) -> String {
    let backend = Arc::new(backend.build());
    let opened = open(&fixture(MODEL), on_device().backend(backend));
    let loaded = opened.and_then(|mut module| module.load_method("forward"));
    loaded.unwrap_err().to_string()
}

#[test]
fn webgpu_adapters_are_selected_by_name() {
    if !device_is_there() {
        return;
    }
    let error = refused(WebGpuBackend::builder().device("no such adapter"));
    assert!(error.contains("no adapter \"no such adapter\"; there are"), "{error}");
    let error = refused(WebGpuBackend::builder().device("4711"));
    assert!(error.contains("no adapter \"4711\"; there are"), "{error}");
    let first = Arc::new(WebGpuBackend::builder().device("0").build());
    assert!(run(&mut load(&first, MODEL), MODEL).unwrap() > 0);
}

#[test]
fn webgpu_devices_below_the_limits_are_refused() {
    if !device_is_there() {
        return;
    }
    let error = refused(WebGpuBackend::builder().storage_buffers(7));
    let expected = "it supports 7 storage buffers per shader; 8 are required";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn webgpu_loading_works_after_device_loss() {
    if !device_is_there() {
        return;
    }
    let backend = Arc::new(WebGpuBackend::new());
    for file in [MODEL, STATEFUL] {
        let mut lost = load(&backend, file);
        lost.load_method("forward").unwrap();
        backend.lose_devices();
        let error = run(&mut lost, file).unwrap_err();
        assert!(error.contains("the device was lost"), "{error}");
        assert!(run(&mut load(&backend, file), file).unwrap() > 0);
        // The module itself works again after reloading.
        lost.unload("forward");
        assert!(run(&mut lost, file).unwrap() > 0);
    }
}
