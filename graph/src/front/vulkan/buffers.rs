//! Finds the constants that are mutable buffers, and the graph output that holds the new value of
//! each buffer.
//!
//! The file names a buffer if a call writes to it in place, or if an output is the buffer itself
//! (`alias_buffer_mutations`). Without that option, the first outputs of the graph are new values
//! of buffers. The delegate call has no arguments for these outputs, and the file does not map them
//! to buffers. The exporter writes them in the order of computation, and constants have no names
//! except hashes of their contents. If a buffer's new value equals the old value of another buffer,
//! it is not written at all.
//!
//! The missing mapping is inferred. A new value has the dtype and shape of its buffer. The exporter
//! plans memory for buffers that are not prepacked. The only other constants with planned memory
//! ([`Tensor::changes`]) are outputs, which are never new values, and some weights, which therefore
//! may or may not change. If a single buffer matches an output, it is chosen. If several match, any
//! choice would be a guess, so the graph is rejected.

use crate::error::Error;
use crate::graph::{Graph, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Remedy for a file with too little information.
const WAY_OUT: &str = "export with VulkanPartitioner({'alias_buffer_mutations': True})";

/// Constants of a graph that change between runs, or may change.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Values that calls write in place, or that updates overwrite.
    written: BTreeSet<ValueId>,
    /// For each output, the constants whose new value it may be.
    candidates: Vec<Vec<ValueId>>,
    /// Constants that certainly change although no call writes to them: an output must be their new
    /// value.
    expectant: Vec<ValueId>,
}

impl Buffers {
    /// Finds the buffers of a graph whose updates are known.
    ///
    /// # Errors
    /// A buffer certainly changes, but no output can be its new value, or the first such output
    /// could also be the new value of another buffer.
    pub fn of(graph: &Graph<'_>) -> Result<Self, Error> {
        let views = Views::of(graph);
        let mut written = BTreeSet::new();
        for node in &graph.nodes {
            if node.operator.traits().writes_arguments() {
                written.extend(node.args.iter().flat_map(|id| views.chain(*id)));
            }
        }
        written.extend(graph.updates.iter().flat_map(|(_, old)| views.chain(*old)));

        let constants = graph.values.iter().enumerate().filter_map(|(id, value)| match value {
            Value::Tensor(tensor @ Tensor { data: Some(_), .. }) => Some((id, tensor)),
            _ => None,
        });
        let possible: Vec<(ValueId, &Tensor<'_>)> = constants
            .filter(|(id, tensor)| tensor.changes != Some(false) && !written.contains(id))
            .collect();
        let candidates = graph.outputs.iter().map(|out| {
            let Some(Value::Tensor(tensor @ Tensor { data: None, .. })) = graph.values.get(*out)
            else {
                return Vec::new();
            };
            let own: BTreeSet<ValueId> = views.chain(*out).collect();
            let alike = possible.iter().filter(|(id, constant)| {
                constant.scalar_type == tensor.scalar_type
                    && constant.sizes == tensor.sizes
                    && !own.contains(id)
            });
            alike.map(|(id, _)| *id).collect()
        });
        let candidates: Vec<Vec<ValueId>> = candidates.collect();
        let certain = possible
            .iter()
            .filter(|(id, tensor)| tensor.changes == Some(true) && !graph.outputs.contains(id));
        let expectant = certain.map(|(id, _)| *id).collect();
        let buffers = Buffers { written, candidates, expectant };
        for id in &buffers.expectant {
            let mut outputs = buffers.candidates.iter().enumerate();
            match outputs.find(|(_, candidates)| candidates.contains(id)) {
                Some((_, candidates)) if candidates.len() == 1 => {}
                Some((output, candidates)) => return Err(ambiguous(output, candidates)),
                None => {
                    return Err(Error::Unsupported(format!(
                        "constant {id} is a mutable buffer, but no output is its new value; \
                         {WAY_OUT}"
                    )));
                }
            }
        }
        Ok(buffers)
    }

    /// Returns the values that calls write in place, or that updates overwrite.
    pub fn written(&self) -> &BTreeSet<ValueId> {
        &self.written
    }

    /// Returns the constants whose contents may differ between runs.
    pub fn changing(&self) -> BTreeSet<ValueId> {
        self.written.iter().chain(self.candidates.iter().flatten()).copied().collect()
    }

    /// Returns the minimum number of outputs that are new values of buffers.
    pub fn fewest(&self) -> usize {
        let first = |id| self.candidates.iter().position(|output| output.contains(id));
        self.expectant.iter().filter_map(first).max().map_or(0, |last| last + 1)
    }

    /// Whether the first `count` outputs can be new values of buffers.
    pub fn can_own(&self, count: usize) -> bool {
        let outputs = self.candidates.iter().take(count);
        count <= self.candidates.len() && outputs.into_iter().all(|output| !output.is_empty())
    }

    /// Returns the buffers whose new values the first `count` outputs are.
    ///
    /// # Errors
    /// The graph does not determine them.
    pub fn owners(&self, count: usize) -> Result<Vec<ValueId>, Error> {
        let mut owners = Vec::with_capacity(count);
        for (output, candidates) in self.candidates.iter().take(count).enumerate() {
            match candidates[..] {
                [owner] if !owners.contains(&owner) => owners.push(owner),
                [] => {
                    return Err(Error::Unsupported(format!(
                        "output {output} updates a buffer, but no constant has its dtype and shape"
                    )));
                }
                _ => return Err(ambiguous(output, candidates)),
            }
        }
        Ok(owners)
    }
}

fn ambiguous(output: usize, candidates: &[ValueId]) -> Error {
    const MAX: usize = 3;
    let first = candidates.iter().take(MAX).map(ValueId::to_string).collect::<Vec<_>>().join(", ");
    let more = if candidates.len() > MAX { ", .." } else { "" };
    Error::Unsupported(format!(
        "output {output} updates one of constants {first}{more}, which match equally; {WAY_OUT}"
    ))
}

/// Maps each view to the value that it views.
struct Views(BTreeMap<ValueId, ValueId>);

impl Views {
    fn of(graph: &Graph<'_>) -> Self {
        let views = graph.nodes.iter().filter(|node| node.operator.traits().is_view);
        Views(views.filter_map(|node| Some((*node.args.last()?, *node.args.first()?))).collect())
    }

