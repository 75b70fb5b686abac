//! Storage of `bfloat16` tensors. Few devices compute in `bfloat16`, so another type stands in for
//! it.
//!
//! Activations and inputs are 32-bit floats on the device. They are rounded to `bfloat16` where the
//! program asks for it and when they are returned. Weights are stored as `float16` if that loses no
//! significant precision: `float16` has three more fraction bits but a smaller exponent range.

use torchlet_graph::graph::Graph;
use torchlet_shaders::Element;

/// Smaller tensors stay 32-bit: their size does not matter.
const MIN_NUMEL: usize = 1 << 6;

/// Biased exponents of 2^-11 and 2^16.
const SMALL: u16 = 127 - 11;
const LARGE: u16 = 127 + 16;

/// Bytes of a `bfloat16` value.
pub(crate) const SIZE: usize = 2;

/// Returns the number of bytes after conversion to `element`.
pub(crate) fn converted_bytes(bytes: &[u8], element: Element) -> usize {
    (bytes.len() / SIZE).saturating_mul(element.size())
}

/// Returns, for each value, whether all calls use it only as a GEMM weight or as an embedding
/// table.
pub(crate) fn are_weights(graph: &Graph<'_>) -> Vec<bool> {
    let mut are_weights = vec![true; graph.values.len()];
    // For a fused call, the parts tell how each argument is used.
    let calls = graph.nodes.iter().flat_map(|node| match &node.parts[..] {
        [] => std::slice::from_ref(node),
        parts => parts,
    });
    for call in calls {
        let weights = call.operator.traits().weights.map(usize::from);
        for (place, arg) in call.args.iter().enumerate() {
            for id in graph.items(arg).iter().filter(|_| Some(place) != weights) {
                if let Some(slot) = are_weights.get_mut(*id) {
                    *slot = false;
                }
            }
        }
    }
    for id in &graph.outputs {
        if let Some(slot) = are_weights.get_mut(*id) {
            *slot = false;
        }
    }
    are_weights
}

/// Returns whether a weight may be stored as `float16`: a matrix in which no value is too large,
/// and in which the largest magnitude of each row is zero or at least 2^-11. Subnormal `float16`
/// values are 2^-24 apart, so the error is at most 2^-14 of the row's largest value: less than the
/// `bfloat16` rounding error of that value.
pub(crate) fn fit_float16(bytes: &[u8], sizes: &[usize]) -> bool {
    let (elements, columns) = (bytes.as_chunks::<2>().0, sizes.last().copied().unwrap_or(1));
    // Layout: 1 sign bit, 8 exponent bits, 7 fraction bits.
    let exponent = |bits: &[u8; 2]| (u16::from_le_bytes(*bits) >> 7) & 0xff;
    sizes.len() > 1
        && elements.len() >= MIN_NUMEL
        && elements.chunks(columns.max(1)).all(|row| {
            let most = row.iter().map(exponent).max().unwrap_or(0);
            let is_zero = || row.iter().all(|bits| u16::from_le_bytes(*bits) << 1 == 0);
            most < LARGE && (most >= SMALL || is_zero())
        })
}

/// Converts `bfloat16` bytes to `element`, into `target`.
pub(crate) fn convert(bytes: &[u8], element: Element, target: &mut [u8]) {
    let numbers = bytes.as_chunks::<2>().0.iter();
    if element == Element::F16 {
        for (bits, target) in numbers.zip(target.as_chunks_mut::<2>().0) {
            let number = half::bf16::from_le_bytes(*bits).to_f32();
            *target = half::f16::from_f32(number).to_le_bytes();
        }
    } else {
        for (bits, target) in numbers.zip(target.as_chunks_mut::<4>().0) {
            // A `bfloat16` is the upper half of a 32-bit float.
            *target = [0, 0, bits[0], bits[1]];
        }
    }
}

/// Returns `bfloat16` bytes converted to `element`.
pub(crate) fn converted(bytes: &[u8], element: Element) -> Vec<u8> {
    let mut converted = vec![0; converted_bytes(bytes, element)];
    convert(bytes, element, &mut converted);
    converted
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Node, Tensor, Value};
    use torchlet_graph::operators::Operator;

    fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
        numbers.into_iter().flat_map(|it| half::bf16::from_f32(it).to_le_bytes()).collect()
    }

    #[test]
    fn bfloat16_round_trips() {
        let numbers = [0.0, -1.5, 65280.0, 2f32.powi(-14), 3e-5, f32::INFINITY];
        let given = bytes(numbers);
        let wide = converted(&given, Element::F32);
        let wide = wide.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it));
        let kept = numbers.map(|it| half::bf16::from_f32(it).to_f32());
        assert_eq!(wide.collect::<Vec<_>>(), kept);
        let halves = converted(&given, Element::F16);
        let halves =
            halves.as_chunks::<2>().0.iter().map(|it| half::f16::from_le_bytes(*it).to_f32());
        assert_eq!(halves.clone().take(4).collect::<Vec<_>>(), kept[..4]);
        assert!(halves.zip(kept).all(|(a, b)| a == b || (a - b).abs() <= 2f32.powi(-25)));
    }

    #[test]
    fn divisors_are_not_weights() {
        let tensor = || {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::BFloat16,
                host_type: ScalarType::BFloat16,
                sizes: vec![8, 8],
                dynamic: false,
                data: None,
                changes: None,
            })
        };
        let mut graph = Graph { values: (0..6).map(|_| tensor()).collect(), ..Graph::default() };
        graph.nodes.push(Node::new(Operator::MM, vec![0, 1, 2]));
        graph.nodes.push(Node::new(Operator::MM, vec![2, 3, 4]));
        assert_eq!(are_weights(&graph), [false, true, false, true, false, true]);
        graph.nodes.push(Node::new(Operator::DIV_TENSOR, vec![4, 3, 5]));
        assert!(!are_weights(&graph)[3] && are_weights(&graph)[1]);
        // Fused calls give the same result.
        let parts = graph.nodes.drain(1..).collect();
        let args = vec![2, 3, 3, 5];
        graph.nodes.push(Node { parts, ..Node::new(Operator::EPILOGUE, args) });
        assert!(!are_weights(&graph)[3] && are_weights(&graph)[1]);
    }

    #[test]
    fn values_outside_float16_stay_wide() {
        let matrix = |row: &dyn Fn(usize) -> f32| {
            bytes((0..64 * 64).map(|at| row(at / 64) * if at % 64 == 7 { 1.0 } else { 1e-6 }))
        };
        let sizes = [64, 64];
        assert!(fit_float16(&matrix(&|_| 0.02), &sizes));
        assert!(fit_float16(&matrix(&|row| if row == 3 { 0.0 } else { 1.0 }), &sizes));
        assert!(!fit_float16(&matrix(&|row| if row == 3 { 1e-4 } else { 1.0 }), &sizes));
        assert!(!fit_float16(&matrix(&|row| if row == 3 { 65536.0 } else { 1.0 }), &sizes));
        assert!(!fit_float16(&matrix(&|row| if row == 3 { f32::NAN } else { 1.0 }), &sizes));
        assert!(!fit_float16(&matrix(&|_| 0.02), &[4096]), "not a matrix");
        assert!(!fit_float16(&bytes([1.0; 32]), &[4, 8]), "few");
    }
}
