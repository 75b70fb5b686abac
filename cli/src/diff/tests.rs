//! A faulty kernel is found and named.

use super::*;
use torchlet::core::Kernel;
use torchlet::portable::KERNELS;

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/digits/digits.pte");
const TOLERANCE: Tolerance = Tolerance { rtol: None, atol: None };

/// The CPU kernels, with one operator's kernel replaced by another's.
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
fn faulty_kernels_are_named() {
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
        // Its operand is in tolerance.
        assert_eq!(origin.made_of, [1]);
    }
}

#[test]
fn exposed_programs_compute_the_same() {
    let mut file = Module::builder().run_on(torchlet::RunOn::AsExported).load(DIGITS).unwrap();
    let exposed = Exposed::of(&file, "forward").unwrap();
    let image = Tensor::rand(torchlet::ScalarType::Float, &[1, 1, 8, 8], 2).unwrap();
    let values = all_values(Module::builder(), &exposed, &image);
    let outputs = file.forward(&image).unwrap();
    assert_eq!(values[..exposed.outputs], outputs[..]);
}

const QUANTIZED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/mobilenet_v2_int8.bpte");

/// Changes the last element of a value.
fn changed(values: &[Value], index: usize, change: impl Fn(f64) -> f64) -> Vec<Value> {
    let mut values = values.to_vec();
    let tensor = values[index].tensor().unwrap().clone();
    let mut numbers = tensor.to_f64_vec().unwrap();
    let last = numbers.len() - 1;
    numbers[last] = change(numbers[last]);
    let wide = Tensor::from_slice(tensor.shape(), &numbers).unwrap();
    values[index] = wide.to_type(tensor.scalar_type()).unwrap().into();
    values
}

#[test]
fn quantized_values_may_differ_by_one_step() {
    let file = Module::builder().run_on(torchlet::RunOn::AsExported).load(QUANTIZED).unwrap();
    let exposed = Exposed::of(&file, "forward").unwrap();
    let image = Tensor::rand(ScalarType::Float, &[1, 3, 16, 16], 1).unwrap();
    let right = all_values(Module::builder(), &exposed, &image);
    let find = |name: &str| {
        let is = |origin: &Origin| origin.operator.starts_with(name);
        exposed.values.iter().rposition(is).unwrap()
    };
    let wrong = |index: usize, change: &dyn Fn(f64) -> f64| {
        let wrong = changed(&right, exposed.outputs + index, change);
        let compared = against_run(&exposed, [&right, &[]], [&wrong, &[]], TOLERANCE);
        compared.iter().filter(|value| !value.is_close()).count()
    };
    // Towards zero, so that the value stays in range.
    let (quantized, floats) =
        (find("quantized_decomposed::quantize"), find("quantized_decomposed::dequantize"));
    let toward = |by: f64| move |value: f64| if value > 0.0 { value - by } else { value + by };
    assert_eq!([wrong(quantized, &toward(1.0)), wrong(quantized, &toward(2.0))], [0, 1]);
    let Some(Step(step)) = exposed.values[floats].step else { panic!("no scale") };
    assert_eq!([wrong(floats, &toward(step)), wrong(floats, &toward(2.0 * step))], [0, 1]);
    // A convolution whose operands are exact has no such tolerance, even if its result is quantized
    // next.
    let convolution = find("aten::convolution");
    let Some(Step(next)) = exposed.values[convolution].next_step else { panic!("no step") };
    assert_eq!(wrong(convolution, &toward(0.9 * next)), 1);
    // If an operand is off by a step, it has.
    let made_of = exposed.values[convolution].made_of.clone();
    let is_input = |origin: &Origin| {
        made_of.contains(&origin.instruction) && origin.operator.contains("dequantize_per_tensor")
    };
    let input = exposed.values.iter().position(is_input).unwrap();
    let Some(Step(step)) = exposed.values[input].step else { panic!("no scale") };
    let off = changed(&right, exposed.outputs + input, toward(step));
    let off = changed(&off, exposed.outputs + convolution, toward(0.9 * next));
    let compared = against_run(&exposed, [&right, &[]], [&off, &[]], TOLERANCE);
    assert!(compared.iter().all(Compared::is_close));
}

#[test]
fn tolerances_depend_on_the_type() {
    let of = |scalar_type| Tolerance::default().of(&Tensor::ones(scalar_type, &[1]).unwrap());
    assert_eq!(of(ScalarType::Long), [0.0, 0.0]);
    assert!(of(ScalarType::Half)[0] > of(ScalarType::Float)[0]);
    assert!(of(ScalarType::BFloat16)[0] > of(ScalarType::Half)[0]);
}
