use super::*;
use crate::passes::text;
use crate::passes::verify::verify;
use alloc::vec;
use alloc::vec::Vec;

/// Runs the pass for a processor that supports all calls but the exact ones, and returns the
/// operators.
fn run_on(source: &str) -> (Vec<&'static str>, usize) {
    run_if(source, |graph, node| !is_exact(graph, node))
}

/// The same for a processor that supports exact calls, too.
fn run_exactly(source: &str) -> Vec<&'static str> {
    run_if(source, |_, _| true).0
}

fn run_if(source: &str, takes: impl Fn(&Graph<'_>, &Node) -> bool) -> (Vec<&'static str>, usize) {
    let mut graph = text::parse(source);
    let changes = run(&mut graph, &mut |graph, node| takes(graph, node));
    crate::passes::dead::run(&mut graph);
    verify(&graph).unwrap();
    (text::operators(&graph), changes)
}

const CONVOLUTION: &str = "in x i8[1,4,4,2]
    const w i8[3,1,1,2] = 2
    const b i32[3] = 5
    const m i32[3] = 1073741824
    const s i8[3] = 35
    c i32[1,4,4,3] = tosa.conv2d.default(x, w, b, [0, 0, 0, 0], [1, 1], [1, 1], -3, ZERO)
    r i8[1,4,4,3] = tosa.rescale.default(c, m, s, 0, 7, true, false, true, false, false)
    out r";

#[test]
fn a_layer_and_its_rescaling_become_one_call() {
    let (operators, changes) = run_on(&CONVOLUTION.replace("ZERO", "0"));
    let expected =
        ["aten.permute_copy.default", "et_vk.q8ta_conv2d.default", "aten.permute_copy.default"];
    assert_eq!((&operators[..], changes), (&expected[..], 1));
    // int8 operators have no zero point of weights.
    let (operators, changes) = run_on(&CONVOLUTION.replace("ZERO", "1"));
    assert_eq!(operators, ["tosa.conv2d.default", "tosa.rescale.default"]);
    assert_eq!(changes, 0);
}

/// The constants of the only call of an operator, as the sums of their two rows.
fn sums_of_rows(graph: &Graph<'_>, id: ValueId) -> Vec<f64> {
    let Value::Tensor(Tensor { sizes, data: Some(data), .. }) = graph.values.get(id).unwrap()
    else {
        panic!("not a constant");
    };
    assert_eq!(sizes[0], 2);
    let values: Vec<f64> = decode(ScalarType::Float, data).unwrap().collect();
    let (high, low) = values.split_at(sizes[1]);
    high.iter().zip(low).map(|(high, low)| high + low).collect()
}

#[test]
fn exact_layers_have_scales_and_biases_of_two_rows() {
    // More bits than `f32` has.
    let source = CONVOLUTION
        .replace("ZERO", "0")
        .replace("= 1073741824", "= 1234567891")
        .replace("= 5", "= 123456789");
    let mut graph = text::parse(&source);
    run(&mut graph, &mut |_, _| true);
    let layer = graph.nodes.iter().find(|node| node.operator == Operator::ET_VK_Q8TA_CONV2D);
    let call = Q8taConv2dArgs::of(layer.unwrap()).unwrap();
    let scale = 1_234_567_891.0 / (1u64 << 35) as f64;
    assert_eq!(sums_of_rows(&graph, call.weight_scales), [scale; 3]);
    assert_eq!(sums_of_rows(&graph, call.bias), [123_456_789.0; 3]);
    // Double rounding is not that of one shift, if the shift exceeds 31.
    let double = source.replace("0, 7, true, false", "0, 7, true, true");
    let mut graph = text::parse(&double);
    let mut has_exact = false;
    run(&mut graph, &mut |graph, node| {
        has_exact |= is_exact(graph, node);
        true
    });
    assert_eq!(
        (has_exact, text::operators(&graph) != text::operators(&text::parse(&double))),
        (false, true)
    );
}

#[test]
fn sums_that_are_read_elsewhere_stay() {
    let source = CONVOLUTION.replace("ZERO", "0").replace("out r", "out r c");
    let (operators, _) = run_on(&source);
    assert_eq!(operators, ["tosa.conv2d.default", "tosa.rescale.default"]);
}

#[test]
fn sums_of_rescaled_tensors_become_one_call() {
    let source = "in x i8[2,3]
        in y i8[2,3]
        const m i32[1] = 1073741824
        const l i8[1] = 10
        const s i8[1] = 50
        a i32[2,3] = tosa.rescale.default(x, m, l, 4, 0, true, false, false, false, false)
        b i32[2,3] = tosa.rescale.default(y, m, l, 5, 0, true, false, false, false, false)
        c i32[2,3] = OPERATOR
        r i8[2,3] = tosa.rescale.default(c, m, s, 0, 7, true, false, false, false, false)
        out r";
    for (operator, expected) in [
        ("aten.add.Tensor(a, b, 1)", "et_vk.q8ta_add.default"),
        ("aten.sub.Tensor(a, b, 1)", "et_vk.q8ta_add.default"),
        ("aten.mul.Tensor(a, b)", "torchlet.q8ta_mul"),
    ] {
        assert_eq!(run_on(&source.replace("OPERATOR", operator)), (vec![expected], 1));
    }
    // Exactly, as functions of int8 values to int32.
    for operator in
        ["aten.add.Tensor(a, b, 1)", "aten.sub.Tensor(a, b, 1)", "aten.mul.Tensor(a, b)"]
    {
        let found = run_exactly(&source.replace("OPERATOR", operator));
        let is_sum = !operator.contains("mul");
        // 2^20 times the values: their product exceeds int32.
        let expected = if is_sum { "torchlet.rescaled_arithmetic" } else { "torchlet.q8ta_mul" };
        assert_eq!(found, [expected], "{operator}");
    }
    // Unsigned inputs have other values.
    let unsigned =
        source.replace("4, 0, true, false, false, false", "4, 0, true, false, false, true");
    let (operators, changes) = run_on(&unsigned.replace("OPERATOR", "aten.add.Tensor(a, b, 1)"));
    assert_eq!((operators.len(), changes), (4, 0));
}

/// `(x - 4) * 255`, rescaled by 2^-8 and moved by 7: exact results, rounded half up.
#[test]
fn arithmetic_with_a_known_value_is_a_lookup() {
    let source = "in x i8[2,3]
        const k i8[1,1] = 127
        const m i32[1] = 1073741824
        const l i8[1] = 30
        const s i8[1] = 38
        a i32[2,3] = tosa.rescale.default(x, m, l, 4, 0, true, false, false, false, false)
        b i32[1,1] = tosa.rescale.default(k, m, l, -128, 0, true, false, false, false, false)
        c i32[2,3] = OPERATOR
        r i8[2,3] = tosa.rescale.default(c, m, s, 0, 7, true, false, false, false, false)
        out r";
    let graph = source.replace("OPERATOR", "aten.mul.Tensor(a, b)");
    assert_eq!(run_on(&graph), (vec!["torchlet.q8ta_lookup"], 1));
    let mut graph = text::parse(&graph);
    run(&mut graph, &mut |_, _| true);
    let node = graph.nodes.iter().find(|node| node.operator == Operator::Q8TA_LOOKUP).unwrap();
    let table = graph.tensor(LookupArgs::of(node).unwrap().lut).unwrap().data.clone().unwrap();
    let at = |value: i64| i64::from(table[(value + 128) as usize].cast_signed());
    for value in -128..=127i64 {
        let expected = ((value - 4) * 255 + 128).div_euclid(256) + 7;
        assert_eq!(at(value), expected.clamp(-128, 127), "{value}");
    }
    let graph = source.replace("OPERATOR", "aten.sub.Tensor(b, a, 1)");
    assert_eq!(run_on(&graph), (vec!["torchlet.q8ta_lookup"], 1));
    let graph = source.replace("OPERATOR", "aten.add.Tensor(a, b, 2)");
    assert_eq!(run_on(&graph).0, ["et_vk.q8ta_add.default"]);
}

#[test]
fn sums_over_dims_become_layers() {
    let source = "in x i8[1,4,6,3]
        const m i32[1] = 1073741824
        const l i8[1] = 30
        const s i8[1] = 35
        a i32[1,4,6,3] = tosa.rescale.default(x, m, l, -9, 0, true, false, false, false, false)
        b i32[1,1,6,3] = aten.sum.dim_IntList(a, [1], true, 3)
        c i32[1,1,1,3] = aten.sum.dim_IntList(b, [2], true, 3)
        r i8[1,1,1,3] = tosa.rescale.default(c, m, s, 0, 5, true, false, false, false, false)
        out r";
    let (operators, _) = run_on(source);
    let permute = "aten.permute_copy.default";
    assert_eq!(operators, [permute, "et_vk.q8ta_conv2d_dw.default", permute]);
    // The sum of one dim is read elsewhere.
    assert!(run_on(&source.replace("out r", "out r b")).0.contains(&"tosa.rescale.default"));
    let rows = "in x i8[2,3,4]
        const m i32[1] = 1073741824
        const l i8[1] = 30
        const s i8[1] = 35
        a i32[2,3,4] = tosa.rescale.default(x, m, l, -9, 0, true, false, false, false, false)
        b i32[2,3,1] = aten.sum.dim_IntList(a, [2], true, 3)
        r i8[2,3,1] = tosa.rescale.default(b, m, s, 0, 5, true, false, false, false, false)
        out r";
    let view = "aten.view_copy.default";
    assert_eq!(run_on(rows).0, [view, "et_vk.q8ta_linear.default", view]);
    // Sums over other dims stay.
    let other = rows.replace("[2,3,1]", "[2,1,4]").replace("(a, [2]", "(a, [1]");
    assert!(run_on(&other).0.contains(&"aten.sum.dim_IntList"));
}

/// The table has the values of the specification: `(value - zero point) * multiplier / 2^shift`,
/// rounded half up.
#[test]
fn a_rescaling_of_int8_is_a_lookup() {
    let source = "in x i8[4]
        const m i32[1] = 1610612736
        const s i8[1] = 31
        r i8[4] = tosa.rescale.default(x, m, s, 1, 2, true, false, false, false, false)
        out r";
    assert_eq!(run_on(source), (vec!["torchlet.q8ta_lookup"], 1));
    let rescale = Rescale {
        input: 0,
        multipliers: vec![1_610_612_736],
        shifts: vec![31],
        input_zp: 1,
        output_zp: 2,
        double_round: false,
        input_unsigned: false,
        output_unsigned: false,
    };
    let table = rescale.table().unwrap();
    // Three quarters of -129, of -1, of 1 and of 126, rounded half up, and 2.
    let at = |value: i64| table[(value + 128) as usize].cast_signed();
    assert_eq!([at(-128), at(0), at(2), at(3), at(127)], [-95, 1, 3, 4, 97]);
    let unsigned = Rescale { input_unsigned: true, input_zp: 128, ..rescale };
    // Bits of 255 and of 128.
    let table = unsigned.table().unwrap();
    assert_eq!([table[127], table[0]], [97, 2]);
}

#[test]
fn integer_chains_become_floats() {
    // A matrix multiplication of activations, in the form of attention.
    let source = "in x i8[2,3,4]
        in y i8[2,4,5]
        const m i32[1] = 1073741824
        const s i8[1] = 38
        c i32[2,3,5] = tosa.matmul.default(x, y, 4, -2)
        r i8[2,3,5] = tosa.rescale.default(c, m, s, 0, 7, true, false, false, false, false)
        out r";
    let (operators, changes) = run_on(source);
    let [from, to] = ["dequantize_per_tensor", "quantize_per_tensor"]
        .map(|name| alloc::format!("quantized_decomposed.{name}.default"));
    assert_eq!(operators, [&from, &from, "aten.bmm.default", &to]);
    assert_eq!(changes, 1);
    // `f32` rounds sums above 2^24, which 4096 terms can reach.
    let long = source.replace("2,3,4", "2,3,4096").replace("2,4,5", "2,4096,5");
    let (operators, _) = run_on(&long.replace("i8[1] = 38", "i8[1] = 30"));
    assert_eq!(operators, ["tosa.matmul.default", "tosa.rescale.default"]);
}

/// Rescalings round to integers before sums and products.
#[test]
fn rounding_between_rescalings_is_bounded() {
    let source = "in x i8[4]
        in y i8[4]
        const m i32[1] = 1610612736
        const s i8[1] = 31
        const t i8[1] = 41
        a i32[4] = tosa.rescale.default(x, m, s, 1, 0, true, false, false, false, false)
        b i32[4] = tosa.rescale.default(y, m, s, 1, 0, true, false, false, false, false)
        c i32[4] = aten.add.Tensor(a, b)
        r i8[4] = tosa.rescale.default(c, m, t, 0, 2, true, false, false, false, false)
        out r";
    assert_eq!(run_on(source).0, ["et_vk.q8ta_add.default"]);
    let product = source.replace("aten.add.Tensor", "aten.mul.Tensor");
    // The rounding of a factor is multiplied by the other factor.
    for kept in [source.replace("t i8[1] = 41", "t i8[1] = 32"), product] {
        let (operators, _) = run_on(&kept);
        assert_eq!(operators.len(), 4, "{operators:?}");
        assert_eq!(operators.last().copied(), Some("tosa.rescale.default"));
    }
}

#[test]
fn averages_become_layers_of_ones() {
    let source = "in x i8[1,4,4,2]
        r i8[1,2,2,2] = tosa.avg_pool2d.default(x, [2, 2], [2, 2], [0, 0, 0, 0], 3, -5)
        out r";
    let (operators, _) = run_on(source);
    let expected =
        ["aten.permute_copy.default", "et_vk.q8ta_conv2d_dw.default", "aten.permute_copy.default"];
    assert_eq!(operators, expected);
    // The number of averaged values varies with padding.
    let padded = source.replace("[0, 0, 0, 0]", "[1, 1, 1, 1]").replace("[1,2,2,2]", "[1,3,3,2]");
    let (operators, _) = run_on(&padded);
    assert!(operators.contains(&"aten.avg_pool2d.default"), "{operators:?}");
}

#[test]
fn ties_of_averages_round_away_from_zero() {
    for count in 1..=2048u32 {
        let scale = ((1.0 + 1.0 / (1u64 << 20) as f64) / f64::from(count)) as f32;
        for value in [0.5, 1.5, 2.5, 7.5, 100.5, 126.5, 254.5] {
            let sum = value * f64::from(count);
            if sum.fract() == 0.0 {
                let rounded = (sum as f32 * scale).round_ties_even();
                assert_eq!(f64::from(rounded), value + 0.5, "{value} of {count}");
                // The largest sum below the tie.
                let below = ((sum - 1.0) as f32 * scale).round_ties_even();
                assert_eq!(f64::from(below), ((sum - 1.0) / f64::from(count)).round(), "{count}");
            }
        }
    }
}
