use super::*;
use crate::fold;
use crate::graph::{Tensor, Value};
use crate::testing::{codes, constant, outputs, registry, tensor, typed};
use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec;
use torchlet_core::{ScalarType, TensorRef};

/// A graph with a single call. Tensors without data among its inputs are graph inputs.
fn one(operator: Operator, inputs: &[Value<'static>], outs: &[Value<'static>]) -> Graph<'static> {
    let mut graph = Graph { values: inputs.to_vec(), ..Graph::default() };
    let is_input = |id: &ValueId| matches!(&inputs[*id], Value::Tensor(Tensor { data: None, .. }));
    graph.inputs = (0..inputs.len()).filter(is_input).collect();
    let first = graph.values.len();
    graph.values.extend(outs.iter().cloned());
    graph.outputs = (first..graph.values.len()).collect();
    let mut args: Vec<ValueId> = (0..inputs.len()).collect();
    if let [_] = outs {
        args.push(first);
    } else {
        graph.values.push(Value::List(graph.outputs.clone()));
        args.push(graph.values.len() - 1);
    }
    graph.nodes.push(Node::new(operator, args));
    graph
}

/// Runs a lowered graph with and without constant folding, asserts equality, and returns its
/// outputs.
fn ran(mut graph: Graph<'_>, inputs: &[TensorRef<'_>]) -> Vec<Vec<f32>> {
    run(&mut graph).unwrap();
    let plain = outputs(&graph, inputs);
    fold::run(&mut graph, &registry()).unwrap();
    assert_eq!(outputs(&graph, inputs), plain);
    plain
}

fn floats<'f>(sizes: &[i32], numbers: &'f [f32]) -> TensorRef<'f> {
    TensorRef::from_slice(sizes, numbers).unwrap()
}

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{found:?}, not {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        let near = (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
        assert!(near || found == expected, "{found}, not {expected}");
    }
}

fn int(value: i64) -> Value<'static> {
    Value::Int(value)
}

fn ints(items: &[i64]) -> Value<'static> {
    Value::IntList(items.to_vec())
}

/// The reason why a call cannot be lowered.
fn refused(operator: Operator, inputs: &[Value<'static>], outs: &[Value<'static>]) -> String {
    run(&mut one(operator, inputs, outs)).unwrap_err().to_string()
}

#[test]
fn rules_make_a_bounded_program() {
    let line = |size: usize| tensor(&[size]);
    let diff = [line(1 << 20), int(1000), int(-1), Value::None, Value::None];
    let reason = refused(Operator::DIFF, &diff, &[line(0)]);
    assert!(reason.contains("diff of order 1000; at most 64"), "{reason}");

    let linspace =
        [int(0), int(1), int(1 << 25), Value::None, Value::None, Value::None, Value::None];
    let reason = refused(Operator::LINSPACE, &linspace, &[line(1 << 25)]);
    assert!(reason.contains("more than 2^24 steps"), "{reason}");

    let scales = [tensor(&[1, 1, 2]), ints(&[1 << 30]), Value::None];
    let reason = refused(Operator::UPSAMPLE_NEAREST1D_VEC, &scales, &[tensor(&[1, 1, 1 << 30])]);
    assert!(reason.contains("more than 2^24 elements in a dim"), "{reason}");
}

#[test]
fn constants_of_rules_are_bounded_together() {
    let mut graph = Graph::default();
    let mut builder = Builder::new(&mut graph);
    let mut add = || builder.constant(ScalarType::Byte, vec![1 << 27], vec![0; 1 << 27]);
    assert!(add().is_ok() && add().is_ok());
    assert!(add().unwrap_err().to_string().contains("by more than 256 MiB"));
}

#[test]
fn grids_need_an_output_for_each_input() {
    let mut graph = one(Operator::MESHGRID, &[tensor(&[2]), tensor(&[3])], &[tensor(&[3, 2])]);
    graph.values.push(Value::List(vec![0, 1]));
    graph.values.push(Value::String("xy".into()));
    graph.nodes[0].args = vec![3, 4, 2];
    let reason = run(&mut graph).unwrap_err().to_string();
    assert!(reason.contains("expected 2 outputs, found 1"), "{reason}");
}

