//! Fuses dynamically quantized convolutions into [`Operator::DYNAMIC_CONVOLUTION`], which keeps
//! int8 weights.
//!
//! The pattern is a 2-D convolution whose input is quantized and dequantized per image of the
//! batch, as [the XNNPACK front end](crate::front::xnnpack) writes it.
//! `choose_qparams_per_token_asymmetric` derives scale and zero point from the minimum and maximum
//! of each image. Permutations may stand in between. The weights are `dequantize_per_channel` of
//! int8 constants. Depthwise convolutions stay in floating point, which is faster.
//!
//! Needs: as [`super::quantized`]. Runs where processors are known; a call is produced only if
//! `takes` accepts it. Keeps: intermediate values that other calls read. Rounding: sums of int8
//! products are exact.

use super::quantized::fits_bias;
use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::{VIEWS, permutation};
use super::weights::Filters;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{ConvolutionArgs, Operator};
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Fuses dynamically quantized convolutions. `takes` decides whether the processor supports a call.
/// Returns the number of changes.
pub fn run(graph: &mut Graph<'_>, takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool) -> usize {
    each_call(graph, |rewriter, node| convolution(rewriter, node, takes).is_some())
}

fn convolution(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let call = ConvolutionArgs::matching(node)?;
    let ConvolutionArgs { input, weight, bias, stride, padding, dilation, groups, out, .. } = call;
    let ConvolutionArgs { transposed, output_padding: more, .. } = call;
    if rewriter.sizes(out)?.len() != PICTURES || rewriter.scalar_type(out)? != ScalarType::Float {
        return None;
    }
    let is_transposed = rewriter.flag(Some(&transposed), false)?;
    let filters = Filters::of(rewriter, weight, is_transposed, groups)?;
    if filters.are_single() || !fits_bias(rewriter, bias, filters.channels) {
        return None;
    }
    let (source, order) = rounded(rewriter, input)?;
    let codes = filters.rows(rewriter)?;
    let kernel = filters.kernel_size(rewriter);
    let scales = filters.weights.scales;
    // The quantized input has the shape of the final one, so it can represent it in the query.
    let args =
        [input, codes, scales, bias, kernel, stride, padding, more, dilation, groups, transposed];
    if !rewriter.is_taken(Operator::DYNAMIC_CONVOLUTION, &args, out, takes) {
        return None;
    }
    let mut args = args;
    args[0] = permuted(rewriter, source, &order, input)?;
    rewriter.call(Operator::DYNAMIC_CONVOLUTION, &args, out);
    Some(())
}

/// Rank of a batch of images.
const PICTURES: usize = 4;
const LOWEST: f64 = -128.0;
const HIGHEST: f64 = 127.0;

/// Permutes a tensor, unless the order is the identity. The result has type and shape of `like`.
fn permuted(
    rewriter: &mut Rewriter<'_, '_>,
    source: ValueId,
    order: &[usize],
    like: ValueId,
) -> Option<ValueId> {
    if order.iter().copied().eq(0..order.len()) {
        return Some(source);
    }
    let like = Tensor { data: None, ..rewriter.tensor(like)?.clone() };
    let made = rewriter.value(Value::Tensor(like));
    let dims = order.iter().map(|dim| *dim as i64).collect();
    let dims = rewriter.value(Value::IntList(dims));
    rewriter.call(Operator::PERMUTE_COPY, &[source, dims], made);
    Some(made)
}

/// The float source of a batch of images that is quantized and dequantized, and, for each dim of
/// the batch, the corresponding dim of the source.
fn rounded(rewriter: &Rewriter<'_, '_>, mut id: ValueId) -> Option<(ValueId, Vec<usize>)> {
    let mut order: Vec<usize> = (0..PICTURES).collect();
    for _ in 0..VIEWS {
        let moved = rewriter.producer(id).and_then(|node| permutation(rewriter, node));
        let Some((source, dims)) = moved else { break };
        order = order.iter().map(|dim| dims.get(*dim).copied()).collect::<Option<_>>()?;
        id = source;
    }
    let (source, scales, zeros) = rounded_by(rewriter, id)?;
    // The batch dim must stay first.
    let is_first = order.first() == Some(&0);
    (is_first && are_chosen(rewriter, source, scales, zeros)?).then_some((source, order))
}

