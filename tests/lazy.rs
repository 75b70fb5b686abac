//! Lazy tensors compute what PyTorch computes, compile a loop once, and survive hostile use. The
//! comments have the expressions in Python whose values the tests expect.

#![cfg(feature = "lazy")]

use serde_json::Value as Json;
use torchlet::lazy::{Arg, At, Device, Graph, Tensor};
use torchlet::{Error, ScalarType};

#[cfg(feature = "safetensors")]
#[path = "../examples/vit.rs"]
mod vit;
#[cfg(feature = "vulkan")]
#[path = "common/vulkan.rs"]
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
fn dtypes_are_promoted_as_in_pytorch() {
    let int = Tensor::from_slice(&[2], &[1i32, 2]).unwrap();
    let long = Tensor::from_slice(&[2], &[1i64, 2]).unwrap();
    let float = Tensor::from_slice(&[2], &[1.5f32, 2.0]).unwrap();
    let flag = Tensor::from_tensor(torchlet::Tensor::from_bools(&[2], &[true, false]).unwrap());
    let flag = flag.unwrap();
    for (made, expected) in [
        (&int + &long, ScalarType::Long),
        (&int + &float, ScalarType::Float),
        (&int + 1, ScalarType::Int),
        (&int + 1.5, ScalarType::Float),
        (&int / 2, ScalarType::Float),
        (&flag + 1, ScalarType::Long),
        (&flag * &float, ScalarType::Float),
        (int.sum((), false).unwrap(), ScalarType::Long),
        (int.exp().unwrap(), ScalarType::Float),
        (int.eq(1).unwrap(), ScalarType::Bool),
        (int.pow(2).unwrap(), ScalarType::Int),
        (int.clamp((), 1.5).unwrap(), ScalarType::Float),
        (flag.where_(&int, &float).unwrap(), ScalarType::Float),
    ] {
        assert_eq!(made.scalar_type(), expected);
        assert_eq!(made.to_tensor().unwrap().scalar_type(), expected);
    }
    assert_eq!((&int / 2).to_vec::<f32>().unwrap(), [0.5, 1.0]);
    assert_eq!((&int + &long).to_vec::<i64>().unwrap(), [2, 4]);
}

#[test]
fn operators_have_both_orders() {
    let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 4.0]).unwrap();
    assert_eq!(floats(&(1.0 - &x)), [0.0, -1.0, -3.0]);
    assert_eq!(floats(&(8.0 / &x)), [8.0, 4.0, 2.0]);
    assert_eq!(floats(&(2.0 * &x)), [2.0, 4.0, 8.0]);
    assert_eq!(floats(&(5 % &x)), [0.0, 1.0, 1.0]);
    assert_eq!(floats(&(-&x)), [-1.0, -2.0, -4.0]);
    assert_eq!(floats(&(&x - &x)), [0.0; 3]);
}

#[test]
fn wrong_calls_are_errors_where_they_are_made() {
    let (a, b) = (ints(&[2, 3]), ints(&[4, 5]));
    let message = reason(a.matmul(&b));
    assert!(message.contains("aten.matmul") && message.contains("[2, 3] and [4, 5]"), "{message}");
    assert!(reason(a.add(&b)).contains("do not broadcast"));
    assert!(reason(a.softmax(2)).contains("dim 2"));
    assert!(reason(a.reshape([4, -1])).contains("6 elements"));
    assert!(reason(a.call("nothing", [])).contains("no such operator"));
    assert!(reason(a.call("rand_like", [])).contains("random"));
    assert!(reason(a.call("relu", [Arg::Int(1)])).contains("at most 1 argument"));
    assert!(reason(a.call("softmax.int", ["x".into()])).contains("`dim`"));
    assert!(reason(a.call("gather", [0.into()])).contains("missing"));
    let longs = Tensor::from_slice(&[2, 3], &[1i64; 6]).unwrap();
    assert!(reason(longs.mean((), false)).contains("floating-point"));
    // Operators remember the error.
    let sum = &a + &b;
    assert!(sum.to_vec::<f32>().unwrap_err().to_string().contains("do not broadcast"));
    assert!(reason(sum.relu()).contains("do not broadcast"));
    let elsewhere = a.to(&Device::cpu().strict()).unwrap();
    assert!(reason(a.add(&elsewhere)).contains("different devices"));
    // Sizes are checked before anything is reserved.
    assert!(a.unsqueeze(0).unwrap().expand([i64::MAX, 2, 3]).is_err());
    assert!(Device::cpu().zeros([i64::from(i32::MAX); 4], ScalarType::Float).is_err());
    assert!(Device::cpu().zeros(vec![1; 17], ScalarType::Float).is_err());
    assert!(a.repeat([i64::MAX, 1]).is_err());
    assert!(a.constant_pad_nd([i64::MAX, i64::MAX], 0).is_err());
    assert!(a.split(0, 0).is_err());
    assert!(a.call_all("tensor_split.sections", [i64::MAX.into()]).is_err());
    assert!(a.chunk(i64::MAX, 0).is_ok());
    let wide = ints(&[1]).expand([1 << 30, 1 << 30]).unwrap();
    assert!(wide.split(1, 0).is_err() && wide.unbind(0).is_err());
    assert!(wide.reshape([-1]).is_err());
    assert!(wide.t().unwrap().reshape([1 << 15, 1 << 15, 1 << 30]).is_ok());
}

