//! Folds batch norms at inference into the weights of the preceding convolution or linear layer.
//!
//! With `s = weight / sqrt(variance + epsilon)`, the weights of each output channel are multiplied
//! by its `s`, and the bias becomes `(bias - mean) · s + shift`. Both are computed in `f64` and
//! rounded once to the type of the weights: `f32`, `f16` or `bf16`.
//!
//! Needs: a graph in which each value is produced once, before its uses; all parameters constant,
//! with fixed shapes. Keeps: layers whose output has other uses, weights that have other uses (so
//! memory stays within the size of the file), norms whose statistics are used, and weights that
//! would not be finite. Rounding: weights change by up to half a unit in the last place, and
//! results accordingly. Inference compilers commonly accept this deviation.

use super::constant::{self, decode, encode};
use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{ConvolutionArgs, Operator};
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Folds batch norms into weights. Returns the number of folded norms.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| {
        node.operator == Operator::NATIVE_BATCH_NORM_LEGIT_NO_TRAINING
            && fold(rewriter, node).is_some()
    })
}

/// Factor and summand of each channel.
type Affine = Vec<(f64, f64)>;

fn fold(rewriter: &mut Rewriter<'_, '_>, norm: &Node) -> Option<()> {
    let Value::List(outs) = rewriter.get(*norm.args.last()?)? else { return None };
    let (out, statistics) = outs.split_first()?;
    let (out, taken) = (*out, statistics.iter().any(|id| rewriter.uses(*id) > 0));
    let input = *inputs(norm).first()?;
    let layer = rewriter.producer(input)?;
    if taken || rewriter.uses(input) != 1 || layer.args.last() != Some(&input) {
        return None;
    }
    let (operator, mut args) = (layer.operator, inputs(layer).to_vec());
    let [_, weight, rest @ ..] = args.as_slice() else { return None };
    let weight = *weight;
    let channels = channel_dim(rewriter, layer, weight, input)?;
    let bias = rest.first().copied().filter(|id| !rewriter.is_none(Some(id)));
    let tensor = rewriter.tensor(weight)?;
    let (scalar_type, sizes) = (tensor.scalar_type, tensor.sizes.clone());
    let is_known =
        matches!(scalar_type, ScalarType::Float | ScalarType::Half | ScalarType::BFloat16);
    if !is_known || rewriter.uses(weight) != 1 || rewriter.scalar_type(input) != Some(scalar_type) {
        return None;
    }
    let count = *rewriter.sizes(input)?.get(1)?;
    let affine = affine(rewriter, inputs(norm), count)?;
    let weights = scaled_weights(rewriter, weight, channels, &affine)?;
    let bias = match bias {
        Some(bias) => numbers(rewriter, bias, count)?,
        None => vec![0.0; count],
    };
    let biases: Vec<f64> =
        bias.iter().zip(&affine).map(|(bias, (scale, shift))| bias * scale + shift).collect();
    let biases = encode(scalar_type, &biases)?;
    if !decode(scalar_type, &biases)?.all(f64::is_finite) {
        return None;
    }
    let weights = made(rewriter, scalar_type, sizes, weights);
    let biases = made(rewriter, scalar_type, vec![count], biases);
    *args.get_mut(1)? = weights;
    match args.get_mut(2) {
        Some(bias) => *bias = biases,
        None => args.push(biases),
    }
    rewriter.call(operator, &args, out);
    Some(())
}

/// The dim of a layer's weights with the output channels of one group, and the number of groups,
/// which are stored over dim 0.
struct Channels {
    dim: usize,
    groups: usize,
}

fn channel_dim(
    rewriter: &Rewriter<'_, '_>,
    layer: &Node,
    weight: ValueId,
    out: ValueId,
) -> Option<Channels> {
    let (sizes, out) = (rewriter.sizes(weight)?, rewriter.sizes(out)?);
    let channels = if let Some(call) = ConvolutionArgs::matching(layer) {
        match rewriter.flag(Some(&call.transposed), false)? {
            true => Channels { dim: 1, groups: usize::try_from(rewriter.int(call.groups)?).ok()? },
            false => Channels { dim: 0, groups: 1 },
        }
    } else if layer.operator == Operator::LINEAR && out.len() == 2 {
        // Channels are the last dim of the layer's output, and dim 1 of the norm's input.
        Channels { dim: 0, groups: 1 }
    } else {
        return None;
    };
    let count = sizes.get(channels.dim)?.checked_mul(channels.groups)?;
    let grouped = channels.groups > 0 && sizes.first()? % channels.groups == 0;
    (grouped && Some(&count) == out.get(1)).then_some(channels)
}

