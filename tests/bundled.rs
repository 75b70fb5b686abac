//! Every bundled program under `tests/fixtures` gives PyTorch's numbers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::{Bool, ProgramError, Registry, ValueRef};
use torchlet::{Error, Module, Tensor, Value};

/// Operators that fixtures use and that there is no kernel for yet: the README's table names them too. A kernel that is
/// added comes off this list, or the test fails.
const MISSING: &[&str] = &["aten::_trilinear.out"];

/// Backends of the fixtures that the tests of core provide.
const OTHER_BACKENDS: &[&str] = &["BackendWithCompilerDemo", "BackendWithNamedDataMap"];

struct Fixture {
    file: String,
    kind: String,
    operators: Vec<String>,
    backends: Vec<String>,
    data: Vec<String>,
    rtol: f64,
    atol: f64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn fixtures() -> Vec<Fixture> {
    let manifest = std::fs::read_to_string(folder().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let entries = manifest.as_array().unwrap().iter();
    entries
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            let texts = |name: &str| {
                let list = entry[name].as_array().unwrap().iter();
                list.map(|text| text.as_str().unwrap().to_owned()).collect()
            };
            let number = |name: &str| entry[name].as_f64().unwrap();
            Fixture {
                file: text("file"),
                kind: text("kind"),
                operators: texts("operators"),
                backends: texts("backends"),
                data: texts("data"),
                rtol: number("rtol"),
                atol: number("atol"),
            }
        })
        .collect()
}

fn value(value: Result<ValueRef<'_>, ProgramError>) -> Result<Value, String> {
    Ok(match value.map_err(|error| error.to_string())? {
        ValueRef::Scalar(scalar) => scalar.into(),
        ValueRef::String(text) => text.into(),
        ValueRef::Tensor(tensor) => {
            Tensor::try_from(&tensor).map_err(|error: Error| error.to_string())?.into()
        }
        _ => Value::None,
    })
}

/// Runs all cases of a file in order; what differs, or the reason why it does not run.
fn verify(fixture: &Fixture, threads: usize) -> Result<usize, String> {
    let mut builder = Module::builder().threads(threads);
    for data in &fixture.data {
        builder = builder.data(folder().join(data));
    }
    let module = builder.load(folder().join(&fixture.file)).map_err(|error| error.to_string())?;
    let bundle = module.bundled().ok_or("is not a bundled program")?;
    let mut runner = module.share();
    let mut cases = 0;
    for suite in bundle.suites().map_err(|error| error.to_string())? {
        let suite = suite.map_err(|error| error.to_string())?;
        let method = suite.method_name().map_err(|error| error.to_string())?;
        for (number, case) in suite.cases().map_err(|error| error.to_string())?.enumerate() {
            let case = case.map_err(|error| error.to_string())?;
            let inputs: Result<Vec<Value>, String> =
                case.inputs().map_err(|error| error.to_string())?.map(value).collect();
            let outputs = runner
                .execute(method, &inputs?)
                .map_err(|error| format!("{method}, case {number}: {error}"))?;
            let expected = case.expected_outputs().map_err(|error| error.to_string())?;
            for (index, expected) in expected.enumerate() {
                let found = outputs
                    .get(index)
                    .ok_or(format!("case {number}: output {index} is missing"))?;
                compare(found, &value(expected)?, fixture)
                    .map_err(|what| format!("{method}, case {number}, output {index}: {what}"))?;
            }
            cases += 1;
        }
    }
    Ok(cases)
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

/// Runs `check` over all fixtures on all processors, and gives what failed.
fn check_all(check: impl Fn(&Fixture) -> Result<(), String> + Sync) -> Vec<String> {
    let fixtures = fixtures();
    assert!(fixtures.len() > 1000, "the manifest lists {} files", fixtures.len());
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

fn runs(fixture: &Fixture) -> bool {
    fixture.operators.iter().all(|operator| !MISSING.contains(&operator.as_str()))
        && fixture.backends.is_empty()
}

#[test]
fn outputs_are_pytorchs() {
    let cases = AtomicUsize::new(0);
    let failures = check_all(|fixture| {
        if !runs(fixture) {
            return Ok(());
        }
        let count = verify(fixture, 1)?;
        cases.fetch_add(count, Ordering::Relaxed);
        Ok(())
    });
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
    assert!(
        cases.load(Ordering::Relaxed) > 2000,
        "only {} cases ran",
        cases.load(Ordering::Relaxed)
    );
}

#[test]
fn threads_change_nothing() {
    let failures = check_all(|fixture| {
        if !runs(fixture) || !matches!(fixture.kind.as_str(), "model" | "digits") {
            return Ok(());
        }
        verify(fixture, 3).map(drop)
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn missing_operators_are_known() {
    let registry = Registry::new().with_kernels(&torchlet::portable::KERNELS).unwrap();
    let used: BTreeSet<String> =
        fixtures().into_iter().flat_map(|fixture| fixture.operators).collect();
    let missing: Vec<&str> =
        used.iter().map(String::as_str).filter(|name| !registry.has_operator(name)).collect();
    assert_eq!(missing, MISSING, "operators of the fixtures without a kernel");
    let backends: BTreeSet<String> =
        fixtures().into_iter().flat_map(|fixture| fixture.backends).collect();
    assert!(backends.iter().all(|backend| OTHER_BACKENDS.contains(&backend.as_str())));
}

/// A comparison that cannot fail would prove nothing.
#[test]
fn comparisons_notice_differences() {
    let a = Tensor::from_slice(&[2], &[1.0f32, f32::NAN]).unwrap();
    let b = Tensor::from_slice(&[2], &[1.001f32, f32::NAN]).unwrap();
    let t = Tensor::from_slice(&[1], &[Bool::new(true)]).unwrap();
    let f = Tensor::from_slice(&[1], &[Bool::new(false)]).unwrap();
    assert!(a.compare(&a, 1e-4, 1e-5).unwrap().is_close());
    assert!(!a.compare(&b, 1e-4, 1e-5).unwrap().is_close());
    assert!(!t.compare(&f, 1e-4, 1e-5).unwrap().is_close());
}
