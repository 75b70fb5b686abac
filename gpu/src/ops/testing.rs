//! Helpers that create tensors for graphs in tests.

use torchlet_core::ScalarType;
use torchlet_graph::graph::{Tensor, Value};

/// A tensor of at most these sizes: an argument, or a constant of zeros.
pub(crate) fn tensor(
    scalar_type: ScalarType,
    sizes: &[usize],
    is_constant: bool,
) -> Value<'static> {
    let bytes = sizes.iter().product::<usize>() * scalar_type.size();
    Value::Tensor(Tensor {
        scalar_type,
        host_type: scalar_type,
        sizes: sizes.to_vec(),
        dynamic: true,
        data: is_constant.then(|| vec![0; bytes].into()),
        changes: None,
    })
}
