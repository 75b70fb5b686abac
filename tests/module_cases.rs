//! Bundled test cases through `Module`: state, external data, inputs and outputs of all kinds.

use std::path::{Path, PathBuf};
use torchlet::core::{TestCase, ValueRef};
use torchlet::{Error, FileAccess, Module, ModuleBuilder, Tensor, Value};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A builder that Miri can run: it knows no memory maps.
fn builder() -> ModuleBuilder {
    let access = if cfg!(miri) { FileAccess::Read } else { FileAccess::Map };
    Module::builder().file_access(access)
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Scalar(scalar) => scalar.into(),
        ValueRef::Tensor(tensor) => Tensor::try_from(&tensor).unwrap().into(),
        _ => Value::None,
    }
}

fn inputs(case: &TestCase<'_>) -> Vec<Value> {
    case.inputs().unwrap().map(|input| value(input.unwrap())).collect()
}

/// Runs all test cases in order on one module, which may have been used before.
fn check(module: &mut Module) {
    let source = module.share();
    for suite in source.bundled().unwrap().suites().unwrap() {
        let suite = suite.unwrap();
        let name = suite.method_name().unwrap();
        for case in suite.cases().unwrap() {
            let case = case.unwrap();
            let outputs = module.execute(name, inputs(&case)).unwrap();
            let expected = case.expected_outputs().unwrap().map(|output| value(output.unwrap()));
            let expected: Vec<Value> = expected.collect();
            assert_eq!(outputs.len(), expected.len());
            for (output, expected) in outputs.iter().zip(&expected) {
                match (output, expected) {
                    (Value::Tensor(output), Value::Tensor(expected)) => {
                        let comparison = output.compare(expected, 1e-4, 1e-5).unwrap();
                        assert!(comparison.is_close(), "{name}: {comparison:?}");
                    }
                    _ => assert_eq!(output, expected),
                }
            }
        }
    }
}

#[test]
fn state_persists_until_it_is_reset() {
    for name in ["state_initialized", "state_from_zero", "state_named", "state_unplanned"] {
        let mut module = builder().load(fixture(&format!("programs/{name}.bpte"))).unwrap();
        for _ in 0..2 {
            check(&mut module);
            for method in module.method_names().unwrap() {
                module.reset(&method).unwrap();
            }
        }
        // A module of its own has state of its own.
        check(&mut module.share());
    }
}

#[test]
fn methods_are_loaded_one_by_one() {
    let mut module = builder().load(fixture("programs/two_methods.bpte")).unwrap();
    let names = module.method_names().unwrap();
    assert!(names.len() >= 2);
    module.load_method(&names[1]).unwrap();
    assert!(!module.is_method_loaded(&names[0]) && module.is_method_loaded(&names[1]));
    check(&mut module);
}

#[test]
fn memory_is_bound_to_unplanned_inputs_and_outputs() {
    for name in ["digits/digits_unplanned_io", "programs/outputs_not_computed_unplanned"] {
        let mut module = builder().load(fixture(&format!("{name}.bpte"))).unwrap();
        check(&mut module);
        assert!(module.memory_report("forward").unwrap().unplanned > 0);
    }
}

#[test]
fn weights_come_from_data_files() {
    let program = fixture("programs/external_two_files.bpte");
    let files = ["programs/external_two_files.weight.ptd", "programs/external_two_files.bias.ptd"];
    check(&mut builder().data(fixture(files[0])).data(fixture(files[1])).load(&program).unwrap());
    let with_bytes = builder().data(fixture(files[1]));
    let bytes = std::fs::read(fixture(files[0])).unwrap();
    check(&mut with_bytes.data_bytes(bytes).load(&program).unwrap());

    let mut one = builder().data(fixture(files[0])).load(&program).unwrap();
    let error = one.load_method("forward").unwrap_err();
    assert!(matches!(error, Error::Load { .. }) && error.code() == 0x24, "{error}");
    assert!(error.to_string().contains("pass the .ptd file"), "{error}");
}

#[test]
fn inputs_and_outputs_of_all_kinds() {
    for name in ["many_inputs", "many_dtypes", "nested_containers", "zero_dim", "no_inputs"] {
        check(&mut builder().load(fixture(&format!("programs/{name}.bpte"))).unwrap());
    }
}

#[test]
fn a_wrong_number_becomes_what_the_method_takes() {
    let mut module = builder().load(fixture("programs/zero_dim.bpte")).unwrap();
    let suite = module.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let case = suite.cases().unwrap().next().unwrap().unwrap();
    let tensors = inputs(&case);
    let expected = module.share().forward(&tensors).unwrap();
    // The same numbers, not as tensors without dimensions.
    let numbers: Vec<Value> = tensors
        .iter()
        .map(|value| match value {
            Value::Tensor(tensor) if tensor.rank() == 0 => {
                Value::Float(tensor.to_f64_vec().unwrap()[0])
            }
            other => other.clone(),
        })
        .collect();
    assert_eq!(module.forward(numbers).unwrap(), expected);
}
