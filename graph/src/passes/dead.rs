//! Dead-code elimination.
//!
//! Needs: a graph in which each value is produced once, before its uses. Keeps: every graph output,
//! every update, and calls with effects.

use super::uses::{each_member, inputs};
use crate::graph::{Graph, ValueId};
use alloc::vec;
use alloc::vec::Vec;

/// Removes calls whose outputs are unused. Returns their number.
pub fn run(graph: &mut Graph<'_>) -> usize {
    let mut needed = Needed(vec![false; graph.values.len()]);
    for id in graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)) {
        needed.add(graph, *id);
    }
    let mut keep: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in graph.nodes.iter().rev() {
        let made = node.args.last().is_some_and(|out| needed.has(graph, *out));
        let kept = made || node.operator.traits().has_effect();
        if kept {
            inputs(node).iter().for_each(|id| needed.add(graph, *id));
        }
        keep.push(kept);
    }
    let before = graph.nodes.len();
    // Popped first call first.
    graph.nodes.retain(|_| keep.pop().unwrap_or(true));
    before - graph.nodes.len()
}

/// The values that kept calls read.
struct Needed(Vec<bool>);

impl Needed {
    fn add(&mut self, graph: &Graph<'_>, id: ValueId) {
        each_member(graph, id, |id| {
            if let Some(needed) = self.0.get_mut(id) {
                *needed = true;
            }
        });
    }

    fn has(&self, graph: &Graph<'_>, id: ValueId) -> bool {
        let mut has = false;
        each_member(graph, id, |id| has |= self.0.get(id) == Some(&true));
        has
    }
}

#[cfg(test)]
mod tests {
    use crate::passes::text;

    #[test]
    fn what_nobody_takes_goes() {
        let mut graph = text::parse(
            "in x f32[2]
             a f32[2] = aten.abs.default(x)
             b f32[2] = aten.neg.default(a)
             c f32[2] = aten.exp.default(a)
             out c",
        );
        assert_eq!(super::run(&mut graph), 1);
        assert_eq!(text::operators(&graph), ["aten.abs.default", "aten.exp.default"]);
    }

    #[test]
    fn one_output_of_several_is_enough() {
        let mut graph = text::parse(
            "in x f32[2,4]
             [a f32[2,4], b f32[2], c f32[2]] = aten.native_layer_norm.default(x, [4], none, \
                 none, 1e-5)
             out b",
        );
        assert_eq!(super::run(&mut graph), 0);
    }

    #[test]
    fn writes_and_updates_stay() {
        let mut graph = text::parse(
            "in x f32[1,1,1,4]
             var cache f32[1,8,1,4]
             var state f32[1,1,1,4]
             a f32[1,1,1,4] = aten.abs.default(x)
             b f32[1,1,1,4] = llama.update_cache.default(a, cache, 0)
             c f32[1,1,1,4] = aten.neg.default(x)
             update c state
             out x",
        );
        assert_eq!(super::run(&mut graph), 0);
    }
}
