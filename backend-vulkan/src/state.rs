//! Which buffer a value is the new state of.
//!
//! A graph that owns buffers has their new values as its first outputs, of which its caller knows nothing. The file does not
//! say which output belongs to which buffer, so it is concluded from the graph: a buffer enters it through
//! `et_vk.prepack`, and its new value is made from the old one in the fewest steps.

use crate::ir::{Graph, Value, ValueId};
use std::collections::HashMap;

/// The operator through which constants enter a graph as tensors.
const PREPACK: &str = "et_vk.prepack.default";

/// How well a constant fits an output as the buffer that it is the new value of; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Operators take weights directly; buffers come through `PREPACK`.
    is_weight: bool,
    /// Calls between the two; the most there can be if there is no way.
    steps: usize,
    /// Buffers often start as zeros, weights never.
    varies: bool,
}

/// What each output can be the new value of: pairs of a cost and a constant.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    candidates: Vec<Vec<(Cost, ValueId)>>,
}

impl Lineage {
    /// Looks at a graph as the exporter wrote it: fused calls would hide how near values are to one another.
    pub(crate) fn of(graph: &Graph<'_>) -> Self {
        let is_prepacked = |id: &ValueId| {
            let mut packs = graph.nodes.iter().filter(|node| node.operator == PREPACK);
            packs.any(|node| node.args.first() == Some(id))
        };
        let candidates = graph.outputs.iter().map(|out| {
            let Some(Value::Tensor(tensor)) = graph.values.get(*out) else { return Vec::new() };
            let alike: Vec<(ValueId, &[u8])> = graph
                .values
                .iter()
                .enumerate()
                .filter_map(|(id, value)| match value {
                    Value::Tensor(constant)
                        if constant.scalar_type == tensor.scalar_type
                            && constant.sizes == tensor.sizes =>
                    {
                        Some((id, constant.data.as_deref()?))
                    }
                    _ => None,
                })
                .collect();
            if alike.is_empty() {
                return Vec::new();
            }
            let steps = steps_to(graph, *out);
            let cost = |(id, data): &(ValueId, &[u8])| Cost {
                is_weight: !is_prepacked(id),
                steps: steps.get(id).copied().unwrap_or(usize::MAX),
                varies: data.iter().skip(8).zip(data.iter()).any(|(a, b)| a != b),
            };
            alike.iter().map(|constant| (cost(constant), constant.0)).collect()
        });
        Lineage { candidates: candidates.collect() }
    }

    /// The constants that an output can be the new value of.
    pub(crate) fn constants(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.candidates.iter().flatten().map(|(_, id)| *id)
    }

    /// The buffers that the first `count` outputs are new values of: each of another one, those that fit best first.
    pub(crate) fn owners(&self, count: usize) -> Vec<Option<ValueId>> {
        let mut pairs: Vec<(Cost, usize, ValueId)> = Vec::new();
        for (position, candidates) in self.candidates.iter().take(count).enumerate() {
            pairs.extend(candidates.iter().map(|(cost, id)| (*cost, position, *id)));
        }
        pairs.sort_unstable();
        let mut owners = vec![None; count];
        for (_, position, id) in pairs {
            if !owners.contains(&Some(id))
                && let Some(owner @ None) = owners.get_mut(position)
            {
                *owner = Some(id);
            }
        }
        owners
    }
}

/// How many calls lie between each value and the one that is made from it.
fn steps_to(graph: &Graph<'_>, out: ValueId) -> HashMap<ValueId, usize> {
    let mut steps: HashMap<ValueId, usize> = HashMap::from([(out, 0)]);
    for node in graph.nodes.iter().rev() {
        let Some((result, inputs)) = node.args.split_last() else { continue };
        let made = match graph.values.get(*result) {
            Some(Value::List(items)) => items.iter().filter_map(|id| steps.get(id)).min(),
            _ => steps.get(result),
        };
        let Some(made) = made.copied() else { continue };
        let before = if node.operator == PREPACK { made } else { made.saturating_add(1) };
        for id in inputs {
            let items = match graph.values.get(*id) {
                Some(Value::List(items)) => items.as_slice(),
                _ => std::slice::from_ref(id),
            };
            for id in items {
                let known = steps.entry(*id).or_insert(before);
                *known = (*known).min(before);
            }
        }
    }
    steps
}

