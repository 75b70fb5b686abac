//! Weights that several graphs have in common: each is on the device once.
//!
//! Methods of one program and delegates of one method refer to the same bytes of a file. Which bytes those are is told by where they lie in
//! the host's memory, which says enough where they stay there as long as what was made of them: then nothing else can lie
//! there meanwhile. Nothing of the contents is compared.

use crate::derived::{Derived, Matrices, Source, Transposed};
use crate::device::Buffer;
use crate::memory_plan::{Memory, Places};
use crate::state::{Contents, State, Storage};
use crate::tensors::TensorId;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use torchlet_graph::graph::{Graph, Value};

/// The bytes from which on it is worth looking whether they are there already.
const LEAST: usize = 16 << 10;

/// What a weight is on the device: bytes of the host, and how shaders read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Weight {
    address: usize,
    bytes: usize,
    /// If it is transposed: the elements' size, and the matrices.
    transposed: Option<(usize, Matrices)>,
}

/// Where a weight is.
#[derive(Debug, Clone)]
pub(crate) struct Found<B> {
    buffer: B,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The weights of all graphs on a device.
#[derive(Default)]
pub(crate) struct Weights(Mutex<HashMap<Weight, Found<Weak<Buffer>>>>);

/// The weights of a graph whose bytes last as long as what is made of it, by tensor: constants of the file that never change.
pub(crate) fn of(
    graph: &Graph<'_>,
    state: &State,
    changing: &HashSet<TensorId>,
) -> HashMap<TensorId, Weight> {
    let lent = |id: TensorId| match (&state.tensor(id).ok()?.storage, graph.values.get(id)?) {
        (Storage::Constant(Contents::Graph), Value::Tensor(tensor)) => match &tensor.data {
            Some(Cow::Borrowed(bytes)) if bytes.len() >= LEAST && !changing.contains(&id) => {
                Some((bytes.as_ptr().addr(), bytes.len()))
            }
            _ => None,
        },
        _ => None,
    };
    let weight = |id: TensorId| {
        if changing.contains(&id) {
            return None;
        }
        let (source, transposed) = match &state.tensor(id).ok()?.storage {
            Storage::Constant(Contents::Graph) => (id, None),
            Storage::Constant(Contents::Derived(Derived::Transposed(Transposed {
                source: Source { id, element },
                matrices,
            }))) => (*id, Some((element.size(), *matrices))),
            _ => return None,
        };
        let (address, bytes) = lent(source)?;
        Some((id, Weight { address, bytes, transposed }))
    };
    (0..state.tensors.len()).filter_map(weight).collect()
}

impl Weights {
    /// Those of these that are on the device already.
    pub(crate) fn find(
        &self,
        wanted: &HashMap<TensorId, Weight>,
    ) -> HashMap<TensorId, Found<Arc<Buffer>>> {
        let known = self.lock();
        let found = wanted.iter().filter_map(|(id, weight)| {
            let Found { buffer, offset, bytes } = known.get(weight)?;
            let buffer = buffer.upgrade()?;
            Some((*id, Found { buffer, offset: *offset, bytes: *bytes }))
        });
        found.collect()
    }

    /// Lets others find the weights of a graph, which are in these buffers now.
    pub(crate) fn keep(
        &self,
        weights: &HashMap<TensorId, Weight>,
        places: &Places,
        buffers: &[Arc<Buffer>],
    ) {
        let mut known = self.lock();
        known.retain(|_, found| found.buffer.strong_count() > 0);
        for (id, weight) in weights {
            let place = places.get(id).filter(|place| place.memory == Memory::Weights);
            if let Some((place, buffer)) = place.and_then(|it| Some((it, buffers.get(it.buffer)?)))
            {
                let buffer = Arc::downgrade(buffer);
                let found = Found { buffer, offset: place.offset, bytes: place.bytes };
                known.insert(*weight, found);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Weight, Found<Weak<Buffer>>>> {
        // A panic elsewhere cannot have left what is locked half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found<Arc<Buffer>> {
    /// The buffer's number among these, of which it becomes one.
    pub(crate) fn among(&self, buffers: &mut Vec<Arc<Buffer>>) -> usize {
        match buffers.iter().position(|buffer| Arc::ptr_eq(buffer, &self.buffer)) {
            Some(number) => number,
            None => {
                buffers.push(self.buffer.clone());
                buffers.len() - 1
            }
        }
    }
}
