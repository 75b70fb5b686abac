//! What a graph is encoded into: dispatches over tensors.

use crate::device::PipelineKey;
use crate::tensors::TensorId;

/// A tensor that a dispatch binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) tensor: TensorId,
    pub(crate) written: bool,
}

/// Binds a tensor for reading.
pub(crate) fn read(tensor: TensorId) -> Access {
    Access { tensor, written: false }
}

/// Binds a tensor for writing (and reading).
pub(crate) fn write(tensor: TensorId) -> Access {
    Access { tensor, written: true }
}

/// A dispatch over tensors.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The call that it is part of: its position in the graph.
    pub(crate) node: usize,
    pub(crate) key: PipelineKey,
    pub(crate) accesses: Vec<Access>,
    pub(crate) push: Vec<u8>,
    pub(crate) groups: [u32; 3],
}
