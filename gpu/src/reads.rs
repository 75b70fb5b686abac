//! Liveness analysis: which calls read which values, also through aliases.

use crate::ids::{IdMap, IdSet};
use crate::tensors::TensorId;
use std::sync::Arc;
use torchlet_graph::graph::{Graph, ValueId};
use torchlet_graph::operators::Operator;

/// The last read of each value, including reads through aliases, and the values that updates
/// overwrite.
pub struct Reads {
    graph: Arc<GraphReads>,
    /// Values that alias the memory of another value. Encoding a call again can add the same alias
    /// twice.
    aliases: Vec<Alias>,
    /// For each tensor, the index of its latest alias in `aliases`.
    latest: Vec<Option<usize>>,
}

/// A value that uses the memory of another value, starting with the call `from`.
struct Alias {
    from: usize,
    /// The last call that reads the alias.
    last: usize,
    /// The previous alias of the same memory.
    earlier: Option<usize>,
}

/// The part of the read analysis that depends only on the graph, not on shapes.
#[derive(Debug)]
pub(crate) struct GraphReads {
    /// The last call that reads each value.
    last: Vec<usize>,
    /// The old values that updates overwrite, and the new values that replace them.
    overwritten: IdSet<ValueId>,
    news: IdSet<ValueId>,
    /// Calls of `torchlet.rms_norm_prologue`, by the id of their result. The GEMVs that read the
    /// result compute the norm themselves.
    prologues: IdMap<ValueId, usize>,
}

/// A call index after all calls.
const END: usize = usize::MAX;

impl GraphReads {
    pub(crate) fn of(graph: &Graph<'_>) -> Self {
        let prologues = graph.nodes.iter().enumerate();
        let prologues = prologues.filter(|(_, node)| node.operator == Operator::RMS_NORM_PROLOGUE);
        let prologues: IdMap<ValueId, usize> =
            prologues.filter_map(|(at, node)| Some((*node.args.last()?, at))).collect();
        let mut last = vec![0; graph.values.len()];
        let mut read = |id: ValueId, at: usize| {
            let node = prologues.get(&id).and_then(|at| graph.nodes.get(*at));
            let inputs = node.and_then(|node| node.args.get(..2)).unwrap_or_default();
            for id in graph.items(&id).iter().chain(inputs) {
                if let Some(last) = last.get_mut(*id) {
                    *last = at.max(*last);
                }
            }
        };
        for (at, node) in graph.nodes.iter().enumerate() {
            // The parts of a fused call read their arguments when the whole call runs.
            let inputs = node.args.split_last().map_or(&[][..], |(_, inputs)| inputs);
            let parts = node.parts.iter().flat_map(|part| &part.args);
            inputs.iter().chain(parts).for_each(|id| read(*id, at));
        }
        let news = graph.updates.iter().map(|(new, _)| *new);
        graph.outputs.iter().copied().chain(news.clone()).for_each(|id| read(id, END));
        let overwritten = graph.updates.iter().map(|(_, old)| *old).collect();
        GraphReads { last, overwritten, news: news.collect(), prologues }
    }
}

impl Reads {
    pub(crate) fn new(graph: Arc<GraphReads>) -> Self {
        Reads { graph, aliases: Vec::new(), latest: Vec::new() }
    }

    /// Records that a value uses the memory of `root`, starting with this call.
    pub(crate) fn join(&mut self, id: TensorId, root: TensorId, call: usize) {
        let last = self.last(id, call).unwrap_or(END);
        if self.aliases_of(root).any(|it| (it.from, it.last) == (call, last)) {
            return;
        }
        self.latest.resize(self.latest.len().max(root + 1), None);
        let Some(latest) = self.latest.get_mut(root) else { return };
        let earlier = latest.replace(self.aliases.len());
        self.aliases.push(Alias { from: call, last, earlier });
    }

    /// Returns the values that use the memory of a tensor.
    fn aliases_of(&self, root: TensorId) -> impl Iterator<Item = &Alias> {
        let latest = self.latest.get(root).copied().flatten();
        let first = latest.and_then(|at| self.aliases.get(at));
        std::iter::successors(first, |it| self.aliases.get(it.earlier?))
    }

    /// If a value is the result of a norm that its readers compute, returns the index of the norm's
    /// call.
    pub(crate) fn prologue(&self, id: ValueId) -> Option<usize> {
        self.graph.prologues.get(&id).copied()
    }

    /// Whether a value is the new value in an update.
    pub(crate) fn becomes_new(&self, id: ValueId) -> bool {
        self.graph.news.contains(&id)
    }

    /// Whether a value is overwritten by an update.
    pub(crate) fn overwrites(&self, id: ValueId) -> bool {
        self.graph.overwritten.contains(&id)
    }

    /// Returns the last call that reads the memory of a value, including aliases that were recorded
    /// before `call`.
    pub(crate) fn last(&self, id: TensorId, call: usize) -> Option<usize> {
        let before = self.aliases_of(id).filter(|it| it.from < call).map(|it| it.last);
        self.graph.last.get(id).map(|last| before.fold(*last, usize::max))
    }
}

/// Returns the calls that read each value, in order, including the parts of fused calls.
pub(crate) fn readers_of(graph: &Graph<'_>) -> IdMap<ValueId, Vec<usize>> {
    let mut readers: IdMap<ValueId, Vec<usize>> = IdMap::default();
    for (place, node) in graph.nodes.iter().enumerate() {
        let inputs = node.args.split_last().map_or(&[][..], |(_, inputs)| inputs);
        let parts = node.parts.iter().flat_map(|part| &part.args);
        for id in inputs.iter().chain(parts).flat_map(|arg| graph.items(arg)) {
            let places = readers.entry(*id).or_default();
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
    readers
}
