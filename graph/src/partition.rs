//! Partitions a graph into as few parts as possible, each of which runs on one processor.

use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Part of a graph that runs on one processor. The parts of a graph run in sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Calls that run one by one on the host, in order.
    Host(Vec<usize>),
    /// A region, and the index of its processor in the list of targets.
    Device(usize, Region),
}

/// Calls that run on one processor without returning to the host in between.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Region {
    /// Indices of the calls in the graph, in order.
    pub nodes: Vec<usize>,
    /// Values that the region reads: tensors that are not constant, and symbolic integers.
    pub inputs: Vec<ValueId>,
    /// Values that the region computes and that others read: other parts, the caller, or updates.
    pub outputs: Vec<ValueId>,
    /// State that lives inside the region: pairs of the new value and the value that it overwrites.
    pub cells: Vec<(ValueId, ValueId)>,
}

/// Partitions a graph, given the processor of each call. `None` stands for the host, which runs
/// calls one by one.
///
/// First separates the calls of processor 0 from all other calls, in as few parts as possible. Each
/// of the other parts is then split in the same way for processor 1, and so on. So the processor
/// with the most expensive transfers should come first.
pub fn partition(graph: &Graph<'_>, on: &[Option<usize>]) -> Vec<Part> {
    let place = |index: &usize| on.get(*index).copied().flatten();
    let processors: BTreeSet<usize> = on.iter().flatten().copied().collect();
    // Groups of calls, with their processor if it is known already.
    let mut groups: Vec<(Option<usize>, Vec<usize>)> =
        vec![(None, (0..graph.nodes.len()).collect())];
    for processor in processors {
        let cut = groups.into_iter().flat_map(|(own, nodes)| match own {
            Some(_) => vec![(own, nodes)],
            None => turns(graph, nodes, |index| place(index) == Some(processor))
                .map(|(here, nodes)| (here.then_some(processor), nodes))
                .collect(),
        });
        groups = cut.collect();
    }
    let readers = readers(graph);
    let kept: BTreeSet<ValueId> = kept(graph).collect();
    let parts =
        groups.into_iter().filter(|(_, nodes)| !nodes.is_empty()).map(|(own, nodes)| match own {
            // Arithmetic on sizes alone does not pay for the call of a delegate.
            Some(processor) if !are_symbolic(graph, &nodes) => {
                Part::Device(processor, region(graph, nodes, &readers, &kept))
            }
            _ => Part::Host(nodes),
        });
    parts.collect()
}

/// Whether all calls compute symbolic integers.
fn are_symbolic(graph: &Graph<'_>, nodes: &[usize]) -> bool {
    let mut nodes = nodes.iter().filter_map(|index| graph.nodes.get(*index));
    nodes.all(|node| node.operator.traits().is_symbolic)
}

/// Splits calls into alternating groups: calls for which `is_here` holds, and all other calls. Each
/// call joins the earliest group of its kind that its dependencies allow, which minimizes the
/// number of groups.
fn turns(
    graph: &Graph<'_>,
    nodes: Vec<usize>,
    is_here: impl Fn(&usize) -> bool,
) -> impl Iterator<Item = (bool, Vec<usize>)> {
    let mut turn_of: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut turns: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in nodes {
        let Some(node) = graph.nodes.get(index) else { continue };
        let side = usize::from(is_here(&index));
        let (inputs, results) = arguments(graph, node);
        let last = inputs.iter().filter_map(|id| turn_of.get(id)).max().copied().unwrap_or(0);
        // Even groups are for calls that run elsewhere.
        let turn = if last % 2 == side { last } else { last + 1 };
        for result in results {
            turn_of.insert(result, turn);
        }
        turns.entry(turn).or_default().push(index);
    }
    turns.into_iter().map(|(turn, nodes)| (turn % 2 == 1, nodes))
}

/// Returns the values that are read after the last call.
fn kept(graph: &Graph<'_>) -> impl Iterator<Item = ValueId> {
    graph.outputs.iter().copied().chain(graph.updates.iter().map(|(new, _)| *new))
}

/// Maps each value to the calls that read it, in order.
fn readers(graph: &Graph<'_>) -> BTreeMap<ValueId, Vec<usize>> {
    let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        for id in arguments(graph, node).0 {
            readers.entry(id).or_default().push(index);
        }
    }
    readers
}

