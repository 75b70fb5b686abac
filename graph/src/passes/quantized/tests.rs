use super::*;
use crate::passes::text::{after, calls, operators, parse};
use crate::passes::{dead, verify};
use alloc::string::String;

/// Runs the pass with a processor that supports every call.
fn made(text: &str) -> Graph<'static> {
    after(text, |graph| run(graph, &mut |_, _| true))
}

const CONVOLUTION: &str = "in x i8[1,2,4,4]
    const w i8[3,2,3,3]
    const s f32[3] = 0.5
    const z i64[3]
    const b f32[3]
    f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
        127, 1, none)
    v f32[3,2,3,3] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 0, -127, \
        127, 1, none)
    c f32[1,3,2,2] = aten.convolution.default(f, v, b, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    r f32[1,3,2,2] = aten.hardtanh.default(c, 0, 6)
    y i8[1,3,2,2] = quantized_decomposed.quantize_per_tensor.default(r, 0.0235, -128, -128, \
        127, 1)
    out y";

const PACKED: [&str; 1] = ["et_vk.q8ta_conv2d.default"];

fn last(graph: &Graph<'_>) -> String {
    calls(graph).pop().unwrap()
}

#[test]
fn convolutions_take_codes_and_give_codes() {
    let graph = made(CONVOLUTION);
    assert_eq!(operators(&graph), PACKED);
    let [.., call] = &graph.nodes[..] else { panic!() };
    // The int8 range covers the activation's range.
    assert_eq!(graph.values[call.args[14]], Value::String("none".into()));
    assert_eq!(graph.values[call.args[1]], Value::Double(0.25));
    // Some quantized values represent negative values.
    let signed = CONVOLUTION.replace("0.0235, -128", "0.0235, -100");
    let graph = made(&signed.replace("aten.hardtanh.default(c, 0, 6)", "aten.relu.default(c)"));
    assert_eq!(operators(&graph), PACKED);
    let [.., call] = &graph.nodes[..] else { panic!() };
    assert_eq!(graph.values[call.args[14]], Value::String("relu".into()));
    // Some quantized values represent values above six, so a table clamps them.
    let graph = made(&CONVOLUTION.replace("0.0235", "0.05"));
    assert_eq!(operators(&graph), [PACKED[0], "torchlet.q8ta_lookup"]);
    let Value::Tensor(table) = &graph.values[graph.nodes[1].args[1]] else { panic!() };
    let table: Vec<i8> =
        table.data.as_deref().unwrap().iter().map(|byte| byte.cast_signed()).collect();
    assert_eq!((table[0], table[119], table[120], table[255]), (-128, -9, -8, -8));
}

#[test]
fn transposed_convolutions_have_weights_by_channel_out() {
    let text = "in x i8[1,2,4,4]
        const w i8[2,3,2,2]
        const s f32[3] = 0.5
        const z i64[3]
        f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, \
            -128, 127, 1, none)
        v f32[2,3,2,2] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 1, \
            -127, 127, 1, none)
        c f32[1,3,8,8] = aten.convolution.default(f, v, none, [2, 2], [0, 0], [1, 1], true, \
            [0, 0], 1)
        y i8[1,3,8,8] = quantized_decomposed.quantize_per_tensor.default(c, 0.5, 0, -128, \
            127, 1)
        out y";
    let graph = made(text);
    assert_eq!(operators(&graph), ["et_vk.q8ta_conv2d_transposed.default"]);
    let [.., call] = &graph.nodes[..] else { panic!() };
    let Value::Tensor(weights) = &graph.values[call.args[3]] else { panic!() };
    assert_eq!(weights.sizes, [3, 8]);
    // Scales per input channel cannot be factored out of the sum.
    let inputs = text.replace("s f32[3]", "s f32[2]").replace("z i64[3]", "z i64[2]");
    let inputs = inputs.replace("(w, s, z, 1,", "(w, s, z, 0,");
    assert_eq!(operators(&made(&inputs)).len(), 4);
}

