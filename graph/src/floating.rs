//! Report about quantized graphs on processors that have kernels only: calls that compute in
//! floating point, weights that are stored in more bits, and the memory that this costs.

use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::lower::portable::integers;
use crate::operators::{DynamicLinearArgs, LinearInt8Args, Operator};
use crate::passes::uses::inputs;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Origin of a floating-point tensor in a quantized graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Dequantized int8 constants, which constant folding converts to floats.
    Weights,
    /// Dequantized inputs or results, or results of floating-point calls on these.
    Activations,
}

/// Statistics of the calls of one operator.
#[derive(Default)]
struct Calls {
    count: usize,
    /// Weight elements of all calls.
    weights: usize,
    /// Maximum of the elements that one call reads and writes.
    activations: usize,
}

/// Describes the calls between dequantize and quantize that integer kernels cannot compute, with a
/// sentence per operator, and 4-bit weights. Empty for graphs without quantized tensors.
pub(crate) fn describe(graph: &Graph<'_>) -> Vec<String> {
    let mut origins: BTreeMap<ValueId, Origin> = BTreeMap::new();
    let mut found: BTreeMap<&'static str, Calls> = BTreeMap::new();
    for node in &graph.nodes {
        let read: Vec<ValueId> =
            inputs(node).iter().flat_map(|id| graph.items(id)).copied().collect();
        let made: Vec<ValueId> = node.args.last().map_or(&[][..], |out| graph.items(out)).to_vec();
        let origin = |id: &ValueId| origins.get(id).copied();
        let own = if is_dequantizing(node.operator) {
            read.first().map(|id| dequantized(graph, *id))
        } else if is_quantizing(node.operator) || integers::has_rule(node.operator) {
            None
        } else if node.operator.traits().moves_elements || node.operator.traits().is_view {
            read.iter().find_map(origin)
        } else if read
            .iter()
            .all(|id| is_constant(graph, *id) || origin(id) == Some(Origin::Weights))
        {
            // Constant folding computes this call, as it does for lookup tables: do not count it.
            read.iter().find_map(origin)
        } else if !made.iter().any(|id| is_float(graph, *id)) {
            None
        } else {
            // If only the weights are quantized, floats stay floats.
            let on_activations = read.iter().any(|id| origin(id) == Some(Origin::Activations));
            let on_weights = read.iter().any(|id| origin(id) == Some(Origin::Weights));
            if on_activations || on_weights {
                let made = if on_activations { &made[..] } else { &[] };
                count(graph, node, &read, made, &origins, &mut found);
            }
            on_activations.then_some(Origin::Activations)
        };
        let floats = made.iter().filter(|id| is_float(graph, **id));
        origins.extend(own.into_iter().flat_map(|own| floats.clone().map(move |id| (*id, own))));
    }
    let sentences = found.into_iter().map(|(name, calls)| sentence(name, &calls));
    sentences.chain(widened(graph)).collect()
}

/// Describes the 4-bit weights of linear layers. Kernels read 8 bits per weight.
fn widened(graph: &Graph<'_>) -> Option<String> {
    let weights = graph.nodes.iter().filter_map(|node| {
        let (weights, bits) = match DynamicLinearArgs::matching(node) {
            Some(call) => (call.weights, call.bits),
            None => LinearInt8Args::matching(node).map(|call| (call.weights, call.bits))?,
        };
        let is_narrow = matches!(graph.values.get(bits), Some(Value::Int(4)));
        graph.tensor(weights).filter(|_| is_narrow).map(numel)
    });
    let (count, bytes) =
        weights.fold((0usize, 0usize), |(count, all), own| (count + 1, all.saturating_add(own)));
    let plural = if count == 1 { "layer stores" } else { "layers store" };
    (count > 0).then(|| {
        let packed = bytes.div_ceil(2);
        format!(
            "{count} linear {plural} 4-bit weights in 8 bits: {bytes} bytes instead of {packed} in \
             flash"
        )
    })
}

fn is_dequantizing(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR
            | Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL
            | Operator::CORTEX_M_DEQUANTIZE_PER_TENSOR
    )
}

fn is_quantizing(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR | Operator::CORTEX_M_QUANTIZE_PER_TENSOR
    )
}

fn dequantized(graph: &Graph<'_>, id: ValueId) -> Origin {
    if is_constant(graph, id) { Origin::Weights } else { Origin::Activations }
}

/// Whether a value is constant. Values other than tensors are.
fn is_constant(graph: &Graph<'_>, id: ValueId) -> bool {
    graph.tensor(id).is_none_or(|tensor| tensor.data.is_some() && tensor.changes != Some(true))
}

