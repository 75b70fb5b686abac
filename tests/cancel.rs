//! Runs that are cancelled inside an operator: how often operators ask, and that the run ends soon.

#![cfg(all(feature = "std", feature = "portable"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::{Parallel, Scalar, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::{Module, RunOn, Tensor, Value};
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};

#[cfg(feature = "vulkan")]
#[path = "common/vulkan.rs"]
mod device;

/// An argument of the call that a program consists of.
#[derive(Clone)]
enum Arg {
    Input(Vec<i32>),
    Out(Vec<i32>),
    Indices(Vec<i32>),
    Int(i64),
    Ints(Vec<i64>),
    Bool(bool),
    Null,
}
use Arg::{Bool, Indices, Input, Int, Ints, Null, Out};

/// A program of one call, as exported.
fn program(name: &str, args: &[Arg]) -> Vec<u8> {
    let mut method = Method { name: "forward".into(), planned: vec![0], ..Method::default() };
    let mut indices = Vec::new();
    for arg in args {
        let tensor = |sizes: &[i32], scalar_type, method: &mut Method<'_>| {
            let info = TensorInfo::contiguous(scalar_type, sizes).unwrap();
            method.planned.push(info.nbytes().max(1));
            let (place, data) = (Some((method.planned.len() - 1, 0)), TensorData::None);
            let dynamism = ShapeDynamism::Static;
            let value = MethodTensor { info, dynamism, place, data, name: None };
            method.add(MethodValue::Tensor(value))
        };
        let index = match arg {
            Input(sizes) => tensor(sizes, ScalarType::Float, &mut method),
            Out(sizes) => tensor(sizes, ScalarType::Float, &mut method),
            Indices(sizes) => tensor(sizes, ScalarType::Long, &mut method),
            Int(value) => method.add(MethodValue::Scalar(Scalar::Int(*value))),
            Bool(value) => method.add(MethodValue::Scalar(Scalar::Bool(*value))),
            Null => method.add(MethodValue::None),
            Ints(values) => {
                let values =
                    values.iter().map(|value| method.add(MethodValue::Scalar(Scalar::Int(*value))));
                let values = values.collect();
                method.add(MethodValue::Ints(values))
            }
        };
        match arg {
            Input(_) => method.inputs.push(index),
            Out(_) | Indices(_) => method.outputs.push(index),
            _ => {}
        }
        indices.push(index);
    }
    let (name, overload) = name.split_once('.').unwrap_or((name, ""));
    // Kernels return their last output, once more.
    indices.push(*indices.last().unwrap());
    let (name, overload) = (name.to_owned(), overload.to_owned());
    method.instructions = vec![Instruction::Kernel { name, overload, args: indices }];
    let program = Program { methods: vec![method], named: Vec::new() };
    program.write().unwrap().to_bytes()
}

fn inputs(args: &[Arg]) -> Vec<Value> {
    let sizes = args.iter().filter_map(|arg| match arg {
        Input(sizes) => Some(sizes.iter().map(|size| *size as usize).collect::<Vec<_>>()),
        _ => None,
    });
    let made = sizes
        .zip(3..)
        .map(|(sizes, seed)| Value::from(Tensor::rand(ScalarType::Float, &sizes, seed).unwrap()));
    made.collect()
}

/// One thread, which counts how often it is asked whether the run was cancelled, and says so from
/// a certain question on.
struct Counting {
    asked: AtomicUsize,
    cancel_at: AtomicUsize,
}

impl Counting {
    fn new() -> Arc<Self> {
        Arc::new(Counting { asked: 0.into(), cancel_at: usize::MAX.into() })
    }