#[test]
fn views_share_memory() {
    // x = torch.arange(6.).reshape(2, 3); y = x.t(); y[0] = 9; x += 1
    let x = ints(&[2, 3]);
    let y = x.t().unwrap();
    y.i(0).unwrap().fill_(9).unwrap();
    let mut same = x.clone();
    same += 1.0;
    assert_eq!(floats(&x), [10.0, 2.0, 3.0, 10.0, 5.0, 6.0]);
    assert_eq!(floats(&y), [10.0, 10.0, 2.0, 5.0, 3.0, 6.0]);
    // z = x[:, 1:].reshape(4) is a copy; w = x.view(3, 2) is a view.
    let z = x.i((.., 1..)).unwrap().reshape([4]).unwrap();
    let w = x.view([3, 2]).unwrap();
    x.mul_(2).unwrap();
    assert_eq!(floats(&z), [2.0, 3.0, 5.0, 6.0]);
    assert_eq!(floats(&w), [20.0, 4.0, 6.0, 20.0, 10.0, 12.0]);
    assert!(reason(y.view([6])).contains("reshape"));
    // a, b = x.split([1, 2], 1); b.zero_()
    let parts = x.split([1, 2], 1).unwrap();
    parts[1].zero_().unwrap();
    assert_eq!(floats(&x), [20.0, 0.0, 0.0, 20.0, 0.0, 0.0]);
    // Views of views; earlier results keep the elements that they read.
    let before = &x + 0.0;
    x.i((1.., ..))
        .unwrap()
        .unsqueeze(0)
        .unwrap()
        .permute([2, 0, 1])
        .unwrap()
        .i(2)
        .unwrap()
        .add_(5)
        .unwrap();
    assert_eq!(floats(&x), [20.0, 0.0, 0.0, 20.0, 0.0, 5.0]);
    assert_eq!(floats(&before), [20.0, 0.0, 0.0, 20.0, 0.0, 0.0]);
    assert!(reason(ints(&[1, 3]).expand([2, 3]).unwrap().relu_()).contains("share memory"));
    assert!(reason(ints(&[3]).add_(ints(&[2, 3]))).contains("shape"));
    let int = Tensor::from_slice(&[2], &[1i32, 2]).unwrap();
    assert!(reason(int.add_(0.5)).contains("cannot become int32"));
    int.mul_(3).unwrap();
    assert_eq!(int.to_vec::<i32>().unwrap(), [3, 6]);
}

#[test]
fn in_place_shapes_change_one_tensor() {
    // x = torch.arange(6.).reshape(2, 3); row = x[0]; same = x; x.transpose_(0, 1); x[0] = 7
    let x = ints(&[2, 3]);
    let (row, same, other) = (x.i(0).unwrap(), x.clone(), x.view([6]).unwrap());
    x.transpose_(0, 1).unwrap();
    assert_eq!(same.shape(), [3, 2]);
    assert_eq!(row.shape(), [3]);
    x.i(0).unwrap().fill_(7).unwrap();
    assert_eq!(floats(&row), [7.0, 1.0, 2.0]);
    assert_eq!(floats(&other), [7.0, 1.0, 2.0, 7.0, 4.0, 5.0]);
    assert_eq!(floats(&same), [7.0, 7.0, 1.0, 4.0, 2.0, 5.0]);
    x.unsqueeze_(0).unwrap();
    assert_eq!((same.shape(), other.shape()), (vec![1, 3, 2], vec![6]));
    same.squeeze_().unwrap();
    assert_eq!(x.shape(), [3, 2]);
}

