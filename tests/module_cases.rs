//! Bundled test cases through `Module`: state, external data, inputs and outputs of all kinds.

use std::path::{Path, PathBuf};
use torchlet::core::{TestCase, ValueRef};
use torchlet::{
    Error, FileAccess, Module, ModuleBuilder, ModuleGroup, OutputMemory, RunOn, Tensor, TensorRef,
    Value,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A builder that works under Miri, which does not support memory maps.
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
        // Each module has its own state.
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

/// Runs a method on memory of the test, and compares with the results as new tensors.
fn check_lent(module: &mut Module, inputs: &[Value]) {
    let expected = module.forward(inputs).unwrap();
    let tensors: Vec<&Tensor> = inputs.iter().map(|input| input.tensor().unwrap()).collect();
    let inputs: Vec<ValueRef<'_>> =
        tensors.iter().map(|tensor| ValueRef::Tensor(tensor.as_tensor_ref())).collect();
    let mut memory = vec![[0f32; 4096]; expected.len()];
    let outputs = memory.iter_mut().enumerate();
    let mut outputs: Vec<_> =
        outputs.map(|(index, memory)| OutputMemory::from_slice(index, memory)).collect();
    module.method("forward").unwrap().execute_into(&inputs, &mut outputs).unwrap();
    for (output, expected) in outputs.iter().zip(&expected) {
        let found = Tensor::try_from(&output.tensor().unwrap()).unwrap();
        assert_eq!(Value::from(found), *expected);
    }
}

#[test]
fn methods_run_on_borrowed_memory() {
    let digits = ["digits", "digits_dynamic_batch", "digits_unplanned_io"];
    let digits = digits.map(|name| format!("digits/{name}.bpte"));
    let conditionals = ["", "_unplanned"].map(|name| format!("programs/conds_in_a_row{name}.bpte"));
    for name in digits.iter().chain(&conditionals) {
        for processor in [RunOn::AsExported, RunOn::Cpu] {
            let mut module = builder().run_on(processor).load(fixture(name)).unwrap();
            let source = module.share();
            let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
            for case in suite.cases().unwrap() {
                check_lent(&mut module, &inputs(&case.unwrap()));
            }
        }
    }
}

#[test]
fn unplanned_outputs_are_zero_copy() {
    let name = fixture("digits/digits_unplanned_io.bpte");
    let mut module = builder().run_on(RunOn::AsExported).load(name).unwrap();
    let (pixels, mut logits) = ([0.5f32; 64], [0f32; 10]);
    let image = TensorRef::from_slice(&[1, 1, 8, 8], &pixels).unwrap();
    let mut method = module.method("forward").unwrap();
    let mut outputs = [OutputMemory::from_slice(0, &mut logits)];
    method.execute_into(&[image.clone().into()], &mut outputs).unwrap();
    assert!(logits.iter().any(|logit| *logit != 0.0));
    // The method's own memory was not written.
    let ValueRef::Tensor(own) = method.output(0).unwrap() else { panic!() };
    assert_eq!(own.data::<f32>().unwrap(), [0.0; 10]);
    let mut outputs = [OutputMemory::new(0, &mut [])];
    let error = method.execute_into(&[image.into()], &mut outputs).unwrap_err();
    assert!(matches!(error, Error::Output { index: 0, .. }), "{error}");
    let other = TensorRef::from_slice(&[1, 64], &pixels).unwrap();
    let error = method.execute_into(&[other.into()], &mut []).unwrap_err();
    assert!(matches!(error, Error::Input { index: 0, .. }), "{error}");
}

#[test]
fn modules_share_memory_in_turn() {
    let names = ["digits/digits.bpte", "digits/digits_half.bpte", "programs/two_methods.bpte"];
    let open = |name: &str| builder().run_on(RunOn::AsExported).load(fixture(name)).unwrap();
    let mut alone: Vec<Module> = names.iter().map(|name| open(name)).collect();
    let mut group = ModuleGroup::load(names.iter().map(|name| open(name)).collect()).unwrap();
    let needs = |module: &Module, method: &str| {
        let report = module.memory_report(method).unwrap();
        (report.planned.iter().sum::<usize>(), report.scratch)
    };
    let mut all = Vec::new();
    for _ in 0..2 {
        for (index, module) in alone.iter_mut().enumerate() {
            let source = module.share();
            for suite in source.bundled().unwrap().suites().unwrap() {
                let suite = suite.unwrap();
                let name = suite.method_name().unwrap();
                all.push(needs(module, name));
                for case in suite.cases().unwrap().take(2) {
                    let inputs = inputs(&case.unwrap());
                    let expected = module.execute(name, &inputs).unwrap();
                    assert_eq!(group.execute(index, name, &inputs).unwrap(), expected);
                }
            }
        }
    }
    // As much as the largest module needs, not the sum.
    let planned = all.iter().map(|(planned, _)| planned).max().unwrap();
    let scratch = all.iter().map(|(_, scratch)| scratch).max().unwrap();
    assert_eq!(group.shared_bytes(), (planned + scratch) as u64);
    assert!(matches!(group.method(3, "forward"), Err(Error::NoSuchMethod { .. })));
    assert!(matches!(group.method(0, "encode"), Err(Error::NoSuchMethod { .. })));
    assert!(group.method(2, "encode").unwrap().reset().is_ok());
    // A module with state among its activations cannot share memory.
    let modules = vec![open("programs/state_from_zero.bpte"), open(names[0])];
    let error = ModuleGroup::load(modules).unwrap_err().to_string();
    assert!(error.contains("state"), "{error}");
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
fn scalars_are_converted_to_the_expected_kind() {
    let mut module = builder().load(fixture("programs/zero_dim.bpte")).unwrap();
    let suite = module.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let case = suite.cases().unwrap().next().unwrap().unwrap();
    let tensors = inputs(&case);
    let expected = module.share().forward(&tensors).unwrap();
    // The same values as scalars instead of scalar tensors.
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