/// Matches quantize and dequantize to int8 in floating-point operators. Returns the source, the
/// scales and the zero points as floats; both broadcast.
pub(super) fn rounded_by(
    rewriter: &Rewriter<'_, '_>,
    id: ValueId,
) -> Option<(ValueId, ValueId, ValueId)> {
    let (scaled, scales) = of_two(rewriter, id, Operator::MUL_TENSOR, |id| {
        rewriter.call_of(id, Operator::SUB_TENSOR).is_some()
    })?;
    let (limited, zeros) = of_two(rewriter, scaled, Operator::SUB_TENSOR, |id| {
        rewriter.call_of(id, Operator::CLAMP).is_some()
    })?;
    let &[limited, low, high] = rewriter.call_of(limited, Operator::CLAMP)? else { return None };
    if [rewriter.number(low)?, rewriter.number(high)?] != [LOWEST, HIGHEST] {
        return None;
    }
    let (whole, zeros_added) = of_two(rewriter, limited, Operator::ADD_TENSOR, |id| {
        rewriter.call_of(id, Operator::ROUND).is_some()
    })?;
    let &[scaled] = rewriter.call_of(whole, Operator::ROUND)? else { return None };
    let (inverse, source) = of_two(rewriter, scaled, Operator::MUL_TENSOR, |id| {
        rewriter.call_of(id, Operator::RECIPROCAL).is_some()
    })?;
    let is_inverse = rewriter.call_of(inverse, Operator::RECIPROCAL)? == [scales];
    let is_float = rewriter.scalar_type(source) == Some(ScalarType::Float);
    (zeros == zeros_added && is_inverse && is_float).then_some((source, scales, zeros))
}

/// The operands of a call, with the one that passes the test first. Alphas of sums and differences
/// must be one, and only the first operand of a difference is tested.
fn of_two(
    rewriter: &Rewriter<'_, '_>,
    id: ValueId,
    operator: Operator,
    is_first: impl Fn(ValueId) -> bool,
) -> Option<(ValueId, ValueId)> {
    let (a, b, rest) = match rewriter.call_of(id, operator)? {
        [a, b, rest @ ..] => (*a, *b, rest),
        _ => return None,
    };
    if rest.iter().any(|factor| rewriter.number(*factor) != Some(1.0)) {
        return None;
    }
    match operator {
        Operator::SUB_TENSOR => is_first(a).then_some((a, b)),
        _ if is_first(a) => Some((a, b)),
        _ => is_first(b).then_some((b, a)),
    }
}

