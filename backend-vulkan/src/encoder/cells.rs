//! What may be written where it lies: tensors that keep their contents between runs, and what
//! nobody reads any more.

use super::Encoder;
use crate::error::Error;
use crate::ids::IdSet;
use crate::ops::copy_all;
use crate::state::{Left, Storage};
use crate::tensors::{Operand, TensorId};
use std::sync::Arc;
use torchlet_graph::graph::{Graph, ValueId};

/// When the values of a graph are read, and which take new values when all is done.
pub(crate) struct Reads {
    graph: Arc<GraphReads>,
    /// The values that use the memory of another. Calls may be encoded again.
    joined: Vec<Joined>,
    /// The latest of them of each tensor that they use the memory of.
    latest: Vec<Option<usize>>,
}

/// A value that uses the memory of another from a call on.
struct Joined {
    from: usize,
    /// The last call that reads it.
    last: usize,
    /// The one before that uses the same memory.
    earlier: Option<usize>,
}

/// What of that the graph says, whatever the shapes.
#[derive(Debug)]
pub(crate) struct GraphReads {
    /// The last call that reads each value.
    last: Vec<usize>,
    /// What updates overwrite, and what they overwrite it with.
    overwritten: IdSet<ValueId>,
    news: IdSet<ValueId>,
}

/// Behind all calls.
const END: usize = usize::MAX;

impl GraphReads {
    pub(super) fn of(graph: &Graph<'_>) -> Self {
        let mut last = vec![0; graph.values.len()];
        let mut read = |id: ValueId, at: usize| {
            for id in graph.items(&id) {
                if let Some(last) = last.get_mut(*id) {
                    *last = at.max(*last);
                }
            }
        };
        for (at, node) in graph.nodes.iter().enumerate() {
            // Calls that were fused read what the whole does.
            let inputs = node.args.split_last().map_or(&[][..], |(_, inputs)| inputs);
            let parts = node.parts.iter().flat_map(|part| &part.args);
            inputs.iter().chain(parts).for_each(|id| read(*id, at));
        }
        let news = graph.updates.iter().map(|(new, _)| *new);
        graph.outputs.iter().copied().chain(news.clone()).for_each(|id| read(id, END));
        let overwritten = graph.updates.iter().map(|(_, old)| *old).collect();
        GraphReads { last, overwritten, news: news.collect() }
    }
}

impl Reads {
    pub(super) fn new(graph: Arc<GraphReads>) -> Self {
        Reads { graph, joined: Vec::new(), latest: Vec::new() }
    }

    /// A value uses the memory of another from this call on.
    pub(super) fn join(&mut self, id: TensorId, root: TensorId, call: usize) {
        let last = self.last(id, call).unwrap_or(END);
        if self.joined_to(root).any(|it| (it.from, it.last) == (call, last)) {
            return;
        }
        self.latest.resize(self.latest.len().max(root + 1), None);
        let Some(latest) = self.latest.get_mut(root) else { return };
        let earlier = latest.replace(self.joined.len());
        self.joined.push(Joined { from: call, last, earlier });
    }

    /// The values that use the memory of a tensor.
    fn joined_to(&self, root: TensorId) -> impl Iterator<Item = &Joined> {
        let latest = self.latest.get(root).copied().flatten();
        let first = latest.and_then(|at| self.joined.get(at));
        std::iter::successors(first, |it| self.joined.get(it.earlier?))
    }

    /// Whether a value is what an update overwrites another with.
    pub(super) fn becomes_new(&self, id: ValueId) -> bool {
        self.graph.news.contains(&id)
    }

    /// Whether a value is what an update overwrites.
    fn overwrites(&self, id: ValueId) -> bool {
        self.graph.overwritten.contains(&id)
    }

    /// The last call that reads what is in the memory of a value, as it is known before a call.
    fn last(&self, id: TensorId, call: usize) -> Option<usize> {
        let before = self.joined_to(id).filter(|it| it.from < call).map(|it| it.last);
        self.graph.last.get(id).map(|last| before.fold(*last, usize::max))
    }
}

impl Encoder<'_, '_> {
    /// Leaves an output of the current call to those who take it, if all of them can make it of
    /// `inputs`, for which `views` tells the views through which they take it, or nothing if they
    /// cannot. Tells whether it is left. That is decided when memory is planned: later, looking for
    /// them would only take time in each run that differs.
    pub(crate) fn leave(
        &mut self,
        out: &Operand,
        which: usize,
        inputs: &[&Operand],
        views: impl FnOnce(&Self) -> Option<Vec<ValueId>>,
    ) -> bool {
        let able = |input: &&Operand| input.element.is_floating() && !self.is_written(input.id);
        // What numbers change from run to run is encoded again with those who read them: these need
        // not be among them.
        if self.planning
            && !self.varies()
            && inputs.iter().all(able)
            && let Some(views) = views(self)
        {
            self.state.left.insert(out.value, Left { call: self.node, which, views });
        }
        let Some(left) = self.state.left.get(&out.value) else { return false };
        // Those who read the output read the inputs.
        let roots = inputs.iter().map(|input| self.state.root(input.id));
        for root in roots {
            for value in std::iter::once(out.value).chain(left.views.iter().copied()) {
                self.reads.join(value, root, self.node);
            }
        }
        true
    }

    /// The value in whose memory a tensor is, if it is all of that, in its order.
    pub(crate) fn whole(&self, tensor: &Operand) -> Option<ValueId> {
        let in_order =
            !self.state.is_part(tensor.id) && !self.state.strided.contains_key(&tensor.id);
        in_order.then(|| self.state.root(tensor.id))
    }

    /// The tensor to write to that becomes the output of the current call, and has the contents of
    /// another already: this other one, if nobody reads that any more, or else a copy. `written` is
    /// what is written there.
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
        // What becomes the new value of another tensor is copied there in the end: two of them
        // could wait for each other.
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

    /// Whether an output has to be a copy, since it becomes the new value of one tensor that keeps
    /// its contents, and would share the memory of another that takes a new value, too.
    pub(crate) fn is_taken_over(&self, out: TensorId, input: TensorId) -> bool {
        let root = self.state.root(input);
        self.reads.becomes_new(out) && self.reads.overwrites(root)
    }
}
