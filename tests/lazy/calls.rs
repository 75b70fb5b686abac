//! Calls have PyTorch's overloads, dtypes and values.

use super::*;

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

/// An argument of a call.
pub(crate) fn argument(value: &Json, device: &Device) -> Arg {
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
