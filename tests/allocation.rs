//! Allocation failures, at each allocation whose size a file determines: loading and running return
//! an error and never abort.
//!
//! An unhandled allocation failure ends the process, so a child process tries them in turn and
//! prints the current one.

#![cfg(all(feature = "std", feature = "portable"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::ValueMeta;
use torchlet::{FileAccess, Module, RunOn, Tensor, Value};

#[path = "common/single_call.rs"]
mod single_call;
use single_call::Arg::{self, Bool, Indices, Input, Int, Ints, Null, Out, Same, State};
use single_call::{inputs, program};

/// Size from which allocations fail. Smaller ones always succeed: they are proportional to lists in
/// the file.
const LARGE: usize = 64 << 10;
/// Set in the child process.
const CHILD: &str = "TORCHLET_TEST_ALLOCATION";

static MIN_FAILING_SIZE: AtomicUsize = AtomicUsize::new(LARGE);
/// Number of large allocations that succeed before one fails. Afterwards, all succeed.
static REMAINING: AtomicUsize = AtomicUsize::new(usize::MAX);

struct Failing;

impl Failing {
    /// Whether an allocation of this size must fail.
    fn refuses(size: usize) -> bool {
        let count = |left: usize| match left {
            usize::MAX => None,
            0 => Some(usize::MAX),
            left => Some(left - 1),
        };
        size >= MIN_FAILING_SIZE.load(Ordering::Relaxed)
            && REMAINING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(0)
    }
}

// SAFETY: the memory comes from `System`, or is null, which the trait permits.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Failing::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller upholds the same contract as that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Failing::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if Failing::refuses(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Calls with large tensors, packed weights, scratch memory and state.
fn calls() -> Vec<(&'static str, Vec<Arg>)> {
    let square = || vec![256, 256];
    let image = || vec![1, 16, 64, 64];
    let pair = |value| Ints(vec![value, value]);
    vec![
        ("aten::mm.out", vec![Input(square()), Input(square()), Out(square())]),
        (
            "aten::sort.values",
            vec![Input(square()), Int(1), Bool(false), Out(square()), Indices(square())],
        ),
        ("aten::_softmax.out", vec![Input(square()), Int(0), Bool(false), Out(square())]),
        (
            "aten::convolution.out",
            vec![
                Input(image()),
                Input(vec![16, 16, 3, 3]),
                Null,
                pair(1),
                pair(1),
                pair(1),
                Bool(false),
                pair(0),
                Int(1),
                Out(image()),
            ],
        ),
        ("aten::add.out", vec![Input(square()), State(square()), Int(1), Same(1)]),
    ]
}

/// Programs of other formats and delegates, and the size from which allocations of running them
/// fail.
const FIXTURES: [(&str, usize); 3] = [
    ("pt2/attention_core.pt2", 256),
    ("xnnpack/dynamic/batch.bpte", 1 << 10),
    ("xnnpack/places/blocks.bpte", 1 << 10),
];
/// A program to load, and the size of its file.
const FILE: (&str, usize) = ("xnnpack/places/blocks.bpte", 76_704);

fn open(path: &str) -> Result<Module, torchlet::Error> {
    let path = format!("{}/tests/fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
    Module::builder().threads(1).file_access(FileAccess::Read).load(path)
}

/// Opens a fixture, and creates inputs of zeros.
fn fixture(path: &str) -> (Module, Vec<Value>) {
    let module = open(path).unwrap();
    let meta = module.method_meta("forward").unwrap();
    let input = |index| match meta.input(index).unwrap() {
        Some(ValueMeta::Tensor(input)) => {
            let sizes: Vec<usize> =
                (0..input.info.rank()).map(|dim| input.info.size(dim)).collect();
            Value::from(Tensor::zeros(input.info.scalar_type, &sizes).unwrap())
        }
        _ => Value::None,
    };
    let inputs = (0..meta.input_count()).map(input).collect();
    (module, inputs)
}

/// Fails each allocation of at least `min_size` bytes in turn: each must be an error, after which
/// the work succeeds.
fn try_all<T: PartialEq + std::fmt::Debug, E: std::fmt::Debug>(
    name: &str,
    min_size: usize,
    mut work: impl FnMut() -> Result<T, E>,
) {
    // Initialises process-wide data first.
    let expected = work().unwrap();
    MIN_FAILING_SIZE.store(min_size, Ordering::SeqCst);
    for at in 0.. {
        println!("{name}: allocation {at} fails");
        REMAINING.store(at, Ordering::SeqCst);
        let result = work();
        let was_reached = REMAINING.swap(usize::MAX, Ordering::SeqCst) == usize::MAX;
        if !was_reached {
            assert_eq!(result.unwrap(), expected, "{name}");
            println!("tried {at} allocations of {name}");
            assert!(at > 0, "{name} has no allocation of {min_size} bytes");
            break;
        }
        assert!(result.is_err(), "{name}: allocation {at} failed without an error");
        assert_eq!(work().unwrap(), expected, "{name}: after allocation {at}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn failed_allocations_are_errors() {
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--nocapture", "--test-threads=1"]).env(CHILD, "1");
        let output = child.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stdout}\n{stderr}");
        assert!(stdout.contains("tried "), "{stdout}");
        return;
    }
    for (label, run_on) in [("as exported", RunOn::AsExported), ("cpu", RunOn::Cpu)] {
        for (name, args) in calls() {
            let bytes: &'static [u8] = Vec::leak(program(name, &args));
            let inputs = inputs(&args);
            let build = || Module::builder().threads(1).run_on(run_on).from_static(bytes);
            let name = format!("{name}, {label}");
            try_all(&name, LARGE, || build()?.execute("forward", &inputs));
            let mut module = build().unwrap();
            if args.iter().any(|arg| matches!(arg, Out(_))) {
                try_all(&format!("{name}, loaded"), LARGE, || module.execute("forward", &inputs));
            }
        }
    }
    try_all("loading a file", FILE.1, || open(FILE.0).map(drop));
    for (path, size) in FIXTURES {
        if path.ends_with(".pt2") && cfg!(not(feature = "pt2")) {
            continue;
        }
        let (mut module, inputs) = fixture(path);
        try_all(path, size, || module.execute("forward", &inputs));
    }
    #[cfg(feature = "llm")]
    generation();
}

/// A language model, whose next generation works.
#[cfg(feature = "llm")]
fn generation() {
    use torchlet::llm::{GenerationConfig, Overrides, Runner, Sampling, Tokenizer};
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/model");
    let config = GenerationConfig {
        max_new_tokens: Some(8),
        sampling: Sampling::greedy(),
        ignore_eos: true,
        ..GenerationConfig::default()
    };
    // Parsers of tokenizers do not support failures.
    let tokenizer = || Tokenizer::load(format!("{folder}/tokenizer.json")).unwrap();
    let mut tokenizers: Vec<Tokenizer> = (0..40).map(|_| tokenizer()).collect();
    try_all("loading and generating", LARGE, || {
        let builder = Module::builder().threads(1).run_on(RunOn::AsExported);
        let module = builder.load(format!("{folder}/fp32.pte"))?;
        let tokenizer = tokenizers.pop().expect("enough tokenizers");
        let mut runner = Runner::new(module, tokenizer, &Overrides::default())?;
        Ok::<_, Box<dyn std::error::Error>>(runner.generate("In", &config, |_| ())?.text)
    });
}
