//! Decides which graphs a device can run, by encoding them without the device.

use crate::device::{DeviceFeatures, Limits};
use crate::encode::encode;
use crate::error::Error;
use crate::ops;
use crate::state::State;
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::bounds::Bounds;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::Operator;

/// Whether calls of an operator can be encoded, on some device and for some arguments.
pub fn supports(operator: Operator) -> bool {
    ops::find(operator).is_some()
}

/// The device properties that decide which graphs it can run.
#[derive(Debug, Clone, Default)]
pub struct Support {
    features: DeviceFeatures,
    limits: Limits,
}

impl Support {
    /// Creates the support of a device with these features and limits.
    pub fn new(features: DeviceFeatures, limits: Limits) -> Self {
        Support { features, limits }
    }

    /// Checks whether the device can run a whole graph as one delegate.
    ///
    /// # Errors
    /// The reason why the device cannot run the graph, as text for the user.
    pub fn runs(&self, graph: &Graph<'_>) -> Result<(), String> {
        self.encoded(graph, &|_| true).map_err(|error| error.to_string())
    }

    /// Encodes a graph as its delegate would, and checks that the `wanted` outputs are computed.
    fn encoded(&self, graph: &Graph<'_>, wanted: &dyn Fn(ValueId) -> bool) -> Result<(), Error> {
        let constants = graph.values.iter().enumerate().filter_map(|(id, value)| match value {
            Value::Tensor(Tensor { data: Some(_), changes: Some(true), .. }) => Some(id),
            _ => None,
        });
        let changing: HashSet<ValueId> = constants.collect();
        let mut state = State::new(graph, changing)?;
        state.features = self.features.clone();
        state.limits = self.limits.clone();
        let (steps, _) = encode(graph, &mut state, true)?;
        let accesses = steps.iter().flat_map(|step| &step.accesses);
        let written: HashSet<ValueId> = accesses
            .filter(|access| access.written)
            .map(|access| state.root(access.tensor))
            .collect();
        for id in graph.outputs.iter().copied().filter(|id| wanted(*id)) {
            let Some(Value::Tensor(tensor)) = graph.values.get(id) else { continue };
            let root = state.root(id);
            let is_there = root != id || tensor.data.is_some() || graph.inputs.contains(&id);
            if !is_there && !written.contains(&root) && state.tensor(id)?.numel() > 0 {
                return Err(Error::unsupported("an output that the GPU kernels do not compute"));
            }
        }
        // The resulting shapes must match those that other calls expect.
        for id in graph.nodes.iter().filter_map(|node| node.args.last()) {
            for id in graph.items(id) {
                if let Some(Value::Tensor(tensor)) = graph.values.get(*id)
                    && !tensor.dynamic
                    && state.tensor(*id)?.sizes != tensor.sizes
                {
                    let (found, expected) = (&state.tensor(*id)?.sizes, &tensor.sizes);
                    return Err(Error::Invalid(format!(
                        "output: expected shape {expected:?}, computed {found:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks whether the device can run a single call.
    ///
    /// # Errors
    /// The reason why the device cannot run the call, as text for the user.
    pub fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String> {
        self.check(graph, &Facts::of(graph), node)
    }

    /// Checks each call of a graph, as [`accepts`](Self::accepts) does.
    pub fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        let facts = Facts::of(graph);
        graph.nodes.iter().map(|node| self.check(graph, &facts, node)).collect()
    }

    fn check(&self, graph: &Graph<'_>, facts: &Facts, node: &Node) -> Result<(), String> {
        if ops::find(node.operator).is_none() {
            return Err(format!("operator {} without a GPU kernel", node.operator.name()));
        }
        check_types(graph, &facts.bounds, node)?;
        let (mut single, ids) = alone(graph, node);
        let wanted = |id: ValueId| ids.get(id).is_some_and(|id| facts.used.contains(id));
        let Err(error) = self.encoded(&single, &wanted) else { return Ok(()) };
        // Large weights are split, as when the graph is loaded.
        match crate::passes::cut(&mut single, &self.limits) {
            0 => Err(error.to_string()),
            _ => self.encoded(&single, &wanted).map_err(|error| error.to_string()),
        }
    }
}

/// Analysis results for a whole graph.
struct Facts {
    bounds: Bounds,
    /// The values that calls or the caller read.
    used: HashSet<ValueId>,
}

impl Facts {
    fn of(graph: &Graph<'_>) -> Self {
        let mut used: HashSet<ValueId> = graph.outputs.iter().copied().collect();
        used.extend(graph.updates.iter().map(|(new, _)| *new));
        let taken = graph.nodes.iter().filter_map(|node| node.args.split_last());
        for id in taken.flat_map(|(_, inputs)| inputs) {
            used.insert(*id);
            if let Some(Value::List(items)) = graph.values.get(*id) {
                used.extend(items);
            }
        }
        Facts { bounds: Bounds::of(graph), used }
    }
}

/// Whether an operator computes in floating point for all types. Its results are exact only for
/// integers up to 2^24.
fn computes_in_floats(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::SUM_DIM_INT_LIST
            | Operator::PROD
            | Operator::PROD_DIM_INT
            | Operator::AMAX
            | Operator::AMIN
            | Operator::MAX
            | Operator::MIN
            | Operator::MAX_DIM
            | Operator::MIN_DIM
            | Operator::ARGMAX
            | Operator::ARGMIN
    )
}

/// Whether an operator loses precision for large angles.
fn is_periodic(operator: Operator) -> bool {
    matches!(operator, Operator::SIN | Operator::COS | Operator::TAN)
}

/// Rejects tensors whose elements would lose precision in the types that shaders compute in.
fn check_types(graph: &Graph<'_>, bounds: &Bounds, node: &Node) -> Result<(), String> {
    let Some(last) = node.args.len().checked_sub(1) else { return Ok(()) };
    for (position, arg) in node.args.iter().enumerate() {
        for id in graph.items(arg) {
            let Some(Value::Tensor(tensor)) = graph.values.get(*id) else { continue };
            let is_integer = matches!(tensor.scalar_type, ScalarType::Int | ScalarType::Long);
            if is_integer && computes_in_floats(node.operator) {
                let exact = |(low, high): (i64, i64)| low >= -(1 << 24) && high <= 1 << 24;
                if !bounds.interval(*id).is_some_and(exact) {
                    return Err(
                        "a reduction of integers that may exceed 2^24, inexact in 32-bit floats"
                            .to_owned(),
                    );
                }
            }
            if is_integer && is_periodic(node.operator) {
                let near = |(low, high): (i64, i64)| low > -(1 << 16) && high < 1 << 16;
                if !bounds.interval(*id).is_some_and(near) {
                    return Err("a function of integer angles that may exceed 2^16, inexact in \
                                32-bit floats"
                        .to_owned());
                }
            }
            match tensor.scalar_type {
                ScalarType::Double => {
                    return Err("64-bit floating point in shaders".to_owned());
                }
                ScalarType::Long => {
                    // A 64-bit result may saturate to 32 bits if it is derived from an index and
                    // used only as an index.
                    let tolerates = match position == last {
                        true => {
                            bounds.tolerates_saturation(*id) && moves_indices(graph, bounds, node)
                        }
                        false => bounds.argument_tolerates(graph, node, position),
                    };
                    if !bounds.fits_32_bits(*id) && !tolerates {
                        let what = if position == last { "the output" } else { "an argument" };
                        return Err(format!("{what} with integers that may exceed 32 bits"));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether the elements of a call's output come from an argument with indices, which may be
/// saturated.
fn moves_indices(graph: &Graph<'_>, bounds: &Bounds, node: &Node) -> bool {
    bounds.argument_tolerates(graph, node, 0)
        && matches!(
            node.args.first().and_then(|id| graph.values.get(*id)),
            Some(Value::Tensor(_) | Value::List(_))
        )
}

/// Extracts a single call as a graph of its own. Also returns the original id of each value.
/// Constants are borrowed.
fn alone<'g>(graph: &'g Graph<'_>, node: &Node) -> (Graph<'g>, Vec<ValueId>) {
    let mut single = Graph::default();
    let mut known = HashMap::new();
    let node = taken(graph, node, &mut single, &mut known);
    let out = node.args.last().copied();
    single.nodes.push(node);
    let made = out.map_or(Vec::new(), |out| single.items(&out).to_vec());
    let enters = |value: &Value<'_>| match value {
        Value::Tensor(tensor) => tensor.data.is_none(),
        Value::SymInt(_) => true,
        _ => false,
    };
    let values = single.values.iter().enumerate();
    let inputs = values.filter(|(id, value)| enters(value) && !made.contains(id));
    single.inputs = inputs.map(|(id, _)| id).collect();
    single.outputs = made;
    let mut ids = vec![usize::MAX; single.values.len()];
    for (id, copy) in known {
        if let Some(slot) = ids.get_mut(copy) {
            *slot = id;
        }
    }
    (single, ids)
}

/// Copies a call into another graph, with its values. `known` maps the values that are copied
/// already.
fn taken<'g>(
    graph: &'g Graph<'_>,
    node: &Node,
    single: &mut Graph<'g>,
    known: &mut HashMap<ValueId, ValueId>,
) -> Node {
    let parts = node.parts.iter().map(|part| taken(graph, part, single, known)).collect();
    let args = node.args.iter().map(|id| copied(graph, *id, single, known)).collect();
    Node { parts, ..Node { id: node.id, ..Node::new(node.operator, args) } }
}

fn copied<'g>(
    graph: &'g Graph<'_>,
    id: ValueId,
    single: &mut Graph<'g>,
    known: &mut HashMap<ValueId, ValueId>,
) -> ValueId {
    if let Some(copy) = known.get(&id) {
        return *copy;
    }
    let value = match graph.values.get(id) {
        Some(Value::List(items)) => {
            // Nested lists do not occur.
            let plain = |id: &&ValueId| !matches!(graph.values.get(**id), Some(Value::List(_)));
            let items = items.iter().filter(plain);
            Value::List(items.map(|id| copied(graph, *id, single, known)).collect())
        }
        Some(other) => other.borrowed(),
        None => Value::None,
    };
    single.values.push(value);
    known.insert(id, single.values.len() - 1);
    single.values.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn tensor(scalar_type: ScalarType, sizes: &[usize]) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes: sizes.to_vec(),
            dynamic: false,
            data: None,
            changes: None,
        })
    }

    /// Returns the error for the only call of a graph, whose output is its last value; empty if
    /// accepted.
    fn answer(operator: Operator, values: Vec<Value<'static>>, args: &[ValueId]) -> String {
        let mut graph = Graph { values, ..Graph::default() };
        let node = Node::new(operator, args.to_vec());
        graph.outputs = args.last().map_or(Vec::new(), |out| graph.items(out).to_vec());
        graph.nodes.push(node.clone());
        let answer = Support::default().accepts(&graph, &node);
        answer.err().unwrap_or_default()
    }

    #[test]
    fn supported_operators_are_accepted() {
        let float = || tensor(ScalarType::Float, &[2, 3]);
        assert_eq!(answer(Operator::ABS, vec![float(), float()], &[0, 1]), "");
        let message = answer(Operator::NONZERO, vec![float(), float()], &[0, 1]);
        assert!(
            message.contains("operator aten.nonzero.default without a GPU kernel"),
            "{message}"
        );
        // A program whose shapes contradict the operator is rejected.
        let message =
            answer(Operator::ABS, vec![float(), tensor(ScalarType::Float, &[3, 2])], &[0, 1]);
        assert!(message.contains("[3, 2]"), "{message}");
    }

    #[test]
    fn weights_beyond_the_binding_limit_are_cut() {
        let (rows, width) = (40_000, 1024);
        let weights = vec![0; rows * width * 4];
        let constant = Value::Tensor(Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: vec![rows, width],
            dynamic: false,
            data: Some(Cow::Borrowed(&weights)),
            changes: Some(false),
        });
        let values = vec![
            tensor(ScalarType::Long, &[1, 2]),
            constant,
            Value::Int(-1),
            Value::Bool(false),
            tensor(ScalarType::Float, &[1, 2, width]),
            Value::None,
            tensor(ScalarType::Float, &[1, 2, rows]),
        ];
        let nodes = vec![
            Node::new(Operator::EMBEDDING, vec![1, 0, 2, 3, 3, 4]),
            Node::new(Operator::LINEAR, vec![4, 1, 5, 6]),
        ];
        let (inputs, outputs) = (vec![0], vec![6]);
        let mut graph = Graph { values, nodes, inputs, outputs, ..Graph::default() };
        let device = Support::default();
        let message = device.runs(&graph).unwrap_err();
        assert!(message.contains("163840000 bytes"), "{message}");
        assert_eq!(device.accepts_each(&graph), [Ok(()), Ok(())], "in pieces");
        assert_eq!(crate::passes::cut(&mut graph, &device.limits), 2);
        assert_eq!(device.runs(&graph), Ok(()));

        // Quantized 8-bit weights with one scale per row.
        let (rows, width) = (200_000, 1024);
        let constant = |scalar_type: ScalarType, sizes: &[usize]| {
            let mut value = tensor(scalar_type, sizes);
            if let Value::Tensor(tensor) = &mut value {
                let bytes = sizes.iter().product::<usize>() * scalar_type.size();
                (tensor.data, tensor.changes) = (Some(Cow::Owned(vec![0; bytes])), Some(false));
            }
            value
        };
        let values = vec![
            tensor(ScalarType::Half, &[1, 2, width]),
            constant(ScalarType::Char, &[rows, width]),
            constant(ScalarType::Half, &[rows]),
            Value::None,
            tensor(ScalarType::Half, &[1, 2, rows]),
        ];
        let nodes = vec![Node::new(Operator::ET_VK_LINEAR_Q8CSW, vec![0, 1, 2, 3, 4])];
        let mut graph =
            Graph { values, inputs: vec![0], nodes, outputs: vec![4], ..Graph::default() };
        assert!(device.runs(&graph).is_err());
        assert_eq!(crate::passes::cut(&mut graph, &device.limits), 1);
        assert_eq!(device.runs(&graph), Ok(()));
    }

    #[test]
    fn uncomputed_outputs_are_rejected_if_used() {
        let values = || {
            let float = |sizes: &[usize]| tensor(ScalarType::Float, sizes);
            vec![
                float(&[2, 3]),
                Value::IntList(vec![3]),
                Value::None,
                Value::Double(1e-5),
                float(&[2, 3]),
                float(&[2, 1]),
                float(&[2, 1]),
                Value::List(vec![4, 5, 6]),
            ]
        };
        let args = [0, 1, 2, 2, 3, 7];
        let message = answer(Operator::NATIVE_LAYER_NORM, values(), &args);
        assert!(message.contains("an output that the GPU kernels do not compute"), "{message}");
        let mut graph = Graph { values: values(), outputs: vec![4], ..Graph::default() };
        graph.nodes.push(Node::new(Operator::NATIVE_LAYER_NORM, args.to_vec()));
        assert_eq!(Support::default().accepts_each(&graph), [Ok(())]);
    }

    #[test]
    fn wide_types_are_accepted_if_lossless() {
        let long = || tensor(ScalarType::Long, &[4]);
        let message = answer(Operator::NEG, vec![long(), long()], &[0, 1]);
        assert!(message.contains("may exceed 32 bits"), "{message}");
        let clamp = |high: i64| {
            let values = vec![long(), Value::Int(i32::MIN.into()), Value::Int(high), long()];
            answer(Operator::CLAMP, values, &[0, 1, 2, 3])
        };
        assert_eq!(clamp(i32::MAX.into()), "");
        assert!(clamp(i64::from(i32::MAX) + 1).contains("may exceed 32 bits"));
        let weight = tensor(ScalarType::Float, &[9, 2]);
        let values = vec![weight, long(), tensor(ScalarType::Float, &[4, 2])];
        assert_eq!(answer(Operator::EMBEDDING, values, &[0, 1, 2]), "");
        let values =
            vec![tensor(ScalarType::Float, &[4]), tensor(ScalarType::Long, &[]), Value::None];
        assert_eq!(answer(Operator::ARGMAX, values, &[0, 2, 1]), "");
        let double = || tensor(ScalarType::Double, &[4]);
        let message = answer(Operator::NEG, vec![double(), double()], &[0, 1]);
        assert!(message.contains("64-bit floating point"), "{message}");
    }

    /// A pseudo-random generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % limit as u64) as usize
        }

        fn of<T: Copy>(&mut self, choices: &[T]) -> T {
            choices[self.below(choices.len())]
        }

        fn number(&mut self) -> i64 {
            self.of(&[0, 1, 2, 3, -1, -2, 4, 7, i64::MAX, i64::MIN, 1 << 31, 1 << 40, -(1 << 33)])
        }

        fn value(&mut self, values: usize) -> Value<'static> {
            use ScalarType::{Bool, Byte, Char, Float, Half, Int, Long};
            match self.below(12) {
                0 => Value::None,
                1 => Value::Int(self.number()),
                2 => Value::Double(self.of(&[0.0, 1.0, -1.5, f64::NAN, f64::INFINITY, 1e300])),
                3 => Value::Bool(self.below(2) == 0),
                4 => Value::String(self.of(&["none", "tanh", "floor", ""]).to_owned()),
                5 => Value::IntList((0..self.below(5)).map(|_| self.number()).collect()),
                6 => Value::List((0..self.below(4)).map(|_| self.below(values)).collect()),
                7 => Value::SymInt(self.number()),
                _ => {
                    let types = [Float, Float, Float, Half, Int, Long, Byte, Char, Bool];
                    let choices = [1, 2, 3, 4, 0, 1, 2, 3, 4, 1 << 16, i32::MAX as usize];
                    let mut sizes: Vec<usize> =
                        (0..self.below(6)).map(|_| self.of(&choices)).collect();
                    // Parsed sizes always fit into memory.
                    let counted = |size: &usize| (*size).max(1);
                    while sizes.iter().map(counted).fold(8, usize::saturating_mul) > 1 << 62 {
                        sizes.pop();
                    }
                    let mut value = tensor(self.of(&types), &sizes);
                    if let Value::Tensor(tensor) = &mut value {
                        let numel = sizes.iter().fold(1usize, |a, b| a.saturating_mul(*b));
                        let bytes = numel.saturating_mul(tensor.scalar_type.size());
                        if bytes < 4096 && self.below(3) == 0 {
                            tensor.data = Some(vec![self.below(256) as u8; bytes].into());
                        }
                    }
                    value
                }
            }
        }
    }

