//! Weights on the device, shared by several graphs so that each weight is stored only once.
//!
//! A [`Weight`] identifies a weight, by the host bytes that its graph borrows. Each compiled graph
//! therefore owns a [`Holder`] for as long as it borrows them.

use crate::memory_plan::{Locations, Memory};
use crate::tensors::TensorId;
use crate::weights::Weight;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The location of a weight on the device.
#[derive(Debug, Clone)]
pub struct SharedWeight<B> {
    buffer: B,
    /// The offset in the buffer, in bytes.
    pub offset: u64,
    /// The bytes of the weight.
    pub bytes: u64,
}

/// A token that a compiled graph owns as long as it borrows the host bytes of its weights.
#[derive(Debug, Default)]
pub struct Holder(Arc<()>);

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
pub struct SharedWeights<B>(Mutex<HashMap<Weight, Entry<B>>>);

impl<B> Default for SharedWeights<B> {
    fn default() -> Self {
        SharedWeights(Mutex::default())
    }
}

impl<B> SharedWeights<B> {
    /// Returns those of the wanted weights that are already on the device.
    pub fn find(
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
    pub fn keep(
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
    pub fn among(&self, buffers: &mut Vec<Arc<B>>) -> usize {
        match buffers.iter().position(|buffer| Arc::ptr_eq(buffer, &self.buffer)) {
            Some(number) => number,
            None => {
                buffers.push(self.buffer.clone());
                buffers.len() - 1
            }
        }
    }
}
