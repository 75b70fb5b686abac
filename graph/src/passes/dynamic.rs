//! Fuses dynamically quantized linear layers into [`Operator::DYNAMIC_LINEAR`], which keeps
//! quantized weights.
//!
//! The pattern is a `linear` whose input is quantized and dequantized to int8 per row, with the
//! parameters of `choose_qparams_per_token_asymmetric`. The input is quantized by
//! `quantize_per_token` and `dequantize_per_token`, or by float operators as written by [the
//! XNNPACK front end](crate::front::xnnpack). The weights are `dequantize_per_channel` of int8
//! constants: with one scale per row, or, through a view, with one scale per group of adjacent
//! values in a row.
//!
//! Needs: as [`super::quantized`]. Runs where processors are known; a call is produced only if
//! `takes` accepts it. Keeps: intermediate values that other calls read. Rounding: sums of int8
//! products are exact. Values are rounded before the zero point is added, while
//! `quantize_per_token` may add the zero point first. In that case, ties round differently if the
//! zero point is odd.

use super::dynamic_convolution::rounded_by;
use super::quantized::fits_bias;
use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Fuses dynamically quantized linear layers. `takes` decides whether the processor supports a
/// call. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>, takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool) -> usize {
    each_call(graph, |rewriter, node| product(rewriter, node, takes).is_some())
}

/// Keeps the int8 weights of linear layers of floats, which constant folding would make floats.
/// Returns the number of replaced calls.
pub(crate) fn keep_weights(
    graph: &mut Graph<'_>,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> usize {
    each_call(graph, |rewriter, node| with_weights(rewriter, node, takes).is_some())
}

fn with_weights(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    if node.operator != Operator::LINEAR {
        return None;
    }
    let (&[input, weight, bias], out) = (inputs(node), *node.args.last()?) else { return None };
    let [codes, scales, _, bits] = weights(rewriter, weight)?;
    let [rows, _] = *rewriter.sizes(weight)? else { return None };
    let are_floats =
        [input, out].iter().all(|id| rewriter.scalar_type(*id) == Some(ScalarType::Float));
    let args = [input, codes, scales, bias, bits];
    if !are_floats
        || !fits_bias(rewriter, bias, rows)
        || !rewriter.is_taken(Operator::LINEAR_INT8, &args, out, takes)
    {
        return None;
    }
    rewriter.call(Operator::LINEAR_INT8, &args, out);
    Some(())
}

/// Range of int4 values.
const SMALL: core::ops::RangeInclusive<i8> = -8..=7;
const LOWEST: i64 = -128;
const HIGHEST: i64 = 127;

fn product(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    if node.operator != Operator::LINEAR {
        return None;
    }
    let (&[input, weight, bias], out) = (inputs(node), *node.args.last()?) else { return None };
    let source = rounded(rewriter, input)?;
    let [codes, scales, sums, bits] = weights(rewriter, weight)?;
    let [rows, _] = *rewriter.sizes(weight)? else { return None };
    if !fits_bias(rewriter, bias, rows) || rewriter.scalar_type(out) != Some(ScalarType::Float) {
        return None;
    }
    let args = [source, codes, scales, sums, bias, bits];
    if !rewriter.is_taken(Operator::DYNAMIC_LINEAR, &args, out, takes) {
        return None;
    }
    rewriter.call(Operator::DYNAMIC_LINEAR, &args, out);
    Some(())
}

/// The float source of a tensor that is quantized and dequantized per row.
fn rounded(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let (source, scales, zeros) = match rounded_by(rewriter, id) {
        Some((source, scales, zeros)) => {
            let converted = rewriter.call_of(zeros, Operator::TO_COPY)?;
            (source, scales, *converted.first()?)
        }
        None => through_codes(rewriter, id)?,
    };
    let chosen = rewriter.producer(scales)?;
    let choose = Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC;
    let made = rewriter.get(*chosen.args.last()?);
    let is_chosen = chosen.operator == choose
        && inputs(chosen).first() == Some(&source)
        && matches!(made, Some(Value::List(made)) if made[..] == [scales, zeros]);
    let is_numbers = rewriter.scalar_type(source) == Some(ScalarType::Float)
        && rewriter.scalar_type(id) == Some(ScalarType::Float);
    (is_chosen && is_numbers).then_some(source)
}

/// Matches the dedicated operators. Returns the source, scales and zero points of rows.
fn through_codes(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, ValueId, ValueId)> {
    let limits = |low: &ValueId, high: &ValueId| {
        (rewriter.int(*low), rewriter.int(*high)) == (Some(LOWEST), Some(HIGHEST))
    };
    let dequantized = rewriter.call_of(id, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TOKEN)?;
    let [codes, scales, zeros, low, high, ..] = dequantized else { return None };
    if !limits(low, high) {
        return None;
    }
    let quantized = rewriter.call_of(*codes, Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TOKEN)?;
    let [source, by, from, low, high, ..] = quantized else { return None };
    if !limits(low, high) || (by, from) != (scales, zeros) {
        return None;
    }
    let are_codes = rewriter.scalar_type(*codes) == Some(ScalarType::Char);
    are_codes.then_some((*source, *scales, *zeros))
}

