//! A convolution of each channel by itself, and one of all channels at each place behind it, become
//! one call.

use super::{by_maker, floating, remove, uses};
use crate::ops::ConvolutionCall;
use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let (makers, uses) = (by_maker(graph), uses(graph));
    let mut fused = Vec::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        let Some((second, _)) = convolution(graph, node) else { continue };
        let Some(between) = second.args.first().copied() else { continue };
        // Nothing else takes it, nor this call twice.
        let taken = node.args.iter().filter(|id| **id == between).count();
        if taken != 1 || !is_pointwise(graph, second) {
            continue;
        }
        let Some(places) = depthwise(graph, &makers, &uses, between) else { continue };
        // Nothing writes to what they take before the last of them is there.
        let first = places.iter().min().copied().unwrap_or(place);
        let mut passed = graph.nodes.get(first..place).unwrap_or_default().iter();
        if !passed.any(|node| node.operator.traits().writes_arguments()) {
            fused.push((place, places));
        }
    }
    let mut gone = HashSet::new();
    for (place, places) in fused {
        if let Some(node) = joined(graph, place, &places)
            && let Some(slot) = graph.nodes.get_mut(place)
        {
            *slot = node;
            gone.extend(places);
        }
    }
    remove(graph, &gone);
}

/// The convolution that a call is or begins with, and what it does to the result.
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

/// The integers of a value that is known.
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

/// How a convolution is grouped, and the sizes of its weights.
fn grouped<'g>(graph: &'g Graph<'_>, call: &Node) -> Option<(usize, &'g [usize])> {
    let call = ConvolutionCall::of(call)?;
    let groups = match integers(graph, call.groups)?[..] {
        [groups] => usize::try_from(groups).ok()?,
        _ => return None,
    };
    Some((groups, &graph.tensor(call.weight)?.sizes))
}

/// Whether a convolution takes all channels at each place alone.
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

/// Where the calls are that make a value which only one call takes: a convolution of each channel
/// by itself, and views of its result.
fn depthwise(
    graph: &Graph<'_>,
    makers: &HashMap<ValueId, usize>,
    uses: &HashMap<ValueId, usize>,
    value: ValueId,
) -> Option<Vec<usize>> {
    let (mut places, mut id) = (Vec::new(), value);
    loop {
        let place = *makers.get(&id).filter(|_| uses.get(&id) == Some(&1))?;
        let node = graph.nodes.get(place)?;
        places.push(place);
        if node.operator == Operator::ALIAS_COPY {
            // What an epilogue leaves behind.
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
        // Nothing is added to it.
        let plain = rest.iter().all(|part| part.operator != Operator::ADD_TENSOR);
        return (alone && plain).then_some(places);
    }
}

/// The call at `place` and those at `places`, from the last to the first, as one.
fn joined(graph: &Graph<'_>, place: usize, places: &[usize]) -> Option<Node> {
    let (second, first) = (graph.nodes.get(place)?, graph.nodes.get(*places.last()?)?);
    let (between, inputs) = first.args.split_last()?;
    let parts = |node: &Node| match node.parts.as_slice() {
        [] => vec![node.clone()],
        parts => parts.to_vec(),
    };
    // Views in between are gone.
    let mut behind = parts(second);
    *behind.first_mut()?.args.first_mut()? = *between;
    let args = inputs.iter().chain(second.args.get(1..)?).copied().collect();
    let parts = parts(first).into_iter().chain(behind).collect();
    Some(Node { id: second.id, operator: Operator::SEPARABLE, args, parts })
}
