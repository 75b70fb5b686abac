//! Fuses epilogues into GEMMs and convolutions: the addition of a tensor, and an activation.
//!
//! The fused result is replaced by a view of the GEMM's result, so that views between the two calls
//! can stay.

use super::{adds_once, floating, uses};
use crate::ops;
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::{AddArgs, Operator};

/// The indices of a call that can be extended by an epilogue, and of the views of its result.
type ProducerCalls = Vec<usize>;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let nodes = std::mem::take(&mut graph.nodes);
    let mut fused: Vec<Option<Node>> = Vec::with_capacity(nodes.len());
    let mut producers: HashMap<ValueId, ProducerCalls> = HashMap::new();
    for node in nodes {
        if node.operator.traits().writes_arguments() {
            // Reads must not move behind this write.
            producers.clear();
        }
        let joined = taken(graph, &node).into_iter().find_map(|id| {
            let producer = producers.get(&id).filter(|_| uses.get(&id) == Some(&1))?;
            let matmul = fused.get(*producer.first()?)?.as_ref()?;
            Some((id, producer.clone(), join(graph, matmul, &node, id)?))
        });
        if let Some((id, producer, matmul)) = joined {
            // All of them move to the index of the fused call, since it may read values produced in
            // between.
            let mut moved: Vec<Node> =
                producer.iter().filter_map(|index| fused.get_mut(*index)?.take()).collect();
            if let Some(first) = moved.first_mut() {
                *first = matmul;
            }
            let out = node.args.last().copied().unwrap_or(id);
            moved.push(Node {
                id: node.id,
                operator: Operator::ALIAS_COPY,
                args: vec![id, out],
                parts: Vec::new(),
            });
            producers.insert(out, (fused.len()..fused.len() + moved.len()).collect());
            fused.extend(moved.into_iter().map(Some));
            continue;
        }
        if let Some(producer) = producer_of(graph, &producers, &uses, &node, fused.len())
            && let Some(out) = node.args.last()
        {
            producers.insert(*out, producer);
        }
        fused.push(Some(node));
    }
    graph.nodes = fused.into_iter().flatten().collect();
}

/// Returns the GEMM whose result this call produces, directly or as a view of it.
fn producer_of(
    graph: &Graph<'_>,
    producers: &HashMap<ValueId, ProducerCalls>,
    uses: &HashMap<ValueId, usize>,
    node: &Node,
    index: usize,
) -> Option<ProducerCalls> {
    if is_product(graph, node) {
        return Some(vec![index]);
    }
    let input = node.args.first().filter(|_| node.operator.traits().is_view)?;
    let out = floating(graph, *node.args.last()?)?;
    let producer = producers.get(input).filter(|_| uses.get(input) == Some(&1))?;
    (out.element == floating(graph, *input)?.element)
        .then(|| producer.iter().copied().chain([index]).collect())
}

/// Whether a call supports an epilogue.
fn is_product(graph: &Graph<'_>, node: &Node) -> bool {
    let unbounded = |id: &ValueId| match graph.values.get(*id) {
        Some(Value::None) => true,
        Some(Value::Double(bound)) => bound.is_infinite(),
        _ => false,
    };
    let Some(operator) = ops::find(node.operator) else { return false };
    let bounds = ops::ConvolutionCall::of(node).and_then(|call| call.bounds);
    let floats = node.args.last().is_some_and(|out| floating(graph, *out).is_some());
    operator.takes_epilogue && floats && bounds.is_none_or(|bounds| bounds.iter().all(unbounded))
}

/// Returns the tensor operands of an element-wise call.
fn taken(graph: &Graph<'_>, node: &Node) -> Vec<ValueId> {
    if !ops::find(node.operator).is_some_and(|operator| operator.chains) {
        return Vec::new();
    }
    let inputs = node.args.split_last().map(|(_, inputs)| inputs).unwrap_or_default();
    let is_tensor = |id: &&ValueId| matches!(graph.values.get(**id), Some(Value::Tensor(_)));
    inputs.iter().filter(is_tensor).copied().collect()
}

/// Returns `matmul` with `node`, which reads `result`, appended to its epilogue.
fn join(graph: &Graph<'_>, matmul: &Node, node: &Node, result: ValueId) -> Option<Node> {
    let out = *node.args.last()?;
    let (between, after) = (floating(graph, result)?, floating(graph, out)?);
    if between.sizes != after.sizes || between.element != after.element {
        return None;
    }
    let parts = match matmul.parts.as_slice() {
        [] => vec![matmul.clone()],
        parts => parts.to_vec(),
    };
    let is_activation =
        |part: &Node| ops::find(part.operator).is_some_and(|operator| operator.is_activation);
    let is_sum = |part: &Node| part.operator == Operator::ADD_TENSOR;
    let mut epilogue = parts.iter().skip(1);
    let (own, inputs) = matmul.args.split_last()?;
    let mut args = inputs.to_vec();
    match taken(graph, node)[..] {
        // An activation comes last.
        [_] if is_activation(node) && epilogue.all(is_sum) => {}
        [a, b] if is_sum(node) && a != b && epilogue.next().is_none() => {
            let factor = AddArgs::of(node).ok()?.alpha;
            let plain = factor.is_none_or(|factor| adds_once(graph, factor));
            let other = if a == result { b } else { a };
            // Leading dimensions of size one are irrelevant.
            let own = |sizes: &[usize]| -> Vec<usize> {
                sizes.iter().copied().skip_while(|size| *size == 1).collect()
            };
            let same = floating(graph, other).is_some_and(|other| {
                own(&other.sizes) == own(&after.sizes) && other.element.is_floating()
            });
            if !plain || !same {
                return None;
            }
            args.push(other);
        }
        _ => return None,
    }
    args.push(*own);
    let parts = parts.into_iter().chain([node.clone()]).collect();
    Some(Node { id: node.id, operator: Operator::EPILOGUE, args, parts })
}
