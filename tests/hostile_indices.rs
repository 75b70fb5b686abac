//! Hostile tensors: every index, repeat count and offset of the operators that read or write at
//! positions from a tensor is replaced by out-of-range values. The outcome is an error or a result,
//! never a panic or a hang.

use std::path::Path;
use torchlet::core::ValueRef;
use torchlet::{Module, ScalarType, Tensor, Value};

const FOLDERS: &[&str] = &[
    "reading",
    "writing",
    "scattered",
    "repeat",
    "quantized_weight",
    "ordering",
    "gradient_table",
];

/// Replaces all integers of a tensor.
fn poisoned(tensor: &Tensor, number: i64) -> Option<Tensor> {
    let numel = tensor.numel();
    match tensor.scalar_type() {
        ScalarType::Int => {
            let number = number.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            Tensor::from_vec(tensor.shape(), vec![number; numel]).ok()
        }
        ScalarType::Long => Tensor::from_vec(tensor.shape(), vec![number; numel]).ok(),
        _ => None,
    }
}

#[test]
fn out_of_range_indices() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ops");
    let (mut refused, mut runs) = (0, 0);
    for folder in FOLDERS {
        let mut files: Vec<_> = std::fs::read_dir(fixtures.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "bpte"))
            .collect();
        files.sort();
        for file in files {
            let Ok(module) = Module::builder().threads(1).load(&file) else { continue };
            let Some(bundle) = module.bundled() else { continue };
            let mut runner = module.share();
            for suite in bundle.suites().unwrap() {
                let suite = suite.unwrap();
                let method = suite.method_name().unwrap();
                for case in suite.cases().unwrap() {
                    for number in [i64::MIN, i64::MIN + 1, -1_000_000, -1, 1_000_000, i64::MAX] {
                        let mut changed = false;
                        let inputs: Vec<Value> = case
                            .as_ref()
                            .unwrap()
                            .inputs()
                            .unwrap()
                            .map(|input| match input.unwrap() {
                                ValueRef::Tensor(tensor) => {
                                    let tensor = Tensor::try_from(&tensor).unwrap();
                                    let other = poisoned(&tensor, number);
                                    changed |= other.is_some();
                                    other.unwrap_or(tensor).into()
                                }
                                ValueRef::Scalar(scalar) => scalar.into(),
                                _ => Value::None,
                            })
                            .collect();
                        if changed {
                            runs += 1;
                            refused += usize::from(runner.execute(method, &inputs).is_err());
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 100, "{refused} of {runs} were errors");
}
