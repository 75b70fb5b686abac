//! Cache of recordings for shapes that were run before. A language model alternates between prompts
//! and single tokens, so the recording for a token is used again.

use crate::argmax::Search;
use crate::compiled::Compiled;
use crate::device::Recording;
use crate::error::Error;
use crate::replay::Replay;
use crate::trace::{Label, Stopwatch};
use torchlet_gpu::ids::IdMap;
use torchlet_gpu::state::{DeviceTensor, Storage};
use torchlet_gpu::steps::Step;
use torchlet_gpu::tensors::{TensorId, padded_bytes};
use torchlet_graph::graph::ValueId;

/// The maximum number of cached recordings beside the current one.
const MAX_CACHED: usize = 3;

/// The cache key of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordingKey {
    /// The sizes of each tensor input, in order.
    pub(crate) sizes: Vec<Vec<usize>>,
    /// The output to search (argmax) instead of returning it.
    pub(crate) wanted: Option<usize>,
}

/// A cached recording, with the tensor shapes and integers that belong to it.
pub(crate) struct CachedRecording {
    key: RecordingKey,
    pub(crate) recording: Recording,
    replay: Replay,
    search: Option<Search>,
    labels: Option<Vec<Label>>,
    /// The sizes of each tensor and, for an alias, its location.
    tensors: Vec<Option<Known>>,
    strided: IdMap<TensorId, Vec<usize>>,
    integers: Vec<Option<i64>>,
    /// The contents of inputs that operators read on the host, if known.
    host: Vec<(ValueId, Option<Vec<i32>>)>,
}

type Known = (Vec<usize>, Option<(TensorId, u64)>);

impl Compiled {
    /// Returns the key of the current recording.
    fn key(&self) -> RecordingKey {
        let inputs = self.graph.inputs.iter().zip(&self.inputs).filter(|(_, it)| it.is_some());
        let sizes = |(id, _): (&ValueId, _)| self.state.tensor(*id).map(|it| it.sizes.clone());
        RecordingKey {
            sizes: inputs.filter_map(|input| sizes(input).ok()).collect(),
            wanted: self.wanted,
        }
    }

    /// Switches to the recording for these sizes and this search: the current one, a cached one, or
    /// an empty one that has yet to be recorded.
    ///
    /// # Errors
    /// An input exceeds its bound, or memory for another recording is missing. Nothing changes
    /// then.
    pub(crate) fn switch_to(&mut self, wanted: RecordingKey) -> Result<(), Error> {
        let now = self.key();
        if now == wanted {
            return Ok(());
        }
        self.check_sizes(&wanted)?;
        let found = self.kept.iter().position(|kept| kept.key == wanted);
        let mut other = match found.map(|at| self.kept.remove(at)) {
            Some(other) => other,
            None if self.recorded && self.kept.len() < MAX_CACHED => {
                let recording = Recording::new(&self.context).or_else(|error| {
                    self.evict(error)?;
                    Recording::new(&self.context)
                })?;
                self.snapshot(wanted.clone(), recording)
            }
            // Reuses the least recently used recording: much of it, above all descriptors, may stay
            // valid.
            None if self.recorded => self.kept.remove(0),
            None => {
                self.set_inputs(&wanted);
                return Ok(());
            }
        };
        let was_recorded = std::mem::replace(&mut self.recorded, found.is_some());
        self.exchange(&mut other);
        other.key = now;
        if was_recorded {
            self.kept.push(other);
        }
        if found.is_none() {
            self.set_inputs(&wanted);
        }
        Ok(())
    }

    /// Records steps. If memory runs out, frees the cached recordings and tries again.
    pub(crate) fn record_or_evict(
        &mut self,
        steps: Vec<Step>,
        watch: &mut Stopwatch,
    ) -> Result<(), Error> {
        self.record(&steps, watch).or_else(|error| {
            self.evict(error)?;
            self.record(&steps, watch)
        })?;
        self.replay.hold(steps);
        Ok(())
    }

    /// Frees the cached recordings if that may resolve the error; otherwise returns the error.
    fn evict(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_out_of_memory() || self.kept.is_empty() {
            return Err(error);
        }
        self.kept.clear();
        Ok(())
    }

    fn check_sizes(&self, wanted: &RecordingKey) -> Result<(), Error> {
        let staged = self.inputs.iter().enumerate();
        let staged = staged.filter_map(|(position, staging)| Some((position, (*staging)?)));
        for ((position, staging), sizes) in staged.zip(&wanted.sizes) {
            let numel = sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size));
            if numel.is_none_or(|numel| padded_bytes(staging.element, numel) > staging.bytes) {
                return Err(Error::Invalid(format!("input {position} exceeds its bound")));
            }
        }
        Ok(())
    }

    /// Sets the input sizes; nothing is recorded for them yet.
    fn set_inputs(&mut self, wanted: &RecordingKey) {
        let inputs = self.graph.inputs.iter().zip(&self.inputs).filter(|(_, it)| it.is_some());
        for ((id, _), sizes) in inputs.zip(&wanted.sizes) {
            if let Some(Some(tensor)) = self.state.tensors.get_mut(*id) {
                tensor.sizes.clone_from(sizes);
            }
        }
        self.wanted = wanted.wanted;
        self.recorded = false;
    }

    /// Copies the current shapes and integers, with an empty recording.
    fn snapshot(&self, key: RecordingKey, recording: Recording) -> CachedRecording {
        let known = |tensor: &DeviceTensor| {
            let place = match tensor.storage {
                Storage::Alias(root, start) => Some((root, start)),
                _ => None,
            };
            (tensor.sizes.clone(), place)
        };
        let numbers = |id: &ValueId| (*id, self.state.host.get(id).cloned());
        CachedRecording {
            key,
            recording,
            replay: Replay::new(self.replay.calls.clone()),
            search: None,
            labels: self.labels.as_ref().map(|_| Vec::new()),
            tensors: self.state.tensors.iter().map(|it| it.as_ref().map(known)).collect(),
            strided: self.state.strided.clone(),
            integers: self.state.integers.clone(),
            host: self.watched.iter().map(numbers).collect(),
        }
    }

    /// Swaps the current recording with a cached one.
    fn exchange(&mut self, other: &mut CachedRecording) {
        std::mem::swap(&mut self.recording, &mut other.recording);
        std::mem::swap(&mut self.replay, &mut other.replay);
        std::mem::swap(&mut self.search, &mut other.search);
        std::mem::swap(&mut self.labels, &mut other.labels);
        std::mem::swap(&mut self.state.strided, &mut other.strided);
        std::mem::swap(&mut self.state.integers, &mut other.integers);
        self.wanted = other.key.wanted;
        for (tensor, known) in self.state.tensors.iter_mut().zip(&mut other.tensors) {
            let (Some(tensor), Some((sizes, place))) = (tensor, known) else { continue };
            std::mem::swap(&mut tensor.sizes, sizes);
            // Which tensors are aliases is fixed when memory is planned, but their locations may
            // change.
            if let (Storage::Alias(root, start), Some((other_root, other_start))) =
                (&mut tensor.storage, place)
            {
                std::mem::swap(root, other_root);
                std::mem::swap(start, other_start);
            }
        }
        for (id, numbers) in &mut other.host {
            let were = self.state.host.remove(id);
            if let Some(numbers) = std::mem::replace(numbers, were) {
                self.state.host.insert(*id, numbers);
            }
        }
    }
}
