//! Graph passes that run before encoding; most of them fuse calls.

mod chain;
mod channels_last;
mod codes;
mod dynamic;
mod flatten;
mod gated;
mod image_layout;
mod layouts;
mod normed_sum;
mod prefixes;
mod prologue;
mod recurrent;
mod rotary;
mod rounded_state;
mod separable;
mod silu;

use crate::device::{DeviceFeatures, Limits};
use crate::ops;
use crate::tensors::{Operand, element_of, padded_bytes};
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::FusedForms;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::passes::{epilogue, pieces};

/// Rewrites a delegate's graph into an equivalent one with fewer calls. This runs at load time, so
/// traces show the rewritten calls.
pub fn run(graph: &mut Graph<'_>) {
    rounded_state::round(graph);
    dynamic::split(graph);
    codes::keep(graph);
    channels_last::run(graph);
    prefixes::share(graph);
    recurrent::fuse(graph);
    silu::fuse(graph);
    rotary::fuse(graph);
    flatten::run(graph);
    gated::fuse(graph);
    epilogue::run(graph, &ShaderForms);
    separable::fuse(graph);
    normed_sum::fuse(graph);
    chain::fuse(graph);
    prologue::fuse(graph);
}

/// Splits each call whose weights exceed the device's limit on the bytes that a shader can bind.
/// Returns the number of split calls.
pub(crate) fn cut(graph: &mut Graph<'_>, limits: &Limits) -> usize {
    let most = usize::try_from(limits.tensor).unwrap_or(usize::MAX);
    pieces::run(graph, most, &mut |graph, node| {
        let ids = node.args.iter().flat_map(|id| graph.items(id));
        ids.filter_map(|id| graph.values.get(*id)).all(|value| match value {
            Value::Tensor(tensor) => {
                let numel =
                    tensor.sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
                let element = element_of(tensor.scalar_type);
                let bytes = |numel| element.map(|element| padded_bytes(element, numel));
                numel.is_some_and(|numel| bytes(numel).is_ok_and(|bytes| bytes <= limits.tensor))
            }
            _ => true,
        })
    })
}

/// Converts quantized convolutions to channels-last layout, on devices that compute in it.
pub(crate) fn to_channels_last(graph: &mut Graph<'_>, features: &DeviceFeatures, limits: &Limits) {
    image_layout::run(graph, limits.tensor, |graph, node| {
        ops::suited(graph, node, features, limits)
    });
}

/// Returns the number of calls that read each value, directly or through lists. A value that is a
/// graph output or the new value of an update has one more reader.
fn uses(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    for node in &graph.nodes {
        let mut taken: Vec<ValueId> = Vec::new();
        let Some((_, args)) = node.args.split_last() else { continue };
        for id in args {
            taken.push(*id);
            if let Some(Value::List(items)) = graph.values.get(*id) {
                taken.extend(items);
            }
        }
        taken.sort_unstable();
        taken.dedup();
        for id in taken {
            *uses.entry(id).or_insert(0) += 1;
        }
    }
    for id in graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)) {
        *uses.entry(*id).or_insert(0) += 1;
    }
    uses
}

/// Removes the calls at these indices.
fn remove(graph: &mut Graph<'_>, gone: &HashSet<usize>) {
    let mut indices = 0..;
    graph.nodes.retain(|_| indices.next().is_none_or(|index| !gone.contains(&index)));
}

/// Returns the index of each value's producer.
fn producer_indices(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let nodes = graph.nodes.iter().enumerate();
    nodes.filter_map(|(index, node)| Some((*node.args.last()?, index))).collect()
}

/// The producers of values and the number of their readers.
struct Producers<'g, 'p> {
    graph: &'g Graph<'p>,
    producers: HashMap<ValueId, usize>,
    uses: HashMap<ValueId, usize>,
}

impl<'g, 'p> Producers<'g, 'p> {
    fn of(graph: &'g Graph<'p>) -> Self {
        Producers { graph, producers: producer_indices(graph), uses: uses(graph) }
    }

