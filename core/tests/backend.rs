//! The backend contract, tested with a demo backend and delegates written by ExecuTorch's exporter.

mod common;

use common::backend::Demo;
use common::{Aligned, FILES, Memory, ReadOnly, kernels, program_of};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use torchlet_core::{
    BundledProgram, DelegateEvent, Event, EventTracer, InitError, LoadOptions, MethodMemory,
    OptionValue, OutputValue, Program, RegistryError, RuntimeOption, TensorRef, ValueRef,
};

fn run_bundle(file: &str, program: &Program<'_>, demo: &Demo, options: LoadOptions<'_>) {
    let bundle = common::fixture(&file.replace(".pte", ".bpte"));
    let bundle = BundledProgram::from_bytes(bundle.bytes()).unwrap();
    let registry = kernels::registry().with_backend(demo).unwrap();
    let mut memory = Memory::of(program, "forward", &registry, &[]).unwrap();
    let mut method = memory.load(program, "forward", &registry, options).unwrap();
    let mut cases = 0;
    for suite in bundle.suites().unwrap() {
        for case in suite.unwrap().cases().unwrap() {
            let case = case.unwrap();
            for (index, input) in case.inputs().unwrap().enumerate() {
                method.set_input(index, &input.unwrap()).unwrap();
            }
            method.execute().unwrap();
            for (index, expected) in case.expected_outputs().unwrap().enumerate() {
                let ValueRef::Tensor(expected) = expected.unwrap() else { panic!("a tensor") };
                let ValueRef::Tensor(found) = method.output(index).unwrap() else { panic!() };
                assert_eq!(found.info(), expected.info());
                let (found, expected) = (found.data::<f32>().unwrap(), floats(&expected));
                for (found, expected) in found.iter().zip(expected) {
                    assert!((found - expected).abs() < 1e-5, "{file}: {found} {expected}");
                }
            }
            cases += 1;
        }
    }
    assert!(cases > 0);
}

