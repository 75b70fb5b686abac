//! Selection of the calls to fold.

use super::bytes_of;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use crate::partition::arguments;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::Registry;

/// Maximum growth of results over their source constants.
const GROWTH: usize = 4;
/// Extra memory for the results of a call.
const SMALL: usize = 1 << 20;
/// Extra memory for all results.
const SMALL_IN_ALL: usize = 16 << 20;
/// Limit of the bytes that folding reads and writes: a multiple of all constants, plus a fixed
/// amount.
const WORK: usize = 64;
const MIN_WORK: usize = 256 << 20;

/// The selected calls, as indices in order, and their results.
pub(super) struct Choice {
    /// Calls to evaluate ahead of time.
    pub(super) calls: Vec<usize>,
    /// Calls to remove. The other evaluated calls are also computed in every run.
    pub(super) gone: Vec<usize>,
    pub(super) results: Vec<ValueId>,
}

/// Selects calls whose inputs are all known and whose operators are not excluded by `left`.
pub(super) fn choose(graph: &Graph<'_>, registry: &Registry<'_>, left: &[Operator]) -> Choice {
    let all = constant_bytes(graph);
    let mut work = all.saturating_mul(WORK).saturating_add(MIN_WORK);
    // For each known value, an upper bound of the bytes of its source constants.
    let mut sources: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut known = vec![false; graph.nodes.len()];
    let kept: BTreeSet<ValueId> =
        graph.outputs.iter().copied().chain(graph.updates.iter().map(|(new, _)| *new)).collect();
    for (slot, node) in known.iter_mut().zip(&graph.nodes) {
        let (inputs, results) = arguments(graph, node);
        let Some(bytes) = known_bytes(graph, &sources, &inputs) else { continue };
        let moved = sizes(graph, inputs.iter().chain(&results));
        let is_left = left.contains(&node.operator) || !is_simple(graph, node, registry);
        if is_left || results.iter().any(|id| kept.contains(id)) || moved > work {
            continue;
        }
        let are_new = results.iter().all(|id| {
            matches!(graph.values.get(*id), Some(Value::Tensor(Tensor { data: None, .. })))
        });
        if !are_new {
            continue;
        }
        work -= moved;
        *slot = true;
        sources.extend(results.iter().map(|id| (*id, bytes.min(all))));
    }
    from_the_end(graph, &mut known, &sources, all)
}

/// Excludes calls whose results are used elsewhere and are too large; their inputs become results
/// instead. If a folded call reads the excluded result, the call is evaluated both ahead of time
/// and in every run.
fn from_the_end(
    graph: &Graph<'_>,
    known: &mut [bool],
    sources: &BTreeMap<ValueId, usize>,
    all: usize,
) -> Choice {
    let mut room = all.saturating_mul(GROWTH).saturating_add(SMALL_IN_ALL);
    // Values that remaining calls read, and values that folded calls read.
    let [mut taken, mut read]: [BTreeSet<ValueId>; 2] = Default::default();
    let mut choice = Choice { calls: Vec::new(), gone: Vec::new(), results: Vec::new() };
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let (inputs, results) = arguments(graph, node);
        let own: Vec<ValueId> = results.iter().copied().filter(|id| taken.contains(id)).collect();
        let slot = known.get(index).copied().unwrap_or(false);
        let size = sizes(graph, own.iter());
        let source = results.iter().filter_map(|id| sources.get(id)).max().copied().unwrap_or(0);
        let fits = size <= source.saturating_mul(GROWTH).saturating_add(SMALL) && size <= room;
        let is_read = results.iter().any(|id| read.contains(id));
        if !slot || !fits {
            taken.extend(&inputs);
            if is_read {
                choice.calls.push(index);
                read.extend(inputs);
            }
            continue;
        }
        // Results without uses are not folded.
        if own.is_empty() && !is_read {
            continue;
        }
        room -= size;
        choice.calls.push(index);
        choice.gone.push(index);
        choice.results.extend(own);
        read.extend(inputs);
    }
    choice.calls.reverse();
    choice.gone.reverse();
    choice
}

/// The size of all constants in bytes.
pub(super) fn constant_bytes(graph: &Graph<'_>) -> usize {
    let constants = graph.values.iter().filter_map(constant);
    constants.fold(0, |bytes, tensor| bytes.saturating_add(bytes_of(tensor)))
}

fn constant<'g, 'p>(value: &'g Value<'p>) -> Option<&'g Tensor<'p>> {
    match value {
        Value::Tensor(tensor @ Tensor { data: Some(_), .. }) if tensor.changes != Some(true) => {
            Some(tensor)
        }
        _ => None,
    }
}

/// An upper bound of the bytes of the constants that inputs derive from; `None` if an input is
/// unknown.
fn known_bytes(
    graph: &Graph<'_>,
    sources: &BTreeMap<ValueId, usize>,
    inputs: &[ValueId],
) -> Option<usize> {
    inputs.iter().try_fold(0usize, |bytes, id| {
        let own = match graph.values.get(*id)? {
            Value::SymInt(_) | Value::List(_) => return None,
            value @ Value::Tensor(_) => {
                let made = sources.get(id).copied();
                made.or_else(|| constant(value).map(bytes_of))?
            }
            _ => 0,
        };
        Some(bytes.saturating_add(own))
    })
}

fn sizes<'i>(graph: &Graph<'_>, ids: impl Iterator<Item = &'i ValueId>) -> usize {
    ids.fold(0, |bytes, id| match graph.values.get(*id) {
        Some(Value::Tensor(tensor)) => bytes.saturating_add(bytes_of(tensor)),
        _ => bytes,
    })
}

/// Whether a call has a kernel, is deterministic, and takes time proportional to its elements.
fn is_simple(graph: &Graph<'_>, node: &Node, registry: &Registry<'_>) -> bool {
    let has_kernel = node.operator.instruction().is_some_and(|name| registry.has_operator(name));
    has_kernel && node.operator.traits().is_foldable() && !graph.is_data_dependent(node)
}
