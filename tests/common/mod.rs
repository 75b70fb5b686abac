//! Shared helpers of tests over fixtures: the manifest, running a file's test cases, comparing with
//! PyTorch's outputs.

// Each test target uses only a part.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::{ProgramError, TestCase, ValueRef};
use torchlet::graph::front::runs_only_compiled;
use torchlet::{Error, Module, ModuleBuilder, RunOn, Tensor, Value};

/// An entry of the manifest.
pub(crate) struct Fixture {
    pub(crate) file: String,
    pub(crate) kind: String,
    pub(crate) operators: Vec<String>,
    pub(crate) backends: Vec<String>,
    /// Operators inside Vulkan delegates.
    pub(crate) delegated: Vec<String>,
    pub(crate) data: Vec<String>,
    pub(crate) rtol: f64,
    pub(crate) atol: f64,
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// All entries of the manifest.
pub(crate) fn fixtures() -> Vec<Fixture> {
    let manifest = std::fs::read_to_string(folder().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let entries = manifest.as_array().unwrap().iter();
    entries
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            let texts = |name: &str| {
                let list = entry[name].as_array().into_iter().flatten();
                list.map(|text| text.as_str().unwrap().to_owned()).collect()
            };
            let number = |name: &str| entry[name].as_f64().unwrap();
            Fixture {
                file: text("file"),
                kind: text("kind"),
                operators: texts("operators"),
                backends: texts("backends"),
                delegated: texts("delegated"),
                data: texts("data"),
                rtol: number("rtol"),
                atol: number("atol"),
            }
        })
        .collect()
}

/// Operators of fixtures without a kernel; the README's table also lists them. `bundled.rs` fails
/// if a kernel for one of them exists.
pub(crate) const MISSING: &[&str] = &[];

/// Programs that have kernels and backends, or that can be compiled for them.
pub(crate) fn programs() -> Vec<Fixture> {
    let known = |fixture: &Fixture| {
        fixture
            .backends
            .iter()
            .all(|backend| backend == "VulkanBackend" || runs_only_compiled(backend))
            && !fixture.operators.iter().any(|name| MISSING.contains(&name.as_str()))
    };
    let programs: Vec<Fixture> = fixtures().into_iter().filter(known).collect();
    assert!(programs.len() > 1500, "the manifest lists {} programs", programs.len());
    programs
}

/// Tolerance for programs exported for CPUs: elementary functions of GPUs are less accurate.
pub(crate) const GPU_TOLERANCE: f64 = 1e-3;

/// Programs whose outputs differ on GPUs: the fp16 square root of minus infinity is infinite there,
/// and quantized NaN is zero.
pub(crate) const OTHERS_ON_GPUS: &[&str] =
    &["ops/library/pow_half_root.bpte", "ops/library/quantize_nan.bpte"];

/// Programs whose outputs match on GPUs, with the tolerances for GPUs.
pub(crate) fn programs_for_gpus() -> Vec<Fixture> {
    let mut programs = programs();
    programs.retain(|fixture| !OTHERS_ON_GPUS.contains(&fixture.file.as_str()));
    let is_for_gpus =
        |fixture: &Fixture| fixture.backends.iter().any(|name| name == "VulkanBackend");
    for fixture in programs.iter_mut().filter(|fixture| !is_for_gpus(fixture)) {
        fixture.rtol = fixture.rtol.max(GPU_TOLERANCE);
        fixture.atol = fixture.atol.max(GPU_TOLERANCE);
    }
    programs
}

/// Programs with sums exactly half-way between two quantization steps, and the step. PyTorch and
/// GPUs round ties to even; integer kernels, like CMSIS-NN, round away from zero.
const TIES: [(&str, f64); 4] = [
    ("vulkan/quantized_halves/convolutions.bpte", 0.5),
    ("vulkan/quantized_halves/product.bpte", 0.03125),
    ("vulkan/quantized_halves/product_one.bpte", 0.03125),
    ("vulkan/quantized_places/separable.bpte", 0.01154),
];

/// Allows integer kernels to be off by one step at ties.
pub(crate) fn allow_steps_at_ties(fixtures: &mut [Fixture]) {
    for (file, step) in TIES {
        let found = fixtures.iter_mut().find(|fixture| fixture.file == file);
        found.unwrap().atol = step;
    }
}

