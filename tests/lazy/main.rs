//! Lazy tensors compute what PyTorch computes, compile a loop once, and survive hostile use. The
//! comments have the expressions in Python whose values the tests expect.

#![cfg(feature = "lazy")]

use serde_json::Value as Json;
use torchlet::lazy::{Arg, At, Device, Graph, Tensor};
use torchlet::{Error, ScalarType};

mod calls;
mod views;

#[cfg(feature = "safetensors")]
#[path = "../../examples/vit.rs"]
mod vit;
#[cfg(feature = "vulkan")]
#[path = "../common/vulkan.rs"]
mod vulkan;

fn ints(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> = (0..count).map(|it| it as f32).collect();
    Tensor::from_slice(shape, &elements).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn reason(result: Result<Tensor, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn calls_are_computed_when_they_are_read() {
    let (a, b) = (ints(&[2, 3]), ints(&[3, 2]));
    let product = a.matmul(&b).unwrap();
    assert_eq!((product.shape(), product.scalar_type()), (vec![2, 2], ScalarType::Float));
    // a @ b + 1
    assert_eq!(floats(&(&product + 1.0)), [11.0, 14.0, 29.0, 41.0]);
    // The first run kept the product, since `product` is alive.
    assert_eq!(floats(&product), [10.0, 13.0, 28.0, 40.0]);
}

#[test]
fn a_loop_compiles_once() {
    let device = Device::cpu().strict();
    let weight = ints(&[3, 3]).to(&device).unwrap().into_weight().unwrap();
    let mut x = ints(&[2, 3]).to(&device).unwrap();
    let before = device.stats();
    for round in 0..5 {
        // A number that changes is a tensor.
        let scale = Tensor::scalar(0.1f32 * round as f32).unwrap();
        x = (x.matmul(&weight).unwrap() * scale).tanh().unwrap();
        x.to_vec::<f32>().unwrap();
    }
    let after = device.stats();
    assert_eq!((after.compiled - before.compiled, after.runs - before.runs), (1, 5));
}

#[test]
fn shared_results_are_computed_once() {
    let device = Device::cpu().strict();
    let x = ints(&[4]).to(&device).unwrap();
    let shared = x.exp().unwrap();
    let (one, other) = (&shared + 1.0, &shared * 2.0);
    one.to_vec::<f32>().unwrap();
    let calls = device.stats().calls;
    other.to_vec::<f32>().unwrap();
    // Only the multiplication was left.
    assert_eq!(device.stats().calls - calls, 1);
    // Intermediate results that nobody holds are not kept.
    let (sum, runs) = ((x.sin().unwrap() + 1.0).cos().unwrap(), device.stats().runs);
    sum.to_vec::<f32>().unwrap();
    assert_eq!(device.stats().runs - runs, 1);
}

#[test]
fn long_chains_do_not_overflow_the_stack() {
    const LENGTH: usize = 200_000;
    // Dropped without being computed.
    let mut x = ints(&[2]);
    for _ in 0..LENGTH {
        x = 1.0 + x;
    }
    drop(x);
    let mut view = ints(&[2]);
    for _ in 0..100_000 {
        view = view.view([2]).unwrap();
    }
    view.add_(1).unwrap();
    assert_eq!(floats(&view), [1.0, 2.0]);
    drop(view);
    // Computed in pieces, which are compiled once.
    let device = Device::cpu().strict();
    let mut x = ints(&[2]).to(&device).unwrap();
    for _ in 0..5000 {
        x = 1.0 + x;
    }
    assert_eq!(floats(&x), [5000.0, 5001.0]);
    assert!(device.stats().compiled <= 2, "{:?}", device.stats());
}

#[test]
fn several_threads_share_a_device() {
    let shared = ints(&[8]).exp().unwrap();
    let sums: Vec<f32> = std::thread::scope(|scope| {
        let work = |number: i32| {
            let shared = shared.clone();
            scope.spawn(move || (&shared * number).sum((), false).unwrap().item().unwrap())
        };
        let running: Vec<_> = (1..5).map(work).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, sum) in (1..).zip(&sums) {
        assert!((sum - sums[0] * number as f32).abs() < 1e-2);
    }
}

#[test]
fn saved_programs_compute_the_same() {
    let x = ints(&[2, 3]);
    let weight = ints(&[4, 3]);
    let y = x.linear(&weight, None).unwrap().relu().unwrap().softmax(-1).unwrap();
    let graph = Graph::new(&[&x], &[&y, &y]).unwrap();
    let mut module = graph.to_module().unwrap();
    let other = torchlet::Tensor::from_slice(&[2, 3], &[0.5f32; 6]).unwrap();
    let outputs = module.forward(&other).unwrap();
    let expected = Tensor::from_tensor(other).unwrap().linear(&weight, None).unwrap();
    let expected = expected.relu().unwrap().softmax(-1).unwrap();
    for output in outputs {
        assert_eq!(output.tensor().unwrap(), &expected.to_tensor().unwrap());
    }
    assert!(Graph::new(&[&y], &[&y]).is_err());
    assert!(Graph::new(&[&x, &x], &[&y]).is_err());
}

#[test]
fn programs_that_would_ignore_their_inputs_are_refused() {
    let x = ints(&[2, 3]);
    let weight = ints(&[3, 3]).exp().unwrap();
    // Computed, but not from the input: a constant.
    weight.to_vec::<f32>().unwrap();
    let record = |x: &Tensor| x.matmul(&weight).unwrap();
    let (hidden, unrelated) = (record(&x), ints(&[2, 3]));
    let y = hidden.relu().unwrap();
    let graph = Graph::new(&[&x], &[&y]).unwrap();
    assert!(reason(Graph::new(&[&x, &unrelated], &[&y]).map(|_| x.clone())).contains("input 1"));
    // The graph has the calls, even if they are computed now.
    let expected = floats(&y);
    for graph in [&graph, &Graph::new(&[&x], &[&record(&x).relu().unwrap()]).unwrap()] {
        let zeros = torchlet::Tensor::from_slice(&[2, 3], &[0.0f32; 6]).unwrap();
        let mut module = graph.to_module().unwrap();
        let outputs = module.forward(&zeros).unwrap();
        assert_eq!(outputs[0].tensor().unwrap().to_vec::<f32>().unwrap(), [0.0; 6]);
        let outputs = module.forward(x.to_tensor().unwrap()).unwrap();
        assert_eq!(outputs[0].tensor().unwrap().to_vec::<f32>().unwrap(), expected);
    }
    let error = |outputs: &[&Tensor]| reason(Graph::new(&[&x], outputs).map(|_| x.clone()));
    assert!(error(&[&y]).contains("no output depends on input 0"));
    // A partial cut: the input has an effect, but one of its results is a constant.
    let late = hidden.add(&x).unwrap();
    assert!(error(&[&late]).contains("may depend on input 0"), "{}", error(&[&late]));
    assert!(error(&[&y, &record(&x)]).contains("may depend on input 0"));
    let elsewhere = x.to(&Device::cpu().strict()).unwrap();
    let z = elsewhere.exp().unwrap();
    assert!(error(&[&z]).contains("no output depends"));
    // Computed tensors are inputs, too; weights are constants.
    assert!(Graph::new(&[&hidden], &[&late]).is_ok());
    assert!(Graph::new(&[&hidden, &x], &[&late]).is_ok());
    let fixed = hidden.clone().into_weight().unwrap();
    assert!(Graph::new(&[&x], &[&x.add(&fixed).unwrap()]).is_ok());
}

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/lazy/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn dtype(name: &str) -> ScalarType {
    (0..30).filter_map(ScalarType::from_number).find(|it| it.name() == name).unwrap()
}

fn numbers(value: &Json) -> Vec<f64> {
    let number = |it: &Json| it.as_f64().or(it.as_bool().map(|it| f64::from(u8::from(it))));
    value["values"].as_array().unwrap().iter().map(|it| number(it).unwrap_or(f64::NAN)).collect()
}

fn shape(value: &Json) -> Vec<usize> {
    value["shape"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap() as usize).collect()
}

#[cfg(feature = "safetensors")]
#[test]
fn a_vision_transformer_computes_the_logits_of_pytorch() {
    let case: Json = serde_json::from_slice(&std::fs::read(fixture("vit.json")).unwrap()).unwrap();
    let expected = case["logits"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap());
    let logits = vit::run(&fixture("vit.safetensors"), &Device::cpu()).unwrap();
    for ((own, expected), printed) in logits.iter().zip(expected).zip(vit::EXPECTED) {
        assert!((f64::from(*own) - expected).abs() < 1e-5, "{logits:?}");
        assert!((f64::from(printed) - expected).abs() < 1e-6, "{expected}");
    }
}

#[cfg(feature = "safetensors")]
#[test]
fn damaged_weights_are_refused() {
    use torchlet::lazy::Weights;
    let file = std::fs::read(fixture("vit.safetensors")).unwrap();
    let device = Device::cpu();
    let weights = Weights::from_bytes(&file, &device).unwrap();
    assert_eq!(weights.get("cls_token").unwrap().shape(), [1, 1, 16]);
    assert!(weights.get("nothing").unwrap_err().to_string().contains("nothing"));
    for len in [0, 7, 8, 100, file.len() - 1] {
        assert!(Weights::from_bytes(&file[..len], &device).is_err(), "{len}");
    }
    for at in 0..2000 {
        let mut file = file.clone();
        file[at] ^= 1 << (at % 8);
        let _ = Weights::from_bytes(&file, &device);
    }
    assert!(Weights::load(fixture("nothing"), &device).is_err());
}

#[test]
fn memory_is_limited() {
    let device = Device::cpu().strict();
    let huge = device.zeros([1 << 20, 1 << 20], ScalarType::Float).unwrap();
    let error = (huge + 1.0).to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("limit"), "{error}");
    device.set_memory_limit(1000);
    let x = device.ones([100], ScalarType::Float).unwrap();
    assert!((&x + &x.exp().unwrap()).sin().unwrap().to_vec::<f32>().is_err());
    // The record survives an error.
    device.set_memory_limit(1 << 20);
    assert_eq!(x.sum((), false).unwrap().item::<f32>().unwrap(), 100.0);
}

#[test]
fn compiled_programs_are_dropped_by_use() {
    let device = Device::cpu().strict();
    device.set_program_cache(2);
    for length in [1, 2, 3, 3, 1] {
        let x = ints(&[length]).to(&device).unwrap();
        x.exp().unwrap().to_vec::<f32>().unwrap();
    }
    assert_eq!(device.stats().compiled, 4);
    device.clear_program_cache();
}
