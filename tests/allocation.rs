//! Allocation failures, at each allocation whose size a file determines: loading and running return
//! an error and never abort.
//!
//! An unhandled allocation failure ends the process, so a child process tries them in turn and
//! prints the current one.

#![cfg(all(feature = "std", feature = "portable"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::{Module, RunOn, Value};

#[path = "common/single_call.rs"]
mod single_call;
use single_call::Arg::{self, Bool, Indices, Input, Int, Out};
use single_call::{inputs, program};

/// Smaller allocations always succeed: they are proportional to lists in the file.
const MIN_FAILING_SIZE: usize = 64 << 10;
/// Set in the child process.
const CHILD: &str = "TORCHLET_TEST_ALLOCATION";

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
        size >= MIN_FAILING_SIZE
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

/// Opens the program and runs it.
fn load_and_run(bytes: &[u8], inputs: &[Value], run_on: RunOn) -> Result<(), torchlet::Error> {
    let mut module = Module::builder().threads(1).run_on(run_on).from_bytes(bytes.to_vec())?;
    module.execute("forward", inputs).map(drop)
}

/// Calls with large tensors, packed weights and scratch memory.
fn calls() -> Vec<(&'static str, Vec<Arg>)> {
    let square = vec![256, 256];
    vec![
        ("aten::mm.out", vec![Input(square.clone()), Input(square.clone()), Out(square.clone())]),
        (
            "aten::sort.values",
            vec![Input(square.clone()), Int(1), Bool(false), Out(square.clone()), Indices(square)],
        ),
    ]
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn failed_allocations_are_errors() {
    let targets = [("as exported", RunOn::AsExported), ("cpu", RunOn::Cpu)];
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
    for (name, args) in calls() {
        let (bytes, inputs) = (program(name, &args), inputs(&args));
        for (label, target) in &targets {
            // Initialises process-wide data first.
            load_and_run(&bytes, &inputs, *target).unwrap();
            let mut failed = 0;
            for at in 0.. {
                println!("{name}, {label}: allocation {at} fails");
                REMAINING.store(at, Ordering::SeqCst);
                let result = load_and_run(&bytes, &inputs, *target);
                let was_reached = REMAINING.swap(usize::MAX, Ordering::SeqCst) == usize::MAX;
                if !was_reached {
                    result.unwrap();
                    println!("tried {at} allocations of {name}, {label}: {failed} stderr");
                    assert!(failed > 0, "{name}, {label}");
                    break;
                }
                failed += usize::from(result.is_err());
            }
        }
    }
}
