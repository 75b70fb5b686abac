//! Converts depthwise convolutions to channels-last layout if their results are used in that
//! layout.
//!
//! ConvNeXt and similar networks permute the result of each depthwise convolution to channels last,
//! compute in that layout, and permute back to add the block's input. If convolution and sum also
//! use channels last, no permutations between blocks remain.

use super::layouts::{Layouts, image_copy};
use super::uses;
use crate::tensors::element_of;
use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::{ConvolutionArgs, Operator};
use torchlet_graph::passes::uses::has_unique_producers;

const TO_LAST: [i64; 4] = [0, 2, 3, 1];
const TO_FIRST: [i64; 4] = [0, 3, 1, 2];

/// Rewrites the graph, if that removes permutations.
pub(super) fn run(graph: &mut Graph<'_>) {
    // After a write in place, a tensor and its earlier permuted copy may differ, so that neither
    // can replace the other.
    let writes = graph.nodes.iter().any(|node| node.operator.traits().writes_arguments());
    if writes || !has_unique_producers(graph) {
        return;
    }
    let wanted: HashSet<ValueId> =
        graph.nodes.iter().filter_map(|node| permuted(graph, node, TO_LAST)).collect();
    let starts = |node: &Node| {
        is_depthwise(graph, node) && node.args.last().is_some_and(|out| wanted.contains(out))
    };
    if !graph.nodes.iter().any(starts) {
        return;
    }
    let before = graph.nodes.clone();
    let mut rewrite = Rewrite { wanted, uses: uses(graph), ..Rewrite::default() };
    rewrite.kept = before
        .iter()
        .flat_map(|node| &node.args)
        .filter_map(|id| match graph.values.get(*id) {
            Some(Value::List(items)) => Some(items.clone()),
            _ => None,
        })
        .flatten()
        .chain(graph.outputs.iter().copied())
        .chain(graph.updates.iter().map(|(new, _)| *new))
        .collect();
    for node in std::mem::take(&mut graph.nodes) {
        rewrite.call(graph, node);
    }
    rewrite.layouts.finish(graph);
    let permutations = |nodes: &[Node]| {
        nodes.iter().filter(|node| node.operator == Operator::PERMUTE_COPY).count()
    };
    if permutations(&graph.nodes) >= permutations(&before) {
        graph.nodes = before;
    }
}

/// Returns the input of a call, if the call is a permutation in this order.
fn permuted(graph: &Graph<'_>, node: &Node, order: [i64; 4]) -> Option<ValueId> {
    let [input, dims, _] = node.args[..] else { return None };
    let Some(Value::IntList(dims)) = graph.values.get(dims) else { return None };
    let is_it = node.operator == Operator::PERMUTE_COPY && dims[..] == order;
    let is_fixed = graph.tensor(input).is_some_and(|tensor| !tensor.dynamic);
    (is_it && is_fixed).then_some(input)
}

/// Whether a call is a depthwise convolution with one result per channel that
/// [`Operator::DEPTHWISE_LAST`] supports.
fn is_depthwise(graph: &Graph<'_>, node: &Node) -> bool {
    let Some(call) = ConvolutionArgs::matching(node) else { return false };
    let ConvolutionArgs { input, weight, bias, transposed, groups, out, .. } = call;
    let tensor = |id| graph.tensor(id).filter(|tensor| !tensor.dynamic && is_floating(tensor));
    let (Some(input), Some(weights), Some(out)) = (tensor(input), tensor(weight), tensor(out))
    else {
        return false;
    };
    let ([_, channels, _, _], [rows, 1, _, _], [_, results, _, _]) =
        (&input.sizes[..], &weights.sizes[..], &out.sizes[..])
    else {
        return false;
    };
    let groups = match graph.values.get(groups) {
        Some(Value::Int(groups)) => usize::try_from(*groups).ok(),
        _ => None,
    };
    matches!(graph.values.get(transposed), Some(Value::Bool(false)))
        && weights.data.is_some()
        && [rows, results].iter().all(|count| *count == channels)
        && groups == Some(*channels)
        && channels.is_multiple_of(4)
        && match graph.values.get(bias) {
            Some(Value::Tensor(bias)) => is_floating(bias) && bias.sizes == [*channels],
            bias => matches!(bias, Some(Value::None)),
        }
}

fn is_floating(tensor: &Tensor<'_>) -> bool {
    element_of(tensor.scalar_type).is_ok_and(|element| element.is_floating())
}

#[derive(Default)]
struct Rewrite {
    /// The values that other calls use in channels-last layout.
    wanted: HashSet<ValueId>,
    uses: HashMap<ValueId, usize>,
    /// Values in lists and graph outputs, which must keep their ids.
    kept: HashSet<ValueId>,
    layouts: Layouts,
    /// Values that were replaced by others.
    renamed: HashMap<ValueId, ValueId>,
}

