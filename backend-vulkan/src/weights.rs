//! Weights on the device, shared by several graphs so that each weight is stored only once.
//!
//! A [`Weight`] identifies a weight, by the host bytes that its graph borrows. Each compiled graph
//! therefore owns a [`Holder`] for as long as it borrows them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use torchlet_gpu::memory_plan::{Locations, Memory};
use torchlet_gpu::{TensorId, Weight};

/// The location of a weight on the device.
#[derive(Debug, Clone)]
pub(crate) struct SharedWeight<B> {
    buffer: B,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A token that a compiled graph owns as long as it borrows the host bytes of its weights.
#[derive(Default)]
pub(crate) struct Holder(Arc<()>);

/// A weight on the device.
struct Entry<B> {
    place: SharedWeight<Weak<B>>,
    /// The tokens of the graphs that borrow the host bytes. The buffer may exist longer, if other
    /// graphs use other weights in it.
    holders: Vec<Weak<()>>,
}

impl<B> Entry<B> {
    fn is_held(&self) -> bool {
        self.holders.iter().any(|holder| holder.strong_count() > 0)
    }
}

/// The weights of all graphs on a device. Their buffers have type `B`.
pub(crate) struct Weights<B>(Mutex<HashMap<Weight, Entry<B>>>);

impl<B> Default for Weights<B> {
    fn default() -> Self {
        Weights(Mutex::default())
    }
}

impl<B> Weights<B> {
    /// Returns those of the wanted weights that are already on the device.
    pub(crate) fn find(
        &self,
        wanted: &HashMap<TensorId, Weight>,
    ) -> HashMap<TensorId, SharedWeight<Arc<B>>> {
        let known = self.lock();
        let found = wanted.iter().filter_map(|(id, weight)| {
            let entry = known.get(weight).filter(|entry| entry.is_held())?;
            let SharedWeight { buffer, offset, bytes } = &entry.place;
            let buffer = buffer.upgrade()?;
            Some((*id, SharedWeight { buffer, offset: *offset, bytes: *bytes }))
        });
        found.collect()
    }

    /// Registers the weights of a graph, which are located in these buffers. Other graphs can find
    /// them until the returned token is dropped.
    pub(crate) fn keep(
        &self,
        weights: &HashMap<TensorId, Weight>,
        places: &Locations,
        buffers: &[Arc<B>],
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Weight, Entry<B>>> {
        // Poisoning can be ignored: a panic cannot leave the guarded data half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> SharedWeight<Arc<B>> {
    /// Returns the index of the weight's buffer among `buffers`; adds the buffer if it is missing.
    pub(crate) fn among(&self, buffers: &mut Vec<Arc<B>>) -> usize {
        match buffers.iter().position(|buffer| Arc::ptr_eq(buffer, &self.buffer)) {
            Some(number) => number,
            None => {
                buffers.push(self.buffer.clone());
                buffers.len() - 1
            }
        }
    }
}
