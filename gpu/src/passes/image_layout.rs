//! Keeps the channels-last layout between quantized convolutions.
//!
//! Quantized convolutions read and write whole words of channels, so that keeping this layout
//! avoids conversions before and after each convolution. Element-wise calls between convolutions
//! work in either layout. Therefore, each value exists in both layouts at first, and unused copies
//! are removed.

use super::layouts::{Layouts, image_copy};
use super::uses;
use crate::derived::GROUP;
use crate::tensors::element_of;
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_graph::passes::uses::has_unique_producers;

/// Converts the convolutions for which `suited` returns true, and the element-wise calls between
/// them, to channels-last layout. A tensor that would exceed `most` bytes is not converted.
pub(crate) fn run(graph: &mut Graph<'_>, most: u64, suited: impl Fn(&Graph<'_>, &Node) -> bool) {
    if !has_unique_producers(graph) || !graph.nodes.iter().any(|node| suited(graph, node)) {
        return;
    }
    let mut both = BothLayouts { most, ..BothLayouts::default() };
    for node in std::mem::take(&mut graph.nodes) {
        if node.operator.traits().writes_arguments() {
            // The copies in channels-last layout may be outdated after this write.
            both.layouts.last.clear();
        }
        if suited(graph, &node) {
            both.convolution(graph, node);
        } else {
            both.other(graph, node);
        }
    }
    both.layouts.finish(graph);
    restore_lonely(graph);
    recode(graph);
}

/// The calls of a graph in both layouts.
#[derive(Default)]
struct BothLayouts {
    /// The maximum bytes of a tensor in channels-last layout.
    most: u64,
    layouts: Layouts,
}

impl BothLayouts {
    /// Adds a convolution in channels-last layout, and the conversion of its result to the default
    /// layout.
    fn convolution(&mut self, graph: &mut Graph<'_>, node: Node) {
        let ends = node.args.first().copied().zip(node.args.last().copied());
        let Some((input, out)) = ends else { return self.layouts.nodes.push(node) };
        let source = match self.layouts.last.get(&input) {
            Some(there) => *there,
            None => {
                let Some(source) = channels_last_tensor(graph, input, self.most) else {
                    return self.layouts.nodes.push(node);
                };
                self.layouts.add(Node {
                    id: node.id,
                    ..Node::new(Operator::TO_CHANNELS_LAST, vec![input, source])
                });
                self.layouts.last.insert(input, source);
                source
            }
        };
        let Some(result) = channels_last_tensor(graph, out, self.most) else {
            return self.layouts.nodes.push(node);
        };
        let mut args = node.args.clone();
        if let Some(slot) = args.last_mut() {
            *slot = result;
        }
        if let Some(slot) = args.first_mut() {
            *slot = source;
        }
        let id = node.id;
        self.layouts.nodes.push(Node {
            id,
            operator: Operator::CONVOLUTION_CHANNELS_LAST,
            args,
            parts: vec![node],
        });
        self.layouts.add(Node { id, ..Node::new(Operator::TO_CHANNELS_FIRST, vec![result, out]) });
        self.layouts.last.insert(out, result);
    }

    /// Adds a call that is not a convolution. If it is element-wise and its operands exist in
    /// channels-last layout, it is added in that layout too. A quantized result is converted back;
    /// results of larger types are computed in both layouts instead.
    fn other(&mut self, graph: &mut Graph<'_>, node: Node) {
        let Some((there, out)) = self.swapped(graph, &node) else {
            return self.layouts.nodes.push(node);
        };
        let result = there.args.last().copied().unwrap_or(out);
        let is_quantized = graph.tensor(out).is_some_and(|it| it.scalar_type == ScalarType::Char);
        self.layouts.last.insert(out, result);
        self.layouts.add(there);
        self.layouts.add(match is_quantized {
            true => {
                Node { id: node.id, ..Node::new(Operator::TO_CHANNELS_FIRST, vec![result, out]) }
            }
            false => node,
        });
    }

