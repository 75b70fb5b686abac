//! Calls that write over a value that is there already make a value of their own instead.
//!
//! Some exporters let the new value of a buffer overwrite the old one (`alias_buffer_mutations`). As values of their own, calls
//! can be moved and fused without a thought of who reads what when; the buffer takes its last value when all is done.

use crate::ops;
use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::{Graph, Tensor, Value, ValueId};

/// Gives every value one call that makes it. What was overwritten is noted in the graph's updates.
pub(super) fn once(graph: &mut Graph<'_>) {
    let is_constant =
        |value: &Value<'_>| matches!(value, Value::Tensor(Tensor { data: Some(_), .. }));
    let values = graph.values.iter().enumerate();
    let mut known: HashSet<ValueId> =
        values.filter(|(_, value)| is_constant(value)).map(|(id, _)| id).collect();
    known.extend(&graph.inputs);
    // The value that now stands for another one.
    let mut current: HashMap<ValueId, ValueId> = HashMap::new();
    let mut nodes = std::mem::take(&mut graph.nodes);
    for node in &mut nodes {
        let in_place = ops::find(node.operator).is_some_and(|operator| operator.in_place);
        let Some((out, inputs)) = node.args.split_last_mut() else { continue };
        for id in inputs.iter_mut() {
            *id = renamed(graph, &current, *id);
            known.extend(members(graph, *id));
        }
        for id in members(graph, *out) {
            let overwrites = known.contains(&id) && !in_place;
            known.insert(id);
            if overwrites && let Some(Value::Tensor(tensor)) = graph.values.get(id) {
                let fresh = Value::Tensor(Tensor { data: None, ..tensor.clone() });
                current.insert(id, graph.values.len());
                graph.values.push(fresh);
            }
        }
        *out = renamed(graph, &current, *out);
    }
    graph.nodes = nodes;
    let outputs = std::mem::take(&mut graph.outputs);
    graph.outputs = outputs.into_iter().map(|id| renamed(graph, &current, id)).collect();
    let mut updates: Vec<(ValueId, ValueId)> =
        current.into_iter().map(|(old, new)| (new, old)).collect();
    updates.sort_unstable();
    graph.updates = updates;
}

/// A value and, if it is a list, what is in it.
fn members(graph: &Graph<'_>, id: ValueId) -> Vec<ValueId> {
    match graph.values.get(id) {
        Some(Value::List(items)) => items.clone(),
        _ => vec![id],
    }
}

/// The value that stands for another one; a list of which some have another is a list of its own.
fn renamed(graph: &mut Graph<'_>, current: &HashMap<ValueId, ValueId>, id: ValueId) -> ValueId {
    let of = |id: &ValueId| current.get(id).copied().unwrap_or(*id);
    match graph.values.get(id) {
        Some(Value::List(items)) if items.iter().any(|id| current.contains_key(id)) => {
            let items = items.iter().map(of).collect();
            graph.values.push(Value::List(items));
            graph.values.len() - 1
        }
        _ => of(&id),
    }
}