#[test]
fn indices_are_as_in_python() {
    let x = ints(&[2, 3, 4]);
    assert_eq!(floats(&x.i((1, .., 0)).unwrap()), [12.0, 16.0, 20.0]);
    assert_eq!(floats(&x.i((0, -1, 1..3)).unwrap()), [9.0, 10.0]);
    assert_eq!(floats(&x.i((At::Ellipsis, 3)).unwrap()), [3.0, 7.0, 11.0, 15.0, 19.0, 23.0]);
    assert_eq!(x.i((At::NewDim, 0, .., At::NewDim)).unwrap().shape(), [1, 3, 1, 4]);
    assert_eq!(floats(&x.i((0, 0, ..-2)).unwrap()), [0.0, 1.0]);
    assert_eq!(floats(&x.i((0, 0, -3..=-1)).unwrap()), [1.0, 2.0, 3.0]);
    let steps = At::Slice { start: None, end: None, step: 3 };
    assert_eq!(floats(&x.i(&[At::Index(0), At::Index(0), steps][..]).unwrap()), [0.0, 3.0]);
    assert_eq!(x.i((5..9, ..)).unwrap().shape(), [0, 3, 4]);
    assert!(x.i(2).is_err());
    assert!(x.i((0, 0, 0, 0)).is_err());
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

fn doubles(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

#[test]
fn numbers_are_promoted_as_in_pytorch() {
    let x = Tensor::from_slice(&[3], &[1.0f64, -2.0, 3.0]).unwrap();
    let int = Tensor::from_slice(&[3], &[5i64, -7, 9]).unwrap();
    let mask = x.gt(0).unwrap();
    let half = Tensor::scalar(1.5f32).unwrap().to_dtype(ScalarType::Half).unwrap();
    // torch.where(mask, x, 0.1) and so on.
    assert_eq!(doubles(&mask.where_(&x, 0.1).unwrap()), [1.0, 0.1, 3.0]);
    assert_eq!(doubles(&mask.where_(2, &x).unwrap()), [2.0, -2.0, 2.0]);
    assert_eq!(mask.where_(&int, 7).unwrap().to_vec::<i64>().unwrap(), [5, 7, 9]);
    assert_eq!(floats(&mask.where_(&int, 0.5).unwrap()), [5.0, 0.5, 9.0]);
    assert_eq!(mask.where_(1, 2).unwrap().to_vec::<i64>().unwrap(), [1, 2, 1]);
    assert_eq!(floats(&mask.where_(1, 2.5).unwrap()), [1.0, 2.5, 1.0]);
    let chosen = mask.where_(&half, 2).unwrap();
    assert_eq!(chosen.scalar_type(), ScalarType::Half);
    let chosen = chosen.to_dtype(ScalarType::Float).unwrap();
    assert_eq!(floats(&chosen), [1.5, 2.0, 1.5]);
    assert_eq!((&half * 0.1).scalar_type(), ScalarType::Half);
    let scaled = (&half * 0.1).to_dtype(ScalarType::Double).unwrap();
    assert_eq!(doubles(&scaled), [0.1500244140625]);
    assert_eq!(doubles(&(&x + 0.1)), [1.1, -1.9, 3.1]);
    let divide = |x: &Tensor, by: Arg| x.call("floor_divide", [by]);
    assert_eq!(divide(&int, 2.into()).unwrap().to_vec::<i64>().unwrap(), [2, -4, 4]);
    assert_eq!(floats(&divide(&int, 0.5.into()).unwrap()), [10.0, -14.0, 18.0]);
    assert_eq!(doubles(&divide(&x, 0.3.into()).unwrap()), [3.0, -7.0, 10.0]);
    assert!(reason(divide(&half, 0.1.into())).contains("half precision"));
    // The number or tensor that differs from the schema chooses the overload.
    let tenth = Tensor::scalar(0.1f64).unwrap();
    assert_eq!(doubles(&x.masked_fill(&mask, 0.1).unwrap()), [0.1, -2.0, 0.1]);
    assert_eq!(doubles(&x.masked_fill(&mask, &tenth).unwrap()), [0.1, -2.0, 0.1]);
    let end = &x * 2;
    let quarter = Tensor::scalar(0.25f64).unwrap();
    assert_eq!(doubles(&x.lerp(&end, 0.25).unwrap()), [1.25, -2.5, 3.75]);
    for name in ["lerp", "lerp.Tensor"] {
        let made = x.call(name, [(&end).into(), (&quarter).into()]).unwrap();
        assert_eq!(doubles(&made), [1.25, -2.5, 3.75]);
    }
    // PyTorch refuses these.
    assert!(x.call("lerp", [2.0.into(), 0.5.into()]).is_err());
    assert!(x.call("masked_fill", [1.into(), 2.0.into()]).is_err());
    assert!(reason(x.call("maximum", [2.0.into()])).contains("expected Tensor, found a float"));
    assert!(x.call("atan2", [1.0.into()]).is_err());
}

#[test]
fn overloads_are_chosen_by_arguments() {
    let device = Device::cpu();
    let int = Tensor::from_slice(&[3], &[5i64, -7, 9]).unwrap();
    // i.sum(0), i.sum(dtype=torch.int8)
    assert_eq!(int.call("sum", [0.into()]).unwrap().to_vec::<i64>().unwrap(), [7]);
    let narrow = int.call("sum", [ScalarType::Char.into()]).unwrap();
    assert_eq!(narrow.to_vec::<i8>().unwrap(), [7]);
    assert!(reason(int.call("sum.default", [0.into()])).contains("`dtype`"));
    // torch.arange(0, 5), torch.arange(0, 5, 2), torch.arange(3.)
    let range = |args: &[Arg]| device.call("arange", args.to_vec()).unwrap();
    assert_eq!(range(&[0.into(), 5.into()]).to_vec::<i64>().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(range(&[0.into(), 5.into(), 2.into()]).to_vec::<i64>().unwrap(), [0, 2, 4]);
    assert_eq!(floats(&range(&[3.0.into()])), [0.0, 1.0, 2.0]);
    assert_eq!(floats(&range(&[3.into(), ScalarType::Float.into()])), [0.0, 1.0, 2.0]);
    let x = ints(&[2, 3]);
    // x.split([1, 2], 1), x.squeeze(0), torch.div(x, 2, rounding_mode="floor"), x.max(), x.max(1)
    let parts = x.call_all("split", [[1i64, 2].into(), 1.into()]).unwrap();
    assert_eq!(parts[1].shape(), [2, 2]);
    assert_eq!(ints(&[1, 1]).call("squeeze", [0.into()]).unwrap().shape(), [1]);
    let halves = x.call("div", [2.into(), "floor".into()]).unwrap();
    assert_eq!(floats(&halves), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    assert_eq!(floats(&x.call("max", []).unwrap()), [5.0]);
    assert_eq!(x.call_all("max", [1.into()]).unwrap().len(), 2);
    // x.std(1), x.std(False), x.var([1], False), x.any(1), x.all(), x.norm(1)
    assert_eq!(floats(&x.call("std", [1.into()]).unwrap()), [1.0, 1.0]);
    let std: f32 = x.call("std", [false.into()]).unwrap().item().unwrap();
    assert!((std - 1.707_825_2).abs() < 1e-6);
    let var = floats(&x.call("var", [[1i64].into(), false.into()]).unwrap());
    assert!(var.iter().all(|it| (it - 2.0 / 3.0).abs() < 1e-6), "{var:?}");
    assert_eq!(x.call("any", [1.into()]).unwrap().shape(), [2]);
    assert_eq!(x.call("all", []).unwrap().rank(), 0);
    assert_eq!(floats(&x.call("norm", [1.into()]).unwrap()), [15.0]);
    // x.scatter(1, torch.tensor([[0], [2]]), 9.), torch.pow(2, x)
    let index = Tensor::from_slice(&[2, 1], &[0i64, 2]).unwrap();
    let scattered = x.call("scatter", [1.into(), (&index).into(), 9.0.into()]).unwrap();
    assert_eq!(floats(&scattered), [9.0, 1.0, 2.0, 3.0, 4.0, 9.0]);
    let powers = device.call("pow", [2.into(), (&x).into()]).unwrap();
    assert_eq!(floats(&powers), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    // x.mean(1, dtype=torch.float64), torch.clamp(x, torch.tensor(1.), torch.tensor(3.))
    let wide = [1.into(), false.into(), ScalarType::Double.into()];
    assert_eq!(doubles(&x.call("mean", wide).unwrap()), [1.0, 4.0]);
    let (min, max) = (Tensor::scalar(1.0f32).unwrap(), Tensor::scalar(3.0f32).unwrap());
    let limited = [1.0, 1.0, 2.0, 3.0, 3.0, 3.0];
    assert_eq!(floats(&x.call("clamp", [(&min).into(), (&max).into()]).unwrap()), limited);
    assert_eq!(floats(&x.clamp(&min, &max).unwrap()), limited);
    let error = reason(x.call("sum", ["x".into()]));
    assert!(error.contains("no overload accepts (a tensor, a string)"), "{error}");
    // Results are not dropped.
    assert!(reason(x.call("max", [1.into()])).contains("returns 2 tensors"));
    assert!(reason(device.call("sort", [(&x).into()])).contains("returns 2 tensors"));
    // Calls by a device make views, too, and check the devices of their arguments.
    device.call("t", [(&x).into()]).unwrap().i(0).unwrap().fill_(7).unwrap();
    assert_eq!(floats(&x), [7.0, 1.0, 2.0, 7.0, 4.0, 5.0]);
    assert!(reason(device.strict().call("relu", [(&x).into()])).contains("different devices"));
}

#[test]
fn all_views_share_memory_and_copies_do_not() {
    // x = torch.arange(6.).reshape(1, 2, 3); x.movedim(0, 2)[0].fill_(9)
    let x = ints(&[1, 2, 3]);
    x.movedim(0, 2).unwrap().i(0).unwrap().fill_(9).unwrap();
    assert_eq!(floats(&x), [9.0, 9.0, 9.0, 3.0, 4.0, 5.0]);
    // x = torch.arange(24.).reshape(2, 3, 4); torch.movedim(x, [0, 2], [2, 0])[1].add_(100)
    let x = ints(&[2, 3, 4]);
    let y = x.movedim([0, 2], [2, 0]).unwrap();
    assert_eq!(y.shape(), [4, 3, 2]);
    y.i(1).unwrap().add_(100).unwrap();
    let expected = |at: usize| at as f32 + if at % 4 == 1 { 100.0 } else { 0.0 };
    assert_eq!(floats(&x), (0..24).map(expected).collect::<Vec<_>>());
    // x = torch.arange(6.).reshape(2, 3); x.mT[0].fill_(7); x.T[1, 1] = 8
    let x = ints(&[2, 3]);
    x.call("mT", []).unwrap().i(0).unwrap().fill_(7).unwrap();
    x.call("numpy_T", []).unwrap().i((1, 1)).unwrap().fill_(8).unwrap();
    assert_eq!(floats(&x), [7.0, 1.0, 2.0, 7.0, 8.0, 5.0]);
    // torch.nn.functional.dropout(x, 0.5, training=False).add_(1)
    let x = ints(&[2, 2]);
    x.call("dropout", [0.5.into(), false.into()]).unwrap().add_(1).unwrap();
    assert_eq!(floats(&x), [1.0, 2.0, 3.0, 4.0]);
    // Copies: torch.view_copy(x, [4]), torch.t_copy(x), x.to(torch.float32, copy=True)
    for (name, args) in [
        ("view_copy", vec![Arg::from([4i64])]),
        ("t_copy", vec![]),
        ("select_copy.int", vec![0.into(), 0.into()]),
        ("to.dtype", vec![ScalarType::Float.into(), false.into(), true.into()]),
    ] {
        let copy = x.call(name, args).unwrap();
        copy.fill_(-1).unwrap();
        assert_eq!(floats(&x), [1.0, 2.0, 3.0, 4.0], "{name}");
        assert!(floats(&copy).iter().all(|it| *it == -1.0), "{name}");
    }
    let copy = x.t().unwrap().copy();
    copy.fill_(-1).unwrap();
    assert_eq!(floats(&x), [1.0, 2.0, 3.0, 4.0]);
    x.fill_(5).unwrap();
    assert_eq!((floats(&copy), copy.is_contiguous()), (vec![-1.0; 4], true));
    // Writing through sliding windows is refused, overlapping or not.
    for step in [1, 2] {
        let windows = ints(&[4]).unfold(0, 2, step).unwrap();
        assert!(reason(windows.add_(1)).contains("not supported"));
    }
    let windows = ints(&[2, 2]).unfold(0, 2, 2).unwrap();
    assert!(reason(windows.add_(1)).contains("not supported"));
}

#[test]
fn in_place_views_by_name_change_shapes_only() {
    // x = torch.arange(6.).reshape(2, 3); other = x.view(6); x.transpose_(0, 1); x.unsqueeze_(0)
    let x = ints(&[2, 3]);
    let other = x.view([6]).unwrap();
    x.call_in_place("transpose_", [0.into(), 1.into()]).unwrap();
    assert_eq!((x.shape(), floats(&x)), (vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
    x.call_in_place("unsqueeze_", [0.into()]).unwrap();
    assert_eq!(x.shape(), [1, 3, 2]);
    x.call_in_place("squeeze_", [0.into()]).unwrap();
    x.call_in_place("aten::t_", []).unwrap();
    assert_eq!(x.shape(), [2, 3]);
    x.add_(1).unwrap();
    assert_eq!(floats(&other), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let square = ints(&[2, 2]);
    square.call_in_place("t_", []).unwrap();
    assert_eq!(floats(&square), [0.0, 2.0, 1.0, 3.0]);
    for name in ["view_", "permute_", "t_copy_", "contiguous_", "flatten_"] {
        let args: &[Arg] = match name {
            "view_" => &[Arg::Ints(vec![2, 2])],
            "permute_" => &[Arg::Ints(vec![0, 1])],
            _ => &[],
        };
        let error = reason(square.call_in_place(name, args.to_vec()));
        assert!(error.contains("no in-place form"), "{name}: {error}");
    }
}

#[test]
fn loops_over_views_do_not_collect_writes() {
    // x = torch.zeros(2, 3, 4); a, b = x[0][1:], x[1]
    // for k in range(5): a += 1; b += k; a.mul_(2)
    let device = Device::cpu().strict();
    let x = device.zeros([2, 3, 4], ScalarType::Float).unwrap();
    let (a, b) = (x.i(0).unwrap().i(1..).unwrap(), x.i(1).unwrap());
    let turn = |k: i64| {
        a.add_(1).unwrap();
        b.add_(k).unwrap();
        a.mul_(2).unwrap();
        (floats(&a), floats(&b))
    };
    for k in 0..5 {
        turn(k);
    }
    let mut expected = [0.0; 24];
    expected[4..12].fill(62.0);
    expected[12..].fill(10.0);
    assert_eq!(floats(&x), expected);
    // x = torch.ones(4); a, b = x[0:3], x[1:4], and so on
    let y = device.ones([4], ScalarType::Float).unwrap();
    let (c, d) = (y.i(0..3).unwrap(), y.i(1..4).unwrap());
    for k in 1..4 {
        c.add_(k).unwrap();
        d.mul_(2).unwrap();
        c.i(1).unwrap().sub_(1).unwrap();
    }
    assert_eq!(floats(&d), [23.0, 30.0, 8.0]);
    assert_eq!(floats(&y), [7.0, 23.0, 30.0, 8.0]);
    for _ in 0..200 {
        a.zero_().unwrap();
        turn(0);
    }
    let before = device.stats().calls;
    expected[4..12].fill(2.0);
    assert_eq!(floats(&x), expected);
    assert!(device.stats().calls - before < 10, "{}", device.stats().calls - before);
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

/// An argument of a call.
fn argument(value: &Json, device: &Device) -> Arg {
    match value {
        Json::Null => Arg::None,
        Json::Bool(truth) => (*truth).into(),
        Json::String(text) => text.as_str().into(),
        Json::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap().into(),
        },
        Json::Object(_) => {
            let shape = shape(value);
            let elements = numbers(value);
            let tensor = torchlet::Tensor::from_slice(&shape, &elements).unwrap();
            let tensor = tensor.to_type(dtype(value["dtype"].as_str().unwrap())).unwrap();
            Tensor::from_tensor(tensor).unwrap().to(device).unwrap().into()
        }
        Json::Array(items) => {
            let is_tensor = |item: &Json| matches!(item, Json::Object(_));
            if items.iter().any(is_tensor) {
                let tensors = items.iter().map(|item| match argument(item, device) {
                    Arg::Tensor(tensor) => Some(tensor),
                    _ => None,
                });
                return Arg::Tensors(tensors.collect());
            }
            Arg::Ints(items.iter().map(|item| item.as_i64().unwrap()).collect())
        }
    }
}

/// Computes all calls of the fixture on a device, and compares them with PyTorch's.
fn compare_calls(device: &Device, tolerance: f64) {
    let cases = std::fs::read(fixture("calls.json")).unwrap();
    let cases: Json = serde_json::from_slice(&cases).unwrap();
    let mut failures = Vec::new();
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let args = case["arguments"].as_array().unwrap();
        let args: Vec<Arg> = args.iter().map(|it| argument(it, device)).collect();
        // Names are those of operators with a tensor in front, but for `cat` and `pow.Scalar`.
        let made = match &args[0] {
            Arg::Tensor(first) => first.call_all(name, args[1..].to_vec()),
            _ => device.call(name, args).map(|tensor| vec![tensor]),
        };
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let expected = case["outputs"].as_array().unwrap();
        if made.len() != expected.len() {
            failures.push(format!("{name}: {} results", made.len()));
        }
        for (made, expected) in made.iter().zip(expected) {
            let own = dtype(expected["dtype"].as_str().unwrap());
            if (made.shape(), made.scalar_type()) != (shape(expected), own) {
                failures.push(format!("{name}: {made:?}, expected {:?} {own}", shape(expected)));
            }
            let values = made.to_tensor().and_then(|tensor| {
                assert_eq!((tensor.shape(), tensor.scalar_type()), (&made.shape()[..], own));
                tensor.to_f64_vec()
            });
            let values = match values {
                Ok(values) => values,
                Err(error) => {
                    failures.push(format!("{name}: {error}"));
                    continue;
                }
            };
            let expected = numbers(expected);
            let largest = expected.iter().fold(1f64, |largest, it| largest.max(it.abs()));
            let bound = if own == ScalarType::Half { 1e-3 } else { tolerance } * largest;
            let is_close =
                |(a, b): (&f64, &f64)| (a - b).abs() <= bound || a.is_nan() && b.is_nan();
            if !values.iter().zip(&expected).all(is_close) {
                failures.push(format!("{name}: {values:?}, expected {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn calls_by_name_compute_what_pytorch_computes() {
    compare_calls(&Device::cpu(), 1e-5);
}

#[cfg(feature = "vulkan")]
#[test]
fn calls_compute_the_same_on_gpus() {
    if !vulkan::device_is_there() {
        return;
    }
    let device = Device::vulkan().unwrap();
    compare_calls(&device, 1e-3);
    let lacking = "aten.tril.default";
    assert!(device.fallbacks().iter().any(|it| it == lacking), "{:?}", device.fallbacks());
    let (strict, x) = (device.strict(), ints(&[2, 3]));
    let own = x.to(&strict).unwrap();
    assert_eq!(floats(&own.exp().unwrap().log().unwrap().round().unwrap()), floats(&x));
    let error = own.tril(0).unwrap().to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains(lacking) && error.contains("lacks"), "{error}");
    assert!(strict.fallbacks().is_empty());
}

/// Random programs of views and writes have PyTorch's results.
#[test]
fn random_views_share_memory_as_in_pytorch() {
    let programs = std::fs::read(fixture("views.json")).unwrap();
    let programs: Json = serde_json::from_slice(&programs).unwrap();
    for (number, program) in programs.as_array().unwrap().iter().enumerate() {
        let mut tensors = vec![ints(&[2, 3, 4])];
        for step in program["steps"].as_array().unwrap() {
            let (source, name) = (step[0].as_u64().unwrap() as usize, step[1].as_str().unwrap());
            let args = step[2].as_array().unwrap().iter().map(|it| argument(it, &Device::cpu()));
            let own = &tensors[source];
            if name.split('.').next().unwrap().ends_with('_') {
                own.call_in_place(name, args).unwrap_or_else(|error| panic!("{number}: {error}"));
            } else {
                let view = own.call(name, args).unwrap_or_else(|error| panic!("{number}: {error}"));
                tensors.push(view);
            }
        }
        for (own, expected) in tensors.iter().zip(program["tensors"].as_array().unwrap()) {
            assert_eq!(own.shape(), shape(expected), "program {number}");
            let values: Vec<f64> = floats(own).into_iter().map(f64::from).collect();
            assert_eq!(values, numbers(expected), "program {number}");
        }
    }
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
