//! Access to the state of a compiled graph: list, read and write tensors that persist between runs.

use crate::compiled::Compiled;
use crate::device::{Binding, Buffer, Command, MemoryKind, Recording};
use crate::error::Error;
use crate::tensors::TensorId;
use crate::transfer::{from_staging, to_staging};
use torchlet_core::{Serial, TensorInfo};
use torchlet_graph::graph::{Graph, Value};

/// A state tensor.
#[derive(Debug)]
pub(crate) struct StateTensor {
    id: TensorId,
    pub(crate) name: Option<String>,
    pub(crate) info: TensorInfo,
}

/// Lists the state tensors of a graph from the torchlet compiler, which marks them and keeps the
/// exporter's names.
pub(crate) fn of(graph: &Graph<'_>) -> Result<Vec<StateTensor>, Error> {
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

impl Compiled {
    fn state(&self, number: usize, bytes: usize) -> Result<&StateTensor, Error> {
        let missing = || Error::Invalid(format!("the delegate has no state tensor {number}"));
        let state = self.state_tensors.get(number).ok_or_else(missing)?;
        match state.info.nbytes() {
            expected if expected == bytes => Ok(state),
            expected => Err(Error::Invalid(format!(
                "state tensor {number}: expected {expected} bytes, found {bytes}"
            ))),
        }
    }

    /// Copies a state tensor to the host.
    pub(crate) fn read_state_tensor(&self, number: usize, target: &mut [u8]) -> Result<(), Error> {
        let state = self.state(number, target.len())?;
        let from = self.binding(state.id, false)?;
        let mut staging = Buffer::new(&self.context, from.size, MemoryKind::Download)?;
        let to = Binding { buffer: staging.raw, offset: 0, size: from.size, written: true };
        self.copy(from, to)?;
        from_staging(staging.mapped(), &state.info, target, &Serial)
    }

    /// Copies host data into a state tensor.
    pub(crate) fn write_state_tensor(&mut self, number: usize, source: &[u8]) -> Result<(), Error> {
        let state = self.state(number, source.len())?;
        let to = self.binding(state.id, true)?;
        let mut staging = Buffer::new(&self.context, to.size, MemoryKind::Upload)?;
        staging.mapped().fill(0);
        to_staging(&state.info, source, staging.mapped(), &Serial)?;
        let from = Binding { buffer: staging.raw, offset: 0, size: to.size, written: false };
        self.copy(from, to)
    }

    fn copy(&self, from: Binding, to: Binding) -> Result<(), Error> {
        let mut recording = Recording::new(&self.context)?;
        recording.record(&[Command::Copy { from, to }], false)?;
        recording.run()
    }
}