    /// Returns the producer of a value that has exactly `times` readers, and its index.
    fn producer_with_uses(&self, id: ValueId, times: usize) -> Option<(usize, &'g Node)> {
        let index = *self.producers.get(&id).filter(|_| self.uses.get(&id) == Some(&times))?;
        Some((index, self.graph.nodes.get(index)?))
    }
}

/// The fused calls that shaders support.
struct ShaderForms;

impl FusedForms for ShaderForms {
    fn has_epilogue(&self, graph: &Graph<'_>, contraction: &Node) -> bool {
        let unbounded = |id: &ValueId| match graph.values.get(*id) {
            Some(Value::None) => true,
            Some(Value::Double(bound)) => bound.is_infinite(),
            _ => false,
        };
        let bounds = ops::ConvolutionCall::of(contraction).and_then(|call| call.bounds);
        ops::find(contraction.operator).is_some_and(|operator| operator.takes_epilogue)
            && contraction.args.last().is_some_and(|out| floating(graph, *out).is_some())
            && bounds.is_none_or(|bounds| bounds.iter().all(unbounded))
    }

    fn is_activation(&self, _: &Graph<'_>, node: &Node) -> bool {
        ops::find(node.operator).is_some_and(|operator| operator.is_activation)
    }
}

/// Returns the tensor of a value, if shaders compute with it in floating point.
fn floating(graph: &Graph<'_>, id: ValueId) -> Option<Operand> {
    let Some(Value::Tensor(tensor)) = graph.values.get(id) else { return None };
    let types = [
        ScalarType::Float,
        ScalarType::Half,
        ScalarType::BFloat16,
        ScalarType::Double,
        ScalarType::Bool,
    ];
    if !types.contains(&tensor.scalar_type) {
        return None;
    }
    let element = element_of(tensor.scalar_type).ok()?;
    Some(Operand { id, value: id, element, sizes: tensor.sizes.clone() })
}

#[cfg(test)]
mod tests {
    use crate::ops::MAX_STAGES;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
    use torchlet_graph::operators::Operator;

