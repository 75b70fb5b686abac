//! `cortex_m` operators that no fixture calls match plain formulas, for inputs and outputs in any
//! memory order.

#![cfg(all(feature = "std", feature = "portable"))]

use torchlet::core::{Scalar, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::{Module, RunOn, Value};
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};

/// A tensor of int8 values in logical order.
struct Values {
    sizes: Vec<i32>,
    values: Vec<i8>,
}

/// An argument of a call.
enum Arg {
    /// An input, by its index.
    Input(usize),
    Int(i64),
    Float(f64),
    /// Memory that the kernel does not need.
    Scratch,
}

impl Values {
    /// Values from `-bound` to `bound` in no particular order.
    fn new(sizes: &[i32], bound: i32, seed: i32) -> Self {
        let count: i32 = sizes.iter().product();
        let value = |at: i32| ((at * 37 + seed) * 101 % (2 * bound + 1) - bound) as i8;
        Values { sizes: sizes.to_vec(), values: (0..count).map(value).collect() }
    }

    /// The bytes in this memory order.
    fn bytes(&self, order: &[u8]) -> Vec<u8> {
        let sizes: Vec<usize> = self.sizes.iter().map(|size| *size as usize).collect();
        let mut bytes = vec![0; self.values.len()];
        for (logical, value) in self.values.iter().enumerate() {
            let (mut rest, mut indices) = (logical, vec![0; sizes.len()]);
            for dim in (0..sizes.len()).rev() {
                indices[dim] = rest % sizes[dim];
                rest /= sizes[dim];
            }
            let place = |at, dim: &u8| at * sizes[*dim as usize] + indices[*dim as usize];
            bytes[order.iter().fold(0, place)] = *value as u8;
        }
        bytes
    }
}

