use super::*;
use crate::fold;
use crate::testing::{codes, constant, outputs, registry, typed};
use alloc::vec;
use torchlet_core::TensorRef;

/// Reproducible int8 values over the whole range.
fn values(count: usize, seed: u64) -> Vec<i8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as i8
    };
    (0..count).map(next).collect()
}

/// A graph with a single call. Tensors without data are its inputs.
fn one(
    operator: Operator,
    inputs: &[Value<'static>],
    out: &[usize],
    made: ScalarType,
) -> Graph<'static> {
    let mut graph = Graph { values: inputs.to_vec(), ..Graph::default() };
    let is_input = |id: &ValueId| matches!(&inputs[*id], Value::Tensor(Tensor { data: None, .. }));
    graph.inputs = (0..inputs.len()).filter(is_input).collect();
    graph.values.push(typed(out, made, None));
    graph.outputs = vec![inputs.len()];
    graph.nodes.push(Node::new(operator, (0..=inputs.len()).collect()));
    graph
}

/// Asserts that the results of a call on integer kernels and in floating point differ by at most
/// one step.
fn check(operator: Operator, inputs: &[Value<'static>], out: &[usize], kernel: Operator) {
    let graph = one(operator, inputs, out, ScalarType::Char);
    assert!(accepts(&graph, &graph.nodes[0], &registry()), "{operator:?}");
    let given: Vec<(Vec<i32>, Vec<i8>)> = graph
        .inputs
        .iter()
        .map(|id| {
            let sizes = &graph.tensor(*id).unwrap().sizes;
            let sizes32 = sizes.iter().map(|size| *size as i32).collect();
            (sizes32, values(sizes.iter().product(), 7 + *id as u64))
        })
        .collect();
    let given: Vec<TensorRef<'_>> =
        given.iter().map(|(sizes, data)| TensorRef::from_slice(sizes, data).unwrap()).collect();
    let mut floats = graph.clone();
    super::super::run(&mut floats).unwrap();
    let mut integers = graph;
    assert_eq!(run(&mut integers, &registry()), 1, "{operator:?}");
    fold::run(&mut integers, &registry()).unwrap();
    let made: Vec<Operator> = integers.nodes.iter().map(|node| node.operator).collect();
    assert!(made.contains(&kernel), "{operator:?}: {made:?}");
    let (found, expected) = (outputs(&integers, &given), outputs(&floats, &given));
    let mut distinct = expected[0].clone();
    distinct.dedup();
    assert!(distinct.len() > 2, "{operator:?}: {expected:?}");
    for (found, expected) in found[0].iter().zip(&expected[0]) {
        assert!((found - expected).abs() <= 1.0, "{operator:?}: {found}, not {expected}");
    }
}

fn input(sizes: &[usize]) -> Value<'static> {
    typed(sizes, ScalarType::Char, None)
}

fn weights(sizes: &[usize]) -> Value<'static> {
    codes(sizes, &values(sizes.iter().product(), 3))
}

fn number(value: f64) -> Value<'static> {
    Value::Double(value)
}

fn int(value: i64) -> Value<'static> {
    Value::Int(value)
}

fn ints(items: &[i64]) -> Value<'static> {
    Value::IntList(items.to_vec())
}

/// Parameters of a layer: input quantization, weights and scales, output quantization, and bias.
fn layer(sizes: &[usize], weight: &[usize], scales: &[f32], bias: bool) -> Vec<Value<'static>> {
    let count = scales.len();
    let biases: Vec<f32> = (0..count).map(|at| at as f32 * 0.7 - 1.0).collect();
    vec![
        input(sizes),
        number(0.05),
        int(-7),
        weights(weight),
        Value::None,
        constant(&[count], scales),
        number(0.6),
        int(5),
        if bias { constant(&[count], &biases) } else { Value::None },
    ]
}

fn activation(name: &str) -> Value<'static> {
    Value::String(name.into())
}

