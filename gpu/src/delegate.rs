//! The delegate that runs a compiled graph on any device.

use crate::pool::{DevicePool, OpenDevice};
use crate::search::SearchRequest;
use crate::state_tensors::StateTensor;
use std::sync::Arc;
use torchlet_core::{Delegate, DelegateCall, DelegateError, DelegateState};

/// A compiled graph with its memory on a device.
pub trait Session: Send {
    /// The device.
    type Device: OpenDevice + Send + Sync;

    /// Waits until the device has finished a cancelled run.
    ///
    /// # Errors
    /// The device failed.
    fn finish_pending(&mut self) -> Result<(), ErrorOf<Self>>;

    /// Runs the graph on the arguments of a call. If an argmax search replaced an output, returns
    /// the number of rows of that output.
    ///
    /// # Errors
    /// An argument does not fit, the run was cancelled, or the device failed.
    fn run(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        wanted: Option<SearchRequest<'_>>,
    ) -> Result<Option<usize>, ErrorOf<Self>>;

    /// Restores the initial contents of all state buffers.
    ///
    /// # Errors
    /// The device failed.
    fn reset(&mut self) -> Result<(), ErrorOf<Self>>;

    /// Returns the state tensors that callers can read and write.
    fn state_tensors(&self) -> &[StateTensor];

    /// Copies a state tensor to the host, after any cancelled run.
    ///
    /// # Errors
    /// There is no such tensor, its size differs, or the device failed.
    fn read_state(&self, number: usize, target: &mut [u8]) -> Result<(), ErrorOf<Self>>;

    /// Copies host data into a state tensor.
    ///
    /// # Errors
    /// As for [`read_state`](Self::read_state).
    fn write_state(&mut self, number: usize, source: &[u8]) -> Result<(), ErrorOf<Self>>;
}

/// The error of a session's device.
pub type ErrorOf<S> = <<S as Session>::Device as OpenDevice>::Error;

/// A delegate that runs a compiled graph.
#[derive(Debug)]
pub struct GraphDelegate<S: Session> {
    session: Box<S>,
    device: Arc<S::Device>,
    pool: DevicePool<S::Device>,
}

impl<S: Session> GraphDelegate<S> {
    /// Creates the delegate of a session on a device of a pool.
    pub fn new(session: Box<S>, device: Arc<S::Device>, pool: DevicePool<S::Device>) -> Self {
        GraphDelegate { session, device, pool }
    }

    /// Runs `work` on the session once the device has finished any cancelled run.
    fn with_idle<T>(
        &mut self,
        work: impl FnOnce(&mut S) -> Result<T, ErrorOf<S>>,
    ) -> Result<T, DelegateError> {
        let result = self.session.finish_pending().and_then(|()| work(&mut self.session));
        self.pool.checked(&self.device, result)
    }
}

impl<S: Session> Delegate for GraphDelegate<S> {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        self.with_idle(|session| session.run(call, None).map(drop))
    }

    fn execute_argmax(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        arg: usize,
        indices: &mut [i32],
    ) -> Result<Option<usize>, DelegateError> {
        self.with_idle(|session| session.run(call, Some(SearchRequest { arg, indices })))
    }

    fn reset(&mut self) -> Result<(), DelegateError> {
        self.with_idle(Session::reset)
    }

    fn state(&self, number: usize) -> Option<DelegateState<'_>> {
        let state = self.session.state_tensors().get(number)?;
        Some(DelegateState { name: state.name.as_deref(), info: state.info.clone() })
    }

    fn read_state(&self, number: usize, target: &mut [u8]) -> Result<(), DelegateError> {
        self.pool.checked(&self.device, self.session.read_state(number, target))
    }

    fn write_state(&mut self, number: usize, source: &[u8]) -> Result<(), DelegateError> {
        self.with_idle(|session| session.write_state(number, source))
    }
}
