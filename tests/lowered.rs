//! Programs that were compiled and written to files run like any others, including graphs that
//! exporters split into several delegates.

#![cfg(all(feature = "portable", feature = "vulkan"))]

mod common;

use common::{Fixture, check, fixture, folder, open};
use std::sync::Arc;
use torchlet::core::{BundledProgram, DataMap, Program, Registry};
use torchlet::graph::{self, Compiled, Location, Processors, blob, method};
use torchlet::portable::KERNELS;
use torchlet::portable::engine::{self, CpuEngine, CpuTarget};
use torchlet::{Module, ModuleBuilder, Origin, RunOn};

fn source(fixture: &Fixture) -> Module {
    open(fixture, Module::builder().run_on(RunOn::AsExported)).unwrap()
}

fn compile<'p>(program: &Program<'p>, data: &'p [DataMap<'p>], on: RunOn) -> Compiled<'p> {
    let registry = Registry::new().with_kernels(&KERNELS).unwrap();
    let compiled = match on {
        RunOn::Device("vulkan") => {
            let target = torchlet::vulkan::VulkanTarget::any();
            graph::compile(program, data, Processors::preferring(&[&target]), &registry)
        }
        _ => graph::cpu::compile(program, data, Processors::NONE, &registry),
    };
    compiled.unwrap()
}

/// A fixture, compiled for a target and written to a file.
fn lowered(source: &Module, on: RunOn) -> Vec<u8> {
    let mut program = compile(&source.program(), source.data(), on).program;
    assert!(program.embed(source.data()).unwrap().is_empty());
    program.write().unwrap().to_bytes()
}

fn cpu() -> ModuleBuilder {
    Module::builder().threads(1).without_default_backends()
}

/// Programs with external data, state, several methods and control flow.
const PROGRAMS: &[&str] = &[
    "digits/digits_external.bpte",
    "models/llama.bpte",
    "programs/cond.bpte",
    "programs/external_two_files.bpte",
    "programs/state_shared_initialized.bpte",
    "programs/two_methods.bpte",
    "vulkan/model/language.bpte",
    "vulkan/model/vision_fp16.bpte",
    "vulkan/program/running_sum.bpte",
];

#[test]
fn files_for_cpus_are_self_contained() {
    for file in PROGRAMS {
        let fixture = fixture(file);
        let source = source(&fixture);
        let first = lowered(&source, RunOn::Cpu);
        for on in [RunOn::AsExported, RunOn::Auto, RunOn::Cpu] {
            let mut module = cpu().run_on(on).from_bytes(first.clone()).unwrap();
            match on {
                RunOn::AsExported => assert_eq!(*module.origin(), Origin::Exported, "{file}"),
                // Some calls may run in the engine.
                _ => assert_eq!(*module.origin(), Origin::Compiled, "{file}"),
            }
            assert!(check(&mut module, &source, &fixture).unwrap() > 0, "{file}");
        }
        // Compiling again yields the same results.
        let again = cpu().run_on(RunOn::AsExported).from_bytes(first).unwrap();
        let mut module = cpu().from_bytes(lowered(&again, RunOn::Cpu)).unwrap();
        check(&mut module, &source, &fixture).unwrap();
    }
}

#[test]
fn files_for_the_engine_are_not_compiled_again() {
    let fixture = fixture("digits/digits.bpte");
    let source = source(&fixture);
    let registry = Registry::new().with_kernels(&KERNELS).unwrap();
    let engine = CpuTarget::new();
    let program = source.program();
    let targets: [&dyn graph::Target; 1] = [&engine];
    let processors = Processors::preferring(&targets);
    let compiled = graph::cpu::compile(&program, source.data(), processors, &registry).unwrap();
    assert_eq!(compiled.report.methods[0].delegates, [engine::BACKEND_NAME]);
    let file = compiled.program.write().unwrap().to_bytes();
    for on in [RunOn::AsExported, RunOn::Auto, RunOn::Cpu] {
        let builder = cpu().run_on(on).backend(Arc::new(CpuEngine::new()));
        let mut module = builder.from_bytes(file.clone()).unwrap();
        assert_eq!(*module.origin(), Origin::Exported);
        assert!(check(&mut module, &source, &fixture).unwrap() > 0);
    }
    // Without the engine, its regions must become instructions again, as firmware needs.
    let mut module = cpu().run_on(RunOn::AsExported).from_bytes(file.clone()).unwrap();
    assert!(check(&mut module, &source, &fixture).is_err());
    let again = Module::builder().run_on(RunOn::AsExported).from_bytes(file).unwrap();
    let mut module =
        cpu().run_on(RunOn::AsExported).from_bytes(lowered(&again, RunOn::Cpu)).unwrap();
    assert!(check(&mut module, &source, &fixture).unwrap() > 0);
}