#[test]
fn convolutions() {
    for (groups, depth, name) in [(1, 4, "none"), (2, 2, "relu")] {
        let mut inputs =
            layer(&[2, 4, 5, 6], &[6, 9 * depth], &[0.01, 0.02, 0.03, 0.01, 0.005, 0.02], true);
        inputs.extend([ints(&[3, 3]), ints(&[2, 1]), ints(&[1, 1]), ints(&[1, 1])]);
        inputs.extend([int(groups), activation(name)]);
        let kernel = Operator::CORTEX_M_QUANTIZED_CONV2D_NHWC;
        check(Operator::ET_VK_Q8TA_CONV2D, &inputs, &[2, 6, 3, 6], kernel);
    }
    let mut inputs = layer(&[1, 4, 5, 6], &[3, 3, 4], &[0.01, 0.02, 0.03, 0.01], false);
    inputs.extend([ints(&[3, 3]), ints(&[1, 1]), ints(&[0, 0]), ints(&[1, 2])]);
    inputs.extend([int(4), activation("none")]);
    let kernel = Operator::CORTEX_M_QUANTIZED_DEPTHWISE_CONV2D_NHWC;
    check(Operator::ET_VK_Q8TA_CONV2D_DW, &inputs, &[1, 4, 3, 2], kernel);
    let mut inputs = layer(&[1, 4, 3, 2], &[3, 16], &[0.01, 0.02, 0.03], true);
    inputs.extend([ints(&[2, 2]), ints(&[2, 2]), ints(&[0, 0]), ints(&[0, 1]), ints(&[1, 1])]);
    inputs.extend([int(1), activation("none")]);
    let kernel = Operator::CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D_NHWC;
    check(Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED, &inputs, &[1, 3, 6, 5], kernel);
}

/// A table that clamps the results of a convolution becomes the range of its kernel; other tables
/// stay.
#[test]
fn limits_are_bounds_of_convolutions() {
    let mut inputs = layer(&[1, 4, 5, 6], &[3, 4], &[0.01, 0.02, 0.03], true);
    inputs.extend([ints(&[1, 1]), ints(&[1, 1]), ints(&[0, 0]), ints(&[1, 1])]);
    inputs.extend([int(1), activation("none")]);
    let data = values(120, 5);
    let given = [TensorRef::from_slice(&[1, 4, 5, 6], &data).unwrap()];
    let limited: Vec<i8> = (-128..=127).map(|code: i8| code.clamp(-3, 40)).collect();
    let other: Vec<i8> = limited.iter().map(|code| code.wrapping_add(1)).collect();
    for (table, tables) in [(limited, 0), (other, 1)] {
        let sizes = [1, 3, 5, 6];
        let mut graph = one(Operator::ET_VK_Q8TA_CONV2D, &inputs, &sizes, ScalarType::Char);
        let (first, out) = (graph.outputs[0], graph.values.len() + 1);
        graph.values.extend([codes(&[256], &table), typed(&sizes, ScalarType::Char, None)]);
        graph.nodes.push(Node::new(Operator::Q8TA_LOOKUP, vec![first, out - 1, out]));
        graph.outputs = vec![out];
        let mut floats = graph.clone();
        super::super::run(&mut floats).unwrap();
        assert_eq!(run(&mut graph, &registry()), 2);
        let count = graph
            .nodes
            .iter()
            .filter(|node| node.operator == Operator::CORTEX_M_QUANTIZED_ACTIVATION);
        assert_eq!(count.count(), tables);
        let (found, expected) = (outputs(&graph, &given), outputs(&floats, &given));
        let far = found[0].iter().zip(&expected[0]).filter(|(a, b)| (*a - *b).abs() > 1.0);
        assert_eq!(far.count(), 0, "{found:?}, not {expected:?}");
        assert!(found[0].contains(&(if tables == 0 { 40.0 } else { 41.0 })), "{found:?}");
    }
}

