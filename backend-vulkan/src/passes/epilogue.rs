//! Products and convolutions take what is done to their results: an addition of a tensor, a
//! function.
//!
//! What is taken becomes a view of the product's result, so that views between them can stay.

use super::{adds_once, floating, uses};
use crate::ops;
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::{AddArgs, Operator};

/// A product that can take more, and the views of its result that lead to a value: where they are.
type Maker = Vec<usize>;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let uses = uses(graph);
    let nodes = std::mem::take(&mut graph.nodes);
    let mut fused: Vec<Option<Node>> = Vec::with_capacity(nodes.len());
    let mut makers: HashMap<ValueId, Maker> = HashMap::new();
    for node in nodes {
        if node.operator.traits().writes_arguments() {
            // What was read before must not be read after.
            makers.clear();
        }
        let joined = taken(graph, &node).into_iter().find_map(|id| {
            let maker = makers.get(&id).filter(|_| uses.get(&id) == Some(&1))?;
            let product = fused.get(*maker.first()?)?.as_ref()?;
            Some((id, maker.clone(), join(graph, product, &node, id)?))
        });
        if let Some((id, maker, product)) = joined {
            // All of them move to where this call was, since it may take what was made in between.
            let mut moved: Vec<Node> =
                maker.iter().filter_map(|place| fused.get_mut(*place)?.take()).collect();
            if let Some(first) = moved.first_mut() {
                *first = product;
            }
            let out = node.args.last().copied().unwrap_or(id);
            moved.push(Node {
                id: node.id,
                operator: Operator::ALIAS_COPY,
                args: vec![id, out],
                parts: Vec::new(),
            });
            makers.insert(out, (fused.len()..fused.len() + moved.len()).collect());
            fused.extend(moved.into_iter().map(Some));
            continue;
        }
        if let Some(maker) = maker_of(graph, &makers, &uses, &node, fused.len())
            && let Some(out) = node.args.last()
        {
            makers.insert(*out, maker);
        }
        fused.push(Some(node));
    }
    graph.nodes = fused.into_iter().flatten().collect();
}

/// The product whose result, or a view of it, this call at `place` makes.
fn maker_of(
    graph: &Graph<'_>,
    makers: &HashMap<ValueId, Maker>,
    uses: &HashMap<ValueId, usize>,
    node: &Node,
    place: usize,
) -> Option<Maker> {
    if is_product(graph, node) {
        return Some(vec![place]);
    }
    let input = node.args.first().filter(|_| node.operator.traits().is_view)?;
    let out = floating(graph, *node.args.last()?)?;
    let maker = makers.get(input).filter(|_| uses.get(input) == Some(&1))?;
    (out.element == floating(graph, *input)?.element)
        .then(|| maker.iter().copied().chain([place]).collect())
}

/// Whether a call can take an epilogue.
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

/// The tensors that an element-wise call takes.
fn taken(graph: &Graph<'_>, node: &Node) -> Vec<ValueId> {
    if !ops::find(node.operator).is_some_and(|operator| operator.chains) {
        return Vec::new();
    }
    let inputs = node.args.split_last().map(|(_, inputs)| inputs).unwrap_or_default();
    let is_tensor = |id: &&ValueId| matches!(graph.values.get(**id), Some(Value::Tensor(_)));
    inputs.iter().filter(is_tensor).copied().collect()
}

/// `product` with `node`, which takes its result as `result`, as a further part of its epilogue.
fn join(graph: &Graph<'_>, product: &Node, node: &Node, result: ValueId) -> Option<Node> {
    let out = *node.args.last()?;
    let (between, after) = (floating(graph, result)?, floating(graph, out)?);
    if between.sizes != after.sizes || between.element != after.element {
        return None;
    }
    let parts = match product.parts.as_slice() {
        [] => vec![product.clone()],
        parts => parts.to_vec(),
    };
    let is_activation =
        |part: &Node| ops::find(part.operator).is_some_and(|operator| operator.is_activation);
    let is_sum = |part: &Node| part.operator == Operator::ADD_TENSOR;
    let mut epilogue = parts.iter().skip(1);
    let (own, inputs) = product.args.split_last()?;
    let mut args = inputs.to_vec();
    match taken(graph, node)[..] {
        // A function, behind everything else.
        [_] if is_activation(node) && epilogue.all(is_sum) => {}
        [a, b] if is_sum(node) && a != b && epilogue.next().is_none() => {
            let factor = AddArgs::of(node).ok()?.alpha;
            let plain = factor.is_none_or(|factor| adds_once(graph, factor));
            let other = if a == result { b } else { a };
            // Dimensions of one in front change nothing.
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
