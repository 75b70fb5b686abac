//! Upper bounds of symbolic integers.
//!
//! A graph stores the largest shape of each tensor, but no bounds for integers that are inputs or
//! are read from tensor elements. Bounds of integers that are used in shapes follow from the
//! tensors with those shapes.

use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;

/// Returns upper bounds of the symbolic inputs, as far as tensor shapes imply them.
pub(crate) fn of_integers(graph: &Graph<'_>) -> HashMap<ValueId, i64> {
    let mut bounds = HashMap::new();
    let elements =
        graph.nodes.iter().filter(|node| node.operator == Operator::ET_VK_SELECT_AS_SYMINT);
    let elements = elements.filter_map(|node| node.args.last().copied());
    let unknown: HashSet<ValueId> = graph
        .inputs
        .iter()
        .copied()
        .chain(elements)
        .filter(|id| matches!(graph.values.get(*id), Some(Value::SymInt(0))))
        .collect();
    if unknown.is_empty() {
        return bounds;
    }
    // In reverse order: the bound of an operand follows from the bound of the result.
    for node in graph.nodes.iter().rev() {
        from_shape(graph, node, &mut bounds);
        from_result(graph, node, &mut bounds);
    }
    bounds.retain(|id, _| unknown.contains(id));
    bounds
}

fn sizes<'g>(graph: &'g Graph<'_>, id: ValueId) -> Option<&'g [usize]> {
    match graph.values.get(id)? {
        Value::Tensor(tensor) => Some(&tensor.sizes),
        _ => None,
    }
}

fn int(graph: &Graph<'_>, id: ValueId) -> Option<i64> {
    match graph.values.get(id)? {
        Value::Int(value) => Some(*value),
        Value::None => Some(0),
        _ => None,
    }
}

/// Derives bounds of the integers in a call's shape argument from the shape of its output.
fn from_shape(graph: &Graph<'_>, node: &Node, bounds: &mut HashMap<ValueId, i64>) {
    let args = &node.args;
    let Some(out) = args.last().and_then(|out| sizes(graph, *out)) else { return };
    let mut note = |id: ValueId, bound: i64| {
        if matches!(graph.values.get(id), Some(Value::SymInt(_))) {
            bounds.entry(id).or_insert(bound);
        }
    };
    let shape = match node.operator {
        Operator::VIEW_COPY | Operator::EXPAND_COPY => match args[..] {
            [_, ref shape, ..] => Some(shape),
            _ => None,
        },
        Operator::FULL | Operator::ZEROS | Operator::ONES => args.first(),
        Operator::SLICE_COPY_TENSOR | Operator::SLICE_TENSOR => {
            // The end of a slice is its start plus the length times the step.
            let [_, dim, start, end, step, ..] = args[..] else { return };
            let (Some(dim), Some(start), Some(step)) =
                (int(graph, dim), int(graph, start), int(graph, step))
            else {
                return;
            };
            let dim = torchlet_core::rules::normalize_dim(dim, out.len());
            let Some(size) = dim.and_then(|dim| out.get(dim)) else { return };
            let length = (*size as i64).checked_mul(step.max(1));
            if let Some(bound) = length.and_then(|length| length.checked_add(start)) {
                note(end, bound);
            }
            return;
        }
        Operator::ARANGE_START_STEP => {
            let [start, end, step, ..] = args[..] else { return };
            let (Some(start), Some(step), [size]) = (int(graph, start), int(graph, step), out)
            else {
                return;
            };
            let length = (*size as i64).checked_mul(if step == 0 { 1 } else { step });
            if let Some(bound) = length.and_then(|length| length.checked_add(start)) {
                note(end, bound);
            }
            return;
        }
        _ => return,
    };
    if let Some(Value::List(items)) = shape.and_then(|shape| graph.values.get(*shape)) {
        for (id, size) in items.iter().zip(out) {
            note(*id, *size as i64);
        }
    }
}

/// Derives a bound of one operand of integer arithmetic from the result and the other operand.
fn from_result(graph: &Graph<'_>, node: &Node, bounds: &mut HashMap<ValueId, i64>) {
    let [a, b, out] = node.args[..] else { return };
    let Some(result) = bounds.get(&out).copied() else { return };
    let known = |id: ValueId| int(graph, id).or_else(|| bounds.get(&id).copied());
    let operator = node.operator;
    let (id, bound) = match (known(a), known(b), operator) {
        (None, Some(b), Operator::SYM_ADD) => (a, result.checked_sub(b)),
        (Some(a), None, Operator::SYM_ADD) => (b, result.checked_sub(a)),
        (None, Some(b), Operator::SYM_SUB) => (a, result.checked_add(b)),
        (Some(a), None, Operator::SYM_SUB) => (b, a.checked_sub(result)),
        (None, Some(b), Operator::SYM_MUL) => (a, result.checked_div(b)),
        (Some(a), None, Operator::SYM_MUL) => (b, result.checked_div(a)),
        (None, Some(b), Operator::SYM_FLOORDIV) => (a, result.checked_mul(b)),
        _ => return,
    };
    if let Some(bound) = bound {
        bounds.insert(id, bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::Tensor;

    fn tensor(sizes: &[usize]) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: sizes.to_vec(),
            dynamic: false,
            data: None,
            changes: None,
        })
    }

    fn node(operator: Operator, args: &[ValueId]) -> Node {
        Node::new(operator, args.to_vec())
    }

    #[test]
    fn integer_bounds_follow_from_shapes_and_arithmetic() {
        let graph = Graph {
            values: vec![
                tensor(&[24, 4]),
                Value::SymInt(0),
                Value::Int(2),
                Value::SymInt(0),
                Value::List(vec![3, 2, 2]),
                tensor(&[24, 2, 2]),
                Value::SymInt(7),
            ],
            nodes: vec![node(Operator::SYM_MUL, &[1, 2, 3]), node(Operator::VIEW_COPY, &[0, 4, 5])],
            inputs: vec![0, 1, 6],
            outputs: vec![5],
            ..Graph::default()
        };
        assert_eq!(of_integers(&graph), HashMap::from([(1, 12)]));
    }

    #[test]
    fn tensor_elements_have_bounds() {
        let graph = Graph {
            values: vec![
                tensor(&[1]),
                Value::Int(0),
                Value::SymInt(0),
                tensor(&[16, 8]),
                Value::Int(1),
                tensor(&[12, 8]),
            ],
            nodes: vec![
                node(Operator::ET_VK_SELECT_AS_SYMINT, &[0, 1, 1, 2]),
                node(Operator::SLICE_COPY_TENSOR, &[3, 1, 1, 2, 4, 5]),
            ],
            inputs: vec![0, 3],
            outputs: vec![5],
            ..Graph::default()
        };
        assert_eq!(of_integers(&graph), HashMap::from([(2, 12)]));
    }

    #[test]
    fn slice_ends_have_bounds() {
        let graph = Graph {
            values: vec![
                tensor(&[9, 16]),
                Value::Int(-1),
                Value::Int(3),
                Value::SymInt(0),
                Value::Int(2),
                tensor(&[9, 4]),
            ],
            nodes: vec![node(Operator::SLICE_COPY_TENSOR, &[0, 1, 2, 3, 4, 5])],
            inputs: vec![0, 3],
            outputs: vec![5],
            ..Graph::default()
        };
        assert_eq!(of_integers(&graph), HashMap::from([(3, 11)]));
    }
}
