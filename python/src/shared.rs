//! State that threads use in turn, and that forked processes must not use.

use crate::error::{Failure, invalid_state};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::sync::{Mutex, MutexGuard};

/// An object of the runtime behind a lock.
pub(crate) struct Shared<T> {
    /// Always present until dropped.
    state: Option<Mutex<T>>,
    /// The process that created it.
    process: u32,
}

impl<T> Shared<T> {
    pub(crate) fn new(state: T) -> Self {
        Shared { state: Some(Mutex::new(state)), process: std::process::id() }
    }

    /// Waits for the lock, while other threads may run Python code.
    pub(crate) fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, T>> {
        if std::process::id() != self.process {
            // A fork has no worker threads, and would wait for them forever.
            let sentence =
                "the module was opened before this process was forked; open it again here";
            return Err(invalid_state(sentence));
        }
        let unusable = "the module is unusable after an internal error; open it again";
        let state = self.state.as_ref().ok_or_else(|| invalid_state(unusable))?;
        state.lock_py_attached(py).map_err(|_| invalid_state(unusable))
    }
}

impl<T: Send> Shared<T> {
    /// Runs a lengthy operation that runs no Python code.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        let mut state = self.lock(py)?;
        let state: &mut T = &mut state;
        let result = py.detach(|| body(state));
        Ok(result?)
    }
}

impl<T> Drop for Shared<T> {
    /// Dropping would wait for threads of kernels or of a GPU driver, which a fork does not have.
    /// There, the state is leaked.
    fn drop(&mut self) {
        if std::process::id() != self.process {
            std::mem::forget(self.state.take());
        }
    }
}
