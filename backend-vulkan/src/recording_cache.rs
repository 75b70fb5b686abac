//! A cache of recordings for shapes that were run before. A language model alternates between
//! prompts and single tokens, so the recording for a single token is used again.

use crate::error::Error;
use crate::recorded::Recorded;
use torchlet_gpu::{Shapes, State};

/// The maximum number of cached recordings, in addition to the current one.
const MAX_CACHED: usize = 3;

/// The cache key of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordingKey {
    /// The sizes of each tensor input, in order.
    pub(crate) sizes: Vec<Vec<usize>>,
    /// The index of the output that an argmax search replaces, if any.
    pub(crate) wanted: Option<usize>,
}

/// A cached recording, with the tensor shapes and integers that belong to it.
pub(crate) struct CachedRecording {
    pub(crate) key: RecordingKey,
    pub(crate) recorded: Recorded,
    shapes: Shapes,
}

impl CachedRecording {
    /// Creates an entry with a recording that is still empty and the shapes that it will be
    /// recorded for.
    pub(crate) fn new(key: RecordingKey, recorded: Recorded, shapes: Shapes) -> Self {
        CachedRecording { key, recorded, shapes }
    }

    /// Exchanges the current recording and state with the cached ones.
    pub(crate) fn exchange(&mut self, recorded: &mut Recorded, state: &mut State) {
        std::mem::swap(recorded, &mut self.recorded);
        self.shapes.exchange(state);
    }
}

/// The cached recordings; the current recording is not one of them.
#[derive(Default)]
pub(crate) struct RecordingCache {
    /// The cached recordings; the most recently used one is last.
    entries: Vec<CachedRecording>,
}

impl RecordingCache {
    /// Removes and returns the recording with a key.
    pub(crate) fn take(&mut self, key: &RecordingKey) -> Option<CachedRecording> {
        let found = self.entries.iter().position(|entry| entry.key == *key);
        found.map(|at| self.entries.remove(at))
    }

    /// If the cache is full, removes and returns the least recently used recording, to be recorded
    /// anew. Much of it, above all descriptors, may stay valid for other shapes.
    pub(crate) fn take_oldest_if_full(&mut self) -> Option<CachedRecording> {
        (self.entries.len() >= MAX_CACHED).then(|| self.entries.remove(0))
    }

    /// Adds a recording as the most recently used one.
    pub(crate) fn push(&mut self, recording: CachedRecording) {
        self.entries.push(recording);
    }

    /// Frees all cached recordings.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Frees the cached recordings if that may resolve the error. Otherwise, returns the error.
    pub(crate) fn evict(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_out_of_memory() || self.entries.is_empty() {
            return Err(error);
        }
        self.clear();
        Ok(())
    }

    /// Waits until no recording is pending.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        self.entries.iter().try_for_each(|entry| entry.recorded.recording.wait())
    }
}