/// Operators that portable kernels cannot compute: fused operators (which are lowered as the
/// original calls, or which passes produce only at the end of compilation), weights that are packed
/// for one machine, and foreign shaders.
#[test]
fn every_operator_has_a_form() {
    let mut without: Vec<&str> =
        Operator::all().filter(|operator| !is_supported(*operator)).map(Operator::name).collect();
    without.sort_unstable();
    assert_eq!(
        without,
        [
            "torchlet.chain",
            "torchlet.convolution_channels_last",
            "torchlet.depthwise_last",
            "torchlet.epilogue",
            "torchlet.gated",
            "torchlet.linear_int8",
            "torchlet.normed_sum",
            "torchlet.packed",
            "torchlet.recurrent",
            "torchlet.rescaled_arithmetic",
            "torchlet.rotary",
            "torchlet.rounded_rows",
            "torchlet.separable",
            "torchlet.shader",
            "torchlet.to_channels_first",
            "torchlet.to_channels_last",
        ]
    );
    let mut seen = Vec::new();
    for (operator, _) in FAMILIES.iter().flat_map(|family| family.iter()) {
        assert!(!seen.contains(operator), "{operator:?} has two rules");
        seen.push(*operator);
    }
}

#[test]
fn what_has_no_form_is_named() {
    let mut graph = one(Operator::CHAIN, &[tensor(&[2])], &[tensor(&[2])]);
    graph.nodes[0].id = 7;
    let error = run(&mut graph).unwrap_err().to_string();
    assert!(
        error.contains("call 7, torchlet.chain: an operator without a portable kernel"),
        "{error}"
    );
    let mut graph = one(Operator::ET_VK_GRID_PRIORS, &[tensor(&[2])], &[tensor(&[2])]);
    let error = run(&mut graph).unwrap_err().to_string();
    let expected = "call 0, et_vk.grid_priors.default: expected 3 arguments and an output";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn fused_calls_are_taken_apart() {
    let mut graph = one(Operator::CHAIN, &[tensor(&[3])], &[tensor(&[3])]);
    graph.values.push(tensor(&[3]));
    graph.nodes[0].parts =
        vec![Node::new(Operator::ABS, vec![0, 2]), Node::new(Operator::RELU6, vec![2, 1])];
    assert_eq!(ran(graph, &[floats(&[3], &[-2.0, 7.0, 3.0])]), [[2.0, 6.0, 3.0]]);
}

#[test]
fn functions_of_elements() {
    let input = [-1.0, -0.25, 0.0, 0.5, 7.0];
    let cases: [(Operator, &[Value<'_>], [f32; 5]); 4] = [
        (Operator::RELU6, &[], [0.0, 0.0, 0.0, 0.5, 6.0]),
        (Operator::HARDSHRINK, &[Value::Double(0.25)], [-1.0, 0.0, 0.0, 0.5, 7.0]),
        (Operator::ONES_LIKE, &[], [1.0; 5]),
        (Operator::ZEROS_LIKE, &[], [0.0; 5]),
    ];
    for (operator, rest, expected) in cases {
        let mut inputs = vec![tensor(&[5])];
        inputs.extend(rest.iter().cloned());
        let graph = one(operator, &inputs, &[tensor(&[5])]);
        assert_eq!(ran(graph, &[floats(&[5], &input)]), [expected], "{operator:?}");
    }
}

#[test]
fn parts_and_repeats() {
    let numbers = [1.0, 2.0, 3.0, 4.0];
    let input = || floats(&[2, 2], &numbers);
    let inputs = [tensor(&[2, 2]), int(3), int(-1)];
    let graph = one(Operator::REPEAT_INTERLEAVE_SELF_INT, &inputs, &[tensor(&[2, 6])]);
    let repeated = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0];
    assert_eq!(ran(graph, &[input()]), [repeated]);
    let graph = one(Operator::SELECT_INT, &[tensor(&[2, 2]), int(1), int(-1)], &[tensor(&[2])]);
    assert_eq!(ran(graph, &[input()]), [[2.0, 4.0]]);
    let inputs = [tensor(&[2, 2]), int(0), int(1), int(9), int(1)];
    let graph = one(Operator::SLICE_TENSOR, &inputs, &[tensor(&[1, 2])]);
    assert_eq!(ran(graph, &[input()]), [[3.0, 4.0]]);
    let graph = one(Operator::PERMUTE, &[tensor(&[2, 2]), ints(&[1, 0])], &[tensor(&[2, 2])]);
    assert_eq!(ran(graph, &[input()]), [[1.0, 3.0, 2.0, 4.0]]);
}

#[test]
fn convolutions_with_bounds() {
    let weight = constant(&[1, 2, 1], &[1.0, 10.0]);
    let bias = constant(&[1], &[0.5]);
    let rest = [ints(&[1]), ints(&[0]), ints(&[1])];
    let mut inputs = vec![tensor(&[1, 2, 3]), weight, bias];
    inputs.extend(rest);
    inputs.extend([int(1), Value::None, Value::Double(40.5)]);
    let graph = one(Operator::ET_VK_CONV1D_PW, &inputs, &[tensor(&[1, 1, 3])]);
    let input = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    assert_eq!(ran(graph, &[floats(&[1, 2, 3], &input)]), [[40.5, 40.5, 40.5]]);
    // Without limits, the activation is absent.
    inputs[8] = Value::None;
    let graph = one(Operator::ET_VK_CONV1D_DW, &inputs, &[tensor(&[1, 1, 3])]);
    assert_eq!(ran(graph, &[floats(&[1, 2, 3], &input)]), [[41.5, 52.5, 63.5]]);
}

/// Packed int4 values from -8 to 7, two per byte.
fn nibbles(rows: usize, codes: &[i8], low_first: bool) -> Value<'static> {
    let columns = codes.len() / rows;
    let mut bytes = Vec::new();
    for row in codes.chunks(columns) {
        for pair in row.chunks(2) {
            let first = (pair[0] + 8) as u8;
            let second = (pair.get(1).copied().unwrap_or(-8) + 8) as u8;
            bytes.push(if low_first { first | second << 4 } else { second | first << 4 });
        }
    }
    typed(&[rows, columns.div_ceil(2)], ScalarType::Byte, Some(bytes))
}

#[test]
fn products_with_quantized_matrices() {
    let weights = [1i8, -2, 3, 4, -5, 6];
    let input = [1.0f32, 2.0, 3.0];
    // Matrix rows times the input.
    let sums = [1.0 - 4.0 + 9.0, 4.0 - 10.0 + 18.0];
    let run_one = |operator, rest: &[Value<'static>], out| {
        let mut inputs = vec![tensor(&[1, 3])];
        inputs.extend(rest.iter().cloned());
        ran(one(operator, &inputs, &[out]), &[floats(&[1, 3], &input)]).remove(0)
    };
    let scales = constant(&[2], &[0.5, 2.0]);
    let rest = [codes(&[2, 3], &weights), scales.clone(), constant(&[2], &[1.0, -1.0])];
    let found = run_one(Operator::ET_VK_LINEAR_Q8CSW, &rest, tensor(&[1, 2]));
    close(&found, &[sums[0] * 0.5 + 1.0, sums[1] * 2.0 - 1.0]);
    let found = run_one(Operator::WEIGHT_INT8PACK_MM, &rest[..2], tensor(&[1, 2]));
    close(&found, &[sums[0] * 0.5, sums[1] * 2.0]);
    let rest = [nibbles(2, &weights, false), scales.clone()];
    let found = run_one(Operator::ET_VK_LINEAR_QCS4W, &rest, tensor(&[1, 2]));
    close(&found, &[sums[0] * 0.5, sums[1] * 2.0]);
    // Groups of two, the last one shorter; scale rows are longer than needed.
    let grouped = constant(&[2, 4], &[0.5, 2.0, 9.0, 9.0, 4.0, 8.0, 9.0, 9.0]);
    let expected = [(1.0 - 4.0) * 0.5 + 9.0 * 4.0, (4.0 - 10.0) * 2.0 + 18.0 * 8.0];
    let rest = [nibbles(2, &weights, true), grouped, int(2), Value::None];
    let found = run_one(Operator::ET_VK_Q4GSW_LINEAR, &rest, tensor(&[1, 2]));
    close(&found, &expected);
    // The rows quantize without loss; each column is a group.
    let by_column = constant(&[2, 3], &[0.5, 2.0, 1.0, 4.0, 8.0, 0.25]);
    let none = Value::None;
    let rest = [codes(&[2, 3], &weights), by_column, none.clone(), none, int(4)];
    let found = run_one(Operator::DYNAMIC_LINEAR, &rest, tensor(&[1, 2]));
    close(&found, &[0.5 - 8.0 + 9.0, 16.0 - 80.0 + 4.5]);
    // The input is quantized with scale 0.25 and zero point 10.
    let rest =
        [Value::Double(0.25), int(10), codes(&[2, 3], &weights), Value::None, scales, Value::None];
    let found = run_one(Operator::ET_VK_LINEAR_Q8TA_Q8CSW, &rest, tensor(&[1, 2]));
    close(&found, &[sums[0] * 0.5, sums[1] * 2.0]);
}

#[test]
fn gradients_of_quantized_matrices_and_their_codes() {
    let weights = [1i8, -2, 3, 4, -5, 6, 7, -8];
    let scales = constant(&[2, 2], &[0.5, 2.0, 1.0, 3.0]);
    let inputs = [tensor(&[1, 2]), nibbles(2, &weights, true), scales.clone(), int(2)];
    let graph = one(Operator::ET_VK_LINEAR_Q4GSW_BACKWARD, &inputs, &[tensor(&[1, 4])]);
    let found = ran(graph, &[floats(&[1, 2], &[1.0, 10.0])]);
    // A row of values per gradient.
    let expected = [0.5 - 100.0, -1.0 + 120.0, 3.0 + 210.0, 4.0 - 240.0];
    close(&found[0], &expected);
    // Ties round to even; out-of-range values saturate.
    let out = typed(&[2, 2], ScalarType::Byte, None);
    let inputs = [tensor(&[2, 4]), scales, int(2)];
    let graph = one(Operator::ET_VK_Q4GSW_REQUANT, &inputs, &[out]);
    let numbers = [0.75, -1.25, 100.0, -3.0, 4.0, 6.0, -9.0, -100.0];
    let found = ran(graph, &[floats(&[2, 4], &numbers)]);
    let codes = [2i32, -2, 7, -3, 2, 3, -3, -8].map(|code| code + 8);
    let bytes = codes.chunks(2).map(|pair| (pair[0] | pair[1] << 4) as f32);
    assert_eq!(found[0], bytes.collect::<Vec<_>>());
}

/// Convolutions with two input and two output channels, a 2 by 1 kernel, and a 2 by 2 plane.
#[test]
fn convolutions_with_quantized_weights() {
    let input = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let scales = constant(&[2], &[0.5, 2.0]);
    let shape = |groups| [ints(&[2, 1]), ints(&[1, 1]), ints(&[0, 0]), ints(&[1, 1]), int(groups)];
    let convolved = |operator, rest: &[Value<'static>], groups, out| {
        let mut inputs = vec![tensor(&[1, 2, 2, 2])];
        inputs.extend(rest.iter().cloned());
        inputs.extend(shape(groups));
        ran(one(operator, &inputs, &[out]), &[floats(&[1, 2, 2, 2], &input)]).remove(0)
    };
    // `[output channel][y][x][input channel]`, with two more bytes per row.
    let weights = codes(&[2, 6], &[1, 2, 3, 4, 9, 9, -1, 0, 0, 1, 9, 9]);
    let expected = |x: usize| {
        let at = |channel: usize, y: usize| input[channel * 4 + y * 2 + x];
        let first = at(0, 0) + 2.0 * at(1, 0) + 3.0 * at(0, 1) + 4.0 * at(1, 1);
        [first * 0.5 + 1.0, (-at(0, 0) + at(1, 1)) * 2.0 - 1.0]
    };
    let planes = [expected(0)[0], expected(1)[0], expected(0)[1], expected(1)[1]];
    let bias = constant(&[2], &[1.0, -1.0]);
    let rest = [weights.clone(), scales.clone(), bias.clone()];
    let out = tensor(&[1, 2, 1, 2]);
    close(&convolved(Operator::ET_VK_CONV2D_Q8CSW, &rest, 1, out.clone()), &planes);
    let quantized = [Value::Double(0.5), int(-3), weights, Value::None, scales.clone(), bias];
    close(&convolved(Operator::ET_VK_CONV2D_Q8TA_Q8CSW, &quantized, 1, out.clone()), &planes);
    // Depthwise: `[y][x][channel]`, and one more column.
    let weights = codes(&[2, 1, 3], &[1, 2, 9, 3, 4, 9]);
    let rest = [weights, scales, Value::None];
    let found = convolved(Operator::ET_VK_CONV2D_Q8CSW, &rest, 2, out);
    let by_channel = |channel: usize, x: usize| {
        let at = |y: usize| input[channel * 4 + y * 2 + x];
        if channel == 0 { (at(0) + 3.0 * at(1)) * 0.5 } else { (2.0 * at(0) + 4.0 * at(1)) * 2.0 }
    };
    close(&found, &[by_channel(0, 0), by_channel(0, 1), by_channel(1, 0), by_channel(1, 1)]);
}

#[test]
fn quantized_convolutions_have_codes_for_results() {
    let weights = codes(&[2, 2], &[1, 2, -1, 1]);
    let inputs = [
        tensor(&[1, 2, 1, 1]),
        Value::Double(0.5),
        int(0),
        weights,
        Value::None,
        constant(&[2], &[1.0, 1.0]),
        Value::Double(0.25),
        int(3),
        Value::None,
        ints(&[1, 1]),
        ints(&[1, 1]),
        ints(&[0, 0]),
        ints(&[1, 1]),
        int(1),
        Value::String(String::from("relu")),
    ];
    let out = typed(&[1, 2, 1, 1], ScalarType::Char, None);
    let graph = one(Operator::ET_VK_Q8TA_CONV2D_GENERAL, &inputs, &[out]);
    // Sums of 11 and -1; the relu clamps the second to zero.
    assert_eq!(ran(graph, &[floats(&[1, 2, 1, 1], &[4.5, 3.5])]), [[49.0, 3.0]]);
    let mut inputs = inputs.to_vec();
    inputs[14] = int(0);
    let graph = one(Operator::ETVK_TEST_CONV2D_Q8TA_Q8CSW_Q8TO, &inputs, &[tensor(&[1, 2, 1, 1])]);
    assert_eq!(ran(graph, &[floats(&[1, 2, 1, 1], &[4.5, 3.5])]), [[11.5, -1.0]]);
}

#[test]
fn pictures_are_rounded_as_they_come() {
    // An image of two channels with minimum -1 and maximum 1.55, so the scale is 0.01.
    let input = [-1.0f32, 0.5, 1.55, 0.25];
    let rest = [
        codes(&[2, 2], &[1, 2, -1, 1]),
        constant(&[2], &[0.5, 2.0]),
        constant(&[2], &[1.0, -1.0]),
        ints(&[1, 1]),
        ints(&[1, 1]),
        ints(&[0, 0]),
        ints(&[0, 0]),
        ints(&[1, 1]),
        int(1),
    ];
    let expected = |first: [f32; 2], second: [f32; 2]| {
        let each = |a: f32, b: f32| [(a + 2.0 * b) * 0.5 + 1.0, (b - a) * 2.0 - 1.0];
        let (left, right) = (each(first[0], second[0]), each(first[1], second[1]));
        [left[0], right[0], left[1], right[1]]
    };
    for transposed in [false, true] {
        let mut inputs = vec![tensor(&[1, 2, 1, 2])];
        inputs.extend(rest.iter().cloned());
        inputs.push(Value::Bool(transposed));
        let graph = one(Operator::DYNAMIC_CONVOLUTION, &inputs, &[tensor(&[1, 2, 1, 2])]);
        let found = ran(graph, &[floats(&[1, 2, 1, 2], &input)]).remove(0);
        let expected = expected([-1.0, 0.5], [1.55, 0.25]);
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.05), "{found:?}");
    }
}