    /// Returns a value and, transitively, all values that it views.
    fn chain(&self, id: ValueId) -> impl Iterator<Item = ValueId> + '_ {
        // Bounded, because views of a damaged file may form a cycle.
        let steps = core::iter::successors(Some(id), |id| self.0.get(id).copied());
        steps.take(self.0.len() + 1)
    }
}

/// Checks that only constants are prepacked.
///
/// # Errors
/// Another value is prepacked. The exporter writes the new value of one buffer in place of another
/// buffer's contents if it is that buffer's old value.
pub(super) fn check_prepacked(graph: &Graph<'_>) -> Result<(), Error> {
    for node in graph.nodes.iter().filter(|node| node.operator == Operator::ET_VK_PREPACK) {
        let id = node.args.first().copied().unwrap_or(usize::MAX);
        if !matches!(graph.values.get(id), Some(Value::Tensor(Tensor { data: Some(_), .. }))) {
            return Err(Error::Unsupported(format!(
                "value {id} is prepacked, but not a constant: the exporter lost a buffer whose old \
                 value becomes another buffer's new value; compute that new value in the model"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;
    use alloc::borrow::Cow;
    use alloc::vec;
    use torchlet_core::ScalarType;

    /// Builds a graph of prepacked constants (size and `changes` each), followed by their prepacked
    /// copies and other values of the given sizes.
    fn graph(constants: &[(usize, Option<bool>)], values: &[usize]) -> Graph<'static> {
        let tensor = |size: usize, changes: Option<bool>, is_constant: bool| {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: vec![size],
                dynamic: false,
                data: is_constant.then(|| Cow::Owned(vec![0; 4 * size])),
                changes,
            })
        };
        let mut graph = Graph::default();
        graph.values.extend(constants.iter().map(|(size, changes)| tensor(*size, *changes, true)));
        graph.values.extend(constants.iter().map(|(size, _)| tensor(*size, None, false)));
        graph.values.extend(values.iter().map(|size| tensor(*size, None, false)));
        for id in 0..constants.len() {
            call(&mut graph, Operator::ET_VK_PREPACK, &[id, constants.len() + id]);
        }
        graph
    }

    fn call(graph: &mut Graph<'_>, operator: Operator, args: &[ValueId]) {
        graph.nodes.push(Node::new(operator, args.to_vec()));
    }

    #[test]
    fn the_only_buffer_of_a_shape_is_found() {
        let mut graph = graph(&[(4, None), (5, None), (4, Some(false))], &[5, 4, 4]);
        graph.outputs = vec![6, 7, 8];
        let buffers = Buffers::of(&graph).unwrap();
        assert_eq!(buffers.owners(2).unwrap(), [1, 0]);
        // The third output fits only the buffer that the second output already updates.
        assert!(buffers.owners(3).is_err());
        assert!(buffers.changing() == BTreeSet::from([0, 1]));
        assert_eq!(buffers.fewest(), 0);
    }

    #[test]
    fn of_two_buffers_none_is_chosen() {
        let mut graph = graph(&[(4, None), (4, None)], &[4, 4]);
        graph.outputs = vec![4, 5];
        let buffers = Buffers::of(&graph).unwrap();
        assert!(buffers.can_own(1));
        let error = buffers.owners(1).unwrap_err().to_string();
        assert!(error.contains("constants 0, 1"), "{error}");
        // The message is short enough that the remedy is not cut off.
        let Error::Unsupported(told) = ambiguous(99, &[123_456; 5]) else { panic!() };
        assert!(told.ends_with(WAY_OUT) && told.len() <= 160, "{told}");
    }

    #[test]
    fn what_is_certain_is_refused_at_once() {
        let mut two = graph(&[(4, Some(true)), (4, None)], &[4, 4]);
        two.outputs = vec![4, 5];
        assert!(Buffers::of(&two).unwrap_err().to_string().contains("constants 0, 1"));
        let mut none = graph(&[(4, Some(true))], &[5]);
        none.outputs = vec![2];
        assert!(Buffers::of(&none).unwrap_err().to_string().contains("no output"));
        let mut one = graph(&[(4, Some(true)), (4, Some(false))], &[4, 5]);
        one.outputs = vec![4, 5];
        let buffers = Buffers::of(&one).unwrap();
        assert_eq!((buffers.fewest(), buffers.owners(1).unwrap()), (1, vec![0]));
    }

    #[test]
    fn buffers_that_calls_name_are_no_candidates() {
        let mut graph = graph(&[(4, None), (4, None)], &[4, 4]);
        graph.outputs = vec![4, 5];
        graph.updates = vec![(4, 2)];
        let buffers = Buffers::of(&graph).unwrap();
        assert!(buffers.changing().is_superset(&BTreeSet::from([0, 2])));
        assert_eq!(buffers.owners(1).unwrap(), [1]);
        call(&mut graph, Operator::UPDATE_CACHE, &[5, 3, 4]);
        let buffers = Buffers::of(&graph).unwrap();
        assert!(buffers.changing().contains(&1));
        assert!(!buffers.can_own(1));
    }

    #[test]
    fn constants_that_are_outputs_are_no_new_values() {
        // Each constant could be the new value of the other.
        let mut graph = graph(&[(4, Some(true)), (4, Some(true))], &[4]);
        graph.outputs = vec![0, 1];
        let buffers = Buffers::of(&graph).unwrap();
        assert_eq!(buffers.fewest(), 0);
        assert!(!buffers.can_own(1));
    }

    #[test]
    fn an_output_is_not_its_own_new_value() {
        let mut graph = graph(&[(4, None)], &[4]);
        graph.outputs = vec![1, 2];
        let buffers = Buffers::of(&graph).unwrap();
        assert!(!buffers.can_own(1));
    }

    #[test]
    fn only_constants_are_prepacked() {
        let mut graph = graph(&[(4, None)], &[4]);
        assert!(check_prepacked(&graph).is_ok());
        call(&mut graph, Operator::ET_VK_PREPACK, &[1, 2]);
        assert!(check_prepacked(&graph).unwrap_err().to_string().contains("value 1"));
    }

    #[test]
    fn views_in_a_circle_end() {
        let mut graph = graph(&[(4, None)], &[4, 4]);
        call(&mut graph, Operator::CLONE, &[2, 3]);
        call(&mut graph, Operator::CLONE, &[3, 2]);
        graph.outputs = vec![2];
        assert!(Buffers::of(&graph).unwrap().can_own(1));
    }
}
