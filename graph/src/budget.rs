//! Limit on the bytes parsed from a blob. Several flatbuffer offsets can refer to the same bytes,
//! so a small malicious blob could otherwise expand to a huge graph.

use crate::error::Error;
use alloc::vec::Vec;
use torchlet_core::format::Malformed;
use torchlet_core::format::flatbuffer::{Item, Vector};

/// Maximum number of bytes that a front end computes for the constants of a program: constants of
/// few bytes in a file can describe tensors of any size.
#[cfg_attr(not(feature = "pt2"), allow(dead_code, reason = "of imported formats"))]
pub(crate) const MAX_OWN_BYTES: usize = 1 << 28;

/// Bytes that may still be parsed from a blob. In a valid blob, each byte belongs to at most one
/// vector or string.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
}

impl Budget {
    /// Creates a budget of the blob's length.
    pub(crate) fn of(blob: &[u8]) -> Self {
        Budget { left: blob.len() }
    }

    /// Subtracts parsed bytes.
    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        let rest = self.left.checked_sub(bytes);
        self.left = rest.ok_or_else(|| {
            Error::invalid(
                "the vectors and strings of a graph overlap: together they exceed its size",
            )
        })?;
        Ok(())
    }

    /// Returns the items of a vector and subtracts their bytes.
    pub(crate) fn all<'b, T: Item<'b>>(&mut self, vector: Vector<'b, T>) -> Result<Vec<T>, Error> {
        self.spend(vector.len().saturating_mul(T::SIZE))?;
        Ok(vector.iter().collect::<Result<_, Malformed>>()?)
    }
}