fn floats(tensor: &TensorRef<'_>) -> Vec<f32> {
    tensor.bytes().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn delegates_of_every_layout_run() {
    for (file, delegates) in [
        ("formats/delegate_segment.pte", 1),
        ("formats/delegate_inline.pte", 1),
        ("formats/delegate_align_4096.pte", 1),
        ("formats/delegates_two.pte", 2),
        ("formats/delegates_two_inline.pte", 2),
    ]
    .into_iter()
    .step_by(if cfg!(miri) { 5 } else { 1 })
    {
        let bytes = program_of(file);
        let demo = Demo::default();
        let program = Program::from_bytes(bytes.bytes()).unwrap();
        run_bundle(file, &program, &demo, LoadOptions::default());
        assert!(demo.runs.load(Relaxed) >= delegates);
        assert_eq!(demo.alive.load(Relaxed), 0, "delegates are dropped with the method");
        let seen = demo.seen.lock().unwrap();
        assert_eq!(seen.iter().filter(|note| *note == "lent").count(), delegates);
        for index in 0..delegates {
            assert!(seen.contains(&format!("BackendWithCompilerDemo forward {index}")));
        }
    }
}

/// Storage that cannot lend: processed bytes are read into scratch memory for the duration of
/// `init`.
#[test]
fn processed_bytes_may_be_temporary() {
    for file in
        ["formats/delegate_segment.pte", "formats/delegates_two.pte"].into_iter().take(FILES)
    {
        let bytes = program_of(file);
        let storage = ReadOnly(bytes.bytes());
        let mut buffer = Aligned::new(bytes.bytes().len());
        let program = Program::load_into(&storage, buffer.bytes_mut()).unwrap();
        let demo = Demo::default();
        run_bundle(file, &program, &demo, LoadOptions::default());
        assert!(demo.seen.lock().unwrap().iter().any(|note| note == "temporary"), "{file}");
        assert_eq!(demo.alive.load(Relaxed), 0);
    }
}

#[test]
fn compile_specs_options_and_named_data_arrive() {
    let bytes = program_of("formats/delegate_compile_specs.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let demo = Demo::default();
    let option = |backend, key, value| RuntimeOption { backend, key, value };
    let list = [
        option("BackendWithCompilerDemo", "factor", OptionValue::Int(1)),
        option("BackendWithCompilerDemo", "mode", OptionValue::String("fast")),
        option("AnotherBackend", "factor", OptionValue::Int(7)),
    ];
    let options = LoadOptions::default().with_backend_options(&list);
    run_bundle("formats/delegate_compile_specs.pte", &program, &demo, options);
    let seen = demo.seen.lock().unwrap().clone();
    for note in [
        "spec max_value [4, 0, 0, 0]",
        "spec empty []",
        "option factor Int(1)",
        "option mode String(\"fast\")",
        "named absent None",
    ] {
        assert!(seen.iter().any(|seen| seen == note), "{note} is not in {seen:?}");
    }
    assert!(!seen.iter().any(|note| note.contains("Int(7)")), "another backend's option");

    let bytes = program_of("formats/delegate_named_data.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let demo = Demo::named("BackendWithNamedDataMap");
    let registry = kernels::registry().with_backend(&demo).unwrap();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    drop(memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap());
    let seen = demo.seen.lock().unwrap().clone();
    assert!(seen.iter().any(|note| note == "named aten.add.Tensor Some(1)"), "{seen:?}");
}

#[test]
fn failures_are_reported_and_leak_nothing() {
    let bytes = program_of("formats/delegates_two.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let load = |demo: &Demo| {
        let registry = kernels::registry().with_backend(demo).unwrap();
        let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
        let error = memory.load(&program, "forward", &registry, LoadOptions::default());
        let error = error.map(drop).unwrap_err();
        assert_eq!(demo.alive.load(Relaxed), 0, "{error}");
        error
    };
    let error = load(&Demo { fail_init: Some(1), ..Demo::default() });
    assert!(error.contains("delegate 1 (BackendWithCompilerDemo)"), "{error}");
    assert!(error.contains("asked to fail"), "{error}");
    let error = load(&Demo { unavailable: true, ..Demo::default() });
    assert!(error.contains("not available: no device"), "{error}");
    let error = load(&Demo { lies: true, ..Demo::default() });
    assert!(error.contains("out of memory: the method arena is exhausted"), "{error}");
}

#[test]
fn missing_backends_and_operators_are_named_together() {
    let bytes = program_of("formats/delegates_two.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let registry = torchlet_core::Registry::new();
    let memory = MethodMemory { arena: &mut [], planned: &mut [], scratch: &mut [] };
    let error =
        program.load_method("forward", &registry, memory, LoadOptions::default()).unwrap_err();
    let text = error.to_string();
    for name in ["BackendWithCompilerDemo", "aten::relu.out", "aten::sub.out"] {
        assert_eq!(text.matches(name).count(), 1, "{text}");
    }
    assert_eq!(error.code(), torchlet_core::error::code::OPERATOR_MISSING);
    assert!(matches!(error, InitError::Missing { operators: 3, backends: 1, .. }), "{error:?}");
    let meta = program.method_meta("forward").unwrap();
    let missing = meta.missing(&registry);
    assert_eq!((missing.operators().count(), missing.backends().count()), (3, 1));
}

#[test]
fn backend_names_are_unique() {
    let (one, two) = (Demo::default(), Demo::default());
    let registry = torchlet_core::Registry::new().with_backend(&one).unwrap();
    assert!(matches!(registry.with_backend(&two), Err(RegistryError::DuplicateBackend { .. })));
}

#[test]
fn reset_reaches_delegates() {
    let bytes = program_of("formats/delegates_two.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let demo = Demo::default();
    let registry = kernels::registry().with_backend(&demo).unwrap();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap();
    common::fill_inputs(&mut method);
    method.execute().unwrap();
    assert_eq!(demo.alive.load(Relaxed), 2);
    method.reset().unwrap();
    assert_eq!(demo.resets.load(Relaxed), 2);
    drop(method);
    assert_eq!(demo.alive.load(Relaxed), 0);
}

/// Tracer that records all events.
#[derive(Default)]
struct Log(Mutex<Vec<String>>, bool);

impl Log {
    fn add(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

impl EventTracer for Log {
    fn begin(&self, event: &Event<'_>) -> u64 {
        self.add(format!("begin {:?} {} {}", event.kind, event.name, event.instruction));
        self.0.lock().unwrap().len() as u64
    }
    fn end(&self, event: &Event<'_>, token: u64) {
        assert!(token > 0);
        self.add(format!("end {:?} {} {}", event.kind, event.name, event.instruction));
    }
    fn delegate_event(&self, event: &DelegateEvent<'_>) {
        self.add(format!("{} {} {:?}", event.name, event.id, event.nanoseconds_per_tick));
    }
    fn wants_outputs(&self) -> bool {
        self.1
    }
    fn output(&self, event: &Event<'_>, arg: usize, value: &OutputValue<'_>) {
        let OutputValue::Tensor(tensor) = value else { panic!("{value:?}") };
        self.add(format!("output {} {arg} {}", event.name, tensor.info()));
    }
}

#[test]
fn events_are_traced_in_order() {
    let bytes = program_of("formats/delegates_two.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let demo = Demo::default();
    let registry = kernels::registry().with_backend(&demo).unwrap();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let log = Log(Mutex::default(), true);
    let options = LoadOptions::default().with_tracer(&log);
    let mut method = memory.load(&program, "forward", &registry, options).unwrap();
    common::fill_inputs(&mut method);
    method.execute().unwrap();
    let copy = "dim_order_ops::_to_dim_order_copy.out";
    let expected = [
        "begin Load forward 0",
        "begin DelegateInit BackendWithCompilerDemo 0",
        "compile 1 (1, 1)",
        "end DelegateInit BackendWithCompilerDemo 0",
        "begin DelegateInit BackendWithCompilerDemo 1",
        "compile 1 (1, 1)",
        "end DelegateInit BackendWithCompilerDemo 1",
        "end Load forward 0",
        "begin Execute forward 0",
        &format!("begin Operator {copy} 0"),
        &format!("end Operator {copy} 0"),
        &format!("output {copy} 3 float32[]"),
        "begin Delegate BackendWithCompilerDemo 1",
        "sine 2 (1000, 1)",
        "end Delegate BackendWithCompilerDemo 1",
        // All arguments are traced: only the delegate knows which are outputs.
        "output BackendWithCompilerDemo 0 float32[2, 3]",
        "output BackendWithCompilerDemo 1 float32[2, 3]",
        "begin Operator aten::relu.out 2",
        "end Operator aten::relu.out 2",
        "output aten::relu.out 1 float32[2, 3]",
        "begin Operator aten::sub.out 3",
        "end Operator aten::sub.out 3",
        "output aten::sub.out 3 float32[2, 3]",
        "begin Delegate BackendWithCompilerDemo 4",
        "sine 2 (1000, 1)",
        "end Delegate BackendWithCompilerDemo 4",
        // All arguments are traced: only the delegate knows which are outputs.
        "output BackendWithCompilerDemo 0 float32[2, 3]",
        "output BackendWithCompilerDemo 1 float32[2, 3]",
        "end Execute forward 0",
    ];
    assert_eq!(*log.0.lock().unwrap(), expected);
}
