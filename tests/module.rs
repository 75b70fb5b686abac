//! `Module` over real programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use torchlet::core::layout::channels_last_order;
use torchlet::core::{DataLoader, ReadError, ValueMeta, ValueRef};
use torchlet::{
    Error, FileAccess, Limits, Module, ModuleBuilder, ProfileKind, Profiler, RunOn, ScalarType,
    Tensor, TensorRef, Value,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A builder that works under Miri, which does not support memory maps.
fn builder() -> ModuleBuilder {
    let access = if cfg!(miri) { FileAccess::Read } else { FileAccess::Map };
    Module::builder().file_access(access)
}

fn open(name: &str) -> Module {
    builder().load(fixture(name)).unwrap()
}

const ADD: &str = "ops/arithmetic/add_f32.bpte";

fn tensor(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[3, 5], values).unwrap()
}

fn first(outputs: &[Value]) -> &[f32] {
    outputs[0].tensor().unwrap().as_slice().unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "maps files")]
fn all_ways_of_opening_are_equivalent() {
    let x = Tensor::rand(ScalarType::Float, &[3, 5], 3).unwrap();
    let expected: Vec<f32> = x.as_slice::<f32>().unwrap().iter().map(|x| x + x).collect();
    let bytes = std::fs::read(fixture(ADD)).unwrap();
    let by_access = |access| Module::builder().file_access(access).load(fixture(ADD)).unwrap();
    let modules = [
        Module::load(fixture(ADD)).unwrap(),
        by_access(FileAccess::Read),
        by_access(FileAccess::Map),
        by_access(FileAccess::MapPrefetched),
        Module::builder().from_loader(Arc::new(Lending(bytes.clone()))).unwrap(),
        Module::builder().from_loader(Arc::new(Reading(bytes.clone()))).unwrap(),
        Module::from_bytes(bytes.clone()).unwrap(),
        Module::builder().threads(1).from_static(bytes.leak()).unwrap(),
    ];
    for mut module in modules {
        assert_eq!(module.method_names().unwrap(), ["forward"]);
        assert!(!module.is_method_loaded("forward"));
        assert_eq!(first(&module.forward([&x, &x]).unwrap()), expected);
        assert!(module.is_method_loaded("forward"));
        assert!(module.bundled().is_some());
        assert!(module.unload("forward") && !module.unload("forward"));
        assert_eq!(first(&module.forward((&x, &x)).unwrap()), expected);
    }
}

/// Storage that lends its bytes.
struct Lending(Vec<u8>);

impl DataLoader for Lending {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        Reading(self.0.clone()).read(offset, into)
    }
    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.0.get(start..start.checked_add(len)?)
    }
}

/// Storage that can only be read.
struct Reading(Vec<u8>);

