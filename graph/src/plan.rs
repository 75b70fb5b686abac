//! Places of tensors in planned memory.
//!
//! A tensor needs its memory from the first instruction that uses it to the last one. Those whose
//! times overlap lie apart; large ones choose first, each the lowest place that is free. What has a
//! place keeps it: state, which other methods may share, and all else that an exporter planned.

mod lifetimes;
mod loops;
mod room;
mod sharing;

use crate::error::Error;
use crate::method::{Method, MethodValue, TensorData};
use alloc::vec::Vec;
use lifetimes::lifetimes;
use room::Taken;
pub use room::{Lifetime, Room};

/// At what multiples tensors start.
const ALIGN: usize = 16;
/// How many tensors look for memory that others use at other times, largest first. The rest, which
/// no real program has, lies side by side: to look takes as many steps as there are others.
const MOST: usize = 1 << 15;

impl Method<'_> {
    /// Gives a place to each tensor that instructions use and that has none: not to constants, not
    /// to inputs and outputs (their memory is the caller's), not to views.
    ///
    /// # Errors
    /// The memory is larger than a program can say.
    pub fn plan(&mut self) -> Result<(), Error> {
        let uses = lifetimes(self);
        let mut taken = Vec::new();
        let mut waiting = Vec::new();
        for (index, (value, lifetime)) in self.values.iter().zip(&uses).enumerate() {
            let (MethodValue::Tensor(tensor), Some(lifetime)) = (value, lifetime) else { continue };
            let (bytes, lifetime) = (tensor.info.nbytes(), *lifetime);
            match tensor.place {
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
        // Equal ones in order of values, so that the same program is always planned alike.
        waiting.sort_unstable_by_key(|(bytes, index, _)| (core::cmp::Reverse(*bytes), *index));
        let mut room = Room::with(taken, ALIGN);
        let mut end = room.end();
        let mut rest = 0;
        for (number, (bytes, index, lifetime)) in waiting.into_iter().enumerate() {
            let start = if number < MOST {
                room.take(bytes, lifetime).ok_or_else(too_large)?
            } else {
                rest = end.max(rest).checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
                rest
            };
            let own_end = start.checked_add(bytes).ok_or_else(too_large)?;
            end = end.max(own_end);
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(index) {
                tensor.place = Some((0, start));
            }
        }
        if self.planned.is_empty() && end > 0 {
            self.planned.push(0);
        }
        if let Some(size) = self.planned.first_mut() {
            *size = end.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        }
        Ok(())
    }
}

fn too_large() -> Error {
    Error::unsupported("planned memory that is larger than a program can say")
}

#[cfg(test)]
mod tests;
