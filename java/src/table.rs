//! Objects that Java knows by number.

use crate::error::Failure;
use jni::sys::jlong;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects of one type. Removing one ends its use by new calls; running calls finish first.
pub(crate) struct Table<T> {
    /// The objects, and the number of the next one.
    entries: Mutex<(HashMap<jlong, Arc<T>>, jlong)>,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Self {
        Table { entries: Mutex::new((HashMap::new(), 1)) }
    }

    fn lock(&self) -> MutexGuard<'_, (HashMap<jlong, Arc<T>>, jlong)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object, and returns its number, which is positive.
    pub(crate) fn add(&self, object: T) -> jlong {
        let mut entries = self.lock();
        let number = entries.1;
        entries.1 += 1;
        entries.0.insert(number, Arc::new(object));
        number
    }

    /// Returns the object with this number.
    pub(crate) fn get(&self, number: jlong) -> Result<Arc<T>, Failure> {
        let found = self.lock().0.get(&number).cloned();
        found.ok_or_else(|| Failure::State("the native object was closed".into()))
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.lock().0.len()
    }

    /// Removes an object, if it is there. It is dropped once no call uses it.
    pub(crate) fn remove(&self, number: jlong) {
        // Dropped after the lock: freeing a model lasts long.
        let removed = self.lock().0.remove(&number);
        drop(removed);
    }
}

/// Locks an object that calls use in turn.
pub(crate) fn lock<T>(object: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    object.lock().map_err(|_| {
        Failure::State("the object is unusable after an internal error; open it again".into())
    })
}
