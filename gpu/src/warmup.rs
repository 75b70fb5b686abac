//! Pipeline warm-up for dynamic shapes.
//!
//! Memory is planned for the largest shapes. Smaller shapes and other integers may need additional
//! pipelines, and a driver needs milliseconds to create one. The graph is therefore encoded with
//! sample shapes at load time, and their pipelines are created then.

use crate::device::PipelineKey;
use crate::encode::encode;
use crate::ops::watched_inputs;
use crate::state::State;
use std::collections::{BTreeMap, HashSet};
use torchlet_graph::graph::{Graph, Value, ValueId};
use torchlet_graph::operators::Operator;

/// The maximum number of encoded calls in total. Larger graphs are tried with fewer shapes.
const MAX_CALLS: usize = 1 << 15;

/// The maximum number of shapes tried for a graph.
const MAX_TRIALS: usize = 256;

/// The maximum number of dynamic dims and integers that are varied. Exported programs have fewer,
/// and each one requires trials.
const MAX_QUANTITIES: usize = 64;

/// The maximum number of elements of an integer tensor for its contents to be varied.
const MAX_CONTENTS: usize = 4096;

/// A size or an integer that can change from run to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    /// The size of an input in one dim.
    Size(ValueId, usize),
    /// An integer input.
    Integer(ValueId),
    /// The elements of an integer tensor that operators read on the host. All of them get the same
    /// value.
    Contents(ValueId),
}

/// All quantities of a graph, each with its upper bound.
#[derive(Debug)]
struct Varying {
    quantities: Vec<(Quantity, usize)>,
    /// Groups of indices of quantities. A trial gives all quantities of a group the same value,
    /// because quantities with equal bounds are usually one dim of the program.
    together: Vec<Vec<usize>>,
}

/// Returns the pipelines that a graph needs for shapes other than those in `planned`, for which
/// memory was planned. Stops when at least `most` pipelines are found. Shapes that the graph
/// rejects are skipped.
pub(crate) fn pipelines(graph: &Graph<'_>, planned: &State, most: usize) -> HashSet<PipelineKey> {
    let mut found = HashSet::new();
    let varying = Varying::of(graph, planned);
    if varying.quantities.is_empty() || most == 0 {
        return found;
    }
    let mut state = planned.clone();
    let trials = (MAX_CALLS / graph.nodes.len().max(1)).min(MAX_TRIALS);
    for trial in varying.trials(trials) {
        varying.set(&mut state, &trial);
        if let Ok((steps, _)) = encode(graph, &mut state, false) {
            found.extend(steps.into_iter().map(|step| step.key));
        }
        if found.len() >= most {
            break;
        }
    }
    found
}

impl Varying {
    fn of(graph: &Graph<'_>, state: &State) -> Self {
        let mut quantities = Vec::new();
        for id in graph.inputs.iter().copied() {
            match graph.values.get(id) {
                Some(Value::Tensor(tensor)) if tensor.dynamic => {
                    let sizes = tensor.sizes.iter().copied().enumerate();
                    let large = sizes.filter(|(_, size)| *size > 1);
                    quantities.extend(large.map(|(dim, size)| (Quantity::Size(id, dim), size)));
                }
                Some(Value::SymInt(_)) => {
                    let bound = state.integers.get(id).copied().flatten().unwrap_or_default();
                    quantities
                        .push((Quantity::Integer(id), usize::try_from(bound).unwrap_or_default()));
                }
                _ => {}
            }
        }
        let picked =
            graph.nodes.iter().filter(|node| node.operator == Operator::ET_VK_SELECT_AS_SYMINT);
        let bounds = picked.filter_map(|node| *state.integers.get(*node.args.last()?)?);
        let bound = bounds.filter_map(|bound| usize::try_from(bound).ok()).max();
        let numel = |id: ValueId| state.tensor(id).map_or(0, |tensor| tensor.numel());
        let watched = watched_inputs(graph, state).into_iter();
        let watched = watched.filter(|id| numel(*id) <= MAX_CONTENTS);
        quantities.extend(watched.map(|id| (Quantity::Contents(id), bound.unwrap_or_default())));
        quantities.truncate(MAX_QUANTITIES);

        // Groups: all quantities with the same bound, and all sizes with the same bound in the same
        // dim.
        let mut alike: BTreeMap<(usize, Option<usize>), Vec<usize>> = BTreeMap::new();
        for (at, (quantity, bound)) in quantities.iter().enumerate() {
            let dims = match quantity {
                Quantity::Size(_, dim) => vec![None, Some(*dim)],
                Quantity::Integer(_) if *bound > 0 => vec![None],
                _ => Vec::new(),
            };
            for dim in dims {
                alike.entry((*bound, dim)).or_default().push(at);
            }
        }
        let several = alike.into_values().filter(|together| together.len() > 1);
        let mut together: Vec<Vec<usize>> = several.collect();
        together.dedup();
        together.extend((0..quantities.len()).map(|at| vec![at]));
        Varying { quantities, together }
    }

