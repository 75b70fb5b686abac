//! Islands of quantized numbers become operators on codes, where a processor has these.
//!
//! What quantizers write is floating point between codes: `dequantize` of each input, the operator, perhaps a function that limits it, and
//! `quantize` of the result. With codes of 8 bits, one scale and zero point for each activation, and a scale for each channel of constant
//! weights, these become
//!
//! - `et_vk.q8ta_linear` and `et_vk.q8ta_conv2d`, with what limits the result, if that is `relu` or the range of the codes;
//! - `et_vk.q8ta_conv2d_transposed`, of one group;
//! - `max_pool2d_with_indices` of codes, where those of input and result stand for the same numbers and nobody takes the indices;
//! - `cat`, and what moves elements, of codes, where all of them stand for the same numbers;
//! - `et_vk.q8ta_add`, for differences too, `torchlet.q8ta_mul`, and `et_vk.q8ta_relu`, where the limits are the range of the codes.
//!
//! Needs: each value made once; products as `linear` ([`super::linear`]); weights that are not folded yet. Each call is made only if
//! `takes` says so: what no processor has stays as it is written. Keeps: what others take of what is in between. Rounding: sums of
//! products of codes are exact, where those of floating-point numbers are not; a result on the border of two codes may become the other.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::weights::{Filters, Weights};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Makes such calls where a processor takes them, and says how many.
pub fn run(graph: &mut Graph<'_>, takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool) -> usize {
    each_call(graph, |rewriter, node| island(rewriter, node, takes).is_some())
}

/// What codes of 8 bits stand for.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    scale: f64,
    zero: i64,
}

const LOWEST: i64 = -128;
const HIGHEST: i64 = 127;

impl Codes {
    /// The parameters of a call between a tensor and its codes: scale, zero point, least and largest code.
    fn of(rewriter: &Rewriter<'_, '_>, parameters: &[ValueId]) -> Option<Self> {
        let [scale, zero, low, high, ..] = parameters else { return None };
        let (scale, zero) = (rewriter.number(*scale)?, rewriter.int(*zero)?);
        let range = [rewriter.int(*low)?, rewriter.int(*high)?];
        let is_whole = range == [LOWEST, HIGHEST] && (LOWEST..=HIGHEST).contains(&zero);
        (is_whole && scale.is_normal() && scale > 0.0).then_some(Codes { scale, zero })
    }

    /// Whether no code stands for less, or more, than these numbers: but for what is rounded to the outermost.
    fn lie_within(self, [low, high]: [f64; 2]) -> bool {
        let code = |number: f64| number / self.scale + self.zero as f64;
        // Half a code beyond is rounded to it.
        code(low) < LOWEST as f64 + 0.5 && code(high) > HIGHEST as f64 - 0.5
    }

    fn values(self, rewriter: &mut Rewriter<'_, '_>) -> [ValueId; 2] {
        let scale = rewriter.value(Value::Double(self.scale));
        [scale, rewriter.value(Value::Int(self.zero))]
    }
}

/// A call that makes codes of 8 bits.
pub(super) struct Quantized {
    /// What becomes codes.
    pub(super) made: ValueId,
    codes: Codes,
    pub(super) out: ValueId,
}

