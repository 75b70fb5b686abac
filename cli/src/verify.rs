//! `torchlet verify`.

use crate::arguments::{ModelOptions, VerifyArguments};
use crate::failure::Failure;
use crate::terminal::{BAD, FAINT, GOOD, WARN, count, paint, progress};
use crate::{cases, model};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use torchlet::{Tensor, Value};

/// How far all outputs of a file were from the expected ones.
#[derive(Debug, Default)]
struct Distance {
    cases: usize,
    max_abs: f64,
    max_rel: f64,
    /// The first difference out of tolerance.
    difference: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Tolerance {
    rtol: f64,
    atol: f64,
}

/// What became of a file.
enum Outcome {
    Pass(Distance),
    Fail(Distance),
    Error(String),
}

/// Runs the test cases of bundled programs. Gives the status that the process ends with.
pub(crate) fn verify(arguments: &VerifyArguments) -> u8 {
    let tolerance = Tolerance { rtol: arguments.rtol, atol: arguments.atol };
    let bar = progress(arguments.files.len() as u64, "verifying");
    let (mut passed, mut failed, mut errors) = (0, 0, 0);
    for file in &arguments.files {
        let outcome = outcome(file, &arguments.model_options, tolerance);
        match outcome {
            Outcome::Pass(_) => passed += 1,
            Outcome::Fail(_) => failed += 1,
            Outcome::Error(_) => errors += 1,
        }
        bar.suspend(|| {
            if arguments.json {
                println!("{}", as_json(file, &outcome));
            } else {
                anstream::println!("{}", as_text(file, &outcome));
            }
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !arguments.json && arguments.files.len() > 1 {
        let mut parts = vec![paint(GOOD, format!("{passed} passed"))];
        if failed > 0 {
            parts.push(paint(BAD, format!("{failed} differ")));
        }
        if errors > 0 {
            parts.push(paint(WARN, format!("{errors} could not run")));
        }
        anstream::println!("{}", parts.join(", "));
    }
    match (failed, errors) {
        (0, 0) => 0,
        (_, 0) => 1,
        _ => 2,
    }
}

fn outcome(file: &Path, options: &ModelOptions, tolerance: Tolerance) -> Outcome {
    // A bug that one file meets shall not keep the others from being verified.
    let result = catch_unwind(AssertUnwindSafe(|| verify_file(file, options, tolerance)));
    match result {
        Ok(Ok(distance)) if distance.difference.is_none() => Outcome::Pass(distance),
        Ok(Ok(distance)) => Outcome::Fail(distance),
        Ok(Err(failure)) => Outcome::Error(failure.to_string()),
        Err(_) => Outcome::Error("torchlet panicked, which is a bug; please report it".into()),
    }
}

fn verify_file(
    file: &Path,
    options: &ModelOptions,
    tolerance: Tolerance,
) -> Result<Distance, Failure> {
    let module = model::open(file, options)?;
    let suites = cases::suites(&module)?;
    if suites.iter().all(|suite| suite.cases.is_empty()) {
        return Err(Failure::new(
            "there are no test cases in it; write it as a bundled program (.bpte) with some",
        ));
    }
    let mut distance = Distance::default();
    for suite in &suites {
        // Cases may be steps of one history: they run in order on one loaded method. What is expected of a method is what it
        // gives alone, so that others must not have left state that it shares with them.
        let mut runner = module.share();
        let mut method = runner.method(suite.method)?;
        for (number, case) in suite.cases.iter().enumerate() {
            let place = |what: String| {
                let method = suite.method;
                format!("method '{method}', case {number}: {what}")
            };
            let outputs = method
                .execute(&cases::inputs(case)?)
                .map_err(|error| Failure::new(place(Failure::from(error).to_string())))?;
            let expected = cases::expected_outputs(case)?;
            distance.cases += 1;
            if outputs.len() != expected.len() {
                let (expected, found) = (expected.len(), outputs.len());
                distance.differ(place(format!("{expected} outputs expected, found {found}")));
            }
            for (index, (output, expected)) in outputs.iter().zip(&expected).enumerate() {
                if let Some(what) = distance.compare(output, expected, tolerance) {
                    distance.differ(place(format!("output {index}: {what}")));
                }
            }
        }
    }
    Ok(distance)
}

impl Distance {
    fn differ(&mut self, what: String) {
        self.difference.get_or_insert(what);
    }

    /// Takes note of the distance; says what differs, if something is out of tolerance.
    fn compare(&mut self, found: &Value, expected: &Value, tolerance: Tolerance) -> Option<String> {
        let number = |value: &Value| match value {
            Value::Int(value) => Tensor::scalar(*value).ok(),
            Value::Float(value) => Tensor::scalar(*value).ok(),
            Value::Bool(value) => Tensor::from_bools(&[], &[*value]).ok(),
            Value::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        };
        if found.kind() != expected.kind() {
            return Some(format!("a {} is expected, found a {}", expected.kind(), found.kind()));
        }
        let (Some(found_tensor), Some(expected_tensor)) = (number(found), number(expected)) else {
            return (found != expected).then(|| format!("{expected} is expected, found {found}"));
        };
        let comparison =
            match found_tensor.compare(&expected_tensor, tolerance.rtol, tolerance.atol) {
                Ok(comparison) => comparison,
                Err(_) => {
                    let (found, expected) = (found_tensor.info(), expected_tensor.info());
                    return Some(format!("{expected} is expected, found {found}"));
                }
            };
        self.max_abs = self.max_abs.max(comparison.max_abs);
        self.max_rel = self.max_rel.max(comparison.max_rel);
        let first = comparison.first_mismatch?;
        let element = |tensor: &Tensor| {
            let elements = tensor.to_f64_vec().unwrap_or_default();
            elements.get(first).map_or("?".into(), f64::to_string)
        };
        Some(format!(
            "{} of {} elements differ; element {first} is {}, expected {}",
            comparison.mismatches,
            found_tensor.numel(),
            element(&found_tensor),
            element(&expected_tensor),
        ))
    }
}

fn as_json(file: &Path, outcome: &Outcome) -> serde_json::Value {
    let file = file.display().to_string();
    match outcome {
        Outcome::Pass(distance) | Outcome::Fail(distance) => {
            let status = if distance.difference.is_none() { "pass" } else { "fail" };
            json!({
                "file": file,
                "status": status,
                "cases": distance.cases,
                "max_abs": distance.max_abs,
                "max_rel": distance.max_rel,
                "error": distance.difference,
            })
        }
        Outcome::Error(error) => json!({
            "file": file,
            "status": "error",
            "cases": 0,
            "max_abs": null,
            "max_rel": null,
            "error": error,
        }),
    }
}

fn as_text(file: &Path, outcome: &Outcome) -> String {
    let file = file.display();
    match outcome {
        Outcome::Pass(distance) | Outcome::Fail(distance) => {
            let cases = count(distance.cases, "case");
            let far = match distance.max_abs {
                0.0 => format!("{cases}, exact"),
                far => format!("{cases}, off by at most {far:.1e}"),
            };
            match &distance.difference {
                None => format!("{} {file}  {}", paint(GOOD, "pass "), paint(FAINT, far)),
                Some(what) => format!("{} {file}  {far}\n      {what}", paint(BAD, "fail ")),
            }
        }
        Outcome::Error(error) => format!("{} {file}\n      {error}", paint(WARN, "error")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { rtol: 0.0, atol: 0.1 };

    #[test]
    fn values_of_all_kinds_are_compared() {
        let tensor = |values: &[f32]| Value::from(Tensor::from_slice(&[2], values).unwrap());
        let mut distance = Distance::default();
        let mut same = |found: Value, expected: Value| {
            distance.compare(&found, &expected, TOLERANCE).is_none()
        };
        assert!(same(tensor(&[1.0, f32::NAN]), tensor(&[1.05, f32::NAN])));
        assert!(!same(tensor(&[1.0, 2.0]), tensor(&[1.0, 2.5])));
        assert!(same(Value::Int(1), Value::Int(1)) && !same(Value::Int(1), Value::Int(2)));
        assert!(!same(Value::Int(1), Value::Float(1.0)));
        assert!(same(Value::None, Value::None) && !same(Value::None, Value::Bool(true)));
        assert!(same("a".into(), "a".into()) && !same("a".into(), "b".into()));
        assert!(same(Value::Float(0.5), Value::Float(0.55)));
        assert!(!same(tensor(&[1.0, 2.0]), Tensor::scalar(1.0f32).unwrap().into()));
        assert!((distance.max_abs - 1.0).abs() < 1e-12);
    }
}
