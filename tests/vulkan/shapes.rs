//! Shapes that change from call to call.

use crate::common::{check, check_case, fixture, inputs, open};
use crate::device::{Random, device_is_there, on_device};
use std::sync::Arc;
use torchlet::core::TestCase;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Error, ScalarType, Tensor, Value};

/// Files whose test cases have inputs of several sizes, up to the bound.
const DYNAMIC: &[&str] = &[
    "vulkan/arithmetic/add_dynamic.bpte",
    "vulkan/convolution/conv2d_dynamic.bpte",
    "vulkan/join/cat_dynamic.bpte",
    "vulkan/linear/linear_dynamic.bpte",
    "vulkan/model/language_dynamic.bpte",
    "vulkan/pooling/max_pool2d_dynamic.bpte",
    "vulkan/product/bmm_dynamic.bpte",
    "vulkan/quantized_linear/q4gsw_rows.bpte",
    "vulkan/reading/select_last_dynamic.bpte",
    "vulkan/reduction/mean_dynamic.bpte",
    "vulkan/softmax/softmax_dynamic.bpte",
    "vulkan/symbolic/two_sizes.bpte",
];

#[test]
fn they_shrink_and_grow_again() {
    if !device_is_there() {
        return;
    }
    let mut random = Random::new(7);
    for file in DYNAMIC {
        let fixture = fixture(file);
        let source = open(&fixture, on_device()).unwrap();
        let mut module = source.share();
        let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
        let cases: Vec<TestCase<'_>> = suite.cases().unwrap().map(Result::unwrap).collect();
        assert!(cases.len() > 2, "{file}: {} cases", cases.len());
        for turn in 0..40 {
            // Often the same size twice in a row: then nothing is recorded anew.
            let case = &cases[random.below(cases.len())];
            for _ in 0..1 + random.below(2) {
                check_case(&mut module, "forward", case, &fixture)
                    .unwrap_or_else(|what| panic!("{file}, turn {turn}: {what}"));
            }
        }
    }
}

/// Whatever shapes come, their pipelines are there when a program is loaded. (Not so where the columns of a product vary, as those of the
/// language model's attention do and those of `bmm_dynamic`.)
#[test]
fn other_shapes_make_no_pipelines() {
    if !device_is_there() {
        return;
    }
    let varies = |file: &str| file.contains("language") || file.contains("bmm");
    let files = DYNAMIC.iter().filter(|file| !varies(file));
    for busy in [160, 1 << 16] {
        for file in files.clone() {
            let fixture = fixture(file);
            let backend = Arc::new(VulkanBackend::builder().busy_invocations(busy).build());
            let source = open(&fixture, on_device().backend(backend.clone())).unwrap();
            let mut module = source.share();
            module.load_method("forward").unwrap();
            let loaded = backend.pipelines();
            assert!(loaded > 0, "{file}");
            check(&mut module, &source, &fixture).unwrap();
            assert_eq!(backend.pipelines(), loaded, "{file}, {busy}");
        }
    }
}

#[test]
fn beyond_the_bound_is_an_error() {
    if !device_is_there() {
        return;
    }
    for file in DYNAMIC {
        let fixture = fixture(file);
        let source = open(&fixture, on_device()).unwrap();
        let mut module = source.share();
        let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
        let cases: Vec<TestCase<'_>> = suite.cases().unwrap().map(Result::unwrap).collect();
        for case in &cases {
            let larger: Vec<Value> = inputs(case).unwrap().iter().map(doubled).collect();
            let error = module.execute("forward", larger).unwrap_err();
            assert!(matches!(error, Error::Input { .. }), "{file}: {error}");
            // And the module is as good as before.
            check_case(&mut module, "forward", case, &fixture).unwrap();
        }
    }
}

/// A tensor with each of its sizes far beyond any bound of the fixtures.
fn doubled(value: &Value) -> Value {
    let Value::Tensor(tensor) = value else { return value.clone() };
    let shape: Vec<usize> = tensor.shape().iter().map(|size| size + 40).collect();
    Tensor::zeros(tensor.scalar_type(), &shape).unwrap().into()
}

#[test]
fn other_ranks_and_types_are_errors() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture("vulkan/arithmetic/add_dynamic.bpte");
    let mut module = open(&fixture, on_device()).unwrap();
    let good = Tensor::ones(ScalarType::Float, &[4, 5]).unwrap();
    for bad in [
        Tensor::ones(ScalarType::Float, &[20]).unwrap(),
        Tensor::ones(ScalarType::Float, &[4, 5, 1]).unwrap(),
        Tensor::ones(ScalarType::Int, &[4, 5]).unwrap(),
        Tensor::ones(ScalarType::Double, &[4, 5]).unwrap(),
    ] {
        assert!(module.forward([&good, &bad]).is_err());
        assert!(module.forward([&bad, &good]).is_err());
    }
    // Sizes that are allowed alone, but not together.
    let other = Tensor::ones(ScalarType::Float, &[3, 5]).unwrap();
    assert!(module.forward([&good, &other]).is_err());
    let outputs = module.forward([&good, &good]).unwrap();
    assert_eq!(outputs[0].tensor().unwrap().as_slice::<f32>().unwrap(), [2.0; 20]);
}
