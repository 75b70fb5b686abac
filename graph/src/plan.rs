//! Memory planner: assigns offsets in planned memory to tensors.
//!
//! A tensor occupies its memory from the first to the last instruction that uses it. Tensors with
//! overlapping lifetimes get disjoint memory. Larger tensors are placed first, each at the lowest
//! free offset. Tensors that already have an offset keep it: state, which other methods may share,
//! and tensors that the exporter planned.

mod arena;
mod lifetimes;
mod loops;
mod sharing;

use crate::error::Error;
use crate::method::{Method, MethodValue, TensorData};
use alloc::vec::Vec;
use arena::Taken;
pub use arena::{Arena, Lifetime};
use lifetimes::lifetimes;

/// Alignment of tensors, in bytes.
const ALIGN: usize = 16;
/// Maximum number of tensors that share memory; no real program has more. Larger tensors come
/// first, and tensors beyond the limit get separate memory, since the search for a free offset is
/// linear in the number of tensors.
const MAX: usize = 1 << 15;

impl Method<'_> {
    /// Assigns an offset in planned memory to each used tensor without one, except constants,
    /// views, inputs and outputs. The caller provides the memory of inputs and outputs.
    ///
    /// # Errors
    /// The planned memory is larger than the program format allows.
    pub fn plan(&mut self) -> Result<(), Error> {
        let uses = lifetimes(self);
        let mut taken = Vec::new();
        let mut waiting = Vec::new();
        for (index, (value, lifetime)) in self.values.iter().zip(&uses).enumerate() {
            let (MethodValue::Tensor(tensor), Some(lifetime)) = (value, lifetime) else { continue };
            let (bytes, lifetime) = (tensor.info.nbytes(), *lifetime);
            match tensor.location {
                Some((0, start)) => {
                    let end = start.checked_add(bytes).ok_or_else(too_large)?;
                    taken.push(Taken { start, end, lifetime });
                }
                None if matches!(tensor.data, TensorData::None) => {
                    waiting.push((bytes, index, lifetime));
                }
                _ => {}
            }
        }
        // Ties are broken by index, so that plans are deterministic.
        waiting.sort_unstable_by_key(|(bytes, index, _)| (core::cmp::Reverse(*bytes), *index));
        // Tensors without elements have a place, too.
        let is_needed = !waiting.is_empty();
        let mut room = Arena::with(taken, ALIGN);
        let mut end = room.end();
        let mut rest = 0;
        for (number, (bytes, index, lifetime)) in waiting.into_iter().enumerate() {
            let start = if number < MAX {
                room.take(bytes, lifetime).ok_or_else(too_large)?
            } else {
                rest = end.max(rest).checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
                rest
            };
            let own_end = start.checked_add(bytes).ok_or_else(too_large)?;
            end = end.max(own_end);
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(index) {
                tensor.location = Some((0, start));
            }
        }
        if self.planned.is_empty() && (end > 0 || is_needed) {
            self.planned.push(0);
        }
        if let Some(size) = self.planned.first_mut() {
            *size = end.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        }
        Ok(())
    }
}

fn too_large() -> Error {
    Error::unsupported("planned memory that exceeds the address space")
}

#[cfg(test)]
mod tests;
