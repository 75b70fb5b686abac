//! Fuses a depthwise convolution and the following pointwise convolution (a depthwise separable
//! convolution).

use super::{floating, producer_indices, remove, uses};
use crate::ops::ConvolutionCall;
use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let (producers, uses) = (producer_indices(graph), uses(graph));
    let mut fused = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let Some((second, _)) = convolution(graph, node) else { continue };
        let Some(between) = second.args.first().copied() else { continue };
        // Only this call may read the depthwise result, and only once.
        let taken = node.args.iter().filter(|id| **id == between).count();
        if taken != 1 || !is_pointwise(graph, second) {
            continue;
        }
        let Some(indices) = depthwise(graph, &producers, &uses, between) else { continue };
        // Inputs must not be overwritten before the last of the fused calls.
        let first = indices.iter().min().copied().unwrap_or(index);
        let mut passed = graph.nodes.get(first..index).unwrap_or_default().iter();
        if !passed.any(|node| node.operator.traits().writes_arguments()) {
            fused.push((index, indices));
        }
    }
    let mut gone = HashSet::new();
    for (index, indices) in fused {
        if let Some(node) = joined(graph, index, &indices)
            && let Some(slot) = graph.nodes.get_mut(index)
        {
            *slot = node;
            gone.extend(indices);
        }
    }
    remove(graph, &gone);
}

/// Returns the convolution of a call, and the epilogue fused into it.
fn convolution<'n>(graph: &Graph<'_>, node: &'n Node) -> Option<(&'n Node, &'n [Node])> {
    let (call, rest) = match node.operator {
        Operator::EPILOGUE => node.parts.split_first()?,
        _ => (node, &[][..]),
    };
    let named = ConvolutionCall::of(call)?;
    let transposed = named.transposed.and_then(|[transposed, _]| graph.values.get(transposed));
    let is_transposed = !matches!(transposed, None | Some(Value::Bool(false) | Value::Int(0)));
    let floats = floating(graph, named.input).is_some() && floating(graph, named.out).is_some();
    (floats && !is_transposed).then_some((call, rest))
}

/// Returns the integers of a constant value.
fn integers(graph: &Graph<'_>, id: ValueId) -> Option<Vec<i64>> {
    match graph.values.get(id)? {
        Value::Int(item) => Some(vec![*item]),
        Value::IntList(items) => Some(items.clone()),
        Value::List(items) => {
            let int = |id: &ValueId| match graph.values.get(*id) {
                Some(Value::Int(item)) => Some(*item),
                _ => None,
            };
            items.iter().map(int).collect()
        }
        _ => None,
    }
}

/// Returns the groups of a convolution and the sizes of its weights.
fn grouped<'g>(graph: &'g Graph<'_>, call: &Node) -> Option<(usize, &'g [usize])> {
    let call = ConvolutionCall::of(call)?;
    let groups = match integers(graph, call.groups)?[..] {
        [groups] => usize::try_from(groups).ok()?,
        _ => return None,
    };
    Some((groups, &graph.tensor(call.weight)?.sizes))
}

/// Whether a convolution is pointwise: a 1×1 kernel over all channels.
fn is_pointwise(graph: &Graph<'_>, call: &Node) -> bool {
    let all = |id: ValueId, wanted: i64| {
        let items = integers(graph, id);
        items.is_some_and(|items| items.iter().all(|item| *item == wanted))
    };
    let Some((1, [_, _, kernel @ ..])) = grouped(graph, call) else { return false };
    let Some(call) = ConvolutionCall::of(call) else { return false };
    let is_plain = all(call.stride, 1) && all(call.padding, 0) && all(call.dilation, 1);
    is_plain && kernel.iter().all(|size| *size == 1)
}

/// If a value has a single reader, returns the indices of the calls that produce it: a depthwise
/// convolution, and views of its result.
fn depthwise(
    graph: &Graph<'_>,
    producers: &HashMap<ValueId, usize>,
    uses: &HashMap<ValueId, usize>,
    value: ValueId,
) -> Option<Vec<usize>> {
    let (mut indices, mut id) = (Vec::new(), value);
    loop {
        let index = *producers.get(&id).filter(|_| uses.get(&id) == Some(&1))?;
        let node = graph.nodes.get(index)?;
        indices.push(index);
        if node.operator == Operator::ALIAS_COPY {
            // The epilogue pass may leave a view.
            let from = *node.args.first()?;
            let (from, to) = (floating(graph, from)?, floating(graph, id)?);
            if from.sizes != to.sizes || from.element != to.element {
                return None;
            }
            id = from.id;
            continue;
        }
        let (call, rest) = convolution(graph, node)?;
        let (groups, weights) = grouped(graph, call)?;
        let alone = weights.first() == Some(&groups) && weights.get(1) == Some(&1) && groups > 1;
        // A residual of the depthwise convolution is not supported.
        let plain = rest.iter().all(|part| part.operator != Operator::ADD_TENSOR);
        return (alone && plain).then_some(indices);
    }
}

/// Returns one call that replaces the call at `index` and those at `indices`, last to first.
fn joined(graph: &Graph<'_>, index: usize, indices: &[usize]) -> Option<Node> {
    let (second, first) = (graph.nodes.get(index)?, graph.nodes.get(*indices.last()?)?);
    let (between, inputs) = first.args.split_last()?;
    let parts = |node: &Node| match node.parts.as_slice() {
        [] => vec![node.clone()],
        parts => parts.to_vec(),
    };
    // Views in between are dropped.
    let mut behind = parts(second);
    *behind.first_mut()?.args.first_mut()? = *between;
    let args = inputs.iter().chain(second.args.get(1..)?).copied().collect();
    let parts = parts(first).into_iter().chain(behind).collect();
    Some(Node { id: second.id, operator: Operator::SEPARABLE, args, parts })
}
