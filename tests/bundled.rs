//! Every bundled program under `tests/fixtures` matches PyTorch's outputs.

mod common;

use common::{Fixture, MISSING, check, check_all, fixtures, open};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::{Bool, Registry};
use torchlet::{Module, Tensor};

/// Backends of fixtures that are tested elsewhere: in core's tests, in `vulkan/`, and in
/// `processors.rs` for programs that are compiled wherever they run.
const OTHER_BACKENDS: &[&str] = &[
    "BackendWithCompilerDemo",
    "BackendWithNamedDataMap",
    "TOSABackend",
    "VgfBackend",
    "VulkanBackend",
    "XnnpackBackend",
];

/// Runs all cases of a file in order.
fn verify(fixture: &Fixture, threads: usize) -> Result<usize, String> {
    let module = open(fixture, Module::builder().threads(threads)).map_err(|e| e.to_string())?;
    check(&mut module.share(), &module, fixture)
}

/// Runs `check` on all fixtures.
fn over_all(check: impl Fn(&Fixture) -> Result<(), String> + Sync) -> Vec<String> {
    let fixtures = fixtures();
    assert!(fixtures.len() > 1000, "the manifest lists {} files", fixtures.len());
    check_all(&fixtures, check)
}

fn runs(fixture: &Fixture) -> bool {
    fixture.operators.iter().all(|operator| !MISSING.contains(&operator.as_str()))
        && fixture.backends.is_empty()
}

#[test]
fn outputs_match_pytorch() {
    let cases = AtomicUsize::new(0);
    let failures = over_all(|fixture| {
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
fn results_are_independent_of_threads() {
    let failures = over_all(|fixture| {
        if !runs(fixture) || !matches!(fixture.kind.as_str(), "model" | "digits" | "tinyml") {
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

/// Verifies that the comparison can fail.
#[test]
fn comparisons_detect_differences() {
    let a = Tensor::from_slice(&[2], &[1.0f32, f32::NAN]).unwrap();
    let b = Tensor::from_slice(&[2], &[1.001f32, f32::NAN]).unwrap();
    let t = Tensor::from_slice(&[1], &[Bool::new(true)]).unwrap();
    let f = Tensor::from_slice(&[1], &[Bool::new(false)]).unwrap();
    assert!(a.compare(&a, 1e-4, 1e-5).unwrap().is_close());
    assert!(!a.compare(&b, 1e-4, 1e-5).unwrap().is_close());
    assert!(!t.compare(&f, 1e-4, 1e-5).unwrap().is_close());
}