#[test]
fn codes_are_moved_and_multiplied() {
    let text = "in x i8[2,3]
        in y i8[2,3]
        a f32[2,3] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
            127, 1, none)
        b f32[2,3] = quantized_decomposed.dequantize_per_tensor.default(y, 0.25, 3, -128, \
            127, 1, none)
        c f32[2,6] = aten.cat.default([a, b], 1)
        q i8[2,6] = quantized_decomposed.quantize_per_tensor.default(c, 0.25, 3, -128, 127, 1)
        out q";
    assert_eq!(operators(&made(text)), ["aten.cat.default"]);
    // Chains of moves work too.
    let turned = "t f32[6,2] = aten.permute_copy.default(c, [1, 0])
        q i8[6,2] = quantized_decomposed.quantize_per_tensor.default(t, 0.25, 3, -128, 127, 1)";
    let last = text.lines().find(|line| line.contains("q i8")).unwrap();
    let found = operators(&made(&text.replace(last.trim(), turned)));
    assert_eq!(found, ["aten.cat.default", "aten.permute_copy.default"]);
    // An input of another scale is requantized first.
    let found = operators(&made(&text.replace("(y, 0.25", "(y, 0.5")));
    assert_eq!(found, ["torchlet.q8ta_lookup", "aten.cat.default"]);
    let two = text.replace("[2,6]", "[2,3]");
    let call = |call: &str| two.replace("aten.cat.default([a, b], 1)", call);
    assert_eq!(operators(&made(&call("aten.mul.Tensor(a, b)"))), ["torchlet.q8ta_mul"]);
    let graph = made(&call("aten.sub.Tensor(a, b, 2)"));
    assert_eq!(operators(&graph), ["et_vk.q8ta_add.default"]);
    let [.., sum] = &graph.nodes[..] else { panic!() };
    assert_eq!(graph.values[sum.args[8]], Value::Double(-2.0));
}

#[test]
fn averages_softmax_and_pads_are_of_quantized_values() {
    let text = |made: &str, call: &str, sizes: &str, to: &str| {
        alloc::format!(
            "in x i8[1,2,4,6]
            f f32[1,2,4,6] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, \
                -128, 127, 1, none)
            g f32[{sizes}] = {call}
            q i8[{sizes}] = quantized_decomposed.quantize_per_tensor.default(g, {to}, -128, \
                127, 1)
            out {made}"
        )
    };
    let of = |call: &str, sizes: &str, to: &str| operators(&made(&text("q", call, sizes, to)));
    let pooled = ["torchlet.q8ta_avg_pool2d"];
    let window = "aten.avg_pool2d.default(f, [2, 2], [2, 2], [0, 0], false, true, none)";
    assert_eq!(of(window, "1,2,2,3", "0.25, 3"), pooled);
    assert_eq!(of("aten.mean.dim(f, [2, 3], true, none)", "1,2,1,1", "0.25, 3"), pooled);
    let mean = "aten.mean.dim(f, [-1, -2], false, none)";
    assert_eq!(of(mean, "1,2", "0.25, 3"), [pooled[0], "aten.view_copy.default"]);
    // Over the image dims of channels-last data, with another scale.
    let found = of("aten.mean.dim(f, [1, 2], true, none)", "1,1,1,6", "0.125, 0");
    let expected = ["aten.permute_copy.default", pooled[0], "aten.view_copy.default"];
    assert_eq!(found, [&expected[..], &["torchlet.q8ta_lookup"]].concat());
    // Unsupported: an input step of four result steps, counted padding, dims that are not
    // adjacent.
    assert_eq!(of(mean, "1,2", "0.06, 3").len(), 3);
    let padded = window.replace("[0, 0]", "[1, 1]");
    assert_eq!(of(&padded, "1,2,3,4", "0.25, 3").len(), 3);
    assert_eq!(of("aten.mean.dim(f, [1, 3], true, none)", "1,1,4,1", "0.25, 3").len(), 3);
    let softmax = "aten._softmax.default(f, 1, false)";
    assert_eq!(of(softmax, "1,2,4,6", "0.00390625, -128"), ["torchlet.q8ta_softmax"]);
    assert_eq!(of(softmax, "1,2,4,6", "0.004, -128").len(), 3);
    let pad = text("q", "aten.constant_pad_nd.default(f, [1, 1], 0.5)", "1,2,4,8", "0.25, 3");
    let graph = made(&pad);
    assert_eq!(operators(&graph), ["aten.constant_pad_nd.default"]);
    assert_eq!(graph.values[graph.nodes[0].args[2]], Value::Int(5));
    // The intermediate value is an output, too.
    assert_eq!(operators(&made(&text("q g", softmax, "1,2,4,6", "0.00390625, -128"))).len(), 3);
}

