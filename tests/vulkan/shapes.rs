//! Shapes that change between calls.

use crate::common::{check_case, fixture, inputs, open};
use crate::device::{Random, device_is_there, on_device};
use crate::replay::DECODER;
use std::collections::BTreeSet;
use std::sync::Arc;
use torchlet::core::TestCase;
use torchlet::vulkan::{VulkanBackend, VulkanBackendBuilder};
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
fn dynamic_shapes_shrink_and_grow() {
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
            // Often the same size twice in a row, which needs no new recording.
            let case = &cases[random.below(cases.len())];
            for _ in 0..1 + random.below(2) {
                check_case(&mut module, "forward", case, &fixture)
                    .unwrap_or_else(|what| panic!("{file}, turn {turn}: {what}"));
            }
        }
    }
}

/// Programs for other processors with dynamic shapes, which are lowered at load time.
const LOWERED: &[&str] = &[
    "digits/digits_dynamic_batch.bpte",
    "models/mobilenet_v2_dynamic_size.bpte",
    "programs/dynamic_arithmetic.bpte",
    "programs/dynamic_rows.bpte",
    "programs/dynamic_two.bpte",
    "xnnpack/dynamic/batch.bpte",
    "xnnpack/tiles/sizes.bpte",
];

/// Drivers take milliseconds to create a pipeline: none may be created at run time.
#[test]
fn no_pipeline_is_created_after_load() {
    if !device_is_there() {
        return;
    }
    // As software devices, small GPUs and large GPUs, which split their work.
    for busy in [None, Some(160), Some(1 << 16)] {
        for file in DYNAMIC.iter().chain(LOWERED).chain([&DECODER]) {
            let fixture = fixture(file);
            let builder = VulkanBackend::builder();
            let builder = busy.into_iter().fold(builder, VulkanBackendBuilder::busy_invocations);
            let backend = Arc::new(builder.build());
            let loader = on_device().backend(backend.clone());
            let source = open(&fixture, loader).unwrap();
            let mut module = source.share();
            module.load_method("forward").unwrap();
            let made = backend.pipelines();
            assert!(made > 0, "{file}");
            let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
            let cases = suite.cases().unwrap().map(|case| inputs(&case.unwrap()).unwrap());
            let cases: Vec<Vec<Value>> = cases.collect();
            // Sizes that differ between test cases are dynamic; with a single case, all may be.
            let mut varying = BTreeSet::new();
            for pair in cases.windows(2) {
                let values = pair[0].iter().zip(&pair[1]);
                let sizes = values.flat_map(|(a, b)| shape(a).iter().zip(shape(b)));
                varying.extend(sizes.filter(|(a, b)| a != b).flat_map(|(a, b)| [*a, *b]));
            }
            let mut ran = 0;
            for case in &cases {
                let sizes = case.iter().flat_map(|value| shape(value).iter().copied());
                let sizes = sizes.filter(|size| varying.is_empty() || varying.contains(size));
                let sizes: BTreeSet<usize> = sizes.collect();
                // Small sizes, sizes near the bound, and some in between.
                let some = |size: usize| {
                    let near = move |count: &usize| *count <= 16 || size - count <= 8;
                    (1..=size).filter(move |count| near(count) || count.is_multiple_of(7))
                };
                let pairs = sizes.into_iter().flat_map(|size| some(size).map(move |it| (size, it)));
                for (size, count) in pairs {
                    let smaller: Vec<Value> =
                        case.iter().map(|value| with_size(value, size, count)).collect();
                    // Invalid shapes of the program are rejected.
                    match module.execute("forward", smaller) {
                        Ok(_) => ran += 1,
                        Err(error) => {
                            let error = error.to_string();
                            assert!(!error.contains("no memory"), "{file}: {error}");
                            assert!(!error.contains("a change of shapes"), "{file}: {error}");
                        }
                    }
                    let now = backend.pipelines();
                    assert_eq!(now, made, "{file}: {count} in place of {size}, busy {busy:?}");
                }
            }
            assert!(ran > cases.len() || *file == DECODER, "{file}: {ran} of {}", cases.len());
        }
    }
}

/// The same for language models, with any prompt length and position.
#[test]
fn no_pipeline_is_created_after_load_of_a_language_model() {
    if !device_is_there() {
        return;
    }
    for file in ["vulkan_4bit", "fp32", "8da4w"] {
        for busy in [None, Some(1 << 16)] {
            let builder = VulkanBackend::builder();
            let builder = busy.into_iter().fold(builder, VulkanBackendBuilder::busy_invocations);
            let backend = Arc::new(builder.build());
            let path = format!("{}/llm/model/{file}.pte", env!("CARGO_MANIFEST_DIR"));
            let mut module = on_device().backend(backend.clone()).load(path).unwrap();
            module.load_method("forward").unwrap();
            let made = backend.pipelines();
            for (count, position) in [
                (1, 0),
                (2, 1),
                (3, 3),
                (4, 6),
                (5, 10),
                (64, 15),
                (31, 79),
                (1, 110),
                (1, 111),
                (7, 112),
            ] {
                let tokens = Tensor::from_vec(&[1, count], vec![5i64; count]).unwrap();
                let position = Tensor::from_vec(&[1], vec![position as i64]).unwrap();
                module.forward([&tokens, &position]).unwrap();
                let now = backend.pipelines();
                assert_eq!(now, made, "{file}: {count} tokens, busy {busy:?}");
            }
        }
    }
}

fn shape(value: &Value) -> &[usize] {
    match value {
        Value::Tensor(tensor) => tensor.shape(),
        _ => &[],
    }
}

/// Replaces every size of a tensor that equals `size` by `count`.
fn with_size(value: &Value, size: usize, count: usize) -> Value {
    let Value::Tensor(tensor) = value else { return value.clone() };
    if count == size {
        return value.clone();
    }
    let shape: Vec<usize> =
        tensor.shape().iter().map(|found| if *found == size { count } else { *found }).collect();
    Tensor::zeros(tensor.scalar_type(), &shape).unwrap().into()
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
            let larger: Vec<Value> = inputs(case).unwrap().iter().map(enlarged).collect();
            let error = module.execute("forward", larger).unwrap_err();
            assert!(matches!(error, Error::Input { .. }), "{file}: {error}");
            // The module still works.
            check_case(&mut module, "forward", case, &fixture).unwrap();
        }
    }
}

/// Enlarges each size of a tensor beyond any bound of the fixtures.
fn enlarged(value: &Value) -> Value {
    let Value::Tensor(tensor) = value else { return value.clone() };
    let shape: Vec<usize> = tensor.shape().iter().map(|size| size + 40).collect();
    Tensor::zeros(tensor.scalar_type(), &shape).unwrap().into()
}

#[test]
fn other_ranks_and_dtypes_are_errors() {
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
    // Sizes that are valid individually, but not together.
    let other = Tensor::ones(ScalarType::Float, &[3, 5]).unwrap();
    assert!(module.forward([&good, &other]).is_err());
    let outputs = module.forward([&good, &good]).unwrap();
    assert_eq!(outputs[0].tensor().unwrap().as_slice::<f32>().unwrap(), [2.0; 20]);
}
