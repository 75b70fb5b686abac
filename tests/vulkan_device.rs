//! Out-of-memory errors, device loss, and configuration and tracing of the device.

#![cfg(feature = "vulkan")]

mod common;
#[path = "common/vulkan.rs"]
mod device;

use common::{check, fixture, folder, open};
use device::{device_is_there, on_device};
use std::sync::Arc;
use std::time::Duration;
use torchlet::vulkan::{DeviceFeature, DeviceInfo, DeviceKind, VulkanBackend, devices};
use torchlet::{Module, ModuleBuilder, ProfileEntry, ProfileKind, Profiler, RunOn, Value};

const MODEL: &str = "vulkan/model/residual.bpte";
const STATEFUL: &str = "vulkan/state/two_states_aliased.bpte";

fn on(backend: VulkanBackend) -> ModuleBuilder {
    on_device().backend(Arc::new(backend))
}

/// Runs the test cases of a file on its module.
fn runs(file: &str, mut module: Module) -> Result<usize, String> {
    let source = open(&fixture(file), on_device()).unwrap();
    check(&mut module, &source, &fixture(file))
}

#[test]
fn exceeding_the_memory_limit_is_an_error() {
    if !device_is_there() {
        return;
    }
    let backend = Arc::new(VulkanBackend::builder().memory_limit(1000).build());
    let builder = || on_device().backend(backend.clone());
    let mut module = open(&fixture(MODEL), builder()).unwrap();
    let error = module.load_method("forward").unwrap_err().to_string();
    assert!(error.contains("out of memory") && error.contains("limit of 1000"), "{error}");
    // All memory is released; smaller programs run.
    assert_eq!(module.device_memory().used, 0);
    let small = open(&fixture("vulkan/program/unused_input.bpte"), builder()).unwrap();
    assert_eq!(runs("vulkan/program/unused_input.bpte", small), Ok(1));
}

#[test]
fn large_programs_use_several_allocations() {
    if !device_is_there() {
        return;
    }
    let backend = |bytes| Arc::new(VulkanBackend::builder().largest_allocation(bytes).build());
    for file in [MODEL, STATEFUL] {
        let small = backend(8192);
        let module = open(&fixture(file), on_device().backend(small.clone())).unwrap();
        assert!(runs(file, module).unwrap() > 0);
    }
    let mut tiny = open(&fixture(MODEL), on_device().backend(backend(64))).unwrap();
    let error = tiny.load_method("forward").unwrap_err().to_string();
    assert!(error.contains("exceeds the device limit of 64"), "{error}");
}

#[test]
fn memory_is_counted() {
    if !device_is_there() {
        return;
    }
    let backend = Arc::new(VulkanBackend::new());
    let load = || {
        let builder = on_device().backend(backend.clone());
        let mut module = open(&fixture(MODEL), builder).unwrap();
        assert!(!module.is_method_loaded("forward"));
        module.load_method("forward").unwrap();
        module
    };
    let first = load();
    let one = first.device_memory();
    assert!(one.used > 0 && one.peak >= one.used, "{one:?}");
    let second = load();
    assert_eq!(second.device_memory().used, 2 * one.used);
    drop(first);
    drop(second);
    let third = load();
    assert_eq!(third.device_memory().used, one.used);
    assert!(third.device_memory().peak >= 2 * one.used);
}

#[test]
fn loading_works_after_device_loss() {
    if !device_is_there() {
        return;
    }
    let backend = Arc::new(VulkanBackend::new());
    let load = || open(&fixture(MODEL), on_device().backend(backend.clone())).unwrap();
    let mut lost = load();
    lost.load_method("forward").unwrap();
    backend.lose_devices();
    let source = open(&fixture(MODEL), on_device()).unwrap();
    let error = check(&mut lost, &source, &fixture(MODEL)).unwrap_err();
    assert!(error.contains("DEVICE_LOST"), "{error}");
    assert!(runs(MODEL, load()).is_ok());
    // The module itself works again after reloading.
    lost.unload("forward");
    check(&mut lost, &source, &fixture(MODEL)).unwrap();
}

#[test]
fn programs_run_without_any_optional_feature() {
    if !device_is_there() {
        return;
    }
    for feature in DeviceFeature::ALL {
        let backend = VulkanBackend::builder().disable(*feature).build();
        let module = open(&fixture(MODEL), on(backend)).unwrap();
        runs(MODEL, module).unwrap();
    }
    let none = DeviceFeature::ALL
        .iter()
        .fold(VulkanBackend::builder(), |builder, feature| builder.disable(*feature));
    let quantized = ["vulkan/program/decoder.bpte", "vulkan/quantized_linear/q4gsw_rows.bpte"];
    for file in [MODEL, STATEFUL, "vulkan/model/residual_fp16.bpte"].into_iter().chain(quantized) {
        runs(file, open(&fixture(file), on(none.clone().build())).unwrap()).unwrap();
    }
}

/// Outputs of a file's first test case on a backend, and the names of the shaders that ran.
fn outputs(file: &str, backend: VulkanBackend) -> (Vec<Value>, Vec<String>) {
    let profiler = Arc::new(Profiler::new());
    let builder = on(backend).event_tracer(profiler.clone());
    let mut module = open(&fixture(file), builder).unwrap();
    let source = open(&fixture(file), on_device()).unwrap();
    let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let case = suite.cases().unwrap().next().unwrap().unwrap();
    let given = common::inputs(&case).unwrap();
    let outputs = module.execute("forward", &given).unwrap();
    let shaders = profiler.entries().into_iter().map(|entry| entry.name).collect();
    (outputs, shaders)
}

