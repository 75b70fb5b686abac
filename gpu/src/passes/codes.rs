//! Fuses the dequantization of constant 8-bit weights into the linear layers that read them.
//!
//! Supported are `dequantize_affine` and `dequantize_per_channel`, with one scale per row or per
//! group of a row, and zero points of zero. Weights of other shapes are still dequantized in each
//! run: with many rows, that is faster than the generic quantized GEMM kernel.

use super::{Producers, remove};
use crate::ops::are_regular;
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::{DequantizePerChannelArgs, Operator, TorchaoDequantizeAffineArgs};
use torchlet_graph::passes::uses::has_unique_producers;

/// Quantized weights and scales, and the number of scales per row.
#[derive(Debug, Clone, Copy)]
struct QuantizedWeights {
    codes: ValueId,
    scales: ValueId,
    rows: usize,
    groups: usize,
}

pub(super) fn keep(graph: &mut Graph<'_>) {
    if !has_unique_producers(graph) {
        return;
    }
    // The number of linear layers that read each weight.
    let mut times: HashMap<ValueId, usize> = HashMap::new();
    let is_linear = |node: &&Node| node.operator == Operator::LINEAR;
    for node in graph.nodes.iter().filter(is_linear) {
        if let [input, weight, bias, _] = node.args[..]
            && ![input, bias].contains(&weight)
        {
            *times.entry(weight).or_insert(0) += 1;
        }
    }
    let mut quantized: HashMap<ValueId, QuantizedWeights> = HashMap::new();
    let mut gone = HashSet::new();
    let producers = Producers::of(graph);
    for (weight, times) in times {
        // If calls that cannot be fused read the dequantized weight, it has to be computed anyway.
        let Some((index, producer)) = producers.producer_with_uses(weight, times) else { continue };
        if let Some(found) = quantized_weights(graph, producer) {
            quantized.insert(weight, found);
            gone.insert(index);
        }
    }
    if quantized.is_empty() {
        return;
    }
    let bits = graph.values.len();
    graph.values.push(Value::Int(8));
    for index in 0..graph.nodes.len() {
        let Some(node) = graph.nodes.get(index).filter(is_linear) else { continue };
        let [input, weight, bias, out] = node.args[..] else { continue };
        let Some(found) = quantized.get(&weight) else { continue };
        let Some(Value::Tensor(scales)) = graph.values.get(found.scales) else { continue };
        let scales = Tensor { sizes: vec![found.rows, found.groups], ..scales.clone() };
        let args = vec![input, found.codes, graph.values.len(), bias, bits, out];
        graph.values.push(Value::Tensor(scales));
        if let Some(node) = graph.nodes.get_mut(index) {
            (node.operator, node.args) = (Operator::LINEAR_INT8, args);
        }
    }
    remove(graph, &gone);
}

/// Returns the quantized weights that a call dequantizes, if the quantized GEMM kernels support
/// their shape.
fn quantized_weights(graph: &Graph<'_>, node: &Node) -> Option<QuantizedWeights> {
    let (codes, scales, zeros) = match (node.operator, &node.args[..]) {
        (Operator::TORCHAO_DEQUANTIZE_AFFINE, [codes, _, scales, zeros, ..])
        | (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL, [codes, scales, zeros, ..]) => {
            (*codes, *scales, *zeros)
        }
        _ => return None,
    };
    let (tensor, _) = constant(graph, codes)?;
    let [rows, columns] = tensor.sizes[..] else { return None };
    let (scale, _) = constant(graph, scales)?;
    let count = scale.sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size))?;
    let groups = count.checked_div(rows).filter(|groups| *groups > 0 && groups * rows == count)?;
    let is_by_row = match TorchaoDequantizeAffineArgs::matching(node) {
        Some(call) => {
            let group = columns.checked_div(groups).filter(|group| group * groups == columns)?;
            let blocks = graph.values.get(call.block_size)?;
            *blocks == Value::IntList(vec![1, i64::try_from(group).ok()?])
        }
        None => {
            let axis = DequantizePerChannelArgs::of(node).ok()?.axis;
            groups == 1 && matches!(graph.values.get(axis), Some(Value::Int(0 | -2)))
        }
    };
    let no_zeros = match graph.values.get(zeros)? {
        Value::None => true,
        _ => constant(graph, zeros)?.1.iter().all(|byte| *byte == 0),
    };
    let types = tensor.scalar_type == ScalarType::Char
        && matches!(scale.scalar_type, ScalarType::Float | ScalarType::Half);
    let fits = are_regular(rows, columns, columns.checked_div(groups)?);
    (types && is_by_row && no_zeros && fits).then_some(QuantizedWeights {
        codes,
        scales,
        rows,
        groups,
    })
}

