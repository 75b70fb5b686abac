//! Every program gives PyTorch's numbers on GPUs, whatever it was exported for. For other
//! processors, `../processors.rs` has the same.

use crate::common::{Fixture, check, check_programs, fixture, open, programs};
use crate::device::device_is_there;
use std::sync::Arc;
use torchlet::core::Backend;
use torchlet::vulkan::{BACKEND_NAME, VulkanBackend};
use torchlet::{Module, RunOn, Tensor};
use torchlet_devtools::{Event, Location, Recorder};

/// What a GPU may be off by where a program was exported for CPUs: its elementary functions are not
/// as exact.
const TOLERANCE: f64 = 1e-3;

/// What GPUs do not have as PyTorch on CPUs: the root of minus infinity of half, which is infinite
/// there, and zero for what is not a number and is quantised.
pub(crate) const OTHERS_ON_GPUS: &[&str] =
    &["ops/library/pow_half_root.bpte", "ops/library/quantize_nan.bpte"];

#[test]
fn gpus_give_pytorchs_numbers() {
    if !device_is_there() {
        return;
    }
    let mut programs = programs();
    programs.retain(|fixture| !OTHERS_ON_GPUS.contains(&fixture.file.as_str()));
    let is_for_gpus = |fixture: &Fixture| fixture.backends.iter().any(|name| name == BACKEND_NAME);
    for fixture in programs.iter_mut().filter(|fixture| !is_for_gpus(fixture)) {
        fixture.rtol = fixture.rtol.max(TOLERANCE);
        fixture.atol = fixture.atol.max(TOLERANCE);
    }
    check_programs(&programs, |fixture: &Fixture, _| {
        let builder = Module::builder().threads(1).run_on(RunOn::Vulkan);
        open(fixture, builder).map_err(|error| error.to_string())
    });
}

/// The families whose operators have batches along a dimension in which a device takes no more
/// workgroups than here: three.
const OF_BATCHES: &[&str] = &[
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
fn batches_take_several_dispatches() {
    if !device_is_there() {
        return;
    }
    let mut programs = programs();
    let is_of_batches = |fixture: &Fixture| {
        fixture.file.strip_prefix("ops/").is_some_and(|file| {
            OF_BATCHES.iter().any(|family| file.split('/').next() == Some(*family))
        })
    };
    programs.retain(is_of_batches);
    assert!(programs.len() > 200, "{} files", programs.len());
    for fixture in &mut programs {
        fixture.rtol = fixture.rtol.max(TOLERANCE);
        fixture.atol = fixture.atol.max(TOLERANCE);
    }
    // As a small GPU, and as a large one, where sums are shared by workgroups that lie along this
    // dimension, too.
    for busy in [1 << 9, 1 << 16] {
        let folded = VulkanBackend::builder().fold_workgroups_at(3).busy_invocations(busy);
        let backend = Arc::new(folded.build());
        check_programs(&programs, |fixture: &Fixture, _| {
            let builder = Module::builder().threads(1).run_on(RunOn::Vulkan);
            open(fixture, builder.backend(backend.clone())).map_err(|error| error.to_string())
        });
    }
}

/// More batches than any device has to take: all of a program stays on the GPU, in as many
/// dispatches as it takes.
#[test]
fn more_batches_than_devices_take_stay_there() {
    if !device_is_there() {
        return;
    }
    let mut count = 0;
    for mut fixture in programs() {
        if !fixture.file.starts_with("ops/many_batches/") {
            continue;
        }
        (fixture.rtol, fixture.atol) = (fixture.rtol.max(TOLERANCE), fixture.atol.max(TOLERANCE));
        let recorder = Arc::new(Recorder::new());
        let backend = Arc::new(VulkanBackend::builder().fold_workgroups_at(65_535).build());
        let builder = Module::builder().threads(1).run_on(RunOn::Vulkan).backend(backend);
        let mut module = open(&fixture, builder.event_tracer(recorder.clone())).unwrap();
        let delegates = module.plan().unwrap().methods[0].delegates.clone();
        assert_eq!(delegates, ["VulkanBackend"], "{}", fixture.file);
        let source = open(&fixture, Module::builder().run_on(RunOn::AsExported)).unwrap();
        check(&mut module, &source, &fixture).unwrap();
        let recording = recorder.recording();
        let run = recording.executions().next().expect("a run");
        let is_of_batches = |event: &&Event| {
            let shaders = ["(matmul", "(attention", "(convolution"];
            event.location == Location::Device
                && shaders.iter().any(|shader| event.name.contains(shader))
        };
        let dispatches = run.events.iter().filter(is_of_batches).count();
        // Channels by themselves lie along one dimension with pictures.
        let by_themselves = ["depthwise", "/in_groups"].map(|name| fixture.file.contains(name));
        let least = if by_themselves.contains(&true) { 1 } else { 2 };
        assert!(dispatches >= least, "{}: {dispatches} dispatches", fixture.file);
        count += 1;
    }
    assert!(count > 25, "{count} programs");
}

/// GPUs compute with 32 bits what was exported for them with 64: what does not fit is the nearest
/// that does when it comes in, wherever the program runs then.
#[test]
fn integers_that_do_not_fit_are_the_nearest_wherever_a_program_runs() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture("vulkan/arithmetic/sub_int64.bpte");
    let given: Vec<i64> = (0..15).map(|place| ((1 << 33) + 5) * (place - 7)).collect();
    let nearest: Vec<i64> =
        given.iter().map(|it| (*it).clamp(i32::MIN.into(), i32::MAX.into())).collect();
    let given = Tensor::from_slice(&[3, 5], &given).unwrap();
    let zeros = Tensor::from_slice(&[3, 5], &[0i64; 15]).unwrap();
    for processor in [RunOn::AsExported, RunOn::Vulkan, RunOn::Cpu] {
        let builder = Module::builder().threads(1).run_on(processor);
        let mut module = open(&fixture, builder).unwrap();
        let outputs = module.forward([&given, &zeros]).unwrap();
        let output = outputs[0].tensor().unwrap();
        assert_eq!(output.as_slice::<i64>().unwrap(), nearest, "{processor:?}");
    }
}

/// Only who asks for software that does as if it was a GPU gets it.
#[test]
fn software_is_no_gpu() {
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
        assert!(on_vulkan(RunOn::Vulkan), "{file}");
        assert!(!on_vulkan(RunOn::Auto), "{file}");
    }
}

/// What PT2E quantises with 8 bits computes with codes, wherever there is an operator for it.
#[test]
fn quantised_programs_compute_with_codes() {
    if !device_is_there() {
        return;
    }
    let expected: &[(&str, &[(&str, usize)])] = &[
        ("digits/digits_int8.bpte", &[("et_vk.q8ta_conv2d.default", 2)]),
        ("models/mobilenet_v2_int8.bpte", &[("et_vk.q8ta_conv2d_dw.default", 1)]),
    ];
    for (file, operators) in expected {
        let fixture = fixture(file);
        for processor in [RunOn::Vulkan, RunOn::Cpu] {
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
