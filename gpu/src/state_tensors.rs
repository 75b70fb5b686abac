//! Tensors that persist between runs.

use crate::error::Error;
use crate::tensors::TensorId;
use torchlet_core::TensorInfo;
use torchlet_graph::graph::{Graph, Value};

/// A state tensor.
#[derive(Debug)]
pub struct StateTensor {
    /// The tensor.
    pub id: TensorId,
    /// The exporter's name, if known.
    pub name: Option<String>,
    /// Its type and shape.
    pub info: TensorInfo,
}

/// Lists the state tensors of a graph from the torchlet compiler, which marks them and keeps the
/// exporter's names.
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
        let info = info.ok_or_else(|| Error::invalid("a state tensor is too large"))?;
        state_tensors.push(StateTensor { id, name: graph.names.get(&id).cloned(), info });
    }
    Ok(state_tensors)
}