/// Creates a region from calls.
fn region(
    graph: &Graph<'_>,
    nodes: Vec<usize>,
    readers: &BTreeMap<ValueId, Vec<usize>>,
    kept: &BTreeSet<ValueId>,
) -> Region {
    let inside: BTreeSet<usize> = nodes.iter().copied().collect();
    let (mut made, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter_map(|index| graph.nodes.get(*index)) {
        let (taken, results) = arguments(graph, node);
        for id in taken {
            let enters = match graph.values.get(id) {
                Some(Value::Tensor(tensor)) => tensor.data.is_none(),
                Some(Value::SymInt(_)) => true,
                _ => false,
            };
            if enters && !made.contains(&id) && seen.insert(id) {
                inputs.push(id);
            }
        }
        for id in results {
            made.insert(id);
            let others = readers.get(&id).into_iter().flatten();
            if kept.contains(&id) || others.into_iter().any(|reader| !inside.contains(reader)) {
                outputs.push(id);
            }
        }
    }
    Region { nodes, inputs, outputs, cells: Vec::new() }
}

/// Returns the inputs and the outputs of a call; lists are flattened.
pub(crate) fn arguments(graph: &Graph<'_>, node: &Node) -> (Vec<ValueId>, Vec<ValueId>) {
    match node.args.split_last() {
        Some((out, inputs)) => {
            let taken = inputs.iter().flat_map(|id| graph.items(id)).copied();
            (taken.collect(), graph.items(out).to_vec())
        }
        None => (Vec::new(), Vec::new()),
    }
}

impl Region {
    /// Returns the region as a separate graph. Constants for which `is_last` returns true move into
    /// that graph, and their data in `graph` becomes empty.
    pub fn extract<'p>(
        &self,
        graph: &mut Graph<'p>,
        is_last: &dyn Fn(ValueId) -> bool,
    ) -> Graph<'p> {
        let mut ids: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let mut part = Graph::default();
        let mut nodes = Vec::new();
        let Graph { values, nodes: all, names, .. } = graph;
        let mut copy = |id| copied(values, id, is_last, &mut part, &mut ids);
        for node in self.nodes.iter().filter_map(|index| all.get(*index)) {
            let args = node.args.iter().map(|id| copy(*id)).collect();
            nodes.push(Node { args, ..node.clone() });
        }
        for (new, old) in &self.cells {
            let copy = |id| copied(values, id, is_last, &mut part, &mut ids);
            let [new, kept] = [*new, *old].map(copy);
            part.updates.push((new, kept));
            part.names.extend(names.get(old).map(|name| (kept, name.clone())));
        }
        let known = |id: &ValueId| ids.get(id).copied();
        part.inputs = self.inputs.iter().filter_map(known).collect();
        part.outputs = self.outputs.iter().filter_map(known).collect();
        part.nodes = nodes;
        part
    }
}

