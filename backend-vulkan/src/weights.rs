//! Weights shared by several graphs: each is on the device only once.
//!
//! Methods of one program, and delegates of one method, refer to the same bytes of a file. Weights
//! are identified by their host address: while a graph that borrows these bytes exists, no other
//! data can be at that address. This does not hold if a method was leaked with `mem::forget`, so a
//! hash of sampled contents must match as well.

use crate::derived::{Derived, Matrices, Rows, Source, Transposed};
use crate::device::Buffer;
use crate::memory_plan::{Locations, Memory};
use crate::state::{Contents, State, Storage};
use crate::tensors::TensorId;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use torchlet_graph::graph::{Graph, Value};
use torchlet_shaders::Element;

/// The minimum bytes of a weight to share.
const MIN_BYTES: usize = 16 << 10;

/// The identity of a weight on the device: its host bytes, and the layout that shaders read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Weight {
    address: usize,
    bytes: usize,
    sample: u64,
    /// The element type after conversion, if converted.
    converted: Option<Element>,
    /// The derivation from the host bytes, if derived.
    made: Option<Made>,
}

/// How a weight is derived from host bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Made {
    /// Transposed matrices with elements of this size.
    Transposed(usize, Matrices),
    /// 4-bit values, two per byte.
    Nibbles,
    /// Packed rows of quantized values.
    Packed(Rows),
}

/// The location of a weight.
#[derive(Debug, Clone)]
pub(crate) struct SharedWeight<B> {
    buffer: B,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Owned by a compiled graph while the host bytes that it was compiled from are borrowed.
#[derive(Default)]
pub(crate) struct Holder(Arc<()>);

/// A weight on the device.
struct Entry {
    place: SharedWeight<Weak<Buffer>>,
    /// The graphs that borrow these bytes. The buffer may outlive them if others use other weights
    /// in it.
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

/// Returns the shareable weights of a graph by tensor: large constants of the file that never
/// change. The bytes of the graph must outlive the compiled graph.
pub(crate) fn of(
    graph: &Graph<'_>,
    state: &State,
    changing: &HashSet<TensorId>,
) -> HashMap<TensorId, Weight> {
    let lent = |id: TensorId| match (&state.tensor(id).ok()?.storage, graph.values.get(id)?) {
        (Storage::Constant(Contents::Graph | Contents::Converted(_)), Value::Tensor(tensor)) => {
            match &tensor.data {
                Some(Cow::Borrowed(bytes))
                    if bytes.len() >= MIN_BYTES && !changing.contains(&id) =>
                {
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

/// Hashes samples of the bytes, from the first to the last.
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
    /// Returns the wanted weights that are already on the device.
    pub(crate) fn find(
        &self,
        wanted: &HashMap<TensorId, Weight>,
    ) -> HashMap<TensorId, SharedWeight<Arc<Buffer>>> {
        let known = self.lock();
        let found = wanted.iter().filter_map(|(id, weight)| {
            let entry = known.get(weight).filter(|entry| entry.is_held())?;
            let SharedWeight { buffer, offset, bytes } = &entry.place;
            let buffer = buffer.upgrade()?;
            Some((*id, SharedWeight { buffer, offset: *offset, bytes: *bytes }))
        });
        found.collect()
    }

    /// Registers the weights of a graph, located in these buffers. They can be found until the
    /// returned holder is dropped.
    pub(crate) fn keep(
        &self,
        weights: &HashMap<TensorId, Weight>,
        places: &Locations,
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
            let found = SharedWeight { buffer, offset: place.offset, bytes: place.bytes };
            let own = || Entry { place: found, holders: Vec::new() };
            let entry = known.entry(*weight).or_insert_with(own);
            entry.holders.push(Arc::downgrade(&holder.0));
        }
        holder
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Weight, Entry>> {
        // Poisoning can be ignored: a panic cannot leave the guarded data half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedWeight<Arc<Buffer>> {
    /// Returns the buffer's index among `buffers`, adding it if necessary.
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
