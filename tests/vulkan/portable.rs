//! Programs for CPUs on the device, if it supports them completely.

use crate::common::{Fixture, OTHERS_ON_GPUS, check, check_all, fixtures, folder, open};
use crate::device::device_is_there;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use torchlet::core::{BundledProgram, Program, Registry};
use torchlet::portable::KERNELS;
use torchlet::vulkan::{VulkanBackend, VulkanTarget};
use torchlet::{Module, ModuleBuilder, RunOn};
use torchlet_devtools::{Event, Location, Recorder};
use torchlet_graph::front::{FrontEnd, Vocabulary};
use torchlet_graph::method::{Delegate, Instruction, Method, MethodValue};
use torchlet_graph::{Constants, Target, blob, method};

/// Replaces a method's instructions by one delegate call, if they are a single graph that the
/// target supports.
///
/// # Errors
/// Why not.
fn lower<'p>(
    method: &mut Method<'p>,
    target: &VulkanTarget,
    vocabulary: &Vocabulary,
    constants: &mut Constants<'p>,
) -> Result<(), BTreeSet<String>> {
    let only = |reason: String| BTreeSet::from([reason]);
    let runs = FrontEnd::new(method, &[], &[], vocabulary).runs();
    let mut runs = runs.map_err(|error| only(error.to_string()))?;
    let counted = |instruction: &&Instruction| !matches!(instruction, Instruction::Free { .. });
    if runs.len() != 1 || runs[0].instructions.len() != method.instructions.len() {
        let count = method.instructions.iter().filter(counted).count();
        return Err(only(format!("{} runs of {count} instructions", runs.len())));
    }
    let run = runs.remove(0);
    let answers = run.graph.nodes.iter().zip(target.accepts_each(&run.graph));
    let refusals: BTreeSet<String> = answers
        .filter_map(|(node, answer)| Some(format!("{:?}: {}", node.operator, answer.err()?)))
        .collect();
    if !refusals.is_empty() {
        return Err(refusals);
    }
    target.runs(&run.graph).map_err(only)?;
    if !run.graph.updates.is_empty() {
        return Err(only("it has state".to_owned()));
    }
    // The exporter elides views: their results share the memory of their inputs.
    let given = |id: &usize| method.inputs.contains(&run.origins[id]);
    if !run.graph.inputs.iter().all(given) {
        return Err(only("it reads what no instruction sets".to_owned()));
    }
    let ids = run.graph.inputs.iter().chain(&run.graph.outputs);
    let args: Vec<usize> = ids.map(|id| run.origins[id]).collect();
    // Values that shared memory in the exporter's plan are now alive at the same time.
    for value in &args {
        if let MethodValue::Tensor(tensor) = &mut method.values[*value]
            && let Some((buffer, offset)) = &mut tensor.location
        {
            (*buffer, *offset) = (method.planned.len(), 0);
            let bytes = tensor.info.numel() * tensor.info.scalar_type.size();
            method.planned.push(bytes.next_multiple_of(16));
        }
    }
    let processed = blob::write(run.graph, constants).map_err(|error| only(error.to_string()))?;
    let backend = target.backend().to_owned();
    method.delegates.push(Delegate { backend, processed: processed.into(), specs: Vec::new() });
    method.instructions = vec![Instruction::Delegate { delegate: 0, args }];
    Ok(())
}

/// Lowers all methods of a program to the device.
fn lowered(bytes: &[u8], target: &VulkanTarget) -> Result<Vec<u8>, BTreeSet<String>> {
    let only = |reason: String| BTreeSet::from([reason]);
    let program = Program::from_bytes(bytes).map_err(|error| only(error.to_string()))?;
    let mut program = method::Program::read(&program).map_err(|error| only(error.to_string()))?;
    let registry = Registry::new().with_kernels(&KERNELS).expect("kernels");
    let vocabulary = Vocabulary::of(&registry);
    let mut constants = Constants::new("torchlet.");
    for method in &mut program.methods {
        if !method.delegates.is_empty() {
            return Err(only("it is lowered".to_owned()));
        }
        lower(method, target, &vocabulary, &mut constants)?;
    }
    program.named.extend(constants.into_named());
    Ok(program.write().map_err(|error| only(error.to_string()))?.to_bytes())
}

/// Programs in the folder `TORCHLET_TEST_PROGRAMS`, with the tolerance of GPUs.
fn more() -> Vec<Fixture> {
    let Ok(folder) = std::env::var("TORCHLET_TEST_PROGRAMS") else { return Vec::new() };
    let files = std::fs::read_dir(folder).expect("a folder");
    let paths = files.map(|entry| entry.expect("a file").path());
    let programs = paths.filter(|path| path.extension().is_some_and(|ending| ending == "bpte"));
    let fixture = |path: std::path::PathBuf| Fixture {
        file: path.display().to_string(),
        kind: "program".to_owned(),
        operators: Vec::new(),
        backends: Vec::new(),
        delegated: Vec::new(),
        data: Vec::new(),
        rtol: 1e-3,
        atol: 1e-3,
    };
    programs.map(fixture).collect()
}