    /// Builds a graph of calls `(operator, inputs, output)` over tensors of these shapes. The value
    /// with the next id is the integer 1, and the value after it is `None`.
    fn graph(
        shapes: &[&[usize]],
        calls: &[(Operator, &[ValueId], ValueId)],
        outputs: &[ValueId],
    ) -> Graph<'static> {
        let tensor = |sizes: &&[usize]| {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Float,
                host_type: ScalarType::Float,
                sizes: sizes.to_vec(),
                dynamic: false,
                data: None,
                changes: None,
            })
        };
        let mut values: Vec<Value<'_>> = shapes.iter().map(tensor).collect();
        values.extend([Value::Int(1), Value::None]);
        let nodes = calls
            .iter()
            .map(|(operator, inputs, out)| Node::new(*operator, [inputs, &[*out][..]].concat()));
        let nodes = nodes.collect();
        Graph { values, nodes, inputs: vec![0], outputs: outputs.to_vec(), ..Graph::default() }
    }

    fn operators(graph: &Graph<'_>) -> Vec<Operator> {
        graph.nodes.iter().map(|node| node.operator).collect()
    }

    fn parts(node: &Node) -> Vec<Operator> {
        node.parts.iter().map(|part| part.operator).collect()
    }

    /// In a file, nothing ensures that the readers of a prologue compute it.
    #[test]
    fn prologues_of_files_become_norms() {
        let calls: &[(Operator, &[ValueId], ValueId)] =
            &[(Operator::RMS_NORM_PROLOGUE, &[0, 1, 4], 2), (Operator::ABS, &[2], 3)];
        let shapes: &[&[usize]] = &[&[2, 1024], &[1024], &[2, 1024], &[2, 1024]];
        let mut graph = graph(shapes, calls, &[3]);
        super::prologue::fuse(&mut graph);
        assert_eq!(operators(&graph), [Operator::ET_VK_RMS_NORM, Operator::ABS]);
    }

    const SHAPE: &[usize] = &[2, 3];

    #[test]
    fn consecutive_calls_become_a_chain() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::SIGMOID, &[0], 2),
            (Operator::MUL_TENSOR, &[1, 2], 3),
            (Operator::ADD_TENSOR, &[3, 1, 5], 4),
        ];
        let mut graph = graph(&[SHAPE, &[3], SHAPE, SHAPE, SHAPE], calls, &[4]);
        super::run(&mut graph);
        assert_eq!(operators(&graph), [Operator::CHAIN]);
        assert_eq!(graph.nodes[0].parts.len(), 3);
        assert_eq!(graph.nodes[0].args.last(), Some(&4));
        let mut inputs = graph.nodes[0].args[..2].to_vec();
        inputs.sort_unstable();
        assert_eq!(inputs, [0, 1]);
    }

    #[test]
    fn shared_results_become_second_outputs() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::SIGMOID, &[0], 1),
            (Operator::ABS, &[1], 2),
            (Operator::NEG, &[1], 3),
            (Operator::MUL_TENSOR, &[2, 3], 4),
        ];
        // Both branches are fused, including their shared input.
        let mut both = graph(&[SHAPE; 5], calls, &[4]);
        super::run(&mut both);
        assert_eq!(operators(&both), [Operator::CHAIN]);
        // A result that is also an output is written by the chain, which supports one such result.
        let mut output = graph(&[SHAPE; 5], calls, &[2, 4]);
        super::run(&mut output);
        assert_eq!(operators(&output), [Operator::CHAIN; 2]);
        let outputs = output.nodes.iter().map(|node| output.items(node.args.last().unwrap()));
        assert_eq!(outputs.collect::<Vec<_>>(), [&[1, 2][..], &[4]]);
    }

    /// An LSTM cell. Value ids: 0 to 3 are the gates, 4 the old state, 10 the new state, 12 the
    /// output.
    #[test]
    fn lstm_cell_becomes_one_chain() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::SIGMOID, &[0], 5),
            (Operator::SIGMOID, &[1], 6),
            (Operator::TANH, &[2], 7),
            (Operator::MUL_TENSOR, &[6, 4], 8),
            (Operator::MUL_TENSOR, &[5, 7], 9),
            (Operator::ADD_TENSOR, &[8, 9, 15], 10),
            (Operator::SIGMOID, &[3], 11),
            (Operator::TANH, &[10], 13),
            (Operator::MUL_TENSOR, &[11, 13], 12),
        ];
        let mut cell = graph(&[SHAPE; 14], calls, &[10, 12]);
        super::run(&mut cell);
        assert_eq!(operators(&cell), [Operator::CHAIN]);
        assert_eq!(cell.items(cell.nodes[0].args.last().unwrap()), [10, 12]);
        // The calls are not fused across a call that reads the state earlier.
        let mut calls = calls.to_vec();
        calls.insert(6, (Operator::MM, &[10, 10], 11));
        calls[7] = (Operator::SIGMOID, &[11], 11);
        let mut read = graph(&[SHAPE; 14], &calls, &[10, 12]);
        super::run(&mut read);
        let places = operators(&read);
        assert_eq!(places, [Operator::CHAIN, Operator::MM, Operator::CHAIN]);
    }

    #[test]
    fn chain_length_is_limited() {
        let calls: Vec<(Operator, [ValueId; 1], ValueId)> =
            (0..8).map(|at| (Operator::ABS, [at], at + 1)).collect();
        let calls: Vec<(Operator, &[ValueId], ValueId)> =
            calls.iter().map(|(name, inputs, out)| (*name, &inputs[..], *out)).collect();
        let mut long = graph(&[SHAPE; 9], &calls, &[8]);
        super::run(&mut long);
        let parts: Vec<usize> = long.nodes.iter().map(|node| node.parts.len().max(1)).collect();
        assert_eq!(parts.iter().sum::<usize>(), 8);
        assert!(parts.iter().all(|parts| *parts <= MAX_STAGES), "{parts:?}");
    }

    #[test]
    fn nothing_moves_across_a_write() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::ABS, &[0], 1),
            (Operator::UPDATE_CACHE, &[2, 0], 3),
            (Operator::NEG, &[1], 4),
        ];
        let mut graph = graph(&[SHAPE; 5], calls, &[4]);
        super::run(&mut graph);
        assert_eq!(graph.nodes.len(), 3);
    }

    #[test]
    fn gemm_fuses_residual_and_activation() {
        // Calls are fused through a view and with the operands in this order, but without a second
        // sum.
        let flat: &[usize] = &[6];
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::MM, &[0, 1], 2),
            (Operator::VIEW_COPY, &[2, 8], 3),
            (Operator::ADD_TENSOR, &[4, 3, 8], 5),
            (Operator::RELU, &[5], 6),
            (Operator::ADD_TENSOR, &[6, 4, 8], 7),
        ];
        let mut graph = graph(&[SHAPE, &[3, 3], SHAPE, flat, flat, flat, flat, flat], calls, &[7]);
        super::run(&mut graph);
        let expected =
            [Operator::EPILOGUE, Operator::VIEW_COPY, Operator::ALIAS_COPY, Operator::ALIAS_COPY];
        assert_eq!(operators(&graph)[..4], expected);
        assert_eq!(parts(&graph.nodes[0]), [Operator::MM, Operator::ADD_TENSOR, Operator::RELU]);
        assert_eq!(graph.nodes[0].args, [0, 1, 4, 2]);
        assert_eq!(operators(&graph)[4..], [Operator::ADD_TENSOR]);
    }

    #[test]
    fn scaled_or_broadcast_sums_stay() {
        let calls: &[(Operator, &[ValueId], ValueId)] =
            &[(Operator::MM, &[0, 1], 2), (Operator::ADD_TENSOR, &[2, 3], 4)];
        let mut graph = graph(&[SHAPE, &[3, 3], SHAPE, &[1, 3], SHAPE], calls, &[4]);
        super::run(&mut graph);
        assert_eq!(operators(&graph), [Operator::MM, Operator::ADD_TENSOR]);
    }

    /// `silu(x · a) * (x · b)` of values 0 to 2, with scales 3. The gate passes through a view.
    fn gated(products: [Operator; 2]) -> Graph<'static> {
        let (wide, weight) = (&[2, 8][..], &[8, 3][..]);
        let shapes = [SHAPE, weight, weight, &[8], wide, wide, wide, wide, wide, wide];
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (products[0], &[0, 1, 3], 4),
            (Operator::VIEW_COPY, &[4, 11], 5),
            (Operator::SIGMOID, &[5], 6),
            (Operator::MUL_TENSOR, &[5, 6], 7),
            (products[1], &[0, 2, 3], 8),
            (Operator::MUL_TENSOR, &[8, 7], 9),
        ];
        graph(&shapes, calls, &[9])
    }

    #[test]
    fn gated_gemms_are_fused() {
        let mut graph = gated([Operator::ET_VK_LINEAR_QCS4W; 2]);
        super::run(&mut graph);
        assert_eq!(operators(&graph), [Operator::GATED]);
        let expected = [
            Operator::ET_VK_LINEAR_QCS4W,
            Operator::VIEW_COPY,
            Operator::SILU,
            Operator::ET_VK_LINEAR_QCS4W,
            Operator::MUL_TENSOR,
        ];
        assert_eq!(parts(&graph.nodes[0]), expected);
        assert_eq!(graph.nodes[0].args, [0, 1, 3, 0, 2, 3, 9]);
    }

    #[test]
    fn shared_or_unsupported_gates_stay() {
        let mut seen = gated([Operator::ET_VK_LINEAR_QCS4W; 2]);
        seen.outputs.push(7);
        super::run(&mut seen);
        assert!(!operators(&seen).contains(&Operator::GATED));
        let mut plain = gated([Operator::ET_VK_LINEAR_QCS4W, Operator::LINEAR]);
        super::run(&mut plain);
        assert!(!operators(&plain).contains(&Operator::GATED));
        let mut written = gated([Operator::ET_VK_LINEAR_QCS4W; 2]);
        written.nodes.insert(4, Node::new(Operator::UPDATE_CACHE, vec![3, 0, 3]));
        super::run(&mut written);
        assert!(!operators(&written).contains(&Operator::GATED));
    }

    /// A depthwise convolution of four channels, an activation, and a pointwise convolution with a
    /// residual. Values from id 8 on are the convolutions' arguments.
    fn separable(groups: i64) -> Graph<'static> {
        let image: &[usize] = &[1, 4, 5, 5];
        let shapes = [image, &[4, 1, 3, 3], &[4, 4, 1, 1], image, image, image, image];
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::CONVOLUTION, &[0, 1, 8, 9, 9, 9, 11, 10, 12], 3),
            (Operator::RELU, &[3], 4),
            (Operator::CONVOLUTION, &[4, 2, 8, 9, 10, 9, 11, 10, 13], 5),
            (Operator::ADD_TENSOR, &[5, 0], 6),
        ];
        let mut graph = graph(&shapes, calls, &[6]);
        let list = |item: i64| Value::IntList(vec![item; 2]);
        graph.values.extend([list(1), list(0), Value::Bool(false), Value::Int(4)]);
        graph.values.push(Value::Int(groups));
        graph
    }

    #[test]
    fn separable_convolutions_are_fused() {
        let mut graph = separable(1);
        super::run(&mut graph);
        assert_eq!(operators(&graph), [Operator::SEPARABLE, Operator::ALIAS_COPY]);
        let expected =
            [Operator::CONVOLUTION, Operator::RELU, Operator::CONVOLUTION, Operator::ADD_TENSOR];
        assert_eq!(parts(&graph.nodes[0]), expected);
        // The second convolution reads the output of the first, without the view between them.
        assert_eq!(graph.nodes[0].parts[2].args.first(), Some(&3));
        let args = [0, 1, 8, 9, 9, 9, 11, 10, 12, 2, 8, 9, 10, 9, 11, 10, 13, 0, 5];
        assert_eq!(graph.nodes[0].args, args);
    }

    #[test]
    fn shared_or_grouped_convolutions_stay() {
        let mut grouped = separable(2);
        super::run(&mut grouped);
        assert!(!operators(&grouped).contains(&Operator::SEPARABLE));
        let mut seen = separable(1);
        seen.outputs.push(4);
        super::run(&mut seen);
        assert!(!operators(&seen).contains(&Operator::SEPARABLE));
        let mut written = separable(1);
        written.nodes.insert(2, Node::new(Operator::UPDATE_CACHE, vec![1, 0, 1]));
        super::run(&mut written);
        assert!(!operators(&written).contains(&Operator::SEPARABLE));
        // The residual is the input of the second convolution.
        let mut twice = separable(1);
        twice.nodes[3].args[1] = 4;
        super::run(&mut twice);
        assert!(!operators(&twice).contains(&Operator::SEPARABLE));
    }

    #[test]
    fn silu_is_recognised() {
        let calls: &[(Operator, &[ValueId], ValueId)] = &[
            (Operator::MM, &[0, 1], 2),
            (Operator::SIGMOID, &[2], 3),
            (Operator::MUL_TENSOR, &[2, 3], 4),
        ];
        let mut graph = graph(&[SHAPE, &[3, 3], SHAPE, SHAPE, SHAPE], calls, &[4]);
        super::run(&mut graph);
        assert_eq!(operators(&graph), [Operator::EPILOGUE, Operator::ALIAS_COPY]);
        assert_eq!(parts(&graph.nodes[0]), [Operator::MM, Operator::SILU]);
    }

    /// A sum of values 0 and 1, stored in value 2, and the norm of the sum with weight 3, stored in
    /// value 4. The values after them are the norm's other arguments.
    fn normed(operator: Operator, shapes: [&[usize]; 3]) -> Graph<'static> {
        let [a, b, sum] = shapes;
        let norm: &[ValueId] = match operator {
            Operator::ET_VK_RMS_NORM => &[2, 3, 8],
            _ => &[2, 7, 3, 6, 8],
        };
        let calls: &[(Operator, &[ValueId], ValueId)] =
            &[(Operator::ADD_TENSOR, &[0, 1, 5], 2), (operator, norm, 4)];
        let mut graph = graph(&[a, b, sum, &[8], sum], calls, &[4]);
        graph.values.extend([Value::IntList(vec![8]), Value::Double(1e-5)]);
        graph
    }

    const ROWS: &[usize] = &[2, 3, 8];

    #[test]
    fn norms_fuse_sums() {
        for operator in [Operator::NATIVE_LAYER_NORM, Operator::ET_VK_RMS_NORM] {
            let mut one = normed(operator, [ROWS; 3]);
            super::run(&mut one);
            assert_eq!(operators(&one), [Operator::NORMED_SUM]);
            assert_eq!(parts(&one.nodes[0]), [Operator::ADD_TENSOR, operator]);
            assert_eq!(
                (&one.nodes[0].args[..2], one.nodes[0].args.last()),
                (&[0, 1][..], Some(&4))
            );
            // A sum with other readers becomes a second output, even if one of the readers is
            // another norm.
            let mut both = normed(operator, [ROWS, &[1, 8], ROWS]);
            let mut second = both.nodes[1].clone();
            both.values.push(both.values[4].clone());
            *second.args.last_mut().unwrap() = 9;
            both.nodes.push(second);
            both.outputs = vec![4, 9];
            super::run(&mut both);
            assert_eq!(operators(&both), [Operator::NORMED_SUM, operator]);
            assert_eq!(both.items(both.nodes[0].args.last().unwrap()), [4, 2]);
        }
    }

    #[test]
    fn sums_of_partial_rows_stay() {
        let kept = |mut graph: Graph<'static>| {
            super::run(&mut graph);
            operators(&graph) == [Operator::ADD_TENSOR, Operator::NATIVE_LAYER_NORM]
        };
        let of = |shapes| normed(Operator::NATIVE_LAYER_NORM, shapes);
        assert!(!kept(of([&[3, 8], ROWS, ROWS])));
        assert!(kept(of([ROWS, &[2, 1, 8], ROWS])), "rows in the middle broadcast");
        assert!(kept(of([ROWS, &[2, 3, 1], ROWS])), "less than a row");
        assert!(kept(of([&[2, 1, 8], &[1, 3, 8], ROWS])), "both broadcast");
        assert!(kept(of([&[3, 7]; 3])), "not a multiple of four");
        assert!(kept(of([&[2, 1 << 15]; 3])), "too long");
        let mut scaled = of([ROWS; 3]);
        scaled.values[5] = Value::Int(2);
        assert!(kept(scaled));
        let mut halves = of([ROWS; 3]);
        let Value::Tensor(tensor) = &mut halves.values[1] else { unreachable!() };
        tensor.scalar_type = ScalarType::Half;
        assert!(kept(halves), "two types");
        let mut weights = of([ROWS; 3]);
        weights.nodes[1].args[2] = 2;
        assert!(kept(weights), "the sum is also the weight");
    }

    #[test]
    fn norms_do_not_move_before_their_inputs() {
        let mut made = normed(Operator::NATIVE_LAYER_NORM, [ROWS; 3]);
        made.values.push(made.values[3].clone());
        made.nodes[1].args[2] = 9;
        let weight = Node::new(Operator::CUMSUM, vec![3, 5, 9]);
        made.nodes.insert(1, weight.clone());
        let mut first = made.clone();
        super::run(&mut made);
        assert!(!operators(&made).contains(&Operator::NORMED_SUM));
        first.nodes.swap(0, 1);
        super::run(&mut first);
        assert_eq!(operators(&first), [Operator::CUMSUM, Operator::NORMED_SUM]);
        let mut written = normed(Operator::NATIVE_LAYER_NORM, [ROWS; 3]);
        written.nodes.insert(1, Node::new(Operator::UPDATE_CACHE, vec![3, 0, 3]));
        super::run(&mut written);
        assert!(!operators(&written).contains(&Operator::NORMED_SUM));
    }

    #[test]
    fn chains_keep_their_sums() {
        let mut chained = normed(Operator::NATIVE_LAYER_NORM, [ROWS; 3]);
        chained.values.push(chained.values[0].clone());
        chained.nodes.insert(0, Node::new(Operator::RELU, vec![9, 1]));
        let mut seen = chained.clone();
        super::run(&mut chained);
        assert_eq!(operators(&chained), [Operator::CHAIN, Operator::NATIVE_LAYER_NORM]);
        seen.outputs.push(1);
        super::run(&mut seen);
        assert_eq!(operators(&seen), [Operator::RELU, Operator::NORMED_SUM]);
    }
}
