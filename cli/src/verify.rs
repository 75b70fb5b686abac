//! `torchlet verify`.

use crate::arguments::{ModelOptions, VerifyArguments};
use crate::budget::Budget;
use crate::diff::expose::Precision;
use crate::failure::Failure;
use crate::terminal::{BAD, FAINT, GOOD, WARN, count, paint, progress};
use crate::{cases, model};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use torchlet::{ScalarType, Tensor, Value};

/// Largest differences between outputs and expected outputs of a file.
#[derive(Debug, Default)]
struct Distance {
    cases: usize,
    max_abs: f64,
    max_rel: f64,
    /// The largest tolerances that were used.
    tolerance: Tolerance,
    /// The first value that is out of tolerance.
    difference: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Tolerance {
    rtol: f64,
    atol: f64,
}

/// Tolerances from the command line; `None` selects the defaults of an output.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Asked {
    rtol: Option<f64>,
    atol: Option<f64>,
}

/// Relative tolerance of a type, and the absolute tolerance as a share of the largest element.
fn shares(scalar_type: ScalarType) -> (f64, f64) {
    match scalar_type {
        ScalarType::Double | ScalarType::ComplexDouble => (1e-7, 1e-7),
        ScalarType::Float | ScalarType::ComplexFloat => (1e-5, 1e-4),
        ScalarType::Half | ScalarType::ComplexHalf => (5e-3, 2e-2),
        ScalarType::BFloat16 => (3e-2, 3e-2),
        _ => (0.0, 0.0),
    }
}

/// How exactly an output is computed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Exactness {
    /// The floating-point type with the fewest bits that the output depends on.
    coarsest: Option<ScalarType>,
    /// The output's quantization step.
    step: Option<f64>,
}

/// Whether a tensor has at most two different values: a step is the whole range then.
fn is_mask(tensor: &Tensor) -> bool {
    let values = tensor.to_f64_vec().unwrap_or_default();
    let Some(first) = values.first() else { return true };
    let other = values.iter().find(|value| *value != first);
    other.is_none_or(|other| values.iter().all(|value| value == first || value == other))
}

/// Of this many elements, one may be rounded to another quantized value. Means of few elements lie
/// in the middle between two steps often. If most elements are off, the result is wrong.
const ROUNDED_SHARE: usize = 3;

impl Asked {
    /// Returns the tolerance of an output. The rounding error of a sum is proportional to its
    /// terms, not to the result, so the absolute tolerance is relative to the largest element. In
    /// `float32`, deep networks differ between processors by some 10⁻⁵ of it. An output that is
    /// computed in a coarser type has the tolerance of that type. Quantized values next to the
    /// middle between two steps are rounded to either.
    fn tolerance(self, expected: &Tensor, exactness: Exactness) -> Tolerance {
        /// Values from here on are masks.
        const MASK: f64 = 1e8;
        /// Absolute tolerance of outputs that are all zero.
        const MIN: f64 = 1e-8;
        /// Rounding error of a quantized value that is multiplied by its step.
        const STEP: f64 = 1.0 + 1e-5;
        let scalar_type = expected.scalar_type();
        let (mut rtol, mut share) = shares(scalar_type);
        if let Some(coarsest) = exactness.coarsest.filter(|_| scalar_type.is_floating()) {
            let (coarse_rtol, coarse_share) = shares(coarsest);
            (rtol, share) = (rtol.max(coarse_rtol), share.max(coarse_share));
        }
        let largest = || {
            let values = expected.to_f64_vec().unwrap_or_default();
            let sizes = values.into_iter().filter(|value| value.is_finite()).map(f64::abs);
            // Masked logits have huge values that say nothing about the others.
            sizes.filter(|size| *size < MASK).fold(0.0, f64::max)
        };
        let default = || {
            let atol = if share > 0.0 { (share * largest()).max(MIN) } else { 0.0 };
            atol.max(exactness.step.unwrap_or(0.0) * STEP)
        };
        Tolerance { rtol: self.rtol.unwrap_or(rtol), atol: self.atol.unwrap_or_else(default) }
    }
}

impl std::fmt::Display for Tolerance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Tolerance { rtol: 0.0, atol: 0.0 } => f.write_str("no tolerance"),
            Tolerance { rtol, atol } => write!(f, "rtol {rtol:.0e}, atol {atol:.1e}"),
        }
    }
}

