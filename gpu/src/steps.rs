//! The result of encoding a graph: dispatches over tensors.

use crate::device::PipelineKey;
use crate::error::Error;
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

/// A dispatch whose buffers are tensors; memory is assigned to them later.
#[derive(Debug, Clone)]
pub struct Step {
    /// The index of the call that emitted the step.
    pub(crate) node: usize,
    pub(crate) key: PipelineKey,
    pub(crate) accesses: Vec<Access>,
    /// Push constants, followed by the parameters that the shader reads from memory.
    pub(crate) parameters: Vec<u8>,
    pub(crate) groups: [u32; 3],
}

impl Step {
    /// Returns the push constants.
    pub(crate) fn push(&self) -> &[u8] {
        self.split().0
    }

    /// Returns the parameters that the shader reads from memory.
    pub(crate) fn in_memory(&self) -> &[u8] {
        self.split().1
    }

    /// Appends the step to `steps`. A step with more than `at_once` workgroups in z is split into
    /// several, if its shader has a parameter for the index of the first workgroup in z; `base_z`
    /// is the byte offset of that parameter.
    pub(crate) fn split_z(
        mut self,
        base_z: Option<usize>,
        at_once: u32,
        steps: &mut Vec<Step>,
    ) -> Result<(), Error> {
        let [_, _, z] = self.groups;
        let Some(place) = base_z.filter(|_| z > at_once) else {
            steps.push(self);
            return Ok(());
        };
        for first in (0..z).step_by(at_once.max(1) as usize) {
            let bytes = self.parameters.get_mut(place..).and_then(<[u8]>::first_chunk_mut);
            let bytes = bytes.ok_or_else(|| {
                Error::invalid(
                    "internal error: a shader without a workgroup offset is too large for one dispatch",
                )
            })?;
            *bytes = first.to_le_bytes();
            self.groups[2] = at_once.min(z - first);
            steps.push(self.clone());
        }
        Ok(())
    }

    fn split(&self) -> (&[u8], &[u8]) {
        self.parameters.split_at(self.key.module.push_bytes().min(self.parameters.len()))
    }
}