    /// Returns the trials, at most `most`, each with a value for every quantity. A trial varies one
    /// group. The other sizes are at their maximum or 1, and the other integers are 0 or half their
    /// bound; the three combinations alternate.
    fn trials(&self, most: usize) -> Vec<Vec<usize>> {
        let rest = |size: fn(usize) -> usize, integer: fn(usize) -> usize| -> Vec<usize> {
            let number = |(quantity, bound): &(Quantity, usize)| match quantity {
                Quantity::Size(..) => size(*bound),
                Quantity::Integer(_) | Quantity::Contents(_) => integer(*bound),
            };
            self.quantities.iter().map(number).collect()
        };
        let rests =
            [rest(|bound| bound, |_| 0), rest(|_| 1, |_| 0), rest(|_| 1, |bound| bound / 2)];
        let bound = |together: &[usize]| Some(self.quantities.get(*together.first()?)?.1);
        let with_values =
            self.together.iter().map(|it| (it, sample_values(bound(it).unwrap_or(0))));
        let with_values: Vec<(&Vec<usize>, Vec<usize>)> = with_values.collect();
        let longest = with_values.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
        let mut seen = HashSet::new();
        let mut trials = Vec::new();
        for turn in 0..longest {
            for (together, values) in &with_values {
                let Some(number) = values.get(turn) else { continue };
                for rest in &rests {
                    if trials.len() >= most {
                        return trials;
                    }
                    let mut trial = rest.clone();
                    for at in *together {
                        if let Some(slot) = trial.get_mut(*at) {
                            *slot = *number;
                        }
                    }
                    if seen.insert(trial.clone()) {
                        trials.push(trial);
                    }
                }
            }
        }
        trials
    }

    fn set(&self, state: &mut State, trial: &[usize]) {
        for ((quantity, _), number) in self.quantities.iter().zip(trial) {
            match *quantity {
                Quantity::Size(id, dim) => {
                    let tensor = state.tensors.get_mut(id).and_then(Option::as_mut);
                    if let Some(size) = tensor.and_then(|tensor| tensor.sizes.get_mut(dim)) {
                        *size = *number;
                    }
                }
                Quantity::Integer(id) => {
                    if let Some(Some(slot)) = state.integers.get_mut(id) {
                        *slot = i64::try_from(*number).unwrap_or_default();
                    }
                }
                // Set after all sizes, which determine the number of elements.
                Quantity::Contents(id) => {
                    let numel = state.tensor(id).map_or(0, |tensor| tensor.numel());
                    let contents = state.host.entry(id).or_default();
                    contents.clear();
                    contents.resize(numel, i32::try_from(*number).unwrap_or_default());
                }
            }
        }
    }
}