/// Result of lowering a program.
enum Lowered {
    Bytes(Vec<u8>),
    /// Refused, with the reasons.
    Refused(BTreeSet<String>),
    /// Not a bundled program.
    Not,
}

fn on_target(fixture: &Fixture, target: &VulkanTarget) -> Result<Lowered, String> {
    let path = folder().join(Path::new(&fixture.file));
    let file = std::fs::read(path).map_err(|error| error.to_string())?;
    let Ok(bundle) = BundledProgram::from_bytes(&file) else { return Ok(Lowered::Not) };
    let program = bundle.program().map_err(|error| error.to_string())?;
    Ok(lowered(program, target).map_or_else(Lowered::Refused, Lowered::Bytes))
}

/// Runs the test cases of a fixture on its lowered program.
fn checked(fixture: &Fixture, bytes: Vec<u8>, builder: ModuleBuilder) -> Result<(), String> {
    let source = open(fixture, Module::builder()).map_err(|error| error.to_string())?;
    let mut module = builder.threads(1).run_on(RunOn::AsExported).from_bytes(bytes);
    check(module.as_mut().map_err(|error| error.to_string())?, &source, fixture).map(|_| ())
}

/// Simulates devices that a single workgroup does not saturate: split reductions, and other
/// operators in several dispatches, each with a minimum number of dispatches.
#[test]
fn cpu_programs_are_correct_on_large_devices() {
    if !device_is_there() {
        return;
    }
    for (start, shader, least) in [
        ("ops/long_reductions/long_", "(reduce", 2),
        ("ops/transposed_of_many_channels/many_", "(convolution_fold", 1),
        ("ops/choice/clamp_tensor", "(binary", 1),
        ("ops/picked/", "(take", 1),
        ("ops/sent/", "(scatter", 1),
        ("ops/spread/", "(reduce", 2),
    ] {
        let family = fixtures().into_iter().filter(|it| it.file.starts_with(start));
        let mut count = 0;
        for mut fixture in family {
            (fixture.rtol, fixture.atol) = (fixture.rtol.max(1e-3), fixture.atol.max(1e-3));
            let target = VulkanTarget::any();
            let bytes = match on_target(&fixture, &target).unwrap() {
                Lowered::Bytes(bytes) => bytes,
                Lowered::Refused(reasons) => panic!("{}: {reasons:?}", fixture.file),
                Lowered::Not => panic!("{} has no test cases", fixture.file),
            };
            let backend = VulkanBackend::builder().busy_invocations(1 << 16).build();
            let recorder = Arc::new(Recorder::new());
            let builder =
                Module::builder().backend(Arc::new(backend)).event_tracer(recorder.clone());
            checked(&fixture, bytes, builder)
                .unwrap_or_else(|error| panic!("{}: {error}", fixture.file));
            let recording = recorder.recording();
            let run = recording.executions().next().expect("a run");
            let is_of =
                |event: &&Event| event.location == Location::Device && event.name.contains(shader);
            let dispatches = run.events.iter().filter(is_of).count();
            // A prime number of elements cannot be split.
            let least = if fixture.file.contains("prime") { 1 } else { least };
            assert!(dispatches >= least, "{}: {dispatches} dispatches", fixture.file);
            count += 1;
        }
        assert!(count >= 7, "{count} of {start}");
    }
}

#[test]
fn cpu_programs_match_pytorch() {
    if !device_is_there() {
        return;
    }
    let plain = |fixture: &Fixture| fixture.backends.is_empty() && fixture.data.is_empty();
    let mut programs: Vec<Fixture> = fixtures().into_iter().filter(plain).collect();
    programs.retain(|fixture| !OTHERS_ON_GPUS.contains(&fixture.file.as_str()));
    for fixture in &mut programs {
        fixture.rtol = fixture.rtol.max(1e-3);
        fixture.atol = fixture.atol.max(1e-3);
    }
    programs.extend(more());
    let target = VulkanTarget::any();
    let refused: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let ran = Mutex::new(0);
    let failures = check_all(&programs, |fixture| match on_target(fixture, &target)? {
        Lowered::Refused(reasons) => {
            let mut refused = refused.lock().unwrap();
            reasons.into_iter().for_each(|why| *refused.entry(why).or_default() += 1);
            Ok(())
        }
        Lowered::Not => Ok(()),
        Lowered::Bytes(bytes) => {
            checked(fixture, bytes, Module::builder())?;
            *ran.lock().unwrap() += 1;
            Ok(())
        }
    });
    for (why, count) in refused.into_inner().unwrap() {
        println!("{count:5} {why}");
    }
    println!("{} of {} programs ran", ran.lock().unwrap(), programs.len());
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
    let ran = ran.into_inner().unwrap();
    assert!(ran > 1300, "{ran} programs ran on the device: there were 1,394");
}