#[test]
fn codes_are_looked_up() {
    let table: Vec<i8> = (0..=255).map(|place: u8| place.cast_signed().wrapping_mul(3)).collect();
    let code = typed(&[2, 2], ScalarType::Char, None);
    let graph = one(Operator::Q8TA_LOOKUP, &[code.clone(), codes(&[256], &table)], &[code]);
    let given = [-128i8, -1, 0, 127];
    let input = TensorRef::from_slice(&[2, 2], &given).unwrap();
    let expected = given.map(|code| f32::from(table[usize::from(code.cast_unsigned() ^ 128)]));
    assert_eq!(ran(graph, &[input])[0], expected);
}

#[test]
fn scales_and_zero_points_of_rows() {
    let inputs = [tensor(&[2, 3]), int(-128), int(127)];
    let mut graph = one(
        Operator::ETVK_CHOOSE_QPARAMS_PER_ROW,
        &inputs,
        &[tensor(&[2]), typed(&[2], ScalarType::Char, None)],
    );
    // Outputs as separate arguments.
    let outs = graph.outputs.clone();
    graph.nodes[0].args.pop();
    graph.nodes[0].args.extend(outs);
    let found = ran(graph, &[floats(&[2, 3], &[-1.0, 0.0, 1.55, 0.5, 2.55, 1.0])]);
    close(&found[0], &[0.01, 0.01]);
    assert_eq!(found[1], [-28.0, -128.0]);
}

