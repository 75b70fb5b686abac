//! Weights that several graphs have in common: each is on the device once.
//!
//! Methods of one program and delegates of one method refer to the same bytes of a file. Which
//! bytes those are is told by where they lie in the host's memory: as long as anything is there
//! that was made of a graph with these bytes, they lie there, too, and nothing else can. Where
//! somebody forgot a method without ending it, that does not hold: so a sample of the contents has
//! to agree as well.

use crate::derived::{Derived, Matrices, Rows, Source, Transposed};
use crate::device::Buffer;
use crate::memory_plan::{Memory, Places};
use crate::state::{Contents, State, Storage};
use crate::tensors::TensorId;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use torchlet_graph::graph::{Graph, Value};
use torchlet_shaders::Element;

/// The bytes from which on it is worth looking whether they are there already.
const LEAST: usize = 16 << 10;

/// What a weight is on the device: bytes of the host, and how shaders read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Weight {
    address: usize,
    bytes: usize,
    sample: u64,
    /// If they become other elements, which.
    converted: Option<Element>,
    /// If it is made of them, how.
    made: Option<Made>,
}

/// How a weight is made of bytes of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Made {
    /// Matrices of elements of this size are transposed.
    Transposed(usize, Matrices),
    /// Codes of 4 bits share bytes.
    Nibbles,
    /// Rows of codes are packed.
    Packed(Rows),
}

/// Where a weight is.
#[derive(Debug, Clone)]
pub(crate) struct Found<B> {
    buffer: B,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a graph has as long as its bytes are where they were when it was compiled.
#[derive(Default)]
pub(crate) struct Holder(Arc<()>);

/// A weight on the device.
struct Entry {
    place: Found<Weak<Buffer>>,
    /// The graphs with these bytes. A buffer may outlive them, since others use what else is in it.
    holders: Vec<Weak<()>>,
}

impl Entry {
    fn is_held(&self) -> bool {
        self.holders.iter().any(|holder| holder.strong_count() > 0)
    }
}

/// The weights of all graphs on a device.
#[derive(Default)]
pub(crate) struct Weights(Mutex<HashMap<Weight, Entry>>);

/// The weights of a graph whose bytes last as long as what is made of it, by tensor: constants of
/// the file that never change.
pub(crate) fn of(
    graph: &Graph<'_>,
    state: &State,
    changing: &HashSet<TensorId>,
) -> HashMap<TensorId, Weight> {
    let lent = |id: TensorId| match (&state.tensor(id).ok()?.storage, graph.values.get(id)?) {
        (Storage::Constant(Contents::Graph | Contents::Converted(_)), Value::Tensor(tensor)) => {
            match &tensor.data {
                Some(Cow::Borrowed(bytes)) if bytes.len() >= LEAST && !changing.contains(&id) => {
                    Some(*bytes)
                }
                _ => None,
            }
        }
        _ => None,
    };
    let weight = |id: TensorId| {
        if changing.contains(&id) {
            return None;
        }
        let (source, made) = match &state.tensor(id).ok()?.storage {
            Storage::Constant(Contents::Graph | Contents::Converted(_)) => (id, None),
            Storage::Constant(Contents::Derived(Derived::Transposed(Transposed {
                source: Source { id, element },
                matrices,
            }))) => (*id, Some(Made::Transposed(element.size(), *matrices))),
            Storage::Constant(Contents::Derived(Derived::Nibbles(nibbles))) => {
                (nibbles.source.id, Some(Made::Nibbles))
            }
            Storage::Constant(Contents::Derived(Derived::Packed(packed))) => {
                (packed.source.id, Some(Made::Packed(packed.rows)))
            }
            _ => return None,
        };
        let bytes = lent(source)?;
        let converted = match &state.tensor(source).ok()?.storage {
            Storage::Constant(Contents::Converted(element)) => Some(*element),
            _ => None,
        };
        let (address, sample) = (bytes.as_ptr().addr(), sample(bytes));
        Some((id, Weight { address, bytes: bytes.len(), sample, converted, made }))
    };
    (0..state.tensors.len()).filter_map(weight).collect()
}

/// A hash of parts of the bytes, from the first to the last.
fn sample(bytes: &[u8]) -> u64 {
    const PARTS: usize = 64;
    const PART: usize = 32;
    let stride = bytes.len() / PARTS;
    let parts = (0..PARTS).filter_map(|part| bytes.get(part * stride..)?.get(..PART));
    let last = bytes.last_chunk::<PART>().map(<[u8; PART]>::as_slice);
    let mut hasher = DefaultHasher::new();
    parts.chain(last).for_each(|part| hasher.write(part));
    hasher.finish()
}

impl Weights {
    /// Those of these that are on the device already.
    pub(crate) fn find(
        &self,
        wanted: &HashMap<TensorId, Weight>,
    ) -> HashMap<TensorId, Found<Arc<Buffer>>> {
        let known = self.lock();
        let found = wanted.iter().filter_map(|(id, weight)| {
            let entry = known.get(weight).filter(|entry| entry.is_held())?;
            let Found { buffer, offset, bytes } = &entry.place;
            let buffer = buffer.upgrade()?;
            Some((*id, Found { buffer, offset: *offset, bytes: *bytes }))
        });
        found.collect()
    }

    /// Lets others find the weights of a graph, which are in these buffers now, as long as it holds
    /// them.
    pub(crate) fn keep(
        &self,
        weights: &HashMap<TensorId, Weight>,
        places: &Places,
        buffers: &[Arc<Buffer>],
    ) -> Holder {
        let holder = Holder::default();
        let mut known = self.lock();
        known.retain(|_, entry| {
            entry.holders.retain(|holder| holder.strong_count() > 0);
            entry.is_held() && entry.place.buffer.strong_count() > 0
        });
        for (id, weight) in weights {
            let Some(place) = places.get(id).filter(|place| place.memory == Memory::Weights) else {
                continue;
            };
            let Some(buffer) = buffers.get(place.buffer).map(Arc::downgrade) else { continue };
            let found = Found { buffer, offset: place.offset, bytes: place.bytes };
            let own = || Entry { place: found, holders: Vec::new() };
            let entry = known.entry(*weight).or_insert_with(own);
            entry.holders.push(Arc::downgrade(&holder.0));
        }
        holder
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Weight, Entry>> {
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