/// Result of verifying a file.
enum Outcome {
    Pass(Distance),
    Fail(Distance),
    Error(String),
}

/// Runs the test cases of bundled programs. Returns the exit status.
pub(crate) fn verify(arguments: &VerifyArguments) -> u8 {
    let tolerance = Asked { rtol: arguments.rtol, atol: arguments.atol };
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
            parts.push(paint(WARN, format!("{errors} failed to run")));
        }
        anstream::println!("{}", parts.join(", "));
    }
    match (failed, errors) {
        (0, 0) => 0,
        (_, 0) => 1,
        _ => 2,
    }
}

fn outcome(file: &Path, options: &ModelOptions, tolerance: Asked) -> Outcome {
    // A panic in one file must not prevent the verification of others.
    let result = catch_unwind(AssertUnwindSafe(|| verify_file(file, options, tolerance)));
    match result {
        Ok(Ok(distance)) if distance.difference.is_none() => Outcome::Pass(distance),
        Ok(Ok(distance)) => Outcome::Fail(distance),
        Ok(Err(failure)) => Outcome::Error(failure.to_string()),
        Err(_) => Outcome::Error("internal error: torchlet panicked; please report it".into()),
    }
}

fn verify_file(file: &Path, options: &ModelOptions, tolerance: Asked) -> Result<Distance, Failure> {
    let module = model::open(file, options)?;
    let suites = cases::suites(&module)?;
    if suites.iter().all(|suite| suite.cases.is_empty()) {
        return Err(Failure::new(
            "the file has no test cases; export it as a bundled program (.bpte) with test cases",
        ));
    }
    let mut distance = Distance::default();
    for suite in &suites {
        // Cases may be successive steps on mutable state, so they run in order on one loaded
        // method. The expected outputs of a method assume that no other method has changed shared
        // state, so each method gets its own module.
        let mut runner = module.share();
        let mut method = runner.method(suite.method)?;
        let memory_limit = options.memory_limit;
        let mut precision = None;
        for (number, case) in suite.cases.iter().enumerate() {
            let located = |what: String| {
                let method = suite.method;
                format!("method '{method}', case {number}: {what}")
            };
            let mut budget = Budget::beside(&method, memory_limit);
            let outputs = method
                .execute(&cases::inputs(case, &mut budget)?)
                .map_err(|error| Failure::new(located(Failure::from(error).to_string())))?;
            let expected = cases::expected_outputs(case, &mut budget)?;
            distance.cases += 1;
            if outputs.len() != expected.len() {
                let (expected, found) = (expected.len(), outputs.len());
                distance.differ(located(format!("expected {expected} outputs, found {found}")));
            }
            for (index, (output, expected)) in outputs.iter().zip(&expected).enumerate() {
                let plain = Exactness::default();
                let Some(what) = distance.compare(output, expected, tolerance, plain) else {
                    continue;
                };
                // Found only when needed, because it takes a copy of the program.
                let precision = precision.get_or_insert_with(|| {
                    // An opened module has the compiled program.
                    let exported = model::as_exported(file, &options.data).ok()?;
                    Precision::of(&exported, suite.method).ok()
                });
                let exactness = precision.as_ref().map_or(plain, |precision| Exactness {
                    coarsest: precision.coarsest.get(index).copied().flatten(),
                    step: precision.output_steps.get(index).copied().flatten().map(|step| step.0),
                });
                let what = match exactness == plain {
                    true => Some(what),
                    false => distance.compare(output, expected, tolerance, exactness),
                };
                if let Some(what) = what {
                    distance.differ(located(format!("output {index}: {what}")));
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

    /// Updates the maxima; returns a description if a value is out of tolerance.
    fn compare(
        &mut self,
        found: &Value,
        expected: &Value,
        asked: Asked,
        exactness: Exactness,
    ) -> Option<String> {
        let number = |value: &Value| match value {
            Value::Int(value) => Tensor::scalar(*value).ok(),
            Value::Float(value) => Tensor::scalar(*value).ok(),
            Value::Bool(value) => Tensor::from_bools(&[], &[*value]).ok(),
            Value::Tensor(tensor) => Some(tensor.clone()),
            _ => None,
        };
        if found.kind() != expected.kind() {
            return Some(format!("expected a {}, found a {}", expected.kind(), found.kind()));
        }
        let (Some(found_tensor), Some(expected_tensor)) = (number(found), number(expected)) else {
            return (found != expected).then(|| format!("expected {expected}, found {found}"));
        };
        let mut exactness = exactness;
        if is_mask(&expected_tensor) {
            exactness.step = None;
        }
        if exactness.step.is_some() {
            let tolerance =
                asked.tolerance(&expected_tensor, Exactness { step: None, ..exactness });
            let compared = found_tensor.compare(&expected_tensor, tolerance.rtol, tolerance.atol);
            let most = (found_tensor.numel() / ROUNDED_SHARE).max(1);
            if let Ok(compared) = compared
                && compared.mismatches > most
            {
                return Some(format!(
                    "{} of {} elements differ by a quantization step or more; at most {most} may \
                     ({tolerance}; set others with --rtol and --atol)",
                    compared.mismatches,
                    found_tensor.numel(),
                ));
            }
        }
        let tolerance = asked.tolerance(&expected_tensor, exactness);
        self.tolerance.rtol = self.tolerance.rtol.max(tolerance.rtol);
        self.tolerance.atol = self.tolerance.atol.max(tolerance.atol);
        let comparison =
            match found_tensor.compare(&expected_tensor, tolerance.rtol, tolerance.atol) {
                Ok(comparison) => comparison,
                Err(_) => {
                    let (found, expected) = (found_tensor.info(), expected_tensor.info());
                    return Some(format!("expected {expected}, found {found}"));
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
            "{} of {} elements differ; element {first} is {}, expected {} ({tolerance}; set \
             others with --rtol and --atol)",
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
                "rtol": distance.tolerance.rtol,
                "atol": distance.tolerance.atol,
                "error": distance.difference,
            })
        }
        Outcome::Error(error) => json!({
            "file": file,
            "status": "error",
            "cases": 0,
            "max_abs": null,
            "max_rel": null,
            "rtol": null,
            "atol": null,
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
                far => format!("{cases}, off by at most {far:.1e} ({})", distance.tolerance),
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

    const TOLERANCE: Asked = Asked { rtol: Some(0.0), atol: Some(0.1) };
    const PLAIN: Exactness = Exactness { coarsest: None, step: None };

    /// Sizes of the differences that PyTorch has between processors: the error of a sum with
    /// cancellation is proportional to its terms.
    #[test]
    fn elements_near_zero_get_the_tolerance_of_the_largest() {
        let tensor = |values: &[f32]| Value::from(Tensor::from_slice(&[2], values).unwrap());
        let (found, expected) = (tensor(&[10.0, 2e-4]), tensor(&[10.00001, 1e-6]));
        let mut distance = Distance::default();
        assert_eq!(distance.compare(&found, &expected, Asked::default(), PLAIN), None);
        assert!((distance.tolerance.atol - 1e-3).abs() < 1e-7 && distance.tolerance.rtol == 1e-5);
        let strict = Asked { atol: Some(1e-8), ..Asked::default() };
        let differs = distance.compare(&found, &expected, strict, PLAIN).unwrap();
        assert!(differs.contains("rtol 1e-5, atol 1.0e-8"), "{differs}");
        assert!(
            distance.compare(&tensor(&[10.0, 2e-3]), &expected, Asked::default(), PLAIN).is_some()
        );
    }

    #[test]
    fn tolerances_depend_on_the_type() {
        let of = |scalar_type| {
            let tensor = Tensor::ones(scalar_type, &[2]).unwrap();
            Asked::default().tolerance(&tensor, PLAIN)
        };
        assert_eq!(of(ScalarType::Long), Tolerance::default());
        assert_eq!(of(ScalarType::Bool), Tolerance::default());
        let types = [ScalarType::Double, ScalarType::Float, ScalarType::Half, ScalarType::BFloat16];
        let rtols = types.map(|scalar_type| of(scalar_type).rtol);
        assert!(rtols.is_sorted() && rtols[0] > 0.0, "{rtols:?}");
        // Outputs that are all zero have some tolerance.
        let zeros = Tensor::zeros(ScalarType::Float, &[2]).unwrap();
        assert_eq!(Asked::default().tolerance(&zeros, PLAIN).atol, 1e-8);
    }

    #[test]
    fn tolerances_depend_on_how_the_program_computes() {
        let of = |tensor: &Tensor, coarsest, step| {
            Asked::default().tolerance(tensor, Exactness { coarsest, step })
        };
        let float = Tensor::ones(ScalarType::Float, &[2]).unwrap();
        let half = Tensor::ones(ScalarType::Half, &[2]).unwrap();
        let plain = Asked::default().tolerance(&half, PLAIN);
        assert_eq!(of(&float, Some(ScalarType::Half), None), plain);
        assert_eq!(of(&half, Some(ScalarType::Float), None), plain);
        assert_eq!(of(&float, None, Some(0.25)).atol, 0.25 * (1.0 + 1e-5));
        // Quantized values may be off by a step, indices by nothing.
        let quantized = Tensor::ones(ScalarType::Char, &[2]).unwrap();
        assert_eq!(of(&quantized, Some(ScalarType::Half), Some(1.0)).atol.floor(), 1.0);
        assert_eq!(of(&quantized, Some(ScalarType::Half), None), Tolerance::default());
        // Explicit tolerances are kept.
        let asked = Asked { rtol: Some(0.0), atol: Some(0.0) };
        let exactness = Exactness { coarsest: Some(ScalarType::Half), step: Some(1.0) };
        assert_eq!(asked.tolerance(&float, exactness), Tolerance::default());
    }

    /// fp16 delegates between fp32 inputs and outputs, and int8 ones.
    #[test]
    fn exactness_is_found_within_delegates() {
        let of = |file: &str| {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/");
            let module = model::as_exported(Path::new(&format!("{path}{file}")), &[]).unwrap();
            Precision::of(&module, "forward").unwrap()
        };
        let fp16 = of("vulkan/convolution/conv2d_fp16.bpte");
        assert_eq!((fp16.coarsest, fp16.output_steps), (vec![Some(ScalarType::Half)], vec![None]));
        let fp32 = of("digits/digits.pte");
        assert_eq!((fp32.coarsest, fp32.output_steps), (vec![Some(ScalarType::Float)], vec![None]));
        let int8 = of("xnnpack/tiles/sizes.bpte");
        assert_eq!(int8.coarsest, [Some(ScalarType::Float)]);
        let step = int8.output_steps[0].unwrap().0;
        // Output values of PyTorch are multiples of it.
        assert!((step - 0.005_885_273).abs() < 1e-8, "{step}");
    }

    /// A step is the tolerance of some elements, not of a result that is off as a whole.
    #[test]
    fn some_elements_may_be_off_by_a_step() {
        let quantized = |values: Vec<i8>| Value::from(Tensor::from_slice(&[40], &values).unwrap());
        let expected = quantized((0..40).collect());
        let off = |count: i8, by: i8| {
            let found =
                quantized((0..40).map(|at| if at < count { at + by } else { at }).collect());
            let exactness = Exactness { coarsest: None, step: Some(1.0) };
            Distance::default().compare(&found, &expected, Asked::default(), exactness)
        };
        assert_eq!((off(13, 1), off(13, -1)), (None, None));
        assert!(off(14, 1).unwrap().contains("14 of 40 elements"));
        assert!(off(1, 2).unwrap().contains("1 of 40 elements"));
        // The step of a mask is its whole range.
        let (mask, inverted) = (quantized(vec![1; 40]), quantized(vec![0; 40]));
        let exactness = Exactness { coarsest: None, step: Some(1.0) };
        let compared = Distance::default().compare(&inverted, &mask, Asked::default(), exactness);
        assert!(compared.is_some());
        // Masked logits do not widen the tolerance of the others.
        let logits = Tensor::from_slice(&[3], &[-3e38f32, -1e9, 2.0]).unwrap();
        let tolerance = Asked::default().tolerance(&logits, PLAIN);
        assert!((tolerance.atol - 2e-4).abs() < 1e-9, "{tolerance}");
    }

    #[test]
    fn values_of_all_kinds_are_compared() {
        let tensor = |values: &[f32]| Value::from(Tensor::from_slice(&[2], values).unwrap());
        let mut distance = Distance::default();
        let mut same = |found: Value, expected: Value| {
            distance.compare(&found, &expected, TOLERANCE, PLAIN).is_none()
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
