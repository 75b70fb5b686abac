//! Runs that are cancelled inside an operator: how often operators ask, and that the run ends soon.

#![cfg(all(feature = "std", feature = "portable"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::Parallel;
use torchlet::{Module, RunOn};

#[path = "common/single_call.rs"]
mod single_call;
use single_call::Arg::{self, Bool, Indices, Input, Int, Ints, Null, Out};
use single_call::{inputs, program};

#[cfg(feature = "vulkan")]
#[path = "common/vulkan.rs"]
mod device;

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

/// Calls of all families that can take long, and how often each has to ask at least: before pieces
/// of work of some milliseconds.
fn calls() -> Vec<(&'static str, usize, Vec<Arg>)> {
    let square = |n: i32| vec![n, n];
    let (wide, image) = (vec![64, 16_384], vec![1, 16, 256, 256]);
    let images = vec![40, 64, 64];
    vec![
        ("aten::mm.out", 8, vec![Input(square(1024)), Input(square(1024)), Out(square(1024))]),
        ("aten::bmm.out", 40, vec![Input(images.clone()), Input(images.clone()), Out(images)]),
        ("aten::exp.out", 8, vec![Input(vec![1 << 24]), Out(vec![1 << 24])]),
        (
            "aten::convolution.out",
            2,
            vec![
                Input(image.clone()),
                Input(vec![16, 16, 3, 3]),
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
        (
            "aten::_softmax.out",
            64,
            vec![Input(wide.clone()), Int(1), Bool(false), Out(wide.clone())],
        ),
        ("aten::cumsum.out", 64, vec![Input(wide.clone()), Int(1), Null, Out(wide.clone())]),
        (
            "aten::sort.values",
            64,
            vec![Input(wide.clone()), Int(1), Bool(false), Out(wide.clone()), Indices(wide)],
        ),
        (
            "aten::permute_copy.out",
            8,
            vec![Input(square(4096)), Ints(vec![1, 0]), Out(square(4096))],
        ),
        ("aten::linalg_matrix_exp.out", 128, vec![Input(square(64)), Out(square(64))]),
        ("aten::linalg_polar.out", 64, vec![Input(square(48)), Out(square(48)), Out(square(48))]),
    ]
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn operators_ask_often_and_end_when_they_are_told() {
    for run_on in [RunOn::AsExported, RunOn::Cpu] {
        for (name, least, args) in calls() {
            let counting = Counting::new();
            let builder = Module::builder().without_default_backends().run_on(run_on.clone());
            let builder = builder.parallel(counting.clone());
            let mut module = builder.from_bytes(program(name, &args)).unwrap();
            let inputs = inputs(&args);
            module.load_method("forward").unwrap();
            counting.restart(usize::MAX);
            let expected = module.execute("forward", &inputs).unwrap();
            let asked = counting.asked();
            assert!(asked >= least, "{name} {run_on:?}: asked {asked} times");
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
    let size = vec![768, 768];
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