/// Returns the id of a value in the extracted graph; copies the value on first use.
fn copied<'p>(
    values: &mut [Value<'p>],
    id: ValueId,
    is_last: &dyn Fn(ValueId) -> bool,
    part: &mut Graph<'p>,
    ids: &mut BTreeMap<ValueId, ValueId>,
) -> ValueId {
    if let Some(known) = ids.get(&id) {
        return *known;
    }
    let value = match values.get_mut(id) {
        Some(Value::List(items)) => {
            let items = items.clone();
            // Lists do not nest.
            let is_list = |item: &ValueId| matches!(values.get(*item), Some(Value::List(_)));
            let items: Vec<ValueId> = items.into_iter().filter(|item| !is_list(item)).collect();
            let copies = items.into_iter().map(|item| copied(values, item, is_last, part, ids));
            Value::List(copies.collect())
        }
        Some(Value::Tensor(tensor)) if is_last(id) => {
            let data = tensor.data.as_mut().map(core::mem::take);
            let tensor = tensor.clone();
            Value::Tensor(Tensor { data, ..tensor })
        }
        Some(value) => value.clone(),
        None => Value::None,
    };
    part.values.push(value);
    let copy = part.values.len() - 1;
    ids.insert(id, copy);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Operator;
    use torchlet_core::ScalarType;

    fn graph(calls: &[(&[ValueId], ValueId)], outputs: &[ValueId]) -> Graph<'static> {
        let tensor = || {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: vec![4],
                dynamic: false,
                data: None,
                changes: None,
            })
        };
        let node = |(inputs, out): &(&[ValueId], ValueId)| Node {
            id: 0,
            operator: Operator::ADD_TENSOR,
            args: inputs.iter().copied().chain([*out]).collect(),
            parts: Vec::new(),
        };
        Graph {
            values: (0..10).map(|_| tensor()).collect(),
            nodes: calls.iter().map(node).collect(),
            inputs: vec![0],
            outputs: outputs.to_vec(),
            ..Graph::default()
        }
    }

    #[test]
    fn arithmetic_on_sizes_stays_on_the_host() {
        let mut graph = graph(&[(&[0], 1), (&[1], 2)], &[2]);
        graph.nodes[0].operator = Operator::SYM_SIZE_INT;
        let parts = partition(&graph, &[Some(0), None]);
        assert_eq!(parts, [Part::Host(vec![0]), Part::Host(vec![1])]);
        // Together with other calls, it belongs to their region.
        let parts = partition(&graph, &[Some(0), Some(0)]);
        assert!(matches!(&parts[..], [Part::Device(0, region)] if region.nodes == [0, 1]));
    }

    #[test]
    fn branches_share_turns() {
        // Two device branches, each with a host call in the middle.
        let calls: &[(&[ValueId], ValueId)] =
            &[(&[0], 1), (&[1], 2), (&[2], 3), (&[0], 4), (&[4], 5), (&[5], 6), (&[3, 6], 7)];
        let mut graph = graph(calls, &[7]);
        let (here, host) = (Some(0), None);
        let parts = partition(&graph, &[here, host, here, here, host, here, here]);
        let first =
            Region { nodes: vec![0, 3], inputs: vec![0], outputs: vec![1, 4], cells: vec![] };
        let last =
            Region { nodes: vec![2, 5, 6], inputs: vec![2, 5], outputs: vec![7], cells: vec![] };
        assert_eq!(
            parts,
            [Part::Device(0, first), Part::Host(vec![1, 4]), Part::Device(0, last.clone())]
        );
        let part = last.extract(&mut graph, &|_| false);
        assert_eq!((part.nodes.len(), part.inputs.len(), part.outputs.len()), (3, 2, 1));
        assert_eq!(
            part.nodes[2].args,
            [part.nodes[0].args[1], part.nodes[1].args[1], part.outputs[0]]
        );
    }

    #[test]
    fn all_on_the_device_is_one_part() {
        let graph = graph(&[(&[0], 1), (&[1], 2)], &[2]);
        let parts = partition(&graph, &[Some(0), Some(0)]);
        let region = Region { nodes: vec![0, 1], inputs: vec![0], outputs: vec![2], cells: vec![] };
        assert_eq!(parts, [Part::Device(0, region)]);
        assert_eq!(partition(&graph, &[None, None]), [Part::Host(vec![0, 1])]);
        assert_eq!(partition(&Graph::default(), &[]), []);
    }

    #[test]
    fn between_parts_of_the_first_processor_others_have_theirs() {
        // A chain of device, engine, kernel, engine and device; next to it, a call for the engine.
        let calls: &[(&[ValueId], ValueId)] =
            &[(&[0], 1), (&[1], 2), (&[2], 3), (&[3], 4), (&[4, 6], 5), (&[0], 6)];
        let graph = graph(calls, &[5]);
        let on = [Some(0), Some(1), None, Some(1), Some(0), Some(1)];
        let parts = partition(&graph, &on);
        let what = parts.iter().map(|part| match part {
            Part::Host(nodes) => (None, nodes.clone()),
            Part::Device(processor, region) => (Some(*processor), region.nodes.clone()),
        });
        let expected = [
            (Some(1), vec![5]),
            (Some(0), vec![0]),
            (Some(1), vec![1]),
            (None, vec![2]),
            (Some(1), vec![3]),
            (Some(0), vec![4]),
        ];
        assert_eq!(what.collect::<Vec<_>>(), expected);
    }
}
