//! What happens to programs when memory ends or a device is lost, and how the device can be set up
//! and watched.

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

/// Runs the test cases of a file on a module of it.
fn runs(file: &str, mut module: Module) -> Result<usize, String> {
    let source = open(&fixture(file), on_device()).unwrap();
    check(&mut module, &source, &fixture(file))
}

#[test]
fn memory_beyond_the_limit_is_an_error_and_no_more() {
    if !device_is_there() {
        return;
    }
    let backend = Arc::new(VulkanBackend::builder().memory_limit(1000).build());
    let builder = || on_device().backend(backend.clone());
    let mut module = open(&fixture(MODEL), builder()).unwrap();
    let error = module.load_method("forward").unwrap_err().to_string();
    assert!(error.contains("out of memory") && error.contains("limit of 1000"), "{error}");
    // Nothing of it stays; smaller programs run.
    assert_eq!(module.device_memory().used, 0);
    let small = open(&fixture("vulkan/program/unused_input.bpte"), builder()).unwrap();
    assert_eq!(runs("vulkan/program/unused_input.bpte", small), Ok(1));
}

#[test]
fn what_is_too_large_for_one_piece_of_memory_goes_to_several() {
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
    assert!(error.contains("in one piece, the device gives at most 64"), "{error}");
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
fn after_the_loss_of_a_device_a_later_load_works() {
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
    // The module itself works again once it is loaded again.
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

/// What the first test case of a file gives on a backend, and the shaders that ran.
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
fn codes_in_tiles_are_what_other_kernels_make_of_them() {
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
            |shaders: &[String]| shaders.iter().any(|it| it.contains("convolution_codes"));
        assert!(in_tiles(&with) && !in_tiles(&without), "{file}: {with:?}, {without:?}");
    }
}

#[test]
fn codes_are_the_same_in_either_order() {
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
        for name in ["convolution_codes", "depthwise_codes", "pack_codes"] {
            assert!(ran(&with, name) && !ran(&without, name), "{file}: {with:?}, {without:?}");
        }
    }
    // Convolutions of more tiles than a device takes go by way of planes.
    let file = "xnnpack/places/blocks.bpte";
    let (tiles, _) = outputs(file, VulkanBackend::new());
    let small = VulkanBackend::builder().fold_workgroups_at(4).build();
    let (folded, shaders) = outputs(file, small);
    assert!(tiles == folded);
    assert!(ran(&shaders, "convolution_quantized"), "{shaders:?}");
}

#[test]
fn runs_may_take_a_bounded_time() {
    if !device_is_there() {
        return;
    }
    let backend = VulkanBackend::builder().timeout(Duration::from_secs(100)).build();
    runs(MODEL, open(&fixture(MODEL), on(backend)).unwrap()).unwrap();
}

#[test]
fn pipelines_are_remembered() {
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
    // What somebody spoiled is made anew.
    std::fs::write(&files()[0], b"nonsense").unwrap();
    run();
    assert_eq!(files().len(), 1);
    assert!(std::fs::metadata(&files()[0]).unwrap().len() > 8);
    std::fs::remove_dir_all(&cache).unwrap();
}

#[test]
fn a_tracer_is_told_of_operators_and_transfers() {
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
    // What has other elements on the device is copied wherever it lies.
    let entries = told("vulkan/tiled/linear_fp16.bpte", RunOn::AsExported);
    assert_eq!(count(&entries, ProfileKind::DelegatePart, "input (copy)"), 1);
    assert_eq!(count(&entries, ProfileKind::DelegatePart, "output (copy)"), 1);
    // Nothing else is, where memory of the host is the device's.
    let is_software = |it: &DeviceInfo| it.kind == DeviceKind::Cpu && it.unusable.is_none();
    if devices().unwrap().iter().all(is_software) {
        for name in ["vulkan/tiled/linear.bpte", "vulkan/tiled/bmm_dynamic.bpte"] {
            let entries = told(name, RunOn::Vulkan);
            assert_eq!(count(&entries, ProfileKind::DelegatePart, "(copy)"), 0, "{name}");
        }
    }
    // Few bytes are not copied, but read and written where they are.
    let entries = told(MODEL, RunOn::Vulkan);
    let count = |kind: ProfileKind, name: &str| count(&entries, kind, name);
    assert!(count(ProfileKind::DelegatePart, "convolution") > 0);
    assert_eq!(count(ProfileKind::DelegatePart, "(copy)"), 0);
    assert_eq!(count(ProfileKind::DelegatePart, "submit and wait"), 1);
    // As part of this delegate's loading, or of what came before.
    let opened = |name| count(ProfileKind::DelegateInitPart, name);
    assert_eq!(opened("make device") + opened("opened before"), 1);
    let convolution = entries.iter().find(|entry| entry.name.contains("aten.convolution")).unwrap();
    assert!(convolution.detail.starts_with('['), "{convolution:?}");
    assert!(convolution.total > Duration::ZERO);
}
