//! Fuses RMS norms into the GEMVs that read them. For few rows, a separate `x / rms(x) * weight`
//! lasts as long as the following GEMV, but only adds a few instructions when fused.
//!
//! The norm becomes a call of `torchlet.rms_norm_prologue`. With few rows, GEMVs compute it from
//! the norm's inputs; with many rows, it is dispatched separately. A norm is fused only if all its
//! readers are such GEMVs.

use super::floating;
use crate::ids::IdMap;
use crate::ops::{LONGEST_ROW, is_wide, takes_rows, weighs_floats};
use crate::reads::readers_of;
use std::collections::HashSet;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::{Operator, RmsNormArgs};
use torchlet_graph::passes::uses::has_unique_producers;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    // Only this pass decides about prologues: in a file, readers may not compute them.
    for node in &mut graph.nodes {
        if node.operator == Operator::RMS_NORM_PROLOGUE {
            node.operator = Operator::ET_VK_RMS_NORM;
        }
    }
    if !has_unique_producers(graph) {
        return;
    }
    let readers = readers_of(graph);
    let leaving = graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new));
    let leaving: HashSet<ValueId> = leaving.copied().collect();
    let roots = Roots::of(graph);
    let written = roots.written(graph);
    let is_prologue = |node: &Node| {
        node.operator == Operator::ET_VK_RMS_NORM
            && RmsNormArgs::of(node).is_ok_and(|norm| {
                let readers = readers.get(&norm.out).map_or(&[][..], Vec::as_slice);
                let is_written = |id: &ValueId| written.contains(&roots.root(*id));
                // Readers would not notice that a dynamic epsilon changed.
                let is_dynamic = matches!(graph.values.get(norm.eps), Some(Value::SymInt(_)));
                !leaving.contains(&norm.out)
                    && !is_dynamic
                    && fits(graph, &norm, readers).unwrap_or(false)
                    && ![norm.input, norm.weight].iter().any(is_written)
            })
    };
    let found: Vec<bool> = graph.nodes.iter().map(is_prologue).collect();
    for (node, _) in graph.nodes.iter_mut().zip(found).filter(|(_, found)| *found) {
        node.operator = Operator::RMS_NORM_PROLOGUE;
    }
}

/// Whether all readers of a norm can compute it; `readers` are indices of calls.
fn fits(graph: &Graph<'_>, norm: &RmsNormArgs, readers: &[usize]) -> Option<bool> {
    let [input, weight, out] = [norm.input, norm.weight, norm.out].map(|id| floating(graph, id));
    let (input, weight, out) = (input?, weight?, out?);
    let count = *input.sizes.last()?;
    // Unquantized GEMVs support the norm only for rows of a minimum length.
    let is_wide = is_wide(count, input.element.size());
    let supports = |call: &Node| {
        weighs_floats(call.operator) && (is_wide || call.operator != Operator::LINEAR)
    };
    // GEMMs derive the rows from the shape. With many rows, the norm must need only one dispatch.
    let fits = out.sizes == input.sizes
        && count <= LONGEST_ROW
        && weight.numel() == count
        && [&input, &weight].iter().all(|operand| operand.element.is_floating());
    let mut readers = readers.iter().filter_map(|index| graph.nodes.get(*index)).peekable();
    Some(fits && readers.peek().is_some() && readers.all(|it| takes_rows(it, norm.out, supports)))
}

/// Maps each view to the value whose elements it shows.
struct Roots(IdMap<ValueId, ValueId>);

impl Roots {
    fn of(graph: &Graph<'_>) -> Self {
        let mut roots = Roots(IdMap::default());
        for node in graph.nodes.iter().filter(|node| node.operator.traits().is_view) {
            if let [input, .., out] = node.args[..] {
                roots.0.insert(out, roots.root(input));
            }
        }
        roots
    }

    fn root(&self, id: ValueId) -> ValueId {
        self.0.get(&id).copied().unwrap_or(id)
    }

    /// Returns the roots of all arguments of calls that write in place.
    fn written(&self, graph: &Graph<'_>) -> HashSet<ValueId> {
        let writers = graph.nodes.iter().filter(|node| node.operator.traits().writes_arguments());
        writers.flat_map(|node| &node.args).map(|id| self.root(*id)).collect()
    }
}