    /// Returns a call in channels-last layout, and the id of its result in the default layout.
    fn swapped(&self, graph: &mut Graph<'_>, node: &Node) -> Option<(Node, ValueId)> {
        let (out, inputs) = node.args.split_last()?;
        let sizes = &graph.tensor(*out)?.sizes;
        let mut args = inputs.to_vec();
        let operands = node.operator.traits().elementwise;
        if operands.is_empty() {
            return None;
        }
        for place in operands.iter() {
            let slot = args.get_mut(place)?;
            if graph.tensor(*slot).filter(|tensor| tensor.data.is_none())?.sizes != *sizes {
                return None;
            }
            *slot = *self.layouts.last.get(slot)?;
        }
        args.push(channels_last_tensor(graph, *out, self.most)?);
        Some((Node { id: node.id, ..Node::new(node.operator, args) }, *out))
    }
}

/// Adds a tensor for the channels-last copy of an image tensor, unless it would exceed `most`
/// bytes.
fn channels_last_tensor(graph: &mut Graph<'_>, id: ValueId, most: u64) -> Option<ValueId> {
    image_copy(graph, id, |tensor, [batch, channels, height, width]| {
        let channels = channels.checked_next_multiple_of(GROUP)?;
        let sizes = vec![batch, height.checked_mul(width)?, channels];
        let element = element_of(tensor.scalar_type).ok()?.size();
        let bytes = sizes.iter().try_fold(element, |bytes, size| bytes.checked_mul(*size))?;
        (bytes as u64 <= most).then_some(sizes)
    })
}

/// Restores the original form of convolutions whose input and result are both in the default
/// layout, which they support directly.
fn restore_lonely(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let mut sources = HashMap::new();
    let mut gone = HashSet::new();
    let mut restored = HashMap::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        match (node.operator, &node.args[..]) {
            (Operator::TO_CHANNELS_LAST, [_, result]) => {
                sources.insert(*result, place);
            }
            (Operator::CONVOLUTION_CHANNELS_LAST, [source, .., result]) => {
                let back = graph.nodes.get(place + 1);
                let is_back = back.is_some_and(|back| {
                    back.operator == Operator::TO_CHANNELS_FIRST
                        && back.args.first() == Some(result)
                });
                let alone = |id: &ValueId| uses.get(id) == Some(&1);
                if let Some(first) = sources.get(source)
                    && is_back
                    && alone(source)
                    && alone(result)
                    && let Some(call) = node.parts.first()
                {
                    restored.insert(place, call.clone());
                    gone.extend([*first, place + 1]);
                }
            }
            _ => {}
        }
    }
    for (place, call) in restored {
        if let Some(slot) = graph.nodes.get_mut(place) {
            *slot = call;
        }
    }
    super::remove(graph, &gone);
}

/// Fuses requantization into convolutions: the calls dequantize, clamp, and quantize.
fn recode(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let readers: HashMap<ValueId, usize> = {
        let nodes = graph.nodes.iter().enumerate();
        nodes.filter_map(|(place, node)| Some((*node.args.first()?, place))).collect()
    };
    let mut gone = HashSet::new();
    let mut joined = Vec::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        if node.operator != Operator::CONVOLUTION_CHANNELS_LAST {
            continue;
        }
        let only = |id: Option<&ValueId>| {
            let reader = *readers.get(id.filter(|id| uses.get(id) == Some(&1))?)?;
            Some((reader, graph.nodes.get(reader)?))
        };
        let Some(behind) = recoding(graph, node, only) else { continue };
        // The fused calls move to the position of the last one, which may read values produced in
        // between.
        let Some((end, last)) = behind.last() else { continue };
        let passed = graph.nodes.get(place..*end).unwrap_or_default();
        let Some(result) = last.args.last() else { continue };
        if passed.iter().any(|node| node.operator.traits().writes_arguments()) {
            continue;
        }
        let mut node = node.clone();
        if let Some(out) = node.args.last_mut() {
            *out = *result;
        }
        // Additional inputs of the fused calls.
        let inputs = node.args.len().saturating_sub(1);
        for (_, call) in &behind {
            if call.operator == Operator::Q8TA_LOOKUP {
                node.args.splice(inputs..inputs, call.args.get(1).copied());
            }
        }
        node.parts.extend(behind.iter().map(|(_, call)| (*call).clone()));
        let before = behind.iter().rev().skip(1).map(|(place, _)| *place);
        gone.extend(before.chain([place]));
        joined.push((*end, node));
    }
    for (place, node) in joined {
        if let Some(slot) = graph.nodes.get_mut(place) {
            *slot = node;
        }
    }
    super::remove(graph, &gone);
}