impl DataLoader for Reading {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let error = ReadError { offset, len: into.len() };
        let bytes = self.0.get(offset as usize..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(bytes.ok_or(error)?);
        Ok(())
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn programs_and_data_come_from_any_storage() {
    let read = |name: &str| std::fs::read(fixture(name)).unwrap();
    let program = "programs/external_a.pte";
    let data = "programs/external_a.shared.ptd";
    let x = Tensor::rand(ScalarType::Float, &[2, 3], 1).unwrap();
    let expected = builder().data(fixture(data)).load(fixture(program)).unwrap().forward(&x);
    let expected = expected.unwrap();
    let loaders: [fn(Vec<u8>) -> Arc<dyn DataLoader + Send + Sync>; 2] =
        [|bytes| Arc::new(Lending(bytes)), |bytes| Arc::new(Reading(bytes))];
    for loader in loaders {
        let builder = Module::builder().data_loader(loader(read(data)));
        let mut module = builder.from_loader(loader(read(program))).unwrap();
        assert_eq!(module.forward(&x).unwrap(), expected);
        assert_eq!(module.file_size(), read(program).len() as u64);
        // Storage that is truncated or contains something else. Errors inside the data appear when
        // it is used.
        for len in (0..read(program).len()).step_by(61) {
            let data = Module::builder().data_loader(loader(read(data)));
            if let Ok(mut module) = data.from_loader(loader(read(program)[..len].to_vec())) {
                let _ = module.forward(&x);
            }
        }
        assert!(Module::builder().from_loader(loader(read(data))).is_err());
        let swapped = Module::builder().data_loader(loader(read(program)));
        assert!(swapped.from_loader(loader(read(program))).is_err());
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn files_beyond_the_limit_are_not_read() {
    let mut limits = Limits::HOST;
    limits.file_bytes = 100;
    let bytes = std::fs::read(fixture(ADD)).unwrap();
    let errors = [
        builder().limits(limits).load(fixture(ADD)).unwrap_err(),
        builder().limits(limits).from_bytes(bytes.clone()).unwrap_err(),
        builder().limits(limits).from_loader(Arc::new(Reading(bytes))).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), 0x25, "{error}");
        assert!(error.to_string().contains("Limits::file_bytes"), "{error}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps files")]
fn files_of_other_formats_are_named() {
    let missing = Module::load(fixture("nothing.pte")).unwrap_err();
    assert!(missing.to_string().contains("nothing.pte"), "{missing}");
    assert_eq!(missing.code(), 0x22);
    let folder = Module::load(fixture("")).unwrap_err();
    assert!(matches!(folder, Error::File { .. }), "{folder}");
    let text = Module::load(fixture("README.md")).unwrap_err();
    assert!(text.to_string().contains("README.md"), "{text}");
    assert_eq!(text.code(), 0x23);
    let data = Module::builder().data(fixture(ADD)).load(fixture(ADD)).unwrap_err();
    assert!(matches!(data, Error::OtherFormat { path: Some(_), .. }), "{data}");
    assert_eq!(data.code(), 0x23);
    let onnx = Module::from_bytes(b"\x08\x08\x12\x07pytorch".to_vec()).unwrap_err().to_string();
    assert!(onnx.contains(".pte, .bpte") && onnx.contains(".vgf"), "{onnx}");
    assert_eq!(onnx.contains(".pt2"), cfg!(feature = "pt2"), "{onnx}");
    for len in 0..100 {
        assert!(Module::from_bytes(vec![0; len]).is_err());
    }
}

#[test]
fn mismatching_inputs_are_explained() {
    let mut module = open(ADD);
    let x = tensor(&[1.0; 15]);
    let messages = [
        (module.forward(()), "input 0 of 'forward' has no value; expected float32[3, 5]"),
        (module.forward([&x]), "input 1 of 'forward' has no value"),
        (module.forward([&x, &x, &x]), "'forward' expects 2 inputs, found 3"),
        (
            module.forward([&x, &x.reshape(&[5, 3]).unwrap()]),
            "input 1 of 'forward' (float32[3, 5]): expected shape [3, 5], found [5, 3]",
        ),
        (module.forward([&x, &x.reshape(&[15]).unwrap()]), "expected shape [3, 5], found [15]"),
        (
            module.forward([&x.to_type(ScalarType::Half).unwrap(), &x]),
            "expected dtype float32, found float16",
        ),
        (module.forward((&x, 1)), "expected tensor, found int"),
        (module.execute("backward", ()), "no method 'backward'; it has forward"),
    ];
    for (result, text) in messages {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.code() != 0);
    }
}

#[test]
fn preset_inputs_persist() {
    let mut module = open(ADD);
    let (one, two) = (tensor(&[1.0; 15]), tensor(&[2.0; 15]));
    module.set_input("forward", 1, &two).unwrap();
    for _ in 0..2 {
        assert_eq!(first(&module.forward(&one).unwrap()), [3.0; 15]);
    }
    // An input that is passed to a call overrides the preset, for this call only.
    assert_eq!(first(&module.forward([&one, &one]).unwrap()), [2.0; 15]);
    assert_eq!(first(&module.forward(&one).unwrap()), [3.0; 15]);
    // `None` selects the preset.
    module.set_input("forward", 0, &one).unwrap();
    assert_eq!(first(&module.forward([Value::None, Value::None]).unwrap()), [3.0; 15]);
    module.reset("forward").unwrap();
    assert_eq!(first(&module.forward(()).unwrap()), [3.0; 15]);
    module.set_input("forward", 1, Value::None).unwrap();
    assert!(matches!(module.forward(&one), Err(Error::InputNotSet { index: 1, .. })));
    assert!(module.set_input("forward", 0, 5).is_err());
    assert!(module.set_input("forward", 2, &one).is_err());
}

#[test]
fn missing_operators_are_listed() {
    let module = builder().default_kernels(false);
    let mut module = module.load(fixture("digits/digits.pte")).unwrap();
    let error = module.load_method("forward").unwrap_err();
    let Error::Missing { operators, backends, .. } = &error else { panic!("{error}") };
    assert!(operators.iter().any(|name| name == "aten::convolution.out"), "{operators:?}");
    assert!(operators.len() > 3 && backends.is_empty());
    assert_eq!(error.code(), 0x14);

    let mut module = open("formats/delegates_two.pte");
    let error = module.load_method("forward").unwrap_err();
    let Error::Missing { backends, .. } = &error else { panic!("{error}") };
    assert!(!backends.is_empty() && error.to_string().contains(&backends[0]), "{error}");
}

/// A program that uses an existing operator with an unsupported dtype fails at load time, whatever
/// processor it runs on.
#[test]
fn unsupported_dtypes_are_named() {
    let files = std::fs::read_dir(fixture("refused")).unwrap();
    let files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        for run_on in [RunOn::AsExported, RunOn::Cpu, RunOn::Auto] {
            let mut module = builder().run_on(run_on).load(&file).unwrap();
            let error = module.load_method("forward").unwrap_err().to_string();
            // For eigenvalues only, the exporter emits the operator that computes both.
            let called = format!("aten::{}.", name.strip_suffix("vals").unwrap_or(name));
            let reason = "argument 0: the operator does not support dtype complex64";
            let named = error.contains(&called) && error.contains(reason);
            assert!(named, "{name}: {error}");
        }
    }
}

#[test]
fn memory_is_limited_and_reported() {
    let mut module = open(ADD);
    let report = module.memory_report("forward").unwrap();
    assert!(report.total() > 3 * 60 && report.planned.len() == 1, "{report:?}");
    module.load_method("forward").unwrap();
    let limited = |limit| builder().memory_limit(limit).load(fixture(ADD)).unwrap();
    limited(report.total()).load_method("forward").unwrap();
    let error = limited(report.total() - 1).load_method("forward").unwrap_err();
    assert!(matches!(error, Error::MemoryLimit { needed, .. } if needed == report.total()));
    assert_eq!(error.code(), 0x21);
}

/// A program may return one tensor thousands of times.
#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn copies_of_outputs_count_against_the_limit() {
    let source = open(ADD);
    let program = source.program();
    let mut program = torchlet::graph::method::Program::read(&program).unwrap();
    let output = program.methods[0].outputs[0];
    program.methods[0].outputs = vec![output; 5000];
    let bytes = program.write().unwrap().to_bytes();
    let inputs =
        vec![Value::from(tensor(&[0.0; 15])); source.method_meta("forward").unwrap().input_count()];
    let run = |limit: u64| {
        let builder = builder().run_on(RunOn::AsExported).memory_limit(limit);
        let mut module = builder.from_bytes(bytes.clone()).unwrap();
        let mut method = module.method("forward").unwrap();
        let loaded = method.memory_bytes();
        (method.execute(&inputs).map(|outputs| outputs.len()), loaded)
    };
    // Each output has 60 bytes.
    let loaded = run(1 << 30).1;
    assert_eq!(run(loaded + 60 * 5000).0.unwrap(), 5000);
    let error = run(loaded + 60 * 5000 - 1).0.unwrap_err();
    assert!(matches!(error, Error::MemoryLimit { .. }), "{error}");
}