    #[test]
    fn random_graphs_do_not_panic() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut taken = 0;
        for operator in Operator::all().filter(|operator| ops::find(*operator).is_some()) {
            for _ in 0..400 {
                let count = 2 + random.below(12);
                let values = (0..24).map(|_| random.value(24)).collect();
                let mut graph = Graph { values, ..Graph::default() };
                let args = (0..count).map(|_| random.below(24)).collect();
                let mut node = Node::new(operator, args);
                let fused = [
                    Operator::CHAIN,
                    Operator::EPILOGUE,
                    Operator::GATED,
                    Operator::NORMED_SUM,
                    Operator::SEPARABLE,
                ];
                if fused.contains(&operator) {
                    let parts: &[Operator] = match operator {
                        Operator::SEPARABLE => {
                            &[Operator::CONVOLUTION, Operator::RELU, Operator::CONVOLUTION]
                        }
                        Operator::NORMED_SUM => {
                            &[Operator::ADD_TENSOR, Operator::NATIVE_LAYER_NORM]
                        }
                        _ => &[Operator::MM, Operator::ADD_TENSOR, Operator::RELU],
                    };
                    let part = |operator: &Operator| Node::new(*operator, node.args.clone());
                    node.parts = parts.iter().map(part).collect();
                }
                graph.nodes.push(node.clone());
                let target = Support::default();
                taken += usize::from(target.runs(&graph).is_ok());
                let _ = target.accepts(&graph, &node);
            }
        }
        assert!(taken > 100, "{taken}");
    }
}