    fn restart(&self, cancel_at: usize) {
        self.asked.store(0, Ordering::Relaxed);
        self.cancel_at.store(cancel_at, Ordering::Relaxed);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Parallel for Counting {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }

    fn is_cancelled(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.cancel_at.load(Ordering::Relaxed)
    }
}

/// Calls of all families that can take long. None of them takes longer than some seconds where
/// kernels are not optimised, and each asks at least twenty times.
fn calls() -> Vec<(&'static str, Vec<Arg>)> {
    let square = |n: i32| vec![n, n];
    let wide = vec![64, 65_536];
    let image = vec![1, 8, 96, 96];
    vec![
        ("aten::mm.out", vec![Input(square(512)), Input(square(512)), Out(square(512))]),
        (
            "aten::bmm.out",
            vec![Input(vec![40, 64, 64]), Input(vec![40, 64, 64]), Out(vec![40, 64, 64])],
        ),
        ("aten::exp.out", vec![Input(vec![1 << 26]), Out(vec![1 << 26])]),
        (
            "aten::convolution.out",
            vec![
                Input(image.clone()),
                Input(vec![8, 8, 3, 3]),
                Null,
                Ints(vec![1, 1]),
                Ints(vec![1, 1]),
                Ints(vec![1, 1]),
                Bool(false),
                Ints(vec![0, 0]),
                Int(1),
                Out(image),
            ],
        ),
        ("aten::_softmax.out", vec![Input(wide.clone()), Int(1), Bool(false), Out(wide.clone())]),
        ("aten::cumsum.out", vec![Input(wide.clone()), Int(1), Null, Out(wide.clone())]),
        (
            "aten::sort.values",
            vec![
                Input(wide.clone()),
                Int(1),
                Bool(false),
                Out(wide.clone()),
                Indices(wide.clone()),
            ],
        ),
        (
            "aten::permute_copy.out",
            vec![Input(vec![4096, 4096]), Ints(vec![1, 0]), Out(vec![4096, 4096])],
        ),
        ("aten::linalg_matrix_exp.out", vec![Input(square(128)), Out(square(128))]),
        ("aten::linalg_polar.out", vec![Input(square(64)), Out(square(64)), Out(square(64))]),
    ]
}

/// How often an operator has to ask at least.
const ASKED: usize = 20;

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn operators_ask_often_and_end_when_they_are_told() {
    for run_on in [RunOn::AsExported, RunOn::Cpu] {
        for (name, args) in calls() {
            let counting = Counting::new();
            let builder = Module::builder().without_default_backends().run_on(run_on.clone());
            let builder = builder.parallel(counting.clone());
            let mut module = builder.from_bytes(program(name, &args)).unwrap();
            let inputs = inputs(&args);
            module.load_method("forward").unwrap();
            counting.restart(usize::MAX);
            let expected = module.execute("forward", &inputs).unwrap();
            let asked = counting.asked();
            assert!(asked >= ASKED, "{name} {run_on:?}: asked {asked} times");
            // Told so half-way, it leaves the rest out.
            counting.restart(asked / 2);
            let error = module.execute("forward", &inputs).unwrap_err();
            assert!(error.to_string().contains("the run was cancelled"), "{name}: {error}");
            counting.restart(usize::MAX);
            assert_eq!(module.execute("forward", &inputs).unwrap(), expected, "{name}");
            assert_eq!(counting.asked(), asked, "{name}");
        }
    }
}

/// A run on a device is not waited for once it is cancelled. What comes next waits, so that it
/// neither reads nor writes what the device is at work on.
#[cfg(feature = "vulkan")]
#[test]
#[cfg_attr(miri, ignore = "uses a device")]
fn runs_on_a_device_end_when_they_are_cancelled() {
    use std::time::{Duration, Instant};
    if !device::device_is_there() {
        return;
    }
    let size = vec![1536, 1536];
    let args = [Input(size.clone()), Input(size.clone()), Out(size)];
    let mut module = device::on_device().from_bytes(program("aten::mm.out", &args)).unwrap();
    let inputs = inputs(&args);
    let expected = module.execute("forward", &inputs).unwrap();
    let start = Instant::now();
    module.execute("forward", &inputs).unwrap();
    let whole = start.elapsed();
    let canceller = module.canceller();
    for share in [10, 3] {
        let (start, other) = (Instant::now(), canceller.clone());
        let cancelling = std::thread::spawn(move || {
            std::thread::sleep(whole / share);
            other.cancel();
            Instant::now()
        });
        let result = module.execute("forward", &inputs);
        let (end, cancelled) = (Instant::now(), cancelling.join().unwrap());
        canceller.resume();
        // A busy machine may be done before it is cancelled; a device never is so soon.
        if let Err(error) = result {
            assert!(error.to_string().contains("the run was cancelled"), "{error}");
            let late = end.saturating_duration_since(cancelled);
            assert!(late < Duration::from_millis(50).max(whole / 4), "{late:?} of {whole:?}");
        } else {
            assert!(start.elapsed() > whole / share, "a cancelled run ended without an error");
        }
        assert_eq!(module.execute("forward", &inputs).unwrap(), expected);
    }
}