#[test]
fn layouts_are_converted() {
    let mut module = open("ops/arithmetic/add_channels_last.bpte");
    let meta = module.method_meta("forward").unwrap();
    let Some(ValueMeta::Tensor(input)) = meta.input(0).unwrap() else { panic!() };
    let shape: Vec<usize> = input.info.sizes.iter().map(|size| *size as usize).collect();
    assert_eq!(Some(input.info.dim_order), channels_last_order(4));
    let x = Tensor::rand(ScalarType::Float, &shape, 1).unwrap();
    let count = module.method_meta("forward").unwrap().input_count();
    let contiguous = module.forward(vec![&x; count]).unwrap();
    let converted = module.forward(vec![&x.to_channels_last().unwrap(); count]).unwrap();
    assert_eq!(contiguous, converted);
    let sum = contiguous[0].tensor().unwrap();
    assert_eq!(sum.dim_order(), [0, 2, 3, 1]);
    assert_eq!(sum.to_vec::<f32>().unwrap()[1], 2.0 * x.as_slice::<f32>().unwrap()[1]);
}

#[test]
fn inputs_and_outputs_can_be_used_in_place() {
    let mut module = open(ADD);
    let mut method = module.method("forward").unwrap();
    assert_eq!((method.input_count(), method.output_count()), (2, 1));
    for index in 0..2 {
        method.input_mut(index).unwrap().data_mut::<f32>().unwrap().fill(4.0);
    }
    method.run().unwrap();
    let ValueRef::Tensor(sum) = method.output(0).unwrap() else { panic!() };
    assert_eq!(sum.data::<f32>().unwrap(), [8.0; 15]);
    assert!(method.output(1).is_err() && method.input_mut(2).is_err());
}