fn is_float(graph: &Graph<'_>, id: ValueId) -> bool {
    graph.tensor(id).is_some_and(|tensor| tensor.scalar_type == ScalarType::Float)
}

fn count(
    graph: &Graph<'_>,
    node: &Node,
    read: &[ValueId],
    made: &[ValueId],
    origins: &BTreeMap<ValueId, Origin>,
    found: &mut BTreeMap<&'static str, Calls>,
) {
    let elements = |id: &ValueId| graph.tensor(*id).map_or(0, numel);
    let of = |wanted: Origin| {
        let ids = read.iter().filter(move |id| origins.get(id) == Some(&wanted));
        ids.map(elements).fold(0usize, usize::saturating_add)
    };
    let written = made.iter().filter(|id| is_float(graph, **id)).map(elements);
    let activations = written.fold(of(Origin::Activations), usize::saturating_add);
    let calls = found.entry(node.operator.name()).or_default();
    calls.count += 1;
    calls.weights = calls.weights.saturating_add(of(Origin::Weights));
    calls.activations = calls.activations.max(activations);
}

fn numel(tensor: &Tensor<'_>) -> usize {
    tensor.sizes.iter().fold(1, |all: usize, size| all.saturating_mul(*size))
}

fn sentence(name: &str, calls: &Calls) -> String {
    let Calls { count, weights, activations } = *calls;
    let plural = if count == 1 { ("call", "computes") } else { ("calls", "compute") };
    let text = format!("{count} {} of {name} {} in floating point", plural.0, plural.1);
    let bytes = |elements: usize| elements.saturating_mul(size_of::<f32>());
    let mut costs = Vec::new();
    if weights > 0 {
        costs.push(format!("weights of {} bytes instead of {weights} in flash", bytes(weights)));
    }
    if activations > 0 {
        costs.push(format!(
            "inputs and results of up to {} bytes instead of {activations} in RAM",
            bytes(activations)
        ));
    }
    format!("{text}: {}", costs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::parse;

    #[test]
    fn calls_between_dequantizing_and_quantizing_are_described() {
        let graph = parse(
            "in x i8[2,4]
            const w i8[3,4]
            const s f32[3] = 0.5
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
                127, 1, none)
            v f32[3,4] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, \
                -127, 127, 1, none)
            l f32[2,3] = aten.linear.default(f, v, none)
            a f32[2,3] = aten.cos.default(l)
            b f32[2,3] = aten.cos.default(a)
            y i8[2,3] = quantized_decomposed.quantize_per_tensor.default(b, 0.5, 1, -128, 127, 1)
            out y",
        );
        assert_eq!(
            describe(&graph),
            [
                "2 calls of aten.cos.default compute in floating point: inputs and results of up \
                 to 48 bytes instead of 12 in RAM",
                "1 call of aten.linear.default computes in floating point: weights of 48 bytes \
                 instead of 12 in flash, inputs and results of up to 56 bytes instead of 14 in RAM",
            ]
        );
        // The lookup table is computed ahead of time.
        let table = parse(
            "in x i8[2]
            const t i8[256]
            f f32[256] = quantized_decomposed.dequantize_per_tensor.default(t, 0.25, 3, -128, \
                127, 1, none)
            g f32[256] = aten.cos.default(f)
            q i8[256] = quantized_decomposed.quantize_per_tensor.default(g, 0.5, 1, -128, 127, 1)
            y i8[2] = torchlet.q8ta_lookup(x, q)
            out y",
        );
        assert!(describe(&table).is_empty(), "{:?}", describe(&table));
        let narrow = parse(
            "in x f32[2,8]
            const w i8[3,8]
            const s f32[3,1] = 0.5
            y f32[2,3] = torchlet.linear_int8(x, w, s, none, 4)
            out y",
        );
        let expected =
            "1 linear layer stores 4-bit weights in 8 bits: 24 bytes instead of 12 in flash";
        assert_eq!(describe(&narrow), [expected]);
        // Only the weights were quantized.
        let weights = parse(
            "in x f32[2,4]
            const w i8[3,4]
            const s f32[3] = 0.5
            v f32[3,4] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, \
                -127, 127, 1, none)
            l f32[2,3] = aten.linear.default(x, v, none)
            a f32[2,3] = aten.cos.default(l)
            out a",
        );
        let expected = "1 call of aten.linear.default computes in floating point: weights of 48 \
                        bytes instead of 12 in flash";
        assert_eq!(describe(&weights), [expected]);
        let floats = parse("in x f32[2]\n a f32[2] = aten.cos.default(x)\n out a");
        assert!(describe(&floats).is_empty());
    }
}
