//! Cancellation inside operators: how often kernels check for it, and that the run ends soon.

#![cfg(all(feature = "std", feature = "portable"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use torchlet::core::Parallel;
use torchlet::{Module, RunOn};

#[path = "common/single_call.rs"]
mod single_call;
use single_call::Arg::{self, Bool, Indices, Input, Int, Ints, Null, Out};
use single_call::{inputs, program};

#[cfg(feature = "vulkan")]
#[path = "common/vulkan.rs"]
mod device;

/// A single thread that counts cancellation checks, and reports cancellation from a given check on.
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

/// Calls of all operator families that can be slow, and the minimum number of cancellation checks
/// of each: one before each piece of work of a few milliseconds.
fn calls() -> Vec<(&'static str, usize, Vec<Arg>)> {
    let square = |n: i32| vec![n, n];
    let (wide, image) = (vec![64, 8_192], vec![1, 16, 256, 256]);
    let images = vec![40, 64, 64];
    vec![
        ("aten::mm.out", 8, vec![Input(square(1024)), Input(square(1024)), Out(square(1024))]),
        ("aten::bmm.out", 40, vec![Input(images.clone()), Input(images.clone()), Out(images)]),
        ("aten::exp.out", 2, vec![Input(vec![1 << 22]), Out(vec![1 << 22])]),
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
        // A single row.
        (
            "aten::sort.values",
            8,
            vec![
                Input(vec![1 << 21]),
                Int(0),
                Bool(false),
                Out(vec![1 << 21]),
                Indices(vec![1 << 21]),
            ],
        ),
        (
            "aten::permute_copy.out",
            2,
            vec![Input(square(2048)), Ints(vec![1, 0]), Out(square(2048))],
        ),
        ("aten::linalg_matrix_exp.out", 128, vec![Input(square(64)), Out(square(64))]),
        ("aten::linalg_polar.out", 64, vec![Input(square(48)), Out(square(48)), Out(square(48))]),
    ]
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn operators_check_for_cancellation() {
    for run_on in [RunOn::AsExported, RunOn::Cpu] {
        for (name, least, args) in calls() {
            let counting = Counting::new();
            let builder = || {
                let builder = Module::builder().run_on(run_on);
                builder.parallel(counting.clone())
            };
            let mut module = builder().from_bytes(program(name, &args)).unwrap();
            let inputs = inputs(&args);
            module.load_method("forward").unwrap();
            counting.restart(usize::MAX);
            let expected = module.execute("forward", &inputs).unwrap();
            let asked = counting.asked();
            assert!(asked >= least, "{name} {run_on:?}: asked {asked} times");
            // Cancelled half-way, it skips the rest.
            counting.restart(asked / 2);
            let error = module.execute("forward", &inputs).unwrap_err();
            assert!(error.to_string().contains("the run was cancelled"), "{name}: {error}");
            counting.restart(usize::MAX);
            assert_eq!(module.execute("forward", &inputs).unwrap(), expected, "{name}");
            assert_eq!(counting.asked(), asked, "{name}");
            // Loading does not check: weights are always packed completely.
            counting.restart(0);
            let mut other = builder().from_bytes(program(name, &args)).unwrap();
            other.load_method("forward").unwrap();
            counting.restart(usize::MAX);
            assert_eq!(other.execute("forward", &inputs).unwrap(), expected, "{name}");
        }
    }
}

/// Runs that would take many seconds end soon after another thread cancels them.
#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn cancelled_runs_end_in_bounded_time() {
    // Usually tens of milliseconds; other tests may occupy all processors.
    const LIMIT: Duration = Duration::from_secs(2);
    let (square, row) = (vec![4096, 4096], vec![1 << 25]);
    for (name, args) in [
        ("aten::mm.out", vec![Input(square.clone()), Input(square.clone()), Out(square)]),
        (
            "aten::sort.values",
            vec![Input(row.clone()), Int(0), Bool(false), Out(row.clone()), Indices(row)],
        ),
        ("aten::linalg_matrix_exp.out", vec![Input(vec![768, 768]), Out(vec![768, 768])]),
    ] {
        let mut module =
            Module::builder().run_on(RunOn::AsExported).from_bytes(program(name, &args)).unwrap();
        let inputs = inputs(&args);
        module.load_method("forward").unwrap();
        let canceller = module.canceller();
        let (begun, begins) = std::sync::mpsc::channel();
        let run = std::thread::spawn(move || {
            begun.send(()).unwrap();
            let error = module.execute("forward", &inputs).unwrap_err();
            (error.to_string(), Instant::now())
        });
        begins.recv().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let cancelled = Instant::now();
        canceller.cancel();
        let (error, ended) = run.join().unwrap();
        assert!(error.contains("the run was cancelled"), "{name}: {error}");
        let waited = ended.saturating_duration_since(cancelled);
        assert!(waited < LIMIT, "{name}: {waited:?}");
    }
}

/// A cancelled run does not wait for the device. The next operation waits instead, so that it
/// neither reads, writes nor frees memory that the device still uses.
#[cfg(feature = "vulkan")]
#[test]
#[cfg_attr(miri, ignore = "uses a device")]
fn gpu_runs_can_be_cancelled() {
    if !device::device_is_there() {
        return;
    }
    let size = vec![768, 768];
    let args = [Input(size.clone()), Input(size.clone()), Out(size)];
    let (bytes, inputs) = (program("aten::mm.out", &args), inputs(&args));
    let counting = Counting::new();
    let open = || {
        let builder = device::on_device().parallel(counting.clone());
        builder.from_bytes(bytes.clone()).unwrap()
    };
    let mut module = open();
    let expected = module.execute("forward", &inputs).unwrap();
    let mut cancelled = 0;
    // The first check precedes the submission; the others happen while the device works.
    for cancel_at in [0, 1, 2, 1, 2] {
        counting.restart(cancel_at);
        let result = module.execute("forward", &inputs);
        if counting.asked() > cancel_at {
            let error = result.unwrap_err();
            assert!(error.to_string().contains("the run was cancelled"), "{error}");
            cancelled += 1;
        } else {
            // A fast device finishes before the first check.
            assert_eq!(result.unwrap(), expected);
        }
        counting.restart(usize::MAX);
        match cancelled % 3 {
            0 => module.reset("forward").unwrap(),
            // Frees memory that the next load reuses.
            1 => module = open(),
            _ => {}
        }
        assert_eq!(module.execute("forward", &inputs).unwrap(), expected);
    }
    assert!(cancelled > 0);
}