#[test]
fn a_step_of_adamw() {
    let (rate, beta1, beta2, epsilon, decay) = (0.1f32, 0.9f32, 0.99f32, 1e-3f32, 0.01f32);
    let (correction1, correction2) = (0.5f32, 0.25f32);
    let numbers = [rate, beta1, beta2, epsilon, decay, correction1, correction2];
    let mut inputs = vec![tensor(&[2]), tensor(&[2]), tensor(&[2]), tensor(&[2])];
    inputs.extend(numbers.map(|number| Value::Double(number.into())));
    let outs = [tensor(&[2]), tensor(&[2]), tensor(&[2])];
    let graph = one(Operator::ET_VK_ADAMW_STEP, &inputs, &outs);
    let (p, m, v, g) = ([1.0f32, -2.0], [0.5f32, 0.0], [0.25f32, 1.0], [0.1f32, -3.0]);
    let inputs = [&p, &m, &v, &g].map(|numbers| floats(&[2], numbers));
    let mut expected = [[0.0; 2]; 3];
    for at in 0..2 {
        let first = m[at] * beta1 + g[at] * (1.0 - beta1);
        let second = v[at] * beta2 + g[at] * g[at] * (1.0 - beta2);
        let step = (first / correction1) / ((second / correction2).sqrt() + epsilon);
        expected[0][at] = p[at] * (1.0 - rate * decay) - rate * step;
        (expected[1][at], expected[2][at]) = (first, second);
    }
    for (found, expected) in ran(graph, &inputs).iter().zip(expected) {
        close(found, &expected);
    }
}

