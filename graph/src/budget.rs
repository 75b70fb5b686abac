//! Limits on the memory that a small malicious blob can ask for: flatbuffer offsets that refer to
//! the same bytes again and again, and constants that are stated in few bytes.

use crate::error::Error;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use torchlet_core::format::Malformed;
use torchlet_core::format::flatbuffer::{Item, Vector};

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

    /// Creates a budget for parts that may be used several times: `count` times the blob's length.
    pub(crate) fn of_uses(blob: &[u8], count: usize) -> Self {
        Budget { left: blob.len().saturating_mul(count) }
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

    /// Returns a string, empty if it is absent, and subtracts its bytes.
    pub(crate) fn text<'b>(&mut self, text: Option<&'b str>) -> Result<&'b str, Error> {
        let text = text.unwrap_or_default();
        self.spend(text.len())?;
        Ok(text)
    }

    /// Returns the items of a vector and subtracts their bytes.
    pub(crate) fn all<'b, T: Item<'b>>(&mut self, vector: Vector<'b, T>) -> Result<Vec<T>, Error> {
        self.spend(vector.len().saturating_mul(T::SIZE))?;
        Ok(vector.iter().collect::<Result<_, Malformed>>()?)
    }
}

/// Limit on the bytes of computed constants.
const MAX_COMPUTED: usize = 1 << 28;
/// Bytes of a call with its arguments, about.
const CALL: usize = 256;

/// Bytes by which a program may still grow when it is read: filled and tabulated tensors, views of
/// weights that repeat elements, calls that lowering adds. All methods and delegates of a program
/// share them.
#[derive(Debug, Clone)]
pub(crate) struct Computed {
    left: Rc<Cell<usize>>,
}

impl Computed {
    /// Creates the budget of a program.
    pub(crate) fn new() -> Self {
        Self::beside(0)
    }

    /// Subtracts a number of calls that a program has in addition to those of its file.
    pub(crate) fn spend_calls(&self, count: usize) -> Result<(), Error> {
        self.spend(count.saturating_mul(CALL))
    }

    /// Creates the budget of a program whose constants of `stored` bytes may also be rearranged.
    pub(crate) fn beside(stored: usize) -> Self {
        Computed { left: Rc::new(Cell::new(MAX_COMPUTED.saturating_add(stored))) }
    }

    /// Subtracts the bytes of a constant, before it is computed.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), Error> {
        let rest = self.left.get().checked_sub(bytes).ok_or_else(|| {
            Error::Unsupported(format!(
                "a program that grows by more than {} MiB when it is read",
                MAX_COMPUTED >> 20
            ))
        })?;
        self.left.set(rest);
        Ok(())
    }
}