#[test]
fn linear_layers() {
    for (scales, kernel) in [
        ([0.02, 0.01, 0.03], Operator::CORTEX_M_QUANTIZED_CONV2D_NHWC),
        ([0.02, 0.02, 0.02], Operator::CORTEX_M_QUANTIZED_LINEAR),
    ] {
        for name in ["none", "relu"] {
            let mut inputs = layer(&[2, 3, 16], &[3, 16], &scales, true);
            inputs.push(activation(name));
            check(Operator::ET_VK_Q8TA_LINEAR, &inputs, &[2, 3, 3], kernel);
        }
    }
}

#[test]
fn elements() {
    for alpha in [1.0, -2.0] {
        let mut inputs = vec![input(&[2, 50]), input(&[2, 50])];
        for (scale, zero) in [(0.02, 3), (0.05, -20), (0.08, 1)] {
            inputs.extend([number(scale), int(zero)]);
        }
        inputs.push(number(alpha));
        check(Operator::ET_VK_Q8TA_ADD, &inputs, &[2, 50], Operator::CORTEX_M_QUANTIZED_ADD);
        inputs.pop();
        check(Operator::Q8TA_MUL, &inputs, &[2, 50], Operator::CORTEX_M_QUANTIZED_MUL);
    }
    let inputs = [input(&[3, 40]), number(0.02), int(3), number(0.03), int(-9)];
    let kernel = Operator::CORTEX_M_QUANTIZED_ACTIVATION;
    check(Operator::ET_VK_Q8TA_RELU, &inputs, &[3, 40], kernel);
    check(Operator::Q8TA_LOOKUP, &[input(&[3, 40]), weights(&[256])], &[3, 40], kernel);
}

#[test]
fn windows_and_softmax() {
    let windows = [ints(&[3, 2]), ints(&[2, 2]), ints(&[1, 1])];
    let mut inputs = vec![input(&[1, 5, 6, 7])];
    inputs.extend(windows);
    inputs.push(Value::Bool(false));
    let kernel = Operator::CORTEX_M_QUANTIZED_AVG_POOL2D_NHWC;
    check(Operator::Q8TA_AVG_POOL2D, &inputs, &[1, 5, 3, 4], kernel);
    for dim in [-1, 1] {
        let inputs = [input(&[2, 5, 6]), number(0.03), int(4), int(dim)];
        check(Operator::Q8TA_SOFTMAX, &inputs, &[2, 5, 6], Operator::CORTEX_M_SOFTMAX);
    }
}

#[test]
fn what_kernels_cannot_compute_stays() {
    // A result with a far smaller scale than its operands.
    let mut inputs = vec![input(&[2]), input(&[2])];
    for scale in [0.02, 0.05, 1e-9] {
        inputs.extend([number(scale), int(0)]);
    }
    inputs.push(number(1.0));
    let mut graph = one(Operator::ET_VK_Q8TA_ADD, &inputs, &[2], ScalarType::Char);
    assert!(!accepts(&graph, &graph.nodes[0], &registry()));
    assert_eq!(run(&mut graph, &registry()), 0);
    assert_eq!(graph.nodes[0].operator, Operator::ET_VK_Q8TA_ADD);
    // Weights that are not constant, and missing kernels.
    let mut inputs = layer(&[2, 16], &[3, 16], &[0.01, 0.02, 0.03], false);
    inputs.push(activation("none"));
    let graph = one(Operator::ET_VK_Q8TA_LINEAR, &inputs, &[2, 3], ScalarType::Char);
    assert!(accepts(&graph, &graph.nodes[0], &registry()));
    assert!(!accepts(&graph, &graph.nodes[0], &Registry::new()));
    inputs[3] = input(&[3, 16]);
    let graph = one(Operator::ET_VK_Q8TA_LINEAR, &inputs, &[2, 3], ScalarType::Char);
    assert!(!accepts(&graph, &graph.nodes[0], &registry()));
}