/// Reference attention over `[position, head, dim]`, causal from a position on.
fn attention(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    [rows, heads, keys, key_heads]: [usize; 4],
) -> Vec<f32> {
    const DEPTH: usize = 2;
    let start = keys - rows;
    let mut out = Vec::new();
    for row in 0..rows {
        for head in 0..heads {
            let key_head = head / (heads / key_heads);
            let q = &q[(row * heads + head) * DEPTH..][..DEPTH];
            let at = |key: usize| (key * key_heads + key_head) * DEPTH;
            let visible = start + row + 1;
            let weights: Vec<f32> = (0..visible)
                .map(|key| {
                    let k = &k[at(key)..][..DEPTH];
                    ((q[0] * k[0] + q[1] * k[1]) / (DEPTH as f32).sqrt()).exp()
                })
                .collect();
            let total: f32 = weights.iter().sum();
            for d in 0..DEPTH {
                let sum: f32 =
                    weights.iter().enumerate().map(|(key, weight)| weight * v[at(key) + d]).sum();
                out.push(sum / total);
            }
        }
    }
    out
}

fn wave(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|at| (at as f32 * step).sin()).collect()
}

#[test]
fn attention_over_what_was_seen_so_far() {
    // Two rows at positions 1 and 2 of five; four query heads share two key heads.
    let (q, k, v) = (wave(2 * 4 * 2, 0.7), wave(5 * 2 * 2, 0.3), wave(5 * 2 * 2, 1.1));
    let tensors = [tensor(&[1, 2, 4, 2]), tensor(&[1, 5, 2, 2]), tensor(&[1, 5, 2, 2])];
    let mut inputs = tensors.to_vec();
    inputs.extend([int(1), Value::None, int(0), Value::Bool(true), Value::None]);
    let graph = one(Operator::LLAMA_CUSTOM_SDPA, &inputs, &[tensor(&[1, 2, 4, 2])]);
    let given = [floats(&[1, 2, 4, 2], &q), floats(&[1, 5, 2, 2], &k), floats(&[1, 5, 2, 2], &v)];
    close(&ran(graph, &given)[0], &attention(&q, &k, &v, [2, 4, 3, 2]));
}