/// Copies in an order in which none overwrites what a later one reads. `None` if there is no such order.
pub(crate) fn in_safe_order<T: Copy + PartialEq>(copies: &[(T, T)]) -> Option<Vec<(T, T)>> {
    let mut rest = copies.to_vec();
    let mut ordered = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let reads = |target: T, own: usize| {
            rest.iter().enumerate().any(|(at, (from, _))| at != own && *from == target)
        };
        let next = (0..rest.len()).find(|at| rest.get(*at).is_some_and(|copy| !reads(copy.1, *at)));
        ordered.push(rest.remove(next?));
    }
    Some(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Node, Tensor};
    use std::borrow::Cow;
    use torchlet_core::ScalarType;

    /// A graph over tensors of four numbers: so many constants (of which those in `weights` are not prepacked), then values.
    struct Draft {
        graph: Graph<'static>,
    }

    impl Draft {
        fn new(constants: usize, weights: &[usize], values: usize) -> Self {
            let tensor = |data: Option<Vec<u8>>| {
                Value::Tensor(Tensor {
                    scalar_type: ScalarType::Float,
                    host_type: ScalarType::Float,
                    sizes: vec![1, 4],
                    data: data.map(Cow::Owned),
                })
            };
            let mut graph = Graph::default();
            graph.values.extend((0..constants).map(|_| tensor(Some(vec![0; 16]))));
            graph.values.extend((0..constants + values).map(|_| tensor(None)));
            let mut draft = Draft { graph };
            for id in (0..constants).filter(|id| !weights.contains(id)) {
                draft.call(PREPACK, &[id, constants + id]);
            }
            draft
        }

        fn call(&mut self, operator: &str, args: &[ValueId]) {
            let operator = operator.to_owned();
            self.graph.nodes.push(Node { operator, args: args.to_vec(), ..Node::default() });
        }

        fn owners(mut self, outputs: &[ValueId], count: usize) -> Vec<Option<ValueId>> {
            self.graph.outputs = outputs.to_vec();
            Lineage::of(&self.graph).owners(count)
        }
    }

    #[test]
    fn each_update_belongs_to_the_nearest_buffer() {
        // b += x + a; a = a / 2 + b, whose new values come in this order.
        let mut draft = Draft::new(2, &[], 6);
        draft.call("aten.add.Tensor", &[9, 2, 5]);
        draft.call("aten.add.Tensor", &[3, 5, 6]);
        draft.call("aten.mul.Tensor", &[2, 2, 7]);
        draft.call("aten.add.Tensor", &[7, 6, 8]);
        assert_eq!(draft.owners(&[6, 8, 8], 2), [Some(1), Some(0)]);
    }

    #[test]
    fn a_value_that_is_not_made_from_its_buffer_gets_the_one_that_is_left() {
        // last = x * 1; sum += x - last.
        let mut draft = Draft::new(2, &[], 5);
        draft.call("aten.sub.Tensor", &[8, 2, 5]);
        draft.call("aten.mul.Tensor", &[8, 8, 6]);
        draft.call("aten.add.Tensor", &[3, 5, 7]);
        assert_eq!(draft.owners(&[6, 7, 7], 2), [Some(0), Some(1)]);
    }

    #[test]
    fn weights_are_not_written() {
        // state = state / 2 + x w, where w comes first and is as near.
        let mut draft = Draft::new(2, &[0], 5);
        draft.call("aten.mul.Tensor", &[3, 3, 4]);
        draft.call("aten.mm.default", &[8, 0, 5]);
        draft.call("aten.add.Tensor", &[4, 5, 6]);
        assert_eq!(draft.owners(&[6, 6], 1), [Some(1)]);
    }

    #[test]
    fn what_starts_as_zeros_is_rather_a_buffer() {
        let mut draft = Draft::new(2, &[], 3);
        let Value::Tensor(first) = &mut draft.graph.values[0] else { panic!() };
        first.data = Some(Cow::Owned((0..16).collect()));
        draft.call("aten.add.Tensor", &[2, 3, 4]);
        assert_eq!(draft.owners(&[4, 4], 1), [Some(1)]);
    }

    #[test]
    fn no_buffer_of_that_shape_is_none() {
        let mut draft = Draft::new(1, &[], 2);
        draft.call("aten.add.Tensor", &[1, 1, 2]);
        assert_eq!(draft.owners(&[2, 2, 2], 2), [Some(0), None]);
    }

    #[test]
    fn copies_read_before_they_are_overwritten() {
        // b takes a's old value, a takes a new one.
        assert_eq!(in_safe_order(&[(9, 0), (0, 1)]), Some(vec![(0, 1), (9, 0)]));
        assert_eq!(in_safe_order(&[(1, 0), (0, 1)]), None);
        assert_eq!(in_safe_order::<u8>(&[]), Some(vec![]));
    }
}