/// Factor and summand per channel, from the arguments of a norm: input, weight, bias, mean,
/// variance, momentum and epsilon.
fn affine(rewriter: &Rewriter<'_, '_>, norm: &[ValueId], count: usize) -> Option<Affine> {
    let [_, weight, bias, mean, variance, _, epsilon, ..] = norm else { return None };
    let or = |id: &ValueId, default: f64| {
        if rewriter.is_none(Some(id)) {
            return Some(vec![default; count]);
        }
        numbers(rewriter, *id, count)
    };
    let (weight, bias) = (or(weight, 1.0)?, or(bias, 0.0)?);
    let (mean, variance) = (numbers(rewriter, *mean, count)?, numbers(rewriter, *variance, count)?);
    let epsilon = rewriter.number(*epsilon)?;
    let parameters = weight.iter().zip(&bias).zip(mean.iter().zip(&variance));
    let affine = parameters.map(|((weight, bias), (mean, variance))| {
        let scale = weight / libm::sqrt(variance + epsilon);
        (scale, bias - mean * scale)
    });
    Some(affine.collect())
}

/// The elements of a constant floating-point vector.
fn numbers(rewriter: &Rewriter<'_, '_>, id: ValueId, count: usize) -> Option<Vec<f64>> {
    let (tensor, data) = rewriter.constant(id)?;
    if tensor.sizes != [count] || !tensor.scalar_type.is_floating() {
        return None;
    }
    let numbers: Vec<f64> = decode(tensor.scalar_type, data)?.collect();
    (numbers.len() == count).then_some(numbers)
}

fn scaled_weights(
    rewriter: &Rewriter<'_, '_>,
    weight: ValueId,
    Channels { dim, groups }: Channels,
    affine: &Affine,
) -> Option<Vec<u8>> {
    let (tensor, data) = rewriter.constant(weight)?;
    let count = *tensor.sizes.get(dim)?;
    let inner: usize = tensor.sizes.get(dim + 1..)?.iter().product();
    // Transposed convolutions store input channels first, those of a group next to each other.
    let outer: usize = tensor.sizes.get(..dim)?.iter().product();
    let in_group = outer.checked_div(groups)?;
    let factors = (0..outer).flat_map(|at| {
        let group = if dim == 0 { 0 } else { at.checked_div(in_group).unwrap_or(0) };
        let own = affine.get(group * count..).unwrap_or_default();
        own.iter().take(count).map(|(scale, _)| *scale)
    });
    constant::scaled(tensor.scalar_type, data, inner, factors)
}