#[test]
fn caches_are_written_where_they_lie() {
    let (q, k, v) = (wave(2 * 2, 0.7), wave(2 * 2, 0.3), wave(2 * 2, 1.1));
    let (cached_k, cached_v) = (wave(4 * 2, 0.9), wave(4 * 2, 0.4));
    let state = |numbers: &[f32]| match constant(&[1, 4, 1, 2], numbers) {
        Value::Tensor(tensor) => Value::Tensor(Tensor { changes: Some(true), ..tensor }),
        other => other,
    };
    let row = || tensor(&[1, 2, 1, 2]);
    let inputs = [
        row(),
        row(),
        row(),
        state(&cached_k),
        state(&cached_v),
        int(1),
        int(2),
        Value::None,
        int(0),
        Value::Bool(true),
        Value::None,
    ];
    let mut graph = one(Operator::SDPA_WITH_KV_CACHE, &inputs, &[row()]);
    graph.outputs.push(3);
    let given = [&q, &k, &v].map(|numbers| floats(&[1, 2, 1, 2], numbers));
    let written = |cached: &[f32], new: &[f32]| [&cached[..2], new, &cached[6..]].concat();
    let (all_k, all_v) = (written(&cached_k, &k), written(&cached_v, &v));
    let found = ran(graph, &given);
    close(&found[0], &attention(&q, &all_k, &all_v, [2, 1, 3, 1]));
    assert_eq!(found[1], all_k);
}

