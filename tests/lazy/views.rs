//! Views share memory as in PyTorch.

use super::calls::argument;
use super::*;

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