impl Rewrite {
    fn call(&mut self, graph: &mut Graph<'_>, mut node: Node) {
        for id in &mut node.args {
            *id = self.renamed.get(id).copied().unwrap_or(*id);
        }
        let out = node.args.last().copied().unwrap_or_default();
        if let Some(input) = permuted(graph, &node, TO_FIRST) {
            self.layouts.last.insert(out, input);
            return self.layouts.add(node);
        }
        if let Some(input) = permuted(graph, &node, TO_LAST) {
            match self.layouts.last.get(&input) {
                Some(there) if !self.kept.contains(&out) => {
                    self.renamed.insert(out, *there);
                }
                _ => {
                    self.layouts.last.insert(input, out);
                    self.layouts.nodes.push(node);
                }
            }
            return;
        }
        let swapped = match is_depthwise(graph, &node) && self.wanted.contains(&out) {
            true => self.depthwise(graph, &node),
            false => self.elementwise(graph, &node),
        };
        let Some(swapped) = swapped else { return self.layouts.nodes.push(node) };
        let result = swapped.args.last().copied().unwrap_or(out);
        self.layouts.nodes.push(swapped);
        self.layouts.last.insert(out, result);
        let back = permutation(graph, node.id, result, TO_FIRST, out);
        self.layouts.add(back);
    }

    /// Returns a channels-last convolution, if its input exists in that layout or its result is
    /// only permuted.
    fn depthwise(&mut self, graph: &mut Graph<'_>, node: &Node) -> Option<Node> {
        let [input, weight, bias, stride, padding, dilation, .., out] = node.args[..] else {
            return None;
        };
        let source = match self.layouts.last.get(&input) {
            Some(there) => *there,
            None if self.uses.get(&out) == Some(&1) => {
                let source = tensor_last(graph, input)?;
                let there = permutation(graph, node.id, input, TO_LAST, source);
                self.layouts.add(there);
                self.layouts.last.insert(input, source);
                source
            }
            None => return None,
        };
        let result = tensor_last(graph, out)?;
        let args = vec![source, weight, bias, stride, padding, dilation, result];
        Some(Node { id: node.id, ..Node::new(Operator::DEPTHWISE_LAST, args) })
    }

    /// Returns an element-wise call on channels-last tensors, if its operands exist in that layout
    /// or have one element per channel.
    fn elementwise(&self, graph: &mut Graph<'_>, node: &Node) -> Option<Node> {
        let (out, inputs) = node.args.split_last()?;
        let sizes = graph.tensor(*out).filter(|tensor| !tensor.dynamic)?.sizes.clone();
        let [_, channels, _, _] = sizes[..] else { return None };
        let mut args = inputs.to_vec();
        let operands = node.operator.traits().elementwise;
        if operands.is_empty() {
            return None;
        }
        for place in operands.iter() {
            let slot = args.get_mut(place)?;
            let Some(tensor) = graph.tensor(*slot) else { continue };
            if tensor.sizes == sizes {
                *slot = *self.layouts.last.get(slot)?;
            } else {
                let is_of_channels =
                    matches!(tensor.sizes[..], [1, own, 1, 1] | [own, 1, 1] if own == channels);
                let bytes = channels.checked_mul(element_of(tensor.scalar_type).ok()?.size());
                let whole = tensor.data.as_ref().map(|data| data.len()) == bytes;
                let changes = tensor.changes != Some(false)
                    || graph.updates.iter().any(|(_, old)| old == slot);
                (is_of_channels && whole && !changes).then_some(())?;
                let tensor = Tensor { sizes: vec![channels], ..tensor.clone() };
                graph.values.push(Value::Tensor(tensor));
                *slot = graph.values.len() - 1;
            }
        }
        if !args.iter().zip(inputs).any(|(new, old)| self.layouts.last.get(old) == Some(new)) {
            return None;
        }
        args.push(tensor_last(graph, *out)?);
        Some(Node { id: node.id, ..Node::new(node.operator, args) })
    }
}

fn permutation(
    graph: &mut Graph<'_>,
    id: u32,
    from: ValueId,
    order: [i64; 4],
    to: ValueId,
) -> Node {
    graph.values.push(Value::IntList(order.to_vec()));
    let args = vec![from, graph.values.len() - 1, to];
    Node { id, ..Node::new(Operator::PERMUTE_COPY, args) }
}