impl Quantized {
    pub(super) fn of(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<Self> {
        if node.operator != Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR {
            return None;
        }
        let ([made, parameters @ ..], out) = (inputs(node), *node.args.last()?) else {
            return None;
        };
        let codes = Codes::of(rewriter, parameters)?;
        let is_char = rewriter.scalar_type(out)? == ScalarType::Char;
        is_char.then_some(Quantized { made: *made, codes, out })
    }
}

/// What becomes codes, without what limits it, and whether that is `relu`.
struct Made {
    value: ValueId,
    relu: bool,
    codes: Codes,
}

fn island(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let Quantized { made, codes, out } = Quantized::of(rewriter, node)?;
    let limits = limits(rewriter, made);
    let (value, relu) = match limits {
        Some((source, limits)) => (source, !codes.lie_within(limits)),
        None => (made, false),
    };
    // What the codes do not limit is `relu`, or nothing that is known.
    let is_relu = limits
        .is_none_or(|(_, [low, high])| low == 0.0 && codes.lie_within([f64::NEG_INFINITY, high]));
    if relu && !is_relu {
        return None;
    }
    let result = Made { value, relu, codes };
    if !relu
        && let Some(made) =
            largest(rewriter, &result, out, takes).or_else(|| moved(rewriter, &result, out, takes))
    {
        return Some(made);
    }
    let (operator, args) = call(rewriter, &result).or_else(|| {
        // A function alone.
        let (input, from) = dequantized(rewriter, value).filter(|_| limits.is_some() && is_relu)?;
        let (from, to) = (from.values(rewriter), codes.values(rewriter));
        Some((Operator::ET_VK_Q8TA_RELU, [&[input], &from[..], &to].concat()))
    })?;
    if !rewriter.is_taken(operator, &args, out, takes) {
        return None;
    }
    rewriter.call(operator, &args, out);
    Some(())
}

/// The tensor that a value is the limited one of, if nobody else takes it, and the limits.
fn limits(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, [f64; 2])> {
    let node = rewriter.maker(id).filter(|_| rewriter.uses(id) == 1)?;
    let number = |at: usize, absent: f64| match inputs(node).get(at) {
        id if rewriter.is_none(id) => Some(absent),
        id => rewriter.number(*id?),
    };
    let limits = match node.operator {
        Operator::RELU => [0.0, f64::INFINITY],
        Operator::HARDTANH => [number(1, -1.0)?, number(2, 1.0)?],
        Operator::CLAMP => [number(1, f64::NEG_INFINITY)?, number(2, f64::INFINITY)?],
        _ => return None,
    };
    Some((*inputs(node).first()?, limits))
}

/// The operator on codes that makes codes of what is between, and what it takes.
fn call(rewriter: &mut Rewriter<'_, '_>, result: &Made) -> Option<(Operator, Vec<ValueId>)> {
    let node = rewriter.maker(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    let (operator, taken) = (node.operator, inputs(node).to_vec());
    match (operator, &taken[..]) {
        (Operator::LINEAR, [input, weight, bias]) => {
            linear(rewriter, result, [*input, *weight, *bias])
        }
        (Operator::CONVOLUTION, [input, weight, bias, rest @ ..]) => {
            convolution(rewriter, result, [*input, *weight, *bias], rest)
        }
        (Operator::ADD_TENSOR | Operator::SUB_TENSOR, [a, b, alpha]) if !result.relu => {
            let alpha =
                if rewriter.is_none(Some(alpha)) { 1.0 } else { rewriter.number(*alpha)? };
            let alpha = if operator == Operator::SUB_TENSOR { -alpha } else { alpha };
            let mut args = of_two(rewriter, result, [*a, *b])?;
            args.push(rewriter.value(Value::Double(alpha)));
            Some((Operator::ET_VK_Q8TA_ADD, args))
        }
        (Operator::MUL_TENSOR, [a, b]) if !result.relu => {
            Some((Operator::Q8TA_MUL, of_two(rewriter, result, [*a, *b])?))
        }
        _ => None,
    }
}

/// What calls of two tensors of codes begin with.
fn of_two(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    operands: [ValueId; 2],
) -> Option<Vec<ValueId>> {
    let [(a, from_a), (b, from_b)] =
        [dequantized(rewriter, *operands.first()?)?, dequantized(rewriter, *operands.last()?)?];
    let mut args = vec![a, b];
    for codes in [from_a, from_b, result.codes] {
        args.extend(codes.values(rewriter));
    }
    Some(args)
}

/// Calls in a row that only move elements, which are looked through.
const MOVES: u32 = 4;

/// Moves codes, instead of what these stand for, where all stand for the same numbers.
fn moved(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    move_codes(rewriter, result.value, result.codes, out, takes, MOVES)
}

/// Makes `out`, the codes of a value, by the calls that make the value of others.
fn move_codes(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    wanted: Codes,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    depth: u32,
) -> Option<()> {
    let node = rewriter.maker(id).filter(|_| rewriter.uses(id) == 1 && depth > 0)?;
    let operator = node.operator;
    let moves = matches!(
        operator,
        Operator::CAT
            | Operator::VIEW_COPY
            | Operator::PERMUTE_COPY
            | Operator::TRANSPOSE_COPY_INT
            | Operator::SLICE_COPY_TENSOR
            | Operator::SELECT_COPY_INT
            | Operator::UNSQUEEZE_COPY
            | Operator::SQUEEZE_COPY_DIMS
    );
    let mut args = inputs(node).to_vec();
    let source = *args.first().filter(|_| moves)?;
    let mut codes = |rewriter: &mut Rewriter<'_, '_>, id: ValueId| {
        if let Some((codes, from)) = dequantized(rewriter, id) {
            return (from.scale == wanted.scale && from.zero == wanted.zero).then_some(codes);
        }
        let tensor = rewriter.tensor(id)?.clone();
        let (scalar_type, host_type) = (ScalarType::Char, ScalarType::Char);
        let between = Tensor { scalar_type, host_type, data: None, ..tensor };
        let between = rewriter.value(Value::Tensor(between));
        move_codes(rewriter, id, wanted, between, takes, depth - 1)?;
        Some(between)
    };
    let source = match (operator, rewriter.get(source).cloned()) {
        (Operator::CAT, Some(Value::List(items))) => {
            let items: Option<Vec<ValueId>> =
                items.into_iter().map(|id| codes(rewriter, id)).collect();
            rewriter.value(Value::List(items?))
        }
        (Operator::CAT, _) => return None,
        _ => codes(rewriter, source)?,
    };
    *args.first_mut()? = source;
    if !rewriter.is_taken(operator, &args, out, takes) {
        return None;
    }
    rewriter.call(operator, &args, out);
    Some(())
}

/// Makes codes of the largest codes of windows, instead of what these stand for.
fn largest(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let node = rewriter.maker(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    if node.operator != Operator::MAX_POOL2D_WITH_INDICES {
        return None;
    }
    let (taken, list) = (inputs(node).to_vec(), *node.args.last()?);
    let Some(Value::List(outs)) = rewriter.get(list) else { return None };
    let &[largest, indices] = &outs[..] else { return None };
    let (input, rest) = taken.split_first()?;
    let (input, from) = dequantized(rewriter, *input)?;
    let is_same = from.scale == result.codes.scale && from.zero == result.codes.zero;
    if largest != result.value || rewriter.uses(indices) > 0 || !is_same {
        return None;
    }
    let (scalar_type, sizes) = (rewriter.scalar_type(indices)?, rewriter.sizes(indices)?.to_vec());
    let indices = rewriter.new_tensor(scalar_type, sizes);
    let outs = rewriter.value(Value::List(vec![out, indices]));
    let args = [&[input], rest].concat();
    if !rewriter.is_taken(Operator::MAX_POOL2D_WITH_INDICES, &args, outs, takes) {
        return None;
    }
    rewriter.call(Operator::MAX_POOL2D_WITH_INDICES, &args, outs);
    Some(())
}

/// The codes of a tensor.
pub(super) fn dequantized(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, Codes)> {
    let taken = rewriter.call_of(id, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR)?;
    let (input, parameters) = taken.split_first()?;
    let is_floats = rewriter.scalar_type(id) == Some(ScalarType::Float);
    let is_codes = rewriter.scalar_type(*input) == Some(ScalarType::Char);
    (is_floats && is_codes).then_some((*input, Codes::of(rewriter, parameters)?))
}

/// Whether a bias is absent, or there is one 32-bit number for each channel.
pub(super) fn fits_bias(rewriter: &Rewriter<'_, '_>, bias: ValueId, channels: usize) -> bool {
    rewriter.is_none(Some(&bias))
        || rewriter
            .tensor(bias)
            .is_some_and(|bias| bias.scalar_type == ScalarType::Float && bias.sizes == [channels])
}

/// What both products begin with: codes, weights, scales, codes of the result, bias.
fn product(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    (input, from): (ValueId, Codes),
    [weight, scales, bias]: [ValueId; 3],
) -> Vec<ValueId> {
    let (from, to) = (from.values(rewriter), result.codes.values(rewriter));
    // The exporter's sums of weights follow from these.
    let none = rewriter.value(Value::None);
    [&[input], &from[..], &[weight, none, scales], &to, &[bias]].concat()
}

fn activation(rewriter: &mut Rewriter<'_, '_>, result: &Made) -> ValueId {
    rewriter.value(Value::String(String::from(if result.relu { "relu" } else { "none" })))
}

fn linear(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    [input, weight, bias]: [ValueId; 3],
) -> Option<(Operator, Vec<ValueId>)> {
    let input = dequantized(rewriter, input)?;
    let weights = Weights::of(rewriter, weight, 0)?;
    let [width, depth] = *weights.sizes(rewriter)? else { return None };
    if !fits_bias(rewriter, bias, width) {
        return None;
    }
    let codes = weights.packed(rewriter, &[0, 1], vec![width, depth])?;
    let scales = weights.scales;
    let mut args = product(rewriter, result, input, [codes, scales, bias]);
    args.push(activation(rewriter, result));
    Some((Operator::ET_VK_Q8TA_LINEAR, args))
}

fn convolution(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    [input, weight, bias]: [ValueId; 3],
    rest: &[ValueId],
) -> Option<(Operator, Vec<ValueId>)> {
    let input = dequantized(rewriter, input)?;
    let [stride, padding, dilation, transposed, more, groups] = *rest else { return None };
    let is_transposed = rewriter.flag(Some(&transposed), false)?;
    let filters = Filters::of(rewriter, weight, is_transposed, groups)?;
    if rewriter.sizes(input.0)?.len() != 4 || !fits_bias(rewriter, bias, filters.channels) {
        return None;
    }
    let (operator, packed) = if is_transposed {
        (Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED, filters.rows(rewriter)?)
    } else if filters.are_single() {
        // Weights of single channels lie by place, then by channel.
        let [height, width] = filters.kernel;
        let sizes = vec![height, width, filters.channels];
        let packed = filters.weights.packed(rewriter, &[2, 3, 0, 1], sizes)?;
        (Operator::ET_VK_Q8TA_CONV2D_DW, packed)
    } else {
        (Operator::ET_VK_Q8TA_CONV2D, filters.rows(rewriter)?)
    };
    let kernel = filters.kernel_size(rewriter);
    let mut args = product(rewriter, result, input, [packed, filters.weights.scales, bias]);
    args.extend([kernel, stride, padding]);
    args.extend(is_transposed.then_some(more));
    args.extend([dilation, groups]);
    args.push(activation(rewriter, result));
    Some((operator, args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::{after, calls, operators, parse};
    use crate::passes::{dead, verify};

    /// What becomes of a graph where a processor takes all.
    fn made(text: &str) -> Graph<'static> {
        after(text, |graph| run(graph, &mut |_, _| true))
    }

    const CONVOLUTION: &str = "in x i8[1,2,4,4]
        const w i8[3,2,3,3]
        const s f32[3] = 0.5
        const z i64[3]
        const b f32[3]
        f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, 1, none)
        v f32[3,2,3,3] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 0, -127, 127, 1, none)
        c f32[1,3,2,2] = aten.convolution.default(f, v, b, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
        r f32[1,3,2,2] = aten.hardtanh.default(c, 0, 6)
        y i8[1,3,2,2] = quantized_decomposed.quantize_per_tensor.default(r, 0.0235, -128, -128, 127, 1)
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
        // The range of the codes is that of the function.
        assert_eq!(graph.values[call.args[14]], Value::String("none".into()));
        assert_eq!(graph.values[call.args[1]], Value::Double(0.25));
        // Codes below zero stand for numbers below zero.
        let signed = CONVOLUTION.replace("0.0235, -128", "0.0235, -100");
        let graph = made(&signed.replace("aten.hardtanh.default(c, 0, 6)", "aten.relu.default(c)"));
        assert_eq!(operators(&graph), PACKED);
        let [.., call] = &graph.nodes[..] else { panic!() };
        assert_eq!(graph.values[call.args[14]], Value::String("relu".into()));
        // One of them lies beyond six, and would have to be cut.
        assert_eq!(operators(&made(&CONVOLUTION.replace("0.0235", "0.05"))).len(), 5);
    }

    #[test]
    fn transposed_convolutions_have_weights_by_channel_out() {
        let text = "in x i8[1,2,4,4]
            const w i8[2,3,2,2]
            const s f32[3] = 0.5
            const z i64[3]
            f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, 1, none)
            v f32[2,3,2,2] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 1, -127, 127, 1, none)
            c f32[1,3,8,8] = aten.convolution.default(f, v, none, [2, 2], [0, 0], [1, 1], true, [0, 0], 1)
            y i8[1,3,8,8] = quantized_decomposed.quantize_per_tensor.default(c, 0.5, 0, -128, 127, 1)
            out y";
        let graph = made(text);
        assert_eq!(operators(&graph), ["et_vk.q8ta_conv2d_transposed.default"]);
        let [.., call] = &graph.nodes[..] else { panic!() };
        let Value::Tensor(weights) = &graph.values[call.args[3]] else { panic!() };
        assert_eq!(weights.sizes, [3, 8]);
        // Scales of the channels that come in are no factor of a sum.
        let inputs = text.replace("s f32[3]", "s f32[2]").replace("z i64[3]", "z i64[2]");
        let inputs = inputs.replace("(w, s, z, 1,", "(w, s, z, 0,");
        assert_eq!(operators(&made(&inputs)).len(), 4);
    }

