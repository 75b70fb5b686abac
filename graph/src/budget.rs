//! How much of a blob may be read: flatbuffers can name the same bytes in many places, so that what
//! is read could be far larger than what was given.

use crate::error::Error;
use alloc::vec::Vec;
use torchlet_core::format::Malformed;
use torchlet_core::format::flatbuffer::{Item, Vector};

/// Bytes that may still be read of a blob: each of its bytes belongs to one vector or string.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
}

impl Budget {
    /// That of a blob.
    pub(crate) fn of(blob: &[u8]) -> Self {
        Budget { left: blob.len() }
    }

    /// Counts bytes as read.
    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        let rest = self.left.checked_sub(bytes);
        self.left = rest.ok_or_else(|| Error::invalid("parts of a graph overlap"))?;
        Ok(())
    }

    /// The items of a vector, counted as read.
    pub(crate) fn all<'b, T: Item<'b>>(&mut self, vector: Vector<'b, T>) -> Result<Vec<T>, Error> {
        self.spend(vector.len().saturating_mul(T::SIZE))?;
        Ok(vector.iter().collect::<Result<_, Malformed>>()?)
    }
}