/// Returns the calls after a convolution that requantize its result, if it has no other readers.
fn recoding<'g>(
    graph: &'g Graph<'_>,
    node: &Node,
    only: impl Fn(Option<&ValueId>) -> Option<(usize, &'g Node)>,
) -> Option<Vec<(usize, &'g Node)>> {
    let is = |id: Option<&ValueId>, scalar_type| {
        id.and_then(|id| graph.tensor(*id)).is_some_and(|it| it.scalar_type == scalar_type)
    };
    let first = only(node.args.last())?;
    if matches!(first.1.operator, Operator::ET_VK_Q8TA_RELU | Operator::Q8TA_LOOKUP) {
        return is(first.1.args.last(), ScalarType::Char).then(|| vec![first]);
    }
    let mut calls = vec![first];
    let is_float = |node: &Node| is(node.args.last(), ScalarType::Float);
    if first.1.operator != Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR
        || !is_float(first.1)
    {
        return None;
    }
    let mut next = only(first.1.args.last())?;
    if matches!(next.1.operator, Operator::CLAMP | Operator::HARDTANH | Operator::RELU)
        && is_float(next.1)
    {
        calls.push(next);
        next = only(next.1.args.last())?;
    }
    calls.push(next);
    let is_last = next.1.operator == Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR
        && is(next.1.args.last(), ScalarType::Char);
    is_last.then_some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_graph::graph::{Tensor, Value};

    const IMAGE: &[usize] = &[1, 20, 4, 4];

    /// A graph of calls `(operator, inputs, output)` over int8 images, or float images for ids in
    /// `floats`. Value 0 is the input.
    fn graph(
        calls: &[(Operator, &[ValueId], ValueId)],
        floats: &[ValueId],
        outputs: &[ValueId],
    ) -> Graph<'static> {
        let count = 1 + calls.iter().map(|call| call.2).max().unwrap_or(0);
        let value = |id: ValueId| {
            let scalar_type =
                if floats.contains(&id) { ScalarType::Float } else { ScalarType::Char };
            let sizes = IMAGE.to_vec();
            let host_type = scalar_type;
            let (dynamic, data, changes) = (false, None, None);
            Value::Tensor(Tensor { scalar_type, host_type, sizes, dynamic, data, changes })
        };
        let nodes = calls
            .iter()
            .map(|(operator, inputs, out)| Node::new(*operator, [inputs, &[*out][..]].concat()));
        Graph {
            nodes: nodes.collect(),
            values: (0..count).map(value).collect(),
            inputs: vec![0],
            outputs: outputs.to_vec(),
            ..Graph::default()
        }
    }

    fn after(mut graph: Graph<'static>) -> (Vec<Operator>, Graph<'static>) {
        run(&mut graph, 4 * 32 * 16, |_, node| node.operator == CONVOLUTION);
        (graph.nodes.iter().map(|node| node.operator).collect(), graph)
    }

    const CONVOLUTION: Operator = Operator::ET_VK_Q8TA_CONV2D;
    const BY_PLACE: Operator = Operator::CONVOLUTION_CHANNELS_LAST;

    #[test]
    fn layout_stays_channels_last_between_convolutions() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (CONVOLUTION, &[0], 1),
            (Operator::Q8TA_MUL, &[1, 1], 2),
            (CONVOLUTION, &[2], 3),
            (Operator::ET_VK_Q8TA_ADD, &[3, 1], 4),
        ];
        let (operators, graph) = after(graph(calls, &[], &[4]));
        let expected = [
            Operator::TO_CHANNELS_LAST,
            BY_PLACE,
            Operator::Q8TA_MUL,
            BY_PLACE,
            Operator::ET_VK_Q8TA_ADD,
            Operator::TO_CHANNELS_FIRST,
        ];
        assert_eq!(operators, expected);
        assert_eq!(graph.nodes[5].args.last(), Some(&4));
        // The 20 channels are padded to whole groups of 16.
        let first = graph.tensor(*graph.nodes[0].args.last().unwrap()).unwrap();
        assert_eq!(first.sizes, [1, 16, 32]);
    }

    #[test]
    fn single_convolutions_are_unchanged() {
        let calls: &[(Operator, &[ValueId], ValueId)] =
            &[(CONVOLUTION, &[0], 1), (Operator::MAX_POOL2D, &[1], 2), (CONVOLUTION, &[2], 3)];
        let (operators, _) = after(graph(calls, &[], &[3]));
        assert_eq!(operators, [CONVOLUTION, Operator::MAX_POOL2D, CONVOLUTION]);
    }

    #[test]
    fn floats_are_computed_in_the_required_layout() {
        // The quantized tensor has no other reader: the float tensor, four times as large, is not
        // converted to another layout.
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (CONVOLUTION, &[0], 1),
            (CONVOLUTION, &[1], 2),
            (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, &[2], 3),
        ];
        let (operators, _) = after(graph(calls, &[3], &[3]));
        let back =
            [Operator::TO_CHANNELS_FIRST, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR];
        assert_eq!(
            operators,
            [&[Operator::TO_CHANNELS_LAST, BY_PLACE, BY_PLACE][..], &back].concat()
        );
    }

    #[test]
    fn requantization_is_fused_into_the_convolution() {
        // The lookup table, value 3, is produced after the convolution.
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (CONVOLUTION, &[0], 1),
            (Operator::ABS, &[0], 3),
            (Operator::Q8TA_LOOKUP, &[1, 3], 2),
            (CONVOLUTION, &[2], 4),
            (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, &[4], 5),
            (Operator::HARDTANH, &[5], 6),
            (Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, &[6], 7),
        ];
        let (operators, graph) = after(graph(calls, &[5, 6], &[7]));
        let expected = [
            Operator::TO_CHANNELS_LAST,
            Operator::ABS,
            BY_PLACE,
            BY_PLACE,
            Operator::TO_CHANNELS_FIRST,
        ];
        assert_eq!(operators, expected);
        assert_eq!([graph.nodes[2].parts.len(), graph.nodes[3].parts.len()], [2, 4]);
        assert!(graph.nodes[2].args.contains(&3));
    }

    #[test]
    fn too_large_tensors_keep_the_default_layout() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (CONVOLUTION, &[0], 1),
            (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, &[1], 2),
            (Operator::SIGMOID, &[2], 3),
            (Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, &[3], 4),
            (CONVOLUTION, &[4], 5),
        ];
        // Quantized tensors fit the limit, float tensors do not.
        let mut graph = graph(calls, &[2, 3], &[5]);
        run(&mut graph, 4 * 32 * 16 - 1, |_, node| node.operator == CONVOLUTION);
        let operators: Vec<Operator> = graph.nodes.iter().map(|node| node.operator).collect();
        assert_eq!(operators, calls.iter().map(|call| call.0).collect::<Vec<_>>());
    }

    #[test]
    fn values_with_two_producers_are_unchanged() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (CONVOLUTION, &[0], 1),
            (CONVOLUTION, &[1], 2),
            (Operator::ET_VK_Q8TA_RELU, &[2], 1),
            (CONVOLUTION, &[1], 3),
        ];
        let (operators, _) = after(graph(calls, &[], &[3]));
        let expected = [CONVOLUTION, CONVOLUTION, Operator::ET_VK_Q8TA_RELU, CONVOLUTION];
        assert_eq!(operators, expected);
        // The same if a call's result overwrites an input.
        let calls: &[(Operator, &[ValueId], ValueId)] =
            &[(CONVOLUTION, &[0], 1), (Operator::MAX_POOL2D, &[1], 0), (CONVOLUTION, &[0], 2)];
        let (operators, _) = after(graph(calls, &[], &[2]));
        assert_eq!(operators, [CONVOLUTION, Operator::MAX_POOL2D, CONVOLUTION]);
    }

    #[test]
    fn shared_results_are_not_requantized() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (CONVOLUTION, &[0], 1),
            (Operator::ET_VK_Q8TA_RELU, &[1], 2),
            (CONVOLUTION, &[2], 3),
            (Operator::ET_VK_Q8TA_ADD, &[3, 1], 4),
        ];
        let (operators, _) = after(graph(calls, &[], &[4]));
        assert!(operators.contains(&Operator::ET_VK_Q8TA_RELU), "{operators:?}");
        // Nothing moves across a call that writes to its arguments.
        let mut calls = calls.to_vec();
        calls.truncate(3);
        calls.insert(1, (Operator::UPDATE_CACHE, &[0, 0], 5));
        let (operators, _) = after(graph(&calls, &[], &[3]));
        assert!(operators.contains(&Operator::ET_VK_Q8TA_RELU), "{operators:?}");
    }
}
