//! Products with weights that each run would make of constant codes of 8 bits become products with
//! these codes: `dequantize_affine` and `dequantize_per_channel` with one scale for each row, or
//! for each group of a row, and no zero points. Weights of other shapes are made as they are
//! written: the kernel for products of codes of any shape takes longer than that where there are
//! many rows.

use super::{Makers, each_is_made_once, remove};
use crate::ops::are_regular;
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::{DequantizePerChannelArgs, Operator, TorchaoDequantizeAffineArgs};

/// Codes and scales, and how many scales a row has.
#[derive(Debug, Clone, Copy)]
struct Coded {
    codes: ValueId,
    scales: ValueId,
    rows: usize,
    groups: usize,
}

pub(super) fn keep(graph: &mut Graph<'_>) {
    if !each_is_made_once(graph) {
        return;
    }
    // How often each of the weights is multiplied with.
    let mut times: HashMap<ValueId, usize> = HashMap::new();
    let products = |node: &&Node| node.operator == Operator::LINEAR;
    for node in graph.nodes.iter().filter(products) {
        if let [input, weight, bias, _] = node.args[..]
            && ![input, bias].contains(&weight)
        {
            *times.entry(weight).or_insert(0) += 1;
        }
    }
    let mut coded: HashMap<ValueId, Coded> = HashMap::new();
    let mut gone = HashSet::new();
    let makers = Makers::of(graph);
    for (weight, times) in times {
        // What others take is made all the same.
        let Some((place, maker)) = makers.taken(weight, times) else { continue };
        if let Some(found) = coded_by(graph, maker) {
            coded.insert(weight, found);
            gone.insert(place);
        }
    }
    if coded.is_empty() {
        return;
    }
    let bits = graph.values.len();
    graph.values.push(Value::Int(8));
    for place in 0..graph.nodes.len() {
        let Some(node) = graph.nodes.get(place).filter(products) else { continue };
        let [input, weight, bias, out] = node.args[..] else { continue };
        let Some(found) = coded.get(&weight) else { continue };
        let Some(Value::Tensor(scales)) = graph.values.get(found.scales) else { continue };
        let scales = Tensor { sizes: vec![found.rows, found.groups], ..scales.clone() };
        let args = vec![input, found.codes, graph.values.len(), bias, bits, out];
        graph.values.push(Value::Tensor(scales));
        if let Some(node) = graph.nodes.get_mut(place) {
            (node.operator, node.args) = (Operator::LINEAR_OF_CODES, args);
        }
    }
    remove(graph, &gone);
}

/// What a call makes numbers of, if that are rows of codes.
fn coded_by(graph: &Graph<'_>, node: &Node) -> Option<Coded> {
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
    (types && is_by_row && no_zeros && fits).then_some(Coded { codes, scales, rows, groups })
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

    /// Rows times weights of 16 columns, in groups of `group`.
    fn product(shape: [usize; 2], zero: u8, taken_elsewhere: bool) -> Graph<'static> {
        product_of(ScalarType::Float, shape, zero, taken_elsewhere)
    }

    fn product_of(
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
    fn products_keep_codes() {
        let (float, half) = (ScalarType::Float, ScalarType::Half);
        for (numbers, group, groups) in [(float, 16, 1), (float, 8, 2), (half, 16, 1), (half, 8, 2)]
        {
            let graph = product_of(numbers, [4, group], 0, false);
            assert_eq!(operators(&graph), [Operator::LINEAR_OF_CODES]);
            let [input, codes, scales, bias, bits, out] = graph.nodes[0].args[..] else { panic!() };
            assert_eq!((input, codes, bias, out), (0, 1, 6, 8));
            assert_eq!(graph.values[bits], Value::Int(8));
            let Value::Tensor(scales) = &graph.values[scales] else { panic!() };
            assert_eq!(scales.sizes, [4, groups]);
        }
    }

    #[test]
    fn others_are_made_of_numbers() {
        let both = [Operator::TORCHAO_DEQUANTIZE_AFFINE, Operator::LINEAR];
        assert_eq!(operators(&product([4, 16], 1, false)), both, "a zero point");
        assert_eq!(operators(&product([3, 16], 0, false)), both, "rows of no regular shape");
        assert_eq!(
            operators(&product([4, 16], 0, true))[..2],
            both,
            "somebody else takes the numbers"
        );
        assert_eq!(operators(&product_of(ScalarType::BFloat16, [4, 16], 0, false)), both);
    }
}
