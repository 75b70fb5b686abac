//! Liveness analysis for writes in place: which memory may be overwritten, because it is state that
//! the graph updates or because no later call reads it.

use super::Encoder;
use crate::error::Error;
use crate::ids::{IdMap, IdSet};
use crate::ops::copy_all;
use crate::state::{FusedOutput, Storage};
use crate::tensors::{Operand, TensorId};
use std::sync::Arc;
use torchlet_graph::graph::{Graph, ValueId};
use torchlet_graph::operators::Operator;

/// The last reads of a graph's values, and the values that updates overwrite.
pub struct Reads {
    graph: Arc<GraphReads>,
    /// Values that alias the memory of another value. Calls that are encoded again may be repeated.
    aliases: Vec<Alias>,
    /// For each tensor, the index of its latest alias in `aliases`.
    latest: Vec<Option<usize>>,
}

/// A value that uses the memory of another from a call on.
struct Alias {
    from: usize,
    /// The last call that reads it.
    last: usize,
    /// The previous alias of the same memory.
    earlier: Option<usize>,
}

/// The part of the analysis that depends on the graph alone, not on shapes.
#[derive(Debug)]
pub(crate) struct GraphReads {
    /// The last call that reads each value.
    last: Vec<usize>,
    /// The values that updates overwrite, and their new values.
    overwritten: IdSet<ValueId>,
    news: IdSet<ValueId>,
    /// The calls whose readers compute their results.
    prologues: IdMap<ValueId, usize>,
}

/// The fusions that are decided when a call is encoded, because a graph does not determine them;
/// all others are graph passes ([`crate::passes`]). A call is fused into its readers: these read its
/// inputs and compute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LateFusion {
    /// A layer norm into the GEMMs that read it. They must be tiled, and tilings depend on the
    /// device: its processors, matrix units and shared memory.
    LayerNorm,
    /// A GEMV into the rotation or cache write of its rows. It depends on the device's shaders, and
    /// on the memory layout of the weights, which follows from the aliases of encoded tensors.
    Gemv,
    /// A rotation into the write to a KV cache. The write also computes the GEMV that was fused into
    /// the rotation. Calls that read integers which change from run to run are not fused; those
    /// integers are known once memory is planned.
    Rotation,
}

/// After all calls.
const END: usize = usize::MAX;

impl GraphReads {
    pub(super) fn of(graph: &Graph<'_>) -> Self {
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
    pub(super) fn new(graph: Arc<GraphReads>) -> Self {
        Reads { graph, aliases: Vec::new(), latest: Vec::new() }
    }

    /// Records that a value uses the memory of another from this call on.
    pub(super) fn join(&mut self, id: TensorId, root: TensorId, call: usize) {
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

    /// Returns the index of the call that the readers of a value compute.
    pub(super) fn prologue(&self, id: ValueId) -> Option<usize> {
        self.graph.prologues.get(&id).copied()
    }

    /// Whether a value is the new value in an update.
    pub(super) fn becomes_new(&self, id: ValueId) -> bool {
        self.graph.news.contains(&id)
    }

    /// Whether a value is overwritten by an update.
    fn overwrites(&self, id: ValueId) -> bool {
        self.graph.overwritten.contains(&id)
    }

    /// Returns the last call that reads the memory of a value, as known before `call`.
    fn last(&self, id: TensorId, call: usize) -> Option<usize> {
        let before = self.aliases_of(id).filter(|it| it.from < call).map(|it| it.last);
        self.graph.last.get(id).map(|last| before.fold(*last, usize::max))
    }
}

impl Encoder<'_, '_> {
    /// Fuses an output of the current call into its readers, if all of them can recompute it from
    /// `inputs`. `views` returns the views through which they read it, or `None` if they cannot.
    /// Returns whether the output is fused. This is decided when memory is planned: searching again
    /// would slow down each run with new shapes.
    pub(crate) fn leave(
        &mut self,
        fusion: LateFusion,
        (out, which): (&Operand, usize),
        inputs: &[&Operand],
        views: impl FnOnce(&Self) -> Option<Vec<ValueId>>,
    ) -> bool {
        let able = |input: &&Operand| input.element.is_floating() && !self.is_written(input.id);
        // Calls with integers that change from run to run are encoded again together with the
        // readers of those integers; the readers of this output may not be among them.
        if self.planning
            && !self.varies()
            && inputs.iter().all(able)
            && let Some(views) = views(self)
        {
            self.state
                .left
                .insert(out.value, FusedOutput { fusion, call: self.node, which, views });
        }
        let Some(left) = self.state.left.get(&out.value) else { return false };
        // The readers of the output now read the inputs.
        let roots = inputs.iter().map(|input| self.state.root(input.id));
        for root in roots {
            for value in std::iter::once(out.value).chain(left.views.iter().copied()) {
                self.reads.join(value, root, self.node);
            }
        }
        true
    }

    /// Returns the value that owns the memory of a tensor, if the tensor covers all of it in order.
    pub(crate) fn whole(&self, tensor: &Operand) -> Option<ValueId> {
        let in_order =
            !self.state.is_part(tensor.id) && !self.state.strided.contains_key(&tensor.id);
        in_order.then(|| self.state.root(tensor.id))
    }

    /// Returns the tensor to write to for an output that starts with the contents of `old`: `old`
    /// itself if nothing reads it any more, else a copy. `written` is the data to be written there.
    pub(crate) fn successor(
        &mut self,
        old: &Operand,
        out: &Operand,
        written: &Operand,
    ) -> Result<Operand, Error> {
        let root = self.state.root(old.id);
        let may_write = !self.state.is_part(old.id)
            && match self.state.tensor(root)?.storage {
                Storage::Constant(_) => {
                    self.state.changing.contains(&root) && self.reads.overwrites(root)
                }
                Storage::Planned | Storage::Alias(..) => true,
            };
        let is_apart = self.state.root(written.id) != root;
        let is_last =
            is_apart && self.reads.last(root, self.node).is_some_and(|last| last <= self.node);
        let out = self.resize(out.id, &old.sizes)?;
        // New values of other tensors are copied there at the end; two in-place ones could form a
        // cycle.
        let mut updates = self.graph.updates.iter();
        let is_own =
            !updates.any(|(new, kept)| *new == out.value && self.state.root(*kept) != root);
        if may_write && is_last && is_own && old.element == out.element {
            self.alias(out.id, root)?;
            return self.tensor(out.value);
        }
        copy_all(self, old, &out)?;
        Ok(out)
    }

    /// Whether an output must be a copy: it is the new value of one state tensor and would
    /// otherwise share the memory of another that is also updated.
    pub(crate) fn is_taken_over(&self, out: TensorId, input: TensorId) -> bool {
        let root = self.state.root(input);
        self.reads.becomes_new(out) && self.reads.overwrites(root)
    }
}