/// Quantized constant weights as a matrix, `[rows, groups]` scales, dequantized row sums, and the
/// number of bits per weight.
fn weights(rewriter: &mut Rewriter<'_, '_>, id: ValueId) -> Option<[ValueId; 4]> {
    let [rows, columns] = *rewriter.sizes(id)? else { return None };
    let viewed = rewriter.call_of(id, Operator::VIEW_COPY).and_then(|taken| taken.first());
    let numbers = *viewed.unwrap_or(&id);
    let taken = rewriter.call_of(numbers, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL)?;
    let &[codes, scales, zeros, axis, ..] = taken else { return None };
    let viewed = rewriter.call_of(codes, Operator::VIEW_COPY).and_then(|taken| taken.first());
    let codes = *viewed.unwrap_or(&codes);
    let [lines, size] = *rewriter.sizes(numbers)? else { return None };
    let (tensor, _) = rewriter.constant(codes)?;
    let no_zeros = rewriter.is_none(Some(&zeros))
        || rewriter.constant(zeros).is_some_and(|(_, data)| data.iter().all(|byte| *byte == 0));
    // If the view was folded, the constant has one line per group.
    let by_row = tensor.sizes == [rows, columns];
    let fits = tensor.scalar_type == ScalarType::Char
        && (by_row || tensor.sizes == [lines, size])
        && rewriter.int(axis) == Some(0)
        && columns.checked_rem(size) == Some(0)
        && no_zeros;
    let (scale, data) = rewriter.constant(scales)?;
    let has_scales = scale.scalar_type == ScalarType::Float && scale.sizes == [lines];
    if !fits || !has_scales || data.is_empty() {
        return None;
    }
    let groups = columns / size;
    let (_, bytes) = rewriter.constant(codes)?;
    let bits = if bytes.iter().all(|code| SMALL.contains(&code.cast_signed())) { 4 } else { 8 };
    if bits == 8 && groups > 1 {
        return None;
    }
    let mut sums = Vec::new();
    let lines = bytes.chunks_exact(size.max(1)).zip(data.as_chunks::<4>().0);
    for (at, (codes, scale)) in lines.enumerate() {
        let sum: i64 = codes.iter().map(|code| i64::from(code.cast_signed())).sum();
        let sum = sum as f32 * f32::from_le_bytes(*scale);
        match sums.last_mut() {
            Some(all) if at % groups > 0 => *all += sum,
            _ => sums.push(sum),
        }
    }
    if sums.len() != rows {
        return None;
    }
    let whole = (!by_row).then(|| Tensor { sizes: vec![rows, columns], ..tensor.clone() });
    let shaped = Tensor { sizes: vec![rows, groups], ..scale.clone() };
    let sums: Vec<u8> = sums.into_iter().flat_map(f32::to_le_bytes).collect();
    let summed = Tensor { sizes: vec![rows], data: Some(Cow::Owned(sums)), ..scale.clone() };
    let codes = whole.map_or(codes, |it| rewriter.value(Value::Tensor(it)));
    let [shaped, summed] = [shaped, summed].map(|it| rewriter.value(Value::Tensor(it)));
    Some([codes, shaped, summed, rewriter.value(Value::Int(bits))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::{after, calls, operators, parse};

    /// Runs the pass with a processor that supports every call.
    fn made(text: &str) -> Graph<'static> {
        after(text, |graph| run(graph, &mut |_, _| true))
    }

    const BY_CHANNEL: &str = "in x f32[2,8]
        const w i8[3,8] = 2
        const s f32[3] = 0.5
        const b f32[3]
        [r f32[2,1], z i64[2,1]] = \
            quantized_decomposed.choose_qparams_per_token_asymmetric.default(x, 1)
        c i8[2,8] = quantized_decomposed.quantize_per_token.default(x, r, z, -128, 127, 1)
        f f32[2,8] = quantized_decomposed.dequantize_per_token.default(c, r, z, -128, 127, 1, 6)
        v f32[3,8] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, -128, \
            127, 1, none)
        y f32[2,3] = aten.linear.default(f, v, b)
        out y";

    #[test]
    fn products_of_rounded_rows_keep_codes() {
        let graph = made(BY_CHANNEL);
        assert_eq!(operators(&graph), ["torchlet.dynamic_linear"]);
        let scales = &graph.values[graph.nodes[0].args[2]];
        assert!(matches!(scales, Value::Tensor(scales) if scales.sizes == [3, 1]), "{scales:?}");
        assert_eq!(graph.nodes[0].args[..2], [0, 1], "{:?}", calls(&graph));
        let Value::Tensor(sums) = &graph.values[graph.nodes[0].args[3]] else { panic!() };
        assert_eq!(sums.data.as_deref().unwrap()[..4], 8f32.to_le_bytes());
        assert_eq!(graph.values[graph.nodes[0].args[5]], Value::Int(4));
    }

    #[test]
    fn weights_of_floats_keep_codes() {
        let text = "in x f32[2,8]
            const w i8[3,8] = 2
            const s f32[3] = 0.5
            v f32[3,8] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, -128, \
                127, 1, none)
            y f32[2,3] = aten.linear.default(x, v, none)
            out y";
        let graph = after(text, |graph| keep_weights(graph, &mut |_, _| true));
        assert_eq!(operators(&graph), ["torchlet.linear_int8"]);
        let refused = after(text, |graph| keep_weights(graph, &mut |_, _| false));
        assert!(operators(&refused).contains(&"aten.linear.default"));
    }

    #[test]
    fn rows_are_rounded_by_other_operators() {
        let by_hand = BY_CHANNEL.replace(
            "c i8[2,8] = quantized_decomposed.quantize_per_token.default(x, r, z, -128, 127, 1)
        f f32[2,8] = quantized_decomposed.dequantize_per_token.default(c, r, z, -128, 127, 1, 6)",
            "p f32[2,1] = aten._to_copy.default(z, 6)
        i f32[2,1] = aten.reciprocal.default(r)
        a f32[2,8] = aten.mul.Tensor(x, i)
        c f32[2,8] = aten.round.default(a)
        d f32[2,8] = aten.add.Tensor(c, p, 1)
        e f32[2,8] = aten.clamp.default(d, -128, 127)
        g f32[2,8] = aten.sub.Tensor(e, p, 1)
        f f32[2,8] = aten.mul.Tensor(g, r)",
        );
        assert_ne!(by_hand, BY_CHANNEL);
        assert_eq!(operators(&made(&by_hand)), ["torchlet.dynamic_linear"]);
        // With the zero points of another tensor.
        let other = by_hand
            .replace("default(x, 1)", "default(y2, 1)")
            .replace("in x f32[2,8]", "in x f32[2,8]\n        in y2 f32[2,8]");
        assert!(!operators(&made(&other)).contains(&"torchlet.dynamic_linear"));
    }

    #[test]
    fn groups_are_seen_where_their_view_is_a_constant() {
        let by_group = BY_CHANNEL
            .replace("const w i8[3,8] = 2", "const w i8[6,4] = 2")
            .replace("const s f32[3] = 0.5", "const s f32[6] = 0.5")
            .replace("v f32[3,8] =", "u f32[6,4] =")
            .replace(
                "        y f32",
                "        v f32[3,8] = aten.view_copy.default(u, [3, 8])\n        y f32",
            );
        let graph = made(&by_group);
        assert_eq!(operators(&graph), ["torchlet.dynamic_linear"]);
        let args = &graph.nodes[0].args;
        let sizes = [1, 2, 3].map(|arg| match &graph.values[args[arg]] {
            Value::Tensor(tensor) => tensor.sizes.clone(),
            other => panic!("{other:?}"),
        });
        assert_eq!(sizes, [vec![3, 8], vec![3, 2], vec![3]]);
    }

    #[test]
    fn groups_are_seen_through_views() {
        let by_group = BY_CHANNEL
            .replace(
                "const s f32[3] = 0.5",
                "const s f32[6] = 0.5\n        p i8[6,4] = aten.view_copy.default(w, [6, 4])",
            )
            .replace("v f32[3,8] =", "u f32[6,4] =")
            .replace("per_channel.default(w,", "per_channel.default(p,")
            .replace(
                "        y f32",
                "        v f32[3,8] = aten.view_copy.default(u, [3, 8])\n        y f32",
            );
        let graph = made(&by_group);
        assert_eq!(operators(&graph), ["torchlet.dynamic_linear"]);
        let scales = &graph.values[graph.nodes[0].args[2]];
        assert!(matches!(scales, Value::Tensor(scales) if scales.sizes == [3, 2]), "{scales:?}");
    }

    #[test]
    fn what_is_rounded_otherwise_stays() {
        for (from, to) in [
            (
                "quantize_per_token.default(x, r, z, -128",
                "quantize_per_token.default(x, r, z, -127",
            ),
            ("default(w, s, none, 0,", "default(w, s, none, 1,"),
            ("default(c, r, z,", "default(c, s, z,"),
        ] {
            let other = BY_CHANNEL.replace(from, to);
            assert_ne!(other, BY_CHANNEL);
            let mut graph = parse(&other);
            run(&mut graph, &mut |_, _| true);
            assert!(operators(&graph).contains(&"aten.linear.default"), "{to}");
        }
        let mut graph = parse(BY_CHANNEL);
        run(&mut graph, &mut |_, _| false);
        assert!(operators(&graph).contains(&"aten.linear.default"));
    }
}
