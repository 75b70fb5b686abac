//! A kernel that is wrong is found, and named.

use super::*;
use torchlet::core::Kernel;
use torchlet::portable::KERNELS;

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/digits/digits.pte");
const TOLERANCE: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-4 };

/// The kernels, with that of one operator in the place of another.
fn with_wrong(operator: &str, other: &str) -> &'static [Kernel] {
    let find = |name: &str| KERNELS.iter().position(|kernel| kernel.name == name).unwrap();
    let mut kernels = KERNELS.to_vec();
    kernels[find(operator)] = KERNELS[find(other)].renamed(KERNELS[find(operator)].name);
    kernels.leak()
}

fn all_values(builder: ModuleBuilder, exposed: &Exposed, image: &Tensor) -> Vec<Value> {
    let builder = builder.run_on(torchlet::RunOn::AsExported).without_default_backends();
    run(builder, &exposed.bytes, "forward", &[image.clone().into()]).unwrap()
}

#[test]
fn a_planted_fault_is_named() {
    let file = Module::builder().run_on(torchlet::RunOn::AsExported).load(DIGITS).unwrap();
    let exposed = Exposed::of(&file, "forward").unwrap();
    let operators: Vec<&str> = exposed.values.iter().map(|value| &*value.operator).collect();
    assert!(operators.contains(&"aten::relu.out") && operators.len() >= 8, "{operators:?}");
    let image = Tensor::rand(torchlet::ScalarType::Float, &[1, 1, 8, 8], 1).unwrap();
    let right = all_values(Module::builder(), &exposed, &image);
    assert_eq!(right.len(), exposed.outputs + exposed.values.len());
    let same = against_run(&exposed, [&right, &[]], [&right, &[]], TOLERANCE);
    assert!(same.len() >= 8 && same.iter().all(Compared::is_close));

    for (operator, other) in
        [("aten::relu.out", "aten::neg.out"), ("aten::relu.out", "aten::abs.out")]
    {
        let faulty = Module::builder().default_kernels(false).kernels(with_wrong(operator, other));
        let wrong = all_values(faulty, &exposed, &image);
        let compared = against_run(&exposed, [&right, &[]], [&wrong, &[]], TOLERANCE);
        let first = compared.iter().find(|value| !value.is_close()).unwrap();
        let origin = first.origin.as_ref().unwrap();
        assert_eq!((origin.operator.as_str(), origin.instruction), (operator, 2), "{other}");
        // What it was made of is as it should be.
        assert_eq!(origin.made_of, [1]);
    }
}

#[test]
fn what_is_exposed_computes_what_the_program_does() {
    let mut file = Module::builder().run_on(torchlet::RunOn::AsExported).load(DIGITS).unwrap();
    let exposed = Exposed::of(&file, "forward").unwrap();
    let image = Tensor::rand(torchlet::ScalarType::Float, &[1, 1, 8, 8], 2).unwrap();
    let values = all_values(Module::builder(), &exposed, &image);
    let outputs = file.forward(&image).unwrap();
    assert_eq!(values[..exposed.outputs], outputs[..]);
}