#[test]
fn limits_of_functions_alone_are_not_relu() {
    let text = "in x i8[2,4]
        f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.05, 3, -128, \
            127, 1, none)
        r f32[2,4] = aten.hardtanh.default(f, -1, 1)
        o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 0.0078, 0, -128, 127, 1)
        out o";
    assert_eq!(made(text).nodes.len(), 3);
}

#[test]
fn channels_by_themselves_are_packed_by_place() {
    let depthwise = CONVOLUTION.replace("i8[1,2,4,4]", "i8[1,3,4,4]");
    let depthwise = depthwise.replace("f32[1,2,4,4]", "f32[1,3,4,4]");
    let depthwise = depthwise.replace("[3,2,3,3]", "[3,1,3,3]").replace("0], 1)", "0], 3)");
    let codes: Vec<String> = (0..27).map(|code| alloc::format!("{code}")).collect();
    let codes = alloc::format!("w i8[3,1,3,3] = {}", codes.join(" "));
    let depthwise = depthwise.replace("w i8[3,1,3,3]", &codes);
    let graph = made(&depthwise);
    assert_eq!(operators(&graph), ["et_vk.q8ta_conv2d_dw.default"]);
    let Value::Tensor(packed) = &graph.values[graph.nodes[0].args[3]] else { panic!() };
    assert_eq!(packed.sizes, [3, 3, 3]);
    assert_eq!(packed.data.as_deref().unwrap()[..6], [0, 9, 18, 1, 10, 19]);
}

#[test]
fn weights_in_another_order_and_codes_of_a_bias_are_known() {
    let graph = made(
        "in x i8[1,4,4,2]
        const w i8[3,3,3,2] = 1
        const s f32[3] = 0.5
        const b i32[3]
        const t f32[3] = 0.125
        p i8[1,2,4,4] = aten.permute_copy.default(x, [0, 3, 1, 2])
        f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(p, 0.25, 3, \
            -128, 127, 1, none)
        v f32[3,3,3,2] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, \
            -127, 127, 1, none)
        o f32[3,2,3,3] = aten.permute_copy.default(v, [0, 3, 1, 2])
        d f32[3] = quantized_decomposed.dequantize_per_channel.default(b, t, none, 0, \
            -2147483648, 2147483647, 3, none)
        c f32[1,3,2,2] = aten.convolution.default(f, o, d, [1, 1], [0, 0], [1, 1], false, \
            [0, 0], 1)
        y i8[1,3,2,2] = quantized_decomposed.quantize_per_tensor.default(c, 0.0235, -128, \
            -128, 127, 1)
        z i8[1,2,2,3] = aten.permute_copy.default(y, [0, 2, 3, 1])
        out z",
    );
    assert!(operators(&graph).contains(&"et_vk.q8ta_conv2d.default"), "{:?}", calls(&graph));
    let call = graph.nodes.iter().find(|node| node.operator == Operator::ET_VK_Q8TA_CONV2D);
    let weights = &graph.values[call.unwrap().args[3]];
    assert!(matches!(weights, Value::Tensor(weights) if weights.sizes == [3, 18]));
}