#[test]
fn dynamic_shapes_within_the_bound() {
    let mut module = open("ops/arithmetic/add_dynamic.bpte");
    let meta = module.method_meta("forward").unwrap();
    let shapes: Vec<Vec<usize>> = (0..meta.input_count())
        .map(|index| match meta.input(index).unwrap() {
            Some(ValueMeta::Tensor(input)) => {
                input.info.sizes.iter().map(|size| *size as usize).collect()
            }
            _ => panic!("not a tensor"),
        })
        .collect();
    let bound = shapes[0][0];
    let inputs = |rows: usize| -> Vec<Tensor> {
        let with_rows = |shape: &Vec<usize>| [&[rows], &shape[1..]].concat();
        shapes.iter().map(|shape| Tensor::full(&with_rows(shape), 0.25f32).unwrap()).collect()
    };
    for rows in [1, bound, 2] {
        let outputs = module.forward(inputs(rows)).unwrap();
        let sum = outputs[0].tensor().unwrap();
        assert_eq!(sum.shape(), [&[rows], &shapes[0][1..]].concat());
        assert!(sum.as_slice::<f32>().unwrap().iter().all(|x| *x == 0.5));
    }
    let error = module.forward(inputs(bound + 1)).unwrap_err();
    let text = format!("exceeds the bound {:?}", shapes[0]);
    assert!(error.to_string().contains(&text), "{error}");
    assert_eq!(error.code(), 0x10);
}

#[test]
fn modules_share_a_program_between_threads() {
    let module = open(ADD);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let mut own = module.share();
            scope.spawn(move || {
                let x = tensor(&[number as f32; 15]);
                for _ in 0..50 {
                    assert_eq!(first(&own.forward([&x, &x]).unwrap()), [2.0 * number as f32; 15]);
                }
            });
        }
    });
}

#[test]
fn profiles_name_operators() {
    let profiler = Arc::new(Profiler::new());
    let mut module = builder().event_tracer(profiler.clone()).load(fixture(ADD)).unwrap();
    let x = tensor(&[0.0; 15]);
    for _ in 0..3 {
        module.forward([&x, &x]).unwrap();
    }
    let entries = profiler.entries();
    let operator = entries.iter().find(|entry| entry.kind == ProfileKind::Operator).unwrap();
    assert_eq!((operator.name.as_str(), operator.count), ("aten::add.out", 3));
    assert!(entries.iter().any(|entry| entry.kind == ProfileKind::Load && entry.count == 1));
    profiler.clear();
    assert!(profiler.entries().is_empty());
}

#[test]
fn program_without_instructions_returns_its_input() {
    let mut module = open("programs/identity.bpte");
    let suite = module.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let case = suite.cases().unwrap().next().unwrap().unwrap();
    let ValueRef::Tensor(input) = case.inputs().unwrap().next().unwrap().unwrap() else { panic!() };
    let input = Tensor::try_from(&input).unwrap();
    assert_eq!(module.forward(&input).unwrap()[0], Value::from(input));
}

/// Counts events, and cancels at the third operator.
struct Canceling(std::sync::OnceLock<torchlet::Canceller>, std::sync::atomic::AtomicUsize);