/// Adds a constant.
fn made(
    rewriter: &mut Rewriter<'_, '_>,
    scalar_type: ScalarType,
    sizes: Vec<usize>,
    data: Vec<u8>,
) -> ValueId {
    rewriter.value(Value::Tensor(Tensor {
        scalar_type,
        host_type: scalar_type,
        sizes,
        dynamic: false,
        data: Some(Cow::Owned(data)),
        changes: Some(false),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::{dead, text, verify};

    fn folded(text: &str) -> (Graph<'static>, usize) {
        let mut graph = text::parse(text);
        let count = super::run(&mut graph);
        dead::run(&mut graph);
        verify::verify(&graph).unwrap();
        (graph, count)
    }

    fn numbers(graph: &Graph<'_>, id: ValueId) -> Vec<f64> {
        let Value::Tensor(tensor) = &graph.values[id] else { unreachable!() };
        decode(tensor.scalar_type, tensor.data.as_ref().unwrap()).unwrap().collect()
    }

    /// A norm over two channels with factors 2 and 3, after this layer.
    fn after(layer: &str, sizes: &str) -> alloc::string::String {
        alloc::format!(
            "in x f32[1,2,4]
             const gamma f32[2] = 4 3
             const beta f32[2] = 10 20
             const mean f32[2] = 1 2
             const variance f32[2] = 3 0
             {layer}
             [o f32{sizes}, s f32[0], t f32[0]] = \
                 aten._native_batch_norm_legit_no_training.default(y, gamma, beta, mean, \
                 variance, 0.1, 1.0)
             out o"
        )
    }

    #[test]
    fn into_a_convolution() {
        let layer = "const w f32[2,2,1] = 1 2 3 4
             const b f32[2] = 5 6
             y f32[1,2,4] = aten.convolution.default(x, w, b, [1], [0], [1], false, [0], 1)";
        let (graph, count) = folded(&after(layer, "[1,2,4]"));
        assert_eq!((count, graph.nodes.len()), (1, 1));
        let args = &graph.nodes[0].args;
        assert_eq!(numbers(&graph, args[1]), [2.0, 4.0, 9.0, 12.0]);
        assert_eq!(numbers(&graph, args[2]), [(5.0 - 1.0) * 2.0 + 10.0, (6.0 - 2.0) * 3.0 + 20.0]);
    }

    #[test]
    fn into_a_transposed_convolution_in_groups() {
        // Input channel 0 contributes to output channel 0, input channel 1 to output channel 1.
        let layer = "const w f32[2,1,2] = 1 2 3 4
             y f32[1,2,5] = aten.convolution.default(x, w, none, [1], [0], [1], true, [0], 2)";
        let (graph, count) = folded(&after(layer, "[1,2,5]"));
        assert_eq!(count, 1);
        let args = &graph.nodes[0].args;
        assert_eq!(numbers(&graph, args[1]), [2.0, 4.0, 9.0, 12.0]);
        assert_eq!(numbers(&graph, args[2]), [8.0, 14.0]);
    }

    #[test]
    fn into_a_linear_layer() {
        let layer = "in z f32[3,2]
             const w f32[2,2] = 1 2 3 4
             y f32[3,2] = aten.linear.default(z, w, none)";
        let (graph, count) = folded(&after(layer, "[3,2]"));
        assert_eq!(count, 1);
        assert_eq!(numbers(&graph, graph.nodes[0].args[1]), [2.0, 4.0, 9.0, 12.0]);
    }

    #[test]
    fn what_others_take_stays() {
        let layer = "const w f32[2,2,1] = 1 2 3 4
             y f32[1,2,4] = aten.convolution.default(x, w, none, [1], [0], [1], false, [0], 1)";
        let text = after(layer, "[1,2,4]");
        assert_eq!(folded(&text).1, 1);
        for other in [
            text.replace("out o", "out o y"),
            text.replace("out o", "out o s"),
            text.replace("out o", "z f32[2,2,1] = aten.neg.default(w)\nout o z"),
            text.replace("const gamma", "in gamma").replace("gamma f32[2] = 4 3", "gamma f32[2]"),
            // Weights that overflow.
            text.replace("f32", "f16").replace("= 4 3", "= 60000 3").replace("= 3 0", "= 0 0"),
        ] {
            assert_eq!(folded(&other).1, 0, "{other}");
        }
    }

    #[test]
    fn weights_are_rounded_once() {
        let layer = "const w f32[2,2,1] = 1 2 3 4
             y f32[1,2,4] = aten.convolution.default(x, w, none, [1], [0], [1], false, [0], 1)";
        let text = after(layer, "[1,2,4]")
            .replace("f32", "bf16")
            .replace("= 4 3", "= 1 1")
            .replace("= 3 0", "= 2 4");
        let (graph, _) = folded(&text);
        let data = encode(ScalarType::BFloat16, &[1.0, 2.0].map(|weight| weight / libm::sqrt(3.0)));
        let expected: Vec<f64> = decode(ScalarType::BFloat16, &data.unwrap()).unwrap().collect();
        assert_eq!(numbers(&graph, graph.nodes[0].args[1])[..2], expected);
    }
}