fn tensor(sizes: &[i32], order: &[u8], data: TensorData<'static>) -> MethodTensor<'static> {
    let mut info = TensorInfo::contiguous(ScalarType::Char, sizes).unwrap();
    info.dim_order = order.iter().copied().collect();
    let location = matches!(data, TensorData::None).then_some((1, 0));
    MethodTensor { info, dynamism: ShapeDynamism::Static, location, data, name: None }
}

/// Runs a call whose tensors have these memory orders; the last is that of the output. Returns the
/// output in logical order.
fn run(name: &str, inputs: &[Values], args: &[Arg], sizes: &[i32], orders: &[&[u8]]) -> Vec<i8> {
    let bytes = sizes.iter().product::<i32>() as usize;
    let mut method =
        Method { name: "forward".into(), planned: vec![0, bytes, 16], ..Method::default() };
    let mut indices = Vec::new();
    for arg in args {
        indices.push(match arg {
            Arg::Input(number) => {
                let (input, order) = (&inputs[*number], orders[*number]);
                let data = TensorData::Inside(input.bytes(order).into());
                method.add(MethodValue::Tensor(tensor(&input.sizes, order, data)))
            }
            Arg::Int(value) => method.add(MethodValue::Scalar(Scalar::Int(*value))),
            Arg::Float(value) => method.add(MethodValue::Scalar(Scalar::Double(*value))),
            Arg::Scratch => {
                let scratch = tensor(&[16], &[0], TensorData::None);
                let scratch = MethodTensor { location: Some((2, 0)), ..scratch };
                method.add(MethodValue::Tensor(scratch))
            }
        });
    }
    let order = orders.last().unwrap();
    let out = method.add(MethodValue::Tensor(tensor(sizes, order, TensorData::None)));
    method.outputs.push(out);
    indices.extend([out, out]);
    let (name, overload) = name.split_once('.').unwrap();
    let (name, overload) = (name.to_owned(), overload.to_owned());
    method.instructions = vec![Instruction::Kernel { name, overload, args: indices }];
    let program = Program { methods: vec![method], named: Vec::new() };
    let bytes = program.write().unwrap().to_bytes();
    let builder = Module::builder().threads(2).run_on(RunOn::AsExported);
    let mut module = builder.from_bytes(bytes).unwrap();
    let outputs = module.execute("forward", Vec::<Value>::new()).unwrap();
    let output = outputs.into_iter().next().unwrap().into_tensor().unwrap();
    assert_eq!(output.dim_order(), *order);
    output.to_contiguous().unwrap().to_vec::<i8>().unwrap()
}

/// Runs `check` for all combinations of two memory orders for `count` tensors.
fn each_order(count: usize, orders: [&'static [u8]; 2], check: impl Fn(&[&[u8]])) {
    for choice in 0..1usize << count {
        let chosen: Vec<&[u8]> = (0..count).map(|at| orders[choice >> at & 1]).collect();
        check(&chosen);
    }
}

/// Contiguous and channels last.
const IMAGES: [&[u8]; 2] = [&[0, 1, 2, 3], &[0, 2, 3, 1]];
const SIZES: [i32; 4] = [2, 3, 4, 5];

#[test]
fn minimum_and_maximum() {
    let inputs = [Values::new(&SIZES, 127, 3), Values::new(&SIZES, 127, 50)];
    let args = [Arg::Input(0), Arg::Input(1)];
    let pairs = || inputs[0].values.iter().zip(&inputs[1].values);
    let least: Vec<i8> = pairs().map(|(a, b)| *a.min(b)).collect();
    let largest: Vec<i8> = pairs().map(|(a, b)| *a.max(b)).collect();
    each_order(3, IMAGES, |orders| {
        let found = run("cortex_m::minimum.out", &inputs, &args, &SIZES, orders);
        assert_eq!(found, least, "{orders:?}");
        let found = run("cortex_m::maximum.out", &inputs, &args, &SIZES, orders);
        assert_eq!(found, largest, "{orders:?}");
    });
}

#[test]
fn division() {
    let inputs = [Values::new(&SIZES, 127, 3), Values::new(&SIZES, 20, 50)];
    let (zeros, zero, scale) = ([5, -3], 7, 2.5);
    let args = [
        Arg::Input(0),
        Arg::Int(zeros[0]),
        Arg::Input(1),
        Arg::Int(zeros[1]),
        Arg::Int(zero),
        Arg::Float(scale),
    ];
    let quotients = inputs[0].values.iter().zip(&inputs[1].values).map(|(a, b)| {
        let [a, b] = [i64::from(*a) - zeros[0], i64::from(*b) - zeros[1]];
        let quotient = if b == 0 { 0.0 } else { a as f64 / b as f64 };
        (quotient * scale + zero as f64).clamp(-128.0, 127.0)
    });
    let quotients: Vec<f64> = quotients.collect();
    assert!(inputs[1].values.contains(&-3), "a division by zero");
    each_order(3, IMAGES, |orders| {
        let found = run("cortex_m::quantized_div.out", &inputs, &args, &SIZES, orders);
        assert_rounded(&found, &quotients, 0.5);
    });
}

/// Asserts that values are exact ones, rounded to the nearest integer, within a tolerance.
fn assert_rounded(found: &[i8], exact: &[f64], tolerance: f64) {
    assert_eq!(found.len(), exact.len());
    for (found, exact) in found.iter().zip(exact) {
        assert!((f64::from(*found) - exact).abs() <= tolerance + 1e-4, "{found}: {exact}");
    }
}

/// CMSIS-NN's exponentials have an error of less than one step.
#[test]
fn softmax() {
    let inputs = [Values::new(&SIZES, 60, 11)];
    // A scale of 1/8, times 2^26 for five integer bits, as a multiplier with 31 fraction bits and a
    // shift; differences of less than -31 do not count.
    let args = [Arg::Input(0), Arg::Int(-1), Arg::Int(0), Arg::Int(-128), Arg::Int(1 << 30)];
    let args: Vec<Arg> = args.into_iter().chain([Arg::Int(24), Arg::Int(-248)]).collect();
    let mut exact = Vec::new();
    for row in inputs[0].values.chunks(5) {
        let powers: Vec<f64> = row.iter().map(|value| (f64::from(*value) / 8.0).exp()).collect();
        let sum: f64 = powers.iter().sum();
        exact.extend(powers.iter().map(|power| (power / sum * 256.0 - 128.0).min(127.0)));
    }
    each_order(2, IMAGES, |orders| {
        assert_rounded(&run("cortex_m::softmax.out", &inputs, &args, &SIZES, orders), &exact, 1.0);
    });
}

#[test]
fn batched_matrix_multiplication() {
    let (batch, rows, depth, columns) = (2, 3, 7, 5);
    let inputs =
        [Values::new(&[batch, rows, depth], 30, 11), Values::new(&[batch, columns, depth], 30, 70)];
    // The zero points are negated; the multiplier is 1/32.
    let (zeros, zero) = ([-4, 9], 3);
    let args = [
        Arg::Input(0),
        Arg::Int(zeros[0]),
        Arg::Input(1),
        Arg::Int(zeros[1]),
        Arg::Int(zero),
        Arg::Int(1 << 30),
        Arg::Int(-4),
        Arg::Scratch,
    ];
    let mut exact = Vec::new();
    let [a, b] = [&inputs[0].values, &inputs[1].values].map(|values| values.chunks(depth as usize));
    let (a, b): (Vec<_>, Vec<_>) = (a.collect(), b.collect());
    for (at, row) in a.iter().enumerate() {
        let first = at / rows as usize * columns as usize;
        for column in &b[first..first + columns as usize] {
            let terms = row
                .iter()
                .zip(*column)
                .map(|(a, b)| (i64::from(*a) + zeros[0]) * (i64::from(*b) + zeros[1]));
            let sum = terms.sum::<i64>() as f64 / 32.0 + zero as f64;
            exact.push(sum.clamp(-128.0, 127.0));
        }
    }
    let orders: [&[u8]; 2] = [&[0, 1, 2], &[0, 2, 1]];
    each_order(3, orders, |orders| {
        let (name, sizes) = ("cortex_m::quantized_batch_matmul.out", [batch, rows, columns]);
        assert_rounded(&run(name, &inputs, &args, &sizes, orders), &exact, 0.5);
    });
}
