//! Which calls are computed beforehand.

use super::bytes_of;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use crate::partition::arguments;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::Registry;

/// How much larger results may be than the constants that they are made of.
const GROWTH: usize = 4;
/// What results may take beyond that.
const SMALL: usize = 1 << 20;
/// What all results together may take beyond that.
const SMALL_IN_ALL: usize = 16 << 20;
/// What may be read and written on the way, as a multiple of all constants, and beyond that.
const WORK: usize = 64;
const LEAST_WORK: usize = 256 << 20;

/// Calls, in order, and what of their results others take.
pub(super) struct Choice {
    /// What is computed beforehand.
    pub(super) calls: Vec<usize>,
    /// Those of it that are not computed in every run, too.
    pub(super) gone: Vec<usize>,
    pub(super) results: Vec<ValueId>,
}

/// Chooses calls whose inputs are all known, and which are not of the operators that are left out.
pub(super) fn choose(graph: &Graph<'_>, registry: &Registry<'_>, left: &[Operator]) -> Choice {
    let all = constant_bytes(graph);
    let mut work = all.saturating_mul(WORK).saturating_add(LEAST_WORK);
    // Bytes of the constants that a known value is made of, at most.
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

/// Leaves out calls whose results others take, and are too large; then what they read is a result.
/// Where what is computed beforehand reads them, too, they are computed both then and in every run.
fn from_the_end(
    graph: &Graph<'_>,
    known: &mut [bool],
    sources: &BTreeMap<ValueId, usize>,
    all: usize,
) -> Choice {
    let mut room = all.saturating_mul(GROWTH).saturating_add(SMALL_IN_ALL);
    // What is read by calls that stay, and by those that do not.
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
        // What nobody reads is left alone.
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

/// The bytes of all constants.
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

/// The bytes of the constants that inputs are made of; none if one is not known.
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

/// Whether a call takes about as many steps as it has elements, gives the same each time, and has a
/// kernel.
fn is_simple(graph: &Graph<'_>, node: &Node, registry: &Registry<'_>) -> bool {
    let has_kernel = node.operator.instruction().is_some_and(|name| registry.has_operator(name));
    has_kernel && node.operator.traits().is_foldable() && !graph.is_data_dependent(node)
}
