//! Costs of calls in operations and bytes, from their shapes. For dynamic shapes, they are upper
//! bounds.

use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{Cost, Operator};
use crate::partition::arguments;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use torchlet_core::Rates;

/// The cost of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Work {
    /// Arithmetic operations.
    pub(crate) operations: f64,
    /// Bytes read and written.
    pub(crate) bytes: f64,
    /// Whether the call is free on processors that fuse calls of a region.
    pub(crate) fuses: bool,
}

/// Operations per element of functions such as `exp`.
const FUNCTION: f64 = 16.0;
/// Operations per element of reductions, norms and the like.
const FEW: f64 = 4.0;

/// The cost of each call of a graph.
pub(crate) fn of_each(graph: &Graph<'_>) -> Vec<Work> {
    // Number of readers of each value. Graph outputs and updates count as one more reader.
    let mut readers: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut made: BTreeMap<ValueId, usize> = BTreeMap::new();
    let nodes: Vec<(Vec<ValueId>, Vec<ValueId>)> =
        graph.nodes.iter().map(|node| arguments(graph, node)).collect();
    let kept = graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new));
    for id in nodes.iter().flat_map(|(inputs, _)| inputs).chain(kept) {
        *readers.entry(*id).or_default() += 1;
    }
    for (index, (_, results)) in nodes.iter().enumerate() {
        made.extend(results.iter().map(|id| (*id, index)));
    }
    let is_behind = |inputs: &[ValueId]| {
        inputs.iter().any(|id| made.contains_key(id) && readers.get(id) == Some(&1))
    };
    let works = graph.nodes.iter().zip(&nodes).map(|(node, (inputs, results))| {
        let mut work = of_call(graph, node, inputs, results);
        work.fuses |= matches!(node.operator.traits().cost, Cost::Arithmetic | Cost::Function)
            && is_behind(inputs);
        work
    });
    works.collect()
}

fn of_call(graph: &Graph<'_>, node: &Node, inputs: &[ValueId], results: &[ValueId]) -> Work {
    if !node.parts.is_empty() {
        // A fused call costs the operations of its parts, but not the bytes between them.
        let parts = node.parts.iter().map(|part| {
            let (inputs, results) = arguments(graph, part);
            of_call(graph, part, &inputs, &results).operations
        });
        let bytes = all(graph, inputs, bytes_of) + all(graph, results, bytes_of);
        return Work { operations: parts.sum(), bytes, fuses: false };
    }
    let (read, written) = (all(graph, inputs, bytes_of), all(graph, results, bytes_of));
    let made = all(graph, results, count);
    let traits = node.operator.traits();
    let (operations, bytes) = match traits.cost {
        _ if traits.is_view => return Work { operations: 0.0, bytes: 0.0, fuses: true },
        Cost::Arithmetic => (made, read + written),
        Cost::Function => (FUNCTION * made, read + written),
        Cost::Selection => (made, 2.0 * written),
        Cost::Gemm(lhs) => {
            let lhs = inputs.get(usize::from(lhs)).and_then(|id| graph.tensor(*id));
            let sizes = lhs.map(|lhs| lhs.sizes.as_slice());
            let row = sizes.and_then(<[usize]>::last).copied().unwrap_or(1);
            (2.0 * made * row as f64, read + written)
        }
        Cost::Convolution => (convolution(graph, node, inputs, made), read + written),
        Cost::Attention { keys, dim } => {
            let of = |at: u8| graph.tensor(*node.args.get(usize::from(at))?);
            let queries = of(0).map_or(0.0, count);
            let sizes = of(keys).map(|keys| keys.sizes.as_slice());
            let keys = sizes.and_then(|sizes| sizes.get(usize::from(dim))).copied().unwrap_or(1);
            // Each query row of each head is multiplied with every key, and the weights with every
            // value. Keys and values may have different head dims.
            (2.0 * (queries + made) * keys as f64, read + written)
        }
        Cost::Other => (FEW * all(graph, inputs, count).max(made), read + written),
    };
    Work { operations, bytes, fuses: false }
}

/// Operations of a convolution. The weights are assumed to be the largest tensor other than the
/// input. The weights are applied at every position of the result, or, in a transposed convolution,
/// of the input.
fn convolution(graph: &Graph<'_>, node: &Node, inputs: &[ValueId], made: f64) -> f64 {
    let weights = inputs.iter().skip(1).filter_map(|id| graph.tensor(*id));
    let most = weights.map(count).fold(0.0, f64::max);
    let input = inputs.first().and_then(|id| graph.tensor(*id));
    let channels = |tensor: Option<&Tensor<'_>>| {
        // Without a batch, channels are dim 0.
        let dim = tensor.map_or(0, |tensor| tensor.sizes.len().saturating_sub(3).min(1));
        tensor.and_then(|tensor| tensor.sizes.get(dim)).copied().unwrap_or(1).max(1) as f64
    };
    let is_transposed = node.operator == Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED
        || node.args.iter().any(|id| matches!(graph.values.get(*id), Some(Value::Bool(true))));
    if is_transposed {
        return 2.0 * input.map_or(0.0, count) * most / channels(input);
    }
    let out = node.args.last().and_then(|id| graph.tensor(*id));
    2.0 * made * most / channels(out)
}

fn count(tensor: &Tensor<'_>) -> f64 {
    tensor.sizes.iter().fold(1.0, |count, size| count * *size as f64)
}

fn bytes_of(tensor: &Tensor<'_>) -> f64 {
    count(tensor) * tensor.scalar_type.size() as f64
}