/// Compiling for a GPU needs no GPU.
#[test]
fn files_for_gpus_run_on_cpus() {
    for file in PROGRAMS {
        let fixture = fixture(file);
        let source = source(&fixture);
        let file_for_gpus = lowered(&source, RunOn::Device("vulkan"));
        for on in [RunOn::Auto, RunOn::Cpu] {
            let module = cpu().run_on(on).from_bytes(file_for_gpus.clone());
            check(&mut module.unwrap(), &source, &fixture)
                .unwrap_or_else(|what| panic!("{file}: {what}"));
        }
    }
}

/// A file compiled for GPUs can be compiled for GPUs again.
#[test]
fn compiling_again_changes_nothing() {
    for file in ["models/mobilenet_v2.bpte", "models/llama.bpte", "vulkan/model/vision.bpte"] {
        let source = source(&fixture(file));
        let once = lowered(&source, RunOn::Device("vulkan"));
        let opened = cpu().run_on(RunOn::AsExported).from_bytes(once.clone()).unwrap();
        let twice = lowered(&opened, RunOn::Device("vulkan"));
        let delegates = |bytes: &[u8]| {
            let program = Program::from_bytes(bytes).unwrap();
            let program = method::Program::read(&program).unwrap();
            assert!(program.methods[0].delegates.iter().all(|it| blob::is_blob(&it.processed)));
            (program.methods[0].delegates.len(), program.named.len())
        };
        assert_eq!(delegates(&once), delegates(&twice), "{file}");
    }
}

/// The partitioner leaves `any` and a multiplication of each attention to the CPU; the compiler
/// merges the five delegates into one.
#[test]
fn transformers_are_one_delegate() {
    // No call stays on the CPU: int64 tokens are converted to the nearest int32 values.
    for file in ["language", "language_fp16", "vision", "vision_fp16"] {
        let source = source(&fixture(&format!("vulkan/model/{file}.bpte")));
        assert_eq!(source.method_meta("forward").unwrap().delegate_count(), 5);
        let report = compile(&source.program(), source.data(), RunOn::Device("vulkan")).report;
        let [method] = &report.methods[..] else { panic!("{file}") };
        let on_cpu = method.calls.len() - method.on_device();
        assert_eq!(
            (method.delegates.len(), on_cpu, &method.unchanged_reason),
            (1, 0, &None),
            "{file}"
        );
        let count =
            |part: &str| method.calls.iter().filter(|call| call.operator.contains(part)).count();
        assert_eq!((count("sdpa"), count("softmax"), count("bmm")), (2, 0, 0), "{file}");
        let device = method.calls.iter().filter(|call| call.location == Location::Device(0));
        assert_eq!(device.count(), method.on_device(), "{file}");
    }
}

#[test]
fn bundles_keep_their_cases() {
    let file = std::fs::read(folder().join("programs/many_dtypes.bpte")).unwrap();
    let cases = BundledProgram::from_bytes(&file).unwrap();
    let bundle = graph::bundle(&cases, cases.program().unwrap()).unwrap();
    let again = BundledProgram::from_bytes(&bundle).unwrap();
    assert_eq!(again.program().unwrap(), cases.program().unwrap());
    let all = |bundle: &BundledProgram<'_>| {
        let suites = bundle.suites().unwrap().map(|suite| {
            let suite = suite.unwrap();
            let cases = suite.cases().unwrap().map(|case| {
                let case = case.unwrap();
                let outputs = case.expected_outputs().unwrap();
                case.inputs().unwrap().chain(outputs).map(|value| format!("{value:?}")).collect()
            });
            (suite.method_name().unwrap().to_owned(), cases.collect::<Vec<Vec<String>>>())
        });
        suites.collect::<Vec<_>>()
    };
    assert_eq!(all(&again), all(&cases));
    assert!(all(&cases)[0].1[0].len() > 2);
}