fn constant<'g, 'p>(graph: &'g Graph<'p>, id: ValueId) -> Option<(&'g Tensor<'p>, &'g [u8])> {
    match graph.values.get(id)? {
        Value::Tensor(tensor) if tensor.changes != Some(true) => {
            Some((tensor, tensor.data.as_deref()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::tensor;

    /// A linear layer with quantized weights of 16 columns, in groups of `group`.
    fn linear(shape: [usize; 2], zero: u8, taken_elsewhere: bool) -> Graph<'static> {
        linear_of(ScalarType::Float, shape, zero, taken_elsewhere)
    }

    fn linear_of(
        numbers: ScalarType,
        [rows, group]: [usize; 2],
        zero: u8,
        taken_elsewhere: bool,
    ) -> Graph<'static> {
        let float = |sizes: &[usize], data| tensor(numbers, sizes, data);
        let mut zeros = tensor(ScalarType::Char, &[rows, 16 / group], true);
        if let Value::Tensor(Tensor { data: Some(data), .. }) = &mut zeros {
            data.to_mut().fill(zero);
        }
        let values = vec![
            float(&[2, 16], false),
            tensor(ScalarType::Char, &[rows, 16], true),
            Value::IntList(vec![1, group as i64]),
            float(&[rows, 16 / group], true),
            zeros,
            Value::Int(1),
            Value::None,
            float(&[rows, 16], false),
            float(&[2, rows], false),
            float(&[rows, 16], false),
        ];
        let dequantize = vec![1, 2, 3, 4, 5, 6, 6, 6, 7];
        let mut graph = Graph {
            values,
            nodes: vec![
                Node::new(Operator::TORCHAO_DEQUANTIZE_AFFINE, dequantize),
                Node::new(Operator::LINEAR, vec![0, 7, 6, 8]),
            ],
            inputs: vec![0],
            outputs: vec![8],
            ..Graph::default()
        };
        if taken_elsewhere {
            graph.nodes.push(Node::new(Operator::ABS, vec![7, 9]));
            graph.outputs.push(9);
        }
        keep(&mut graph);
        graph
    }

    fn operators(graph: &Graph<'_>) -> Vec<Operator> {
        graph.nodes.iter().map(|node| node.operator).collect()
    }

    #[test]
    fn linear_layers_keep_quantized_weights() {
        let (float, half) = (ScalarType::Float, ScalarType::Half);
        for (numbers, group, groups) in [(float, 16, 1), (float, 8, 2), (half, 16, 1), (half, 8, 2)]
        {
            let graph = linear_of(numbers, [4, group], 0, false);
            assert_eq!(operators(&graph), [Operator::LINEAR_INT8]);
            let [input, codes, scales, bias, bits, out] = graph.nodes[0].args[..] else { panic!() };
            assert_eq!((input, codes, bias, out), (0, 1, 6, 8));
            assert_eq!(graph.values[bits], Value::Int(8));
            let Value::Tensor(scales) = &graph.values[scales] else { panic!() };
            assert_eq!(scales.sizes, [4, groups]);
        }
    }

    #[test]
    fn unsupported_weights_are_dequantized() {
        let both = [Operator::TORCHAO_DEQUANTIZE_AFFINE, Operator::LINEAR];
        assert_eq!(operators(&linear([4, 16], 1, false)), both, "zero points that are not zero");
        assert_eq!(operators(&linear([3, 16], 0, false)), both, "rows of irregular shape");
        assert_eq!(
            operators(&linear([4, 16], 0, true))[..2],
            both,
            "the floats have other readers"
        );
        assert_eq!(operators(&linear_of(ScalarType::BFloat16, [4, 16], 0, false)), both);
    }
}
