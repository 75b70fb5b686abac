//! Runs independent tasks of loading a plan in parallel.

use std::sync::{Mutex, PoisonError};
use torchlet_core::Parallel;

/// A task that may run in parallel with others.
pub type Task<'t, E> = Box<dyn FnOnce() -> Result<(), E> + Send + 't>;

/// Runs all tasks, in parallel if possible.
///
/// # Errors
/// A task failed; the others have run, too.
pub fn run_tasks<E: Send>(parallel: &dyn Parallel, tasks: Vec<Task<'_, E>>) -> Result<(), E> {
    let tasks: Vec<Mutex<Option<Task<'_, E>>>> =
        tasks.into_iter().map(|task| Mutex::new(Some(task))).collect();
    let result = Mutex::new(Ok(()));
    parallel.run(tasks.len(), &|index| {
        let slot = tasks.get(index);
        let task = slot.and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(Err(error)) = task.map(|task| task()) {
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
        }
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::Serial;

    #[test]
    fn task_errors_are_returned() {
        let tasks: Vec<Task<'_, &str>> =
            vec![Box::new(|| Ok(())), Box::new(|| Err("no")), Box::new(|| Ok(()))];
        assert_eq!(run_tasks(&Serial, tasks), Err("no"));
        assert_eq!(run_tasks::<()>(&Serial, Vec::new()), Ok(()));
    }
}