/// Runs all test cases of the programs with the module that `runner` creates for each.
pub(crate) fn check_programs(
    programs: &[Fixture],
    runner: impl Fn(&Fixture, &Module) -> Result<Module, String> + Sync,
) {
    let cases = AtomicUsize::new(0);
    let failures = check_all(programs, |fixture| {
        let source = open(fixture, Module::builder().run_on(RunOn::AsExported));
        let source = source.map_err(|error| error.to_string())?;
        let mut runner = runner(fixture, &source)?;
        cases.fetch_add(check(&mut runner, &source, fixture)?, Ordering::Relaxed);
        Ok(())
    });
    println!("{} cases of {} programs", cases.into_inner(), programs.len());
    assert!(failures.is_empty(), "{} programs differ:\n{}", failures.len(), failures.join("\n"));
}

/// Manifest entry of a file.
pub(crate) fn fixture(file: &str) -> Fixture {
    let found = fixtures().into_iter().find(|fixture| fixture.file == file);
    found.unwrap_or_else(|| panic!("{file} is not in the manifest"))
}

/// Opens a fixture with its data files.
pub(crate) fn open(fixture: &Fixture, mut builder: ModuleBuilder) -> Result<Module, Error> {
    for data in &fixture.data {
        builder = builder.data(folder().join(data));
    }
    builder.load(folder().join(&fixture.file))
}

/// A value of a test case.
pub(crate) fn value(value: Result<ValueRef<'_>, ProgramError>) -> Result<Value, String> {
    Ok(match value.map_err(|error| error.to_string())? {
        ValueRef::Scalar(scalar) => scalar.into(),
        ValueRef::String(text) => text.into(),
        ValueRef::Tensor(tensor) => {
            Tensor::try_from(&tensor).map_err(|error: Error| error.to_string())?.into()
        }
        _ => Value::None,
    })
}

/// The inputs of a test case.
pub(crate) fn inputs(case: &TestCase<'_>) -> Result<Vec<Value>, String> {
    case.inputs().map_err(|error| error.to_string())?.map(value).collect()
}

/// Runs all test cases in order on `runner`, a module over the bundled program `source`. Returns
/// the number of cases, or a description of the difference.
///
/// Expected outputs assume that each method runs alone: state shared with earlier methods is reset.
pub(crate) fn check(
    runner: &mut Module,
    source: &Module,
    fixture: &Fixture,
) -> Result<usize, String> {
    let bundle = source.bundled().ok_or("is not a bundled program")?;
    let mut cases = 0;
    let mut previous: Option<&str> = None;
    for suite in bundle.suites().map_err(|error| error.to_string())? {
        let suite = suite.map_err(|error| error.to_string())?;
        let method = suite.method_name().map_err(|error| error.to_string())?;
        if let Some(previous) = previous.replace(method) {
            runner.reset(previous).map_err(|error| error.to_string())?;
        }
        for (number, case) in suite.cases().map_err(|error| error.to_string())?.enumerate() {
            let case = case.map_err(|error| error.to_string())?;
            let place = format!("{method}, case {number}");
            check_case(runner, method, &case, fixture)
                .map_err(|what| format!("{place}: {what}"))?;
            cases += 1;
        }
    }
    Ok(cases)
}

/// Runs one test case.
pub(crate) fn check_case(
    runner: &mut Module,
    method: &str,
    case: &TestCase<'_>,
    fixture: &Fixture,
) -> Result<(), String> {
    let outputs = runner.execute(method, &inputs(case)?).map_err(|error| error.to_string())?;
    let expected = case.expected_outputs().map_err(|error| error.to_string())?;
    let expected = expected.map(value).collect::<Result<Vec<_>, _>>()?;
    if outputs.len() != expected.len() {
        return Err(format!("{} outputs instead of {}", outputs.len(), expected.len()));
    }
    for (index, (found, expected)) in outputs.iter().zip(&expected).enumerate() {
        compare(found, expected, fixture).map_err(|what| format!("output {index}: {what}"))?;
    }
    Ok(())
}

fn compare(found: &Value, expected: &Value, fixture: &Fixture) -> Result<(), String> {
    match (found, expected) {
        (Value::Tensor(found), Value::Tensor(expected)) => {
            let comparison = found
                .compare(expected, fixture.rtol, fixture.atol)
                .map_err(|error: Error| error.to_string())?;
            if comparison.is_close() { Ok(()) } else { Err(format!("{comparison:?}")) }
        }
        (found, expected) if found == expected => Ok(()),
        (found, expected) => Err(format!("{found:?}, expected {expected:?}")),
    }
}

/// Runs `check` on fixtures in parallel on all CPU cores, and returns the failures.
pub(crate) fn check_all(
    fixtures: &[Fixture],
    check: impl Fn(&Fixture) -> Result<(), String> + Sync,
) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| {
                while let Some(fixture) = fixtures.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) = check(fixture) {
                        failures.lock().unwrap().push(format!("{}: {what}", fixture.file));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    failures
}
