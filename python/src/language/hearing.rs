//! Text callbacks during generation, and turns of concurrent generations.

use crate::error::{Failure, invalid_state};
use crate::shared::Shared;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use torchlet::llm::Stop;

/// Passes pieces of text to a Python callback until it raises an exception, which then ends the
/// generation.
pub(super) struct Listener {
    callback: Option<Py<PyAny>>,
    stop: Stop,
    turn: Option<Py<Turn>>,
    raised: Option<PyErr>,
}

impl Listener {
    pub(super) fn new(callback: Option<Py<PyAny>>, stop: &Stop, turn: Option<Py<Turn>>) -> Self {
        Listener { callback, stop: stop.clone(), turn, raised: None }
    }

    fn hear(&mut self, piece: &str) {
        if self.raised.is_some() {
            return;
        }
        let told = Python::attach(|py| {
            // Ctrl-C ends a generation.
            py.check_signals()?;
            self.callback.as_ref().map_or(Ok(()), |callback| callback.call1(py, (piece,)).map(drop))
        });
        if let Err(error) = told {
            self.raised = Some(error);
            self.stop.stop();
        }
    }
}

/// Progress of a cancellable generation.
#[derive(Default)]
enum Progress {
    #[default]
    Waits,
    /// Running; the handle stops it.
    Runs(Stop),
    IsOver,
}

/// A generation's turn to use its model, which can be cancelled before and while it runs.
#[pyclass(frozen, module = "torchlet._torchlet")]
#[derive(Default)]
pub(crate) struct Turn(Mutex<Progress>);

impl Turn {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the generation as running.
    fn begin(&self, stop: &Stop) -> PyResult<()> {
        let mut progress = self.progress();
        if let Progress::IsOver = *progress {
            return Err(invalid_state("the request was cancelled before its turn"));
        }
        *progress = Progress::Runs(stop.clone());
        Ok(())
    }

    /// Marks the generation as finished; later cancellations must not stop other generations.
    fn finish(&self) {
        *self.progress() = Progress::IsOver;
    }
}

#[pymethods]
impl Turn {
    #[new]
    fn new() -> Self {
        Turn::default()
    }

    /// Cancels the generation. A running one ends before its next token or prompt chunk, or with
    /// its next piece of text.
    fn end(&self) {
        let mut progress = self.progress();
        if let Progress::Runs(stop) = &*progress {
            stop.stop();
        }
        *progress = Progress::IsOver;
    }

    #[getter]
    fn is_over(&self) -> bool {
        matches!(*self.progress(), Progress::IsOver)
    }
}

/// A locked model that calls Python with text. It records the thread that uses it: a callback or
/// finalizer on that thread that used the model would deadlock.
pub(super) struct Model<T> {
    shared: Shared<T>,
    user: Mutex<Option<ThreadId>>,
}

/// Clears the recorded thread.
struct Using<'u>(&'u Mutex<Option<ThreadId>>);

impl Drop for Using<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<T: Send> Model<T> {
    pub(super) fn new(model: T) -> Self {
        Model { shared: Shared::new(model), user: Mutex::default() }
    }

    fn check(&self) -> PyResult<()> {
        let user = *self.user.lock().unwrap_or_else(PoisonError::into_inner);
        if user == Some(std::thread::current().id()) {
            let sentence = "a callback of a generation cannot use the same model; end the \
                            generation first";
            return Err(invalid_state(sentence));
        }
        Ok(())
    }

    pub(super) fn with<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.check()?;
        self.shared.with(py, body)
    }

    /// Runs a body that passes text to a listener.
    pub(super) fn heard<R: Send>(
        &self,
        py: Python<'_>,
        mut listener: Listener,
        body: impl FnOnce(&mut T, &mut dyn FnMut(&str)) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.check()?;
        let mut guard = self.shared.lock(py)?;
        let using = Using(&self.user);
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(std::thread::current().id());
        if let Some(turn) = &listener.turn {
            turn.get().begin(&listener.stop)?;
        }
        let model: &mut T = &mut guard;
        let made = py.detach(|| body(model, &mut |piece| listener.hear(piece)));
        if let Some(turn) = &listener.turn {
            turn.get().finish();
        }
        drop(using);
        drop(guard);
        match listener.raised {
            Some(error) => Err(error),
            None => Ok(made?),
        }
    }
}
