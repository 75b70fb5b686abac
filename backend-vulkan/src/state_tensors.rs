//! Access to the state of a compiled graph: list, read and write tensors that persist between runs.

use crate::compiled::Compiled;
use crate::device::{Binding, Buffer, Command, MemoryKind, Recording};
use crate::error::Error;
use torchlet_core::Serial;
use torchlet_gpu::state_tensors::StateTensor;
use torchlet_gpu::transfer::{from_staging, to_staging};

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
        Ok(from_staging(staging.mapped(), &state.info, target, &Serial)?)
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