#[test]
fn scores_alone() {
    let row = || tensor(&[1, 2, 1, 2]);
    let cache = || tensor(&[1, 4, 1, 2]);
    let inputs = [row(), row(), row(), cache(), cache(), int(1), int(2)];
    // More rows than queries, and more keys than the cache.
    let out = tensor(&[1, 1, 3, 5]);
    let graph = one(Operator::TESTING_COMPUTE_ATTN_WEIGHT_WITH_KV_CACHE, &inputs, &[out]);
    let (q, k) = ([1.0f32, 0.0, 0.0, 2.0], [1.0f32, 2.0, 3.0, 4.0]);
    let empty = [0.0; 8];
    let row = |numbers| floats(&[1, 2, 1, 2], numbers);
    let cache = || floats(&[1, 4, 1, 2], &empty);
    let found = ran(graph, &[row(&q), row(&k), row(&k), cache(), cache()]);
    let (none, root) = (f32::NEG_INFINITY, 2f32.sqrt());
    let mut expected = vec![0.0, 1.0 / root, none, none, none];
    expected.extend([0.0, 4.0 / root, 8.0 / root, none, none]);
    close(&found[0][..10], &expected);
    assert_eq!(found[0][14], none);
}

#[test]
fn integers_of_tensors() {
    // The last element of a tensor is the end of a slice.
    let mut graph = Graph {
        values: vec![
            typed(&[2], ScalarType::Int, None),
            int(0),
            int(-1),
            Value::SymInt(0),
            tensor(&[3]),
            int(1),
            tensor(&[3]),
        ],
        nodes: vec![
            Node::new(Operator::ET_VK_SELECT_AS_SYMINT, vec![0, 1, 2, 3]),
            Node::new(Operator::SLICE_TENSOR, vec![4, 1, 1, 3, 5, 6]),
        ],
        inputs: vec![0, 4],
        outputs: vec![6],
        ..Graph::default()
    };
    run(&mut graph).unwrap();
    let index = TensorRef::from_slice(&[2], &[7i32, 2]).unwrap();
    assert_eq!(outputs(&graph, &[index, floats(&[3], &[1.0, 2.0, 3.0])]), [[1.0, 2.0]]);
}

#[test]
fn what_a_buffer_updates_is_the_buffer() {
    // A prepacked buffer is overwritten, not its copy.
    let mut graph = Graph {
        values: vec![constant(&[1], &[1.0]), tensor(&[1]), tensor(&[1]), tensor(&[1])],
        nodes: vec![
            Node::new(Operator::ET_VK_PREPACK, vec![0, 1]),
            Node::new(Operator::MUL_TENSOR, vec![1, 2, 3]),
        ],
        inputs: vec![2],
        outputs: vec![3],
        updates: vec![(3, 1)],
        ..Graph::default()
    };
    if let Value::Tensor(tensor) = &mut graph.values[0] {
        (tensor.data, tensor.changes) = (Some(Cow::Owned(vec![0; 4])), Some(true));
    }
    run(&mut graph).unwrap();
    assert_eq!((graph.updates, graph.nodes[0].args[0]), (vec![(3, 0)], 0));
}
