//! Snapshots of shapes and integers. A session keeps one for each cached recording.

use crate::ids::IdMap;
use crate::state::{DeviceTensor, State, Storage};
use crate::tensors::TensorId;
use torchlet_graph::graph::ValueId;

/// A snapshot of all integers, of the sizes of all tensors, and of the locations of aliases.
pub struct Shapes {
    tensors: Vec<Option<Known>>,
    strided: IdMap<TensorId, Vec<usize>>,
    integers: Vec<Option<i64>>,
    /// The contents of inputs that operators read on the host, if known.
    host: Vec<(ValueId, Option<Vec<i32>>)>,
}

type Known = (Vec<usize>, Option<(TensorId, u64)>);

impl Shapes {
    /// Copies the current shapes and integers. `watched` are the inputs that operators read on the
    /// host.
    pub fn of(state: &State, watched: &[ValueId]) -> Self {
        let known = |tensor: &DeviceTensor| {
            let place = match tensor.storage {
                Storage::Alias(root, start) => Some((root, start)),
                _ => None,
            };
            (tensor.sizes.clone(), place)
        };
        let numbers = |id: &ValueId| (*id, state.host.get(id).cloned());
        Shapes {
            tensors: state.tensors.iter().map(|it| it.as_ref().map(known)).collect(),
            strided: state.strided.clone(),
            integers: state.integers.clone(),
            host: watched.iter().map(numbers).collect(),
        }
    }

    /// Exchanges the current shapes and integers with the stored ones.
    pub fn exchange(&mut self, state: &mut State) {
        std::mem::swap(&mut state.strided, &mut self.strided);
        std::mem::swap(&mut state.integers, &mut self.integers);
        for (tensor, known) in state.tensors.iter_mut().zip(&mut self.tensors) {
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
        for (id, numbers) in &mut self.host {
            let were = state.host.remove(id);
            if let Some(numbers) = std::mem::replace(numbers, were) {
                state.host.insert(*id, numbers);
            }
        }
    }
}
