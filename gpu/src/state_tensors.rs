//! State tensors of a graph, which persist between runs.

use crate::error::Error;
use crate::tensors::TensorId;
use torchlet_core::TensorInfo;
use torchlet_graph::graph::{Graph, Value};

/// A tensor that persists between runs.
#[derive(Debug)]
pub struct StateTensor {
    /// The id of the tensor.
    pub id: TensorId,
    /// The name of the tensor in the exported program, if known.
    pub name: Option<String>,
    /// The type and shape of the tensor.
    pub info: TensorInfo,
}

/// Lists the state tensors of a graph from the torchlet compiler, which marks state and stores the
/// names from the exported program.
///
/// # Errors
/// A state tensor is too large.
pub fn state_tensors(graph: &Graph<'_>) -> Result<Vec<StateTensor>, Error> {
    let mut ids: Vec<TensorId> = graph.updates.iter().map(|(_, old)| *old).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut state_tensors = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(Value::Tensor(tensor)) = graph.values.get(id) else { continue };
        if tensor.data.is_none() {
            continue;
        }
        let sizes: Result<Vec<i32>, _> =
            tensor.sizes.iter().map(|size| i32::try_from(*size)).collect();
        let info = sizes.ok().and_then(|it| TensorInfo::contiguous(tensor.scalar_type, &it));
        let info = info.ok_or_else(|| {
            Error::Invalid(format!("state tensor {id}: shape {:?} is too large", tensor.sizes))
        })?;
        state_tensors.push(StateTensor { id, name: graph.names.get(&id).cloned(), info });
    }
    Ok(state_tensors)
}