/// Adds a channels-last tensor with the shape of another.
fn tensor_last(graph: &mut Graph<'_>, id: ValueId) -> Option<ValueId> {
    image_copy(graph, id, |_, [batch, channels, height, width]| {
        Some(vec![batch, height, width, channels])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;

    /// The graph's last values: the convolution's weight and arguments, and both permutation
    /// orders.
    const FIRST_OF_OTHERS: ValueId = 20;
    const WEIGHT: ValueId = FIRST_OF_OTHERS;
    const TO: ValueId = FIRST_OF_OTHERS + 6;
    const BACK: ValueId = FIRST_OF_OTHERS + 7;

    /// Builds a graph of calls over tensors 0 to 19 with four channels. The tensors in `last` are
    /// in channels-last layout. Value 0 is the input.
    fn graph(nodes: Vec<Node>, last: &[ValueId], outputs: &[ValueId]) -> Graph<'static> {
        let tensor = |sizes: Vec<usize>, data: Option<Vec<u8>>| {
            let (scalar_type, data) = (ScalarType::Float, data.map(Into::into));
            let (host_type, dynamic, changes) = (scalar_type, false, Some(false));
            Value::Tensor(Tensor { scalar_type, host_type, sizes, dynamic, data, changes })
        };
        let image = |id| match last.contains(&id) {
            true => tensor(vec![1, 5, 6, 4], None),
            false => tensor(vec![1, 4, 5, 6], None),
        };
        let mut values: Vec<Value<'static>> = (0..FIRST_OF_OTHERS).map(image).collect();
        values.extend([
            tensor(vec![4, 1, 3, 3], Some(vec![0; 4 * 9 * 4])),
            Value::None,
            Value::IntList(vec![1, 1]),
            Value::Bool(false),
            Value::IntList(vec![0, 0]),
            Value::Int(4),
            Value::IntList(TO_LAST.to_vec()),
            Value::IntList(TO_FIRST.to_vec()),
            Value::Int(1),
        ]);
        Graph { values, nodes, inputs: vec![0], outputs: outputs.to_vec(), ..Graph::default() }
    }

    fn convolution(input: ValueId, out: ValueId) -> Node {
        let [none, ones, no, zeros, groups] = [1, 2, 3, 4, 5].map(|at| WEIGHT + at);
        let args = vec![input, WEIGHT, none, ones, ones, ones, no, zeros, groups, out];
        Node::new(Operator::CONVOLUTION, args)
    }

    fn permute(input: ValueId, order: ValueId, out: ValueId) -> Node {
        Node::new(Operator::PERMUTE_COPY, vec![input, order, out])
    }

    fn add(a: ValueId, b: ValueId, out: ValueId) -> Node {
        Node::new(Operator::ADD_TENSOR, vec![a, b, BACK + 1, out])
    }

    fn operators(mut graph: Graph<'_>) -> Vec<Operator> {
        run(&mut graph);
        graph.nodes.iter().map(|node| node.operator).collect()
    }

    /// Two blocks that each compute `x + back(neg(to(convolve(x))))`.
    fn blocks() -> Vec<Node> {
        let block = |x: ValueId, first: ValueId| {
            let [made, there, negative, back, sum] = [0, 1, 2, 3, 4].map(|at| first + at);
            let neg = Node::new(Operator::NEG, vec![there, negative]);
            let way = [convolution(x, made), permute(made, TO, there), neg];
            way.into_iter().chain([permute(negative, BACK, back), add(back, x, sum)])
        };
        block(0, 1).chain(block(5, 6)).collect()
    }

    const LAST: &[ValueId] = &[2, 3, 7, 8];

    #[test]
    fn blocks_become_channels_last() {
        use Operator as O;
        let (last, permute) = (O::DEPTHWISE_LAST, O::PERMUTE_COPY);
        let block = [last, O::NEG, O::ADD_TENSOR];
        let expected = [&[permute][..], &block, &block, &[permute]].concat();
        assert_eq!(operators(graph(blocks(), LAST, &[10])), expected);
    }

    #[test]
    fn outputs_keep_their_ids() {
        // The permutation in the first block is also an output.
        let mut graph = graph(blocks(), LAST, &[10, 2]);
        run(&mut graph);
        let made: Vec<ValueId> =
            graph.nodes.iter().filter_map(|it| it.args.last().copied()).collect();
        assert!([10, 2].iter().all(|out| made.contains(out)), "{made:?}");
    }

    #[test]
    fn unchanged_without_removable_permutations() {
        let same = |nodes: Vec<Node>, outputs: &[ValueId]| {
            let before: Vec<Operator> = nodes.iter().map(|node| node.operator).collect();
            assert_eq!(operators(graph(nodes, LAST, outputs)), before);
        };
        // The result is not permuted back, or the convolution has other readers.
        same(vec![convolution(0, 1), permute(1, TO, 2)], &[2]);
        same(vec![convolution(0, 1), permute(1, TO, 2), add(1, 1, 4)], &[2, 4]);
        // A write in place makes the permutation outdated.
        let mut nodes = blocks();
        nodes.push(Node::new(Operator::COPY_ATEN, vec![5, 4, BACK + 1, 11]));
        same(nodes, &[10]);
    }
}
