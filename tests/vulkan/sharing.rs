//! Several modules, methods and delegates on one device.

use crate::common::{check, check_case, fixture, open};
use crate::device::{Random, device_is_there, on_device};
use std::sync::Arc;
use torchlet::core::Backend;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Module, RunOn};

const FILES: &[&str] = &[
    "vulkan/model/residual.bpte",
    "vulkan/model/language_dynamic.bpte",
    "vulkan/program/several_delegates.bpte",
    "vulkan/program/running_sum.bpte",
    "vulkan/quantized_layers/conv2d_chain.bpte",
    "vulkan/product/mm_dynamic.bpte",
];

#[test]
fn modules_run_in_turn() {
    if !device_is_there() {
        return;
    }
    let fixtures: Vec<_> = FILES.iter().map(|file| fixture(file)).collect();
    let sources: Vec<Module> =
        fixtures.iter().map(|fixture| open(fixture, on_device()).unwrap()).collect();
    let mut modules: Vec<Module> = sources.iter().map(Module::share).collect();
    for _ in 0..5 {
        for ((module, source), fixture) in modules.iter_mut().zip(&sources).zip(&fixtures) {
            check(module, source, fixture)
                .unwrap_or_else(|what| panic!("{}: {what}", fixture.file));
            module.reset("forward").unwrap();
        }
    }
}

#[test]
fn threads_run_at_once() {
    if !device_is_there() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            scope.spawn(move || {
                let mut random = Random::new(thread * 99 + 1);
                for _ in 0..12 {
                    let fixture = fixture(random.pick(FILES));
                    let source = open(&fixture, on_device().threads(1)).unwrap();
                    let mut module = source.share();
                    for _ in 0..3 {
                        check(&mut module, &source, &fixture)
                            .unwrap_or_else(|what| panic!("{}: {what}", fixture.file));
                        module.reset("forward").unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_module_moves_between_threads() {
    if !device_is_there() {
        return;
    }
    let fixture = Arc::new(fixture("vulkan/program/running_sum.bpte"));
    let source = open(&fixture, on_device()).unwrap();
    let mut module = source.share();
    let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    for number in 0..suite.cases().unwrap().count() {
        let (fixture, source) = (fixture.clone(), source.share());
        let worker = std::thread::spawn(move || {
            let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
            let case = suite.cases().unwrap().nth(number).unwrap().unwrap();
            check_case(&mut module, "forward", &case, &fixture).unwrap();
            module
        });
        module = worker.join().unwrap();
    }
}

#[test]
fn separate_backends_coexist() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture("vulkan/model/residual.bpte");
    let mut modules = Vec::new();
    for _ in 0..3 {
        let builder = on_device().without_default_backends();
        let source = open(&fixture, builder.backend(Arc::new(VulkanBackend::new()))).unwrap();
        modules.push((source.share(), source));
    }
    for (module, source) in &mut modules {
        check(module, source, &fixture).unwrap();
    }
    // Drops the first device while the others work.
    modules.remove(0);
    for (module, source) in &mut modules {
        check(module, source, &fixture).unwrap();
    }
}

#[test]
fn methods_are_loaded_and_dropped_one_by_one() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture("vulkan/file/two_methods.bpte");
    let source = open(&fixture, on_device()).unwrap();
    let mut module = source.share();
    for _ in 0..3 {
        check(&mut module, &source, &fixture).unwrap();
        for name in module.method_names().unwrap() {
            assert!(module.unload(&name));
            check(&mut module, &source, &fixture).unwrap();
        }
    }
}

/// Weights exist once on the device for all users, until the last user is dropped: both weights as
/// in the file and packed quantized weights.
#[test]
fn weights_are_shared() {
    if !device_is_there() {
        return;
    }
    // Total size of each file's weights, except the smallest.
    for (file, weights) in
        [("vulkan/recurrent/hidden_100.bpte", 160_000), ("xnnpack/tiles/shared.bpte", 27_000)]
    {
        check_weights_exist_once(file, weights);
    }
}

fn check_weights_exist_once(file: &str, weights: u64) {
    let fixture = fixture(file);
    let backend = Arc::new(VulkanBackend::new());
    let builder =
        Module::builder().threads(1).run_on(RunOn::Device("vulkan")).without_default_backends();
    let source = open(&fixture, builder.backend(backend.clone())).unwrap();
    let used = || backend.device_memory().map_or(0, |memory| memory.used);
    let mut first = source.share();
    check(&mut first, &source, &fixture).unwrap();
    let one = used();
    let mut second = source.share();
    check(&mut second, &source, &fixture).unwrap();
    let two = used();
    assert!(one > weights, "{file}: {one} bytes");
    assert!(two - one < one - weights + 1, "{file}: {one} bytes, then {two}");
    // Drops the first module; the weights that the second one shares remain.
    drop(first);
    check(&mut second, &source, &fixture).unwrap();
    let mut third = source.share();
    check(&mut third, &source, &fixture).unwrap();
    assert_eq!(used(), two);
    drop((second, third));
    assert!(used() < one - weights, "{file}: {} bytes are left", used());
}
