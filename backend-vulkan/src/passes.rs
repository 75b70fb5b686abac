//! What is done to a graph before it is encoded: calls that can be one become one.

mod chain;

use crate::ir::{Graph, Value, ValueId};
use std::collections::HashMap;

/// Rewrites a graph into one that computes the same with fewer calls.
pub(crate) fn run(graph: &mut Graph<'_>) {
    chain::fuse(graph);
}

/// How many calls take each value, also within lists; an output of the graph counts as one more.
fn uses(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    for node in &graph.nodes {
        let mut taken: Vec<ValueId> = Vec::new();
        let Some((_, args)) = node.args.split_last() else { continue };
        for id in args {
            taken.push(*id);
            if let Some(Value::List(items)) = graph.values.get(*id) {
                taken.extend(items);
            }
        }
        taken.sort_unstable();
        taken.dedup();
        for id in taken {
            *uses.entry(id).or_insert(0) += 1;
        }
    }
    for id in &graph.outputs {
        *uses.entry(*id).or_insert(0) += 1;
    }
    uses
}