fn all(graph: &Graph<'_>, ids: &[ValueId], of: impl Fn(&Tensor<'_>) -> f64) -> f64 {
    ids.iter().filter_map(|id| graph.tensor(*id)).map(of).sum()
}

/// The size of tensors in bytes.
pub(crate) fn bytes(graph: &Graph<'_>, ids: &[ValueId]) -> f64 {
    all(graph, ids, bytes_of)
}

impl Work {
    /// Estimated time in seconds.
    pub(crate) fn seconds(&self, rates: &Rates) -> f64 {
        if self.fuses && rates.fuses {
            return 0.0;
        }
        rates.call + (self.operations / rates.operations).max(self.bytes / rates.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::parse;

    fn operations(text: &str) -> Vec<f64> {
        of_each(&parse(text)).iter().map(|work| work.operations).collect()
    }

    #[test]
    fn arithmetic_follows_from_shapes() {
        let found = operations(
            "in x f32[2,3]
            const w f32[5,3]
            const b f32[5]
            const m f32[3,4]
            l f32[2,5] = aten.linear.default(x, w, b)
            p f32[2,4] = aten.mm.default(x, m)
            e f32[2,4] = aten.exp.default(p)
            v f32[8] = aten.view_copy.default(e, [8])
            d f32[2,5] = aten._cdist_forward.default(x, w, 1.0, none)
            out l v d",
        );
        let five = 2.0 * 10.0 * 3.0;
        assert_eq!(found, [five, 2.0 * 8.0 * 3.0, 8.0 * FUNCTION, 0.0, five]);
        let found = operations(
            "in x f32[1,8,10,10]
            const w f32[16,4,3,3]
            const b f32[16]
            const t f32[8,2,2,2]
            c f32[1,16,8,8] = aten.convolution.default(x, w, b, [1, 1], [0, 0], [1, 1], false, \
                [0, 0], 2)
            d f32[1,2,20,20] = aten.convolution.default(x, t, none, [2, 2], [0, 0], [1, 1], \
                true, [0, 0], 1)
            out c d",
        );
        assert_eq!(found, [2.0 * 16.0 * 64.0 * 36.0, 2.0 * 800.0 * 8.0]);
        let found = operations(
            "in q f32[1,2,4,8]
            in k f32[1,2,6,8]
            in v f32[1,2,6,8]
            o f32[1,2,4,8] = et_vk.sdpa.default(q, k, v, none, none)
            out o",
        );
        assert_eq!(found, [2.0 * 2.0 * 2.0 * 4.0 * 6.0 * 8.0]);
    }

    /// Twelve heads, four query rows, six keys, and a head dim of eight.
    #[test]
    fn attention_takes_what_its_keys_and_not_its_heads_say() {
        // Values are twice as wide.
        let each = 2.0 * 12.0 * 4.0 * 6.0;
        let found = operations(
            "in q f32[1,12,4,8]
            in k f32[1,12,6,8]
            in v f32[1,12,6,16]
            a f32[1,12,4,16] = et_vk.sdpa.default(q, k, v, none, none)
            b f32[1,12,4,16] = torchlet.attention(q, k, v, none, none, none)
            out a b",
        );
        assert_eq!(found, [each * 8.0 + each * 16.0; 2]);
        // Rows before heads, and grouped-query attention.
        let cached = operations(
            "in q f32[1,4,12,8]
            in k f32[1,6,3,8]
            in v f32[1,6,3,8]
            o f32[1,4,12,8] = llama.custom_sdpa.default(q, k, v, 2, none, 0.0, true, none)
            out o",
        );
        assert_eq!(cached, [2.0 * each * 8.0]);
        // Attention reads the whole cache, even if few keys are new.
        let written = operations(
            "in q f32[1,4,12,8]
            in k f32[1,4,3,8]
            in v f32[1,4,3,8]
            in kc f32[1,6,3,8]
            in vc f32[1,6,3,8]
            o f32[1,4,12,8] = sdpa_with_kv_cache.default(q, k, v, kc, vc, 2, 4, none, 0.0, true, \
                none)
            out o",
        );
        assert_eq!(written, [2.0 * each * 8.0]);
    }

    #[test]
    fn what_follows_a_call_alone_is_part_of_it() {
        let works = of_each(&parse(
            "in x f32[4]
            a f32[4] = aten.exp.default(x)
            b f32[4] = aten.neg.default(a)
            c f32[4] = aten.abs.default(b)
            d f32[4] = aten.neg.default(b)
            out c d",
        ));
        let fuses: Vec<bool> = works.iter().map(|work| work.fuses).collect();
        assert_eq!(fuses, [false, true, false, false]);
        let rates = Rates {
            operations: 1.0,
            bytes: 32.0,
            call: 2.0,
            region: 0.0,
            transfer: f64::INFINITY,
            fuses: true,
            emulated: false,
        };
        assert_eq!(works[1].seconds(&rates), 0.0);
        // The larger of the times for four operations and for 32 bytes.
        assert_eq!(works[1].seconds(&Rates { fuses: false, ..rates }), 2.0 + 4.0);
        let slow = Rates { bytes: 4.0, fuses: false, ..rates };
        assert_eq!(works[1].seconds(&slow), 2.0 + 8.0);
    }

    #[test]
    fn shapes_without_limits_give_numbers() {
        let mut graph = parse(
            "in x f32[2,3]
            y f32[2,3] = aten.exp.default(x)
            out y",
        );
        for value in &mut graph.values {
            if let Value::Tensor(tensor) = value {
                tensor.sizes = alloc::vec![usize::MAX; 8];
            }
        }
        let [work] = of_each(&graph)[..] else { panic!() };
        assert!(work.operations.is_finite() && work.bytes.is_finite());
    }
}
