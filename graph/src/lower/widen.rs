//! Restores the precision of programs that an exporter converted to fp16 for a GPU.
//!
//! With `force_fp16`, the Vulkan exporter converts all `f32` tensors inside a delegate to fp16;
//! only the inputs and outputs of the delegate keep their dtype. Processors that compute in `f32`
//! anyway are slower with fp16, which saves only memory.

use crate::graph::{Graph, Tensor, Value};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use half::f16;
use torchlet_core::ScalarType;

/// Whether a graph computes in fp16 only because the exporter narrowed it: no tensor has fp16 as
/// its host dtype.
pub fn is_narrowed(graph: &Graph<'_>) -> bool {
    let narrowed = |tensor: &Tensor<'_>| {
        tensor.scalar_type == ScalarType::Half
            && tensor.data.is_none()
            && tensor.host_type == ScalarType::Float
    };
    let own = |tensor: &Tensor<'_>| {
        tensor.scalar_type == ScalarType::Half
            && tensor.data.is_none()
            && tensor.host_type == ScalarType::Half
    };
    let any = |graph: &Graph<'_>, is: &dyn Fn(&Tensor<'_>) -> bool| {
        graph.values.iter().any(|value| matches!(value, Value::Tensor(tensor) if is(tensor)))
    };
    any(graph, &narrowed) && !any(graph, &own)
}

/// Converts narrowed tensors and constants back to `f32`. Leaves graphs unchanged that the user
/// wrote in fp16.
pub fn run(graph: &mut Graph<'_>) {
    if !is_narrowed(graph) {
        return;
    }
    for value in &mut graph.values {
        if let Value::Tensor(tensor) = value
            && tensor.scalar_type == ScalarType::Half
        {
            tensor.scalar_type = ScalarType::Float;
            tensor.host_type = ScalarType::Float;
            tensor.data = tensor.data.take().map(|data| Cow::Owned(wide(&data)));
        }
    }
}

fn wide(data: &[u8]) -> Vec<u8> {
    let mut wide = Vec::with_capacity(2 * data.len());
    for bytes in data.as_chunks::<2>().0 {
        wide.extend_from_slice(&f16::from_le_bytes(*bytes).to_f32().to_le_bytes());
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn tensor(host_type: ScalarType, data: Option<[u8; 2]>) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type: ScalarType::Half,
            host_type,
            sizes: vec![1],
            dynamic: false,
            data: data.map(|data| Cow::Owned(data.to_vec())),
            changes: None,
        })
    }

    fn types(graph: &Graph<'_>) -> Vec<ScalarType> {
        let tensors = graph.values.iter().filter_map(|value| match value {
            Value::Tensor(tensor) => Some(tensor.scalar_type),
            _ => None,
        });
        tensors.collect()
    }

    #[test]
    fn only_what_was_narrowed_is_widened() {
        let (one, narrowed) = ([0, 0x3c], tensor(ScalarType::Float, None));
        let values = vec![narrowed, tensor(ScalarType::Half, Some(one))];
        let mut graph = Graph { values, ..Graph::default() };
        run(&mut graph);
        assert_eq!(types(&graph), [ScalarType::Float; 2]);
        let Value::Tensor(constant) = &graph.values[1] else { panic!() };
        assert_eq!(constant.data.as_deref(), Some(&1f32.to_le_bytes()[..]));

        graph.values = vec![tensor(ScalarType::Half, None), tensor(ScalarType::Half, Some(one))];
        run(&mut graph);
        assert_eq!(types(&graph), [ScalarType::Half; 2]);
    }
}
