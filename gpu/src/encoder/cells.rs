//! In-place writes, and fusion of outputs into their readers. Memory may be overwritten if it is
//! state that the graph updates, or if no later call reads it.

use super::Encoder;
use crate::error::Error;
use crate::state::{FusedOutput, LateFusion, Storage};
use crate::tensors::{Operand, TensorId};
use torchlet_graph::graph::ValueId;

impl Encoder<'_, '_> {
    /// Fuses an output of the current call into its readers, if all readers can recompute the
    /// output from `inputs`. `views` returns the views through which they read it, or `None` if
    /// they cannot. Returns whether the output is fused. This is decided when memory is planned:
    /// searching again would slow down each run with new shapes.
    pub(crate) fn leave(
        &mut self,
        fusion: LateFusion,
        (out, which): (&Operand, usize),
        inputs: &[&Operand],
        views: impl FnOnce(&Self) -> Option<Vec<ValueId>>,
    ) -> bool {
        let able = |input: &&Operand| input.element.is_floating() && !self.is_written(input.id);
        // Calls with integers that change from run to run are encoded again, together with all
        // other readers of those integers. The readers of this output may not be among them.
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
        // Keeps the inputs alive until the readers of the output run, since they now read the
        // inputs.
        let roots = inputs.iter().map(|input| self.state.root(input.id));
        for root in roots {
            for value in std::iter::once(out.value).chain(left.views.iter().copied()) {
                self.reads.join(value, root, self.node);
            }
        }
        true
    }

    /// Returns the value that owns the memory of a tensor, if the tensor covers all of that memory
    /// in order.
    pub(crate) fn whole(&self, tensor: &Operand) -> Option<ValueId> {
        let in_order =
            !self.state.is_part(tensor.id) && !self.state.strided.contains_key(&tensor.id);
        in_order.then(|| self.state.root(tensor.id))
    }

    /// Prepares an output that starts with the contents of `old`. If no later call reads `old`, the
    /// output becomes an alias of it; otherwise, the caller has to copy `old`. `written` is the
    /// data that the caller writes there afterwards. Returns the output, and whether it is an
    /// alias.
    pub(crate) fn take_over(
        &mut self,
        old: &Operand,
        out: &Operand,
        written: &Operand,
    ) -> Result<(Operand, bool), Error> {
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
        // If the output is the new value of another state tensor, it is copied there after all
        // steps; two such outputs in place could form a cycle.
        let mut updates = self.graph.updates.iter();
        let is_own =
            !updates.any(|(new, kept)| *new == out.value && self.state.root(*kept) != root);
        if may_write && is_last && is_own && old.element == out.element {
            self.alias(out.id, root)?;
            return Ok((self.tensor(out.value)?, true));
        }
        Ok((out, false))
    }

    /// Whether `out` must be a copy of `input` instead of an alias: `out` is the new value of a
    /// state tensor, and `input` is in the memory of a state tensor that is also overwritten.
    pub(crate) fn is_taken_over(&self, out: TensorId, input: TensorId) -> bool {
        let root = self.state.root(input);
        self.reads.becomes_new(out) && self.reads.overwrites(root)
    }
}