#[test]
fn tiled_quantized_kernels_match_others() {
    if !device_is_there() {
        return;
    }
    for file in ["windows", "shared", "residual", "rows"] {
        let file = format!("xnnpack/tiles/{file}.bpte");
        let (tiles, with) = outputs(&file, VulkanBackend::new());
        let features = [DeviceFeature::IntegerDotProduct, DeviceFeature::CooperativeMatrix];
        let other = features.iter().fold(VulkanBackend::builder(), |it, one| it.disable(*one));
        let (others, without) = outputs(&file, other.build());
        assert!(tiles == others, "{file}");
        let in_tiles =
            |shaders: &[String]| shaders.iter().any(|it| it.contains("convolution_int8"));
        assert!(in_tiles(&with) && !in_tiles(&without), "{file}: {with:?}, {without:?}");
    }
}

#[test]
fn quantized_results_are_independent_of_layout() {
    if !device_is_there() {
        return;
    }
    let ran = |shaders: &[String], name: &str| shaders.iter().any(|it| it.contains(name));
    for file in [
        "xnnpack/places/blocks.bpte",
        "xnnpack/places/gates.bpte",
        "vulkan/quantized_places/separable.bpte",
    ] {
        let (by_place, with) = outputs(file, VulkanBackend::new());
        let features = [DeviceFeature::IntegerDotProduct, DeviceFeature::CooperativeMatrix];
        let other = features.iter().fold(VulkanBackend::builder(), |it, one| it.disable(*one));
        let (in_planes, without) = outputs(file, other.build());
        assert!(by_place == in_planes, "{file}");
        for name in ["convolution_int8", "depthwise_int8", "pack_int8"] {
            assert!(ran(&with, name) && !ran(&without, name), "{file}: {with:?}, {without:?}");
        }
    }
    // Convolutions with more tiles than a device supports use planar layouts instead.
    let file = "xnnpack/places/blocks.bpte";
    let (tiles, _) = outputs(file, VulkanBackend::new());
    let small = VulkanBackend::builder().fold_workgroups_at(4).build();
    let (folded, shaders) = outputs(file, small);
    assert!(tiles == folded);
    assert!(ran(&shaders, "convolution_quantized"), "{shaders:?}");
}

#[test]
fn run_time_can_be_limited() {
    if !device_is_there() {
        return;
    }
    let backend = VulkanBackend::builder().timeout(Duration::from_secs(100)).build();
    runs(MODEL, open(&fixture(MODEL), on(backend)).unwrap()).unwrap();
}

#[test]
fn pipelines_are_cached() {
    if !device_is_there() {
        return;
    }
    let name = format!("torchlet-pipelines-{}", std::process::id());
    let cache = std::env::temp_dir().join(name);
    let files = || -> Vec<_> {
        std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let run = || {
        let backend = VulkanBackend::builder().pipeline_cache(&cache).build();
        runs(MODEL, open(&fixture(MODEL), on(backend)).unwrap()).unwrap();
    };
    run();
    assert_eq!(files().len(), 1);
    run();
    // Damaged files are replaced.
    std::fs::write(&files()[0], b"nonsense").unwrap();
    run();
    assert_eq!(files().len(), 1);
    assert!(std::fs::metadata(&files()[0]).unwrap().len() > 8);
    std::fs::remove_dir_all(&cache).unwrap();
}

#[test]
fn operators_and_transfers_are_traced() {
    if !device_is_there() {
        return;
    }
    let told = |name, run_on| {
        let profiler = Arc::new(Profiler::new());
        let file = fixture(name);
        let builder = Module::builder().run_on(run_on).backend(Arc::new(VulkanBackend::new()));
        let mut module = open(&file, builder.event_tracer(profiler.clone())).unwrap();
        let source = on_device().load(folder().join(&file.file)).unwrap();
        check(&mut module, &source, &file).unwrap();
        profiler.entries()
    };
    let count = |entries: &[ProfileEntry], kind: ProfileKind, name: &str| {
        let named = entries.iter().filter(|entry| entry.kind == kind && entry.name.contains(name));
        named.count()
    };
    // A tensor whose dtype differs on the device is always copied.
    let entries = told("vulkan/tiled/linear_fp16.bpte", RunOn::AsExported);
    assert_eq!(count(&entries, ProfileKind::DelegatePart, "input (copy)"), 1);
    assert_eq!(count(&entries, ProfileKind::DelegatePart, "output (copy)"), 1);
    // No other tensor is copied if host and device share memory.
    let is_software = |it: &DeviceInfo| it.kind == DeviceKind::Cpu && it.unusable.is_none();
    if devices().unwrap().iter().all(is_software) {
        for name in ["vulkan/tiled/linear.bpte", "vulkan/tiled/bmm_dynamic.bpte"] {
            let entries = told(name, RunOn::Device("vulkan"));
            assert_eq!(count(&entries, ProfileKind::DelegatePart, "(copy)"), 0, "{name}");
        }
    }
    // Small tensors are not copied, but accessed in place.
    let entries = told(MODEL, RunOn::Device("vulkan"));
    let count = |kind: ProfileKind, name: &str| count(&entries, kind, name);
    assert!(count(ProfileKind::DelegatePart, "convolution") > 0);
    assert_eq!(count(ProfileKind::DelegatePart, "(copy)"), 0);
    assert_eq!(count(ProfileKind::DelegatePart, "submit and wait"), 1);
    // While loading this delegate or an earlier one.
    let opened = |name| count(ProfileKind::DelegateInitPart, name);
    assert_eq!(opened("create device") + opened("opened earlier"), 1);
    let convolution = entries.iter().find(|entry| entry.name.contains("aten.convolution")).unwrap();
    assert!(convolution.detail.starts_with('['), "{convolution:?}");
    assert!(convolution.total > Duration::ZERO);
}