impl torchlet::core::EventTracer for Canceling {
    fn begin(&self, event: &torchlet::core::Event<'_>) -> u64 {
        use std::sync::atomic::Ordering;
        let is_operator = event.kind == torchlet::core::EventKind::Operator;
        if is_operator && self.1.fetch_add(1, Ordering::Relaxed) == 2 {
            let canceller = self.0.get().unwrap().clone();
            std::thread::spawn(move || canceller.cancel()).join().unwrap();
        }
        0
    }
    fn end(&self, _: &torchlet::core::Event<'_>, _: u64) {}
}

#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn runs_are_cancelled_from_another_thread() {
    let tracer = Arc::new(Canceling(Default::default(), Default::default()));
    let mut module = builder().load(fixture("programs/deep_chain.bpte")).unwrap();
    let canceller = module.canceller();
    assert!(tracer.0.set(canceller.clone()).is_ok());
    let options = torchlet::MethodOptions::new().event_tracer(tracer.clone());
    module.set_method_options("forward", options).unwrap();
    let x = Tensor::full(&[4], 0.5f32).unwrap();
    let error = module.forward(&x).unwrap_err();
    // The third operator itself checks for cancellation and skips its work.
    let text = error.to_string();
    assert!(text.contains("instruction 2") && text.contains("the run was cancelled"), "{text}");
    assert_eq!(tracer.1.load(std::sync::atomic::Ordering::Relaxed), 3);
    assert!(canceller.is_cancelled() && module.forward(&x).is_err());
    // Other modules over the same files keep running, and so does this one after `resume`.
    let expected = module.share().forward(&x).unwrap();
    canceller.resume();
    assert_eq!(module.forward(&x).unwrap(), expected);
    assert!(module.set_method_options("backward", Default::default()).is_err());
}

#[test]
fn inputs_and_outputs_stay_in_memory_of_the_caller() {
    let mut module = open(ADD);
    let (a, b, mut sum) = ([1.5f32; 15], [2.0f32; 15], [0.0f32; 20]);
    let [a, b] = [&a, &b].map(|x| ValueRef::from(TensorRef::from_slice(&[3, 5], x).unwrap()));
    let mut method = module.method("forward").unwrap();
    method.execute_ref(&[a.clone(), b.clone()]).unwrap();
    let info = method.output_into(0, &mut sum).unwrap();
    assert_eq!(
        (info.to_string(), &sum[..15], &sum[15..]),
        ("float32[3, 5]".into(), &[3.5; 15][..], &[0.0; 5][..])
    );
    assert!(method.output_into(0, &mut sum[..14]).unwrap_err().to_string().contains("60"));
    assert!(method.output_into(0, &mut [0i32; 15]).is_err());
    assert!(method.output_into(1, &mut sum).is_err());
    // Inputs that are not passed keep their earlier values.
    assert!(matches!(
        method.execute_ref(std::slice::from_ref(&a)),
        Err(Error::InputNotSet { index: 1, .. })
    ));
    method.preset_input(1, tensor(&[10.0; 15]).into()).unwrap();
    method.execute_ref(&[a.clone(), ValueRef::None]).unwrap();
    method.output_into(0, &mut sum).unwrap();
    assert_eq!(sum[0], 11.5);
    assert!(method.execute_ref(&[a.clone(), b, a]).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn errors_lead_to_their_cause() {
    use std::error::Error as _;
    let mut module = builder().load(fixture("digits/digits_external.pte")).unwrap();
    let error = module.load_method("forward").unwrap_err();
    let Error::Load { method, source } = &error else { panic!("{error}") };
    assert_eq!(method, "forward");
    assert!(matches!(**source, torchlet::core::InitError::ExternalData { .. }), "{source}");
    assert_eq!(error.source().unwrap().to_string(), source.to_string());
    assert_eq!(error.code(), source.code());
}

#[test]
#[cfg_attr(miri, ignore = "starts threads")]
fn threads_are_set_while_a_module_runs() {
    let load = |threads: usize| {
        let model = fixture("xnnpack/network/inverted.bpte");
        Module::builder().threads(threads).load(model).unwrap()
    };
    let x = Tensor::rand(ScalarType::Float, &[1, 3, 16, 16], 1).unwrap();
    let mut module = load(3);
    let expected = module.forward(&x).unwrap();
    for (wanted, used) in [(1, 1), (2, 2), (0, 1), (8, 3)] {
        assert_eq!(module.set_threads(wanted), used);
        assert_eq!((module.threads(), module.share().threads()), (used, used));
        assert_eq!(module.forward(&x).unwrap(), expected);
    }
    assert_eq!(load(1).set_threads(2), 1);
    let own = Arc::new(torchlet::portable::ThreadPool::new(2));
    let module = Module::builder().parallel(own.clone()).load(fixture(ADD)).unwrap();
    assert_eq!(module.set_threads(1), 2);
    assert_eq!(own.set_threads(1), 1);
}