/// Whether scales and float zero points derive from the minimum and maximum of each image.
fn are_chosen(
    rewriter: &Rewriter<'_, '_>,
    source: ValueId,
    scales: ValueId,
    zeros: ValueId,
) -> Option<bool> {
    let chosen = rewriter.producer(scales)?;
    let choose = Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC;
    let Some(Value::List(made)) = rewriter.get(*chosen.args.last()?) else { return None };
    let &[own, points] = &made[..] else { return None };
    let converted = rewriter.call_of(zeros, Operator::TO_COPY)?;
    let ends = *inputs(chosen).first()?;
    let taken = rewriter.call_of(ends, Operator::CAT)?;
    let list = *taken.first()?;
    let Some(Value::List(both)) = rewriter.get(list) else { return None };
    let &[least, largest] = &both[..] else { return None };
    let of_all = |id: ValueId, operator: Operator| {
        let taken = rewriter.call_of(id, operator)?;
        let [of, dims, keep] = taken else { return None };
        let mut dims = rewriter.ints(*dims)?.to_vec();
        dims.sort_unstable();
        Some(*of == source && dims == [1, 2, 3] && rewriter.flag(Some(keep), false)?)
    };
    let sizes = rewriter.sizes(ends)?;
    Some(
        chosen.operator == choose
            && own == scales
            && converted.first() == Some(&points)
            && rewriter.scalar_type(zeros) == Some(ScalarType::Float)
            && sizes.get(1..) == Some(&[1, 1, 2])
            && of_all(least, Operator::AMIN)?
            && of_all(largest, Operator::AMAX)?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::{after, calls, operators, parse};

    /// Channels-last images, as in XNNPACK.
    const ROUNDED: &str = "in x f32[2,4,5,3]
        const w i8[6,3,3,3] = 2
        const s f32[6] = 0.5
        const b f32[6]
        l f32[2,1,1,1] = aten.amin.default(x, [1, 2, 3], true)
        h f32[2,1,1,1] = aten.amax.default(x, [1, 2, 3], true)
        e f32[2,1,1,2] = aten.cat.default([l, h], -1)
        [r f32[2,1,1,1], p i64[2,1,1,1]] = \
            quantized_decomposed.choose_qparams_per_token_asymmetric.default(e, 1)
        z f32[2,1,1,1] = aten._to_copy.default(p, 6)
        i f32[2,1,1,1] = aten.reciprocal.default(r)
        a f32[2,4,5,3] = aten.mul.Tensor(x, i)
        c f32[2,4,5,3] = aten.round.default(a)
        d f32[2,4,5,3] = aten.add.Tensor(c, z, 1)
        f f32[2,4,5,3] = aten.clamp.default(d, -128, 127)
        g f32[2,4,5,3] = aten.sub.Tensor(f, z, 1)
        k f32[2,4,5,3] = aten.mul.Tensor(g, r)
        n f32[2,3,4,5] = aten.permute_copy.default(k, [0, 3, 1, 2])
        v f32[6,3,3,3] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, \
            -128, 127, 1, none)
        y f32[2,6,4,5] = aten.convolution.default(n, v, b, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
        out y";

    fn made(text: &str) -> Vec<&'static str> {
        operators(&after(text, |graph| run(graph, &mut |_, _| true)))
    }

    #[test]
    fn rounded_pictures_are_convolved_as_codes() {
        let expected = ["aten.permute_copy.default", "torchlet.dynamic_convolution"];
        let graph = after(ROUNDED, |graph| run(graph, &mut |_, _| true));
        assert_eq!(operators(&graph), expected);
        let [.., call] = &graph.nodes[..] else { panic!() };
        let Value::Tensor(codes) = &graph.values[call.args[1]] else { panic!() };
        assert_eq!((&codes.sizes[..], call.args.len()), (&[6, 27][..], 12), "{:?}", calls(&graph));
        let swapped = ROUNDED.replace("mul.Tensor(g, r)", "mul.Tensor(r, g)");
        assert_eq!(made(&swapped), expected);
    }

    #[test]
    fn what_is_rounded_otherwise_stays() {
        for (from, to) in [
            ("(x, [1, 2, 3], true)", "(x, [1, 2], true)"),
            ("amin.default(x,", "amin.default(a,"),
            ("d, -128, 127", "d, -127, 127"),
            ("sub.Tensor(f, z, 1)", "sub.Tensor(f, z, 2)"),
            ("sub.Tensor(f, z, 1)", "sub.Tensor(f, r, 1)"),
            ("reciprocal.default(r)", "reciprocal.default(z)"),
            ("w, s, none, 0,", "w, s, none, 1,"),
            ("[0, 3, 1, 2]", "[3, 0, 1, 2]"),
        ] {
            let other = ROUNDED.replace(from, to);
            assert_ne!(other, ROUNDED);
            let mut graph = parse(&other);
            assert_eq!(run(&mut graph, &mut |_, _| true), 0, "{to}");
        }
        let mut graph = parse(ROUNDED);
        assert_eq!(run(&mut graph, &mut |_, _| false), 0);
    }
}