/// Returns the values to try up to `bound`, most important first. Small values have specialised
/// kernels. For larger values, kernels depend on the largest power of two, up to eight, that
/// divides the value, and on the magnitude, which decides about tiling and the number of
/// invocations.
fn sample_values(bound: usize) -> Vec<usize> {
    let below = |most: usize, less: usize| (most / 8 * 8).saturating_sub(less);
    let first = [1, below(bound, 0), 2, below(bound, 1), 4, below(bound, 4), 3, 5, 8];
    let rest = [below(bound, 2), below(bound, 3)];
    let middle = [0, 1, 2, 3, 4].map(|less| below(bound / 2, less));
    let between = std::iter::successors(Some(12usize), |number| number.checked_mul(2));
    let between = between.take_while(|number| *number < bound);
    let all = first.into_iter().chain(rest).chain(middle).chain(between);
    let mut values: Vec<usize> = Vec::new();
    for number in all.filter(|number| (1..=bound).contains(number)) {
        if !values.contains(&number) {
            values.push(number);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Node, Tensor};

    fn tensor(sizes: &[usize], dynamic: bool) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: sizes.to_vec(),
            dynamic,
            data: None,
            changes: None,
        })
    }

    #[test]
    fn sample_values_cover_small_and_aligned() {
        assert_eq!(sample_values(3), [1, 2, 3]);
        assert_eq!(sample_values(0), [0usize; 0]);
        let many = sample_values(1000);
        // Odd values, and multiples of 2, 4 and 8: near the bound and near half of it.
        let first = [1, 1000, 2, 999, 4, 996, 3, 5, 8, 998, 997, 496, 495, 494, 493, 492];
        let between = [12, 24, 48, 96, 192, 384, 768];
        assert_eq!(many, [first.as_slice(), &between].concat());
    }

    #[test]
    fn number_of_trials_is_bounded() {
        let varying = |inputs: usize| {
            let graph = Graph {
                values: (0..inputs).map(|_| tensor(&[60, 50, 40, 30], true)).collect(),
                inputs: (0..inputs).collect(),
                ..Graph::default()
            };
            let state = State::new(&graph, HashSet::new()).unwrap();
            Varying::of(&graph, &state)
        };
        assert_eq!(varying(1).quantities.len(), 4);
        assert_eq!(varying(1000).quantities.len(), MAX_QUANTITIES);
        let trials = varying(1000).trials(40);
        assert_eq!(trials.len(), 40);
        // Every combination of the other quantities occurs.
        let least = |trial: &&Vec<usize>| trial.iter().filter(|size| **size == 1).count() > 2;
        assert!(varying(1).trials(40).iter().filter(least).count() > 10);
        assert!(varying(1).trials(0).is_empty());
    }

    /// The number of columns of attention scores is dynamic; the scores are then multiplied by the
    /// values.
    #[test]
    fn dynamic_gemm_columns_are_warmed_up() {
        for most in [100, 256] {
            let graph = Graph {
                values: vec![
                    tensor(&[4, most, 64], true),
                    tensor(&[4, 64, most], true),
                    tensor(&[4, most, most], true),
                    tensor(&[4, most, 64], true),
                    tensor(&[4, most, 64], true),
                ],
                nodes: vec![
                    Node::new(Operator::BMM, vec![0, 1, 2]),
                    Node::new(Operator::BMM, vec![2, 3, 4]),
                ],
                inputs: vec![0, 1, 3],
                outputs: vec![4],
                ..Graph::default()
            };
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            let planned = encode(&graph, &mut state, true).unwrap().0;
            let mut known = pipelines(&graph, &state, usize::MAX);
            known.extend(planned.into_iter().map(|step| step.key));
            for count in 1..=most {
                for (id, sizes) in [(0, [4, count, 64]), (1, [4, 64, count]), (3, [4, count, 64])] {
                    state.tensors[id].as_mut().unwrap().sizes = sizes.to_vec();
                }
                for step in encode(&graph, &mut state, false).unwrap().0 {
                    assert!(known.contains(&step.key), "{count}: {:?}", step.key.constants);
                }
            }
        }
    }
}