    #[test]
    fn codes_are_moved_and_multiplied() {
        let text = "in x i8[2,3]
            in y i8[2,3]
            a f32[2,3] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, 1, none)
            b f32[2,3] = quantized_decomposed.dequantize_per_tensor.default(y, 0.25, 3, -128, 127, 1, none)
            c f32[2,6] = aten.cat.default([a, b], 1)
            q i8[2,6] = quantized_decomposed.quantize_per_tensor.default(c, 0.25, 3, -128, 127, 1)
            out q";
        assert_eq!(operators(&made(text)), ["aten.cat.default"]);
        // So are they through several calls.
        let turned = "t f32[6,2] = aten.permute_copy.default(c, [1, 0])
            q i8[6,2] = quantized_decomposed.quantize_per_tensor.default(t, 0.25, 3, -128, 127, 1)";
        let last = text.lines().find(|line| line.contains("q i8")).unwrap();
        let found = operators(&made(&text.replace(last.trim(), turned)));
        assert_eq!(found, ["aten.cat.default", "aten.permute_copy.default"]);
        // Codes that stand for something else are other codes.
        assert_eq!(operators(&made(&text.replace("(y, 0.25", "(y, 0.5"))).len(), 4);
        let two = text.replace("[2,6]", "[2,3]");
        let call = |call: &str| two.replace("aten.cat.default([a, b], 1)", call);
        assert_eq!(operators(&made(&call("aten.mul.Tensor(a, b)"))), ["torchlet.q8ta_mul"]);
        let graph = made(&call("aten.sub.Tensor(a, b, 2)"));
        assert_eq!(operators(&graph), ["et_vk.q8ta_add.default"]);
        let [.., sum] = &graph.nodes[..] else { panic!() };
        assert_eq!(graph.values[sum.args[8]], Value::Double(-2.0));
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
            f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(p, 0.25, 3, -128, 127, 1, none)
            v f32[3,3,3,2] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, -127, 127, 1, none)
            o f32[3,2,3,3] = aten.permute_copy.default(v, [0, 3, 1, 2])
            d f32[3] = quantized_decomposed.dequantize_per_channel.default(b, t, none, 0, -2147483648, 2147483647, 3, none)
            c f32[1,3,2,2] = aten.convolution.default(f, o, d, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
            y i8[1,3,2,2] = quantized_decomposed.quantize_per_tensor.default(c, 0.0235, -128, -128, 127, 1)
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
            f f32[1,4,5,6] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, 1, none)
            v f32[3,1,1,4] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, -127, 127, 1, none)
            o f32[3,4,1,1] = aten.view_copy.default(v, [3, 4, 1, 1])
            c f32[1,3,5,6] = aten.convolution.default(f, o, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
            y i8[1,3,5,6] = quantized_decomposed.quantize_per_tensor.default(c, 0.0235, -128, -128, 127, 1)
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
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, 1, none)
            v f32[3,4] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 0, -127, 127, 1, none)
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
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, 1, none)
            g f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(y, 0.5, -4, -128, 127, 1, none)
            a f32[2,4] = aten.add.Tensor(f, g, 1)
            r f32[2,4] = aten.relu.default(a)
            o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 1.0, -128, -128, 127, 1)
            p i8[2,4] = quantized_decomposed.quantize_per_tensor.default(f, 1.0, 0, -128, 127, 1)
            out o p";
        let between = "in x i8[2,4]
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, 1, none)
            r f32[2,4] = aten.hardtanh.default(f, 0, 6)
            o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 0.0235, -128, -128, 127, 1)
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
            // Codes of other ranges, and of other types.
            ("3, -128, 127", "3, -127, 127"),
            ("x, 0.25, 3", "x, -0.25, 3"),
            // Weights with zero points, by another dimension, or that are not known.
            ("const z i64[3]", "const z i64[3] = 1"),
            ("w, s, z, 0,", "w, s, z, 1,"),
            ("const w i8", "in w i8"),
            ("const s f32[3]", "in s f32[3]"),
            // Transposed.
            ("[1, 1], false", "[1, 1], true"),
            // What is between is wanted, too.
            ("out y", "out y c"),
        ];
        for (from, to) in others {
            let text = CONVOLUTION.replace(from, to);
            assert_ne!(text, CONVOLUTION);
            let mut graph = parse(&text);
            assert_eq!(run(&mut graph, &mut |_, _| true), 0, "{to}");
        }
        // And where no processor has it.
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
}
