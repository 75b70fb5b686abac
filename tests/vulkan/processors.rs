//! Every program matches PyTorch's outputs on GPUs, whatever it was exported for.
//! `../processors.rs` does the same for other processors.

use crate::common::{
    Fixture, GPU_TOLERANCE, check, check_programs, fixture, open, programs, programs_for_gpus,
};
use crate::device::device_is_there;
use std::sync::Arc;
use torchlet::core::Backend;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Module, RunOn, Tensor};
use torchlet_devtools::{Event, Location, Recorder};

#[test]
fn gpus_match_pytorch() {
    if !device_is_there() {
        return;
    }
    check_programs(&programs_for_gpus(), |fixture: &Fixture, _| {
        let builder = Module::builder().threads(1).run_on(RunOn::Device("vulkan"));
        open(fixture, builder).map_err(|error| error.to_string())
    });
}

/// Operator families with batches in a dim whose number of workgroups is limited, here to
/// three.
const BATCHED: &[&str] = &[
    "attention",
    "batches",
    "convolution",
    "linear",
    "product",
    "quantized_channel",
    "transposed_convolution",
    "transposed_of_many_channels",
    "volumes",
];

#[test]
fn batches_are_split_into_dispatches() {
    if !device_is_there() {
        return;
    }
    let mut programs = programs();
    let is_batched = |fixture: &Fixture| {
        fixture.file.strip_prefix("ops/").is_some_and(|file| {
            BATCHED.iter().any(|family| file.split('/').next() == Some(*family))
        })
    };
    programs.retain(is_batched);
    assert!(programs.len() > 200, "{} files", programs.len());
    for fixture in &mut programs {
        fixture.rtol = fixture.rtol.max(GPU_TOLERANCE);
        fixture.atol = fixture.atol.max(GPU_TOLERANCE);
    }
    // As on a small GPU, and on a large one, where the workgroups that share a sum also lie in this
    // dim.
    for busy in [1 << 9, 1 << 16] {
        let folded = VulkanBackend::builder().fold_workgroups_at(3).busy_invocations(busy);
        let backend = Arc::new(folded.build());
        check_programs(&programs, |fixture: &Fixture, _| {
            let builder = Module::builder().threads(1).run_on(RunOn::Device("vulkan"));
            open(fixture, builder.backend(backend.clone())).map_err(|error| error.to_string())
        });
    }
}

/// With more batches than any device must support, the whole program stays on the GPU, in several
/// dispatches.
#[test]
fn many_batches_stay_on_the_device() {
    if !device_is_there() {
        return;
    }
    let mut count = 0;
    for mut fixture in programs() {
        if !fixture.file.starts_with("ops/many_batches/") {
            continue;
        }
        (fixture.rtol, fixture.atol) =
            (fixture.rtol.max(GPU_TOLERANCE), fixture.atol.max(GPU_TOLERANCE));
        let recorder = Arc::new(Recorder::new());
        let backend = Arc::new(VulkanBackend::builder().fold_workgroups_at(65_535).build());
        let builder = Module::builder().threads(1).run_on(RunOn::Device("vulkan")).backend(backend);
        let mut module = open(&fixture, builder.event_tracer(recorder.clone())).unwrap();
        let delegates = module.plan().unwrap().methods[0].delegates.clone();
        assert_eq!(delegates, ["VulkanBackend"], "{}", fixture.file);
        let source = open(&fixture, Module::builder().run_on(RunOn::AsExported)).unwrap();
        check(&mut module, &source, &fixture).unwrap();
        let recording = recorder.recording();
        let run = recording.executions().next().expect("a run");
        let is_batched = |event: &&Event| {
            let shaders = ["(matmul", "(attention", "(convolution"];
            event.location == Location::Device
                && shaders.iter().any(|shader| event.name.contains(shader))
        };
        let dispatches = run.events.iter().filter(is_batched).count();
        // Channels of depthwise and grouped convolutions share a dim with the batch.
        let grouped = ["depthwise", "/in_groups"].map(|name| fixture.file.contains(name));
        let least = if grouped.contains(&true) { 1 } else { 2 };
        assert!(dispatches >= least, "{}: {dispatches} dispatches", fixture.file);
        count += 1;
    }
    assert!(count > 25, "{count} programs");
}

/// GPUs compute int64 programs with 32 bits: out-of-range inputs are clamped, on whichever
/// processor the program then runs.
#[test]
fn out_of_range_integers_are_clamped() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture("vulkan/arithmetic/sub_int64.bpte");
    let given: Vec<i64> = (0..15).map(|place| ((1 << 33) + 5) * (place - 7)).collect();
    let nearest: Vec<i64> =
        given.iter().map(|it| (*it).clamp(i32::MIN.into(), i32::MAX.into())).collect();
    let given = Tensor::from_slice(&[3, 5], &given).unwrap();
    let zeros = Tensor::from_slice(&[3, 5], &[0i64; 15]).unwrap();
    for processor in [RunOn::AsExported, RunOn::Device("vulkan"), RunOn::Cpu] {
        let builder = Module::builder().threads(1).run_on(processor);
        let mut module = open(&fixture, builder).unwrap();
        let outputs = module.forward([&given, &zeros]).unwrap();
        let output = outputs[0].tensor().unwrap();
        assert_eq!(output.as_slice::<i64>().unwrap(), nearest, "{processor:?}");
    }
}

/// Software devices are only used if requested by name.
#[test]
fn software_devices_are_not_gpus() {
    if !device_is_there() || VulkanBackend::new().rates().is_none_or(|rates| !rates.emulated) {
        return;
    }
    for file in ["vulkan/model/vision.bpte", "models/mobilenet_v2.bpte"] {
        let on_vulkan = |processor| {
            let builder = Module::builder().threads(1).run_on(processor);
            let module = open(&fixture(file), builder).unwrap();
            let methods = &module.plan().unwrap().methods;
            methods[0].delegates.iter().any(|name| name == "VulkanBackend")
        };
        assert!(on_vulkan(RunOn::Device("vulkan")), "{file}");
        assert!(!on_vulkan(RunOn::Auto), "{file}");
    }
}

/// Programs quantized to 8 bits with PT2E compute with quantized values if the operators support
/// it.
#[test]
fn quantized_programs_compute_with_quantized_values() {
    if !device_is_there() {
        return;
    }
    let expected: &[(&str, &[(&str, usize)])] = &[
        ("digits/digits_int8.bpte", &[("et_vk.q8ta_conv2d.default", 2)]),
        ("models/mobilenet_v2_int8.bpte", &[("et_vk.q8ta_conv2d_dw.default", 1)]),
    ];
    for (file, operators) in expected {
        let fixture = fixture(file);
        for processor in [RunOn::Device("vulkan"), RunOn::Cpu] {
            let source = open(&fixture, Module::builder().threads(1).run_on(processor)).unwrap();
            let calls = &source.plan().unwrap().methods[0].calls;
            for (operator, least) in *operators {
                let count = calls.iter().filter(|call| call.operator == *operator).count();
                assert!(count >= *least, "{file}, {processor:?}: {count} calls of {operator}");
            }
            check(&mut source.share(), &source, &fixture).unwrap();
        }
    }
}