#[test]
fn weights_of_one_tap_are_seen_through_views() {
    let graph = made(
        "in x i8[1,4,5,6]
        const w i8[3,1,1,4] = 1
        const s f32[3] = 0.5
        f f32[1,4,5,6] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, \
            -128, 127, 1, none)
        v f32[3,1,1,4] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, \
            -127, 127, 1, none)
        o f32[3,4,1,1] = aten.view_copy.default(v, [3, 4, 1, 1])
        c f32[1,3,5,6] = aten.convolution.default(f, o, none, [1, 1], [0, 0], [1, 1], false, \
            [0, 0], 1)
        y i8[1,3,5,6] = quantized_decomposed.quantize_per_tensor.default(c, 0.0235, -128, \
            -128, 127, 1)
        out y",
    );
    assert_eq!(operators(&graph), PACKED);
    let weights = &graph.values[graph.nodes[0].args[3]];
    assert!(matches!(weights, Value::Tensor(weights) if weights.sizes == [3, 4]));
}

#[test]
fn sums_and_products_with_matrices_do_so_too() {
    let graph = made(
        "in x i8[2,4]
        const w i8[3,4]
        const s f32[3] = 0.5
        const z i64[3]
        f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
            127, 1, none)
        v f32[3,4] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 0, -127, \
            127, 1, none)
        l f32[2,3] = aten.linear.default(f, v, none)
        y i8[2,3] = quantized_decomposed.quantize_per_tensor.default(l, 0.5, 1, -128, 127, 1)
        out y",
    );
    assert_eq!(
        last(&graph),
        "%7 = et_vk.q8ta_linear.default(%0, 0.25, 3, %1, none, %2, 0.5, 1, none, \"none\")"
    );
    let sum = "in x i8[2,4]
        in y i8[2,4]
        f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
            127, 1, none)
        g f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(y, 0.5, -4, -128, \
            127, 1, none)
        a f32[2,4] = aten.add.Tensor(f, g, 1)
        r f32[2,4] = aten.relu.default(a)
        o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 1.0, -128, -128, 127, 1)
        p i8[2,4] = quantized_decomposed.quantize_per_tensor.default(f, 1.0, 0, -128, 127, 1)
        out o p";
    let between = "in x i8[2,4]
        f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
            127, 1, none)
        r f32[2,4] = aten.hardtanh.default(f, 0, 6)
        o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 0.0235, -128, -128, \
            127, 1)
        out o";
    let relu = "%3 = et_vk.q8ta_relu.default(%0, 0.25, 3, 0.0235, -128)";
    assert_eq!(calls(&made(between)), [relu]);
    assert_eq!(made(&between.replace("f, 0, 6", "f, -1, 6")).nodes.len(), 3);
    assert_eq!(made(&between.replace("f, 0, 6", "f, 0, 5")).nodes.len(), 3);
    let found = operators(&made(sum));
    assert!(found.contains(&"et_vk.q8ta_add.default") && found.len() == 3, "{found:?}");
}

#[test]
fn what_is_otherwise_stays() {
    let others = [
        // Other ranges and invalid scales.
        ("3, -128, 127", "3, -127, 127"),
        ("x, 0.25, 3", "x, -0.25, 3"),
        // Weights with zero points, scales over another dim, weights or scales that are not
        // constant.
        ("const z i64[3]", "const z i64[3] = 1"),
        ("w, s, z, 0,", "w, s, z, 1,"),
        ("const w i8", "in w i8"),
        ("const s f32[3]", "in s f32[3]"),
        // Transposed convolution.
        ("[1, 1], false", "[1, 1], true"),
        // The intermediate value is an output, too.
        ("out y", "out y c"),
    ];
    for (from, to) in others {
        let text = CONVOLUTION.replace(from, to);
        assert_ne!(text, CONVOLUTION);
        let mut graph = parse(&text);
        assert_eq!(run(&mut graph, &mut |_, _| true), 0, "{to}");
    }
    // No processor supports the call.
    let mut graph = parse(CONVOLUTION);
    let before = graph.nodes.len();
    let asked = &mut Vec::new();
    let changes = run(&mut graph, &mut |graph, node| {
        verify::verify(graph).unwrap();
        asked.push(node.operator);
        false
    });
    dead::run(&mut graph);
    assert_eq!((changes, graph.nodes.len()), (0, before));
    assert_eq!(asked[..], [Operator::ET_VK_Q8TA_CONV2D]);
}
